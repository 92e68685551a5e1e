//! Allocations: made, freed, and their addresses given back.

use std::collections::VecDeque;
use std::sync::Arc;

use farside_types::{PAGE_SIZE, PageNo, PageRange, RequestId, VirtAddr};

use crate::Driver;
use crate::api::journal::Note;
use crate::api::reply::{Outcome, RequestError};
use crate::api::requests::{OpenRequest, RequestKind};
use crate::tables::page::{PageEntry, PageState, flag};

/// Most pages with several copies of which room is made beforehand for a card's frames.
const COPIES_MOST: u64 = 1 << 20;

impl Driver {
    pub(crate) fn alloc(
        &mut self,
        id: RequestId,
        bytes: u64,
        name: Arc<str>,
    ) -> Result<(), RequestError> {
        if bytes == 0 {
            return Err(RequestError::EmptyAllocation);
        }
        let pages = bytes.div_ceil(PAGE_SIZE as u64);
        let Some(range) = self.space.allocate(pages, bytes, Arc::clone(&name)) else {
            let largest_gap = self.space.largest_gap();
            return Err(RequestError::OutOfAddressSpace { pages, largest_gap });
        };
        self.note(Note::Alloc { pages: range, name: &name });
        self.make_room(range);
        let mut poisoned = VecDeque::new();
        for page in self.table.touched(range).into_iter().flat_map(PageRange::pages) {
            if self.table.get(page).has(flag::POISONED) {
                poisoned.push_back(PageRange::page(page));
            }
        }
        self.table.update(range, |entry| {
            let flags = entry.flags & (flag::HOST_UNSAFE | flag::POISONED);
            *entry = PageEntry { state: PageState::Fresh, flags, ..PageEntry::default() };
        });
        if poisoned.is_empty() {
            self.reply(id, Ok(Outcome::Allocated(range)));
        } else {
            // Nobody gets the pages before the program was told of them.
            self.table.update(range, |entry| entry.set(flag::DOOMED, true));
            self.open(id, RequestKind::Alloc, range, poisoned);
        }
        Ok(())
    }

    /// Makes room in the tables for the pages of an allocation. Whoever touches one of them may have
    /// interrupted the program's allocator, and nobody is to need it then.
    pub(super) fn make_room(&mut self, range: PageRange) {
        self.table.make_room(range);
        self.placement.on_alloc(range);
        for card in &mut self.cards {
            card.residency.make_room(range);
            let copies = self.table.pages().min(card.frames.total().into()).min(COPIES_MOST);
            let more = (copies as usize).saturating_sub(card.replicas.len());
            // Without it there is room for them when they come.
            let _ = card.replicas.try_reserve(more);
        }
    }

    pub(crate) fn free(&mut self, id: RequestId, addr: VirtAddr) -> Result<(), RequestError> {
        let not_one = RequestError::NotAnAllocation { addr };
        let Some(range) =
            self.whole_at(addr).filter(|range| self.config.arena.contains(range.start))
        else {
            return Err(not_one);
        };
        self.table.update(range, |entry| entry.set(flag::DOOMED, true));
        self.pins.retain(|pin| !pin.range.overlaps(range));
        self.note(Note::Free { pages: range });
        self.open(id, RequestKind::Free, range, VecDeque::from([range]));
        Ok(())
    }

    /// The allocation that starts at `addr`, unless it is being made or freed.
    pub(super) fn whole_at(&self, addr: VirtAddr) -> Option<PageRange> {
        let range = self.space.starting_at(addr)?.range;
        let under_way = self.requests.values().any(|request| {
            let about_all = matches!(
                request.kind,
                RequestKind::Free | RequestKind::Alloc | RequestKind::Disown
            );
            about_all && request.whole == range
        });
        (!under_way && !self.lingering.contains(&range)).then_some(range)
    }

    /// The addresses of a freed allocation can be used again.
    pub(crate) fn remove_object(&mut self, range: PageRange) {
        self.placement.on_free(range);
        if self.is_held(range) {
            return self.lingering.push(range);
        }
        self.give_addresses_back(range);
    }

    /// Nobody maps a page of the freed allocation any more.
    pub(crate) fn give_addresses_back(&mut self, range: PageRange) {
        self.table.update(range, |entry| {
            let flags = entry.flags & (flag::POISONED | flag::HOST_UNSAFE);
            *entry = PageEntry { flags, ..PageEntry::default() };
        });
        let adopted = !self.config.arena.contains(range.start);
        self.space.remove(range.start);
        if adopted {
            self.table.disown(range);
            for card in &mut self.cards {
                card.residency.lay_out(self.space.layout().clone());
            }
        }
    }

    /// Whether a request under way frees `page`. One that has failed leaves pages behind that nobody
    /// may have and nobody frees, until the program asks again.
    pub(crate) fn is_being_freed(&self, page: PageNo, entry: &PageEntry) -> bool {
        let frees = |request: &OpenRequest| {
            request.kind == RequestKind::Free && request.whole.contains(page)
        };
        entry.has(flag::DOOMED) && self.requests.values().any(frees)
    }

    /// Whether `page` belongs to an allocation that the program was not told of yet.
    pub(crate) fn is_being_allocated(&self, page: PageNo, entry: &PageEntry) -> bool {
        let opens = |request: &OpenRequest| {
            request.kind == RequestKind::Alloc && request.whole.contains(page)
        };
        entry.has(flag::DOOMED) && self.requests.values().any(opens)
    }
}
