//! Entries of rings as the frames of a link: what they refer to first, then themselves.

use std::collections::VecDeque;

use farside_card::interface::{ENTRY_BYTES, Entry, RingKind, entry_from_bytes, entry_to_bytes};
use farside_link::Frame;
use farside_link::frame::{DATA_BYTES_MAX, Ring};

/// Bytes that travel with an entry, at most: a block of the memory for lists.
pub(super) const ATTACHED_MAX: usize = 4096;

/// Entries that are told of at once, at most: those of one ring are one frame.
pub(super) const ITEMS_MAX: usize = DATA_BYTES_MAX / ENTRY_BYTES as usize;

/// What travels with the entries that are told of at once: past so many bytes the others go next time.
pub(super) const ATTACHED_SOFT_MAX: usize = 256 << 10;

/// An entry of a ring, and the memory that it refers to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Item {
    pub(super) entry: Entry,
    /// Bus address of what it refers to, and the bytes that are there.
    pub(super) attached: Option<(u64, Vec<u8>)>,
}

/// Entries of one ring that follow each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub(super) ring: RingKind,
    /// The first one's index, which runs freely.
    pub(super) first: u32,
    pub(super) items: Vec<Item>,
}

/// What one end tells the other of the rings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct News {
    /// Of rings that the other end fills: the index of the next entry that is taken.
    pub(super) consumed: Vec<(RingKind, u32)>,
    /// What was put into rings that this end fills.
    pub(crate) runs: Vec<Run>,
    /// There is more for this ring, and no room: the other end is to tell of any that it makes.
    pub(super) waits: Option<RingKind>,
}

fn ring_of(kind: RingKind) -> Ring {
    Ring::ALL[kind.index()]
}

/// The ring of a frame.
pub(super) fn kind_of(ring: Ring) -> RingKind {
    RingKind::ALL[ring as usize]
}

impl News {
    /// The frames that say it, in order.
    pub(crate) fn post(self, mut post: impl FnMut(Frame<Vec<u8>>)) {
        for (kind, index) in self.consumed {
            post(Frame::RingConsumed { ring: ring_of(kind), index });
        }
        for Run { ring, first, items } in self.runs {
            let mut data = Vec::with_capacity(items.len() * ENTRY_BYTES as usize);
            for Item { entry, attached } in items {
                if let Some((address, data)) = attached {
                    post(Frame::DmaWrite { address, data });
                }
                data.extend_from_slice(&entry_to_bytes(&entry));
            }
            post(Frame::RingEntries { ring: ring_of(ring), first, data });
        }
        if let Some(kind) = self.waits {
            post(Frame::RingWaits { ring: ring_of(kind) });
        }
    }
}

/// Memory that has come in front of the entries that refer to it.
#[derive(Debug, Default)]
pub(super) struct Attached {
    pieces: VecDeque<(u64, Vec<u8>)>,
    bytes: usize,
}

impl Attached {
    /// A piece has come; `false` if that is more than any entries refer to.
    #[must_use]
    pub(super) fn came(&mut self, address: u64, data: &[u8]) -> bool {
        self.bytes += data.len();
        let fits = self.pieces.len() < ITEMS_MAX
            && data.len() <= ATTACHED_MAX
            && self.bytes <= ATTACHED_SOFT_MAX + ATTACHED_MAX;
        if fits {
            self.pieces.push_back((address, data.to_vec()));
        }
        fits
    }

    /// The entries of a frame, each with the piece that it refers to if that is the next which has come;
    /// `None` if they are no whole entries, or pieces are left that none of them refers to.
    pub(super) fn run(
        &mut self,
        ring: Ring,
        first: u32,
        data: &[u8],
        refers_to: impl Fn(&Entry) -> Option<u64>,
    ) -> Option<Run> {
        let entries = data.chunks_exact(ENTRY_BYTES as usize);
        let is_whole = entries.remainder().is_empty() && !data.is_empty();
        let items = entries.map(|bytes| {
            let entry = bytes.first_chunk().map(entry_from_bytes).unwrap_or_default();
            let wanted = refers_to(&entry);
            let is_next = wanted.is_some() && wanted == self.pieces.front().map(|next| next.0);
            let attached = if is_next { self.pieces.pop_front() } else { None };
            Item { entry, attached }
        });
        let items: Vec<Item> = items.collect();
        self.bytes = 0;
        let is_all = self.pieces.is_empty();
        self.pieces.clear();
        (is_whole && is_all).then_some(Run { ring: kind_of(ring), first, items })
    }
}
