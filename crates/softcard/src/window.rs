//! A card's own memory, as kernels and programs ask for it: who gives it, and why it is not given.

use farside_card::interface::AllocRequest;
use farside_card::window::AllocError;
use farside_types::{CardId, VirtAddr};
use thiserror::Error;

use crate::own_memory::OwnMemory;

/// When the pages of an allocation get memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Backing {
    /// Each when it is first touched. A kernel whose touch finds none left fails.
    Lazy,
    /// All of them at once, or there is no allocation.
    Eager,
}

/// Why a card's own memory cannot be had, or given back.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum WindowError {
    /// The card has no window.
    #[error(
        "{card} gives no memory of its own: {why}; allocate shared memory instead (`Space::alloc`)"
    )]
    NoWindow {
        /// Which card.
        card: CardId,
        /// Why it has none.
        why: &'static str,
    },
    /// The card's allocator has refused.
    #[error("{card} did not {}: {error}; {}", asked(*.request), advice(*.request, *.error, .memories))]
    Refused {
        /// Which card.
        card: CardId,
        /// What it was asked.
        request: AllocRequest,
        /// Why not.
        error: AllocError,
        /// Its memories, and what was free in them, where that is known.
        memories: Vec<OwnMemory>,
    },
    /// No memory of the card's own is called so.
    #[error("{card} has no memory of its own that is called `{asked}`; it has {there}")]
    NoSuchMemory {
        /// Which card.
        card: CardId,
        /// What it was called.
        asked: String,
        /// Those that there are.
        there: String,
    },
    /// The memory may only be read.
    #[error(
        "the memory of {card} at {addr} was allocated to be read only; fill it by `CardBuffer::fill_from`, or allocate it \
         without `read_only`"
    )]
    ReadOnly {
        /// Which card.
        card: CardId,
        /// Its address.
        addr: VirtAddr,
    },
    /// More values than room.
    #[error(
        "{count} values are more than the {room} that the memory of {card} at {addr} has room for"
    )]
    NoRoom {
        /// Which card.
        card: CardId,
        /// Its address.
        addr: VirtAddr,
        /// Values that there are.
        count: usize,
        /// Values that there is room for.
        room: usize,
    },
    /// The memory is not the kernel's own.
    #[error(
        "the memory at {addr} was not allocated by this kernel, or is its no more: a kernel frees and grows \
         what it has allocated itself"
    )]
    NotOwn {
        /// Its address.
        addr: VirtAddr,
    },
    /// A kernel in the process of its card has made a buffer that only the program can keep.
    #[error(
        "this kernel runs in the process of its card, and hands over what it leaves to the program: \
         `Growable::hand_over` here, `Space::take_over` there"
    )]
    Elsewhere,
    /// A kernel does not let pages go that are freed.
    #[error(
        "{card} allocates no more: a kernel does not let pages go that were freed or have moved, at {addr}; \
         cancel that kernel, and open the space anew"
    )]
    Held {
        /// Which card.
        card: CardId,
        /// The first of the pages.
        addr: VirtAddr,
    },
    /// A card in another process allocates nothing while a kernel has pages that were freed.
    #[error(
        "{card} allocates nothing before a kernel lets pages go that were freed, at {addr}; cancel that kernel"
    )]
    Freeing {
        /// Which card.
        card: CardId,
        /// The first of the pages.
        addr: VirtAddr,
    },
    /// Memory that was freed is not let go.
    #[error(
        "somebody does not let the memory of {card} go that was freed, at {addr}: it is out of use; cancel the kernel that has it"
    )]
    OutOfUse {
        /// Which card.
        card: CardId,
        /// Where it begins.
        addr: VirtAddr,
    },
    /// Values that no page can be aligned for.
    #[error("{card} aligns memory to pages of 4096 bytes, and a value wants {align}")]
    Alignment {
        /// Which card.
        card: CardId,
        /// Bytes.
        align: usize,
    },
    /// This is a child that fork has made: the cards are its parent's.
    #[error("the cards belong to process {owner}; open a space in this process, behind the fork")]
    WrongProcess {
        /// Whose they are.
        owner: i32,
    },
    /// A kernel has not handed this over, or it was taken over before.
    #[error("the memory at {addr} is nothing that a kernel of {card} has handed over: {why}")]
    NotMade {
        /// Which card.
        card: CardId,
        /// Its address.
        addr: VirtAddr,
        /// Why not.
        why: String,
    },
    /// The card says what cannot be.
    #[error(
        "{card} says what cannot be of its own memory at {addr}: {why}; nothing is believed of it any more, and it is reset"
    )]
    Broken {
        /// Which card.
        card: CardId,
        /// The address concerned.
        addr: VirtAddr,
        /// What it said.
        why: String,
    },
    /// The card does not answer.
    #[error("{card} does not answer what it was asked about its own memory at {addr}")]
    Silent {
        /// Which card.
        card: CardId,
        /// The address concerned.
        addr: VirtAddr,
    },
    /// The card is gone.
    #[error("{card} is gone, and all that was in its own memory with it; allocate on another card")]
    Gone {
        /// Which card.
        card: CardId,
    },
    /// The pages cannot be read or written by the program.
    #[error("the page at {addr} of the memory of {card} cannot be shown to the program: {why}")]
    NotShown {
        /// Which card.
        card: CardId,
        /// The page.
        addr: VirtAddr,
        /// Why not.
        why: String,
    },
}

impl WindowError {
    /// Whether the card has too little of its own memory, or too few addresses for it, for what was asked.
    pub fn is_full(&self) -> bool {
        use AllocError::{NoFrames, NoSpace, TooLarge};
        matches!(self, WindowError::Refused { error: NoFrames | NoSpace | TooLarge, .. })
    }

    /// Whether the card has no memory of the name or number that was asked for.
    pub fn is_unknown_memory(&self) -> bool {
        let refused = AllocError::UnknownMemory;
        matches!(self, WindowError::NoSuchMemory { .. })
            || matches!(self, WindowError::Refused { error, .. } if *error == refused)
    }
}

fn asked(request: AllocRequest) -> String {
    match request {
        AllocRequest::Malloc { bytes, lazy: false, .. } => format!("give {bytes} bytes"),
        AllocRequest::Malloc { bytes, .. } => format!("reserve {bytes} bytes"),
        AllocRequest::Realloc { address, bytes, .. } => {
            format!("give the allocation at {} a size of {bytes} bytes", VirtAddr(address))
        }
        AllocRequest::Free { address } => format!("free {}", VirtAddr(address)),
    }
}

/// What is free of the memory that was asked for, and where else there is some.
fn free_of(request: AllocRequest, memories: &[OwnMemory]) -> String {
    let free = |memory: &OwnMemory| match memories {
        [only] => format!("{} bytes", only.bytes_free),
        _ => format!("{} bytes of {}", memory.bytes_free, memory.name),
    };
    let (asked, others): (Vec<_>, Vec<_>) = memories.iter().partition(|memory| match request {
        AllocRequest::Malloc { memory: asked, .. } => memory.id.0 == asked,
        _ => true,
    });
    let asked: Vec<_> = asked.into_iter().map(free).collect();
    let others: Vec<_> = others.into_iter().filter(|it| it.bytes_free > 0).map(free).collect();
    match (asked.is_empty(), others.is_empty()) {
        (true, _) => String::new(),
        (false, true) => format!("{} are free: ", asked.join(", ")),
        (false, false) => {
            let others = others.join(", ");
            format!("{} are free, and {others}: choose another memory, ", asked.join(", "))
        }
    }
}

fn advice(request: AllocRequest, error: AllocError, memories: &[OwnMemory]) -> String {
    match error {
        AllocError::NoFrames => format!(
            "{}free some, ask for less, or give the card more (`SpaceBuilder::card_window`, \
             `farside card serve --window`)",
            free_of(request, memories)
        ),
        AllocError::UnknownMemory => {
            let names = memories.iter().map(|memory| format!("{} ({})", memory.id.0, memory.name));
            let names: Vec<_> = names.collect();
            match names.is_empty() {
                true => "`own_memories` says which there are".to_owned(),
                false => format!("there are {}", names.join(", ")),
            }
        }
        AllocError::NoSpace | AllocError::TooLarge => {
            "ask for less at a time, or open the space with more (`SpaceBuilder::card_window`)"
                .to_owned()
        }
        AllocError::NotAllocated => {
            "it was freed before, or is no address of the card's".to_owned()
        }
        AllocError::Inside => "pass the address that the allocation begins with".to_owned(),
        _ => "if it stays so, open the space anew".to_owned(),
    }
}
