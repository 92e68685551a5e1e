//! The window of a card in another process: its own allocator gives its pages, and says where they are in its memory.
//!
//! Nothing that it says is believed: an answer that lies outside the window, or outside the window's memory, or meets what
//! another allocation has, ends the window, and the card is reset. The program and other cards see an allocation from
//! [`FarWindow::show`] on. From then on its pages stay where they are until they are freed, so a fault on one is served from
//! what is known here, and no answer of the card's is waited for.
//!
//! Lock order: the driver, `state`, one card. No lock is held while the card is asked.

use std::collections::BTreeMap;
use std::sync::Mutex;

use farside_card::interface::{
    AllocRequest, CompletionEntry, LOCATE_NOWHERE, LOCATE_PAGES_MAX, Operation, Status,
    rights_from_code,
};
use farside_card::window::AllocError;
use farside_card::{Location, MappedRun, MemorySizes};
use farside_linux::card_memory::CardMemory;
use farside_linux::lock::lock;
use farside_softcard::{OwnMemory, WindowError};
use farside_types::{
    Access, CancelReason, CardId, FrameNo, PAGE_SIZE, PageNo, PageRange, Rights, VirtAddr,
};

use super::held::{AllHeld, Held};
use super::mappings;
use super::sizes::WindowSizes;
use super::view::{AllShown, View};
use crate::error::LiveError;

/// Pages that are asked for at once to be copied: 2 MiB.
const COPIED_PAGES: u64 = 512;

/// See the module.
#[derive(Debug)]
pub(crate) struct FarWindow {
    view: View,
    sizes: WindowSizes,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The program's allocations, by their first pages.
    taken: BTreeMap<u64, Taken>,
    /// The frames of those that are located: the first of each run, and how many.
    frames: BTreeMap<u32, u32>,
    /// Frees that the card has not answered, by the first page. `true`: nobody waits for it any more.
    unanswered: BTreeMap<u64, bool>,
    shown: AllShown,
    held: AllHeld,
    is_gone: bool,
}

#[derive(Debug)]
struct Taken {
    pages: u64,
    /// What was asked for; of what a kernel has made, nobody knows.
    asked: Option<Chosen>,
    /// Where all of its pages are, once it is mapped.
    runs: Vec<(MappedRun, Rights)>,
    /// It is being freed: nobody gets it any more.
    goes: bool,
}

/// What its pages must be like.
#[derive(Clone, Copy, Debug)]
struct Chosen {
    memory: u8,
    rights: Rights,
}

/// The way to the card.
pub(crate) trait FarCard {
    /// Gives it a command of the window's, and waits for the answer. Of a free's the window is told by
    /// [`FarWindow::free_answered`], in the order in which answers come. What is allocated when nobody waits for it any
    /// more, is freed.
    ///
    /// # Errors
    /// It is gone ([`WindowError::Gone`]), or does not answer ([`WindowError::Silent`]). It stands still then and is given up,
    /// but for a free, and an allocation while a free is not answered ([`FarWindow::awaits_free`]).
    fn ask(&self, at: VirtAddr, operation: Operation) -> Result<CompletionEntry, WindowError>;

    /// The memories of its window, with what is free in them, as it says.
    ///
    /// # Errors
    /// [`WindowError::Gone`].
    fn memories(&self) -> Result<Vec<OwnMemory>, WindowError>;

    /// Takes pages from all other cards, and waits for who has them. Whether they are free now.
    fn take_away(&self, pages: PageRange) -> bool;

    /// It says what makes no sense: nothing is believed of it any more.
    fn give_up(&self, why: &str);
}

impl FarWindow {
    /// The window of a card that says this of it.
    ///
    /// # Errors
    /// There are no addresses for it.
    pub(crate) fn new(card: CardId, sizes: WindowSizes) -> Result<FarWindow, LiveError> {
        let view = View::reserve(card, sizes.bytes as usize)?;
        Ok(FarWindow { view, sizes, state: Mutex::default() })
    }

    /// Its addresses.
    pub(crate) fn pages(&self) -> PageRange {
        self.view.pages
    }

    /// Whose it is.
    pub(crate) fn card(&self) -> CardId {
        self.view.card
    }

    /// Its first address.
    pub(crate) fn base(&self) -> u64 {
        self.view.base()
    }

    /// The card is gone, and all of it with it.
    pub(crate) fn lose(&self) {
        lock(&self.state).is_gone = true;
    }

    /// Whether the card is gone, or was once.
    pub(crate) fn is_gone(&self) -> bool {
        lock(&self.state).is_gone
    }

    fn gone(&self) -> WindowError {
        WindowError::Gone { card: self.card() }
    }

    /// Whether the card has not answered a free: what it does is done one by one, so an allocation may have to wait.
    pub(crate) fn awaits_free(&self) -> bool {
        !lock(&self.state).unanswered.is_empty()
    }

    /// The card says whether it has freed an allocation: its place may be another's with the next answer.
    pub(crate) fn free_answered(&self, addr: VirtAddr, is_freed: bool) {
        let mut state = lock(&self.state);
        state.unanswered.remove(&addr.page().0);
        if !is_freed {
            return;
        }
        if let Some(taken) = state.taken.get(&addr.page().0).filter(|taken| taken.goes) {
            let range = PageRange::new(addr.page(), taken.pages);
            state.forget(range);
        }
    }

    fn check(&self, state: &State) -> Result<(), WindowError> {
        if state.is_gone { Err(self.gone()) } else { Ok(()) }
    }

    /// Ends the window, because of what the card has said about an address.
    fn broken(&self, far: &impl FarCard, addr: VirtAddr, why: String) -> WindowError {
        self.lose();
        far.give_up(&why);
        WindowError::Broken { card: self.card(), addr, why }
    }

    /// Carries out a command of the program's: an address, 0 of a free.
    ///
    /// # Errors
    /// [`WindowError`].
    pub(crate) fn allocate(
        &self,
        request: AllocRequest,
        far: &impl FarCard,
    ) -> Result<u64, WindowError> {
        match request {
            AllocRequest::Malloc { bytes, memory, rights, .. } => {
                self.malloc(request, bytes, Chosen { memory, rights }, far)
            }
            AllocRequest::Free { address } => self.free(request, VirtAddr(address), far),
            // Only kernels do that, on their card.
            AllocRequest::Realloc { .. } => {
                Err(self.refused(request, AllocError::NotAllocated, Vec::new()))
            }
        }
    }

    fn refused(
        &self,
        request: AllocRequest,
        error: AllocError,
        memories: Vec<OwnMemory>,
    ) -> WindowError {
        WindowError::Refused { card: self.card(), request, error, memories }
    }

    /// The memory that has a frame of the card's.
    pub(crate) fn memory_at(&self, frame: FrameNo) -> Option<u8> {
        (0..self.memory_count()).find(|&it| self.sizes.place(Some(it)).contains(&frame.0.into()))
    }

    /// How many memories it has.
    pub(crate) fn memory_count(&self) -> u8 {
        self.sizes.memories().count() as u8
    }

    /// What there is to know of its memories, of which so many frames are said to be free: never more than there are.
    pub(crate) fn memories(&self, frames_free: impl Iterator<Item = u32>) -> Vec<OwnMemory> {
        let sizes = self.sizes.memories().zip(frames_free).map(|(memory, free)| MemorySizes {
            frames: memory.frames,
            frames_free: free.min(memory.frames),
            kind: memory.kind,
        });
        OwnMemory::all(sizes)
    }

    fn malloc(
        &self,
        request: AllocRequest,
        bytes: u64,
        chosen: Chosen,
        far: &impl FarCard,
    ) -> Result<u64, WindowError> {
        if self.sizes.place(Some(chosen.memory)).is_empty() {
            return Err(self.refused(request, AllocError::UnknownMemory, far.memories()?));
        }
        {
            let state = lock(&self.state);
            self.check(&state)?;
            if let Some((&page, _)) = state.unanswered.iter().find(|&(_, &is_late)| is_late) {
                return Err(self.freeing(page));
            }
        }
        let done = match far.ask(VirtAddr(self.base()), Operation::Allocate(request)) {
            Err(WindowError::Silent { addr, .. }) if !self.is_gone() => {
                let unanswered = lock(&self.state).unanswered.keys().next().copied();
                return Err(self.freeing(unanswered.unwrap_or(addr.page().0)));
            }
            done => done?,
        };
        if let Some(error) = why_refused(done.status, done.detail) {
            return Err(self.refused(request, error, far.memories()?));
        }
        let addr = VirtAddr(done.value);
        if done.status != Status::Ok {
            return Err(self.broken(
                far,
                addr,
                format!("an allocation ends with {:?}", done.status),
            ));
        }
        let taken = self.take(addr, bytes, Some(chosen));
        taken.map_err(|why| self.broken(far, addr, why))?;
        Ok(addr.0)
    }

    /// A kernel has pages that were freed.
    fn freeing(&self, page: u64) -> WindowError {
        WindowError::Freeing { card: self.card(), addr: PageNo(page).addr() }
    }

    /// The pages of an allocation, if there can be one.
    fn whole(&self, addr: VirtAddr, bytes: u64) -> Result<PageRange, String> {
        let range =
            PageRange::covering(addr, bytes).ok().filter(|&range| self.pages().covers(range));
        let range = range.filter(|_| addr.page_offset() == 0 && bytes > 0);
        range.ok_or_else(|| {
            let base = VirtAddr(self.base());
            format!("{bytes} bytes there are not in its window, which begins at {base}")
        })
    }

    /// An allocation is the program's from now on, if it can be one.
    fn take(&self, addr: VirtAddr, bytes: u64, asked: Option<Chosen>) -> Result<(), String> {
        let range = self.whole(addr, bytes)?;
        let mut state = lock(&self.state);
        if state.overlaps(range) {
            return Err("another allocation has one of these pages".to_owned());
        }
        let taken = Taken { pages: range.count, asked, runs: Vec::new(), goes: false };
        state.taken.insert(range.start.0, taken);
        Ok(())
    }

    /// What a kernel says that it has handed over is the program's from now on, if its card says so too: which does once, and
    /// of what begins there.
    ///
    /// # Errors
    /// [`WindowError::NotMade`] if the card does not say so, or it was taken over before.
    pub(crate) fn take_over(
        &self,
        addr: VirtAddr,
        bytes: u64,
        far: &impl FarCard,
    ) -> Result<(), WindowError> {
        self.check(&lock(&self.state))?;
        let not_made = |why| WindowError::NotMade { card: self.card(), addr, why };
        let range = self.whole(addr, bytes).map_err(not_made)?;
        let frames = u64::from(self.sizes.frames());
        if range.count > frames {
            // Values that were written lie in frames: whatever the card says, nobody makes room for a copy of so many.
            let all = frames * PAGE_SIZE as u64;
            let why = format!("{bytes} bytes are more than its own memory has, which are {all}");
            return Err(not_made(why));
        }
        let done = far.ask(addr, Operation::TakeOver { address: addr.0, bytes })?;
        match done.status {
            Status::Ok => {
                let taken = self.take(addr, bytes, None);
                taken.map_err(|why| self.broken(far, addr, why))
            }
            Status::NotAllocated => {
                let why = "none has, or it was taken over before, or it has fewer bytes";
                Err(not_made(why.to_owned()))
            }
            status => {
                let why = format!("what was handed over ends with {status:?}");
                Err(self.broken(far, addr, why))
            }
        }
    }

    fn free(
        &self,
        request: AllocRequest,
        addr: VirtAddr,
        far: &impl FarCard,
    ) -> Result<u64, WindowError> {
        let range = {
            let mut state = lock(&self.state);
            self.check(&state)?;
            let taken = state.taken.get_mut(&addr.page().0).filter(|taken| !taken.goes);
            let none = || self.refused(request, AllocError::NotAllocated, Vec::new());
            let taken = taken.ok_or_else(none)?;
            // Whoever translates one of its pages has done so before, and the page is taken from him below.
            taken.goes = true;
            let range = PageRange::new(addr.page(), taken.pages);
            self.view.hide(&mut state.shown, range);
            range
        };
        if !far.take_away(range) || !lock(&self.state).held.let_go(range) {
            return Err(WindowError::OutOfUse { card: self.card(), addr });
        }
        lock(&self.state).unanswered.insert(range.start.0, false);
        let done = match far.ask(addr, Operation::Allocate(request)) {
            // A kernel of the card's own has it.
            Err(WindowError::Silent { card, addr }) => {
                // Unless the answer has just come.
                let mut state = lock(&self.state);
                state.unanswered.get_mut(&range.start.0).into_iter().for_each(|late| *late = true);
                return Err(WindowError::OutOfUse { card, addr });
            }
            done => done?,
        };
        match why_refused(done.status, done.detail) {
            None if done.status == Status::Ok => Ok(0),
            Some(error) => Err(self.refused(request, error, Vec::new())),
            None => Err(self.broken(far, addr, format!("a free ends with {:?}", done.status))),
        }
    }

    /// Maps an allocation in the program, whole, if it is not mapped. It stays so until it is freed.
    ///
    /// # Errors
    /// [`WindowError`].
    pub(crate) fn show(
        &self,
        addr: VirtAddr,
        bytes: u64,
        access: Access,
        memory: &CardMemory,
        far: &impl FarCard,
    ) -> Result<(), WindowError> {
        let range = self.view.inside(addr, bytes)?;
        let is_located = {
            let state = lock(&self.state);
            self.check(&state)?;
            self.check_held(&state, range)?;
            let shown = state.shown.get(&range.start.0);
            if let Some(shown) = shown.filter(|shown| shown.pages >= range.count) {
                return self.view.check_rights(addr, shown.rights, access);
            }
            state.taken.get(&range.start.0).is_some_and(|taken| !taken.runs.is_empty())
        };
        let located = if is_located { Vec::new() } else { self.locate(range, true, far)? };
        let mut state = lock(&self.state);
        self.check(&state)?;
        self.check_held(&state, range)?;
        let frames = match state.apart(range, &located) {
            Ok(frames) => frames,
            Err(why) => {
                drop(state);
                return Err(self.broken(far, addr, why));
            }
        };
        let taken = state.taken.get(&range.start.0).filter(|taken| !taken.goes);
        let gone = || self.view.not_shown(addr, "it is being freed".to_owned());
        let taken = taken.ok_or_else(gone)?;
        let runs = if taken.runs.is_empty() { &located } else { &taken.runs };
        let shown = self.view.map(range, runs, memory)?;
        // Now other cards may reach it too.
        state.keep(range, located, frames);
        let rights = shown.rights;
        state.shown.insert(range.start.0, shown);
        self.view.check_rights(addr, rights, access)
    }

    fn check_held(&self, state: &State, range: PageRange) -> Result<(), WindowError> {
        let rights = state.held.rights(range, Access::Write);
        rights.map(drop).map_err(|why| self.view.not_shown(range.start.addr(), why.to_string()))
    }

    /// Calls `each` with where the pages of these bytes are. Those without memory get some to be written, and are left out to be
    /// read. Frames of the window's memory, and the pages' own if this ends well.
    ///
    /// # Errors
    /// [`WindowError`].
    pub(crate) fn with_runs(
        &self,
        addr: VirtAddr,
        bytes: u64,
        access: Access,
        far: &impl FarCard,
        mut each: impl FnMut(MappedRun),
    ) -> Result<(), WindowError> {
        let range = self.view.inside(addr, bytes)?;
        self.check(&lock(&self.state))?;
        let held = lock(&self.state).held.rights(range, access);
        held.map_err(|why| self.view.not_shown(addr, why.to_string()))?;
        for first in (range.start.0..range.end().0).step_by(COPIED_PAGES as usize) {
            let piece = PageRange::new(PageNo(first), COPIED_PAGES.min(range.end().0 - first));
            let runs = self.locate(piece, access.is_write(), far)?;
            runs.into_iter().for_each(|(run, _)| each(run));
        }
        // Else its memory may have been another's by then, in the same place.
        self.check(&lock(&self.state))
    }

    /// Asks the card where pages are: with `touch` to map them, so in no more pieces than can be. Without it those that have
    /// no memory are left out.
    fn locate(
        &self,
        range: PageRange,
        touch: bool,
        far: &impl FarCard,
    ) -> Result<Vec<(MappedRun, Rights)>, WindowError> {
        let mut runs: Vec<(MappedRun, Rights)> = Vec::new();
        let (mut at, mut found_pages) = (range.start.0, 0);
        while at < range.end().0 {
            let addr = PageNo(at).addr();
            let pages = (range.end().0 - at).min(LOCATE_PAGES_MAX.into()) as u32;
            let done = far.ask(addr, Operation::Locate { address: addr.0, pages, touch })?;
            match done.status {
                Status::Ok => {}
                Status::NoFrames => {
                    let why = CancelReason::WindowFull.to_string();
                    return Err(self.view.not_shown(addr, why));
                }
                Status::NotAllocated => {
                    let why = "its card does not have it allocated for the program".to_owned();
                    return Err(self.view.not_shown(addr, why));
                }
                status => {
                    return Err(self.broken(
                        far,
                        addr,
                        format!("where it is ends with {status:?}"),
                    ));
                }
            }
            let found = self.run(PageNo(at), pages, touch, &done);
            let (count, found) = found.map_err(|why| self.broken(far, addr, why))?;
            if let Some((run, rights)) = found {
                found_pages += u64::from(count);
                if found_pages > self.sizes.frames().into() {
                    let why = "more of its pages have memory than there are frames".to_owned();
                    return Err(self.broken(far, addr, why));
                }
                match runs.last_mut().filter(|last| last.1 == rights) {
                    Some(last) if last.0.joined(&run).is_some() => {
                        last.0 = last.0.joined(&run).unwrap_or(last.0);
                    }
                    _ => runs.push((run, rights)),
                }
            }
            if touch && runs.len() > mappings::most() {
                let why = mappings::too_scattered(runs.len(), 0);
                return Err(self.view.not_shown(range.start.addr(), why));
            }
            at += u64::from(count);
        }
        Ok(runs)
    }

    /// A run as the card tells it, if it can be.
    fn run(
        &self,
        page: PageNo,
        asked: u32,
        touch: bool,
        done: &CompletionEntry,
    ) -> Result<(u32, Option<(MappedRun, Rights)>), String> {
        let count = u32::try_from(done.pages).ok().filter(|count| (1..=asked).contains(count));
        let count = count.ok_or_else(|| format!("it tells of {} pages of {asked}", done.pages))?;
        if done.value == LOCATE_NOWHERE {
            return if touch {
                Err("it has no memory still".to_owned())
            } else {
                Ok((count, None))
            };
        }
        let chosen = lock(&self.state).asked_of(page);
        let memory = chosen.map(|chosen| chosen.memory);
        let own = self.sizes.place(memory);
        let end = done.value.checked_add(count.into());
        if done.value < own.start || end.is_none_or(|end| end > own.end) {
            let which = memory.map_or("memory".to_owned(), |memory| format!("memory {memory}"));
            return Err(format!(
                "frames {:#x} and the {count} from there on are not in the window's {which}, which has those from {:#x} to {:#x}",
                done.value, own.start, own.end
            ));
        }
        let rights = rights_from_code(done.detail);
        let rights = rights.ok_or_else(|| format!("rights {:#x} are none", done.detail))?;
        if let Some(chosen) = chosen.filter(|chosen| chosen.rights != rights) {
            return Err(format!(
                "its rights are {rights:?}, and {:?} was asked for",
                chosen.rights
            ));
        }
        let location = Location::new(self.card().memory(), FrameNo(done.value as u32));
        Ok((count, Some((MappedRun::new(page, count, location), rights))))
    }

    /// Calls `insert` with where the pages of a range are, and with what may be done with them, before anything of them can
    /// be taken away. For other cards than its own: they reach what is shown.
    ///
    /// # Errors
    /// Why one of them cannot be reached.
    pub(crate) fn translate(
        &self,
        range: PageRange,
        access: Access,
        insert: impl FnOnce(&[MappedRun], Rights),
    ) -> Result<(), CancelReason> {
        let state = lock(&self.state);
        if state.is_gone {
            return Err(CancelReason::Lost);
        }
        let held = state.held.rights(range, access)?;
        let (runs, rights) = state.runs(range).ok_or(CancelReason::Unallocated)?;
        if access.is_write() && rights == Rights::Read {
            return Err(CancelReason::ReadOnly);
        }
        insert(&runs, if held == Rights::Read { held } else { rights });
        Ok(())
    }

    /// Takes pages out of use, but for their holder. What cards have of them has to be taken away after this.
    pub(crate) fn take_out_of_use(&self, held: Held) {
        let mut state = lock(&self.state);
        state.held.push(held);
        self.view.withdraw(&state.shown, held.pages, held.access);
    }
}

impl State {
    /// What was asked for when a page was allocated, where that is known.
    fn asked_of(&self, page: PageNo) -> Option<Chosen> {
        let (&first, taken) = self.taken.range(..=page.0).next_back()?;
        PageRange::new(PageNo(first), taken.pages).contains(page).then_some(taken.asked)?
    }

    /// Whether an allocation has one of these pages.
    fn overlaps(&self, range: PageRange) -> bool {
        let before = self.taken.range(..range.end().0).next_back();
        before.is_some_and(|(&first, taken)| first + taken.pages > range.start.0)
    }

    /// The frames of an allocation that was located for the first time; nobody else may be there.
    fn apart(
        &self,
        range: PageRange,
        runs: &[(MappedRun, Rights)],
    ) -> Result<BTreeMap<u32, u32>, String> {
        let mut mine = BTreeMap::new();
        if self.taken.get(&range.start.0).is_none_or(|taken| !taken.runs.is_empty()) {
            return Ok(mine);
        }
        for (run, _) in runs {
            let (first, end) = (run.location.frame.0, run.location.frame.0 + run.count);
            let meets = |all: &BTreeMap<u32, u32>| {
                let before = all.range(..end).next_back();
                before.is_some_and(|(&other, &count)| other + count > first)
            };
            if meets(&self.frames) || meets(&mine) {
                return Err(format!("another page has frame {first:#x} or one behind it"));
            }
            mine.insert(first, run.count);
        }
        Ok(mine)
    }

    /// Notes where an allocation is that is mapped, unless that is known.
    fn keep(
        &mut self,
        range: PageRange,
        runs: Vec<(MappedRun, Rights)>,
        mut frames: BTreeMap<u32, u32>,
    ) {
        let taken = self.taken.get_mut(&range.start.0).filter(|taken| taken.runs.is_empty());
        if let Some(taken) = taken {
            taken.runs = runs;
            self.frames.append(&mut frames);
        }
    }

    fn forget(&mut self, range: PageRange) {
        let Some(taken) = self.taken.remove(&range.start.0) else { return };
        for (run, _) in taken.runs {
            self.frames.remove(&run.location.frame.0);
        }
    }

    /// Where pages of one allocation are that is shown, with what may be done with all of them.
    fn runs(&self, range: PageRange) -> Option<(Vec<MappedRun>, Rights)> {
        let (&first, taken) = self.taken.range(..=range.start.0).next_back()?;
        let all = PageRange::new(PageNo(first), taken.pages);
        if taken.goes || taken.runs.is_empty() || !all.covers(range) {
            return None;
        }
        let mut least = Rights::ReadWrite;
        let mut found = Vec::new();
        for (run, rights) in &taken.runs {
            let part = run.pages().intersection(range);
            if part.is_empty() {
                continue;
            }
            let skip = (part.start.0 - run.page.0) as u32;
            let location = Location::new(run.location.memory, run.location.frame.offset(skip));
            found.push(MappedRun::new(part.start, part.count as u32, location));
            if *rights == Rights::Read {
                least = Rights::Read;
            }
        }
        Some((found, least))
    }
}

/// Why the allocator has refused, if it is that.
fn why_refused(status: Status, detail: u64) -> Option<AllocError> {
    Some(match (status, detail) {
        (Status::NoSpace, _) => AllocError::NoSpace,
        (Status::NoFrames, _) => AllocError::NoFrames,
        (Status::NotAllocated, _) => AllocError::NotAllocated,
        (Status::InsideAllocation, _) => AllocError::Inside,
        (Status::TablesFailed, _) => AllocError::BusError,
        (Status::Busy, _) => AllocError::Busy,
        (Status::BadOperand, 2) => AllocError::TooLarge,
        (Status::BadOperand, 3) => AllocError::UnknownMemory,
        _ => return None,
    })
}
