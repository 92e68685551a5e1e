//! Allocations in large pages.

use std::sync::atomic::{AtomicU64, Ordering};

use farside_svm::{Advice, Request};
use farside_types::PageRange;

use super::Runtime;
use crate::arena::LargePages;
use crate::error::LiveError;

/// Large pages of all allocations so far.
#[derive(Debug, Default)]
pub(super) struct LargeCount {
    wanted: AtomicU64,
    had: AtomicU64,
}

impl Runtime {
    /// Has a new allocation, of which nobody else knows, move in blocks of 2 MiB, and the host keep
    /// these in large pages as far as it can.
    ///
    /// # Errors
    /// [`LiveError::Arena`] if the kernel does not watch the pages any more: the allocation must be neither used nor
    /// freed then, so that nobody gets its addresses. [`LiveError::WrongProcess`] after a fork.
    pub fn make_large(&self, range: PageRange) -> Result<(), LiveError> {
        self.check_process()?;
        let LargePages { wanted, had } = self.memories.arena.make_large(range)?;
        if had < wanted {
            tracing::warn!(
                pages = %range,
                "{had} of {wanted} blocks of 2 MiB got a large page: the others go on by pages of 4 KiB \
                 (memory is in too small pieces, or Linux is older than 6.1)"
            );
        }
        self.large.wanted.fetch_add(wanted, Ordering::Relaxed);
        self.large.had.fetch_add(had, Ordering::Relaxed);
        self.request(Request::Advise { range, advice: Advice::WholeBlocks(true) }).map(drop)
    }

    /// Blocks of all allocations so far that were to be large pages, and those that have become some.
    pub fn large_pages(&self) -> LargePages {
        LargePages {
            wanted: self.large.wanted.load(Ordering::Relaxed),
            had: self.large.had.load(Ordering::Relaxed),
        }
    }
}
