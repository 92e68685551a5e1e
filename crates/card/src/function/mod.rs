//! The function: the register-and-ring front of a card, as `docs/card-interface.md` specifies it.
//!
//! A [`Function`] decodes what a driver puts into registers and rings, checks it, tells the
//! [`Card`] and writes completions, faults and notices back. It owns no card, no memory, no thread
//! and no clock. The embedder keeps a card and its function behind one lock, gives both to each
//! call, and does with bytes and threads what [`Function::poll_action`] says:
//!
//! ```text
//! driver writes a register      -> write_register
//! a processing element faulted  -> publish           (after Card::raise)
//! it gave memory back           -> drained           (with what Card::end returned)
//! its kernel has ended          -> job_ended
//! a copy or fill has ended      -> copied
//! a link transfer has ended     -> linked
//!
//! after each of these: carry out poll_action() until there is none;
//!                      with a window (with_window) poll_window_action() too
//! before waiting:      prepare_to_sleep() until it is true, with process() after each false
//! ```
//!
//! Nothing of it ever waits. What a driver gives may be hostile: it is refused, counted and
//! answered; memory is bounded by the sizes of the card and of the rings.

mod action;
mod bus;
mod commands;
mod config;
mod counts;
mod errors;
mod extents;
mod faults;
mod jobs;
mod ledger;
mod refusal;
mod registers;
mod reset;
mod ring;
mod rings;
mod tables;
mod transfers;
mod window;
mod window_drains;
mod window_left;
mod window_owners;
mod window_pages;

pub use action::{Action, JobEnd};
pub use bus::{Bus, BusError};
pub use config::FunctionConfig;
pub use window::{MemorySizes, WindowAction, WindowConfig, WindowWait};

use std::collections::VecDeque;

use farside_types::{CommandId, JobId};

use crate::interface::{Status, pci, register};
use crate::{Card, TransferFailed};
use counts::Counts;
use errors::Errors;
use jobs::Jobs;
use ledger::Ledger;
use refusal::Refusal;
use rings::{RingRegisters, Rings};
use transfers::Transfers;
use window::Window;

/// Commands that may be under way at once; further ones stay in their ring. As many as the longest
/// ring has entries.
const OPEN_MAX: usize = crate::interface::ENTRIES_MAX as usize;

/// What one call takes of commands that are much work: records of lists. A ring full of them is taken in
/// pieces, and whoever drives the function sees in between that nobody wants it any more.
const WORK_PER_CALL: u64 = 1 << 16;

/// What a function does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// It touches no ring; what was begun goes on.
    Disabled,
    /// It uses its rings.
    Enabled,
    /// It touches no memory until it is reset.
    Failed,
    /// It waits for what was begun to end; `asked` once the embedder was told that all has.
    Resetting { asked: bool },
}

impl Phase {
    /// Whether what waits is begun.
    fn serves(self) -> bool {
        matches!(self, Phase::Enabled | Phase::Disabled)
    }
}

/// The register-and-ring front of a card.
#[derive(Clone, Debug)]
pub struct Function {
    config: FunctionConfig,
    phase: Phase,
    registers: RingRegisters,
    rings: Option<Rings>,
    errors: Errors,
    counts: Counts,
    ledger: Ledger,
    jobs: Jobs,
    transfers: Transfers,
    window: Option<Window>,
    actions: VecDeque<Action>,
    /// Commands were left in their ring because completions or open commands were too many.
    stalled: bool,
    /// Records of lists that this call has read.
    work: u64,
}

impl Function {
    /// A function in its known state: disabled, no rings, nothing under way.
    pub fn new(config: FunctionConfig) -> Function {
        Function {
            window: None,
            config,
            phase: Phase::Disabled,
            registers: RingRegisters::default(),
            rings: None,
            errors: Errors::default(),
            counts: Counts::default(),
            ledger: Ledger::default(),
            jobs: Jobs::default(),
            transfers: Transfers::default(),
            actions: VecDeque::new(),
            stalled: false,
            work: 0,
        }
    }

    /// What it was made of.
    pub fn config(&self) -> &FunctionConfig {
        &self.config
    }

    /// Takes commands from their ring, at most as many as the ring has entries and fewer where they are
    /// much work, starts what can start and writes what there is to write. A doorbell does this; call it also when
    /// [`Function::prepare_to_sleep`] says that there is more.
    pub fn process(&mut self, card: &mut Card, bus: &mut impl Bus) {
        self.work = 0;
        self.consume(card, bus);
        self.settle(card, bus);
    }

    /// Writes faults and notices that processing elements raised. Call it after [`Card::raise`] and
    /// after accesses that may have reached a counter's threshold.
    pub fn publish(&mut self, card: &mut Card, bus: &mut impl Bus) {
        self.settle(card, bus);
    }

    /// Drains are complete: what [`Card::end`] returned.
    pub fn drained(&mut self, card: &mut Card, bus: &mut impl Bus, commands: &[CommandId]) {
        self.finish_drains(commands);
        self.settle(card, bus);
    }

    /// A job is over: its kernel touches no memory any more. Ends its accesses and frees its
    /// processing element. A job that does not run changes nothing.
    ///
    /// With [`Status::Hung`] the job is given up although its kernel still runs. If it holds memory
    /// (then the completion's value is 1) its accesses stay in flight, until [`Card::end`] and
    /// [`Function::drained`] say that it has let go, and its processing element is never idle again
    /// before a reset.
    pub fn job_ended(&mut self, card: &mut Card, bus: &mut impl Bus, job: JobId, end: &JobEnd) {
        self.end_job(card, bus, job, end);
        self.settle(card, bus);
    }

    /// A copy or a fill is over and touches no memory any more. One that is not under way changes
    /// nothing.
    pub fn copied(
        &mut self,
        card: &mut Card,
        bus: &mut impl Bus,
        id: CommandId,
        result: Result<(), TransferFailed>,
    ) {
        self.end_transfer(id, result);
        self.settle(card, bus);
    }

    /// A link command is over, after `pages` pages. One that is not under way changes nothing.
    pub fn linked(
        &mut self,
        card: &mut Card,
        bus: &mut impl Bus,
        id: CommandId,
        status: Status,
        pages: u64,
    ) {
        self.end_link(id, status, pages);
        self.settle(card, bus);
    }

    /// Sets a sticky error that the embedder found: [`register::ERROR_LINK`], or
    /// [`register::ERROR_CARD`], which stops the function until it is reset.
    pub fn report(&mut self, error: u64, detail: u64, bus: &mut impl Bus) {
        let resetting = matches!(self.phase, Phase::Resetting { .. });
        if error & register::ERROR_CARD != 0 && !resetting {
            self.stop_until_reset();
        }
        if self.errors.set(error, detail) {
            self.interrupt(pci::ERROR_VECTOR, bus);
        }
    }

    /// Whether a job runs and its end was not asked for. A processing element asks this, under the
    /// lock, before it raises a fault: one that was raised after [`Action::Stop`] would never be
    /// answered.
    pub fn wants(&self, job: JobId) -> bool {
        self.jobs.wanted(job)
    }

    /// The next thing that the embedder must do.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// Whether no access, copy, job or drain is under way.
    pub fn is_quiet(&self, card: &Card) -> bool {
        self.jobs.is_empty()
            && self.transfers.is_empty()
            && card.in_flight().accesses() == 0
            && card.in_flight().drains_waiting() == 0
            && self.window.as_ref().is_none_or(Window::is_quiet)
    }

    /// Whether something waits for room in a ring: commands, completions, faults or notices. Where it
    /// did before a call or does behind it, [`Function::prepare_to_sleep`] has to follow, whoever
    /// calls: only that asks the driver to say when there is room, or to ring for new commands again.
    pub fn is_held_up(&self, card: &Card) -> bool {
        self.rings.is_some()
            && (self.stalled
                || self.ledger.backlog() > 0
                || card.has_faults()
                || card.has_notices())
    }

    /// Begins and writes everything that can be, in every way that does not wait.
    fn settle(&mut self, card: &mut Card, bus: &mut impl Bus) {
        self.start_waiting(card, bus);
        self.serve_window(card, bus);
        self.serve_window_faults(card);
        self.flush(card, bus);
        if std::mem::take(&mut self.stalled) {
            self.consume(card, bus);
            self.flush(card, bus);
        }
        self.finish_reset_if_over();
    }

    fn start_waiting(&mut self, card: &mut Card, bus: &mut impl Bus) {
        if self.phase.serves() {
            self.start_waiting_jobs(card);
            self.start_waiting_transfers(card, bus);
        }
    }

    fn finish_drains(&mut self, commands: &[CommandId]) {
        for &command in commands {
            if !self.window_drained(command) {
                self.ledger.drained(command);
            }
        }
    }

    fn refuse(&mut self, id: CommandId, refusal: Refusal, bus: &mut impl Bus) {
        self.counts.commands_refused += 1;
        if refusal.status == Status::ForeignFrame {
            self.counts.foreign_frames_refused += 1;
        }
        if let Some(error) = refusal.error {
            self.report(error, self.ledger.tag(id).unwrap_or(0), bus);
        }
        self.ledger.finish(id, refusal.completion());
    }

    fn interrupt(&mut self, vector: u16, bus: &mut impl Bus) {
        self.counts.interrupts += 1;
        bus.interrupt(vector);
    }
}
