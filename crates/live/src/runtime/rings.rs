//! Cards behind rings: what they say, and how they are got back when they go.

use std::collections::HashSet;
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard, Weak};
use std::time::Duration;

use farside_svm::Event;
use farside_types::{CardId, CommandId, PAGE_SIZE, Span, Time};

use super::carry_out::AbortOnPanic;
use super::windows::is_of_window;
use super::{Core, Port, Runtime};
use crate::error::{LiveError, hint};
use crate::ring_card::{Heard, Link, Received, RingCard, Transport, TransportError, connect};
use farside_linux::card_memory::CardMemory;
use farside_linux::lock::lock;
use farside_linux::signals::block_for_whole_thread;
use farside_softcard::KernelError;
use farside_softcard::SoftCard;
use farside_softcard::{Job, Stop};

/// First and longest pause between two tries to get a card back.
const PAUSES: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(500));

/// Whether the fault reader may sleep on the rings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RingsSleep {
    /// A card has said something already.
    No,
    /// Whatever comes interrupts.
    Quietly,
    /// Completions will come that raise no interrupt: they are to be looked for now and then.
    Look,
}

impl Runtime {
    /// The cards behind rings.
    pub(crate) fn rings(&self) -> impl Iterator<Item = &Arc<RingCard>> {
        self.ports.iter().filter_map(|port| match port {
            Port::Ring(ring) => Some(ring),
            Port::InProgram(_) => None,
        })
    }

    /// Whether a card is in the program.
    pub fn is_in_program(&self, card: CardId) -> bool {
        matches!(self.ports.get(usize::from(card.0)), Some(Port::InProgram(_)))
    }

    /// The cards in the program.
    pub(crate) fn cards_in_program(&self) -> impl Iterator<Item = &Arc<SoftCard>> {
        self.ports.iter().filter_map(|port| match port {
            Port::InProgram(card) => Some(card),
            Port::Ring(_) => None,
        })
    }

    /// Waits until no job is left on a card behind rings. All have been told to stop, and one that
    /// does not, or whose card stands still, is given up by then.
    pub(crate) fn await_rings(&self) {
        let far: Vec<CardId> = self.rings().map(|ring| ring.id).collect();
        for job in self.open_jobs().iter().filter(|job| far.contains(&job.card)) {
            let limit = Duration::from_nanos(self.ring_grace().as_nanos()) * 2;
            job.wait(Some(std::time::Instant::now() + limit));
        }
    }

    /// Takes what all cards have written to their rings to the driver.
    pub(crate) fn receive_all(&self) {
        self.rings().for_each(|ring| self.receive(ring));
    }

    /// Takes what a card has written to its rings to the driver.
    fn receive(&self, ring: &RingCard) {
        let _whole = AbortOnPanic::new();
        let mut core = lock(&self.core);
        let started = self.clock.now();
        let mut heard = std::mem::take(&mut core.heard);
        let broken = match lock(&ring.link).as_mut() {
            Some(link) if link.has_news() || link.is_broken() => {
                link.receive(&mut heard);
                // Pages that no card can have counted.
                heard.notices.retain(|&(pages, _)| self.windows.at(pages).is_none());
                let ours = self.memories.arena.pages();
                if heard.notices.iter().any(|&(pages, _)| !ours.covers(pages)) {
                    link.set_broken();
                    heard.notices.retain(|&(pages, _)| ours.covers(pages));
                }
                link.is_broken()
            }
            _ => {
                core.heard = heard;
                return;
            }
        };
        if !heard.is_empty() {
            ring.has_spoken();
        }
        self.take_in(&mut core, ring.id, &mut heard, started);
        core.heard = heard;
        let planned = self.clock.now();
        self.times.planned(planned.since(started));
        self.carry_out_from(core, planned);
        if broken {
            self.suspect(ring, "it writes nonsense to its rings");
        }
    }

    /// Tells the driver what a card has said.
    fn take_in(&self, core: &mut Core, card: CardId, heard: &mut Heard, now: Time) {
        for answer in heard.answers.drain(..) {
            self.take_answer(core, card, answer, now);
        }
        if !self.windows.is_empty() {
            self.serve_windows_of_ring(card, &mut heard.faults);
        }
        if !heard.faults.is_empty() {
            let faults = &heard.faults;
            if core.is_behind_link(card) {
                let Core { foresight, jobs, .. } = core;
                foresight.faulted(faults, jobs.values().filter(|job| job.card == card));
            }
            core.driver.0.handle(now, Event::CardFaults { card, faults });
            heard.faults.clear();
        }
        for (pages, count) in heard.notices.drain(..) {
            core.driver.0.handle(now, Event::CounterNotice { card, pages, count });
        }
    }

    fn take_answer(&self, core: &mut Core, card: CardId, said: Received, now: Time) {
        let driver = &mut core.driver.0;
        match said {
            Received::Done(command, _, Ok(())) if is_of_window(command) => {
                self.windows.drained(&[command]);
            }
            Received::Done(command, _, Err(_)) if is_of_window(command) => {
                // It may still have what was taken from it: it lets go when it is reset. Who waits for that waits until then.
                core.broken.push(card);
            }
            Received::Own(command, done) => self.window_answered(command, done),
            Received::Done(command, epoch, result) => {
                if let Some((_, copying)) = core.copying.remove(&command) {
                    self.traffic.end(copying, result.is_ok(), now);
                }
                driver.handle(now, Event::Done { command, epoch, result });
            }
            Received::Told(command, first, pages, bits) => {
                driver.handle(now, Event::Told { command, first, pages, bits: &bits });
            }
            Received::CameAlong => driver.came_along(),
            Received::JobEnded(job, result, hangs) => {
                // As for a card in the program: one that hangs and holds memory keeps its card
                // running, so that every drain of that memory is waited for and times out.
                if result.is_err() {
                    driver.handle(now, Event::JobFailed { job: job.id });
                }
                if !hangs {
                    driver.handle(now, Event::JobDone { job: job.id });
                }
                if core.is_behind_link(card) {
                    core.foresight.ended(&job);
                }
                job.finish(self.explained(core, result));
                self.forget_job(core, job.id);
            }
        }
    }

    /// The card knows no allocations; here they are known.
    fn explained(&self, core: &Core, result: Result<(), KernelError>) -> Result<(), KernelError> {
        let Err(KernelError::WildAddress { kernel, addr, access, .. }) = result else {
            return result;
        };
        let hint = hint(addr, core.driver.0.nearest(addr));
        Err(KernelError::WildAddress { kernel, addr, access, hint })
    }

    /// Says to all cards that an interrupt is wanted for the next thing they have to say.
    pub(crate) fn rings_sleep(&self) -> RingsSleep {
        let mut core = lock(&self.core);
        let mut answer = RingsSleep::Quietly;
        for ring in self.rings() {
            let link = lock(&ring.link);
            let Some(link) = link.as_ref() else { continue };
            if !link.may_sleep() {
                answer = RingsSleep::No;
                break;
            }
            if link.expects_quiet_news() {
                answer = RingsSleep::Look;
            }
        }
        core.sleeps_quietly = answer == RingsSleep::Quietly;
        answer
    }

    /// Stops a job on a card behind rings. `true`: it was not there yet, and never will be.
    pub(super) fn abort_on_ring(&self, ring: &RingCard, job: &Job) -> bool {
        let _order = lock(&self.core);
        let mut link = lock(&ring.link);
        let Some(link) = link.as_mut().filter(|link| link.knows(job.id)) else {
            return false;
        };
        let never_was = link.abort(job.id);
        link.flush(false);
        never_was
    }

    /// The connection to a card has ended: its process is gone, and with it everything that it
    /// could still have written.
    pub(crate) fn lose(&self, ring: &RingCard) {
        let _whole = AbortOnPanic::new();
        let why = ring.note_why_gone();
        for job in self.open_jobs().iter().filter(|job| job.card == ring.id) {
            job.note_why_gone(&why);
            job.mark(Stop::CardGone);
        }
        self.lose_now(lock(&self.core), ring);
    }

    /// The same for whoever has looked at the driver before, and whose look has to hold.
    pub(super) fn lose_now(&self, core: MutexGuard<'_, Core>, ring: &RingCard) {
        if !ring.is_connected() {
            return;
        }
        ring.drop_connection();
        // Before it is noted what others have to do until its memory may be another.
        self.lose_window(ring.id);
        // The fault reader is not to watch it any more.
        self.ring_bell();
        let why = lock(&ring.why_gone).clone();
        if ring.leaves() {
            tracing::info!(card = %ring.id, place = %ring.place, "a card is given back");
        } else if why.is_empty() {
            tracing::error!(card = %ring.id, place = %ring.place, "a card is gone");
        } else {
            tracing::error!(card = %ring.id, place = %ring.place, "a card is gone: {why}");
        }
        self.handle_lost(core, ring);
        self.recover(ring.id);
    }

    /// Tells the driver that a card is lost, and notes what others have to do until nobody touches
    /// its memory any more.
    fn handle_lost(&self, mut core: MutexGuard<'_, Core>, ring: &RingCard) {
        let now = self.clock.now();
        core.copying.retain(|_, &mut (by, copying)| {
            if by == ring.id {
                self.traffic.end(copying, false, now);
            }
            by != ring.id
        });
        core.driver.0.handle(now, Event::CardLost { card: ring.id });
        self.carry_out(core);
        let core = lock(&self.core);
        *lock(&ring.letting_go) = Some(self.open_commands(&core).collect());
    }

    /// The commands of cards that are not answered.
    fn open_commands<'a>(&'a self, core: &'a Core) -> impl Iterator<Item = CommandId> + 'a {
        let far = self.rings().flat_map(|ring| {
            let link = lock(&ring.link);
            link.iter().flat_map(Link::open_commands).collect::<Vec<_>>()
        });
        core.draining.keys().copied().chain(self.window_drains()).chain(far)
    }

    /// Whether the others have let go of a lost card's memory. A translation that one of them still
    /// used would lead to the memory that comes in its place.
    fn have_let_go(&self, ring: &RingCard) -> bool {
        let core = lock(&self.core);
        let open: HashSet<CommandId> = self.open_commands(&core).collect();
        let mut letting_go = lock(&ring.letting_go);
        let Some(waits_for) = letting_go.as_mut() else { return false };
        waits_for.retain(|command| open.contains(command));
        waits_for.is_empty()
    }

    /// A card does not answer, or answers nonsense. Its jobs fail and the connection is given up; but
    /// it may still write, so what it may write to stays out of use until it has been reset.
    pub(crate) fn suspect(&self, ring: &RingCard, why: &str) {
        if let Some(connection) = ring.transport() {
            self.suspect_by(ring, &connection, why);
        }
    }

    /// The same where it was seen by this connection, which may be a former one by now.
    fn suspect_by(&self, ring: &RingCard, connection: &Arc<dyn Transport>, why: &str) {
        if ring.ends_with_its_connection() {
            tracing::error!(card = %ring.id, place = %ring.place, why, "a card is stopped");
            // Once it is stopped it writes no more.
            return self.lose(ring);
        }
        let jobs: Vec<Arc<Job>> =
            self.open_jobs().into_iter().filter(|job| job.card == ring.id).collect();
        {
            let _order = lock(&self.core);
            if !ring.is_connected() || !ring.is_connected_by(connection) {
                return;
            }
            ring.drop_connection();
            // The fault reader is not to watch it any more.
            self.ring_bell();
        }
        self.lose_window(ring.id);
        tracing::error!(card = %ring.id, place = %ring.place, why, "a card is going to be reset");
        for job in &jobs {
            job.mark(Stop::CardGone);
            job.finish(Err(KernelError::Hung { kernel: Arc::clone(&job.name), card: ring.id }));
        }
        self.jobs_failed(&jobs);
        self.recover(ring.id);
    }

    /// Looks after the cards that did not let pages go in time. One that still answers has a kernel
    /// that holds them: they stay out of use and the rest goes on. One that does not stands still.
    pub(crate) fn look_after_suspects(&self) {
        let suspects = std::mem::take(&mut lock(&self.core).to_reset);
        for card in suspects {
            let Port::Ring(ring) = &self.ports[card.0 as usize] else { continue };
            let Some(runtime) = self.shared() else { return };
            let ring = Arc::clone(ring);
            let name = format!("farside-ask-{}", card.0);
            let started = std::thread::Builder::new().name(name).spawn(move || {
                block_for_whole_thread();
                if let Some(silent) = ring.silent() {
                    runtime.suspect_by(&ring, &silent, "it does not answer");
                }
            });
            if let Err(error) = started {
                tracing::error!(%card, %error, "no thread can ask whether the card still answers");
            }
        }
    }

    /// Sends a thread to get a card back. It takes as long as the card is away.
    fn recover(&self, card: CardId) {
        let Port::Ring(ring) = &self.ports[card.0 as usize] else { return };
        let Some(runtime) = self.shared().filter(|_| ring.begin_recovery()) else { return };
        let (weak, ring) = (Arc::downgrade(&runtime), Arc::clone(ring));
        let name = format!("farside-back-{}", card.0);
        let started = std::thread::Builder::new().name(name).spawn(move || {
            block_for_whole_thread();
            loop {
                let back = get_back(&weak, &ring);
                ring.recovering.store(false, Ordering::SeqCst);
                // It may have gone again before that was said, and nobody else has begun then.
                if !back || ring.is_connected() || !ring.begin_recovery() {
                    return;
                }
            }
        });
        if let Err(error) = started {
            tracing::error!(%card, %error, "no thread can get the card back");
        }
    }

    /// Uses a card that has come back.
    fn take_back(&self, ring: &RingCard) -> Result<(), LiveError> {
        let fail = |error| LiveError::Card { card: ring.id, error };
        if !ring.has_left() {
            let what = "ending the former connection";
            return Err(fail(TransportError::TimedOut { what }));
        }
        if lock(&ring.letting_go).is_none() {
            // It stood still, and nobody knew whether it would go on. Now its former life is over.
            self.handle_lost(lock(&self.core), ring);
        }
        if !self.have_let_go(ring) {
            self.ask_others(ring);
            let what = "waiting for the other cards to let go of the lost memory";
            return Err(fail(TransportError::TimedOut { what }));
        }
        let memory = self.memories.card(ring.id);
        if let Some(memory) = memory.mapped().filter(|_| ring.is_device()) {
            // Its memory is the last that keeps a device open, and an open one cannot be opened.
            memory.put_away()?;
        }
        let (transport, identity) = connect(ring.id, &ring.place, Duration::ZERO)?;
        ring.check_same(&identity)?;
        let _alone = lock(&self.taking_back);
        if let Some(memory) = memory.mapped() {
            self.replace_memory(ring, memory, transport.as_ref())?;
        }
        let _whole = AbortOnPanic::new();
        ring.take_up(&self.memories, transport, identity)?;
        lock(&ring.letting_go).take();
        lock(&ring.why_gone).clear();
        self.handle(Event::CardReset { card: ring.id });
        self.card_is_another(ring.id);
        // The fault reader is to watch the new connection.
        self.ring_bell();
        tracing::warn!(card = %ring.id, place = %ring.place, "a card is back, empty");
        Ok(())
    }

    /// Puts the memory of a card that is back in the place of its former memory, here and on the others.
    fn replace_memory(
        &self,
        ring: &RingCard,
        memory: &CardMemory,
        transport: &dyn Transport,
    ) -> Result<(), LiveError> {
        let bytes = u64::from(memory.frames()) * PAGE_SIZE as u64;
        let fail = |error| LiveError::Card { card: ring.id, error };
        let (file, offset) = transport.memory(bytes).map_err(fail)?;
        memory.replace(file, offset)?;
        for peer in self.rings().filter(|peer| peer.id != ring.id) {
            if let Err(error) = peer.share_again(ring.id, memory) {
                tracing::error!(card = %peer.id, of = %ring.id, %error, "new memory is not shared");
                // It may still copy from and to the old memory, where nobody looks.
                self.suspect(peer, "it does not let go of the memory of a card that was lost");
            }
        }
        Ok(())
    }

    /// Looks whether the others still answer, of whom some have to let go of a lost card's memory. What
    /// nobody waits for has no time limit, so that one of them stands still is noticed only here.
    fn ask_others(&self, lost: &RingCard) {
        for ring in self.rings().filter(|ring| ring.id != lost.id && ring.is_connected()) {
            if let Some(silent) = ring.silent() {
                self.suspect_by(ring, &silent, "it does not answer, and another card waits for it");
            }
        }
    }

    /// How long a job on a card behind rings may take to end after it was told to: the card's own
    /// grace, and the way there and back.
    pub(super) fn ring_grace(&self) -> Span {
        Span::from_nanos((self.grace * 2 + Duration::from_millis(500)).as_nanos() as u64)
    }
}

/// Tries until the card is back (`true`), or the runtime is gone.
fn get_back(runtime: &Weak<Runtime>, ring: &RingCard) -> bool {
    let (mut pause, longest) = PAUSES;
    loop {
        let Some(runtime) = runtime.upgrade() else { return false };
        if runtime.closed.load(Ordering::SeqCst) || ring.pulled.load(Ordering::SeqCst) {
            return false;
        }
        match runtime.take_back(ring) {
            Ok(()) => return true,
            Err(error) if error.may_pass() => tracing::debug!(%error, "not yet"),
            // It has been said why, and it never comes back.
            Err(LiveError::LeaseOver { why, .. }) => {
                *lock(&ring.why_gone) = why;
                return false;
            }
            Err(error) => tracing::error!(%error, "a card that came back cannot be used"),
        }
        drop(runtime);
        std::thread::sleep(pause);
        pause = (pause * 2).min(longest);
    }
}
