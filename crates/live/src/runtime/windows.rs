//! Windows of cards: faults of their pages, and what their commands take away.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use farside_card::interface::AllocRequest;
use farside_card::{Aborted, Drained, MappedRun};
use farside_linux::card_memory::{CardMemory, zero_pages};
use farside_linux::lock::lock;
use farside_linux::signals::BlockedSignals;
use farside_linux::wait::Gate;
use farside_softcard::{Embedder, Granted, SoftCard, WindowError};
use farside_svm::{CardFault, Need};
use farside_types::{
    Access, CancelReason, CardId, CommandId, FrameNo, JobId, PageRange, Rights, VirtAddr,
};

use super::{ASID, Port, Runtime};
use crate::error::LiveError;
use crate::window::{CardWindow, Held, Surroundings};

/// Frames in a row that are made zero by writing, at most: 2 MiB.
const WRITTEN_ZEROS: u32 = 512;

/// Marks the commands of windows: the driver's never have this bit.
const OF_WINDOWS: u64 = 1 << 63;

/// The windows of the cards in the program, and their drains.
#[derive(Debug, Default)]
pub(crate) struct Windows {
    /// In the order of their cards.
    all: Vec<CardWindow>,
    /// Pages of one grouped fault, at most.
    group_pages: u64,
    /// How long a drain may take.
    limit: Duration,
    /// Whoever holds it takes pages from the cards, or resets a card that has some in flight: not both at a time.
    calm: Mutex<()>,
    /// Drains that wait for accesses.
    open: Mutex<BTreeSet<CommandId>>,
    gate: Gate,
}

impl Windows {
    pub(super) fn new(all: Vec<CardWindow>, limits: &farside_svm::Limits) -> Windows {
        let limit = Duration::from_nanos(limits.drain.as_nanos());
        Windows { all, group_pages: limits.group_pages, limit, ..Windows::default() }
    }

    /// Whether there is none: nothing is looked up then.
    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// The window that a range begins in.
    pub(super) fn at(&self, range: PageRange) -> Option<&CardWindow> {
        self.all.iter().find(|window| window.pages().contains(range.start))
    }

    fn of(&self, card: CardId) -> Result<&CardWindow, WindowError> {
        let why = "the space was opened without windows on its cards (`SpaceBuilder::card_window`), or this \
            card is in another process";
        let found = self.all.iter().find(|window| window.card() == card);
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
            let command = CommandId(OF_WINDOWS | self.fresh_id());
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
        let done = windows.gate.wait(Some(deadline), || {
            let open = lock(&windows.open);
            waiting.iter().all(|command| !open.contains(command)).then_some(())
        });
        let mut open = lock(&windows.open);
        for command in &waiting {
            open.remove(command);
        }
        done.is_some()
    }

    fn zero(&self, card: CardId, first: FrameNo, count: u32) {
        let Some(memory) = self.memories.card(card).mapped() else { return };
        // What is large is given back to the system. What is not is likely to be wanted again soon, and has its memory then.
        if count > WRITTEN_ZEROS && memory.release(first, count).is_ok() {
            return;
        }
        if let Ok(start) = memory.run_ptr(first, count) {
            // SAFETY: frames of pages that no card and no program has any more, and that nobody gets before this ends.
            unsafe { zero_pages(start.as_ptr(), count as usize) };
        }
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
        self.windows.of(card)?.allocate(request, self)
    }

    pub(super) fn show_own(
        &self,
        card: CardId,
        addr: VirtAddr,
        bytes: u64,
    ) -> Result<(), WindowError> {
        let _signals = self.enter_window()?;
        let window = self.windows.of(card)?;
        match self.memories.card(card).mapped() {
            Some(memory) => window.show(addr, bytes, memory),
            None => Err(WindowError::Gone { card }),
        }
    }

    pub(super) fn copy_own(
        &self,
        card: CardId,
        addr: VirtAddr,
        out: &mut [u8],
    ) -> Result<(), WindowError> {
        let _signals = self.enter_window()?;
        let window = self.windows.of(card)?;
        let Some(memory) = self.memories.card(card).mapped() else {
            return Err(WindowError::Gone { card });
        };
        let mut rest = out;
        let mut skip = addr.page_offset();
        window.with_runs(addr, rest.len() as u64, |run| {
            let taken = copy_run(memory, &run, skip, rest);
            skip = 0;
            rest = std::mem::take(&mut rest).split_at_mut(taken).1;
        })
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
            let served = self.serve_window_of(soft, fault);
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
    fn serve_window_of(
        &self,
        soft: &SoftCard,
        fault: &CardFault,
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
                window.translate(range, access, |runs, rights| insert(soft, runs, rights))?;
            }
        }
        let rest: Vec<_> = ranges.iter().filter(|it| !is_own(it)).copied().collect();
        Ok((!rest.is_empty()).then(|| Need::Group(rest.into())))
    }

    /// A card is gone, and its own memory with it.
    pub(super) fn lose_window(&self, card: CardId) {
        let Ok(window) = self.windows.of(card) else { return };
        window.lose();
        self.take_away_at_once(window.pages());
    }

    /// Takes pages from all cards. Nobody waits for who still has them.
    fn take_away_at_once(&self, pages: PageRange) {
        for soft in self.soft_cards() {
            let command = CommandId(OF_WINDOWS | self.fresh_id());
            let _ = lock(&soft.model).unmap(command, ASID, std::iter::once(pages));
        }
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

    /// Bytes of a card's own memory that are free.
    ///
    /// # Errors
    /// [`WindowError::NoWindow`], [`WindowError::WrongProcess`].
    pub fn own_memory_free(&self, card: CardId) -> Result<u64, WindowError> {
        let _signals = self.enter_window()?;
        Ok(self.windows.of(card)?.free_bytes())
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
            let is_far = matches!(self.ports.get(usize::from(card.0)), Some(Port::Ring(_)));
            if card != owner && (is_far || !self.peer) {
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

/// Copies what is wanted of a run, from `skip` bytes into it on. Gives how much that was.
fn copy_run(memory: &CardMemory, run: &MappedRun, skip: usize, out: &mut [u8]) -> usize {
    let bytes = run.count as usize * farside_types::PAGE_SIZE - skip;
    let taken = bytes.min(out.len());
    let start = memory.run_ptr(run.location.frame, run.count);
    let start = start.expect("a window's frames are in its card's memory").as_ptr();
    // SAFETY: the run has that many bytes from there on. They are of a buffer that is borrowed, so nobody writes them, and
    // they are its frames while the tables' lock is held.
    unsafe { std::ptr::copy_nonoverlapping(start.wrapping_add(skip), out.as_mut_ptr(), taken) };
    taken
}
