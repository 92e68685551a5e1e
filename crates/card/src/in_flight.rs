//! Accesses in flight, and the drains that wait for them.
//!
//! An access is in flight from [`InFlight::begin`] to [`InFlight::end`]. A drain waits for those
//! that overlap its pages and began before it, and for no others, so it always ends. An access that
//! stands in a fault has not begun: it counts as drained.

use farside_types::{Access, Asid, CommandId, List, PageRange, PeId, Shelf, Shelved};

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

/// Drains that there is room for from the start.
const DRAINS: usize = 64;

#[derive(Clone, Debug)]
struct Flight {
    id: AccessId,
    pe: PeId,
    uses: List<Used>,
    /// Serial numbers of the drains that wait for it.
    awaited_by: List<u64>,
}

/// Pages that an access uses, as keys.
#[derive(Clone, Copy, Default, Debug)]
struct Used {
    keys: KeyRange,
    writes: bool,
}

impl Shelved for Used {
    fn shelf() -> &'static Shelf<Used> {
        static SHELF: Shelf<Used> = Shelf::new();
        &SHELF
    }
}

/// Has lists of pages of accesses ready.
pub(crate) fn stock_shelf(lists: usize, room: usize) {
    Used::shelf().stock(lists, room);
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
    /// Nothing in flight, with room for an access of each of `pes` processing elements.
    pub(crate) fn with_room(pes: u16) -> InFlight {
        let flights = Vec::with_capacity(pes.into());
        InFlight { flights, drains: Vec::with_capacity(DRAINS), ..InFlight::default() }
    }

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
        let used = |(range, access): (PageRange, Access)| Used {
            keys: KeyRange::new(asid, range),
            writes: access.is_write(),
        };
        self.flights.push(Flight {
            id,
            pe,
            uses: ranges.map(used).collect(),
            awaited_by: List::new(),
        });
        id
    }

    /// An access has ended. Returns the commands of the drains that complete with it. An access
    /// that is unknown, because it was aborted, completes nothing.
    #[must_use = "these drains are complete; report their commands"]
    pub fn end(&mut self, access: AccessId) -> List<CommandId> {
        let found = self.flights.iter().position(|flight| flight.id == access);
        match found {
            Some(index) => self.land(index),
            None => List::new(),
        }
    }

    /// Ends every access of a processing element. Returns the commands of the drains that complete
    /// with them.
    #[must_use = "these drains are complete; report their commands"]
    pub fn end_all_of(&mut self, pe: PeId) -> List<CommandId> {
        let mut complete = List::new();
        while let Some(index) = self.flights.iter().position(|flight| flight.pe == pe) {
            complete.extend(self.land(index).iter().copied());
        }
        complete
    }

    fn land(&mut self, index: usize) -> List<CommandId> {
        let flight = self.flights.swap_remove(index);
        let mut complete = List::new();
        for &serial in &flight.awaited_by {
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
        let mut keys: List<KeyRange> = ranges
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
            let waits = flight
                .uses
                .iter()
                .any(|used| (kind == DrainKind::Everyone || used.writes) && hits(keys, used.keys));
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

    /// The pages that are in flight, by whom, and for what.
    pub fn held(&self) -> impl Iterator<Item = (PeId, PageRange, Access)> {
        self.flights.iter().flat_map(|flight| {
            flight.uses.iter().map(|used| {
                let access = if used.writes { Access::Write } else { Access::Read };
                (flight.pe, used.keys.pages(), access)
            })
        })
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
fn merge_overlaps(keys: &mut List<KeyRange>) {
    let all = &mut **keys;
    let mut kept = 0;
    for at in 0..all.len() {
        let next = all[at];
        if at > 0 && next.start <= all[kept].end {
            all[kept].end = all[kept].end.max(next.end);
        } else {
            kept += usize::from(at > 0);
            all[kept] = next;
        }
    }
    let left = if keys.is_empty() { 0 } else { kept + 1 };
    keys.truncate(left);
}

/// Whether one of `keys`, disjoint and ascending, overlaps `used`.
fn hits(keys: &[KeyRange], used: KeyRange) -> bool {
    let first = keys.partition_point(|key| key.end <= used.start);
    keys.get(first).is_some_and(|key| key.overlaps(used))
}
