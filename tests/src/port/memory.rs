//! A card's accesses through its model, and its copies with real bytes.

use farside_card::interface::DmaAddr;
use farside_card::{AccessId, AcquireError, Grant, Location, Raised, TransferFailed};
use farside_live::harness::{ASID, fault_of};
use farside_svm::{Mover, Need, Place, TransferOp};
use farside_types::{Access, CardId, CommandId, FrameNo, JobId, PageNo};

use super::mutation::RingMutation;
use super::{FarCopy, Spot, Step, advance};
use crate::access::{Cargo, Fault, Flight, Who};
use crate::job::{JobFailure, JobStep};
use crate::machine::{Machine, group};
use crate::memory::{GARBAGE, Translation};
use crate::reference::WORDS;
use crate::rings::flat;
use crate::transfers::{Fate, OffRing};
use crate::violation::Violation;

/// A page of a copy: which, and both ends.
type CopyPage = (PageNo, Option<Spot>, Spot);

impl Machine {
    /// A job of a port begins a step: it takes its pages through the TLBs, or faults.
    pub(crate) fn port_step(
        &mut self,
        card: CardId,
        job: JobId,
        step: JobStep,
    ) -> Result<(), Violation> {
        let needs = step.needs();
        let Some(port) = self.port(card) else { return Ok(()) };
        let Some(pe) = port.pe_of(job) else {
            return Err(Violation(format!("{job} runs on {card}, but nowhere")));
        };
        let taken = port.far().model.acquire(pe, ASID, &needs);
        match taken {
            Ok(grant) => self.granted(card, job, step, grant),
            Err(AcquireError::NotResident) => self.port_fault(card, job, step),
            Err(_) => {
                // A kernel is refused what makes no sense.
                self.job_mut(job).failed.get_or_insert(JobFailure::Refused);
                self.wake_card(card);
                Ok(())
            }
        }
    }

    fn port_fault(&mut self, card: CardId, job: JobId, step: JobStep) -> Result<(), Violation> {
        if !self.is_wanted(card, job) {
            self.job_mut(job).failed.get_or_insert(JobFailure::Aborted);
            self.wake_card(card);
            return Ok(());
        }
        let (far_need, need, access) = match &step {
            JobStep::Access(access) => {
                let (page, kind) = (access.page, access.op.access());
                (farside_card::Need::Page(page, kind), Need::Page(page, kind), Some(*access))
            }
            JobStep::Group(ranges) => {
                let ranges = group(ranges);
                (farside_card::Need::Group(ranges.clone()), Need::Group(ranges), None)
            }
        };
        let Some(port) = self.port(card) else { return Ok(()) };
        let Some(pe) = port.pe_of(job) else { return Ok(()) };
        let raised = port.far().model.raise(pe, job, ASID, far_need);
        let raised =
            raised.map_err(|error| Violation(format!("{job} cannot fault on {card}: {error}")))?;
        let id = match raised {
            Raised::Full => {
                self.job_mut(job).script.steps.push_front(step);
                self.wake_card(card);
                return Ok(());
            }
            Raised::Queued(id) | Raised::Joined(id) => fault_of(card, id),
        };
        self.say('f', format!("{card} {job} {id} {need:?} {raised:?}"));
        if let Some(stand) = self.port(card).and_then(|port| port.pes.get_mut(&pe)) {
            stand.faulted = Some(step);
        }
        self.job_mut(job).waits += 1;
        if matches!(raised, Raised::Queued(_)) {
            let fault = Fault {
                id,
                card,
                job,
                need,
                access,
                raised: self.stamp,
                delivered: false,
                answered: false,
                judged: None,
                void: false,
            };
            self.forgotten.remove(&id);
            self.faults.insert(id, fault);
        }
        self.want_pages(card, id);
        let now = self.now;
        self.step_at(now, card, Step::Publish);
        Ok(())
    }

    /// Memory was given to a job: its access is in flight.
    pub(super) fn granted(
        &mut self,
        card: CardId,
        job: JobId,
        step: JobStep,
        grant: Grant,
    ) -> Result<(), Violation> {
        let mut held = Vec::new();
        for (range, access) in step.needs() {
            for page in range.pages() {
                held.push((page, access, self.given(card, page, access, &grant)?));
            }
        }
        self.job_mut(job).flights += 1;
        let mut cover = Some(grant.access);
        if self.skips_drains(card) {
            self.end_grant(card, grant.access)?;
            cover = None;
        }
        let (cargo, at_once) = match step {
            JobStep::Access(access) => (Cargo::Word(access, held[0].2), self.rng.chance(500)),
            JobStep::Group(_) => {
                let accesses = self.rng.between(1, 5) as u32;
                (Cargo::Group(held, accesses), false)
            }
        };
        let flight = Flight { agent: card.agent(), who: Who::Job(job), cargo, grant: cover };
        self.fly(flight, at_once)
    }

    /// Where a page of a grant is; the driver must have said so, and not have taken it back.
    fn given(
        &mut self,
        card: CardId,
        page: PageNo,
        access: Access,
        grant: &Grant,
    ) -> Result<Translation, Violation> {
        let location = grant.runs.iter().find_map(|run| {
            let index = page.0.checked_sub(run.page.0)?;
            (index < u64::from(run.count)).then(|| run.location.offset(index as u32))
        });
        let Some(location) = location else {
            return Err(Violation(format!("{card} was asked for {page} and does not give it")));
        };
        let spot = self.spot_of(card, location);
        let known = self.cards[usize::from(card.0)].tlb.get(&page).copied();
        let removed = self.port(card).map_or(&[][..], |port| &port.just_removed);
        let removed = removed.iter().filter(|(other, _)| *other == page).map(|(_, entry)| *entry);
        let fits = |entry: &Translation| {
            spot == Some(Spot::Memory(entry.memory, entry.frame)) && entry.rights.allows(access)
        };
        let found = known.into_iter().chain(removed).find(fits);
        found.ok_or_else(|| {
            Violation(format!(
                "{card} gives {page} at {spot:?} for {access:?}, but it was told {known:?}"
            ))
        })
    }

    fn spot_of(&mut self, card: CardId, location: Location) -> Option<Spot> {
        let port = self.port(card)?;
        let own = location.memory == port.far().model.memory();
        let at = match own {
            true => DmaAddr::Own(location.frame.0),
            false => DmaAddr::Bus(location.frame.0),
        };
        port.map.spot(at)
    }

    /// An access of a port has ended; drains that waited for it go on.
    pub(crate) fn end_grant(&mut self, card: CardId, access: AccessId) -> Result<(), Violation> {
        let Some(port) = self.port(card) else { return Ok(()) };
        let drained = port.far().model.end(access);
        if !drained.is_empty() {
            port.drained.extend(drained.iter().copied());
            let now = self.now;
            self.step_at(now, card, Step::Drained);
        }
        Ok(())
    }

    /// The command of the driver that a copy is a part of, and where in it the part begins.
    pub(super) fn command_of(
        &mut self,
        card: CardId,
        copy: &FarCopy,
    ) -> Result<(CommandId, usize), Violation> {
        let asked = self.pages_asked(card, copy)?;
        for transfer in self.transfers.values() {
            let OffRing::Bytes(Mover::CardDma(by), step) = &transfer.command else { continue };
            if *by != card {
                continue;
            }
            let pages = pages_of_command(&step.op);
            let ends = |page: &CopyPage| (page.1, page.2);
            let starts = (0..pages.len()).find(|&start| {
                let part = pages.get(start..start + asked.len()).unwrap_or_default();
                part.len() == asked.len() && part.iter().map(ends).eq(asked.iter().copied())
            });
            if let Some(start) = starts {
                return Ok((step.header.id, start));
            }
        }
        Err(Violation(format!("{card} is to copy {copy:?}, which no command says")))
    }

    fn pages_asked(
        &mut self,
        card: CardId,
        copy: &FarCopy,
    ) -> Result<Vec<(Option<Spot>, Spot)>, Violation> {
        let Some(port) = self.port(card) else { return Ok(Vec::new()) };
        let spot =
            |at| port.map.spot(at).ok_or_else(|| Violation(format!("{card} is to copy at {at:?}")));
        let mut asked = Vec::new();
        for extent in &copy.extents {
            for index in 0..extent.count {
                let from = match copy.fill {
                    true => None,
                    false => Some(spot(advance(extent.src, index))?),
                };
                asked.push((from, spot(advance(extent.dst, index))?));
            }
        }
        Ok(asked)
    }

    /// A copy acts, or a part of one, and the function is told.
    pub(super) fn far_copy(&mut self, card: CardId, id: CommandId) -> Result<(), Violation> {
        let copy = self.port(card).and_then(|port| port.copies.remove(&id));
        let Some(copy) = copy else { return Ok(()) };
        let (transfer, start) = self.command_of(card, &copy)?;
        let late = self.port(card).is_some_and(|port| port.broken.now(RingMutation::CopyLate));
        let result = if late { Ok(()) } else { self.copy_part(&copy, transfer, start)? };
        if let Some(port) = self.port(card) {
            port.far().copying.remove(&id);
        }
        let result = result.map_err(|pages_done| TransferFailed { pages_done });
        self.notify(card, |function, model, bus| function.copied(model, bus, id, result))
    }

    /// Moves the bytes of a part that begins at page `start` of its command. An error is the number
    /// of pages that were done.
    fn copy_part(
        &mut self,
        copy: &FarCopy,
        id: CommandId,
        start: usize,
    ) -> Result<Result<(), u32>, Violation> {
        let Some(transfer) = self.transfers.get(&id).cloned() else { return Ok(Err(0)) };
        let OffRing::Bytes(_, step) = &transfer.command else { return Ok(Err(0)) };
        self.say('x', format!("{} {} from page {start} on", id.0, step.op.name()));
        if self.is_outdated(&transfer) {
            return Ok(Err(0));
        }
        let count: u32 = copy.extents.iter().map(|extent| extent.count).sum();
        let pages = pages_of_command(&step.op);
        let pages = &pages[start..start + count as usize];
        if self.is_given_up(&transfer) {
            self.say('!', format!("{} acts late", id.0));
            pages.iter().for_each(|page| self.spoil(page.2));
            return Ok(Ok(()));
        }
        let (from, to) = (step.op.source(), step.op.destination());
        for (done, &(page, src, dst)) in pages.iter().enumerate() {
            let index = start + done;
            let fails = matches!(transfer.fate, Fate::Fails(at) if at == index as u64);
            let mut content = match from {
                Some(from) => self.read_page(id, from, index, page, frame_of(src))?,
                None => [0; WORDS],
            };
            if fails {
                content[WORDS / 2..].fill(GARBAGE);
            }
            self.write_page(id, to, index, page, frame_of(Some(dst)), content)?;
            if fails {
                self.say('!', format!("{id} fails at page {index}"));
                return Ok(Err(done as u32));
            }
        }
        Ok(Ok(()))
    }

    /// What a copy writes whose source was since given to others.
    fn spoil(&mut self, at: Spot) {
        let content = [GARBAGE + 1; WORDS];
        match at {
            Spot::Memory(memory, frame) => {
                if let Some(frame) = self.memory_mut(memory).frame_mut(frame) {
                    frame.content = content;
                }
            }
            Spot::Bounce(slot, page) => {
                let slot = self.bounces.get_mut(usize::from(slot));
                if let Some(entry) = slot.and_then(|slot| slot.get_mut(page as usize)) {
                    *entry = (None, content);
                }
            }
        }
    }
}

fn frame_of(spot: Option<Spot>) -> FrameNo {
    match spot {
        Some(Spot::Memory(_, frame)) => frame,
        Some(Spot::Bounce(..)) | None => FrameNo(0),
    }
}

/// The pages of a copy or fill in the order of its runs.
fn pages_of_command(op: &TransferOp) -> Vec<CopyPage> {
    let spot = |place: Place, frame: FrameNo, index: usize| match place {
        Place::Memory(memory) => Spot::Memory(memory, frame),
        Place::Bounce(slot) => Spot::Bounce(slot, index as u32),
    };
    let pages = flat(op.runs()).enumerate();
    match *op {
        TransferOp::Copy { from, to, .. } => pages
            .map(|(i, (page, src, dst))| (page, Some(spot(from, src, i)), spot(to, dst, i)))
            .collect(),
        TransferOp::Fill { memory, .. } => pages
            .map(|(i, (page, _, dst))| (page, None, spot(Place::Memory(memory), dst, i)))
            .collect(),
    }
}
