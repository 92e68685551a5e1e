//! What the program sees of a window: runs of the card's memory file, at the pages' addresses.

use std::os::fd::AsFd;

use farside_linux::card_memory::CardMemory;
use farside_linux::lock::lock;
use farside_linux::mapping::Part;
use farside_softcard::WindowError;
use farside_types::{Access, PAGE_SIZE, PageNo, PageRange, VirtAddr};

use super::{CardWindow, End, Shown, Tables};

const WHAT: &str = "a card's own memory";
/// Mappings of all that is shown of a window, at most: a process has some 65,000 (`vm.max_map_count`), and other
/// parts of it need some.
pub(super) const MAPPINGS_MAX: usize = 8192;

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
        let range = self.inside(addr, bytes)?;
        let mut tables = lock(&self.tables);
        if let Some(End::Gone) = tables.end {
            return Err(WindowError::Gone { card: self.card });
        }
        // What is held to be read only is mapped so: nobody may make a slice of it that can be written.
        let rights = tables.rights(range, Access::Write);
        rights.map_err(|reason| self.not_shown(addr, reason.to_string()))?;
        if tables.shown.get(&range.start.0).is_some_and(|shown| shown.pages >= range.count) {
            return Ok(());
        }
        let runs = tables
            .runs(self, range, Access::Write)
            .map_err(|reason| self.not_shown(addr, reason.to_string()))?;
        let mappings: usize = tables.shown.values().map(|shown| shown.mappings).sum();
        if mappings + runs.len() > MAPPINGS_MAX {
            let why = format!(
                "its frames lie in {} pieces, and {MAPPINGS_MAX} can be mapped in all, of which {mappings} are; \
                 copy it (`CardBuffer::to_vec`)",
                runs.len()
            );
            return Err(self.not_shown(addr, why));
        }
        let (file, begin) = memory.file();
        for run in &runs {
            let at = (run.page.0 - self.pages.start.0) as usize * PAGE_SIZE;
            let offset = begin + run.location.frame.byte_offset() as u64;
            let part = Part { file: file.as_fd(), offset, shared: true };
            let mapped = self.reservation.put(WHAT, at, run.count as usize * PAGE_SIZE, Some(part));
            if let Err(error) = mapped {
                self.unmap(range);
                return Err(self.not_shown(addr, error.to_string()));
            }
        }
        let shown = Shown { pages: range.count, mappings: runs.len() };
        tables.shown.insert(range.start.0, shown);
        Ok(())
    }

    /// Calls `each` with the runs that `bytes` bytes at `addr` are in, while nothing is taken away.
    ///
    /// # Errors
    /// As [`CardWindow::show`].
    pub(crate) fn with_runs(
        &self,
        addr: VirtAddr,
        bytes: u64,
        mut each: impl FnMut(farside_card::MappedRun),
    ) -> Result<(), WindowError> {
        let range = self.inside(addr, bytes)?;
        let mut tables = lock(&self.tables);
        if let Some(End::Gone) = tables.end {
            return Err(WindowError::Gone { card: self.card });
        }
        let rights = tables.rights(range, Access::Read);
        let runs = rights.and_then(|_| tables.runs(self, range, Access::Read));
        let runs = runs.map_err(|reason| self.not_shown(addr, reason.to_string()))?;
        runs.into_iter().for_each(&mut each);
        Ok(())
    }

    /// What is freed is shown no more: of what was mapped from one of these pages on, all of it.
    pub(super) fn hide(&self, tables: &mut Tables, pages: PageRange) {
        let end = pages.start.0 + pages.count;
        let hidden: Vec<u64> =
            tables.shown.range(pages.start.0..end).map(|(&first, _)| first).collect();
        for first in hidden {
            if let Some(shown) = tables.shown.remove(&first) {
                self.unmap(PageRange::new(PageNo(first), shown.pages));
            }
        }
    }

    /// What a kernel that was given up holds is out of the program's reach, or cannot be written.
    pub(super) fn withdraw(&self, tables: &Tables, pages: PageRange, access: Access) {
        let before = tables.shown.range(..pages.end().0);
        for (&first, shown) in before {
            let within = PageRange::new(PageNo(first), shown.pages).intersection(pages);
            if within.is_empty() {
                continue;
            }
            if access.is_write() {
                self.unmap(within);
                continue;
            }
            let at = (within.start.0 - self.pages.start.0) as usize * PAGE_SIZE;
            let denied = self.reservation.deny_writes(WHAT, at, within.bytes() as usize);
            if let Err(error) = denied {
                tracing::error!(%error, "the program may write what a kernel that hangs reads");
            }
        }
    }

    fn unmap(&self, range: PageRange) {
        let at = (range.start.0 - self.pages.start.0) as usize * PAGE_SIZE;
        if let Err(error) = self.reservation.put(WHAT, at, range.count as usize * PAGE_SIZE, None) {
            // What was freed is not the program's any more, and safe code has no way to it.
            tracing::warn!(%error, "freed memory of a card is still mapped");
        }
    }

    fn inside(&self, addr: VirtAddr, bytes: u64) -> Result<PageRange, WindowError> {
        let range = PageRange::covering(addr, bytes).ok().filter(|&range| self.pages.covers(range));
        range.ok_or_else(|| self.not_shown(addr, "it is not in the card's window".to_owned()))
    }

    fn not_shown(&self, addr: VirtAddr, why: String) -> WindowError {
        WindowError::NotShown { card: self.card, addr, why }
    }
}
