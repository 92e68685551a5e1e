//! The card's own window behind the function: who allocates, and the background.

use std::collections::{BTreeSet, VecDeque};

use farside_types::{Access, Asid, CommandId, JobId, PageRange, PeId, VirtAddr};

use super::refusal::Refusal;
use super::window_drains::Drains;
use super::window_left::Left;
use super::window_owners::Owners;
use super::{Bus, Function};
use crate::Card;
use crate::interface::{
    AllocRequest, CompletionEntry, LOCATE_NOWHERE, MemoryKind, Status, register, rights_code,
};
use crate::window::{
    AllocArbiter, AllocCounts, AllocError, AllocStep, Allocator, AllocatorConfig,
    AllocatorConfigError, SweepStep, TableWords, WindowFault, WindowMapping, WindowPages,
};

/// Steps of the background in one call: of 512 words each, or of a table.
const STEPS_PER_CALL: u32 = 64;
/// The host among the requesters of the arbiter; processing elements follow, and then the function itself.
const HOST: usize = 0;

/// A window that a function has.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WindowConfig {
    allocator: AllocatorConfig,
    pes: u16,
    first_page: Option<u32>,
    /// Of those memories that anything is said of.
    kinds: Vec<MemoryKind>,
}

impl WindowConfig {
    /// A window with these sizes, for the host and `pes` processing elements.
    ///
    /// # Errors
    ///
    /// There is no allocator with such sizes.
    pub fn new(allocator: AllocatorConfig, pes: u16) -> Result<WindowConfig, AllocatorConfigError> {
        Allocator::new(&allocator)?;
        Ok(WindowConfig { allocator, pes, first_page: None, kinds: Vec::new() })
    }

    /// Its memories before that of the tables lie in the card's memory, behind the frames that a driver may name: the
    /// first of them begins with this page of BAR2, and the next where it ends. Kernels reach them through the card's own MMU,
    /// which the function gives their pages. There are no others.
    #[must_use]
    pub fn within(self, first_page: u32) -> WindowConfig {
        WindowConfig { first_page: Some(first_page), ..self }
    }

    /// Of what kinds its memories are, from the first on; of the others nothing is said.
    #[must_use]
    pub fn of_kinds(self, kinds: Vec<MemoryKind>) -> WindowConfig {
        WindowConfig { kinds, ..self }
    }

    /// The first page in BAR2 of a memory.
    fn shown(&self, memory: u8) -> Option<u32> {
        let before = self.memories().iter().take(memory.into());
        let first = before.fold(self.first_page, |first, &frames| first?.checked_add(frames));
        first.filter(|_| usize::from(memory) < self.memories().len())
    }

    /// Frames of the memories that pages come from.
    fn memories(&self) -> &[u32] {
        let AllocatorConfig { memories, tables, .. } = &self.allocator;
        match self.first_page {
            Some(_) => &memories[..usize::from(*tables).min(memories.len())],
            None => memories,
        }
    }

    /// Its sizes.
    pub fn allocator(&self) -> &AllocatorConfig {
        &self.allocator
    }
}

/// What there is to know of one memory of a window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemorySizes {
    /// Its frames.
    pub frames: u32,
    /// Those that nobody has.
    pub frames_free: u32,
    /// What it is.
    pub kind: MemoryKind,
}

/// Who waits for an invalidation of pages of the window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WindowWait {
    /// A command.
    Command,
    /// The sweep of what was freed.
    Sweep,
}

/// Something that only the embedder of a card with a window can do. [`Function::poll_window_action`] gives
/// them in order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WindowAction {
    /// Pages of the window, counted from its begin, have changed: translators and walkers hold none of them any
    /// more. Where somebody waits, [`Function::window_invalidated`] when accesses and walks that began before
    /// have ended.
    Invalidate {
        /// Which.
        pages: WindowPages,
        /// Who waits.
        wait: Option<WindowWait>,
    },
    /// The answer to [`Function::allocate`]: an address of the window, 0 of a free.
    Allocated {
        /// Whose.
        job: JobId,
        /// What came of it.
        result: Result<u64, AllocError>,
    },
}

/// The window of a function.
#[derive(Clone, Debug)]
pub(super) struct Window {
    config: WindowConfig,
    allocator: Allocator,
    arbiter: AllocArbiter,
    words: TableWords,
    /// The host's commands, in the order of the ring; the first may be with the arbiter.
    host: VecDeque<(CommandId, AllocRequest)>,
    is_asked: bool,
    actions: VecDeque<WindowAction>,
    owners: Owners,
    left: Left,
    /// The address spaces that pages were mapped in.
    asids: BTreeSet<Asid>,
    /// Invalidations that the embedder has not answered.
    outstanding: u32,
    /// The background has more to do.
    has_more: bool,
    drains: Drains,
}

impl Window {
    pub(super) fn new(config: &WindowConfig) -> Option<Window> {
        let mut allocator = Allocator::new(&config.allocator).ok()?;
        let mut words = TableWords::default();
        allocator.initialise(&mut words).ok()?;
        if config.first_page.is_some() {
            // From now on it tells which become free.
            allocator.take_freed_frames();
        }
        Some(Window {
            config: config.clone(),
            allocator,
            arbiter: AllocArbiter::new(usize::from(config.pes) + 2),
            words,
            host: VecDeque::new(),
            is_asked: false,
            actions: VecDeque::new(),
            owners: Owners::default(),
            left: Left::default(),
            asids: BTreeSet::new(),
            outstanding: 0,
            has_more: true,
            drains: Drains::default(),
        })
    }

    pub(super) fn is_quiet(&self) -> bool {
        self.outstanding == 0
    }

    /// Whether it has more to do, or the embedder has.
    pub(super) fn is_busy(&self) -> bool {
        self.has_more || !self.actions.is_empty()
    }

    /// As new, but for answers that the embedder was not told of.
    pub(super) fn renew(&mut self) {
        if let Some(new) = Window::new(&self.config) {
            *self = Window { actions: std::mem::take(&mut self.actions), ..new };
        }
    }

    /// Nothing is served any more: kernels that wait for an answer are told so.
    pub(super) fn stop(&mut self) {
        self.has_more = false;
        for requester in self.arbiter.stop() {
            self.answer_kernel(requester, Err(AllocError::Stopped));
        }
    }

    /// Commands that were not begun never are, and what the embedder was not told of never happens. A kernel that
    /// was not told of its pages has none.
    pub(super) fn forget_waiting(&mut self) {
        self.host.clear();
        for action in std::mem::take(&mut self.actions) {
            match action {
                WindowAction::Invalidate { wait, .. } => {
                    self.outstanding -= u32::from(wait.is_some());
                }
                WindowAction::Allocated { job, .. } => {
                    let result = Err(AllocError::Stopped);
                    self.actions.push_back(WindowAction::Allocated { job, result });
                }
            }
        }
        self.stop();
    }

    /// The function among the requesters of the arbiter.
    fn itself(&self) -> usize {
        usize::from(self.config.pes) + 1
    }

    /// The answer to a requester, unless it is the host.
    fn answer_kernel(&mut self, requester: usize, result: Result<u64, AllocError>) {
        if requester == self.itself() {
            self.left.answered(result, &mut self.owners);
        } else if requester != HOST {
            let job = self.owners.answered(PeId((requester - 1) as u16), result);
            let answer = job.map(|job| WindowAction::Allocated { job, result });
            self.actions.extend(answer);
        }
    }

    /// A job has ended: what it has asked for is not begun, or ends without it, and what it has not freed is freed. One that
    /// was given up and `holds` memory keeps what it has until it has let go.
    pub(super) fn end_job(&mut self, job: JobId, holds: bool) {
        let asked = self.owners.forget_request(job);
        let under_way = asked.filter(|&(pe, _)| self.arbiter.leave(requester(pe), self.itself()));
        if asked.is_some() {
            let result = Err(AllocError::Stopped);
            self.actions.push_back(WindowAction::Allocated { job, result });
        }
        let left = if holds { Vec::new() } else { self.owners.ended(job) };
        self.left.take_in(left, under_way.map(|(_, request)| request));
    }

    /// Frames of the memories that pages come from.
    pub(super) fn memories(&self) -> &[u32] {
        self.config.memories()
    }

    /// What there is to know of one of them; `None`: there is none of this number.
    pub(super) fn sizes_of(&self, memory: u8) -> Option<MemorySizes> {
        let frames = *self.memories().get(usize::from(memory))?;
        // A store never has more free frames than it has frames.
        let frames_free = self.allocator.free_frames(memory) as u32;
        let kind = self.config.kinds.get(usize::from(memory)).copied().unwrap_or_default();
        Some(MemorySizes { frames, frames_free, kind })
    }

    /// The page of BAR2 with which its memories begin.
    pub(super) fn first_page(&self) -> Option<u32> {
        self.config.first_page
    }

    /// The first page in BAR2 of a memory.
    pub(super) fn shown(&self, memory: u8) -> Option<u32> {
        self.config.shown(memory)
    }

    pub(super) fn owners(&self) -> &Owners {
        &self.owners
    }

    /// As [`Owners::take_over`].
    pub(super) fn take_over(&mut self, address: u64, bytes: u64) -> bool {
        self.owners.take_over(address, bytes)
    }

    /// Pages are mapped in an address space.
    pub(super) fn used_by(&mut self, asid: Asid) {
        self.asids.insert(asid);
    }

    pub(super) fn translate(
        &mut self,
        page: u64,
        access: Access,
    ) -> Result<WindowMapping, WindowFault> {
        let found = self.allocator.translate(&mut self.words, page, access);
        self.tell_made_valid();
        found
    }

    /// The page of BAR2 where a page is, or [`LOCATE_NOWHERE`], and the code of its rights. One without memory gets some,
    /// if it is to be touched.
    pub(super) fn place(&mut self, page: u64, touch: bool) -> Result<(u64, u64), WindowFault> {
        let mut found = self.allocator.peek(&mut self.words, page)?;
        if found.is_none() && touch {
            found = Some(self.translate(page, Access::Read)?);
        }
        let Some(found) = found else { return Ok((LOCATE_NOWHERE, 0)) };
        let first = self.shown(found.memory).ok_or(WindowFault::BadEntry)?;
        Ok((u64::from(first) + u64::from(found.frame), rights_code(found.rights)))
    }

    /// A memory whose pages nobody would reach is no memory for pages.
    fn check_memory(&self, request: AllocRequest) -> Result<(), AllocError> {
        match request {
            AllocRequest::Malloc { memory, .. } if usize::from(memory) >= self.memories().len() => {
                Err(AllocError::UnknownMemory)
            }
            _ => Ok(()),
        }
    }

    pub(super) fn base(&self) -> u64 {
        self.allocator.base()
    }

    pub(super) fn set_base(&mut self, base: u64) -> bool {
        self.allocator.set_base(base)
    }

    pub(super) fn config(&self) -> &AllocatorConfig {
        &self.config.allocator
    }

    pub(super) fn frames_free(&self) -> u64 {
        let memories = 0..self.memories().len() as u8;
        memories.map(|memory| self.allocator.free_frames(memory)).sum()
    }

    /// A kernel asks. What is not its own, and a memory that is none, it is refused at once.
    fn ask(&mut self, pe: PeId, job: JobId, request: AllocRequest) -> bool {
        let requester = requester(pe);
        let refused = match self.check_memory(request) {
            Ok(()) if self.owners.may_ask(job, request) => None,
            Ok(()) => Some(AllocError::NotAllocated),
            Err(error) => Some(error),
        };
        if requester >= self.itself() || !self.arbiter.can_ask(requester) {
            return false;
        }
        match refused {
            Some(error) => {
                self.actions.push_back(WindowAction::Allocated { job, result: Err(error) });
            }
            None => {
                self.owners.asks(pe, job, request);
                self.arbiter.ask(requester, request);
            }
        }
        true
    }

    fn tell_made_valid(&mut self) {
        let made_valid = self.words.take_made_valid();
        if self.first_page().is_some() {
            // The card's MMU keeps nothing of pages that were not there.
            return;
        }
        let tell = |pages| WindowAction::Invalidate { pages, wait: None };
        self.actions.extend(made_valid.into_iter().map(tell));
    }

    /// Takes pages from the card's MMU; `true`: nobody has them any more.
    fn take_away(&mut self, card: &mut Card, pages: WindowPages, wait: WindowWait) -> bool {
        let first = VirtAddr(self.base()).page().offset(pages.first);
        let range = PageRange::new(first, pages.count);
        let is_done = self.drains.begin(card, &self.asids, range, wait);
        self.outstanding += u32::from(!is_done);
        is_done
    }

    /// What was freed is nobody's now.
    fn tell_freed(&mut self, bus: &mut impl Bus) {
        if self.first_page().is_none() {
            return;
        }
        for freed in self.allocator.take_freed_frames() {
            if let Some(first) = self.shown(freed.memory) {
                bus.freed(first + freed.first, freed.count);
            }
        }
    }

    /// The next thing that can be done: who was answered, with what, or what must be invalidated.
    fn step(&mut self) -> Option<Step> {
        if let Some(&(_, request)) = self.host.front().filter(|_| !self.is_asked) {
            // Now, as a kernel may have got it since the command came.
            if !self.owners.may_driver_ask(request) {
                return Some(Step::Answer(HOST, Err(AllocError::NotAllocated)));
            }
            if let Err(error) = self.check_memory(request) {
                return Some(Step::Answer(HOST, Err(error)));
            }
            self.is_asked = self.arbiter.ask(HOST, request);
        }
        if let Some(request) = self.left.next() {
            let is_asked = self.arbiter.ask(self.itself(), request);
            self.left.asked(is_asked);
        }
        match self.arbiter.begin(&mut self.allocator, &mut self.words) {
            Some((who, AllocStep::Answer(result))) => Some(Step::Answer(who, result)),
            Some((_, AllocStep::Invalidate(pages))) => {
                Some(Step::Invalidate(pages, WindowWait::Command))
            }
            None => match self.allocator.sweep(&mut self.words) {
                SweepStep::Idle => None,
                SweepStep::More => Some(Step::Swept),
                SweepStep::Invalidate(pages) => Some(Step::Invalidate(pages, WindowWait::Sweep)),
            },
        }
    }
}

/// A processing element among the requesters of the arbiter.
fn requester(pe: PeId) -> usize {
    usize::from(pe.0) + 1
}

enum Step {
    Answer(usize, Result<u64, AllocError>),
    Invalidate(WindowPages, WindowWait),
    Swept,
}

/// What the host's command is answered with.
fn completion(
    request: AllocRequest,
    result: Result<u64, AllocError>,
) -> Result<CompletionEntry, Refusal> {
    let (bytes_word, address) = match request {
        AllocRequest::Malloc { .. } => (2, 0),
        AllocRequest::Realloc { address, .. } | AllocRequest::Free { address } => (3, address),
    };
    let value = result.map_err(|error| match error {
        AllocError::ZeroSize | AllocError::TooLarge => Refusal::operand(bytes_word),
        AllocError::UnknownMemory => Refusal::operand(3),
        AllocError::NoSpace => Refusal::state(Status::NoSpace, 0),
        AllocError::NoFrames => Refusal::state(Status::NoFrames, 0),
        AllocError::NotAllocated => Refusal::mistake(Status::NotAllocated, address),
        AllocError::Inside => Refusal::mistake(Status::InsideAllocation, address),
        AllocError::BusError | AllocError::BadEntry => Refusal::state(Status::TablesFailed, 0),
        AllocError::Initialising | AllocError::Busy | AllocError::Stopped => {
            Refusal::state(Status::Busy, 0)
        }
    })?;
    Ok(CompletionEntry { value, ..CompletionEntry::plain(0, Status::Ok) })
}

impl Function {
    /// The function of a card that has a window of its own.
    #[must_use]
    pub fn with_window(self, config: &WindowConfig) -> Function {
        Function { window: Window::new(config), ..self }
    }

    /// What the window's allocator has done since the last reset; `None`: there is no window.
    pub fn window_counts(&self) -> Option<AllocCounts> {
        self.window.as_ref().map(|window| window.allocator.counts())
    }

    /// What there is to know of the memories that the window's pages come from, in the order of their numbers.
    pub fn window_memories(&self) -> impl Iterator<Item = MemorySizes> {
        let window = self.window.iter();
        window.flat_map(|window| {
            (0..register::MEMORIES_MAX as u8).map_while(|it| window.sizes_of(it))
        })
    }

    /// The next thing that the embedder must do for the window.
    pub fn poll_window_action(&mut self) -> Option<WindowAction> {
        self.window.as_mut()?.actions.pop_front()
    }

    /// A command of the driver's, which completes when it is answered.
    pub(super) fn host_allocates(
        &mut self,
        id: CommandId,
        request: AllocRequest,
        card: &mut Card,
        bus: &mut impl Bus,
    ) -> Result<(), Refusal> {
        let unsupported = Refusal::mistake(Status::Unsupported, 0);
        self.window.as_mut().ok_or(unsupported)?.host.push_back((id, request));
        self.serve_window(card, bus);
        Ok(())
    }

    /// A command of a kernel's, through the same arbiter. Always answered by [`WindowAction::Allocated`]: with
    /// [`AllocError::Stopped`] where the function has failed or is being reset, or the job is over, then or while the kernel
    /// waits. What the job has when it is over, is freed.
    /// `false`: there is no window, the job does not run, or it waits for an answer already.
    pub fn allocate(
        &mut self,
        card: &mut Card,
        bus: &mut impl Bus,
        job: JobId,
        request: AllocRequest,
    ) -> bool {
        let serves = self.phase.serves();
        let pe = card.pes().of(job).next().filter(|_| self.jobs.runs(job));
        let (Some(window), Some(pe)) = (&mut self.window, pe) else { return false };
        let is_asked = window.ask(pe, job, request);
        if !serves {
            window.stop();
        }
        self.settle(card, bus);
        is_asked
    }

    /// What a kernel has allocated is the driver's from now on, which may take it over once; `false`: it is not its own.
    pub fn hand_over_allocation(&mut self, job: JobId, address: u64) -> bool {
        let runs = self.jobs.runs(job);
        let window = self.window.as_mut().filter(|_| runs);
        window.is_some_and(|window| window.owners.hand_over(job, address))
    }

    /// A [`WindowAction::Invalidate`] that somebody waits for is done: no translator holds a page of it,
    /// and every access and walk that began before has ended.
    pub fn window_invalidated(&mut self, card: &mut Card, bus: &mut impl Bus, wait: WindowWait) {
        let Some(window) = self.window.as_mut().filter(|window| window.outstanding > 0) else {
            return;
        };
        window.outstanding -= 1;
        if self.phase.serves() {
            self.go_on_behind(wait, bus);
        }
        self.settle(card, bus);
    }

    /// What was invalidated is in no translator any more.
    fn go_on_behind(&mut self, wait: WindowWait, bus: &mut impl Bus) {
        let Some(window) = &mut self.window else { return };
        match wait {
            WindowWait::Sweep => window.allocator.swept(&mut window.words),
            WindowWait::Command => {
                let answered = window.arbiter.invalidated(&mut window.allocator, &mut window.words);
                if let Some((who, result)) = answered {
                    self.answer_allocation(who, result, bus);
                }
            }
        }
    }

    /// Whether a drain is one of the window's.
    pub(super) fn window_drained(&mut self, command: CommandId) -> bool {
        let Some(window) = &mut self.window else { return false };
        let drained = window.drains.ended(command);
        window.outstanding -= u32::from(drained == Some(true));
        drained.is_some()
    }

    /// Where a page of the window is, counted from its begin: found by a walk, or given a frame now. `None`:
    /// there is no window.
    pub fn window_translate(
        &mut self,
        page: u64,
        access: Access,
    ) -> Option<Result<WindowMapping, WindowFault>> {
        Some(self.window.as_mut()?.translate(page, access))
    }

    /// Serves who waits for the allocator, and the background, in every way that does not wait.
    pub(super) fn serve_window(&mut self, card: &mut Card, bus: &mut impl Bus) {
        if !self.phase.serves() {
            return;
        }
        let mut steps = 0;
        while let Some(wait) = self.window.as_mut().and_then(|window| window.drains.take_done()) {
            self.go_on_behind(wait, bus);
        }
        while let Some(window) = self.window.as_mut() {
            window.has_more = steps == STEPS_PER_CALL;
            if window.has_more {
                return;
            }
            let step = window.step();
            window.tell_freed(bus);
            match step {
                None => return,
                Some(Step::Swept) => steps += 1,
                Some(Step::Answer(who, result)) => self.answer_allocation(who, result, bus),
                Some(Step::Invalidate(pages, wait)) if window.first_page().is_some() => {
                    if window.take_away(card, pages, wait) {
                        self.go_on_behind(wait, bus);
                    }
                }
                Some(Step::Invalidate(pages, wait)) => {
                    window.outstanding += 1;
                    let wait = Some(wait);
                    window.actions.push_back(WindowAction::Invalidate { pages, wait });
                }
            }
        }
    }

    fn answer_allocation(
        &mut self,
        who: usize,
        result: Result<u64, AllocError>,
        bus: &mut impl Bus,
    ) {
        let Some(window) = self.window.as_mut() else { return };
        // Before whoever asked knows of his pages.
        window.tell_made_valid();
        if who != HOST {
            window.answer_kernel(who, result);
            return;
        }
        window.is_asked = false;
        let Some((id, request)) = window.host.pop_front() else { return };
        window.owners.driver_answered(request, result.is_ok());
        match completion(request, result) {
            Ok(completion) => self.ledger.finish(id, completion),
            Err(refusal) => self.refuse(id, refusal, bus),
        }
    }
}
