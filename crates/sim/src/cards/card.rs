//! A card: carries its commands out in order, translates, and raises faults.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use farside_card::{Location, Lookup, MappedRun, Mmu};
use farside_svm::{CardFault, Command, Need, RingOp, Run, Step};
use farside_types::{
    Access, Asid, CardId, CommandId, FaultId, MemoryId, PageNo, PeId, Rights, Span,
};

use super::CardsError;
use super::machine::{CardMachine, SimEvent};
use super::pe::Pe;

/// The address space of the program.
const ASID: Asid = Asid(0);
/// The processing element.
const PE: PeId = PeId(0);

/// The state of a card.
#[derive(Debug)]
pub(super) struct Card {
    mmu: Mmu,
    /// Commands in order; the host's software has come to those that are ready.
    commands: VecDeque<Step<RingOp>>,
    ready: BTreeSet<CommandId>,
    /// The first command has taken translations away and waits for accesses in flight.
    draining: bool,
    /// Faults that the driver has not fetched.
    pub(super) fifo: Vec<CardFault>,
    /// An interrupt for them is on its way.
    pub(super) interrupting: bool,
    /// Accesses in flight.
    pub(super) in_flight: BTreeMap<u64, Flight>,
    next_access: u64,
    pub(super) pe: Option<Pe>,
}

/// An access in flight.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flight {
    pub(super) page: PageNo,
    pub(super) access: Access,
    pub(super) location: Location,
}

/// An access that stands in a fault.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fault {
    pub(super) card: CardId,
    pub(super) page: PageNo,
    access: Access,
    /// The translation that came for it: it makes progress whatever happens to the TLBs.
    filled: Option<(Location, Rights)>,
}

impl Card {
    pub(super) fn new(mmu: Mmu) -> Card {
        Card {
            mmu,
            commands: VecDeque::new(),
            ready: BTreeSet::new(),
            draining: false,
            fifo: Vec::new(),
            interrupting: false,
            in_flight: BTreeMap::new(),
            next_access: 0,
            pe: None,
        }
    }

    /// Whether an access in flight is to one of these pages.
    fn uses(&self, runs: &[Run]) -> bool {
        let inside = |page: PageNo| runs.iter().any(|run| run.pages().contains(page));
        self.in_flight.values().any(|flight| inside(flight.page))
    }
}

impl CardMachine {
    /// The driver gave a command: it takes its place in the card's order.
    pub(super) fn announce(&mut self, command: &Command) -> Result<(), CardsError> {
        if let Command::Ring(card, step) = command {
            self.known(*card)?;
            self.cards[usize::from(card.0)].commands.push_back(step.clone());
        }
        Ok(())
    }

    /// The host's software has come to a command of the card.
    pub(super) fn ready(&mut self, card: CardId, command: CommandId) -> Result<(), CardsError> {
        self.cards[usize::from(card.0)].ready.insert(command);
        self.carry_on(card)
    }

    /// Carries out what is ready, in order.
    pub(super) fn carry_on(&mut self, card: CardId) -> Result<(), CardsError> {
        loop {
            let state = &mut self.cards[usize::from(card.0)];
            let Some(first) = state.commands.front() else {
                return Ok(());
            };
            if !state.ready.contains(&first.header.id) {
                return Ok(());
            }
            let command = first.clone();
            if !self.carry_out(card, &command.op)? {
                return Ok(());
            }
            let state = &mut self.cards[usize::from(card.0)];
            state.commands.pop_front();
            state.ready.remove(&command.header.id);
            state.draining = false;
            self.finished(&command.header);
        }
    }

    /// Carries a command out; `false` if it waits for accesses in flight.
    fn carry_out(&mut self, card: CardId, op: &RingOp) -> Result<bool, CardsError> {
        match op {
            RingOp::Unmap { runs } => return Ok(self.take_away(card, runs, None)),
            RingOp::Protect { runs, rights } => {
                return Ok(self.take_away(card, runs, Some(*rights)));
            }
            RingOp::Map { runs, memory, rights } => self.map(card, runs, *memory, *rights)?,
            RingOp::Resume { faults } => {
                for &fault in faults.iter() {
                    self.resume(fault)?;
                }
            }
            RingOp::Cancel { faults, reason } => {
                let open = faults.iter().find_map(|id| self.faults.get(id));
                if let Some(&Fault { card, page, .. }) = open {
                    let (at, reason) = (self.now(), *reason);
                    return Err(CardsError::Cancelled { at, card, page, reason });
                }
            }
            RingOp::Launch { job } => self.start(card, *job)?,
        }
        Ok(true)
    }

    /// Takes translations or rights away, once; `false` while accesses that hold them are in
    /// flight.
    fn take_away(&mut self, card: CardId, runs: &[Run], rights: Option<Rights>) -> bool {
        let state = &mut self.cards[usize::from(card.0)];
        if !state.draining {
            state.draining = true;
            for run in runs {
                match rights {
                    None => state.mmu.invalidate(ASID, run.pages()),
                    Some(rights) => state.mmu.protect(ASID, run.pages(), rights),
                }
            }
            let inside = |page: PageNo| runs.iter().any(|run| run.pages().contains(page));
            for fault in self.faults.values_mut().filter(|f| f.card == card && inside(f.page)) {
                fault.filled = None;
            }
        }
        !self.cards[usize::from(card.0)].uses(runs)
    }

    fn map(
        &mut self,
        card: CardId,
        runs: &[Run],
        memory: MemoryId,
        rights: Rights,
    ) -> Result<(), CardsError> {
        for run in runs {
            let location = Location::new(memory, run.dst);
            let mapped = MappedRun::new(run.page, run.count, location);
            let inserted = self.cards[usize::from(card.0)].mmu.insert(ASID, mapped, rights);
            inserted.map_err(|error| self.broken(format!("{card}: {error}")))?;
            for page in run.pages().pages() {
                let index = self.index(page)?;
                self.arrived.remove(&index);
            }
            let pages = run.pages();
            for fault in self.faults.values_mut().filter(|fault| fault.card == card) {
                if pages.contains(fault.page) {
                    let offset = (fault.page.0 - pages.start.0) as u32;
                    fault.filled = Some((location.offset(offset), rights));
                }
            }
        }
        Ok(())
    }

    fn resume(&mut self, id: FaultId) -> Result<(), CardsError> {
        let Some(fault) = self.faults.remove(&id) else {
            return Err(self.broken(format!("{id} is resumed and is not open")));
        };
        let Fault { card, page, access, filled } = fault;
        match filled.filter(|(_, rights)| rights.allows(access)) {
            Some((location, _)) => self.begin(card, page, access, location, Span::ZERO),
            None => self.translate(card, page, access),
        }
        Ok(())
    }

    /// Has an access take its translation now, or fault; how long the lookup takes.
    pub(super) fn access(&mut self, card: CardId, page: PageNo, access: Access) -> Span {
        let spec = &self.spec;
        let (near, far) = (spec.cycles(spec.mmu.l1_cycles), spec.cycles(spec.mmu.l2_cycles));
        let found = self.cards[usize::from(card.0)].mmu.lookup(PE, ASID, page, access);
        match found {
            Lookup::Hit { location, level: farside_card::Level::L1, .. } => {
                self.begin(card, page, access, location, near);
                near
            }
            Lookup::Hit { location, .. } => {
                self.begin(card, page, access, location, near + far);
                near + far
            }
            Lookup::Miss | Lookup::InsufficientRights => {
                self.raise(card, page, access);
                near + far
            }
        }
    }

    /// As [`CardMachine::access`], for one that comes back from a fault.
    fn translate(&mut self, card: CardId, page: PageNo, access: Access) {
        let _lookup = self.access(card, page, access);
    }

    fn begin(
        &mut self,
        card: CardId,
        page: PageNo,
        access: Access,
        location: Location,
        lookup: Span,
    ) {
        let end = self.queue.now() + lookup + Span::from_nanos(self.spec.pe.access_ns);
        let state = &mut self.cards[usize::from(card.0)];
        let id = state.next_access;
        state.next_access += 1;
        state.in_flight.insert(id, Flight { page, access, location });
        self.queue.push(end, SimEvent::AccessEnd { card, access: id });
    }

    fn raise(&mut self, card: CardId, page: PageNo, access: Access) {
        let id = FaultId(self.next_fault);
        self.next_fault += 1;
        self.faults.insert(id, Fault { card, page, access, filled: None });
        let state = &mut self.cards[usize::from(card.0)];
        state.fifo.push(CardFault { id, need: Need::Page(page, access) });
        if !state.interrupting {
            state.interrupting = true;
            let at = self.queue.now() + self.wake();
            self.queue.push(at, SimEvent::FaultInterrupt { card });
        }
    }
}
