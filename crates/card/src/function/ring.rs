//! The two ends of a ring, as the card holds them.
//!
//! # Why no wake-up is lost
//!
//! Each ring has one producer and one consumer. Before either waits, it says so in the header, and
//! looks once more; whoever changes an index looks at the other's word afterwards:
//!
//! ```text
//! consumer:  SLEEPS = 1          producer:  entries, PRODUCER = p + n
//!            fence                          fence
//!            look at PRODUCER               look at SLEEPS: 1 -> signal
//!            new? -> SLEEPS = 0, go on
//!            else wait for the signal
//! ```
//!
//! The two fences forbid that both look before the other's write is visible: if the producer's look
//! misses the 1, its fence came before the consumer's, so the consumer's look sees the new index.
//! One of them always notices; both may, and then the signal is one too many, which is harmless. A
//! signal that comes between the look and the wait is kept by the interrupt or the doorbell itself.
//! Waiting for room is the same with `PRODUCER_WAITS` and `CONSUMER` in the places of
//! `CONSUMER_SLEEPS` and `PRODUCER`. `tests/wake_ups.rs` goes through every interleaving, and finds
//! the lost wake-up when a fence or the second look is left out.
//!
//! Indices come from the other side and are checked: they only grow, and no further than the ring.

use super::{Bus, BusError};
use crate::interface::{
    ENTRIES_MAX, ENTRIES_MIN, Entry, RingHeader, entry_address, entry_from_bytes, entry_to_bytes,
    ring_bytes,
};

/// Why a ring cannot be used any longer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RingError {
    /// It is not on the bus.
    Bus(BusError),
    /// Its registers or indices make no ring; the address concerned.
    Nonsense(u64),
}

impl From<BusError> for RingError {
    fn from(error: BusError) -> RingError {
        RingError::Bus(error)
    }
}

/// Where a ring lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Place {
    base: u64,
    entries: u32,
}

impl Place {
    fn new(base: u64, entries: u32, bus: &mut impl Bus) -> Result<Place, RingError> {
        let sound = entries.is_power_of_two()
            && (ENTRIES_MIN..=ENTRIES_MAX).contains(&entries)
            && base % 64 == 0
            && base.checked_add(ring_bytes(entries)).is_some();
        if !sound {
            return Err(RingError::Nonsense(base));
        }
        if !bus.reaches(base, ring_bytes(entries), true) {
            return Err(RingError::Bus(BusError { address: base }));
        }
        Ok(Place { base, entries })
    }

    fn load(&self, word: u64, bus: &mut impl Bus) -> Result<u32, RingError> {
        Ok(bus.load(self.base + word)?)
    }

    fn store(&self, word: u64, value: u32, bus: &mut impl Bus) -> Result<(), RingError> {
        Ok(bus.store(self.base + word, value)?)
    }

    fn entry(&self, index: u32) -> u64 {
        entry_address(self.base, self.entries, index)
    }

    fn nonsense(&self, word: u64) -> RingError {
        RingError::Nonsense(self.base + word)
    }
}

/// The card's end of the ring that it reads.
#[derive(Clone, Copy, Debug)]
pub(super) struct Consumer {
    place: Place,
    /// Entries taken.
    taken: u32,
    /// Entries that the driver knows to have been taken.
    released: u32,
    /// Entries there are, as last seen.
    produced: u32,
    sleeps: bool,
}

impl Consumer {
    /// Goes on where the header says the consumer is.
    pub(super) fn open(base: u64, entries: u32, bus: &mut impl Bus) -> Result<Consumer, RingError> {
        let place = Place::new(base, entries, bus)?;
        let at = place.load(RingHeader::CONSUMER, bus)?;
        let mut ring = Consumer { place, taken: at, released: at, produced: at, sleeps: false };
        ring.look(bus)?;
        Ok(ring)
    }

    /// The index reached.
    pub(super) fn index(&self) -> u32 {
        self.taken
    }

    fn look(&mut self, bus: &mut impl Bus) -> Result<(), RingError> {
        let produced = self.place.load(RingHeader::PRODUCER, bus)?;
        let there = produced.wrapping_sub(self.released);
        if there > self.place.entries || there < self.produced.wrapping_sub(self.released) {
            return Err(self.place.nonsense(RingHeader::PRODUCER));
        }
        self.produced = produced;
        Ok(())
    }

    /// The next entry, taken out; `None` if there is none.
    pub(super) fn take(&mut self, bus: &mut impl Bus) -> Result<Option<Entry>, RingError> {
        if !self.has_more(bus)? {
            return Ok(None);
        }
        let mut bytes = [0; 64];
        bus.read(self.place.entry(self.taken), &mut bytes)?;
        self.taken = self.taken.wrapping_add(1);
        Ok(Some(entry_from_bytes(&bytes)))
    }

    /// Whether there is an entry.
    pub(super) fn has_more(&mut self, bus: &mut impl Bus) -> Result<bool, RingError> {
        if self.produced == self.taken {
            self.look(bus)?;
        }
        Ok(self.produced != self.taken)
    }

    /// Gives the places of what was taken back. Returns whether the driver waits for room.
    pub(super) fn release(&mut self, bus: &mut impl Bus) -> Result<bool, RingError> {
        if self.released == self.taken {
            return Ok(false);
        }
        self.released = self.taken;
        self.place.store(RingHeader::CONSUMER, self.released, bus)?;
        bus.fence();
        Ok(self.place.load(RingHeader::PRODUCER_WAITS, bus)? == 1)
    }

    /// Says that the card sleeps, and looks once more. Returns whether it may sleep.
    pub(super) fn sleep(&mut self, bus: &mut impl Bus) -> Result<bool, RingError> {
        self.sleeps = true;
        self.place.store(RingHeader::CONSUMER_SLEEPS, 1, bus)?;
        bus.fence();
        self.look(bus)?;
        if self.produced == self.taken {
            return Ok(true);
        }
        self.wake(bus)?;
        Ok(false)
    }

    /// The card is awake: doorbells are not needed.
    pub(super) fn wake(&mut self, bus: &mut impl Bus) -> Result<(), RingError> {
        if std::mem::take(&mut self.sleeps) {
            self.place.store(RingHeader::CONSUMER_SLEEPS, 0, bus)?;
        }
        Ok(())
    }
}

/// The card's end of a ring that it writes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Producer {
    place: Place,
    vector: u16,
    /// Entries written.
    written: u32,
    /// Entries that the driver was shown.
    published: u32,
    /// Entries taken by the driver, as last seen.
    taken: u32,
    waits: bool,
}

impl Producer {
    /// Goes on where the header says the producer is.
    pub(super) fn open(
        base: u64,
        entries: u32,
        vector: u16,
        bus: &mut impl Bus,
    ) -> Result<Producer, RingError> {
        let place = Place::new(base, entries, bus)?;
        let at = place.load(RingHeader::PRODUCER, bus)?;
        let taken = place.load(RingHeader::CONSUMER, bus)?;
        if at.wrapping_sub(taken) > entries {
            return Err(place.nonsense(RingHeader::CONSUMER));
        }
        Ok(Producer { place, vector, written: at, published: at, taken, waits: false })
    }

    /// The index reached.
    pub(super) fn index(&self) -> u32 {
        self.written
    }

    /// The interrupt vector of its consumer.
    pub(super) fn vector(&self) -> u16 {
        self.vector
    }

    /// Entries that it can hold at all.
    pub(super) fn entries(&self) -> u32 {
        self.place.entries
    }

    fn look(&mut self, bus: &mut impl Bus) -> Result<(), RingError> {
        let taken = self.place.load(RingHeader::CONSUMER, bus)?;
        if self.published.wrapping_sub(taken) > self.published.wrapping_sub(self.taken) {
            return Err(self.place.nonsense(RingHeader::CONSUMER));
        }
        self.taken = taken;
        Ok(())
    }

    fn room(&self) -> u32 {
        self.place.entries - self.written.wrapping_sub(self.taken)
    }

    /// Whether `entries` more entries can be written. The driver's index is looked at only if
    /// there were not enough places the last time.
    pub(super) fn has_room(&mut self, entries: u32, bus: &mut impl Bus) -> Result<bool, RingError> {
        if self.room() < entries {
            self.look(bus)?;
        }
        let room = self.room() >= entries;
        if room && std::mem::take(&mut self.waits) {
            self.place.store(RingHeader::PRODUCER_WAITS, 0, bus)?;
        }
        Ok(room)
    }

    /// Writes an entry; there is room for it. The driver sees it after [`Producer::publish`].
    pub(super) fn put(&mut self, entry: &Entry, bus: &mut impl Bus) -> Result<(), RingError> {
        bus.write(self.place.entry(self.written), &entry_to_bytes(entry))?;
        self.written = self.written.wrapping_add(1);
        Ok(())
    }

    /// Shows the driver what was written, without an interrupt.
    pub(super) fn show(&mut self, bus: &mut impl Bus) -> Result<(), RingError> {
        if self.published != self.written {
            self.published = self.written;
            self.place.store(RingHeader::PRODUCER, self.published, bus)?;
        }
        Ok(())
    }

    /// Shows the driver what was written. Returns whether it sleeps and wants an interrupt.
    pub(super) fn publish(&mut self, bus: &mut impl Bus) -> Result<bool, RingError> {
        if self.published == self.written {
            return Ok(false);
        }
        self.published = self.written;
        self.place.store(RingHeader::PRODUCER, self.published, bus)?;
        bus.fence();
        Ok(self.place.load(RingHeader::CONSUMER_SLEEPS, bus)? == 1)
    }

    /// Says that the card waits for `entries` places, and looks once more. Returns whether there
    /// are still too few, so that it may wait for the doorbell.
    pub(super) fn wait(&mut self, entries: u32, bus: &mut impl Bus) -> Result<bool, RingError> {
        self.waits = true;
        self.place.store(RingHeader::PRODUCER_WAITS, 1, bus)?;
        bus.fence();
        self.look(bus)?;
        Ok(!self.has_room(entries, bus)?)
    }
}
