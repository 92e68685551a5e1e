//! A card: the model of `farside-card` with time around it. The model translates, keeps faults,
//! drains and resumes; here its commands are carried out in order, and accesses take time.
//!
//! The one processing element has several accesses in flight. Each is at a *port* of its own: to the
//! model the ports are processing elements that have one L1 TLB together and run one job.

use std::collections::{BTreeSet, VecDeque};

use farside_card::{
    AccessId, AcquireError, Answer, CardStats, Drained, Geometry, Grant, Level, Location,
    MappedRun, Outcome, Raised,
};
use farside_svm::{CardFault, Command, Need, RingOp, Run, Step};
use farside_types::{
    Access, Asid, CardId, CommandId, FaultId, JobId, MemoryId, PageNo, PageRange, PeId, Rights,
    Span,
};

use super::CardsError;
use super::machine::{CardMachine, SimEvent};
use super::pe::Pe;
use super::spec::CardsSpec;

/// The address space of the program.
const ASID: Asid = Asid(0);

/// The state of a card.
#[derive(Debug)]
pub(super) struct Card {
    model: farside_card::Card,
    /// Commands in order; the host's software has come to those that are ready.
    commands: VecDeque<Step<RingOp>>,
    ready: BTreeSet<CommandId>,
    /// The first command has taken translations away: whether its drain is over.
    drained: Option<bool>,
    /// An interrupt for faults is on its way.
    pub(super) interrupting: bool,
    /// What is accessed at each port.
    ports: Vec<Option<Port>>,
    pub(super) pe: Option<Pe>,
}

/// An access at a port: in flight, or in a fault.
#[derive(Clone, Copy, Debug)]
pub(super) struct Port {
    pub(super) page: PageNo,
    pub(super) access: Access,
    /// Where the page is, once it is in flight.
    flight: Option<(AccessId, Location)>,
}

impl Card {
    /// # Errors
    /// [`CardsError::Mmu`].
    pub(super) fn new(id: CardId, spec: &CardsSpec) -> Result<Card, CardsError> {
        let geometry = geometry(spec);
        Ok(Card {
            model: farside_card::Card::new(id, spec.machine.memory_pages, geometry)?,
            commands: VecDeque::new(),
            ready: BTreeSet::new(),
            drained: None,
            interrupting: false,
            ports: vec![None; usize::from(geometry.pes)],
            pe: None,
        })
    }

    /// The faults that the driver has not fetched.
    pub(super) fn take_faults(&mut self) -> Vec<CardFault> {
        let faults = self.model.take_faults(usize::MAX);
        let need = |need| match need {
            farside_card::Need::Page(page, access) => Need::Page(page, access),
            farside_card::Need::Group(ranges) => Need::Group(ranges),
        };
        faults.into_iter().map(|fault| CardFault { id: fault.id, need: need(fault.need) }).collect()
    }

    /// What its model has counted.
    pub(super) fn stats(&self) -> CardStats {
        self.model.stats()
    }

    /// The pages that accesses stand in faults for.
    pub(super) fn waiting(&self) -> impl Iterator<Item = PageNo> + '_ {
        self.ports.iter().flatten().filter(|port| port.flight.is_none()).map(|port| port.page)
    }
}

/// The sizes of the card's model.
fn geometry(spec: &CardsSpec) -> Geometry {
    let sizes = &spec.mmu;
    let ports = sizes.reads_in_flight.max(sizes.writes_in_flight);
    Geometry {
        pes: u16::try_from(ports).unwrap_or(u16::MAX),
        l1_entries: sizes.l1_entries,
        l1_shared: true,
        l2_entries: sizes.l2_entries,
        l2_ways: sizes.l2_ways,
        flexible_entries: sizes.flexible_entries,
        flexible_pages_max: sizes.flexible_pages_max,
        flexible_pages_min: sizes.flexible_pages_min,
        fault_entries: sizes.fault_entries,
        table_pages: sizes.table_pages,
        ..Geometry::default()
    }
}

fn ranges(runs: &[Run]) -> impl Iterator<Item = PageRange> + Clone + '_ {
    runs.iter().map(Run::pages)
}

impl CardMachine {
    fn card(&mut self, card: CardId) -> &mut Card {
        &mut self.cards[usize::from(card.0)]
    }

    /// The driver gave a command: it takes its place in the card's order.
    pub(super) fn announce(&mut self, command: &Command) -> Result<(), CardsError> {
        if let Command::Ring(card, step) = command {
            self.known(*card)?;
            self.card(*card).commands.push_back(step.clone());
        }
        Ok(())
    }

    /// The host's software has come to a command of the card.
    pub(super) fn ready(&mut self, card: CardId, command: CommandId) -> Result<(), CardsError> {
        self.card(card).ready.insert(command);
        self.carry_on(card)
    }

    /// Carries out what is ready, in order.
    fn carry_on(&mut self, card: CardId) -> Result<(), CardsError> {
        loop {
            let state = self.card(card);
            let Some(first) = state.commands.front() else {
                return Ok(());
            };
            if !state.ready.contains(&first.header.id) {
                return Ok(());
            }
            let command = first.clone();
            if !self.carry_out(card, &command)? {
                return Ok(());
            }
            let state = self.card(card);
            state.commands.pop_front();
            state.ready.remove(&command.header.id);
            state.drained = None;
            self.finished(&command.header);
        }
    }

    /// Carries a command out; `false` if it waits for accesses in flight.
    fn carry_out(&mut self, card: CardId, command: &Step<RingOp>) -> Result<bool, CardsError> {
        match &command.op {
            RingOp::Unmap { .. } | RingOp::Protect { .. } => {
                return Ok(self.take_away(card, command));
            }
            RingOp::Map { runs, memory, rights } => self.map(card, runs, *memory, *rights)?,
            RingOp::Accessed { .. } => {}
            RingOp::Resume { faults } => {
                for &fault in faults.iter() {
                    self.resume(card, fault)?;
                }
            }
            RingOp::Cancel { faults, reason } => {
                let (at, reason) = (self.now(), *reason);
                let state = self.card(card);
                let answers = faults.iter().flat_map(|&id| state.model.cancel(id, reason));
                let ended: Vec<Answer> = answers.collect();
                let port = ended.first().and_then(|answer| state.ports[usize::from(answer.pe.0)]);
                if let Some(Port { page, .. }) = port {
                    return Err(CardsError::Cancelled { at, card, page, reason });
                }
            }
            RingOp::Launch { job } => self.start(card, *job)?,
        }
        Ok(true)
    }

    /// Takes translations or rights away, once; `false` while accesses that hold them are in
    /// flight.
    fn take_away(&mut self, card: CardId, command: &Step<RingOp>) -> bool {
        let state = self.card(card);
        *state.drained.get_or_insert_with(|| {
            let drained = match &command.op {
                RingOp::Protect { runs, rights } => {
                    state.model.protect(command.header.id, ASID, ranges(runs), *rights)
                }
                op => state.model.unmap(command.header.id, ASID, ranges(op.runs())),
            };
            drained == Drained::Now
        })
    }

    fn map(
        &mut self,
        card: CardId,
        runs: &[Run],
        memory: MemoryId,
        rights: Rights,
    ) -> Result<(), CardsError> {
        let mapped =
            |run: &Run| MappedRun::new(run.page, run.count, Location::new(memory, run.dst));
        let inserted = self.card(card).model.map(ASID, runs.iter().map(mapped), rights);
        inserted.map_err(|error| self.broken(format!("{card}: {error}")))?;
        for page in runs.iter().flat_map(|run| run.pages().pages()) {
            let index = self.index(page)?;
            self.arrived.remove(&index);
        }
        Ok(())
    }

    fn resume(&mut self, card: CardId, id: FaultId) -> Result<(), CardsError> {
        let answers = self.card(card).model.resume(id);
        if answers.is_empty() {
            return Err(self.broken(format!("{id} is resumed and is not open")));
        }
        for Answer { pe, outcome, .. } in answers {
            let Some(Port { page, access, .. }) = self.card(card).ports[usize::from(pe.0)] else {
                return Err(self.broken(format!("{card}: nothing waits at port {}", pe.0)));
            };
            match outcome {
                Outcome::Granted(grant) => self.begin(card, page, access, &grant, Span::ZERO)?,
                Outcome::Retry => {
                    self.translate(card, pe, page, access)?;
                }
                Outcome::Cancelled(_) | Outcome::Aborted => {
                    return Err(self.broken(format!("{id} is resumed and ends with {outcome:?}")));
                }
            }
        }
        Ok(())
    }

    /// All ports run a job.
    pub(super) fn open_ports(&mut self, card: CardId, job: JobId) -> Result<(), CardsError> {
        let state = self.card(card);
        let ports = (0..state.ports.len()).map(|port| PeId(port as u16));
        let launched: Result<(), _> =
            ports.into_iter().try_for_each(|port| state.model.launch(port, job));
        launched.map_err(|error| self.broken(format!("{card}: {error}")))
    }

    /// The job has ended.
    pub(super) fn close_ports(&mut self, card: CardId, job: JobId) -> Result<(), CardsError> {
        match self.card(card).model.abort(job) {
            Ok(left) if left.answers.is_empty() && left.drains.is_empty() => Ok(()),
            left => Err(self.broken(format!("{card}: {job} ends and leaves {left:?}"))),
        }
    }

    /// Has an access take its translation now, or fault; how long the lookup takes.
    pub(super) fn access(
        &mut self,
        card: CardId,
        page: PageNo,
        access: Access,
    ) -> Result<Span, CardsError> {
        let free = self.card(card).ports.iter().position(Option::is_none);
        match free {
            Some(port) => self.translate(card, PeId(port as u16), page, access),
            None => Err(self.broken(format!("{card} has more accesses under way than ports"))),
        }
    }

    /// Reads of tables that a walk for a page makes; none on a card without tables.
    fn reads_of_walk(&self, card: CardId, page: PageNo) -> u64 {
        let tables = self.cards[usize::from(card.0)].model.tables();
        tables.map_or(0, |tables| tables.tables().reads(ASID, page).into())
    }

    /// What a card's memory management unit has counted: hits of each TLB, walks of the tables, pages that
    /// found no room there, misses.
    ///
    /// # Errors
    /// [`CardsError::NoSuchCard`].
    pub fn card_stats(&self, card: CardId) -> Result<CardStats, CardsError> {
        self.known(card)?;
        Ok(self.cards[usize::from(card.0)].stats())
    }

    /// As [`CardMachine::access`], at a port.
    fn translate(
        &mut self,
        card: CardId,
        port: PeId,
        page: PageNo,
        access: Access,
    ) -> Result<Span, CardsError> {
        let spec = &self.spec;
        let (near, far) = (spec.cycles(spec.mmu.l1_cycles), spec.cycles(spec.mmu.l2_cycles));
        let walk = spec.cycles(spec.mmu.walk_level_cycles * self.reads_of_walk(card, page));
        match self.card(card).model.acquire_page(port, ASID, page, access) {
            Ok((grant, level)) => {
                let lookup = match level {
                    Level::L1 => near,
                    Level::L2 | Level::Flexible => near + far,
                    Level::Table => near + far + walk,
                };
                self.begin(card, page, access, &grant, lookup)?;
                Ok(lookup)
            }
            Err(AcquireError::NotResident) => {
                self.raise(card, port, page, access)?;
                Ok(near + far + walk)
            }
            Err(error) => Err(self.broken(format!("{card}: {error}"))),
        }
    }

    fn begin(
        &mut self,
        card: CardId,
        page: PageNo,
        access: Access,
        grant: &Grant,
        lookup: Span,
    ) -> Result<(), CardsError> {
        let Some(run) = grant.runs.first() else {
            return Err(self.broken(format!("{card} grants nothing for {page}")));
        };
        let (port, flight) = (grant.pe, Some((grant.access, run.location)));
        let end = self.queue.now() + lookup + Span::from_nanos(self.spec.pe.access_ns);
        self.card(card).ports[usize::from(port.0)] = Some(Port { page, access, flight });
        self.queue.push(end, SimEvent::AccessEnd { card, port });
        Ok(())
    }

    /// The access at a port is over: what it was, and where.
    pub(super) fn end(
        &mut self,
        card: CardId,
        port: PeId,
    ) -> Result<(PageNo, Access, Location), CardsError> {
        let state = self.card(card);
        let ended = state.ports[usize::from(port.0)].take();
        let Some(Port { page, access, flight: Some((id, location)) }) = ended else {
            return Err(self.broken(format!("the access at port {} of {card} ends twice", port.0)));
        };
        let drained = state.model.end(id);
        if state.commands.front().is_some_and(|first| drained.contains(&first.header.id)) {
            state.drained = Some(true);
            self.carry_on(card)?;
        }
        Ok((page, access, location))
    }

    fn raise(
        &mut self,
        card: CardId,
        port: PeId,
        page: PageNo,
        access: Access,
    ) -> Result<(), CardsError> {
        let state = self.card(card);
        let Some(job) = state.pe.as_ref().map(Pe::job) else {
            return Err(self.broken(format!("{card} accesses {page} without a job")));
        };
        state.ports[usize::from(port.0)] = Some(Port { page, access, flight: None });
        let need = farside_card::Need::Page(page, access);
        match state.model.raise(port, job, ASID, need) {
            Ok(Raised::Queued(_) | Raised::Joined(_)) => {}
            Ok(Raised::Full) => return Err(self.broken(format!("{card}: no room for a fault"))),
            Err(error) => return Err(self.broken(format!("{card}: {error}"))),
        }
        if !state.interrupting {
            state.interrupting = true;
            let at = self.queue.now() + self.wake();
            self.queue.push(at, SimEvent::FaultInterrupt { card });
        }
        Ok(())
    }
}
