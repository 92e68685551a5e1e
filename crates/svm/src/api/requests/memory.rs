//! Allocations: made, freed, and their addresses given back.

use std::collections::VecDeque;
use std::sync::Arc;

use farside_types::{PAGE_SIZE, PageNo, PageRange, RequestId, VirtAddr};

use crate::Driver;
use crate::api::journal::Note;
use crate::api::reply::{Outcome, RequestError};
use crate::api::requests::{OpenRequest, Pin, RequestKind};
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
        self.doom(range);
        self.note(Note::Free { pages: range });
        self.open(id, RequestKind::Free, range, VecDeque::from([range]));
        Ok(())
    }

    /// The memory is about to be gone, and with it its pins. Whatever else is asked of it has failed: it
    /// must not go on with what comes to be at the same addresses, nor succeed without the pin it makes.
    pub(super) fn doom(&mut self, range: PageRange) {
        self.table.update(range, |entry| entry.set(flag::DOOMED, true));
        // Adopted memory that holds other data as well stays also where it cannot be given back.
        let gone = |pin: &Pin| !pin.stays && pin.range.overlaps(range);
        let pins = std::mem::take(&mut self.pins).into_iter();
        let (gone, kept) = pins.partition::<Vec<Pin>, _>(gone);
        self.pins = kept;
        for pin in gone {
            self.unmark_pins(pin.range);
        }
        let about = |request: &OpenRequest| {
            request.kind.is_about_live_pages() && request.whole.overlaps(range)
        };
        let open = self.requests.iter().filter(|(_, request)| about(request));
        let open: Vec<_> = open.map(|(&id, request)| (id, request.whole)).collect();
        for (id, whole) in open {
            let page = whole.intersection(range).start;
            self.request_failed(id, RequestError::Freed { page });
        }
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

#[cfg(test)]
mod tests {
    use farside_types::{Access, CardId, MemoryId, RequestId, Rights, Time};

    use super::*;
    use crate::placement::fixture::Fixture;
    use crate::{Command, Event, Reply, Request};

    const CARD: MemoryId = CardId(0).memory();
    const FRAMES: u64 = 8;
    const OWN: PageRange = PageRange::new(PageNo(7 << 20), FRAMES);

    /// A driver whose commands are carried out when the test says so.
    struct Held {
        driver: Driver,
        /// What fills the card.
        full: PageRange,
        commands: Vec<Command>,
        replies: Vec<(RequestId, Result<Outcome, RequestError>)>,
        next: u64,
    }

    impl Held {
        /// The only card is full of pages that it writes.
        fn new() -> Held {
            let mut fixture = Fixture::untouched("on-touch", 1, FRAMES as u32, FRAMES);
            fixture.pages.pages().for_each(|page| fixture.write(0, page));
            let (driver, full) = (fixture.driver, fixture.pages);
            Held { driver, full, commands: Vec::new(), replies: Vec::new(), next: 1 << 40 }
        }

        fn handle(&mut self, event: Event<'_>) {
            self.driver.handle(Time(1 << 50), event);
            while let Some(command) = self.driver.poll_command() {
                self.commands.push(command);
            }
            while let Some(reply) = self.driver.poll_reply() {
                if let Reply::Request { id, result } = reply {
                    self.replies.push((id, result));
                }
            }
        }

        fn ask(&mut self, request: Request) -> RequestId {
            self.next += 1;
            let id = RequestId(self.next);
            self.handle(Event::Request { id, request, after: &[] });
            id
        }

        /// Carries out what is held and whatever comes of it, but for commands of this name.
        fn carry_out(&mut self, but_for: &str) {
            let due = |command: &Command| command.name() != but_for;
            while let Some(at) = self.commands.iter().position(due) {
                let command = self.commands.remove(at);
                self.handle(command.header().done(Ok(())));
            }
            self.driver.check().expect("the driver's tables agree");
        }

        fn answers(&self, id: RequestId) -> Vec<&Result<Outcome, RequestError>> {
            self.replies.iter().filter(|(of, _)| *of == id).map(|(_, result)| result).collect()
        }

        fn make(&mut self, adopted: bool) -> PageRange {
            let (bytes, name) = (OWN.bytes(), Arc::from(""));
            let id = self.ask(match adopted {
                true => Request::Adopt { range: OWN, bytes, name, moves: true },
                false => Request::Alloc { bytes, name },
            });
            match self.answers(id)[..] {
                [&Ok(Outcome::Allocated(range))] => range,
                [&Ok(Outcome::Done { .. })] => OWN,
                ref other => panic!("there is room: {other:?}"),
            }
        }

        fn give_up(&mut self, adopted: bool, range: PageRange) -> RequestId {
            let addr = range.start.addr();
            self.ask(if adopted { Request::Disown { addr } } else { Request::Free { addr } })
        }

        fn is_home_and_free(&self, range: PageRange) -> bool {
            range.pages().all(|page| {
                let view = self.driver.page(page);
                !view.copies.contains(CARD) && !view.pinned
            })
        }
    }

    /// What a program may ask to have pages on the card: the first two wait for room, all for pages under way.
    fn moves(range: PageRange) -> [Request; 3] {
        [
            Request::Pin { range, at: CARD },
            Request::Migrate { range, to: CARD },
            Request::Prefetch { range, to: CARD, access: Access::Write },
        ]
    }

    #[test]
    fn what_waits_for_memory_that_is_freed_fails_and_has_nothing_to_do_with_the_next_at_its_addresses()
     {
        for (adopted, kind) in [(false, 0), (false, 1), (true, 0), (true, 1)] {
            let mut held = Held::new();
            let range = held.make(adopted);
            let waits = held.ask(moves(range)[kind].clone());
            assert!(held.answers(waits).is_empty(), "the card is full");
            let gone = held.give_up(adopted, range);
            let freed = Err(RequestError::Freed { page: range.start });
            assert_eq!(held.answers(waits), [&freed]);
            // The room that it waited for comes when the addresses are another's.
            held.carry_out("card-unmap");
            assert!(matches!(held.answers(gone)[..], [Ok(_)]), "{:?}", held.replies);
            let next = held.make(adopted);
            assert_eq!(next, range);
            held.carry_out("");
            assert_eq!(held.answers(waits).len(), 1);
            assert!(held.is_home_and_free(next), "adopted {adopted}, request {kind}");
        }
    }

    #[test]
    fn a_request_about_two_memories_fails_with_one_of_them_and_leaves_no_pin_of_the_other() {
        let behind = PageRange::new(OWN.end(), 4);
        let both = PageRange::new(OWN.start.offset(4), 8);
        let protect = Request::Protect { range: both, rights: Rights::Read };
        for request in moves(both).into_iter().chain([protect]) {
            let mut held = Held::new();
            held.make(true);
            let (name, bytes) = (Arc::from(""), behind.bytes());
            let adopt = Request::Adopt { range: behind, bytes, name, moves: true };
            held.ask(adopt.clone());
            held.ask(Request::Free { addr: held.full.start.addr() });
            held.carry_out("");
            // The first of its pages are under way, and the others are not.
            let first = PageRange::new(both.start, 4);
            held.ask(Request::Prefetch { range: first, to: CARD, access: Access::Write });
            let waits = held.ask(request.clone());
            assert!(held.answers(waits).is_empty(), "{request:?} does not wait");
            held.give_up(true, behind);
            held.ask(adopt.clone());
            held.carry_out("");
            assert_eq!(held.answers(waits), [&Err(RequestError::Freed { page: behind.start })]);
            assert!(both.pages().all(|page| !held.driver.page(page).pinned), "{request:?}");
        }
    }

    #[test]
    fn a_pin_of_two_memories_goes_with_one_of_them() {
        let mut fixture = Fixture::untouched("on-touch", 1, 32, 1);
        let adopt = |range: PageRange| {
            let (name, bytes) = (Arc::from(""), range.bytes());
            Request::Adopt { range, bytes, name, moves: true }
        };
        let behind = PageRange::new(OWN.end(), 4);
        let both = PageRange::new(OWN.start, FRAMES + 4);
        for range in [OWN, behind] {
            fixture.ask(adopt(range)).unwrap();
        }
        fixture.ask(Request::Pin { range: both, at: CARD }).unwrap();
        fixture.ask(Request::Disown { addr: behind.start.addr() }).unwrap();
        assert!(OWN.pages().all(|page| !fixture.driver.page(page).pinned));
        fixture.ask(Request::Migrate { range: OWN, to: MemoryId::HOST }).unwrap();
    }
}
