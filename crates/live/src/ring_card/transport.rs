//! The way to a card: what a driver needs of a PCIe function, whoever gives it.

use std::ops::Range;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use farside_card::interface::Extent;
use rustix::io::Errno;
use thiserror::Error;

use super::by_link::ByLink;

/// A bus: registers, DMA maps and interrupts of one function. Four implementations: a card's process
/// over vfio-user, with descriptors or by messages alone, a link to an end beside the card, and the
/// kernel's VFIO.
pub trait Transport: Send + Sync + std::fmt::Debug {
    /// Reads a register of BAR0 that is 4 or 8 bytes wide, little endian.
    fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), TransportError>;

    /// Writes such a register.
    fn write(&self, offset: u64, from: &[u8]) -> Result<(), TransportError>;

    /// Rings the doorbell; as cheap as the bus allows. `false`: the card made that wait, and somebody
    /// had to end it.
    fn ring_doorbell(&self) -> bool;

    /// Lets a ring of the doorbell go on that the card has made wait since this was called before:
    /// called now and then, by a thread that waits for nobody.
    fn free_doorbell(&self) {}

    /// All messages together have to be answered until `end`; `None`: each in its own time.
    fn limit(&self, end: Option<Instant>) {
        let _ = end;
    }

    /// Lets the function reach a piece of memory at a bus address.
    fn map(&self, piece: &DmaPiece<'_>) -> Result<(), TransportError>;

    /// Lets the function reach the memory that holds its rings, and the lists and arguments of commands.
    fn map_rings(&self, piece: &DmaPiece<'_>) -> Result<(), TransportError> {
        self.map(piece)
    }

    /// Who moves pages to and from the function's memory in place of its page DMA, if somebody does.
    fn mover(&self) -> Option<&dyn PageMover> {
        None
    }

    /// Takes a mapped piece away again.
    fn unmap(&self, bus: u64, bytes: u64) -> Result<(), TransportError>;

    /// The file whose mapping is the function's memory (BAR2), of which `bytes` bytes are going to be
    /// used, and where in it the memory begins. Whatever the card does, using it raises no signal.
    fn memory(&self, bytes: u64) -> Result<(OwnedFd, u64), TransportError>;

    /// Whether there is no such file, and nothing that either side could map of the other's memory: all
    /// goes by messages, which end with the connection.
    fn is_by_messages(&self) -> bool {
        false
    }

    /// The link to its lender's end, if it is one.
    fn as_link(&self) -> Option<&ByLink> {
        None
    }

    /// Reads the function's memory by messages, where it cannot be mapped.
    fn read_memory(&self, offset: u64, into: &mut [u8]) -> Result<(), TransportError> {
        let _ = (offset, into);
        Err(unfit_for_messages())
    }

    /// Writes the function's memory by messages, where it cannot be mapped.
    fn write_memory(&self, offset: u64, from: &[u8]) -> Result<(), TransportError> {
        let _ = (offset, from);
        Err(unfit_for_messages())
    }

    /// Has the interrupt vectors, from the first on, signal these event descriptors.
    fn interrupt_by(&self, events: &[BorrowedFd<'_>]) -> Result<(), TransportError>;

    /// How soon whoever has lent the card wants it back, if they do.
    fn wanted_back(&self) -> Option<Duration> {
        None
    }

    /// What says when the card goes, if anything does.
    fn watch(&self) -> Option<Watch<'_>>;

    /// Whether the card is gone; called when the watched descriptor says something.
    fn is_gone(&self) -> bool;

    /// Why it is gone, where more is known than that it is.
    fn why_gone(&self) -> Option<String> {
        None
    }

    /// Stops a card that is given up, as far as this side can: what it has not written to memory by
    /// then, it does not write any more. Where a connection's end does that, there is nothing to do.
    fn stop(&self);
}

/// Moves pages between the function's memory and pieces that were mapped, beside its rings. What it has
/// put into the function's memory is there before any command that is published later.
pub trait PageMover {
    /// Copies, or fills with zeros where there is no source. Waits for nobody: the end is told by
    /// [`PageMover::moved`], and the descriptors of the interrupts are signalled for it.
    fn start(&self, order: MoveOrder);

    /// Something is new of a launch, in the order of the moves.
    fn launch(&self, news: LaunchNews) {
        let _ = news;
    }

    /// What has ended since this was asked before.
    fn moved(&self) -> Vec<Moved>;

    /// Whether something has.
    fn has_moved(&self) -> bool;
}

/// Pages to be moved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MoveOrder {
    /// Comes back in [`Moved`].
    pub tag: u64,
    /// Pages that are filled with zeros, not copied.
    pub fills: bool,
    /// From where to where; their pages are of no interest.
    pub extents: Vec<Extent>,
}

/// What is new of a launch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LaunchNews {
    /// One is going to be published: a kernel may write any of the function's memory.
    Begins,
    /// It is published, and no other is under way. These bytes of the function's memory are believed to be wanted
    /// as soon as it has completed.
    Alone {
        /// The tag of its command.
        tag: u64,
        /// Up to which index commands are published, with it.
        index: u32,
        /// First and past the last byte of each part.
        made: Vec<Range<u64>>,
    },
    /// It has completed.
    Ended {
        /// The tag of its command.
        tag: u64,
    },
}

/// A move that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moved {
    /// Which.
    pub tag: u64,
    /// Pages that it was about; none if it failed.
    pub pages: Option<u64>,
    /// All of it had been asked for before, behind a launch (`LaunchNews`): nobody has waited for it.
    pub came_along: bool,
}

/// A descriptor to wait for.
#[derive(Clone, Copy, Debug)]
pub enum Watch<'a> {
    /// The card is gone when it hangs up, on both sides.
    Connection(BorrowedFd<'a>),
    /// The card may be gone when it becomes readable.
    Event(BorrowedFd<'a>),
}

/// Memory that a card is to reach.
#[derive(Clone, Copy, Debug)]
pub struct DmaPiece<'a> {
    /// Bus address of its first byte.
    pub bus: u64,
    /// Its length.
    pub bytes: u64,
    /// Where this process has it mapped.
    pub address: *mut u8,
    /// The file it lies in.
    pub file: BorrowedFd<'a>,
    /// Where in the file.
    pub offset: u64,
}

/// A card cannot be reached, or refuses.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TransportError {
    /// It answered with an error.
    #[error("{what} failed: {errno}")]
    Refused {
        /// What was asked.
        what: &'static str,
        /// The answer.
        errno: Errno,
    },
    /// It gave no answer in time.
    #[error(
        "{what} got no answer in time: the card's process stands still, or a lender's end has no card any \
         more; `farside cards` shows a card of this host, `farside who` one that is borrowed: return it, and \
         borrow again"
    )]
    TimedOut {
        /// What was asked.
        what: &'static str,
    },
    /// It is gone.
    #[error("{what} failed: the connection has ended; the card's process is gone")]
    Gone {
        /// What was asked.
        what: &'static str,
    },
    /// It has closed the connection at once.
    #[error(
        "the card's process closed the connection before it answered: too many programs ask it at \
         once, it has no room for another, or it has just ended; `farside cards` shows who uses it"
    )]
    TurnedAway,
    /// Nobody has served this program at the other end of a link.
    #[error("{by} does not serve this program now: {why}")]
    NotServed {
        /// The card, and whose it is.
        by: String,
        /// What is known of that.
        why: String,
    },
    /// It is no card of ours, or one that this version cannot drive.
    #[error("{what}")]
    Unfit {
        /// What is wrong.
        what: String,
    },
}

fn unfit_for_messages() -> TransportError {
    TransportError::Unfit { what: "the card's memory is mapped, not read by messages".to_owned() }
}

/// A register of 32 bits.
pub(crate) fn read_u32(bus: &dyn Transport, offset: u64) -> Result<u32, TransportError> {
    let mut bytes = [0; 4];
    bus.read(offset, &mut bytes)?;
    Ok(u32::from_le_bytes(bytes))
}

/// A register of 64 bits.
pub(crate) fn read_u64(bus: &dyn Transport, offset: u64) -> Result<u64, TransportError> {
    let mut bytes = [0; 8];
    bus.read(offset, &mut bytes)?;
    Ok(u64::from_le_bytes(bytes))
}

/// Writes a register of 32 bits.
pub(crate) fn write_u32(
    bus: &dyn Transport,
    offset: u64,
    value: u32,
) -> Result<(), TransportError> {
    bus.write(offset, &value.to_le_bytes())
}

/// Writes a register of 64 bits.
pub(crate) fn write_u64(
    bus: &dyn Transport,
    offset: u64,
    value: u64,
) -> Result<(), TransportError> {
    bus.write(offset, &value.to_le_bytes())
}
