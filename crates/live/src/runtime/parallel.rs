//! One kernel over many pieces, on several cards: pieces are launched as ordinary jobs, each when one of
//! its card has ended, by whoever tells the driver of that end. So it works on every kind of card, and an
//! element of a card in the program goes from one piece to the next without another thread.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use farside_linux::ending::Ending;
use farside_linux::lock::lock;
use farside_linux::signals::BlockedSignals;
use farside_svm::{Event, Task};
use farside_types::{CardId, JobId, Span, StreamId, Time};

use super::carry_out::AbortOnPanic;
use super::order::{Failed, Predecessor, of_kernel, open_tasks};
use super::{ASID, Core, Port, Runtime};
use crate::error::LiveError;
use crate::shares::{Handed, Shares};
use farside_softcard::{Granted, Job, KernelArgs, KernelBody, KernelError, Returned};

/// What a piece runs.
pub enum PieceWork {
    /// This, on a card in the program, with what it may touch.
    Body(Vec<Granted>, KernelBody),
    /// The kernel of that name, on a card elsewhere.
    Call(KernelArgs, Returned),
}

impl std::fmt::Debug for PieceWork {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PieceWork")
    }
}

/// Gives what runs over a range of indices; `true`: on a card elsewhere.
pub type MakePiece = Box<dyn Fn(Range<u64>, bool) -> Result<PieceWork, KernelError> + Send + Sync>;

/// Pieces under way at a time for each processing element of a card elsewhere: one runs, and one is there
/// when it has ended. In the program the element itself fetches the next.
const AHEAD_ELSEWHERE: u32 = 2;

/// What a parallel launch runs, and where.
pub struct ParallelLaunch {
    /// The kernel's name.
    pub name: Arc<str>,
    /// The indices, all of them.
    pub indices: Range<u64>,
    /// Indices of a piece; at least one.
    pub grain: u64,
    /// The cards; each once.
    pub cards: Vec<CardId>,
    /// How long all of it may take.
    pub limit: Option<Span>,
    /// Makes its pieces.
    pub make: MakePiece,
}

impl std::fmt::Debug for ParallelLaunch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "`{}` over {:?} by {} on {:?}", self.name, self.indices, self.grain, self.cards)
    }
}

/// What a card did of a parallel launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CardShare {
    /// The card.
    pub card: CardId,
    /// Pieces that ended well there.
    pub pieces: u64,
    /// Indices of these.
    pub indices: u64,
    /// Those of the pieces that were other cards' share at first.
    pub stolen: u64,
}

/// Why a parallel launch failed: the first piece that did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PieceError {
    /// Where it ran.
    pub card: CardId,
    /// Its indices.
    pub indices: Range<u64>,
    /// Why it failed.
    pub error: KernelError,
}

/// A parallel launch that is under way, or over.
pub struct Parallel {
    id: JobId,
    name: Arc<str>,
    indices: Range<u64>,
    grain: u64,
    pieces: u64,
    deadline: Option<Time>,
    make: Mutex<Option<MakePiece>>,
    state: Mutex<State>,
    end: Ending,
}

impl std::fmt::Debug for Parallel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "`{}` over {:?} by {}", self.name, self.indices, self.grain)
    }
}

#[derive(Debug)]
struct State {
    shares: Shares,
    /// Of each card.
    done: Vec<CardShare>,
    running: HashMap<JobId, Piece>,
    /// Why it failed, or that it was cancelled.
    error: Option<PieceError>,
    /// Jobs that have not run: what they captured goes with whoever waits.
    unrun: Vec<Arc<Job>>,
}

#[derive(Debug)]
struct Piece {
    job: Arc<Job>,
    /// Which of its cards.
    at: usize,
    indices: Range<u64>,
    stolen: bool,
}

impl Parallel {
    pub(super) fn id(&self) -> JobId {
        self.id
    }

    /// Its end.
    pub fn end(&self) -> &Ending {
        &self.end
    }

    /// Pieces that have ended well, and all of them.
    pub fn progress(&self) -> (u64, u64) {
        let _signals = BlockedSignals::block();
        (lock(&self.state).done.iter().map(|share| share.pieces).sum(), self.pieces)
    }

    /// What each card has done so far.
    pub fn shares(&self) -> Vec<CardShare> {
        let _signals = BlockedSignals::block();
        lock(&self.state).done.clone()
    }

    /// Waits for the end, until `deadline` at most (`None`: for ever). `None`: it is not over. What the
    /// kernel captured is let go of here, in a thread of the program.
    pub fn wait(&self, deadline: Option<Instant>) -> Option<Result<(), PieceError>> {
        if !self.end.wait(deadline) {
            return None;
        }
        let (make, unrun, error) = {
            let _signals = BlockedSignals::block();
            let mut state = lock(&self.state);
            (lock(&self.make).take(), std::mem::take(&mut state.unrun), state.error.clone())
        };
        drop(make);
        // Whoever ended them is about to say so.
        unrun.iter().for_each(|job| drop(job.wait(None)));
        Some(error.map_or(Ok(()), Err))
    }

    /// `None`: it is under way, and nothing has failed.
    pub(super) fn went_well(&self) -> Option<bool> {
        let failed = lock(&self.state).error.is_some();
        (failed || self.end.has_come()).then_some(!failed)
    }

    pub(super) fn failure(&self) -> Failed {
        match &lock(&self.state).error {
            Some(PieceError { card, error, .. }) => {
                of_kernel(&self.name, *card, Some(error.clone()))
            }
            None => Failed { what: format!("kernel `{}`", self.name), why: String::new() },
        }
    }

    fn indices_of(&self, piece: u64) -> Range<u64> {
        let start = self.indices.start + piece * self.grain;
        start..start.saturating_add(self.grain).min(self.indices.end)
    }

    fn fail(&self, state: &mut State, error: PieceError) {
        state.shares.stop();
        state.error.get_or_insert(error);
    }

    /// A piece is over. Gives its card among the cards, if it was one of these.
    fn take_end(&self, job: &Arc<Job>) -> Option<usize> {
        let mut state = lock(&self.state);
        let Piece { at, indices, stolen, .. } = state.running.remove(&job.id)?;
        // One that was stopped before it began has no result yet.
        let failed = job.result().map_or_else(|| job.stopped(), Result::err);
        match failed {
            None => {
                let share = &mut state.done[at];
                share.pieces += 1;
                share.indices += indices.end - indices.start;
                share.stolen += u64::from(stolen);
            }
            Some(error) => {
                state.unrun.push(Arc::clone(job));
                self.fail(&mut state, PieceError { card: job.card, indices, error });
            }
        }
        Some(at)
    }

    /// Whether no piece is under way and none is left.
    fn is_over(&self) -> bool {
        let state = lock(&self.state);
        state.running.is_empty() && state.shares.are_empty()
    }
}

impl Runtime {
    /// Starts a parallel launch when all of `after` have ended well.
    ///
    /// # Errors
    /// [`LiveError::WrongProcess`] after a fork.
    pub fn launch_parallel(
        &self,
        launch: ParallelLaunch,
        after: &[Predecessor],
    ) -> Result<Arc<Parallel>, LiveError> {
        self.check_process()?;
        let _signals = BlockedSignals::block();
        let _whole = AbortOnPanic::new();
        let ahead: Vec<u32> = launch.cards.iter().map(|&card| self.pieces_ahead(card)).collect();
        let (parallel, cards) = self.prepare(launch, &ahead);
        if parallel.pieces == 0 {
            parallel.end.come();
            return Ok(parallel);
        }
        self.await_emptied();
        let mut core = lock(&self.core);
        match open_tasks(after) {
            Err(failed) => {
                let error = KernelError::NotRun {
                    kernel: Arc::clone(&parallel.name),
                    card: cards[0],
                    after: failed.what,
                    why: failed.why,
                };
                let indices = parallel.indices.clone();
                parallel.fail(
                    &mut lock(&parallel.state),
                    PieceError { card: cards[0], indices, error },
                );
                parallel.end.come();
            }
            Ok(tasks) => {
                let event = Event::LaunchParts { job: parallel.id };
                core.driver.0.handle(self.clock.now(), event);
                // One more for each card in turn, so that the first get no more than others.
                for round in 0..ahead.iter().copied().max().unwrap_or(0) {
                    let those = (0..cards.len()).filter(|&at| round < ahead[at]);
                    those.for_each(|at| self.hand_out(&mut core, &parallel, at, after, &tasks));
                }
                self.end_if_over(&mut core, &parallel);
                self.carry_out(core);
            }
        }
        Ok(parallel)
    }

    fn prepare(&self, launch: ParallelLaunch, ahead: &[u32]) -> (Arc<Parallel>, Vec<CardId>) {
        let ParallelLaunch { name, indices, grain, cards, limit, make } = launch;
        let pieces = indices.end.saturating_sub(indices.start).div_ceil(grain.max(1));
        let none = |&card: &CardId| CardShare { card, pieces: 0, indices: 0, stolen: 0 };
        let state = State {
            shares: Shares::new(pieces, ahead),
            done: cards.iter().map(none).collect(),
            running: HashMap::new(),
            error: None,
            unrun: Vec::new(),
        };
        let parallel = Arc::new(Parallel {
            id: JobId(self.fresh_id()),
            name,
            indices,
            grain: grain.max(1),
            pieces,
            deadline: self.deadline(limit),
            make: Mutex::new(Some(make)),
            state: Mutex::new(state),
            end: Ending::default(),
        });
        (parallel, cards)
    }

    /// Pieces that a card has at a time.
    fn pieces_ahead(&self, card: CardId) -> u32 {
        let elements = self.elements(card);
        if self.is_far(card) { elements.saturating_mul(AHEAD_ELSEWHERE) } else { elements }
    }

    /// Processing elements of a card; one, if it is away and nobody knows.
    pub fn elements(&self, card: CardId) -> u32 {
        let elements = match self.ports.get(card.0 as usize) {
            Some(Port::InProgram(_)) => u32::from(self.pes),
            Some(Port::Ring(ring)) => lock(&ring.link).as_ref().map_or(1, |link| link.elements()),
            None => 1,
        };
        elements.clamp(1, ELEMENTS_MAX)
    }

    /// Launches the next piece for one of the cards, if there is one left.
    fn hand_out(
        &self,
        core: &mut Core,
        parallel: &Arc<Parallel>,
        at: usize,
        after: &[Predecessor],
        tasks: &[Task],
    ) {
        let mut state = lock(&parallel.state);
        let Some(Handed { piece, stolen }) = state.shares.next(at) else { return };
        let (card, indices) = (state.done[at].card, parallel.indices_of(piece));
        let is_far = self.is_far(card);
        let work = lock(&parallel.make).as_ref().map(|make| make(indices.clone(), is_far));
        let id = JobId(self.fresh_id());
        let (name, deadline) = (Arc::clone(&parallel.name), parallel.deadline);
        let job = match work {
            Some(Ok(PieceWork::Body(grants, body))) => {
                Job::new(id, (card, ASID), name, grants, deadline, body)
            }
            Some(Ok(PieceWork::Call(args, returned))) => {
                Job::call(id, (card, ASID), &args, deadline, returned)
            }
            Some(Err(error)) => {
                return parallel.fail(&mut state, PieceError { card, indices, error });
            }
            None => return,
        };
        state.running.insert(id, Piece { job: Arc::clone(&job), at, indices, stolen });
        drop(state);
        core.pieces.insert(id, Arc::clone(parallel));
        self.enter(core, job, StreamId(self.next_stream()), after, tasks);
    }

    /// A job is over, or given up: if it was a piece, its card gets the next one.
    pub(super) fn piece_over(&self, core: &mut Core, job: &Arc<Job>) {
        let Some(parallel) = core.pieces.remove(&job.id) else { return };
        if let Some(at) = parallel.take_end(job) {
            self.hand_out(core, &parallel, at, &[], &[]);
            self.end_if_over(core, &parallel);
        }
    }

    fn end_if_over(&self, core: &mut Core, parallel: &Arc<Parallel>) {
        if parallel.end.has_come() || !parallel.is_over() {
            return;
        }
        let now = self.clock.now();
        if lock(&parallel.state).error.is_some() {
            core.driver.0.handle(now, Event::JobFailed { job: parallel.id });
        }
        core.driver.0.handle(now, Event::JobDone { job: parallel.id });
        parallel.end.come();
    }

    /// Hands nothing more out, and tells the pieces under way to stop.
    pub fn cancel_parallel(&self, parallel: &Parallel) {
        let running: Vec<Arc<Job>> = {
            let _signals = BlockedSignals::block();
            let mut state = lock(&parallel.state);
            if state.running.is_empty() && state.shares.are_empty() {
                return;
            }
            let (card, indices) = (state.done[0].card, parallel.indices.clone());
            let error = KernelError::Cancelled { kernel: Arc::clone(&parallel.name) };
            parallel.fail(&mut state, PieceError { card, indices, error });
            state.running.values().map(|piece| Arc::clone(&piece.job)).collect()
        };
        running.iter().for_each(|job| self.cancel(job));
    }
}

/// Elements of a card that are given pieces, at most: a card elsewhere says itself how many it has.
const ELEMENTS_MAX: u32 = 1024;
