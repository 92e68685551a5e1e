//! What can go wrong, as the program sees it.

use std::sync::Arc;

use farside_svm::{ConfigError, Nearest, RequestError};
use farside_types::{CardId, VirtAddr};
use thiserror::Error;

use crate::adopted::{AdoptError, FileError};
use crate::arena::ArenaError;
use crate::ring_card::TransportError;
use farside_linux::card_memory::CardMemoryError;

/// Why the runtime cannot do what it was asked.
#[derive(Debug, Error)]
pub enum LiveError {
    /// No arena.
    #[error("cannot make the shared memory: {0}; `farside doctor` says what this machine lacks")]
    Arena(#[from] ArenaError),
    /// No card memory.
    #[error("cannot make a card's memory: {0}")]
    CardMemory(#[from] CardMemoryError),
    /// A card that cannot be.
    #[error("a card cannot be made: {0}")]
    Geometry(#[from] farside_card::GeometryError),
    /// A driver that cannot be.
    #[error("the driver refuses its configuration: {0}")]
    Config(#[from] ConfigError),
    /// Memory of the program's own cannot be adopted, or was not given back whole.
    #[error(transparent)]
    Adopt(#[from] AdoptError),
    /// A file cannot be shared memory, or was not written.
    #[error(transparent)]
    File(#[from] FileError),
    /// A request failed.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// No event descriptor.
    #[error("cannot make an event descriptor: {0}; raise the limit of open files")]
    Bell(rustix::io::Errno),
    /// What the runtime waits for cannot be waited for.
    #[error("cannot wait for page faults: {call} failed: {errno}; {}", advice(*.errno))]
    Sources {
        /// The system call.
        call: &'static str,
        /// The kernel's answer.
        errno: rustix::io::Errno,
    },
    /// No thread.
    #[error("cannot start a thread of the runtime: {0}; raise the limit of processes")]
    Thread(std::io::Error),
    /// Memory for rings cannot be had.
    #[error("cannot make the memory that is shared with a card: {0}")]
    Memory(#[from] farside_linux::mapping::MemoryError),
    /// A card in another process, or a device, does not work.
    #[error("{card} does not work: {error}")]
    Card {
        /// Which.
        card: CardId,
        /// Why.
        error: TransportError,
    },
    /// Nobody serves the card.
    #[error(
        "{card} is not there: nobody serves {place} ({why}); start it with `farside card serve`"
    )]
    CardAbsent {
        /// Which.
        card: CardId,
        /// Where it should be.
        place: String,
        /// What the system says.
        why: String,
    },
    /// There is something at the card's place, and no connection to it.
    #[error("{card} cannot be reached: connecting to {place} failed: {errno}; {}", socket_advice(*.errno))]
    Socket {
        /// Which.
        card: CardId,
        /// Where it is.
        place: String,
        /// What the system says.
        errno: rustix::io::Errno,
    },
    /// The card was borrowed, and is not any more.
    #[error("{card} cannot be used: {why}")]
    LeaseOver {
        /// Which.
        card: CardId,
        /// The lease, and what to do.
        why: String,
    },
    /// All functions of the card are in use.
    #[error(
        "{card} at {place} is in use: none of its {functions} functions is free; \
         end a program that uses it (`farside cards` shows them), or serve it with more functions"
    )]
    CardsBusy {
        /// Which.
        card: CardId,
        /// Where it is.
        place: String,
        /// Functions that were tried.
        functions: usize,
    },
    /// The memories are larger than bus addresses reach.
    #[error(
        "the address space and the memories of all cards are {bytes} bytes, more than the 16 TiB that \
         a card elsewhere reaches; ask for less address space"
    )]
    TooLarge {
        /// All of them together.
        bytes: u64,
    },
    /// A card has come back with another size.
    #[error(
        "{card} has come back with {found} frames instead of {frames}; serve it with the memory \
         it had, or open a new space"
    )]
    OtherCard {
        /// Which.
        card: CardId,
        /// Frames it had.
        frames: u32,
        /// Frames it has now.
        found: u32,
    },
    /// A card that was lost has come back with another window of its own.
    #[error(
        "{card} has come back with another own memory than it had; serve it as it was \
         (`farside card serve --window`), or open a new space"
    )]
    OtherWindow {
        /// Which.
        card: CardId,
    },
    /// A device of the kernel's VFIO cannot be had.
    #[error("{card} cannot be driven: {error}")]
    Vfio {
        /// Which.
        card: CardId,
        /// Why.
        error: farside_linux::vfio::VfioError,
    },
    /// A closure cannot run in another process.
    #[error(
        "kernel `{kernel}` is a closure, and {card} is not in this program: give it a \
         name that the card knows and launch it with `call`"
    )]
    ClosureElsewhere {
        /// The kernel.
        kernel: Arc<str>,
        /// The card.
        card: CardId,
    },
    /// The space was inherited by fork.
    #[error(
        "this space belongs to process {owner}; a child made by fork has no access to it: open \
         a space of its own there"
    )]
    WrongProcess {
        /// The process that opened it.
        owner: i32,
    },
    /// The pages are not in the space.
    #[error("{addr} is not in the space; pass memory that alloc returned")]
    NotShared {
        /// The address.
        addr: VirtAddr,
    },
    /// A card that cannot have memory of its own.
    #[error("{card} cannot have memory of its own: {why}")]
    Window {
        /// Which.
        card: CardId,
        /// Why not.
        why: String,
    },
    /// A launch was lent another card's own memory, which its card does not reach.
    #[error(
        "{card} does not reach the memory at {addr}, which is {owner}'s own; launch on {owner}, or copy it into \
         shared memory first"
    )]
    WindowElsewhere {
        /// The address.
        addr: VirtAddr,
        /// Whose memory it is.
        owner: CardId,
        /// Where the kernel was to run.
        card: CardId,
    },
    /// Memory was lent to one launch in two ways.
    #[error(
        "kernel `{kernel}` was not launched: the memory at {addr} was lent to it twice, once to be \
         written or in another way; lend every byte once"
    )]
    LentTwice {
        /// The kernel.
        kernel: Arc<str>,
        /// Where the memory that was lent again begins.
        addr: VirtAddr,
    },
    /// There is no such card.
    #[error("there is no {card}: the space has {cards}")]
    NoSuchCard {
        /// The card asked for.
        card: CardId,
        /// How many there are.
        cards: usize,
    },
}

/// What to do when a socket cannot be connected to.
fn socket_advice(errno: rustix::io::Errno) -> &'static str {
    use rustix::io::Errno;
    match errno {
        Errno::ACCESS | Errno::PERM => {
            "this user may not use the card: join the group of its socket, or have it served with \
             an umask that lets others connect"
        }
        Errno::NAMETOOLONG => {
            "the path of a socket has at most 107 bytes: serve the card in a folder with a shorter \
             one"
        }
        Errno::AGAIN => {
            "its process accepts nobody: it stands still, or too many programs connect at once"
        }
        Errno::PROTOTYPE | Errno::NOTSOCK => "what is there is no socket of a card",
        other => advice(other),
    }
}

/// What to do about it.
fn advice(errno: rustix::io::Errno) -> &'static str {
    use rustix::io::Errno;
    match errno {
        Errno::MFILE | Errno::NFILE => "too many files are open: raise the limit (ulimit -n)",
        Errno::NOMEM => "memory has run out: free some, or raise the limits",
        _ => "run `farside doctor` to see what this machine supports",
    }
}

impl LiveError {
    /// Whether trying again a little later may help: the card is being started, or cleans up.
    pub(crate) fn may_pass(&self) -> bool {
        use TransportError::{Gone, NotServed, TimedOut, TurnedAway};
        match self {
            LiveError::CardAbsent { .. }
            | LiveError::CardsBusy { .. }
            | LiveError::Card {
                error: Gone { .. } | TimedOut { .. } | TurnedAway | NotServed { .. },
                ..
            } => true,
            LiveError::Vfio { error, .. } => error.may_pass(),
            _ => false,
        }
    }
}

/// What to say of the allocation nearest to a wild address. It ends where the program's bytes end,
/// not where their last page does.
pub(crate) fn hint(addr: VirtAddr, nearest: Option<Nearest>) -> String {
    let Some(Nearest { object, .. }) = nearest else {
        return " (nothing is allocated)".to_owned();
    };
    let name = if object.name.is_empty() { "an unnamed allocation" } else { &object.name };
    let start = object.range.start.addr();
    let end = VirtAddr(start.0 + object.bytes);
    let range = format!("{start}..{end}");
    if addr < start {
        format!(" ({} bytes before `{name}`, {range})", start.0 - addr.0)
    } else if addr < end {
        format!(" (it lies in `{name}`, {range}, which was not passed to the launch)")
    } else {
        format!(" ({} bytes behind the end of `{name}`, {range})", addr.0 - end.0)
    }
}

#[cfg(test)]
mod tests {
    use farside_svm::{ObjectId, ObjectView};
    use farside_types::{PageNo, PageRange};

    use super::*;

    #[test]
    fn a_wild_address_is_told_from_the_nearest_allocation_by_its_bytes() {
        let object = ObjectView {
            id: ObjectId(1),
            name: "list".into(),
            range: PageRange::new(PageNo(16), 1),
            bytes: 100,
            pages_moved: 0,
            pages_fetched: 0,
            pages_evicted: 0,
        };
        let near =
            |addr| hint(VirtAddr(addr), Some(Nearest { object: object.clone(), distance: 0 }));
        assert!(near(0x10000).contains("lies in `list`"), "{}", near(0x10000));
        assert!(near(0x10064).contains("0 bytes behind the end"), "{}", near(0x10064));
        assert!(near(0xfffe).contains("2 bytes before"), "{}", near(0xfffe));
    }
}
