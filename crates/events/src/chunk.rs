//! Events that come one at a time, and go away many at a time.

use crate::Event;

/// Events of a chunk.
pub(crate) const CHUNK: usize = 1 << 12;
/// Events that are kept near: 4 KiB, a small part of a processor's nearest cache.
const NEAR: usize = 64;
const _: () = assert!(CHUNK % NEAR == 0, "a chunk is full when nothing is near");

/// Room for a chunk of events.
pub(crate) fn room() -> Vec<Event> {
    Vec::with_capacity(CHUNK)
}

/// A chunk that is being filled.
///
/// Its memory was last read by the thread that writes, on another processor: a store there waits for its line, and every
/// later store of a program behind it. So an event goes into a few lines that are always near, and from there with many
/// others at once, which wait together.
#[derive(Debug)]
pub(crate) struct Filling {
    events: Vec<Event>,
    near: Vec<Event>,
}

impl Filling {
    pub(crate) fn new() -> Filling {
        Filling { events: room(), near: Vec::with_capacity(NEAR) }
    }

    /// Takes one more, where it is not full.
    pub(crate) fn push(&mut self, event: Event) {
        self.near.push(event);
        if self.near.len() == NEAR {
            self.events.append(&mut self.near);
        }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.events.len() == CHUNK
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn len(&self) -> usize {
        self.events.len() + self.near.len()
    }

    /// All events that there are, for an empty chunk.
    pub(crate) fn exchange(&mut self, empty: Vec<Event>) -> Vec<Event> {
        self.events.append(&mut self.near);
        std::mem::replace(&mut self.events, empty)
    }

    pub(crate) fn clear(&mut self) {
        self.events.clear();
        self.near.clear();
    }
}
