//! What the program sees of a window: runs of the card's memory file, at the pages' addresses.

use farside_card::MappedRun;
use farside_linux::card_memory::CardMemory;
use farside_linux::lock::lock;
use farside_softcard::WindowError;
use farside_types::{Access, CancelReason, PageNo, PageRange, VirtAddr};

use super::{CardWindow, End};

/// Pages that are copied under the tables' lock at once: 2 MiB.
const COPIED_PAGES: u64 = 512;

impl CardWindow {
    /// Maps an allocation in the program, whole, if it is not mapped. It stays so until it is freed.
    ///
    /// # Errors
    /// [`WindowError::NotShown`] if it has a page without memory, its frames lie too scattered, or the kernel refuses;
    /// [`WindowError::ReadOnly`] if it may not be written and `access` is to; [`WindowError::Gone`].
    pub(crate) fn show(
        &self,
        addr: VirtAddr,
        bytes: u64,
        access: Access,
        memory: &CardMemory,
    ) -> Result<(), WindowError> {
        let range = self.view.inside(addr, bytes)?;
        let mut tables = lock(&self.tables);
        if let Some(End::Gone) = tables.end {
            return Err(WindowError::Gone { card: self.card() });
        }
        // What is held to be read only is mapped so: nobody may make a slice of it that can be written.
        let not_shown = |reason: CancelReason| self.view.not_shown(addr, reason.to_string());
        tables.held.rights(range, Access::Write).map_err(not_shown)?;
        let shown = tables.shown.get(&range.start.0).filter(|shown| shown.pages >= range.count);
        if let Some(rights) = shown.map(|shown| shown.rights) {
            return self.view.check_rights(addr, rights, access);
        }
        let (runs, rights) = tables.runs(self, range, Access::Read).map_err(not_shown)?;
        self.view.check_rights(addr, rights, access)?;
        let runs: Vec<_> = runs.into_iter().map(|run| (run, rights)).collect();
        let shown = self.view.map(range, &runs, memory)?;
        tables.shown.insert(range.start.0, shown);
        Ok(())
    }

    /// Calls `each` with the runs that `bytes` bytes at `addr` are in. Pages that were never touched have none: to be written they
    /// get some, and to be read they are left out. Nobody waits for the tables meanwhile for longer than a piece takes.
    ///
    /// # Errors
    /// As [`CardWindow::show`].
    pub(crate) fn with_runs(
        &self,
        addr: VirtAddr,
        bytes: u64,
        access: Access,
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
            let held = tables.held.rights(piece, access);
            let runs = held.and_then(|_| match access {
                Access::Read => tables.touched(self, piece),
                // What kernels may do with them is another matter.
                Access::Write => tables.runs(self, piece, Access::Read).map(|(runs, _)| runs),
            });
            let runs = runs.map_err(|reason| self.view.not_shown(addr, reason.to_string()))?;
            // They are its frames while the lock is held.
            runs.into_iter().for_each(&mut each);
        }
        Ok(())
    }
}
