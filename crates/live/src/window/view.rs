//! Addresses of a window in the program, and what is mapped there.

use std::collections::BTreeMap;
use std::os::fd::AsFd;

use farside_card::MappedRun;
use farside_linux::card_memory::CardMemory;
use farside_linux::mapping::{Mapping, Part};
use farside_softcard::WindowError;
use farside_types::{Access, CardId, PAGE_SIZE, PageNo, PageRange, Rights, VirtAddr};

use super::mappings::Mappings;

const WHAT: &str = "a card's own memory";

/// What the program sees of a window: the first page of each allocation, and what is mapped of it.
pub(super) type AllShown = BTreeMap<u64, Shown>;

/// An allocation that is mapped in the program.
#[derive(Debug)]
pub(super) struct Shown {
    pub(super) pages: u64,
    /// What kernels, and the program by its mapping, may do with all of them.
    pub(super) rights: Rights,
    _mappings: Mappings,
}

/// The addresses.
#[derive(Debug)]
pub(super) struct View {
    pub(super) card: CardId,
    pub(super) pages: PageRange,
    reservation: Mapping,
}

impl View {
    /// Addresses of `bytes` bytes, aligned to that, a power of two.
    pub(super) fn reserve(
        card: CardId,
        bytes: usize,
    ) -> Result<View, farside_linux::mapping::MemoryError> {
        let reservation = Mapping::reserve_aligned("a card's window", bytes, bytes)?;
        // As what is put back into it later: else each of these pieces stays a mapping of its own.
        reservation.dump(WHAT, false)?;
        let first = VirtAddr(reservation.base() as u64).page();
        let pages = PageRange::new(first, (bytes / PAGE_SIZE) as u64);
        Ok(View { card, pages, reservation })
    }

    pub(super) fn base(&self) -> u64 {
        self.pages.start.addr().0
    }

    /// The pages of these bytes.
    pub(super) fn inside(&self, addr: VirtAddr, bytes: u64) -> Result<PageRange, WindowError> {
        let range = PageRange::covering(addr, bytes).ok().filter(|&range| self.pages.covers(range));
        range.ok_or_else(|| self.not_shown(addr, "it is not in the card's window".to_owned()))
    }

    pub(super) fn not_shown(&self, addr: VirtAddr, why: String) -> WindowError {
        WindowError::NotShown { card: self.card, addr, why }
    }

    /// Whether what has these rights may be accessed so.
    pub(super) fn check_rights(
        &self,
        addr: VirtAddr,
        rights: Rights,
        access: Access,
    ) -> Result<(), WindowError> {
        if access.is_write() && rights == Rights::Read {
            return Err(WindowError::ReadOnly { card: self.card, addr });
        }
        Ok(())
    }

    /// Maps runs, which are all of `range`: all of them or none. Those that may only be read are mapped so.
    pub(super) fn map(
        &self,
        range: PageRange,
        runs: &[(MappedRun, Rights)],
        memory: &CardMemory,
    ) -> Result<Shown, WindowError> {
        let mappings = Mappings::take(runs.len());
        let mappings = mappings.map_err(|why| self.not_shown(range.start.addr(), why))?;
        let (file, begin) = memory.file();
        for (run, rights) in runs {
            let (at, bytes) = self.place(run.pages());
            let offset = begin + run.location.frame.byte_offset() as u64;
            let part = Part { file: file.as_fd(), offset, shared: true };
            let mapped = self.reservation.put(WHAT, at, bytes, Some(part));
            let mapped = mapped.and_then(|()| match rights {
                Rights::ReadWrite => Ok(()),
                Rights::Read => self.reservation.deny_writes(WHAT, at, bytes),
            });
            if let Err(error) = mapped {
                self.unmap(range);
                return Err(self.not_shown(range.start.addr(), error.to_string()));
            }
        }
        let rights = runs.iter().map(|&(_, rights)| rights).min().unwrap_or(Rights::Read);
        Ok(Shown { pages: range.count, rights, _mappings: mappings })
    }

    /// What is freed is shown no more: of what was mapped from one of these pages on, all of it.
    pub(super) fn hide(&self, shown: &mut AllShown, pages: PageRange) {
        let end = pages.start.0 + pages.count;
        let hidden: Vec<u64> = shown.range(pages.start.0..end).map(|(&first, _)| first).collect();
        for first in hidden {
            if let Some(shown) = shown.remove(&first) {
                self.unmap(PageRange::new(PageNo(first), shown.pages));
            }
        }
    }

    /// What a kernel that was given up holds is out of the program's reach, or cannot be written.
    pub(super) fn withdraw(&self, shown: &AllShown, pages: PageRange, access: Access) {
        let before = shown.range(..pages.end().0);
        for (&first, shown) in before {
            let within = PageRange::new(PageNo(first), shown.pages).intersection(pages);
            if within.is_empty() {
                continue;
            }
            if access.is_write() {
                self.unmap(within);
                continue;
            }
            let (at, bytes) = self.place(within);
            if let Err(error) = self.reservation.deny_writes(WHAT, at, bytes) {
                tracing::error!(%error, "the program may write what a kernel that hangs reads");
            }
        }
    }

    fn unmap(&self, range: PageRange) {
        let (at, bytes) = self.place(range);
        if let Err(error) = self.reservation.put(WHAT, at, bytes, None) {
            // What was freed is not the program's any more, and safe code has no way to it.
            tracing::warn!(%error, "freed memory of a card is still mapped");
        }
    }

    /// Where pages are in the reservation, and their bytes.
    fn place(&self, range: PageRange) -> (usize, usize) {
        ((range.start.0 - self.pages.start.0) as usize * PAGE_SIZE, range.bytes() as usize)
    }
}
