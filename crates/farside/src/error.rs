//! What can go wrong.

use std::ops::Range;
use std::sync::Arc;

use farside_live::{LiveError, MoveError};
use farside_softcard::{KernelError, KernelsError, WindowError, WindowPlanError};
use farside_svm::{Nearest, RequestError};
use farside_types::{CardId, VirtAddr};
use thiserror::Error;

/// Why something did not work. The message says what to do about it.
#[derive(Debug, Error)]
pub enum Error {
    /// A list of cards that cannot be used.
    #[error("`{list}` is no list of cards: {why}")]
    Cards {
        /// The list, or the file.
        list: String,
        /// What is wrong with it.
        why: String,
    },
    /// The machine or the space.
    #[error(transparent)]
    Live(#[from] LiveError),
    /// A card's own memory.
    #[error(transparent)]
    Window(#[from] WindowError),
    /// Memories that a card cannot have of its own.
    #[error("a card's own memory cannot be so: {0}")]
    OwnMemory(#[from] WindowPlanError),
    /// A kernel.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// A piece of a parallel launch; after the first that fails no other is begun.
    #[error("indices {} to {} on {card} failed: {error}", .indices.start, .indices.end)]
    Piece {
        /// Where it ran.
        card: CardId,
        /// Its indices.
        indices: Range<u64>,
        /// Why it failed.
        #[source]
        error: KernelError,
    },
    /// A move that was not begun.
    #[error(transparent)]
    Move(MoveError),
    /// Memory that a parallel launch cannot split.
    #[error(
        "kernel `{kernel}` was not launched: {values} values cannot be split over {indices} indices; \
         lend as many values for each index, or all of them to every piece (`Read`, `Shared`)"
    )]
    Uneven {
        /// The kernel.
        kernel: Arc<str>,
        /// The values.
        values: u64,
        /// The indices.
        indices: u64,
    },
    /// A kernel's name, or a library of kernels.
    #[error(transparent)]
    Kernels(#[from] KernelsError),
    /// A placement scheme that cannot be.
    #[error(transparent)]
    Scheme(#[from] farside_svm::placement::SchemeError),
    /// A placement scheme's library that cannot be used, or does not want its parameters.
    #[error(transparent)]
    SchemeLibrary(#[from] farside_plugin::PluginError),
    /// A recording that cannot be written.
    #[error("the recording {path} cannot be written: {why}", path = .path.display())]
    Recording {
        /// Its file.
        path: std::path::PathBuf,
        /// Why not.
        why: String,
    },
    /// An event log that cannot be written.
    #[error("the event log {path} cannot be written: {why}", path = .path.display())]
    Events {
        /// Its file.
        path: std::path::PathBuf,
        /// Why not.
        why: String,
    },
    /// An address that is in no allocation of the space.
    #[error("{addr} is in no allocation of this space{nearest}; pass an address inside a buffer")]
    NotAllocated {
        /// The address.
        addr: VirtAddr,
        /// The nearest allocation, in brackets.
        nearest: String,
    },
    /// A space that is closed.
    #[error("this space is closed; open another one")]
    Closed,
    /// An address range that is no memory of the space, or no longer.
    #[error(
        "{:#x}..{:#x} is no memory of this space; pass memory that it has allocated and that is not freed",
        .bytes.start, .bytes.end
    )]
    NoMemory {
        /// The addresses.
        bytes: Range<u64>,
    },
    /// A card's own memory, where the driver was asked to do something with it.
    #[error(
        "{:#x}..{:#x} is {card}'s own memory, which stays where it is; use shared memory for what shall move",
        .bytes.start, .bytes.end
    )]
    StaysOnCard {
        /// The addresses.
        bytes: Range<u64>,
        /// The card.
        card: CardId,
    },
    /// Memory that is lent to a kernel which has not ended.
    #[error(
        "{kernel}: {:#x}..{:#x} is lent to kernel `{holder}`, which has not ended; wait for it, or come after it",
        .bytes.start, .bytes.end
    )]
    Lent {
        /// What was not done.
        kernel: String,
        /// The bytes that are held.
        bytes: Range<u64>,
        /// The kernel that holds them.
        holder: String,
    },
    /// A setting that cannot work.
    #[error("{what} is {value}, which cannot work: {why}")]
    Setting {
        /// Which setting.
        what: &'static str,
        /// Its value.
        value: String,
        /// Why not.
        why: &'static str,
    },
}

impl Error {
    pub(crate) fn not_allocated(addr: VirtAddr, nearest: Option<Nearest>) -> Error {
        let nearest =
            nearest.map_or(" (nothing is allocated)".to_owned(), |Nearest { object, .. }| {
                let name = if object.name.is_empty() { "unnamed" } else { &object.name };
                let start = object.range.start.addr();
                format!(" (the nearest is `{name}`, {start}..{})", VirtAddr(start.0 + object.bytes))
            });
        Error::NotAllocated { addr, nearest }
    }
}

impl From<RequestError> for Error {
    fn from(error: RequestError) -> Error {
        Error::Live(error.into())
    }
}
