//! Windows of cards: faults of their pages, and what their commands take away.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use farside_card::interface::AllocRequest;
use farside_card::{Aborted, Drained, MappedRun};
use farside_linux::card_memory::CardMemory;
use farside_linux::lock::lock;
use farside_linux::signals::BlockedSignals;
use farside_linux::wait::Gate;
use farside_softcard::{Embedder, Granted, OwnMemory, SoftCard, WindowError};
use farside_svm::{CardFault, Need};
use farside_types::{
    Access, CancelReason, CardId, CommandId, FrameNo, JobId, PageRange, Rights, VirtAddr,
};

use super::far_windows::{Asked, Asking};
use super::{ASID, Port, Runtime, far_windows};
use crate::error::LiveError;
use crate::ring_card::RingCard;
use crate::window::{CardWindow, FarCard, FarWindow, Found, Held, OwnPart, Surroundings, parts};

/// Marks the commands of windows: the driver's never have this bit.
const OF_WINDOWS: u64 = 1 << 63;

/// The windows of the cards in the program, and their drains.
#[derive(Debug, Default)]
pub(crate) struct Windows {
    /// In the order of their cards.
    all: Vec<CardWindow>,
    /// Those of cards elsewhere.
    far: Vec<FarWindow>,
    /// What these were asked.
    pub(super) asked: Mutex<BTreeMap<CommandId, Asked>>,
    /// Cards elsewhere that have pages of others' windows, or had.
    readers: Mutex<BTreeSet<CardId>>,
    /// Pages of one grouped fault, at most.
    group_pages: u64,
    /// How long a drain may take.
    pub(super) limit: Duration,
    /// Whoever holds it takes pages from the cards, or resets a card that has some in flight: not both at a time.
    calm: Mutex<()>,
    /// Drains that wait for accesses.
    open: Mutex<BTreeSet<CommandId>>,
    pub(super) gate: Gate,
}

impl Windows {
    pub(super) fn new(
        all: Vec<CardWindow>,
        far: Vec<FarWindow>,
        limits: &farside_svm::Limits,
    ) -> Windows {
        let limit = Duration::from_nanos(limits.drain.as_nanos());
        Windows { all, far, group_pages: limits.group_pages, limit, ..Windows::default() }
    }

    /// Whether there is none: nothing is looked up then.
    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty() && self.far.is_empty()
    }

    /// The window that a range begins in.
    pub(super) fn at(&self, range: PageRange) -> Option<Found<'_>> {
        self.every().find(|window| window.pages().contains(range.start))
    }

    fn every(&self) -> impl Iterator<Item = Found<'_>> {
        self.all.iter().map(Found::Near).chain(self.far.iter().map(Found::Far))
    }

    pub(super) fn of(&self, card: CardId) -> Result<Found<'_>, WindowError> {
        let why = "the space was opened without windows on its cards (`SpaceBuilder::card_window`), or the card is served \
            without (`farside card serve --window`)";
        let found = self.every().find(|window| window.card() == card);
        found.ok_or(WindowError::NoWindow { card, why })
    }

    /// Takes note of those drains of windows that have ended.
    pub(super) fn drained(&self, commands: &[CommandId]) {
        let mut open = lock(&self.open);
        let is_ours = commands.iter().filter(|command| open.remove(command)).count() > 0;
        drop(open);
        if is_ours {
            self.gate.notify();
        }
    }
}

/// A card elsewhere that pages of a window were taken from.
struct TakenFrom<'a> {
    ring: &'a RingCard,
    /// By which it is known when it has let go; `None`: it was away.
    command: Option<CommandId>,
}

impl TakenFrom<'_> {
    /// Whether it has let go, where these commands are open. One that goes does when it has ended its connection too: one that
    /// was away and is back has.
    fn is_over(&self, open: &BTreeSet<CommandId>) -> bool {
        let is_connected = self.ring.is_connected();
        match &self.command {
            Some(command) => !open.contains(command) || !is_connected && self.ring.has_left(),
            None => is_connected || self.ring.has_left(),
        }
    }
}

/// Whether a drain is one of a window's.
pub(super) fn is_of_window(command: CommandId) -> bool {
    command.0 & OF_WINDOWS != 0
}

impl Surroundings for Runtime {
    fn take_away(&self, pages: PageRange) -> bool {
        let windows = &self.windows;
        let mut waiting = Vec::new();
        let calm = lock(&windows.calm);
        for soft in self.soft_cards() {
            let command = self.window_command();
            // Before there is a drain that may end.
            lock(&windows.open).insert(command);
            let drained = lock(&soft.model).unmap(command, ASID, std::iter::once(pages));
            match drained {
                Drained::Now => {
                    lock(&windows.open).remove(&command);
                }
                Drained::Waiting(_) => waiting.push(command),
            }
        }
        drop(calm);
        let deadline = Instant::now() + windows.limit;
        let rings = self.take_from_rings(pages, true);
        let done = windows.gate.wait(Some(deadline), || {
            let open = lock(&windows.open).clone();
            let near = waiting.iter().all(|command| !open.contains(command));
            let far = rings.iter().all(|taken| taken.is_over(&open));
            (near && far).then_some(())
        });
        let mut open = lock(&windows.open);
        for command in waiting.iter().chain(rings.iter().filter_map(|taken| taken.command.as_ref()))
        {
            open.remove(command);
        }
        done.is_some()
    }

    fn zero(&self, card: CardId, first: FrameNo, count: u32) {
        let Some(memory) = self.memories.card(card).mapped() else { return };
        // SAFETY: frames of pages that no card and no program has any more, and that nobody gets before this ends.
        let zeroed = unsafe { memory.zero(first, count) };
        debug_assert!(zeroed.is_ok(), "they are the window's");
    }
}

impl Runtime {
    /// A command of a kernel's, or of the program's.
    pub(super) fn allocate_own(
        &self,
        card: CardId,
        request: AllocRequest,
    ) -> Result<u64, WindowError> {
        let _signals = self.enter_window()?;
        match self.windows.of(card)? {
            Found::Near(window) => window.allocate(request, self),
            Found::Far(window) => window.allocate(request, &Asking::new(self, window)),
        }
    }

    pub(super) fn show_own(
        &self,
        card: CardId,
        addr: VirtAddr,
        bytes: u64,
        access: Access,
    ) -> Result<(), WindowError> {
        let _signals = self.enter_window()?;
        let window = self.windows.of(card)?;
        let memory = self.memories.card(card).mapped().ok_or(WindowError::Gone { card })?;
        match window {
            Found::Near(window) => window.show(addr, bytes, access, memory),
            Found::Far(window) => {
                window.show(addr, bytes, access, memory, &Asking::new(self, window))
            }
        }
    }

    /// What a kernel has handed over is the program's, of so many bytes.
    pub(super) fn take_over_own(
        &self,
        card: CardId,
        addr: VirtAddr,
        bytes: u64,
    ) -> Result<(), WindowError> {
        let _signals = self.enter_window()?;
        match self.windows.of(card)? {
            Found::Near(window) => window.take_over(addr, bytes),
            Found::Far(window) => window.take_over(addr, bytes, &Asking::new(self, window)),
        }
    }

    /// A kernel in the program hands over what it has allocated.
    pub(super) fn hand_over_own(
        &self,
        card: CardId,
        addr: VirtAddr,
        bytes: u64,
    ) -> Result<(), WindowError> {
        let _signals = self.enter_window()?;
        match self.windows.of(card)? {
            Found::Near(window) => window.hand_over(addr, bytes),
            Found::Far(_) => Err(WindowError::NotOwn { addr }),
        }
    }

    pub(super) fn copy_own(
        &self,
        card: CardId,
        addr: VirtAddr,
        out: &mut [u8],
    ) -> Result<(), WindowError> {
        let bytes = out.len() as u64;
        // What has no memory stays as it is: it is zero.
        self.copy_runs(card, addr, bytes, Access::Read, |bytes, at| {
            let out = &mut out[at..at + bytes.len()];
            // SAFETY: as many bytes, of the card's memory, which stays mapped. They are of a buffer that is borrowed, so no
            // kernel writes them; one that breaks its word, or a card that does not tell the truth or comes back with other
            // memory, writes from another process, and the copy is any mixture of bytes, which are all values.
            unsafe {
                std::ptr::copy_nonoverlapping(bytes.cast::<u8>(), out.as_mut_ptr(), out.len())
            }
        })
    }

    pub(super) fn fill_own(
        &self,
        card: CardId,
        addr: VirtAddr,
        from: &[u8],
    ) -> Result<(), WindowError> {
        let bytes = from.len() as u64;
        self.copy_runs(card, addr, bytes, Access::Write, |bytes, at| {
            let from = &from[at..at + bytes.len()];
            // SAFETY: as many bytes, of the card's memory, which stays mapped. They are of a buffer that is borrowed exclusively,
            // so nobody reads or writes them; what a card that does not tell the truth says is its buffer's, is its own memory.
            unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), bytes.cast::<u8>(), from.len()) }
        })
    }

    /// Calls `copy` with each piece of `bytes` bytes of a card's own memory at `addr`, and with how far from there on it is.
    fn copy_runs(
        &self,
        card: CardId,
        addr: VirtAddr,
        bytes: u64,
        access: Access,
        mut copy: impl FnMut(*mut [u8], usize),
    ) -> Result<(), WindowError> {
        let _signals = self.enter_window()?;
        let window = self.windows.of(card)?;
        let Some(memory) = self.memories.card(card).mapped() else {
            return Err(WindowError::Gone { card });
        };
        let each = |run: MappedRun| {
            let at = run.page.addr().0.saturating_sub(addr.0);
            let skip = addr.0.saturating_sub(run.page.addr().0) as usize;
            let rest = bytes.saturating_sub(at) as usize;
            if rest > 0 {
                copy(bytes_of_run(memory, &run, skip, rest), at as usize);
            }
        };
        match window {
            Found::Near(window) => window.with_runs(addr, bytes, access, each),
            Found::Far(window) => {
                window.with_runs(addr, bytes, access, &Asking::new(self, window), each)
            }
        }
    }

    fn enter_window(&self) -> Result<BlockedSignals, WindowError> {
        match self.check_process() {
            Err(LiveError::WrongProcess { owner }) => Err(WindowError::WrongProcess { owner }),
            _ => Ok(BlockedSignals::block()),
        }
    }

    /// The cards in the program.
    fn soft_cards(&self) -> impl Iterator<Item = &SoftCard> {
        self.ports.iter().filter_map(|port| match port {
            Port::InProgram(soft) => Some(&**soft),
            Port::Ring(_) => None,
        })
    }

    /// Serves what faults need of windows, and leaves in `faults` those that need something of the driver's, and
    /// what that is.
    pub(super) fn serve_windows(&self, soft: &SoftCard, faults: &mut Vec<CardFault>) {
        let mut answers = Vec::new();
        faults.retain_mut(|fault| {
            let served = self.serve_window_of(fault, |runs, rights| insert(soft, runs, rights));
            let mut model = lock(&soft.model);
            match served {
                Ok(Some(rest)) => {
                    fault.need = rest;
                    return true;
                }
                Ok(None) => model.resume_into(fault.id..=fault.id, &mut answers),
                Err(reason) => model.cancel_into(fault.id..=fault.id, reason, &mut answers),
            }
            false
        });
        soft.answer(answers);
    }

    /// What is left for the driver.
    pub(super) fn serve_window_of(
        &self,
        fault: &CardFault,
        mut insert: impl FnMut(&[MappedRun], Rights),
    ) -> Result<Option<Need>, CancelReason> {
        let one;
        let ranges: &[(PageRange, Access)] = match &fault.need {
            Need::Page(page, access) => {
                one = [(PageRange::page(*page), *access)];
                &one
            }
            Need::Group(ranges) => ranges,
        };
        let is_own = |&&(range, _): &&(PageRange, Access)| self.windows.at(range).is_some();
        let own: Vec<_> = ranges.iter().filter(is_own).copied().collect();
        if own.is_empty() {
            return Ok(Some(fault.need.clone()));
        }
        let pages = own.iter().fold(0u64, |sum, (range, _)| sum.saturating_add(range.count));
        if pages > self.windows.group_pages {
            return Err(CancelReason::GroupTooLarge);
        }
        for (range, access) in own {
            if let Some(window) = self.windows.at(range) {
                window.translate(range, access, &mut insert)?;
            }
        }
        let rest: Vec<_> = ranges.iter().filter(|it| !is_own(it)).copied().collect();
        Ok((!rest.is_empty()).then(|| Need::Group(rest.into())))
    }

    /// A card is gone, and its own memory with it.
    pub(super) fn lose_window(&self, card: CardId) {
        let window = self.windows.of(card);
        window.iter().for_each(|window| window.lose());
        // Those who wait for an answer of its, or until it has let go of others' pages.
        self.windows.gate.notify();
        if let Ok(window) = window {
            self.take_away_at_once(window.pages());
        }
    }

    /// Takes pages from all cards. Nobody waits for who still has them.
    fn take_away_at_once(&self, pages: PageRange) {
        for soft in self.soft_cards() {
            let command = self.window_command();
            lock(&self.windows.open).insert(command);
            let drained = lock(&soft.model).unmap(command, ASID, std::iter::once(pages));
            if drained == Drained::Now {
                lock(&self.windows.open).remove(&command);
            }
        }
        self.take_from_rings(pages, false);
    }

    /// Takes pages from the cards elsewhere that may have one. Where somebody waits until they have let go (`is_awaited`) the
    /// commands are open until then, or until he waits no more; the others are their connections' alone, and end with these.
    fn take_from_rings(&self, pages: PageRange, is_awaited: bool) -> Vec<TakenFrom<'_>> {
        let readers = lock(&self.windows.readers).clone();
        let take = |ring| {
            let command = self.window_command();
            let is_sent = self.put_into_ring(ring, |link| {
                if is_awaited {
                    // Before it may be answered.
                    lock(&self.windows.open).insert(command);
                }
                link.submit(&far_windows::unmap(command, pages), |_| None);
            });
            TakenFrom { ring, command: is_sent.then_some(command) }
        };
        let rings = self.rings().map(|ring| &**ring);
        rings.filter(|ring| readers.contains(&ring.id)).map(take).collect()
    }

    /// The name of a command of a window's.
    pub(super) fn window_command(&self) -> CommandId {
        CommandId(OF_WINDOWS | self.fresh_id())
    }

    /// Drains of windows that have not ended.
    pub(super) fn window_drains(&self) -> Vec<CommandId> {
        lock(&self.windows.open).iter().copied().collect()
    }

    /// A card elsewhere gets a page of a window that is another's.
    pub(super) fn reads_windows(&self, card: CardId) {
        lock(&self.windows.readers).insert(card);
    }

    /// Resets a card that is gone. What its kernels hold of windows, also of other cards', is noted before anybody takes pages
    /// away: the card itself knows nothing of it afterwards, and would let them go at once.
    pub(super) fn reset_gone(&self, soft: &SoftCard) -> Aborted {
        let _calm = lock(&self.windows.calm);
        let (held, aborted) = {
            let mut model = lock(&soft.model);
            (self.held_of_windows(soft, &model, None), model.reset())
        };
        self.withdraw_held(&held);
        aborted
    }

    /// A kernel was given up: what it holds of windows is out of use.
    pub(super) fn withdraw_held_by(&self, soft: &SoftCard, job: JobId) {
        let held = self.held_of_windows(soft, &lock(&soft.model), Some(job));
        self.withdraw_held(&held);
    }

    /// What one job of a card in the program holds of windows, or the whole card before it is reset.
    fn held_of_windows(
        &self,
        soft: &SoftCard,
        model: &farside_card::Card,
        job: Option<JobId>,
    ) -> Vec<Held> {
        let is_of_job = |pe| job.is_none_or(|job| model.pes().of(job).any(|of_job| of_job == pe));
        let in_flight = model.in_flight().held().filter(|&(pe, ..)| is_of_job(pe));
        let of_windows = in_flight.filter(|&(_, pages, _)| self.windows.at(pages).is_some());
        let (card, is_forgotten) = (soft.id, job.is_none());
        of_windows.map(|(_, pages, access)| Held { pages, access, card, is_forgotten }).collect()
    }

    fn withdraw_held(&self, held: &[Held]) {
        for held in held {
            if let Some(window) = self.windows.at(held.pages) {
                window.take_out_of_use(*held);
                self.take_away_at_once(held.pages);
            }
        }
    }

    /// A card's own memories, with what is free in them.
    ///
    /// # Errors
    /// [`WindowError::NoWindow`], [`WindowError::WrongProcess`].
    pub fn own_memories(&self, card: CardId) -> Result<Vec<OwnMemory>, WindowError> {
        let _signals = self.enter_window()?;
        match self.windows.of(card)? {
            Found::Near(window) => Ok(window.memories()),
            Found::Far(window) => Asking::new(self, window).memories(),
        }
    }

    /// Whose own memory an address is in.
    pub fn owner_of(&self, addr: VirtAddr) -> Option<CardId> {
        self.windows.at(PageRange::page(addr.page())).map(Found::card)
    }

    /// Where the pages of these bytes are; none if they are not a card's own memory.
    ///
    /// # Errors
    /// [`WindowError::NotShown`] if not all of them are allocated, or a kernel elsewhere has them; [`WindowError::Gone`].
    pub fn own_parts(&self, addr: VirtAddr, bytes: u64) -> Result<Vec<OwnPart>, WindowError> {
        let Some(card) = self.owner_of(addr) else { return Ok(Vec::new()) };
        let _signals = self.enter_window()?;
        let (window, mut runs) = (self.windows.of(card)?, Vec::new());
        let each = |run: MappedRun| {
            let frame = run.location.frame;
            let memory = match window {
                Found::Near(window) => window.memory_at(frame),
                Found::Far(window) => window.memory_at(frame),
            };
            runs.extend(memory.map(|memory| (run.pages(), memory)));
        };
        match window {
            Found::Near(window) => window.with_runs(addr, bytes, Access::Read, each)?,
            Found::Far(window) => {
                window.with_runs(addr, bytes, Access::Read, &Asking::new(self, window), each)?;
            }
        }
        let range = PageRange::covering(addr, bytes).unwrap_or_default();
        Ok(parts(card, range, &self.own_memories(card)?, runs))
    }

    /// What the cards are plugged into, for buffers in their own memory.
    ///
    /// # Errors
    /// [`LiveError::WrongProcess`] after a fork.
    pub fn embedder(&self) -> Result<std::sync::Arc<dyn Embedder>, LiveError> {
        self.check_process()?;
        let shared = self.shared().expect("whoever asks has a handle of the runtime");
        Ok(shared)
    }

    /// Whether a card reaches all that it is lent of windows.
    ///
    /// # Errors
    /// [`LiveError::WindowElsewhere`].
    pub fn check_reach(&self, card: CardId, grants: &[Granted]) -> Result<(), LiveError> {
        for grant in grants.iter().filter(|_| !self.windows.is_empty()) {
            let addr = VirtAddr(grant.start());
            let Some(window) = self.windows.at(PageRange::page(addr.page())) else { continue };
            let owner = window.card();
            let is_beyond = |card: CardId| match self.ports.get(usize::from(card.0)) {
                Some(Port::Ring(ring)) => {
                    ring.transport().is_none_or(|transport| transport.is_by_messages())
                }
                _ => false,
            };
            if card != owner && (is_beyond(card) || !self.peer) {
                return Err(LiveError::WindowElsewhere { addr, owner, card });
            }
        }
        Ok(())
    }
}

fn insert(soft: &SoftCard, runs: &[MappedRun], rights: Rights) {
    if let Err(error) = lock(&soft.model).map(ASID, runs.iter().copied(), rights) {
        // Without a mapping the kernel faults again.
        tracing::error!(%error, "a card refused a mapping of a window");
    }
}

/// The bytes of a run, from `skip` bytes into it on, `most` of them.
fn bytes_of_run(memory: &CardMemory, run: &MappedRun, skip: usize, most: usize) -> *mut [u8] {
    let bytes = run.count as usize * farside_types::PAGE_SIZE - skip;
    let start = memory.run_ptr(run.location.frame, run.count);
    let start = start.expect("a window's frames are in its card's memory").as_ptr();
    std::ptr::slice_from_raw_parts_mut(start.wrapping_add(skip), bytes.min(most))
}
