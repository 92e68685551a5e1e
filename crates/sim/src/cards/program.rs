//! What a program does with the machine: allocate, place, migrate, run jobs; and what it measures.

use std::collections::BTreeMap;
use std::sync::Arc;

use farside_svm::{Event, Outcome, Phase, Reply, Request};
use farside_types::{
    Access, AgentId, CardId, FrameNo, JobId, MemoryId, PageNo, PageRange, RequestId, Span,
    StreamId, Time,
};

use super::CardsError;
use super::machine::CardMachine;
use super::workload::Work;
use crate::pump::Pump;

/// The time of migrations by step (Table III). Software and copies are added up, so that it is
/// more than the time that passed where they overlap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Steps {
    /// Collect the source pages, invalidate, wait for accesses in flight.
    pub setup: Span,
    /// Find frames: costs nothing here.
    pub allocate: Span,
    /// Copy.
    pub dma: Span,
    /// Update the page table, give the card its translations.
    pub finalize: Span,
}

impl Steps {
    pub(super) fn add(&mut self, phase: Phase, span: Span) {
        match phase {
            Phase::Setup => self.setup += span,
            Phase::Allocate => self.allocate += span,
            Phase::Copy => self.dma += span,
            Phase::Finalize => self.finalize += span,
        }
    }

    /// All four.
    pub fn total(&self) -> Span {
        self.setup + self.allocate + self.dma + self.finalize
    }

    fn since(&self, before: &Steps) -> Steps {
        Steps {
            setup: self.setup - before.setup,
            allocate: self.allocate - before.allocate,
            dma: self.dma - before.dma,
            finalize: self.finalize - before.finalize,
        }
    }
}

/// A migration that the program asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Migration {
    /// From the request to its answer.
    pub time: Span,
    /// Pages that moved.
    pub pages: u64,
    /// The time by step.
    pub steps: Steps,
}

/// A job that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobReport {
    /// From the launch until the program sees its end.
    pub time: Span,
    /// Faults that the driver was told of.
    pub faults: u64,
    /// Batches that they came in.
    pub batches: u64,
    /// Walks of the card's tables that found the page.
    pub walks: u64,
}

/// How pages lie in a card's memory (section V-B).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Layout {
    /// One contiguous block.
    Contiguous,
    /// No page behind its neighbour.
    Scattered,
}

/// A job that was launched.
#[derive(Debug)]
pub(super) struct JobState {
    pub(super) card: CardId,
    pub(super) work: Work,
    pub(super) launched: Time,
    pub(super) ended: Option<Time>,
    pub(super) faults: u64,
    pub(super) batches: u64,
    /// Walks of its card: before it, and from its end on those that it made.
    pub(super) walks: u64,
}

impl CardMachine {
    /// Allocates `bytes`, which the CPU then writes, so that all of it lies on the host.
    ///
    /// # Errors
    /// [`CardsError`]: the driver refuses, or a rule is broken.
    pub fn allocate(&mut self, bytes: u64, name: &str) -> Result<PageRange, CardsError> {
        let request = Request::Alloc { bytes, name: Arc::from(name) };
        match self.request(request)?.1 {
            Outcome::Allocated(range) => {
                self.write_on_host(range)?;
                Ok(range)
            }
            outcome => Err(self.broken(format!("an allocation is answered with {outcome:?}"))),
        }
    }

    /// Has the CPU write every page of a range once.
    fn write_on_host(&mut self, range: PageRange) -> Result<(), CardsError> {
        for page in range.pages() {
            let writable =
                |machine: &CardMachine| machine.driver.page(page).writers.contains(AgentId::CPU);
            if !writable(self) {
                self.handle(Event::HostFault { page, access: Access::Write })?;
                self.run_until("the CPU waits for a page", writable)?;
            }
        }
        self.run_until("the driver is to be quiet", |machine| machine.driver.is_quiet())?;
        for page in range.pages() {
            // The host has a frame for every page of the arena.
            let frame = FrameNo(self.index(page)?);
            self.check(page, Access::Write, MemoryId::HOST, frame)?;
        }
        Ok(())
    }

    /// Moves a range to a card so that it lies there as said.
    ///
    /// # Errors
    /// As for [`CardMachine::migrate`].
    pub fn place(
        &mut self,
        range: PageRange,
        card: CardId,
        layout: Layout,
    ) -> Result<(), CardsError> {
        match layout {
            Layout::Contiguous => self.migrate(range, card.memory()).map(|_| ()),
            Layout::Scattered => {
                // First the even pages, then the odd ones.
                let pages = |rest| range.pages().filter(move |page| page.0 % 2 == rest);
                let scattered: Vec<PageNo> = pages(0).chain(pages(1)).collect();
                for page in scattered {
                    self.migrate(PageRange::page(page), card.memory())?;
                }
                Ok(())
            }
        }
    }

    /// A user-managed migration (UMPM).
    ///
    /// # Errors
    /// [`CardsError`]: the driver refuses, or a rule is broken.
    pub fn migrate(&mut self, range: PageRange, to: MemoryId) -> Result<Migration, CardsError> {
        if let Some(card) = to.card() {
            self.known(card)?;
        }
        let (start, before) = (self.now(), self.steps);
        let (end, outcome) = self.request(Request::Migrate { range, to })?;
        let pages = match outcome {
            Outcome::Done { pages_moved } => pages_moved,
            Outcome::Allocated(_) => 0,
        };
        Ok(Migration { time: end.since(start), pages, steps: self.steps.since(&before) })
    }

    /// Several user-managed migrations at once: the time until the last of them is over.
    ///
    /// # Errors
    /// As for [`CardMachine::migrate`].
    pub fn migrate_all(&mut self, moves: &[(PageRange, MemoryId)]) -> Result<Span, CardsError> {
        let start = self.now();
        let mut ids = Vec::with_capacity(moves.len());
        for &(range, to) in moves {
            ids.push(self.ask(Request::Migrate { range, to })?);
        }
        let mut end = start;
        for id in ids {
            end = end.max(self.answer(id)?.0);
        }
        Ok(end.since(start))
    }

    /// Runs a job to its end. Pages it lacks are migrated on demand (ODPM).
    ///
    /// # Errors
    /// [`CardsError`]: an access is refused, or a rule is broken.
    pub fn run(&mut self, card: CardId, work: Work) -> Result<JobReport, CardsError> {
        let reports = self.run_all(vec![(card, work)])?;
        reports.first().copied().ok_or_else(|| self.broken("a job has no report".to_owned()))
    }

    /// Runs several jobs at once, at most one on a card; their reports, in the given order.
    ///
    /// # Errors
    /// As for [`CardMachine::run`].
    pub fn run_all(&mut self, jobs: Vec<(CardId, Work)>) -> Result<Vec<JobReport>, CardsError> {
        let mut ids = Vec::with_capacity(jobs.len());
        for (card, work) in jobs {
            self.known(card)?;
            ids.push(self.launch(card, work)?);
        }
        self.run_until("jobs are to end", |machine| {
            machine.jobs.values().all(|job| job.ended.is_some())
        })?;
        self.settle()?;
        let mut states = std::mem::take(&mut self.jobs);
        Ok(ids.iter().filter_map(|id| report(&mut states, *id)).collect())
    }

    fn launch(&mut self, card: CardId, work: Work) -> Result<JobId, CardsError> {
        self.next_id += 1;
        let job = JobId(self.next_id);
        let launched = self.now();
        let walks = self.card_stats(card)?.walks;
        let state = JobState { card, work, launched, ended: None, faults: 0, batches: 0, walks };
        self.jobs.insert(job, state);
        let (stream, arena) = (StreamId(u32::from(card.0)), self.driver.config().arena);
        self.handle(Event::Launch { job, card, stream, after: &[], writes: &[arena] })?;
        Ok(job)
    }

    pub(super) fn job_end(&mut self, job: JobId) -> Result<(), CardsError> {
        let seen = self.now() + self.wake_from_nap();
        self.queue.push(seen, super::machine::SimEvent::JobSeen { job });
        Ok(())
    }

    pub(super) fn job_seen(&mut self, job: JobId) -> Result<(), CardsError> {
        let now = self.now();
        if let Some(state) = self.jobs.get_mut(&job) {
            state.ended = Some(now);
            state.walks = self.cards[usize::from(state.card.0)].stats().walks - state.walks;
        }
        self.handle(Event::JobDone { job })
    }

    /// Everything under way ends, and the driver's tables and the contents of all frames must be
    /// right.
    ///
    /// # Errors
    /// [`CardsError::Broken`] says what is not.
    pub fn settle(&mut self) -> Result<(), CardsError> {
        self.run_until("the driver is to be quiet", |machine| machine.driver.is_quiet())?;
        self.driver.check().map_err(|what| self.broken(what))?;
        let objects = self.driver.objects();
        for page in objects.iter().flat_map(|object| object.range.pages()) {
            let view = self.driver.page(page);
            if let Some(memory) = view.owner {
                self.check(page, Access::Read, memory, view.frame)?;
            }
        }
        Ok(())
    }

    fn request(&mut self, request: Request) -> Result<(Time, Outcome), CardsError> {
        let id = self.ask(request)?;
        self.answer(id)
    }

    fn ask(&mut self, request: Request) -> Result<RequestId, CardsError> {
        self.next_id += 1;
        let id = RequestId(self.next_id);
        self.handle(Event::Request { id, request, after: &[] })?;
        Ok(id)
    }

    fn answer(&mut self, id: RequestId) -> Result<(Time, Outcome), CardsError> {
        self.run_until("a request is to be answered", |machine| machine.replies.contains_key(&id))?;
        match self.replies.remove(&id) {
            Some((at, Reply::Request { result, .. })) => Ok((at, result?)),
            other => Err(self.broken(format!("a request is answered with {other:?}"))),
        }
    }
}

fn report(states: &mut BTreeMap<JobId, JobState>, id: JobId) -> Option<JobReport> {
    let state = states.remove(&id)?;
    let time = state.ended?.since(state.launched);
    let JobState { faults, batches, walks, .. } = state;
    Some(JobReport { time, faults, batches, walks })
}
