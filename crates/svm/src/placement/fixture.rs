//! A driver whose commands all succeed at once: tests of schemes say who touches what and look at
//! where the pages are.

use std::collections::HashSet;

use farside_types::{
    Access, AgentId, CardId, CommandId, FaultId, JobId, MemoryId, MemorySet, PageNo, PageRange,
    RequestId, Span, StreamId, Time,
};

use super::by_name;
use crate::api::event::{CardFault, Need, Request};
use crate::{
    Command, Config, Driver, Event, Outcome, PrefetchConfig, RingOp, Step, StepError, StepErrorKind,
};

/// Between two things that happen.
const APART: Span = Span::from_millis(1_000);

/// The driver, an allocation, and a clock.
pub(crate) struct Fixture {
    pub(crate) driver: Driver,
    pub(crate) pages: PageRange,
    now: Time,
    step: Span,
    next: u64,
    running: Vec<JobId>,
    /// Pages that cards have used since they were last asked.
    used: HashSet<(CardId, PageNo)>,
    /// Pages that cards have written since they were mapped.
    written: HashSet<(CardId, PageNo)>,
    /// Cards do not tell what they have used: pages that they were asked about meanwhile.
    pub(crate) unanswered: Option<u64>,
    /// Copies that are to fail.
    failing: u64,
}

impl Fixture {
    /// Cards of this many frames each under the scheme that `text` names, and an allocation of this
    /// many pages that the host has written.
    pub(crate) fn new(text: &str, cards: usize, frames: u32, pages: u64) -> Fixture {
        let mut fixture = Fixture::untouched(text, cards, frames, pages);
        for page in fixture.pages.pages() {
            fixture.cpu(page, Access::Write);
        }
        fixture
    }

    /// The same with pages that nobody has touched.
    pub(crate) fn untouched(text: &str, cards: usize, frames: u32, pages: u64) -> Fixture {
        let arena = PageRange::new(PageNo(1 << 20), 1 << 20);
        let mut config = Config::embedded(arena, vec![frames; cards]);
        config.keep_clean_copies = false;
        config.thrash.window = Span::ZERO;
        config.prefetch =
            PrefetchConfig { host_fault_around: 1, density_percent: 100, density_leaf_pages: 16 };
        let driver = Driver::new(config, by_name(text).unwrap()).unwrap();
        let empty = PageRange::new(arena.start, 0);
        let mut fixture = Fixture {
            driver,
            pages: empty,
            now: Time::ZERO,
            step: APART,
            next: 0,
            running: Vec::new(),
            used: HashSet::new(),
            written: HashSet::new(),
            unanswered: None,
            failing: 0,
        };
        fixture.pages = fixture.allocate(pages);
        fixture
    }

    pub(crate) fn page(&self, index: u64) -> PageNo {
        self.pages.start.offset(index)
    }

    pub(crate) fn allocate(&mut self, pages: u64) -> PageRange {
        let request = Request::Alloc { bytes: pages * 4096, name: "".into() };
        let Ok(Outcome::Allocated(range)) = self.ask(request) else {
            panic!("there is room");
        };
        range
    }

    pub(crate) fn free(&mut self) {
        let addr = self.pages.start.addr();
        self.ask(Request::Free { addr }).expect("it is an allocation");
    }

    pub(crate) fn ask(&mut self, request: Request) -> Result<Outcome, crate::RequestError> {
        self.next += 1;
        self.handle(Event::Request { id: RequestId(self.next), request, after: &[] });
        loop {
            match self.driver.poll_reply().expect("requests are answered") {
                crate::Reply::Request { result, .. } => return result,
                _ => continue,
            }
        }
    }

    /// A card reads a page that it may or may not have.
    pub(crate) fn read(&mut self, card: u8, page: PageNo) {
        self.touch(card, page, Access::Read);
    }

    /// A card writes a page.
    pub(crate) fn write(&mut self, card: u8, page: PageNo) {
        self.touch(card, page, Access::Write);
    }

    fn touch(&mut self, card: u8, page: PageNo, access: Access) {
        let agent = CardId(card).agent();
        let view = self.driver.page(page);
        let held = if access.is_write() { view.writers } else { view.mappers };
        self.used.insert((CardId(card), page));
        if access.is_write() {
            self.written.insert((CardId(card), page));
        }
        if held.contains(agent) {
            self.now = self.now + self.step;
            return;
        }
        self.next += 1;
        let fault = CardFault { id: FaultId(self.next), need: Need::Page(page, access) };
        self.handle(Event::CardFaults { card: CardId(card), faults: &[fault] });
    }

    pub(crate) fn cpu(&mut self, page: PageNo, access: Access) {
        self.handle(Event::HostFault { page, access });
    }

    /// A thread of the program touches a page that it may or may not have mapped.
    pub(crate) fn cpu_if_unmapped(&mut self, page: PageNo, access: Access) {
        let view = self.driver.page(page);
        let held = if access.is_write() { view.writers } else { view.mappers };
        if held.contains(AgentId::CPU) {
            self.now = self.now + self.step;
        } else {
            self.cpu(page, access);
        }
    }

    /// The next copies fail, so many of them.
    pub(crate) fn fail_copies(&mut self, copies: u64) {
        self.failing = copies;
    }

    /// A card's access counter of a group reached its threshold.
    pub(crate) fn counter(&mut self, card: u8, pages: PageRange) {
        self.handle(Event::CounterNotice { card: CardId(card), pages, count: 256 });
    }

    /// Tells the driver, a while after the last time, and carries its commands out.
    pub(crate) fn handle(&mut self, event: Event<'_>) {
        self.now = self.now + self.step;
        self.driver.handle(self.now, event);
        self.carry_out();
    }

    /// Has the driver do what is due by now.
    pub(crate) fn timers(&mut self) {
        self.driver.handle_timeout(self.now);
        self.carry_out();
    }

    fn carry_out(&mut self) {
        while let Some(command) = self.driver.poll_command() {
            if let Command::Ring(card, Step { header, op }) = &command {
                if let (RingOp::Accessed { .. }, Some(pages)) = (op, &mut self.unanswered) {
                    *pages += op.pages();
                    continue;
                }
                self.tell(*card, header.id, op);
            }
            let fails = self.failing > 0 && matches!(command, Command::Transfer(..));
            self.failing -= u64::from(fails);
            let failed = StepError { pages_done: 0, kind: StepErrorKind::Transfer };
            let result = if fails { Err(failed) } else { Ok(()) };
            self.driver.handle(self.now, command.header().done(result));
        }
        self.driver.check().expect("the driver's tables agree");
    }

    /// A card tells of the pages of a command what it is asked.
    fn tell(&mut self, card: CardId, command: CommandId, op: &RingOp) {
        let (set, tells) = match op {
            RingOp::Accessed { .. } => (&mut self.used, true),
            RingOp::Unmap { tells, .. } => (&mut self.written, *tells),
            _ => return,
        };
        let pages = op.runs().iter().flat_map(|run| run.pages().pages());
        let found: Vec<bool> = pages.map(|page| set.remove(&(card, page))).collect();
        let word = |bits: &[bool]| bits.iter().rev().fold(0, |w, &b| w << 1 | u64::from(b));
        let bits: Vec<u64> = found.chunks(64).map(word).collect();
        if tells {
            let pages = found.len() as u64;
            self.driver.handle(self.now, Event::Told { command, first: 0, pages, bits: &bits });
        }
    }

    /// A kernel begins on a card, and ends with [`Fixture::end`] of its number.
    pub(crate) fn launch(&mut self, card: u8) -> JobId {
        self.next += 1;
        let (job, stream) = (JobId(self.next), StreamId(self.next as u32));
        let writes = &[self.driver.config.arena];
        self.handle(Event::Launch { job, card: CardId(card), stream, after: &[], writes });
        self.running.push(job);
        job
    }

    /// Kernels that were launched and have not ended.
    pub(crate) fn running(&self) -> Vec<JobId> {
        self.running.clone()
    }

    pub(crate) fn end(&mut self, job: JobId) {
        self.running.retain(|&other| other != job);
        self.handle(Event::JobDone { job });
    }

    /// Pages moved, or copied, so far.
    pub(crate) fn moved(&self) -> u64 {
        let moves = &self.driver.stats().moves;
        moves.iter().filter(|((from, _), _)| from.is_some()).map(|(_, pages)| pages).sum()
    }

    /// Pages that came from the host so far.
    pub(crate) fn brought(&self) -> u64 {
        self.driver.stats().by_direction().host_to_card
    }

    /// From now on things happen one microsecond after the other.
    pub(crate) fn quick(&mut self) {
        self.step = Span::from_micros(1);
    }

    /// Time passes.
    pub(crate) fn later(&mut self) {
        self.now = self.now + APART;
    }

    /// The time now.
    pub(crate) fn now(&self) -> Time {
        self.now
    }

    /// Where valid copies are.
    pub(crate) fn copies(&self, page: PageNo) -> Vec<u8> {
        let copies: MemorySet = self.driver.page(page).copies;
        copies.iter().map(|MemoryId(memory)| memory).collect()
    }

    /// Cards that have the page mapped.
    pub(crate) fn mapped_by(&self, page: PageNo) -> Vec<u8> {
        let mappers = self.driver.page(page).mappers;
        mappers.iter().filter_map(|agent| agent.card()).map(|CardId(card)| card).collect()
    }
}
