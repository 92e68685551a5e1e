//! What the program sees of a window: runs of the card's memory file, at the pages' addresses.

use farside_card::MappedRun;
use farside_linux::card_memory::CardMemory;
use farside_linux::lock::lock;
use farside_softcard::WindowError;
use farside_types::{Access, PageNo, PageRange, VirtAddr};

use super::{CardWindow, End};

/// Pages that are copied under the tables' lock at once: 2 MiB.
const COPIED_PAGES: u64 = 512;

impl CardWindow {
    /// Maps an allocation in the program, whole, if it is not mapped. It stays so until it is freed.
    ///
    /// # Errors
    /// [`WindowError::NotShown`] if it has a page without memory, its frames lie too scattered, or the kernel refuses;
    /// [`WindowError::Gone`].
    pub(crate) fn show(
        &self,
        addr: VirtAddr,
        bytes: u64,
        memory: &CardMemory,
    ) -> Result<(), WindowError> {
        let range = self.view.inside(addr, bytes)?;
        let mut tables = lock(&self.tables);
        if let Some(End::Gone) = tables.end {
            return Err(WindowError::Gone { card: self.card() });
        }
        // What is held to be read only is mapped so: nobody may make a slice of it that can be written.
        let rights = tables.held.rights(range, Access::Write);
        let rights = rights.map_err(|reason| self.view.not_shown(addr, reason.to_string()))?;
        if tables.shown.get(&range.start.0).is_some_and(|shown| shown.pages >= range.count) {
            return Ok(());
        }
        let runs = tables
            .runs(self, range, Access::Write)
            .map_err(|reason| self.view.not_shown(addr, reason.to_string()))?;
        let runs: Vec<_> = runs.into_iter().map(|run| (run, rights)).collect();
        let shown = self.view.map(range, &runs, memory)?;
        tables.shown.insert(range.start.0, shown);
        Ok(())
    }

    /// Calls `each` with the runs that `bytes` bytes at `addr` are in, but for pages that were never touched: they have none, and get
    /// none. Nobody waits for the tables meanwhile for longer than a piece takes.
    ///
    /// # Errors
    /// As [`CardWindow::show`].
    pub(crate) fn with_runs(
        &self,
        addr: VirtAddr,
        bytes: u64,
        mut each: impl FnMut(MappedRun),
    ) -> Result<(), WindowError> {
        let range = self.view.inside(addr, bytes)?;
        for first in (range.start.0..range.end().0).step_by(COPIED_PAGES as usize) {
            let count = COPIED_PAGES.min(range.end().0 - first);
            let piece = PageRange::new(PageNo(first), count);
            let mut tables = lock(&self.tables);
            if let Some(End::Gone) = tables.end {
                return Err(WindowError::Gone { card: self.card() });
            }
            let rights = tables.held.rights(piece, Access::Read);
            let runs = rights.and_then(|_| tables.touched(self, piece));
            let runs = runs.map_err(|reason| self.view.not_shown(addr, reason.to_string()))?;
            // They are its frames while the lock is held.
            runs.into_iter().for_each(&mut each);
        }
        Ok(())
    }
}
