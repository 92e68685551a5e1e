//! Commands: each is understood, checked whole, and then carried out or refused.

use farside_types::{
    Asid, CancelReason, CommandId, FaultId, FrameNo, MemoryId, PageNo, PageRange, PeId, Rights,
};

use super::extents::{End, Extents, Roles, read_records, words};
use super::jobs::LaunchOrder;
use super::refusal::Refusal;
use super::transfers::{LinkWork, Work};
use super::{Bus, Function};
use crate::interface::{
    CommandEntry, CompletionEntry, DmaAddr, Entry, Extent, ExtentArg, ExtentList, FaultArg,
    Operation, Status, reason_from_word,
};
use crate::{Answer, Card, Drained, Location, MappedRun, PeState};

/// What a command comes to: its completion, or `None` if it completes later.
pub(super) type Outcome = Result<Option<CompletionEntry>, Refusal>;

/// Words of an entry that a refusal names.
mod word {
    pub(super) const HEAD: u64 = 1;
    pub(super) const REASON: u64 = 6;
    pub(super) const BUFFER: u64 = 6;
    pub(super) const MAP_FLAGS: u64 = 7;
}

pub(super) const fn done(value: u64, pages: u64, detail: u64) -> Option<CompletionEntry> {
    let plain = CompletionEntry::plain(0, Status::Ok);
    Some(CompletionEntry { value, pages, detail, ..plain })
}

pub(super) fn pages_of(extent: &Extent) -> PageRange {
    PageRange::new(PageNo(extent.page), extent.count.into())
}

/// What the card model calls a place: bus pages are frames of the host's memory.
fn location_of(place: DmaAddr, card: &Card) -> Location {
    match place {
        DmaAddr::Own(frame) => Location::new(card.memory(), FrameNo(frame)),
        DmaAddr::Bus(page) => Location::new(MemoryId::HOST, FrameNo(page)),
    }
}

/// Whether an operation is about an address space; others leave its id 0.
fn has_asid(operation: &Operation) -> bool {
    matches!(
        operation,
        Operation::Map(..)
            | Operation::Protect(..)
            | Operation::MapWritten(..)
            | Operation::Unmap(_)
            | Operation::UnmapTelling(..)
            | Operation::Accessed(..)
            | Operation::UnmapAll
            | Operation::Launch { .. }
            | Operation::CountersClear(_)
    )
}

impl Function {
    /// Begins the command of an entry. Whatever is in it, its tag gets a completion.
    pub(super) fn carry_out(&mut self, entry: &Entry, card: &mut Card, bus: &mut impl Bus) {
        self.counts.commands += 1;
        let id = self.ledger.begin(entry[0], CommandEntry::is_quiet(entry));
        let outcome = match CommandEntry::from_entry(entry) {
            Ok(command) => self.execute(id, command, card, bus),
            Err(error) => Err(error.into()),
        };
        match outcome {
            Ok(Some(completion)) => self.ledger.finish(id, completion),
            Ok(None) => {}
            Err(refusal) => self.refuse(id, refusal, bus),
        }
    }

    fn execute(
        &mut self,
        id: CommandId,
        command: CommandEntry,
        card: &mut Card,
        bus: &mut impl Bus,
    ) -> Outcome {
        let CommandEntry { asid, operation, .. } = command;
        if asid.0 != 0 && !has_asid(&operation) {
            return Err(Refusal::operand(word::HEAD));
        }
        match operation {
            Operation::Nop => Ok(done(0, 0, 0)),
            Operation::Barrier => {
                self.ledger.wait_for_earlier(id);
                Ok(None)
            }
            Operation::Map(pages, rights) => self.map(asid, pages, rights, false, card, bus),
            Operation::MapWritten(pages, rights) => {
                need_tables(card, Refusal::operand(word::MAP_FLAGS))?;
                self.map(asid, pages, rights, true, card, bus)
            }
            Operation::Protect(pages, rights) => {
                let extents = self.spaced(asid, pages, Roles::PAGES, card, bus)?;
                let drained = card.protect(id, asid, extents.iter().map(pages_of), rights);
                Ok(when_drained(drained))
            }
            Operation::Unmap(pages) => self.unmap(id, asid, pages, None, card, bus),
            Operation::UnmapTelling(pages, buffer) => {
                let first = if buffer.address == 0 { word::BUFFER + 1 } else { word::BUFFER };
                need_tables(card, Refusal::operand(first))?;
                self.unmap(id, asid, pages, Some(buffer), card, bus)
            }
            Operation::Accessed(pages, buffer) => {
                need_tables(card, Refusal::mistake(Status::Unsupported, 0))?;
                self.accessed(id, asid, pages, buffer, card, bus)
            }
            Operation::UnmapAll => {
                self.check_asid(asid)?;
                let drained = card.unmap_all(id, asid);
                Ok(when_drained(drained))
            }
            Operation::Resume(faults) => {
                self.answer_faults(faults, card, bus, |card, first, last| {
                    card.resume_range(first..=last)
                })
            }
            Operation::Cancel(faults, reason) => {
                let reason = reason_from_word(reason).ok_or(Refusal::operand(word::REASON))?;
                self.cancel(faults, reason, card, bus)
            }
            Operation::Kernel { address, bytes } => self.find_kernel(address, bytes, bus),
            Operation::Launch { job, kernel, pe, args, message } => {
                let order = LaunchOrder { job, kernel, pe, args, message };
                self.launch(id, asid, order, card, bus)
            }
            Operation::Abort(job) => self.abort(id, job, card),
            Operation::PeStatus(pe) => pe_status(pe, card),
            Operation::Copy(pages) => {
                self.transfer(id, pages, Work::Copy);
                Ok(None)
            }
            Operation::Fill(pages, pattern) => {
                self.transfer(id, pages, Work::Fill(pattern));
                Ok(None)
            }
            Operation::CountersClear(pages) => {
                let extents = self.spaced(asid, pages, Roles::PAGES, card, bus)?;
                for extent in extents.iter() {
                    card.clear_counters(asid, pages_of(extent));
                }
                Ok(done(0, extents.pages(), 0))
            }
            Operation::LinkReceive { extents, transfer, from } => {
                self.link(id, extents, LinkWork::Receive { transfer, from }, card, bus)
            }
            Operation::LinkSend { extents, transfer, to } => {
                self.link(id, extents, LinkWork::Send { transfer, to }, card, bus)
            }
            Operation::LinkCancel { transfer, from } => self.link_cancel(id, transfer, from),
            Operation::Locate { address, pages, touch } => self.locate(address, pages, touch),
            Operation::TakeOver { address, bytes } => self.take_over(address, bytes),
            Operation::Allocate(request) => {
                self.host_allocates(id, request, card, bus).map(|()| None)
            }
        }
    }

    pub(super) fn check_asid(&self, asid: Asid) -> Result<(), Refusal> {
        if asid.0 >= self.config.asids {
            return Err(Refusal::mistake(Status::BadAsid, asid.0.into()));
        }
        Ok(())
    }

    /// The extents of a command about an address space.
    pub(super) fn spaced(
        &mut self,
        asid: Asid,
        pages: ExtentArg,
        roles: Roles,
        card: &Card,
        bus: &mut impl Bus,
    ) -> Result<Extents, Refusal> {
        self.check_asid(asid)?;
        self.bounded_extents(pages, roles, card, bus)
    }

    fn map(
        &mut self,
        asid: Asid,
        pages: ExtentArg,
        rights: Rights,
        written: bool,
        card: &mut Card,
        bus: &mut impl Bus,
    ) -> Outcome {
        let end = match rights {
            Rights::Read => End::Read,
            Rights::ReadWrite => End::Write,
        };
        let extents = self.spaced(asid, pages, Roles::map(end), card, bus)?;
        let runs: Vec<MappedRun> = extents
            .iter()
            .map(|extent| {
                let location = location_of(extent.dst, card);
                MappedRun::new(PageNo(extent.page), extent.count, location)
            })
            .collect();
        // What the card checks was checked; a refusal here would be a fault of this crate, and is
        // answered as what it would mean.
        let runs = runs.iter().copied();
        let mapped = match written {
            true => card.map_written(asid, runs, rights),
            false => card.map(asid, runs, rights),
        };
        mapped.map_err(|_| Refusal::operand(2))?;
        Ok(done(0, extents.pages(), 0))
    }

    fn cancel(
        &mut self,
        faults: FaultArg,
        reason: CancelReason,
        card: &mut Card,
        bus: &mut impl Bus,
    ) -> Outcome {
        self.answer_faults(faults, card, bus, |card, first, last| {
            card.cancel_range(first..=last, reason)
        })
    }

    /// Answers faults; those that are not open are counted by the card.
    fn answer_faults(
        &mut self,
        faults: FaultArg,
        card: &mut Card,
        bus: &mut impl Bus,
        mut answer: impl FnMut(&mut Card, FaultId, FaultId) -> Vec<Answer>,
    ) -> Outcome {
        let mut answers = Vec::new();
        match faults {
            FaultArg::One(id) => answers = answer(card, id, id),
            FaultArg::Range(ids) => answers = answer(card, *ids.start(), *ids.end()),
            FaultArg::List(list) => {
                self.work += u64::from(list.count);
                for record in read_records(list, 8, bus)?.chunks_exact(8) {
                    let [id] = words(record).map(FaultId);
                    answers.append(&mut answer(card, id, id));
                }
            }
        }
        let answered = answers.len() as u64;
        self.hand_over(answers);
        Ok(done(answered, 0, 0))
    }

    fn find_kernel(&self, address: u64, bytes: u32, bus: &mut impl Bus) -> Outcome {
        let list = ExtentList { address, count: bytes };
        let name = read_records(list, 1, bus)?;
        let found = self.config.kernels.iter().position(|kernel| kernel.as_bytes() == name);
        let found = found.ok_or(Refusal::state(Status::NoSuchKernel, 0))?;
        Ok(done(found as u64, 0, 0))
    }
}

/// What a card without tables does not know is refused as it would be by a card of before.
fn need_tables(card: &Card, refusal: Refusal) -> Result<(), Refusal> {
    card.tables().map(|_| ()).ok_or(refusal)
}

/// A drain completes now, or when the embedder tells.
const fn when_drained(drained: Drained) -> Option<CompletionEntry> {
    match drained {
        Drained::Now => done(0, 0, 0),
        Drained::Waiting(_) => None,
    }
}

fn pe_status(pe: PeId, card: &Card) -> Outcome {
    let state = card.pes().status(pe).map_err(|_| Refusal::state(Status::NoPe, pe.0.into()))?;
    let code = match state {
        PeState::Idle => 0,
        PeState::Running(_) => 1,
        PeState::Stalled(..) => 2,
    };
    Ok(done(code, 0, state.job().map_or(0, |job| job.0)))
}
