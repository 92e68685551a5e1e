//! Why memory cannot be adopted, or not be given back whole.

use farside_types::{CardId, PageRange, VirtAddr};
use rustix::io::Errno;

use farside_linux::mapping::MemoryError;
use farside_linux::uffd::UffdError;

/// Why memory cannot be adopted, or not be given back whole.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AdoptError {
    /// No bytes.
    #[error("there is nothing to adopt: the range at {addr} has no bytes")]
    Empty {
        /// Where.
        addr: VirtAddr,
    },
    /// Addresses that no memory has.
    #[error("{bytes} bytes at {addr} are no memory of a program")]
    Range {
        /// Where.
        addr: VirtAddr,
        /// How many.
        bytes: u64,
    },
    /// The kernel has no `UFFDIO_MOVE`.
    #[error(
        "memory of the program's own cannot be adopted: this kernel lacks UFFDIO_MOVE (Linux 6.8); copy the \
         data into a buffer of the space (Space::alloc), which works on this kernel"
    )]
    NoMove,
    /// The paging interface is not to be had, or refuses.
    #[error(
        "memory at {addr} cannot be adopted: {error}; a buffer of the space (Space::alloc) can be used instead"
    )]
    Uffd {
        /// Where.
        addr: VirtAddr,
        /// Why.
        error: UffdError,
    },
    /// Nothing is mapped at an address.
    #[error("the range cannot be adopted: nothing is mapped at {addr}")]
    Hole {
        /// Where.
        addr: VirtAddr,
    },
    /// It is other memory than private anonymous.
    #[error(
        "the range cannot be adopted: at {addr} is {what}, and only private anonymous memory can be (malloc, \
         a Vec, a stack, an anonymous private mmap); copy the data into a buffer of the space"
    )]
    NotPrivate {
        /// Where.
        addr: VirtAddr,
        /// What is there.
        what: String,
    },
    /// It cannot be read and written.
    #[error(
        "the range cannot be adopted: the memory at {addr} is {rights}, and has to be rw-p; mprotect it first"
    )]
    Rights {
        /// Where.
        addr: VirtAddr,
        /// As `/proc/self/maps` writes them.
        rights: String,
    },
    /// A card that shares no memory with the program.
    #[error(
        "memory cannot be adopted in a space with {card}, which shares no memory with this program: copy the data \
         into a buffer of the space"
    )]
    Beyond {
        /// Which.
        card: CardId,
    },
    /// Its edges are in pages with other data, which a card elsewhere does not reach.
    #[error(
        "the range from {addr} on cannot be adopted in a space with {card}, which is in another process: it begins or ends \
         inside a page, whose other bytes have to stay here; align it to 4096 bytes"
    )]
    Unaligned {
        /// Where the range begins.
        addr: VirtAddr,
        /// Which card.
        card: CardId,
    },
    /// The map of the process cannot be read.
    #[error("the range cannot be adopted: /proc/self/maps cannot be read ({errno})")]
    Maps {
        /// The kernel's answer.
        errno: Errno,
    },
    /// No address space for the staging area, or no descriptor.
    #[error("the range cannot be adopted: {0}")]
    Memory(#[from] MemoryError),
    /// No descriptor or thread.
    #[error("the range cannot be adopted: {what} failed ({errno})")]
    Call {
        /// What.
        what: &'static str,
        /// The kernel's answer.
        errno: Errno,
    },
    /// It was adopted once, and the program has moved or unmapped it.
    #[error(
        "{range} is no adopted memory (any more): it was given back, or the program has moved or unmapped it"
    )]
    NotAdopted {
        /// The pages.
        range: PageRange,
    },
    /// The bytes of pages are gone with cards.
    #[error(
        "the memory was given back without the bytes of {pages} of its pages, first of {first}: they were lost with a \
         card, and are zeros now"
    )]
    Lost {
        /// How many.
        pages: u64,
        /// The first of them.
        first: PageRange,
    },
    /// A page is not where it belongs.
    #[error(
        "{range} could not be brought home ({errno}): it is still adopted, and works; try again"
    )]
    NotHome {
        /// Which pages.
        range: PageRange,
        /// The kernel's answer.
        errno: Errno,
    },
}

impl AdoptError {
    /// Whether it is the memory that cannot be adopted, or is not any more, rather than a machine that cannot do it.
    pub fn is_of_the_memory(&self) -> bool {
        matches!(
            self,
            AdoptError::Empty { .. }
                | AdoptError::Range { .. }
                | AdoptError::Hole { .. }
                | AdoptError::NotPrivate { .. }
                | AdoptError::Rights { .. }
                | AdoptError::Unaligned { .. }
                | AdoptError::NotAdopted { .. }
        )
    }
}
