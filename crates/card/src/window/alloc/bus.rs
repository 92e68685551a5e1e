//! How the allocator reaches the tables, and tells translators.

use thiserror::Error;

/// The memory of the tables answered a read or a write with an error.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("the memory of the tables answered with an error")]
pub struct TableBusError;

/// Pages of the window, counted from its begin.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct WindowPages {
    /// The first.
    pub first: u64,
    /// How many; not 0.
    pub count: u64,
}

impl WindowPages {
    pub(super) fn new(first: u64, count: u64) -> WindowPages {
        WindowPages { first, count }
    }

    /// The page behind the last.
    pub fn end(self) -> u64 {
        self.first + self.count
    }

    /// Whether `page` is one of them.
    pub fn contains(self, page: u64) -> bool {
        (self.first..self.end()).contains(&page)
    }
}

/// The memory of the tables, by words of 8 bytes, and the translators' invalidation port.
///
/// What is asked for between two calls of [`TableBus::wait`] depends on nothing of it: hardware has it
/// under way at once, so a `wait` is one access's time.
pub trait TableBus {
    /// The word at an address, which is a multiple of 8.
    ///
    /// # Errors
    ///
    /// The memory answered with an error.
    fn read(&mut self, address: u64) -> Result<u64, TableBusError>;

    /// A word to an address. Whether it arrived is told by the next [`TableBus::wait`].
    fn write(&mut self, address: u64, word: u64);

    /// Everything that was written before is seen by whoever reads, and all reads have their words.
    ///
    /// # Errors
    ///
    /// A write since the last call was answered with an error; what lies there now is unknown.
    fn wait(&mut self) -> Result<(), TableBusError>;

    /// Pages were made valid: an invalidation of them that nobody waits for.
    fn made_valid(&mut self, pages: WindowPages);
}
