//! The fixture "host + N cards": a driver and a hostile machine on virtual time.
//!
//! Like quinn's `Pair`: [`World::step`] does the next thing, [`World::drive`] goes on until
//! nothing is left to do and then checks everything. Every run is a function of its [`Setup`].

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use farside_svm::{
    Command, Driver, Event, Mutation, Outcome, PageState, Reply, Request, RequestError, placement,
};
use farside_types::{
    CardId, JobId, PAGE_SIZE, PageNo, PageRange, RequestId, Rights, Span, StreamId, Time,
};

use crate::access::WordAccess;
use crate::checker::{check_nothing_waits, check_quiet};
use crate::failures::{Sabotage, Saboteur};
use crate::hostility::Hostility;
use crate::job::{Job, JobFailure, JobState, Script};
use crate::lending::Lending;
use crate::log::describe;
use crate::machine::{Machine, Parcel, Work};
use crate::oracle::OpenRequest;
use crate::setup::Setup;
use crate::transfers::Fate;
use crate::violation::{Failure, Violation, ensure};

/// Commands that one call of the driver may hand out.
const BURST: usize = 100_000;

/// Steps that [`World::drive`] may need. A driver that retries for ever, or livelocks, needs more.
const DRIVE_STEPS: u64 = 100_000;

/// Calls of `handle_timeout` in a row without time going on.
const IDLE_TIMEOUTS: u32 = 1_000;

/// How a request ended.
pub type Answer = Result<Outcome, RequestError>;

/// The fixture.
pub struct World {
    /// The driver under test.
    pub driver: Driver,
    /// Every command that was handed out, while [`World::record`] is on.
    pub commands: Vec<Command>,
    /// Whether commands are recorded.
    pub record: bool,
    /// Every reply that is not an answer to a request.
    pub news: Vec<Reply>,
    pub(crate) machine: Machine,
    pub(crate) setup: Setup,
    answers: BTreeMap<RequestId, Answer>,
    step: u64,
    trips: u64,
    idle_timeouts: u32,
    /// Nothing new is begun.
    pub(crate) quieting: bool,
    /// Nobody resets suspects.
    leaves_suspects: bool,
}

impl World {
    /// A world before its first step.
    pub fn new(setup: Setup) -> World {
        let mut scheme = placement::by_name(&setup.scheme).expect("the scheme has a known name");
        if setup.lends > 0 {
            scheme = Box::new(Lending::new(scheme, setup.seed, setup.lends));
        }
        let mut driver =
            Driver::new(setup.config.clone(), scheme).expect("the configuration is valid");
        if let Some(mutation) = setup.mutation {
            driver.mutate(mutation);
        }
        let (config, hostility) = (&setup.config, setup.hostility.clone());
        let mut machine = Machine::new(config, setup.adoptable, hostility, setup.seed);
        machine.updates = setup.updates;
        for (card, _) in setup.behind_rings.iter().enumerate().filter(|(_, behind)| **behind) {
            let card = CardId(card as u8);
            machine.card_mut(card).behind_rings = true;
            machine.plug_in(card, setup.ring_mutation).expect("a fresh card starts");
        }
        World {
            driver,
            commands: Vec::new(),
            record: false,
            news: Vec::new(),
            machine,
            setup,
            answers: BTreeMap::new(),
            step: 0,
            trips: 0,
            idle_timeouts: 0,
            quieting: false,
            leaves_suspects: false,
        }
    }

    /// Breaks a rule of the driver from now on.
    pub fn mutate(&mut self, mutation: Mutation) {
        self.driver.mutate(mutation);
    }

    /// Now.
    pub fn now(&self) -> Time {
        self.machine.now
    }

    /// Steps done so far.
    pub fn steps(&self) -> u64 {
        self.step
    }

    /// Awaited round trips to cards, links included, so far.
    pub fn trips(&self) -> u64 {
        self.trips
    }

    /// The knobs; may be turned at any time.
    pub fn hostility(&mut self) -> &mut Hostility {
        &mut self.machine.hostility
    }

    /// What the log still knows; see [`crate::log`] for the legend.
    pub fn log(&self) -> String {
        self.machine.log.text()
    }

    /// Keeps every line of the log.
    pub fn keep_log(&mut self) {
        self.machine.log.unbounded = true;
    }

    /// Decides what becomes of the next copies and fills, in order.
    pub fn plan(&mut self, fates: impl IntoIterator<Item = Fate>) {
        self.machine.planned_fates.extend(fates);
    }

    /// From now on nobody resets a card because the driver calls it suspect.
    pub fn leave_suspects(&mut self) {
        self.leaves_suspects = true;
    }

    /// Lets a command fail on purpose, counted from now on.
    pub fn sabotage(&mut self, plan: Sabotage) {
        self.machine.saboteur = Saboteur::new(plan);
    }

    /// Ends a sabotage; gives the names of the commands that it struck, and how many it saw.
    pub fn end_sabotage(&mut self) -> (Vec<&'static str>, u64) {
        let saboteur = std::mem::take(&mut self.machine.saboteur);
        (saboteur.struck, saboteur.seen)
    }

    /// Nothing is planned for copies any more.
    pub fn unplan(&mut self) {
        self.machine.planned_fates.clear();
    }

    /// A translation falls out of a card's TLB.
    pub fn forget(&mut self, card: CardId, page: PageNo) {
        self.machine.card_mut(card).tlb.remove(&page);
    }

    /// Drives, and then lets time pass with nothing going on but the driver's own timers.
    ///
    /// # Errors
    /// The rule that was broken.
    pub fn wait(&mut self, span: Span) -> Result<(), Failure> {
        self.drive()?;
        let end = self.machine.now + span;
        let next = |world: &World| {
            let times = [world.machine.agenda.next(), world.driver.poll_timeout()];
            times.into_iter().flatten().min()
        };
        while next(self).is_some_and(|at| at <= end) && self.step()? {}
        self.machine.now = end;
        self.drive()
    }

    /// Does the next thing on virtual time; false if nothing is left to do.
    ///
    /// # Errors
    /// The rule that was broken.
    pub fn step(&mut self) -> Result<bool, Failure> {
        self.step += 1;
        self.machine.stamp += 1;
        let done = self.step_inner();
        done.map_err(|violation| self.fail(violation))
    }

    fn step_inner(&mut self) -> Result<bool, Violation> {
        let next = self.machine.agenda.next();
        let timeout = self.driver.poll_timeout();
        match (next, timeout) {
            (None, None) => Ok(false),
            (None, Some(_)) if self.driver.is_quiet() && self.quieting => Ok(false),
            (Some(next), Some(timeout)) if timeout < next => self.time_out(timeout).map(|()| true),
            (None, Some(timeout)) => self.time_out(timeout).map(|()| true),
            (Some(_), _) => {
                self.idle_timeouts = 0;
                let Some((at, work)) = self.machine.agenda.pop() else { return Ok(false) };
                self.machine.now = self.machine.now.max(at);
                self.work(work).map(|()| true)
            }
        }
    }

    fn time_out(&mut self, at: Time) -> Result<(), Violation> {
        self.idle_timeouts = if at > self.machine.now { 0 } else { self.idle_timeouts + 1 };
        ensure!(
            self.idle_timeouts < IDLE_TIMEOUTS,
            "the driver wants to be called at {at:?}, again and again"
        );
        self.machine.now = self.machine.now.max(at);
        self.driver.handle_timeout(self.machine.now);
        self.pump()
    }

    fn work(&mut self, work: Work) -> Result<(), Violation> {
        match work {
            Work::Deliver(parcel) => self.deliver(parcel),
            Work::ProgramTick if self.quieting => Ok(()),
            Work::HostileTick if self.quieting => Ok(()),
            Work::ProgramTick => self.program_tick(),
            Work::Reset(card) => self.reset_now(card),
            Work::HostileTick => {
                self.machine.hostile_tick();
                self.machine.later(Work::HostileTick);
                Ok(())
            }
            other => self.machine.run(other),
        }
    }

    pub(crate) fn reset_now(&mut self, card: CardId) -> Result<(), Violation> {
        if self.machine.cards[usize::from(card.0)].lost {
            return Ok(());
        }
        self.machine.reset(card)?;
        self.deliver(Parcel::CardReset(card))
    }

    /// Tells the driver.
    pub(crate) fn deliver(&mut self, parcel: Parcel) -> Result<(), Violation> {
        let now = self.machine.now;
        self.note(&parcel);
        let survivors = self.survivors_of(&parcel);
        let whole = [self.machine.pages];
        let event = match &parcel {
            Parcel::CardFaults(card, faults) => Event::CardFaults { card: *card, faults },
            &Parcel::HostFault(page, access) => Event::HostFault { page, access },
            &Parcel::Launch(job, card, stream, ref after, only_reads) => {
                let writes = if only_reads { &[][..] } else { &whole };
                Event::Launch { job, card, stream, after, writes }
            }
            &Parcel::JobDone(job) => Event::JobDone { job },
            &Parcel::JobCancel(job) => Event::JobCancel { job },
            Parcel::Request(id, request) => {
                Event::Request { id: *id, request: request.clone(), after: &[] }
            }
            &Parcel::Done(command, epoch, result) => Event::Done { command, epoch, result },
            &Parcel::Told(command, first, pages, ref bits) => {
                Event::Told { command, first, pages, bits }
            }
            &Parcel::CounterNotice(card, pages, count) => {
                Event::CounterNotice { card, pages, count }
            }
            &Parcel::CardLost(card) => Event::CardLost { card },
            &Parcel::CardReset(card) => Event::CardReset { card },
            &Parcel::Link(from, to, works) => Event::Link { from, to, works },
        };
        if let &Parcel::JobDone(job) = &parcel {
            if self.machine.job_mut(job).failed.is_some() {
                self.driver.handle(now, Event::JobFailed { job });
            }
        }
        self.driver.handle(now, event);
        self.pump()?;
        self.check_survivors(&survivors)
    }

    /// Enters in log and tables what the driver is about to learn.
    fn note(&mut self, parcel: &Parcel) {
        let (mark, text) = match parcel {
            Parcel::Done(id, _, result) => {
                self.machine.transfers.remove(id);
                ('<', format!("{} {result:?}", id.0))
            }
            Parcel::CardFaults(card, faults) => {
                for fault in faults {
                    if let Some(open) = self.machine.faults.get_mut(&fault.id) {
                        open.delivered = true;
                    }
                    // Whoever waited may have gone on, or been stopped; the driver cannot know.
                    self.machine.want_pages(*card, fault.id);
                }
                ('e', format!("{parcel:?}"))
            }
            Parcel::HostFault(page, _) => {
                self.machine.note_told(*page);
                ('e', format!("{parcel:?}"))
            }
            Parcel::CardLost(_) | Parcel::CardReset(_) => {
                self.machine.facts.last_failure = self.machine.stamp;
                ('e', format!("{parcel:?}"))
            }
            Parcel::Request(..) => ('q', format!("{parcel:?}")),
            other => ('e', format!("{other:?}")),
        };
        self.machine.say(mark, text);
    }

    /// Pages that have a valid copy elsewhere and must survive the loss of a card.
    fn survivors_of(&self, parcel: &Parcel) -> Vec<PageNo> {
        let (Parcel::CardLost(card) | Parcel::CardReset(card)) = *parcel else {
            return Vec::new();
        };
        let survives = |page: &PageNo| {
            let view = self.driver.page(*page);
            view.state != PageState::Moving && !view.copies.without(card.memory()).is_empty()
        };
        self.machine.pages.pages().filter(survives).collect()
    }

    fn check_survivors(&self, pages: &[PageNo]) -> Result<(), Violation> {
        let dead = pages.iter().find(|&&page| self.driver.page(page).state == PageState::Lost);
        ensure!(dead.is_none(), "{dead:?} had a valid copy elsewhere, and is lost with the card");
        Ok(())
    }

    /// Takes everything that the driver has to say.
    fn pump(&mut self) -> Result<(), Violation> {
        for _ in 0..BURST {
            if let Some(reply) = self.driver.poll_reply() {
                self.take_reply(reply)?;
            } else if let Some(command) = self.driver.poll_command() {
                self.take_command(command)?;
            } else {
                self.machine.flush_ports();
                return Ok(());
            }
        }
        Err(Violation(format!("more than {BURST} commands at once: the driver runs away")))
    }

    fn take_command(&mut self, command: Command) -> Result<(), Violation> {
        self.machine.say('>', describe(&command));
        ensure!(
            self.machine.used_commands.insert(command.id()),
            "{} was used for two commands",
            command.id()
        );
        self.machine.judge_eviction(&command)?;
        self.trips += u64::from(Machine::is_trip(&command));
        if self.record {
            self.commands.push(command.clone());
        }
        self.machine.take(command)
    }

    fn take_reply(&mut self, reply: Reply) -> Result<(), Violation> {
        self.machine.say('r', format!("{reply:?}"));
        match &reply {
            Reply::Request { id, result } => {
                self.machine.judge_reply(*id, result)?;
                self.answers.insert(*id, result.clone());
                return Ok(());
            }
            Reply::JobDropped { job } => self.drop_job(*job)?,
            Reply::JobNotRun { job, because } => self.machine.not_run(*job, *because)?,
            Reply::CardSuspect { card, pages } => self.suspect(*card, *pages)?,
            Reply::CardBroken { card } => self.machine.broken(*card)?,
            Reply::ThreadsStuck { page, .. } => self.machine.stuck(*page)?,
        }
        self.news.push(reply);
        Ok(())
    }

    fn drop_job(&mut self, id: JobId) -> Result<(), Violation> {
        let Some(job) = self.machine.jobs.get_mut(&id) else {
            return Err(Violation(format!("{id} is dropped, but nobody asked for it")));
        };
        let card = &self.machine.cards[usize::from(job.card.0)];
        let failing = card.lost || card.doubtful || self.machine.facts.last_failure > 0;
        ensure!(job.cancelled || failing, "{id} is dropped without a reason");
        ensure!(
            job.state == JobState::Asked || (failing && job.state == JobState::Done),
            "{id} is dropped, but it is {:?}",
            job.state
        );
        if job.state == JobState::Asked {
            job.state = JobState::Dropped;
        } else {
            // The news of its end went with the card: nobody knows that it was a good one.
            job.failed.get_or_insert(JobFailure::CardGone);
        }
        Ok(())
    }

    fn suspect(&mut self, card: CardId, pages: PageRange) -> Result<(), Violation> {
        let driver = &self.driver;
        let facts = &self.machine.facts;
        let dead: BTreeSet<PageNo> =
            self.machine.arena.pages().filter(|&p| facts.get(p).is_none_or(|f| !f.live)).collect();
        let is_lost =
            |page: PageNo| dead.contains(&page) || driver.page(page).state == PageState::Lost;
        self.machine.give_up(card, pages, is_lost);
        let state = self.machine.card_mut(card);
        ensure!(state.doubtful || state.lost, "{card} is called suspect, but it answers in time");
        if !state.suspect && state.deaf && !self.leaves_suspects {
            state.suspect = true;
            self.machine.later(Work::Reset(card));
        }
        Ok(())
    }

    /// Goes on until nothing is left to do, with a machine that breaks nothing any more; then
    /// checks everything.
    ///
    /// # Errors
    /// The rule that was broken; also if the driver does not come to rest.
    pub fn drive(&mut self) -> Result<(), Failure> {
        let knobs = self.calm_down();
        let first = self.step;
        while self.step()? {
            if self.step - first > DRIVE_STEPS {
                let text = format!("no rest after {DRIVE_STEPS} steps: something goes on for ever");
                return Err(self.fail(Violation(text)));
            }
        }
        self.machine.hostility = knobs;
        self.quieting = false;
        self.check_rest().map_err(|violation| self.fail(violation))
    }

    /// From now on only what was begun goes on.
    fn calm_down(&mut self) -> Hostility {
        self.quieting = true;
        self.machine.random_agents = false;
        for card in (0..self.machine.cards.len()).map(|i| CardId(i as u8)) {
            let state = self.machine.card_mut(card);
            if state.stalled && !state.suspect && !state.halted {
                self.machine.go_on(card);
            }
        }
        let delay_ns_max = self.machine.hostility.delay_ns_max;
        let calm = Hostility { delay_ns_max, ..Hostility::none() };
        std::mem::replace(&mut self.machine.hostility, calm)
    }

    fn check_rest(&mut self) -> Result<(), Violation> {
        ensure!(
            self.driver.is_quiet(),
            "the driver waits for something, and nothing is left that could happen; {}\n{:?}",
            self.machine.unfinished(),
            self.driver
        );
        ensure!(self.machine.commands_idle(), "a command was never answered");
        self.machine.cpu.told.clear();
        self.check_cards()?;
        check_nothing_waits(&self.machine)?;
        check_quiet(&self.driver, &mut self.machine)?;
        self.check_jobs()?;
        self.machine.say('=', "quiet".into());
        Ok(())
    }

    /// Every card that is there can be used, also after a reset.
    fn check_cards(&mut self) -> Result<(), Violation> {
        for card in &mut self.machine.cards {
            let usable = self.driver.is_usable(card.id.memory());
            ensure!(usable != card.lost, "{} is lost: {}, usable: {usable}", card.id, card.lost);
            card.recovering = false;
        }
        for card in (0..self.machine.cards.len()).map(|i| CardId(i as u8)) {
            self.machine.check_port(card)?;
        }
        Ok(())
    }

    /// Every job has ended, unless one lingers that it comes after.
    fn check_jobs(&self) -> Result<(), Violation> {
        let mut held: Vec<StreamId> = Vec::new();
        for job in self.machine.jobs.values().filter(|job| !job.is_over()) {
            let lingers = job.script.lingers && job.state == JobState::Running;
            let behind = job.after.iter().any(|other| !self.machine.jobs[other].is_over());
            let waits = job.state == JobState::Asked && (behind || held.contains(&job.stream));
            ensure!(
                lingers || waits,
                "{} of {} never ended: {:?}, {} steps to go",
                job.id,
                job.stream,
                job.state,
                job.script.steps.len()
            );
            held.push(job.stream);
        }
        Ok(())
    }

    pub(crate) fn fail(&self, violation: Violation) -> Failure {
        let log = format!("{}\n{}", self.setup.describe(), self.machine.log.text());
        Failure { seed: self.setup.seed, step: self.step, violation, log }
    }

    /// Makes a request; the answer comes later.
    ///
    /// # Errors
    /// The rule that was broken.
    pub fn request(&mut self, request: Request) -> Result<RequestId, Failure> {
        self.request_inner(request).map_err(|violation| self.fail(violation))
    }

    pub(crate) fn request_inner(&mut self, request: Request) -> Result<RequestId, Violation> {
        self.machine.stamp += 1;
        let stamp = self.machine.stamp;
        let id = RequestId(self.machine.number());
        let freeing = self.machine.leave(&request, stamp);
        if let Request::Protect { range, rights } = request {
            self.machine.facts.each(range, |facts| {
                facts.read_only_at = Some(stamp);
                facts.cards_read_only &= rights == Rights::Read;
            });
        }
        if let Request::Pin { .. } = request {
            self.machine.date_waiting();
        }
        let open = OpenRequest { request: request.clone(), issued: stamp, freeing };
        self.machine.requests.insert(id, open);
        self.deliver(Parcel::Request(id, request))?;
        Ok(id)
    }

    /// How a request ended; `None` while it is open.
    pub fn answer(&self, id: RequestId) -> Option<&Answer> {
        self.answers.get(&id)
    }

    /// Makes a request and drives until it is answered and everything rests.
    ///
    /// # Errors
    /// The rule that was broken.
    pub fn ask(&mut self, request: Request) -> Result<Answer, Failure> {
        let id = self.request(request)?;
        self.drive()?;
        self.answers
            .remove(&id)
            .ok_or_else(|| self.fail(Violation(format!("{id} was never answered"))))
    }

    /// Allocates pages.
    ///
    /// # Errors
    /// The rule that was broken; also if the driver refuses.
    pub fn alloc(&mut self, pages: u64) -> Result<PageRange, Failure> {
        let bytes = pages * PAGE_SIZE as u64;
        match self.ask(Request::Alloc { bytes, name: Arc::from("test") })? {
            Ok(Outcome::Allocated(range)) => Ok(range),
            other => Err(self.fail(Violation(format!("alloc of {pages} pages: {other:?}")))),
        }
    }

    /// Asks for a launch; it begins when the driver says so.
    ///
    /// # Errors
    /// The rule that was broken.
    pub fn launch(
        &mut self,
        card: CardId,
        stream: StreamId,
        script: Script,
    ) -> Result<JobId, Failure> {
        let (id, parcel) = self.machine.ask_launch(card, stream, Vec::new(), script);
        self.machine.stamp += 1;
        self.deliver(parcel).map_err(|violation| self.fail(violation))?;
        Ok(id)
    }

    /// Says that a job is no longer wanted.
    ///
    /// # Errors
    /// The rule that was broken.
    pub fn cancel_job(&mut self, id: JobId) -> Result<(), Failure> {
        self.machine.job_mut(id).cancelled = true;
        self.deliver(Parcel::JobCancel(id)).map_err(|violation| self.fail(violation))
    }

    /// Adds steps to a job that lingers.
    pub fn give_work(&mut self, id: JobId, accesses: impl IntoIterator<Item = WordAccess>) {
        let job = self.machine.job_mut(id);
        let steps = accesses.into_iter().map(crate::JobStep::Access);
        job.script.steps.extend(steps);
        let card = job.card;
        self.machine.wake_card(card);
    }

    /// Lets a job end that lingers.
    pub fn stop_job(&mut self, id: JobId) {
        let job = self.machine.job_mut(id);
        job.script.lingers = false;
        let card = job.card;
        self.machine.wake_card(card);
    }

    /// A job.
    pub fn job(&self, id: JobId) -> &Job {
        &self.machine.jobs[&id]
    }

    /// Threads of the program make these accesses.
    pub fn cpu(&mut self, accesses: impl IntoIterator<Item = WordAccess>) {
        self.machine.cpu.queue.extend(accesses);
        self.machine.wake_cpu();
    }

    /// Accesses of the CPU that ended with an error so far.
    pub fn cpu_errors(&self) -> &[PageNo] {
        &self.machine.cpu.errors
    }

    /// A card is lost with its memory; the driver hears of it at once.
    ///
    /// # Errors
    /// The rule that was broken.
    pub fn lose_card(&mut self, card: CardId) -> Result<(), Failure> {
        self.machine.stamp += 1;
        self.machine.lose(card);
        self.deliver(Parcel::CardLost(card)).map_err(|violation| self.fail(violation))
    }

    /// A card is reset; the driver hears of it at once.
    ///
    /// # Errors
    /// The rule that was broken.
    pub fn reset_card(&mut self, card: CardId) -> Result<(), Failure> {
        self.machine.stamp += 1;
        self.reset_now(card).map_err(|violation| self.fail(violation))
    }

    /// A card's ring stands still until the card is reset.
    pub fn stall_card(&mut self, card: CardId) {
        self.machine.stall(card);
    }

    /// The ring of a card that stands still goes on at this time, unless the card is reset before.
    pub fn go_on_at(&mut self, card: CardId, at: Time) {
        self.machine.agenda.at(at, Work::GoOn(card));
    }

    /// A word as the flat memory has it.
    pub fn word(&self, page: PageNo, word: usize) -> u64 {
        self.machine.reference.page(page)[word]
    }

    /// Raises these faults at once, whatever the card's tables say, for a job that runs.
    ///
    /// # Errors
    /// The rule that was broken.
    pub fn raise(&mut self, job: JobId, accesses: &[WordAccess]) -> Result<(), Failure> {
        let card = self.machine.job_mut(job).card;
        for &access in accesses {
            self.machine.raise_word(card, job, access);
        }
        self.machine.flush_faults(card);
        Ok(())
    }
}
