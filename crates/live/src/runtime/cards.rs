//! The cards' side of the runtime: faults that come in, drains that end, cards that go.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use farside_card::Location;
use farside_svm::{CardFault, Event, Need};
use farside_types::{Access, CardId, CommandId, PageRange, Span, VirtAddr};

use super::carry_out::AbortOnPanic;
use super::windows::is_of_window;
use super::{Core, Port, Runtime};
use crate::error::{LiveError, hint};
use farside_card::interface::AllocRequest;
use farside_linux::lock::lock;
use farside_linux::signals::BlockedSignals;
use farside_softcard::Recorder;
use farside_softcard::{Embedder, OwnMemory, SoftCard, WindowError};
use farside_softcard::{Job, Stop};

/// Faults of a card that are taken at once.
pub(super) const FAULTS_AT_ONCE: usize = 256;

/// A fault of a card in the program, as the driver is told of it.
fn told(fault: farside_card::Fault) -> CardFault {
    let need = match fault.need {
        farside_card::Need::Page(page, access) => Need::Page(page, access),
        farside_card::Need::Group(ranges) => Need::Group(ranges),
    };
    CardFault { id: fault.id, need }
}

impl Embedder for Runtime {
    fn raised(&self, card: &SoftCard) {
        self.serve_faults(card);
    }

    fn drained(&self, _card: &SoftCard, commands: &[CommandId]) {
        self.handle_drained(commands);
    }

    fn job_over(&self, _card: &SoftCard, job: &Job) {
        self.job_done(job.id);
    }

    fn job_given_up(&self, card: &SoftCard, job: &Job, holds: bool) {
        if holds {
            self.withdraw_held_by(card, job.id);
            self.job_hung(job.id);
        } else {
            self.job_over(card, job);
        }
    }

    fn pointer(&self, location: Location, count: u32) -> NonNull<u8> {
        self.memories.pointer(location, count)
    }

    fn bus_stretch(&self, number: u8) -> Option<NonNull<u8>> {
        self.memories.stretch(number)
    }

    fn allocate(&self, card: CardId, request: AllocRequest) -> Result<u64, WindowError> {
        self.allocate_own(card, request)
    }

    fn own_memories(&self, card: CardId) -> Result<Vec<OwnMemory>, WindowError> {
        Runtime::own_memories(self, card)
    }

    fn show(
        &self,
        card: CardId,
        addr: VirtAddr,
        bytes: u64,
        access: Access,
    ) -> Result<(), WindowError> {
        self.show_own(card, addr, bytes, access)
    }

    fn hand_over(
        &self,
        card: CardId,
        _job: &Job,
        addr: VirtAddr,
        bytes: u64,
    ) -> Result<(), WindowError> {
        self.hand_over_own(card, addr, bytes)
    }

    fn take_over(&self, card: CardId, addr: VirtAddr, bytes: u64) -> Result<(), WindowError> {
        self.take_over_own(card, addr, bytes)
    }

    fn copy_out(&self, card: CardId, addr: VirtAddr, out: &mut [u8]) -> Result<(), WindowError> {
        self.copy_own(card, addr, out)
    }

    fn copy_in(&self, card: CardId, addr: VirtAddr, from: &[u8]) -> Result<(), WindowError> {
        self.fill_own(card, addr, from)
    }

    fn hint(&self, addr: VirtAddr) -> String {
        hint(addr, self.nearest(addr))
    }

    fn recorder(&self) -> Option<Arc<dyn Recorder>> {
        self.recorder.clone()
    }
}

impl Runtime {
    /// Drains that have completed because an access ended.
    pub(super) fn handle_drained(&self, commands: &[CommandId]) {
        if commands.is_empty() {
            return;
        }
        let _whole = AbortOnPanic::new();
        if commands.iter().any(|&command| is_of_window(command)) {
            self.windows.drained(commands);
        }
        let now = self.clock.now();
        let mut core = lock(&self.core);
        for &command in commands {
            if let Some(epoch) = core.draining.remove(&command) {
                core.driver.0.handle(now, Event::Done { command, epoch, result: Ok(()) });
            }
        }
        self.carry_out(core);
    }

    /// Takes the faults that a card has queued to the driver.
    fn serve_faults(&self, soft: &SoftCard) {
        let _whole = AbortOnPanic::new();
        let card = soft.id;
        let mut core = lock(&self.core);
        let started = self.clock.now();
        let mut planned = started;
        let Core { driver, faults, notices, .. } = &mut *core;
        {
            let mut model = lock(&soft.model);
            faults.extend(std::iter::from_fn(|| model.next_fault()).take(FAULTS_AT_ONCE).map(told));
            notices.extend(std::iter::from_fn(|| model.next_notice()));
        }
        if !self.windows.is_empty() {
            self.serve_windows(soft, faults);
            notices.retain(|notice| self.windows.at(notice.pages).is_none());
        }
        if !faults.is_empty() {
            driver.0.handle(started, Event::CardFaults { card, faults });
            faults.clear();
            planned = self.clock.now();
            self.times.planned(planned.since(started));
        }
        for farside_card::CounterNotice { pages, count, .. } in notices.drain(..) {
            driver.0.handle(started, Event::CounterNotice { card, pages, count });
        }
        self.carry_out_from(core, planned);
    }

    /// The cards that did not let pages go in time, with the first pages concerned.
    ///
    /// # Errors
    /// [`LiveError::WrongProcess`] after a fork.
    pub fn suspects(&self) -> Result<Vec<(CardId, PageRange)>, LiveError> {
        self.check_process()?;
        let _signals = BlockedSignals::block();
        Ok(lock(&self.core).suspects.clone())
    }

    /// Fails a card, as if it had been pulled out: for tests and for `farside demo --fail-card`.
    ///
    /// # Errors
    /// [`LiveError::NoSuchCard`]; [`LiveError::WrongProcess`] after a fork.
    pub fn fail_card(&self, card: CardId) -> Result<(), LiveError> {
        self.check_process()?;
        let cards = self.card_count();
        let port = self.ports.get(card.0 as usize).ok_or(LiveError::NoSuchCard { card, cards })?;
        let _signals = BlockedSignals::block();
        let soft = match port {
            Port::InProgram(soft) => soft,
            Port::Ring(ring) => {
                ring.pulled.store(true, Ordering::SeqCst);
                self.lose(ring);
                return Ok(());
            }
        };
        // First the kernels, so that each of them sees why it ends; all are marked before one of
        // them is stopped, so that none begins in its place.
        let mut jobs = self.open_jobs();
        jobs.retain(|job| job.card == card && job.mark(Stop::CardGone));
        jobs.iter().for_each(|job| self.stop_marked(job));
        // A real card stops writing when it is gone. This one's kernels are threads: what they
        // hold is left to them until they have let it go, for as long as the grace lasts.
        soft.await_quiet(self.grace);
        let answers = self.reset_gone(soft);
        soft.answer(answers.answers);
        self.handle_drained(&answers.drains);
        self.lose_window(card);
        self.handle(Event::CardLost { card });
        // Those that were launched meanwhile. Whoever computes for ever is given up.
        let end = self.clock.now() + Span::from_nanos(self.grace.as_nanos() as u64);
        for job in self.open_jobs().iter().filter(|job| job.card == card) {
            self.look_again(end, job.id);
        }
        Ok(())
    }

    /// Whether a card is not in this program, and runs kernels by their names only.
    pub fn is_far(&self, card: CardId) -> bool {
        matches!(self.ports.get(card.0 as usize), Some(Port::Ring(_)))
    }

    /// Counters of a card in the program; those of others are in their registers.
    pub fn card_stats(&self, card: CardId) -> Option<farside_card::CardStats> {
        self.check_process().ok()?;
        let _signals = BlockedSignals::block();
        match self.ports.get(card.0 as usize)? {
            Port::InProgram(soft) => Some(lock(&soft.model).stats()),
            Port::Ring(_) => None,
        }
    }
}
