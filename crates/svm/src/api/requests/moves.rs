//! Migrations, prefetches and pins: what is asked, and whether it can be.

use std::collections::VecDeque;

use farside_types::{MemoryId, PageNo, PageRange, RequestId};
use serde::{Deserialize, Serialize};

use crate::Driver;
use crate::api::reply::RequestError;
use crate::api::requests::RequestKind;
use crate::tables::page::flag;

/// Pages that the program pinned.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Pin {
    pub(crate) range: PageRange,
    pub(crate) at: MemoryId,
    /// Its request has succeeded: it can be undone.
    pub(crate) ready: bool,
    /// It is of memory that was adopted and holds other data as well: no request undoes it.
    pub(crate) stays: bool,
}

impl Driver {
    pub(crate) fn move_to(
        &mut self,
        id: RequestId,
        range: PageRange,
        kind: RequestKind,
    ) -> Result<(), RequestError> {
        self.check_range(range)?;
        let Some(to) = kind.target() else {
            return Ok(());
        };
        if !self.is_usable(to) {
            return Err(RequestError::NoSuchMemory { memory: to });
        }
        if !matches!(kind, RequestKind::Prefetch(..) | RequestKind::Recall) {
            self.check_fit(range, to)?;
            let elsewhere = |pin: &&Pin| pin.at != to && pin.range.overlaps(range);
            if let Some(pin) = self.pins.iter().find(elsewhere) {
                let page = pin.range.intersection(range).start;
                return Err(RequestError::Pinned { page, at: pin.at });
            }
        }
        if let RequestKind::Pin(at) = kind {
            self.pins.push(Pin { range, at, ready: false, stays: false });
        }
        self.open(id, kind, range, VecDeque::from([range]));
        Ok(())
    }

    /// Whether `range` is there, and all of it allocated.
    pub(crate) fn check_range(&self, range: PageRange) -> Result<(), RequestError> {
        if range.is_empty() {
            return Err(RequestError::EmptyRange);
        }
        let mut page = range.start;
        // Counted from the start: the end of a senseless range may not exist.
        while page.0 - range.start.0 < range.count {
            let object = self.space.holding(page);
            let live = object.filter(|o| !self.table.get(o.range.start).has(flag::DOOMED));
            let Some(object) = live else {
                return Err(RequestError::Unallocated { range, page });
            };
            page = object.range.end();
        }
        Ok(())
    }

    /// Whether `range` can be at `memory` all at once, beside what is pinned there.
    fn check_fit(&self, range: PageRange, memory: MemoryId) -> Result<(), RequestError> {
        let Some(card) = memory.card() else {
            return Ok(());
        };
        let state = &self.cards[card.0 as usize].frames;
        let frames = u64::from(state.total() - state.quarantined());
        let pinned = self.pinned_beside(range, memory);
        if range.count.saturating_add(pinned) > frames {
            let pages = range.count;
            return Err(RequestError::DoesNotFit { memory, pages, frames, pinned });
        }
        Ok(())
    }

    /// Pages that are pinned at `memory`, those of `range` left out. Pins may overlap.
    fn pinned_beside(&self, range: PageRange, memory: MemoryId) -> u64 {
        let at = self.pins.iter().filter(|pin| pin.at == memory);
        let mut ranges: Vec<PageRange> = at.map(|pin| pin.range).collect();
        ranges.sort_unstable_by_key(|pinned| pinned.start);
        let mut counted = PageNo(0);
        let mut pages = 0;
        for pinned in ranges {
            let start = pinned.start.max(counted);
            if pinned.end() > start {
                let new = PageRange::new(start, pinned.end().0 - start.0);
                pages += new.count - new.intersection(range).count;
                counted = new.end();
            }
        }
        pages
    }

    pub(crate) fn unpin(&mut self, id: RequestId, range: PageRange) -> Result<(), RequestError> {
        self.check_range(range)?;
        let Some(at) =
            self.pins.iter().rposition(|pin| pin.range == range && pin.ready && !pin.stays)
        else {
            return Err(RequestError::NotPinned { page: range.start });
        };
        self.pins.remove(at);
        self.unmark_pins(range);
        self.reply_done(id, 0);
        Ok(())
    }

    /// Takes the mark from pages that no pin covers any more.
    pub(crate) fn unmark_pins(&mut self, range: PageRange) {
        let pins = &self.pins;
        for part in self.table.touched(range) {
            self.table.for_each_mut(part, |page, entry| {
                let covered = pins.iter().any(|pin| pin.range.contains(page));
                entry.set(flag::PINNED, covered && entry.has(flag::PINNED));
            });
        }
    }

    pub(crate) fn mark_pin(&mut self, kind: RequestKind, range: PageRange) {
        if let RequestKind::Pin(_) = kind {
            self.table.for_each_mut(range, |_, entry| entry.set(flag::PINNED, true));
        }
    }

    /// The pin that a request under way is making.
    pub(crate) fn open_pin(&self, range: PageRange, at: MemoryId) -> Option<usize> {
        self.pins.iter().rposition(|pin| *pin == Pin { range, at, ready: false, stays: false })
    }
}
