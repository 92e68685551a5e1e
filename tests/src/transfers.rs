//! Commands in no ring: paging calls of the host, copies and fills. They act in any order.

use farside_svm::{
    Command, Executor, Header, HostOp, Mover, Place, Run, Step, StepError, StepErrorKind,
    TransferOp,
};
use farside_types::{AgentId, CardId, CommandId, FrameNo, MemoryId, PageNo, Rights, Time};

use crate::accesses::touches;
use crate::machine::{Machine, Work};
use crate::memory::GARBAGE;
use crate::reference::{Content, WORDS};
use crate::rings::{GONE, flat};
use crate::violation::{Violation, ensure};

/// What becomes of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It succeeds.
    Well,
    /// It fails after so many pages.
    Fails(u64),
    /// A call of the host fails: it did so many pages, says so many, and gives this reason.
    Refused(u64, u64, StepErrorKind),
    /// It does not answer in time; it acts and answers very late, unless its card is reset before.
    Silent,
}

/// A command in no ring.
#[derive(Clone, Debug)]
pub(crate) enum OffRing {
    /// A paging call of the host.
    Host(Step<HostOp>),
    /// A copy or fill.
    Bytes(Mover, Step<TransferOp>),
}

impl OffRing {
    pub(crate) fn header(&self) -> &Header {
        match self {
            OffRing::Host(step) => &step.header,
            OffRing::Bytes(_, step) => &step.header,
        }
    }

    pub(crate) fn runs(&self) -> &[Run] {
        match self {
            OffRing::Host(step) => step.op.runs(),
            OffRing::Bytes(_, step) => step.op.runs(),
        }
    }

    /// The whole command, for those who look at any.
    fn command(&self) -> Command {
        match self.clone() {
            OffRing::Host(step) => Command::Host(step),
            OffRing::Bytes(mover, step) => Command::Transfer(mover, step),
        }
    }

    pub(crate) fn executor(&self) -> Executor {
        self.command().executor()
    }

    /// Source and destination.
    fn ends(&self) -> (Option<Place>, Option<Place>) {
        match self {
            OffRing::Host(_) => (None, None),
            OffRing::Bytes(_, step) => (step.op.source(), Some(step.op.destination())),
        }
    }
}

/// A command that was handed out and is not answered yet.
#[derive(Clone, Debug)]
pub(crate) struct Transfer {
    pub(crate) command: OffRing,
    pub(crate) fate: Fate,
    /// When it was handed out.
    issued: Time,
    /// The lives of source and destination when it was handed out.
    generations: (u32, u32),
}

impl Transfer {
    /// Source and destination.
    pub(crate) fn ends(&self) -> (Option<Place>, Option<Place>) {
        self.command.ends()
    }
}

impl Machine {
    /// Takes a command that is in no ring.
    pub(crate) fn begin_transfer(&mut self, command: OffRing) -> Result<(), Violation> {
        self.accept_transfer(&command)?;
        let by_port = self.port_of(&command);
        let card = by_port.as_ref().map(|(card, _)| *card);
        if card.is_some_and(|card| self.cards[usize::from(card.0)].lost) {
            return Ok(()); // nobody is there to answer
        }
        let mut fate = self.decide_fate(&command);
        if card.is_some_and(|card| self.cards[usize::from(card.0)].stalled) {
            fate = Fate::Silent;
        }
        let id = command.header().id;
        let generations = self.generations(&command);
        if fate != Fate::Well {
            self.note_failure(command.runs());
        }
        let transfer = Transfer { command, fate, issued: self.now, generations };
        self.transfers.insert(id, transfer);
        if let Some((card, step)) = by_port {
            self.submit_transfer(card, &step);
            return Ok(());
        }
        if fate == Fate::Silent {
            self.say('!', format!("{id} stays silent"));
            let at = self.much_later();
            self.agenda.at(at, Work::LateEffect(id));
        } else {
            self.later(Work::Transfer(id));
        }
        Ok(())
    }

    /// The card behind rings that carries a command out, and what it is to do.
    fn port_of(&self, command: &OffRing) -> Option<(CardId, Step<TransferOp>)> {
        let OffRing::Bytes(Mover::CardDma(card), step) = command else { return None };
        self.cards[usize::from(card.0)].behind_rings.then(|| (*card, step.clone()))
    }

    /// Whether the driver has waited for it as long as it waits.
    pub(crate) fn is_given_up(&self, transfer: &Transfer) -> bool {
        self.now >= transfer.issued + self.limits.copy
    }

    /// The ring of a card stands still: what its page DMA has to do gets no answer in time.
    pub(crate) fn silence_port(&mut self, card: CardId) {
        let of_card: Vec<OffRing> = self
            .transfers
            .values_mut()
            .filter(|transfer| transfer.command.executor() == Executor::CardDma(card))
            .map(|transfer| {
                transfer.fate = Fate::Silent;
                transfer.command.clone()
            })
            .collect();
        for command in of_card {
            self.note_failure(command.runs());
            self.mark_doubtful(card, command.ends().1);
        }
    }

    /// Whether a memory at one of its ends is gone or has begun another life: it will do nothing
    /// any more.
    pub(crate) fn is_outdated(&self, transfer: &Transfer) -> bool {
        self.end_is_lost(&transfer.command)
            || self.generations(&transfer.command) != transfer.generations
    }

    /// The lives of the memories at both ends.
    fn generations(&self, command: &OffRing) -> (u32, u32) {
        let life = |place| match place {
            Some(Place::Memory(memory)) => self.memory(memory).generation,
            _ => 0,
        };
        let (from, to) = command.ends();
        (life(from), life(to))
    }

    pub(crate) fn note_failure(&mut self, runs: &[Run]) {
        self.facts.last_failure = self.stamp;
        for run in runs {
            self.facts.each(run.pages(), |facts| (facts.failed, facts.stays) = (true, true));
        }
    }

    fn decide_fate(&mut self, command: &OffRing) -> Fate {
        let sabotaged = self.sabotaged(&command.command());
        match command {
            OffRing::Host(step) => {
                let kind = sabotaged.or_else(|| self.host_call_fails());
                kind.map_or(Fate::Well, |kind| {
                    let (done, said) = self.partly(step.op.pages());
                    Fate::Refused(done, said, kind)
                })
            }
            OffRing::Bytes(mover, step) => self.fate_of_bytes(*mover, &step.op, sabotaged),
        }
    }

    fn fate_of_bytes(
        &mut self,
        mover: Mover,
        op: &TransferOp,
        sabotaged: Option<StepErrorKind>,
    ) -> Fate {
        let card = match mover {
            Mover::CardDma(card) | Mover::Link(card, _) => Some(card),
            Mover::HostCpu => None,
        };
        let to = Some(op.destination());
        if let Some(kind) = sabotaged {
            if let (StepErrorKind::TimedOut, Some(card)) = (kind, card) {
                self.mark_doubtful(card, to);
                return Fate::Silent;
            }
            return Fate::Fails(self.rng.below(op.pages()));
        }
        if let Some(planned) = self.planned_fates.pop_front() {
            if let (Fate::Silent, Some(card)) = (planned, card) {
                self.mark_doubtful(card, to);
            }
            return planned;
        }
        if let Some(page) = self.broken_page.filter(|&page| touches(op.runs(), page)) {
            let before = flat(op.runs()).take_while(|entry| entry.0 != page);
            return Fate::Fails(before.count() as u64);
        }
        if let Some(card) = card.filter(|_| self.rng.chance(self.hostility.silent_copy)) {
            self.mark_doubtful(card, to);
            return Fate::Silent;
        }
        if self.rng.chance(self.hostility.copy_failure) {
            return Fate::Fails(self.rng.below(op.pages()));
        }
        Fate::Well
    }

    /// Frames of these cards may be quarantined until a reset.
    pub(crate) fn mark_doubtful(&mut self, card: farside_types::CardId, to: Option<Place>) {
        self.card_mut(card).doubtful = true;
        self.card_mut(card).deaf = true;
        if let Some(Place::Memory(memory)) = to {
            if let Some(other) = memory.card() {
                self.card_mut(other).doubtful = true;
                self.card_mut(other).deaf = true;
            }
        }
    }

    /// A command acts, and its answer goes on its way.
    pub(crate) fn run_transfer(&mut self, id: CommandId) -> Result<(), Violation> {
        let Some(transfer) = self.transfers.get(&id).cloned() else {
            return Ok(());
        };
        self.say('x', format!("{} {}", id.0, transfer.command.command().name()));
        let result = self.act(&transfer)?;
        let at = self.soon();
        self.complete(transfer.command.header(), at, result);
        Ok(())
    }

    /// A copy that everybody gave up acts after all, where its frames are still the same.
    pub(crate) fn late_effect(&mut self, id: CommandId) -> Result<(), Violation> {
        let Some(transfer) = self.transfers.get(&id).cloned() else {
            return Ok(());
        };
        if !self.is_outdated(&transfer) {
            self.say('!', format!("{} acts late", id.0));
            if let OffRing::Bytes(_, step) = &transfer.command {
                self.write_garbage(&step.op);
            }
        }
        let at = self.soon();
        self.complete(transfer.command.header(), at, Ok(()));
        Ok(())
    }

    /// What a copy from a source that was since given to others writes.
    fn write_garbage(&mut self, op: &TransferOp) {
        let memory = match op.destination() {
            Place::Memory(memory) => memory,
            Place::Bounce(slot) => {
                let pages = op.pages() as usize;
                let buffer = self.bounces[usize::from(slot)].iter_mut().take(pages);
                return buffer.for_each(|entry| *entry = (None, [GARBAGE + 1; WORDS]));
            }
        };
        for (_, _, frame) in flat(op.runs()) {
            if let Some(frame) = self.memory_mut(memory).frame_mut(frame) {
                frame.content = [GARBAGE + 1; WORDS];
            }
        }
    }

    fn act(&mut self, transfer: &Transfer) -> Result<Result<(), StepError>, Violation> {
        if self.is_outdated(transfer) {
            return Ok(Err(GONE));
        }
        let op = match &transfer.command {
            OffRing::Host(step) => &step.op,
            OffRing::Bytes(_, step) => return self.move_bytes(transfer, step),
        };
        if let Fate::Refused(done, said, kind) = transfer.fate {
            return self.act_in_part(op, done).map(|()| Err(StepError { pages_done: said, kind }));
        }
        match op {
            HostOp::Unmap { runs } => self.host_unmap(runs)?,
            HostOp::Protect { runs, rights } => self.host_protect(runs, *rights)?,
            HostOp::Map { runs, rights } => self.host_map(runs, *rights),
            HostOp::Release { runs } => self.host_release(runs)?,
            HostOp::Poison { runs } => self.host_poison(runs)?,
        }
        Ok(Ok(()))
    }

    /// A call of the host fails after so many pages.
    fn act_in_part(&mut self, op: &HostOp, done: u64) -> Result<(), Violation> {
        let pages: Vec<Run> = flat(op.runs())
            .take(done as usize)
            .map(|(page, src, dst)| Run { page, count: 1, src, dst })
            .collect();
        match op {
            HostOp::Unmap { .. } => self.host_unmap(&pages),
            HostOp::Protect { rights, .. } => self.host_protect(&pages, *rights),
            HostOp::Map { rights, .. } => {
                self.host_map(&pages, *rights);
                Ok(())
            }
            HostOp::Release { .. } => self.host_release(&pages),
            HostOp::Poison { runs } => {
                for (page, ..) in flat(runs) {
                    *self.cpu.poison_failures.entry(page).or_default() += 1;
                }
                // Not one of them is poisoned; it may have been taken out of the map.
                self.host_unmap(&pages)
            }
        }
    }

    fn end_is_lost(&self, command: &OffRing) -> bool {
        let lost = |place| matches!(place, Some(Place::Memory(m)) if self.memory(m).lost);
        let (from, to) = command.ends();
        lost(from) || lost(to)
    }

    fn host_unmap(&mut self, runs: &[Run]) -> Result<(), Violation> {
        for (page, ..) in flat(runs) {
            self.hurry_cpu(page, false)?;
            self.cpu.mapped.remove(&page);
            self.cpu.poisoned.remove(&page);
        }
        Ok(())
    }

    fn host_protect(&mut self, runs: &[Run], rights: Rights) -> Result<(), Violation> {
        for (page, ..) in flat(runs) {
            if rights == Rights::Read {
                self.hurry_cpu(page, true)?;
            }
            let failed = self.facts.get(page).is_some_and(|facts| facts.failed);
            match self.cpu.mapped.get_mut(&page) {
                Some(entry) => *entry = rights,
                // A call that failed did more than it said.
                None if failed => {}
                None => {
                    let what = format!("the CPU's rights to {page} change, unmapped");
                    return Err(Violation(what));
                }
            }
            self.wake_threads(page);
        }
        Ok(())
    }

    fn host_map(&mut self, runs: &[Run], rights: Rights) {
        for (page, ..) in flat(runs) {
            self.cpu.mapped.insert(page, rights);
            self.cpu.poisoned.remove(&page);
            self.wake_threads(page);
        }
    }

    fn host_release(&mut self, runs: &[Run]) -> Result<(), Violation> {
        self.host_unmap(runs)?;
        for (page, ..) in flat(runs) {
            *self.at_home(page) = [0; WORDS];
        }
        Ok(())
    }

    fn host_poison(&mut self, runs: &[Run]) -> Result<(), Violation> {
        for (page, ..) in flat(runs) {
            self.hurry_cpu(page, false)?;
            self.cpu.mapped.remove(&page);
            self.cpu.poison_failures.remove(&page);
            self.cpu.poisoned.insert(page);
            self.wake_threads(page);
        }
        Ok(())
    }

    /// Copies or fills, as far as its fate lets it.
    fn move_bytes(
        &mut self,
        transfer: &Transfer,
        step: &Step<TransferOp>,
    ) -> Result<Result<(), StepError>, Violation> {
        let (id, op) = (step.header.id, &step.op);
        let stop = match transfer.fate {
            Fate::Fails(pages) => pages,
            Fate::Well | Fate::Silent | Fate::Refused(..) => u64::MAX,
        };
        let (from, to) = (op.source(), op.destination());
        let pages: Vec<_> = flat(op.runs()).collect();
        for (i, (page, src, dst)) in pages.into_iter().enumerate() {
            if i as u64 > stop {
                break;
            }
            let mut content = match from {
                Some(from) => self.read_page(id, from, i, page, src)?,
                None => [0; WORDS],
            };
            if i as u64 == stop {
                content[WORDS / 2..].fill(GARBAGE);
            }
            self.write_page(id, to, i, page, dst, content)?;
        }
        if stop == u64::MAX {
            return Ok(Ok(()));
        }
        self.say('!', format!("{id} fails after {stop} pages"));
        Ok(Err(StepError { pages_done: stop, kind: StepErrorKind::Transfer }))
    }

    pub(crate) fn read_page(
        &self,
        id: CommandId,
        from: Place,
        index: usize,
        page: PageNo,
        frame: FrameNo,
    ) -> Result<Content, Violation> {
        let (holder, content) = match from {
            Place::Bounce(slot) => {
                let entry = self.bounces.get(usize::from(slot)).and_then(|slot| slot.get(index));
                entry.copied().unwrap_or((None, [GARBAGE; WORDS]))
            }
            Place::Memory(memory) => {
                let frame = self.memory(memory).frame(frame);
                frame.map_or((None, [GARBAGE; WORDS]), |frame| (frame.page, frame.content))
            }
        };
        ensure!(
            holder == Some(page),
            "{id} copies {page} from {from:?} {frame:?}, where {holder:?} is"
        );
        Ok(content)
    }

    pub(crate) fn write_page(
        &mut self,
        id: CommandId,
        to: Place,
        index: usize,
        page: PageNo,
        frame: FrameNo,
        content: Content,
    ) -> Result<(), Violation> {
        match to {
            Place::Bounce(slot) => {
                let entry =
                    self.bounces.get_mut(usize::from(slot)).and_then(|slot| slot.get_mut(index));
                let Some(entry) = entry else {
                    return Err(Violation(format!("{id}: bounce {slot} has no page {index}")));
                };
                *entry = (Some(page), content);
            }
            Place::Memory(memory) => {
                self.check_reuse(id, memory, frame, page)?;
                let Some(slot) = self.memory_mut(memory).frame_mut(frame) else {
                    return Err(Violation(format!(
                        "{id} writes {frame:?} of {memory}, of which there is none"
                    )));
                };
                slot.content = content;
                slot.page = Some(page);
            }
        }
        Ok(())
    }

    /// A frame gets new bytes: nobody may still reach it as another page, and no other copy may
    /// be under way in it (driver rule 5, "poison on free").
    fn check_reuse(
        &self,
        id: CommandId,
        memory: MemoryId,
        frame: FrameNo,
        page: PageNo,
    ) -> Result<(), Violation> {
        let holder = self.memory(memory).frame(frame).map(|frame| frame.page);
        ensure!(holder.is_some(), "{id} writes {frame:?} of {memory}, which does not exist");
        ensure!(
            !memory.is_host() || holder == Some(Some(page)),
            "{id} writes {page} into {frame:?} of the host, which is the frame of {holder:?}"
        );
        self.check_nobody_reaches(id, memory, frame, page)?;
        let others = self.transfers.values().filter(|other| other.command.header().id != id);
        for other in others.filter(|other| !self.is_outdated(other)) {
            let (from, to) = other.ends();
            let place = Some(Place::Memory(memory));
            let silent = other.fate == Fate::Silent;
            let not_taken = if silent { "may still write" } else { "still writes" };
            for (its_page, src, dst) in flat(other.command.runs()) {
                ensure!(
                    to != place || dst != frame,
                    "{id} writes {page} into {frame:?} of {memory}, which {} {not_taken}",
                    other.command.header().id
                );
                ensure!(
                    from != place || src != frame || silent || its_page == page && memory.is_host(),
                    "{id} writes {page} into {frame:?} of {memory}, which {} still reads",
                    other.command.header().id
                );
            }
        }
        Ok(())
    }

    fn check_nobody_reaches(
        &self,
        id: CommandId,
        memory: MemoryId,
        frame: FrameNo,
        page: PageNo,
    ) -> Result<(), Violation> {
        let generation = self.memory(memory).generation;
        let reaches = |entry: &crate::memory::Translation| {
            entry.memory == memory && entry.frame == frame && entry.generation == generation
        };
        for card in self.cards.iter().filter(|card| !card.lost) {
            let stale = card.tlb.iter().find(|(other, entry)| **other != page && reaches(entry));
            if let Some((other, _)) = stale {
                return Err(Violation(format!(
                    "{id} puts {page} into {frame:?} of {memory}, but {} still has {other} mapped there",
                    card.id
                )));
            }
        }
        for flight in self.flights.values() {
            let stale = flight.held().into_iter().find(|(_, entry)| reaches(entry));
            if let Some((other, _)) = stale {
                return Err(Violation(format!(
                    "{id} puts {page} into {frame:?} of {memory}, but an access of {} to {other} \
                     there is in flight",
                    flight.agent
                )));
            }
        }
        Ok(())
    }

    /// Judges a command that is in no ring when it is handed out.
    fn accept_transfer(&self, command: &OffRing) -> Result<(), Violation> {
        match command {
            OffRing::Host(step) => self.accept_host(step),
            OffRing::Bytes(mover, step) => self.accept_bytes(*mover, step),
        }
    }

    fn accept_host(&self, step: &Step<HostOp>) -> Result<(), Violation> {
        let id = step.header.id;
        for (page, _, frame) in flat(step.op.runs()) {
            ensure!(self.pages.contains(page), "{id} is about {page}, outside the space");
            ensure!(!self.stays_home(page), "{id} is about {page}, which holds other data as well");
            ensure!(
                !matches!(step.op, HostOp::Map { .. }) || frame == self.host_frame(page),
                "{id} maps {page} for the CPU at {frame:?}, not at its own frame"
            );
        }
        match &step.op {
            HostOp::Unmap { .. } | HostOp::Release { .. } => Ok(()),
            HostOp::Protect { rights, .. } | HostOp::Map { rights, .. } => {
                ensure!(
                    *rights == Rights::ReadWrite || self.capabilities.host_read_only,
                    "{id} gives the CPU {rights:?}, which this host cannot"
                );
                Ok(())
            }
            HostOp::Poison { runs } => {
                flat(runs).try_for_each(|(page, ..)| self.judge_poison(id, page))
            }
        }
    }

    fn accept_bytes(&self, mover: Mover, step: &Step<TransferOp>) -> Result<(), Violation> {
        let (id, from, to) = (step.header.id, step.op.source(), step.op.destination());
        for place in from.into_iter().chain([to]) {
            self.accept_reach(id, mover, place)?;
        }
        let stays = flat(step.op.runs()).find(|&(page, ..)| self.stays_home(page));
        ensure!(stays.is_none(), "{id} copies {stays:?}, which holds other data as well");
        let bounce = |place| matches!(place, Place::Bounce(_));
        let (bounced, pages) = (from.is_some_and(bounce) || bounce(to), step.op.pages());
        ensure!(
            !bounced || pages <= u64::from(self.capabilities.bounce_pages),
            "{id} copies {pages} pages through a bounce buffer of {}",
            self.capabilities.bounce_pages
        );
        Ok(())
    }

    /// Who moves bytes must reach the place (capability table).
    fn accept_reach(&self, id: CommandId, mover: Mover, place: Place) -> Result<(), Violation> {
        let memory = match place {
            Place::Memory(memory) => memory,
            Place::Bounce(slot) => {
                ensure!(
                    usize::from(slot) < self.bounces.len(),
                    "{id} uses bounce buffer {slot}, which does not exist"
                );
                MemoryId::HOST
            }
        };
        let table = &self.capabilities;
        let reached = match mover {
            Mover::HostCpu => table.cpu_reaches.contains(memory),
            Mover::CardDma(card) => table.dma_reaches[usize::from(card.0)].contains(memory),
            Mover::Link(a, b) => memory == a.memory() || memory == b.memory(),
        };
        ensure!(
            reached,
            "{id}: {mover:?} does not reach {memory} (cpu: {})",
            table.can_map(AgentId::CPU, memory)
        );
        Ok(())
    }
}
