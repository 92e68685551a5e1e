//! Accesses in flight, and the drains that wait for them.
//!
//! An access is in flight from [`InFlight::begin`] to [`InFlight::end`]. A drain waits for those
//! that overlap its pages and began before it, and for no others, so it always ends. An access that
//! stands in a fault has not begun: it counts as drained.

use farside_types::{Access, Asid, CommandId, PageRange, PeId};

use crate::key::KeyRange;

/// An access in flight. Never used twice by one card.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct AccessId(pub u64);

/// Which accesses a drain waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DrainKind {
    /// All of them: the pages are taken away.
    Everyone,
    /// Those that may write: the right to write is taken away.
    Writers,
}

/// How a drain stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "a drain that waits completes later; do not report its command before"]
pub enum Drained {
    /// Nothing is in flight that it waits for.
    Now,
    /// It completes when these many accesses have ended: its command is then among those that
    /// [`InFlight::end`] returns.
    Waiting(usize),
}

#[derive(Clone, Debug)]
struct Flight {
    id: AccessId,
    pe: PeId,
    uses: Vec<(KeyRange, Access)>,
    /// Serial numbers of the drains that wait for it.
    awaited_by: Vec<u64>,
}

#[derive(Clone, Debug)]
struct Drain {
    serial: u64,
    command: CommandId,
    left: usize,
}

/// The accesses in flight of a card. Both lists stay short: a processing element holds one access
/// at a time, and the driver waits for few drains.
#[derive(Clone, Debug, Default)]
pub struct InFlight {
    flights: Vec<Flight>,
    drains: Vec<Drain>,
    next_access: u64,
    next_drain: u64,
}

impl InFlight {
    /// Nothing in flight.
    pub fn new() -> InFlight {
        InFlight::default()
    }

    /// Registers an access of a processing element.
    pub fn begin(
        &mut self,
        pe: PeId,
        asid: Asid,
        ranges: impl Iterator<Item = (PageRange, Access)>,
    ) -> AccessId {
        let id = AccessId(self.next_access);
        self.next_access += 1;
        self.flights.push(Flight {
            id,
            pe,
            uses: ranges.map(|(range, access)| (KeyRange::new(asid, range), access)).collect(),
            awaited_by: Vec::new(),
        });
        id
    }

    /// An access has ended. Returns the commands of the drains that complete with it. An access
    /// that is unknown, because it was aborted, completes nothing.
    #[must_use = "these drains are complete; report their commands"]
    pub fn end(&mut self, access: AccessId) -> Vec<CommandId> {
        let found = self.flights.iter().position(|flight| flight.id == access);
        match found {
            Some(index) => self.land(index),
            None => Vec::new(),
        }
    }

    /// Ends every access of a processing element. Returns the commands of the drains that complete
    /// with them.
    #[must_use = "these drains are complete; report their commands"]
    pub fn end_all_of(&mut self, pe: PeId) -> Vec<CommandId> {
        let mut complete = Vec::new();
        while let Some(index) = self.flights.iter().position(|flight| flight.pe == pe) {
            complete.append(&mut self.land(index));
        }
        complete
    }

    fn land(&mut self, index: usize) -> Vec<CommandId> {
        let flight = self.flights.swap_remove(index);
        let mut complete = Vec::new();
        for serial in flight.awaited_by {
            let Some(at) = self.drains.iter().position(|drain| drain.serial == serial) else {
                continue;
            };
            self.drains[at].left -= 1;
            if self.drains[at].left == 0 {
                complete.push(self.drains.remove(at).command);
            }
        }
        complete
    }

    /// Waits for the accesses to `ranges` that are in flight now. `command` names the drain when it
    /// completes.
    pub fn drain(
        &mut self,
        command: CommandId,
        asid: Asid,
        ranges: impl Iterator<Item = PageRange>,
        kind: DrainKind,
    ) -> Drained {
        if self.flights.is_empty() {
            return Drained::Now;
        }
        let mut keys: Vec<KeyRange> = ranges
            .map(|range| KeyRange::new(asid, range))
            .filter(|keys| !keys.is_empty())
            .collect();
        if !keys.is_sorted() {
            keys.sort_unstable();
        }
        merge_overlaps(&mut keys);
        self.drain_keys(command, &keys, kind)
    }

    /// Waits for every access of an address space that is in flight now.
    pub fn drain_all(&mut self, command: CommandId, asid: Asid) -> Drained {
        self.drain_keys(command, &[KeyRange::whole(asid)], DrainKind::Everyone)
    }

    fn drain_keys(&mut self, command: CommandId, keys: &[KeyRange], kind: DrainKind) -> Drained {
        let serial = self.next_drain;
        let mut left = 0;
        for flight in &mut self.flights {
            let waits = flight.uses.iter().any(|&(used, access)| {
                (kind == DrainKind::Everyone || access.is_write()) && hits(keys, used)
            });
            if waits {
                flight.awaited_by.push(serial);
                left += 1;
            }
        }
        if left == 0 {
            return Drained::Now;
        }
        self.next_drain += 1;
        self.drains.push(Drain { serial, command, left });
        Drained::Waiting(left)
    }

    /// Whether a processing element has an access in flight.
    pub fn holds(&self, pe: PeId) -> bool {
        self.flights.iter().any(|flight| flight.pe == pe)
    }

    /// Number of accesses in flight.
    pub fn accesses(&self) -> usize {
        self.flights.len()
    }

    /// Number of drains that wait.
    pub fn drains_waiting(&self) -> usize {
        self.drains.len()
    }
}

/// Joins ranges that overlap, so that starts and ends both ascend. `keys` is sorted.
fn merge_overlaps(keys: &mut Vec<KeyRange>) {
    keys.dedup_by(|next, kept| {
        let overlap = next.start <= kept.end;
        if overlap {
            kept.end = kept.end.max(next.end);
        }
        overlap
    });
}

/// Whether one of `keys`, disjoint and ascending, overlaps `used`.
fn hits(keys: &[KeyRange], used: KeyRange) -> bool {
    let first = keys.partition_point(|key| key.end <= used.start);
    keys.get(first).is_some_and(|key| key.overlaps(used))
}
