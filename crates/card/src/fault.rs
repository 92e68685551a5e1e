//! The fault queue: what processing elements wait for, as miss registers.
//!
//! An open fault is one entry, however many processing elements wait for it, and collects the
//! translations it waits for by itself. The queue is bounded: when it is full the processing
//! element stalls and tries again, so nothing is lost.

use std::ops::RangeInclusive;

use farside_types::{Access, Asid, CardId, FaultId, JobId, PageNo, PageRange, PeId, Rights};

use crate::fills::Fills;
use crate::key::{KeyRange, clamp};
use crate::{MappedRun, Need, Translation};

/// A fault as the driver is told of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fault {
    /// Unique among the faults of all cards.
    pub id: FaultId,
    /// Whose address space.
    pub asid: Asid,
    /// What the access needs.
    pub need: Need,
}

/// What became of a fault that was raised.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "a fault that found no room must be raised again"]
pub enum Raised {
    /// A new entry; the driver is to take it.
    Queued(FaultId),
    /// An open fault serves it as well.
    Joined(FaultId),
    /// No entry is free: raise it again later.
    Full,
}

/// A processing element that waits for a fault.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Waiter {
    /// Which.
    pub pe: PeId,
    /// The job it runs.
    pub job: JobId,
    /// What its own access needs; the entry's need covers it.
    pub need: Need,
}

/// Entries that a queue has room for from the start.
const ROOM: usize = 256;

/// One open fault.
#[derive(Clone, Debug)]
pub(crate) struct Open {
    pub(crate) fault: Fault,
    pub(crate) waiters: Vec<Waiter>,
    fills: Fills,
    taken: bool,
    /// Holds every key of the need.
    hull: KeyRange,
}

impl Open {
    /// What nobody needs.
    const NOTHING: Need = Need::Page(PageNo(0), Access::Read);

    /// An entry that nothing waits for.
    fn closed() -> Open {
        Open {
            fault: Fault { id: FaultId(0), asid: Asid(0), need: Open::NOTHING },
            waiters: Vec::with_capacity(4),
            fills: Fills::with_room(),
            taken: false,
            hull: KeyRange { start: 0, end: 0 },
        }
    }

    /// The translation that the fault has kept for a page.
    pub(crate) fn fill(&self, page: PageNo) -> Option<(Translation, u32)> {
        self.fills.find(page)
    }
}

/// The open faults of a card, in the order in which they were raised.
#[derive(Clone, Debug)]
pub struct FaultQueue {
    open: Vec<Open>,
    /// Entries that are closed, for the next ones.
    spare: Vec<Open>,
    capacity: usize,
    card: CardId,
    next: u64,
}

impl FaultQueue {
    /// An empty queue of at most `capacity` open faults. The card's number makes fault ids unique
    /// among cards.
    pub fn new(card: CardId, capacity: usize) -> FaultQueue {
        let entries = capacity.min(ROOM);
        let spare = (0..entries).map(|_| Open::closed()).collect();
        FaultQueue { open: Vec::with_capacity(entries), spare, capacity, card, next: 0 }
    }

    /// A processing element cannot go on. Equal single-page faults share an entry: a write joins a
    /// read that the driver has not taken yet, and turns it into a write.
    pub fn raise(&mut self, pe: PeId, job: JobId, asid: Asid, need: Need) -> Raised {
        if let Some(open) = self.open.iter_mut().find(|open| serves(open, asid, &need)) {
            if let (Need::Page(_, wanted), Need::Page(_, access)) = (&mut open.fault.need, &need) {
                *wanted = (*wanted).max(*access);
            }
            let id = open.fault.id;
            open.waiters.retain(|waiter| waiter.pe != pe);
            open.waiters.push(Waiter { pe, job, need });
            return Raised::Joined(id);
        }
        if self.open.len() >= self.capacity {
            return Raised::Full;
        }
        let id = FaultId(u64::from(self.card.0) << 56 | self.next);
        self.next += 1;
        let empty = KeyRange { start: 0, end: 0 };
        let hull =
            need.ranges().fold(empty, |hull, (range, _)| hull.hull(KeyRange::new(asid, range)));
        let mut open = self.spare.pop().unwrap_or_else(Open::closed);
        open.fault = Fault { id, asid, need: need.clone() };
        open.waiters.push(Waiter { pe, job, need });
        (open.taken, open.hull) = (false, hull);
        self.open.push(open);
        Raised::Queued(id)
    }

    /// The faults that the driver has not taken yet, oldest first, at most `faults_max`. They stay
    /// open until they are resumed or cancelled.
    pub fn take_batch(&mut self, faults_max: usize) -> Vec<Fault> {
        std::iter::from_fn(|| self.next_fresh()).take(faults_max).collect()
    }

    /// The oldest fault that the driver has not taken yet; it has now.
    pub(crate) fn next_fresh(&mut self) -> Option<Fault> {
        let open = self.open.iter_mut().find(|open| !open.taken)?;
        open.taken = true;
        Some(open.fault.clone())
    }

    /// Keeps a new translation in every fault that needs pages of it.
    pub(crate) fn fill(&mut self, asid: Asid, run: MappedRun, rights: Rights) {
        for open in self.overlapping(asid, run.pages()) {
            let Open { fault, fills, .. } = open;
            for (range, _) in fault.need.ranges() {
                if let Some(part) = run.clip(clamp(range)) {
                    fills.insert(part, rights);
                }
            }
        }
    }

    /// Forgets translations in every fault.
    pub(crate) fn invalidate(&mut self, asid: Asid, range: PageRange) {
        for open in self.overlapping(asid, range) {
            open.fills.remove(clamp(range));
        }
    }

    /// Lowers the rights of translations in every fault.
    pub(crate) fn protect(&mut self, asid: Asid, range: PageRange, rights: Rights) {
        for open in self.overlapping(asid, range) {
            open.fills.protect(clamp(range), rights);
        }
    }

    fn overlapping(&mut self, asid: Asid, range: PageRange) -> impl Iterator<Item = &mut Open> {
        let keys = KeyRange::new(asid, range);
        self.open.iter_mut().filter(move |open| open.hull.overlaps(keys))
    }

    /// Takes the oldest fault out whose id lies in a range.
    pub(crate) fn remove(&mut self, ids: &RangeInclusive<FaultId>) -> Option<Open> {
        let at = self.open.iter().position(|open| ids.contains(&open.fault.id))?;
        Some(self.open.remove(at))
    }

    /// An entry that was taken out is used no more.
    pub(crate) fn recycle(&mut self, mut open: Open) {
        open.waiters.clear();
        open.fills.clear();
        // The ranges of a group belong to whoever has raised it.
        open.fault.need = Open::NOTHING;
        self.spare.push(open);
    }

    /// The oldest fault that the driver has not taken yet, and the first who waits for it.
    pub fn first_fresh(&self) -> Option<(&Fault, &Waiter)> {
        let open = self.open.iter().find(|open| !open.taken)?;
        Some((&open.fault, open.waiters.first()?))
    }

    /// Strikes a job's waiting processing elements out. Faults that nobody waits for are gone.
    pub fn forget_job(&mut self, job: JobId) -> Vec<Waiter> {
        let mut struck = Vec::new();
        for open in &mut self.open {
            while let Some(at) = open.waiters.iter().position(|waiter| waiter.job == job) {
                struck.push(open.waiters.remove(at));
            }
        }
        while let Some(at) = self.open.iter().position(|open| open.waiters.is_empty()) {
            let open = self.open.remove(at);
            self.recycle(open);
        }
        struck
    }

    /// Number of open faults.
    pub fn len(&self) -> usize {
        self.open.len()
    }

    /// Whether no fault is open.
    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Whether there are faults that the driver has not taken yet.
    pub fn has_fresh(&self) -> bool {
        self.open.iter().any(|open| !open.taken)
    }

    /// What a processing element waits for in an open fault.
    pub(crate) fn waits_for(&self, id: FaultId, pe: PeId) -> Option<&Need> {
        let open = self.open.iter().find(|open| open.fault.id == id)?;
        let waiter = open.waiters.iter().find(|waiter| waiter.pe == pe)?;
        Some(&waiter.need)
    }
}

/// Whether an open fault, once it is served, serves this single-page need as well.
fn serves(open: &Open, asid: Asid, need: &Need) -> bool {
    let (Need::Page(page, access), Need::Page(other, wanted)) = (need, &open.fault.need) else {
        return false;
    };
    let covered = !open.taken || *access == Access::Read || *wanted == Access::Write;
    open.fault.asid == asid && page == other && covered
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raise(queue: &mut FaultQueue, pe: u16, page: u64, access: Access) -> Raised {
        let need = Need::Page(PageNo(page), access);
        queue.raise(PeId(pe), JobId(pe.into()), Asid(1), need)
    }

    #[test]
    fn invariant_14_ten_thousand_duplicate_faults_are_one_entry() {
        let mut queue = FaultQueue::new(CardId(2), 48);
        for pe in 0..10_000 {
            let _ = raise(&mut queue, pe, 7, Access::Read);
        }
        assert_eq!(queue.len(), 1);
        let batch = queue.take_batch(256);
        assert_eq!(batch.len(), 1);
        let id = batch[0].id;
        let open = queue.remove(&(id..=id)).unwrap();
        assert_eq!(open.waiters.len(), 10_000, "every one of them is waiting");
    }

    #[test]
    fn a_write_turns_an_untaken_read_fault_into_a_write_fault() {
        let mut queue = FaultQueue::new(CardId(0), 4);
        let first = raise(&mut queue, 0, 7, Access::Read);
        let second = raise(&mut queue, 1, 7, Access::Write);
        assert!(matches!((first, second), (Raised::Queued(a), Raised::Joined(b)) if a == b));
        let need = queue.take_batch(9).pop().unwrap().need;
        assert_eq!(need, Need::Page(PageNo(7), Access::Write));
    }

    #[test]
    fn a_write_does_not_join_a_read_fault_that_the_driver_already_works_on() {
        let mut queue = FaultQueue::new(CardId(0), 4);
        let _ = raise(&mut queue, 0, 7, Access::Read);
        queue.take_batch(1);
        assert!(matches!(raise(&mut queue, 1, 7, Access::Write), Raised::Queued(_)));
        assert!(matches!(raise(&mut queue, 2, 7, Access::Read), Raised::Joined(_)));
        assert_eq!(queue.take_batch(9).len(), 1);
    }

    #[test]
    fn faults_of_two_address_spaces_are_two_faults() {
        let mut queue = FaultQueue::new(CardId(0), 4);
        let need = Need::Page(PageNo(7), Access::Read);
        let _ = queue.raise(PeId(0), JobId(0), Asid(1), need.clone());
        let _ = queue.raise(PeId(1), JobId(1), Asid(2), need);
        assert_eq!(queue.len(), 2);
    }

    #[test]
    fn fault_ids_of_two_cards_never_meet() {
        let ids = [CardId(0), CardId(1)].map(|card| {
            let mut queue = FaultQueue::new(card, 4);
            raise(&mut queue, 0, 7, Access::Read)
        });
        assert_ne!(ids[0], ids[1]);
    }

    #[test]
    fn invariant_15_a_full_queue_refuses_and_takes_the_fault_later() {
        let mut queue = FaultQueue::new(CardId(0), 48);
        let mut waiting: Vec<u16> = (0..200).collect();
        let mut served = Vec::new();
        while !waiting.is_empty() {
            waiting.retain(|&pe| raise(&mut queue, pe, pe.into(), Access::Read) == Raised::Full);
            assert!(queue.len() <= 48);
            for fault in queue.take_batch(16) {
                let open = queue.remove(&(fault.id..=fault.id)).unwrap();
                served.extend(open.waiters.iter().map(|waiter| waiter.pe.0));
            }
        }
        while let Some(fault) = queue.take_batch(1).pop() {
            let open = queue.remove(&(fault.id..=fault.id)).unwrap();
            served.extend(open.waiters.iter().map(|waiter| waiter.pe.0));
        }
        served.sort_unstable();
        assert_eq!(served, (0..200).collect::<Vec<_>>(), "each served, once");
    }

    #[test]
    fn a_full_queue_still_lets_duplicates_join() {
        let mut queue = FaultQueue::new(CardId(0), 1);
        let _ = raise(&mut queue, 0, 7, Access::Read);
        assert_eq!(raise(&mut queue, 1, 8, Access::Read), Raised::Full);
        assert!(matches!(raise(&mut queue, 2, 7, Access::Read), Raised::Joined(_)));
    }
}
