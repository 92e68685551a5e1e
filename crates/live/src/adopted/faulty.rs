//! Reads and writes of a file that fail on purpose (feature `mutations`).

use std::sync::atomic::{AtomicU64, Ordering};

/// Which of them fail.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    /// Calls since the last change.
    calls: AtomicU64,
    /// The first that fails, from 1, and how many do; 0: none.
    first: AtomicU64,
    count: AtomicU64,
}

impl Faults {
    /// From the call `first` on, counted from 1 from now on, `count` of them fail.
    pub(crate) fn set(&self, first: u64, count: u64) {
        self.calls.store(0, Ordering::SeqCst);
        self.count.store(count, Ordering::SeqCst);
        self.first.store(first, Ordering::SeqCst);
    }

    /// Calls since then.
    pub(crate) fn calls(&self) -> u64 {
        self.calls.load(Ordering::SeqCst)
    }

    /// The next call: writes fail as on a full disk, reads as of a broken one.
    pub(super) fn next(&self, writes: bool) -> std::io::Result<()> {
        let call = self.calls.fetch_add(1, Ordering::SeqCst) + 1;
        let first = self.first.load(Ordering::SeqCst);
        let fails = first > 0 && call >= first && call - first < self.count.load(Ordering::SeqCst);
        match (fails, writes) {
            (false, _) => Ok(()),
            (true, true) => Err(std::io::Error::from_raw_os_error(libc::ENOSPC)),
            (true, false) => Err(std::io::Error::from_raw_os_error(libc::EIO)),
        }
    }
}
