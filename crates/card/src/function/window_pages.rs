//! Pages of the window: who touches one, and where it is in BAR2.

use farside_types::{Access, CancelReason, FrameNo, PageNo, PageRange, Rights, VirtAddr};

use super::Function;
use super::commands::{Outcome, done};
use super::refusal::Refusal;
use super::window::Window;
use crate::interface::{LOCATE_NOWHERE, Status};
use crate::window::{WindowFault, WindowMapping};
use crate::{Card, Fault, Location, MappedRun};

const PAGE_BITS: u32 = 12;

/// Why an access ends.
fn reason(fault: WindowFault) -> CancelReason {
    match fault {
        WindowFault::NotMapped => CancelReason::Unallocated,
        WindowFault::ReadOnly => CancelReason::ReadOnly,
        WindowFault::NoFrame => CancelReason::WindowFull,
        WindowFault::BusError | WindowFault::BadEntry => CancelReason::Lost,
    }
}

fn refusal(fault: WindowFault, address: u64) -> Refusal {
    match fault {
        WindowFault::NotMapped => Refusal::mistake(Status::NotAllocated, address),
        WindowFault::NoFrame => Refusal::state(Status::NoFrames, 0),
        WindowFault::ReadOnly | WindowFault::BusError | WindowFault::BadEntry => {
            Refusal::state(Status::TablesFailed, 0)
        }
    }
}

impl Window {
    /// Its pages in the address space.
    fn range(&self) -> PageRange {
        let pages = 1 << (self.config().geometry.window_bits() - PAGE_BITS);
        PageRange::new(VirtAddr(self.base()).page(), pages)
    }

    /// The page of BAR2 where a mapping leads.
    fn page_of(&self, mapping: WindowMapping) -> Option<u32> {
        self.shown(mapping.memory)?.checked_add(mapping.frame)
    }

    /// Where pages are, in as few runs as their frames allow; those without memory get some.
    fn runs(
        &mut self,
        card: &Card,
        pages: PageRange,
        access: Access,
    ) -> Result<Vec<(MappedRun, Rights)>, WindowFault> {
        let mut runs: Vec<(MappedRun, Rights)> = Vec::new();
        for page in pages.pages() {
            let found = self.translate(page.0 - self.range().start.0, access)?;
            let frame = self.page_of(found).ok_or(WindowFault::BadEntry)?;
            let location = Location::new(card.memory(), FrameNo(frame));
            let run = MappedRun::new(page, 1, location);
            let joined = runs.last().filter(|last| last.1 == found.rights);
            match joined.and_then(|last| last.0.joined(&run)) {
                Some(longer) => *runs.last_mut().expect("it was joined") = (longer, found.rights),
                None => runs.push((run, found.rights)),
            }
        }
        Ok(runs)
    }
}

impl Function {
    /// Frames that a driver may name: those of the window lie behind them.
    pub(super) fn driver_frames(&self, card: &Card) -> u32 {
        let first = self.window.as_ref().and_then(Window::first_page);
        first.map_or(card.frames(), |first| first.min(card.frames()))
    }

    /// The window, if the card reaches its memories itself.
    fn reached_window(&mut self) -> Option<&mut Window> {
        let serves = self.phase.serves();
        self.window.as_mut().filter(|window| serves && window.first_page().is_some())
    }

    /// Whether a page is the window's: the driver is not asked about it.
    pub(super) fn is_of_window(&self, page: PageNo) -> bool {
        let window = self.window.as_ref().filter(|window| window.first_page().is_some());
        window.is_some_and(|window| window.range().contains(page))
    }

    /// Answers the faults at the head of the queue as far as they are about the window. What one of them needs of the
    /// driver too, is told to the driver when its pages of the window are there.
    pub(super) fn serve_window_faults(&mut self, card: &mut Card) {
        while let Some((fault, _)) = card.first_fault() {
            let fault = fault.clone();
            let is_windows = |&(range, _): &(PageRange, Access)| self.is_of_window(range.start);
            let own: Vec<_> = fault.need.ranges().filter(is_windows).collect();
            let is_whole = own.len() == fault.need.ranges().count();
            if own.is_empty() {
                return;
            }
            let answers = match self.map_windows(card, &fault, &own) {
                Ok(()) if !is_whole => return,
                Ok(()) => {
                    card.take_faults(1);
                    card.resume(fault.id)
                }
                Err(reason) => {
                    card.take_faults(1);
                    card.cancel(fault.id, reason)
                }
            };
            self.hand_over(answers);
        }
    }

    fn map_windows(
        &mut self,
        card: &mut Card,
        fault: &Fault,
        own: &[(PageRange, Access)],
    ) -> Result<(), CancelReason> {
        let Some(window) = self.reached_window() else { return Err(CancelReason::Lost) };
        let all = window.range();
        for &(range, access) in own {
            if !all.covers(range) {
                return Err(CancelReason::Unallocated);
            }
            let runs = window.runs(card, range, access).map_err(reason)?;
            window.used_by(fault.asid);
            for (run, rights) in runs {
                // Of frames that the card has not: they are a mistake of who has made the window.
                let mapped = card.map(fault.asid, std::iter::once(run), rights);
                mapped.map_err(|_| CancelReason::Lost)?;
            }
        }
        Ok(())
    }

    /// Confirms that a kernel has handed an allocation over.
    pub(super) fn take_over(&mut self, address: u64, bytes: u64) -> Outcome {
        let unsupported = Refusal::mistake(Status::Unsupported, 0);
        let window = self.window.as_mut().ok_or(unsupported)?;
        if !window.take_over(address, bytes) {
            return Err(Refusal::mistake(Status::NotAllocated, address));
        }
        Ok(done(address, 0, 0))
    }

    /// Tells where pages are in BAR2.
    pub(super) fn locate(&mut self, address: u64, pages: u32, touch: bool) -> Outcome {
        let Some(window) = self.reached_window() else {
            return Err(Refusal::mistake(Status::Unsupported, 0));
        };
        let not_allocated = Refusal::mistake(Status::NotAllocated, address);
        let bytes = u64::from(pages) << PAGE_BITS;
        let range = PageRange::covering(VirtAddr(address), bytes).map_err(|_| not_allocated)?;
        let is_aligned = address % (1 << PAGE_BITS) == 0;
        let is_drivers = !window.owners().are_a_kernels(address, bytes);
        if !is_aligned || !window.range().covers(range) || !is_drivers {
            return Err(not_allocated);
        }
        let first = range.start.0 - window.range().start.0;
        let mut found: Option<(u64, u64)> = None;
        let mut count = 0;
        for within in first..first + range.count {
            match (found, window.place(within, touch)) {
                (None, place) => found = Some(place.map_err(|fault| refusal(fault, address))?),
                (Some((start, same)), Ok((page, rights)))
                    if follows(start, count, page) && same == rights => {}
                _ => break,
            }
            count += 1;
        }
        let (page, rights) = found.ok_or(not_allocated)?;
        Ok(done(page, count, rights))
    }
}

/// Whether a page is the next behind `count` of them from `start` on; pages that are nowhere follow one another.
fn follows(start: u64, count: u64, page: u64) -> bool {
    if start == LOCATE_NOWHERE { page == start } else { page == start + count }
}
