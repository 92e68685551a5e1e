//! Pages that come to a card behind a link from another one, by the direct link of their two lenders' ends:
//! for each piece the one end is told what may be read, and the other what to read and where to put it.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use farside_link::frame::READ_BYTES_MAX;
use farside_link::{Frame, Tag};

use super::link_shared::Shared;

/// Numbers of requests for pieces are from here on: those of other requests are below.
pub(super) const FIRST_FETCH: u64 = 1 << 34;

/// Pieces that are asked for at a time.
const FETCHES_MAX: usize = 64;

/// Another card behind a link, from which pages come directly.
#[derive(Clone)]
pub(super) struct Neighbour {
    /// By which both ends know of the direct link.
    pub(super) number: u32,
    /// Where its memory is on this card's bus.
    pub(super) window: Range<u64>,
    /// Its link.
    pub(super) link: Arc<Shared>,
    /// Called when a piece did not come.
    pub(super) failed: Arc<dyn Fn() + Send + Sync>,
}

impl Neighbour {
    /// Whether all of these bus addresses are its memory.
    pub(super) fn holds(&self, bus: u64, bytes: u64) -> bool {
        self.window.start <= bus && bus.checked_add(bytes).is_some_and(|end| end <= self.window.end)
    }

    /// Nobody is to read a piece any more.
    fn end(&self, transfer: u64) {
        let end = Frame::PeerEnd { peer: self.number, transfer };
        // Where its link is over nobody reads anything.
        let _ = self.link.post("ending a transfer between cards", end);
    }
}

impl fmt::Debug for Neighbour {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Neighbour").field("number", &self.number).finish_non_exhaustive()
    }
}

/// Bytes of another card's memory, by their bus address, and where they go.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fetch {
    /// The move that they are a part of.
    pub(super) tag: u64,
    pub(super) bus: u64,
    pub(super) offset: u64,
    pub(super) bytes: u64,
}

/// What became of the wish to ask for the next piece.
pub(super) enum Started {
    /// There is none, or too many are asked for already.
    Nothing,
    /// It is to be asked for by this.
    Asked(Tag, Frame<Vec<u8>>),
    /// There is no way for this move's.
    Failed(u64),
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Fetches {
    waiting: VecDeque<Fetch>,
    /// Those that were asked for, by transfer: their move, and where they come from.
    open: HashMap<u64, (u64, Neighbour)>,
    /// The last transfer's name. Both ends want them to grow.
    last: u64,
}

impl Fetches {
    /// More is wanted; in how many pieces.
    pub(super) fn push(&mut self, fetch: Fetch) -> usize {
        let before = self.waiting.len();
        let most = u64::from(READ_BYTES_MAX);
        self.waiting.extend((0..fetch.bytes).step_by(most as usize).map(|done| Fetch {
            bus: fetch.bus + done,
            offset: fetch.offset + done,
            bytes: (fetch.bytes - done).min(most),
            ..fetch
        }));
        self.waiting.len() - before
    }

    /// Lends the next piece at the other card, and asks for it at this one.
    pub(super) fn start(&mut self, shared: &Shared) -> Started {
        if self.open.len() >= FETCHES_MAX {
            return Started::Nothing;
        }
        let Some(Fetch { tag, bus, offset, bytes }) = self.waiting.pop_front() else {
            return Started::Nothing;
        };
        let Some(neighbour) = shared.neighbour(bus, bytes) else { return Started::Failed(tag) };
        self.last += 1;
        let (transfer, peer, bytes) = (self.last, neighbour.number, bytes as u32);
        let there = bus - neighbour.window.start;
        let lend = Frame::PeerLend { peer, transfer, offset: there, bytes };
        if neighbour.link.post("lending a piece of a card's memory to another", lend).is_err() {
            return Started::Failed(tag);
        }
        self.open.insert(transfer, (tag, neighbour));
        Started::Asked(
            Tag(FIRST_FETCH + transfer),
            Frame::PeerFetch { peer, transfer, offset, bytes },
        )
    }

    /// A request is answered; the move that it was a part of.
    pub(super) fn answered(&mut self, number: u64, is_there: bool) -> Option<u64> {
        let transfer = number - FIRST_FETCH;
        let (tag, neighbour) = self.open.remove(&transfer)?;
        if !is_there {
            neighbour.end(transfer);
            (neighbour.failed)();
        }
        Some(tag)
    }
}

impl Drop for Fetches {
    /// What was lent to an end that this program has nothing to say to any more is not to be read: something
    /// else may be there soon.
    fn drop(&mut self) {
        for (transfer, (_, neighbour)) in &self.open {
            neighbour.end(*transfer);
        }
    }
}
