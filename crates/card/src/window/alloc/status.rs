//! How a command ends, and what is counted.

use thiserror::Error;

/// Why a command was refused. Its number is that of the status in hardware, where 0 is success.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[repr(u8)]
pub enum AllocError {
    /// No bytes were asked for.
    #[error("an allocation has at least one byte")]
    ZeroSize = 1,
    /// More bytes than the window has.
    #[error("the window has fewer bytes")]
    TooLarge = 2,
    /// The card has no such memory.
    #[error("the card has no memory with this number")]
    UnknownMemory = 3,
    /// No place in the window is long enough.
    #[error("no place in the window is long enough")]
    NoSpace = 4,
    /// Too few frames.
    #[error("the memory has too few free frames")]
    NoFrames = 5,
    /// No allocation has the address.
    #[error("no allocation has the address")]
    NotAllocated = 6,
    /// The address is not the first of its allocation.
    #[error("the address lies inside an allocation")]
    Inside = 7,
    /// The memory of the tables answered with an error.
    #[error("the memory of the tables answered with an error")]
    BusError = 8,
    /// The allocator has not been initialised.
    #[error("the allocator is not initialised yet")]
    Initialising = 9,
    /// A word of the tables is not as the allocator writes it.
    #[error("a word of the tables is not as the allocator writes it")]
    BadEntry = 10,
    /// Too much is being swept, or a command is under way.
    #[error("the allocator is busy: again when the sweep has gone on")]
    Busy = 11,
    /// Nobody serves commands any more.
    #[error("the card has failed or is being reset: it carries out no commands")]
    Stopped = 12,
}

/// Statuses, success too.
const STATUSES: usize = 13;

/// What an allocator has done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AllocCounts {
    /// Commands that ended with each status, by its number; 0 is success. [`AllocError::Busy`] is no end, and
    /// [`AllocError::Stopped`] none of the allocator's.
    pub answers: [u64; STATUSES],
    /// Pages that got a frame when they were touched.
    pub touched: u64,
    /// Look-ups that ended with a fault.
    pub faults: u64,
    /// Pages whose words were swept.
    pub swept: u64,
    /// Pages that stay in use until a reset, because a word could not be read or written.
    pub quarantined: u64,
    /// Words of what was swept that nobody can have written there: of a frame that is not in use or that a table
    /// has, or of another allocation.
    pub bad_words: u64,
    /// Marks of the last page that could not be taken from a page which is it no more. They mean nothing to a walk.
    pub marks_left: u64,
}

impl AllocCounts {
    /// How a command has ended. One that is busy has not: it comes again.
    pub(super) fn answer<T>(&mut self, result: &Result<T, AllocError>) {
        if matches!(result, Err(AllocError::Busy)) {
            return;
        }
        let status = result.as_ref().err().map_or(0, |&error| error as usize);
        self.answers[status] += 1;
    }
}
