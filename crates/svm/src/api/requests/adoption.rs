//! Memory that the program had before the space: taken in, and given back.

use std::collections::VecDeque;
use std::sync::Arc;

use farside_types::{
    Access, AgentId, MemoryId, MemorySet, PageNo, PageRange, Reason, RequestId, VirtAddr,
};

use crate::Driver;
use crate::api::journal::Note;
use crate::api::reply::RequestError;
use crate::api::requests::{Pin, RequestKind};
use crate::migration::transition::Transition;
use crate::mutation::Mutation;
use crate::placement::Action;
use crate::tables::page::{Directory, PageEntry, PageState, flag};

impl Driver {
    pub(super) fn adopt(
        &mut self,
        id: RequestId,
        range: PageRange,
        bytes: u64,
        name: Arc<str>,
        moves: bool,
    ) -> Result<(), RequestError> {
        if range.is_empty() {
            return Err(RequestError::EmptyRange);
        }
        let known = self.space.overlapping(range).map(|object| object.range);
        let arena = Some(self.config.arena).filter(|arena| arena.overlaps(range));
        if let Some(known) = known.or(arena) {
            return Err(RequestError::InTheSpace { range, known });
        }
        if range.end().0 >= 1 << 51 || !self.space.adopt(range, bytes, Arc::clone(&name)) {
            let (pages, largest_gap) = (range.count, self.space.largest_gap());
            return Err(RequestError::OutOfAddressSpace { pages, largest_gap });
        }
        // They keep the same blocks as the allocations from here on.
        self.table.adopt(range);
        for card in &mut self.cards {
            card.residency.lay_out(self.space.layout().clone());
        }
        self.note(Note::Alloc { pages: range, name: &name });
        self.make_room(range);
        let directory = Directory::adopted(moves);
        let (state, owner) = (PageState::Host, MemoryId::HOST.0);
        let pinned = !moves && !self.mutated.on(Mutation::MoveWhatStays);
        let flags = flag::HOST_BACKED | if pinned { flag::PINNED } else { 0 };
        self.table.for_each_mut(range, |_, entry| {
            *entry = PageEntry { directory, state, flags, owner, ..PageEntry::default() };
        });
        if pinned {
            self.pins.push(Pin { range, at: MemoryId::HOST, ready: true, stays: true });
        }
        self.reply_done(id, 0);
        Ok(())
    }

    pub(super) fn disown(&mut self, id: RequestId, addr: VirtAddr) -> Result<(), RequestError> {
        let adopted = |range: &PageRange| !self.config.arena.contains(range.start);
        let Some(range) = self.whole_at(addr).filter(adopted) else {
            return Err(RequestError::NotAnAllocation { addr });
        };
        self.doom(range);
        self.open(id, RequestKind::Disown, range, VecDeque::from([range]));
        Ok(())
    }

    /// What takes a page home to the program; `None` if it is there, or lost.
    pub(super) fn disown_transition(
        &self,
        page: PageNo,
        entry: &PageEntry,
    ) -> Result<Option<Transition>, RequestError> {
        let directory = entry.directory;
        let copies = directory.copies();
        if copies.is_empty() || self.mutated.on(Mutation::GiveBackElsewhere) {
            return Ok(None);
        }
        let home = copies == MemorySet::only(MemoryId::HOST) && !entry.has(flag::POISONED);
        if home && directory.writers().contains(AgentId::CPU) {
            let mut transition = Transition::unchanged(copies, entry.owner(), Reason::Return);
            transition.stop = directory.mappers().without(AgentId::CPU);
            return Ok((!transition.stop.is_empty()).then_some(transition));
        }
        let (agent, from, to) = (AgentId::CPU, entry.owner(), MemoryId::HOST);
        self.transition(entry, agent, Access::Write, Action::Migrate, Reason::Return, false)
            .map(Some)
            .map_err(|_| RequestError::CopyFailed { page, from, to })
    }

    /// A request to give adopted memory back has ended.
    pub(super) fn disowned(&mut self, range: PageRange, well: bool) {
        if !well {
            return self.table.update(range, |entry| entry.set(flag::DOOMED, false));
        }
        self.pins.retain(|pin| !pin.range.overlaps(range));
        self.note(Note::Free { pages: range });
        self.placement.on_free(range);
        // A card that has not let go reaches its own frames of it, and nothing of the program's.
        self.give_addresses_back(range);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use farside_types::{Access, BLOCK_PAGES, CardId, PageNo, PageRange};

    use super::*;
    use crate::placement::{NAMES, fixture::Fixture};
    use crate::{Command, Event, HostOp, Outcome, Request, RingOp, Step};

    const FAR: PageRange = PageRange::new(PageNo((7 << 20) + 500), 40);
    const LOW: PageRange = PageRange::new(PageNo(33), 3 * BLOCK_PAGES);

    fn adopt(
        fixture: &mut Fixture,
        range: PageRange,
        moves: bool,
    ) -> Result<Outcome, RequestError> {
        fixture.ask(Request::Adopt { range, bytes: range.bytes(), name: "mine".into(), moves })
    }

    fn disown(fixture: &mut Fixture, range: PageRange) -> Result<Outcome, RequestError> {
        fixture.ask(Request::Disown { addr: range.start.addr() })
    }

    /// Whether a card has a page on the host mapped.
    fn reached_on_host(fixture: &Fixture, range: PageRange) -> bool {
        range.pages().any(|page| {
            let cards = fixture.mapped_by(page);
            !fixture.copies(page).iter().any(|&memory| memory > 0) && !cards.is_empty()
        })
    }

    #[test]
    fn what_is_adopted_goes_to_cards_and_home_under_every_scheme() {
        for scheme in NAMES {
            let mut fixture = Fixture::untouched(scheme, 2, 4096, 16);
            adopt(&mut fixture, FAR, true).unwrap();
            adopt(&mut fixture, LOW, true).unwrap();
            let mut at = 1u64;
            for _ in 0..3000 {
                at = at.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                let range = if at >> 60 & 1 == 0 { FAR } else { LOW };
                let page = range.start.offset((at >> 20) % range.count);
                let access = if at >> 61 & 1 == 0 { Access::Read } else { Access::Write };
                match at >> 62 {
                    0 => fixture.cpu_if_unmapped(page, access),
                    card if access.is_write() => fixture.write(card as u8 % 2, page),
                    card => fixture.read(card as u8 % 2, page),
                }
            }
            assert!(fixture.brought() > 0, "{scheme}");
            for range in [FAR, LOW] {
                assert!(!reached_on_host(&fixture, range), "{scheme}: by a card on the host");
                disown(&mut fixture, range).unwrap();
                assert!(range.pages().all(|page| fixture.copies(page).is_empty()));
                let again = disown(&mut fixture, range);
                assert!(matches!(again, Err(RequestError::NotAnAllocation { .. })), "{again:?}");
            }
            // The same pages again, and what has been adopted before is as if it never was.
            adopt(&mut fixture, LOW, true).unwrap();
            assert!(LOW.pages().all(|page| fixture.copies(page) == [0]));
        }
    }

    #[test]
    fn what_does_not_move_is_reached_where_it_is() {
        for scheme in NAMES {
            let mut fixture = Fixture::untouched(scheme, 2, 64, 16);
            adopt(&mut fixture, FAR, false).unwrap();
            for page in FAR.pages() {
                fixture.write(0, page);
                fixture.write(1, page);
                fixture.read(1, page);
                fixture.counter(0, PageRange::page(page));
            }
            assert!(FAR.pages().all(|page| fixture.copies(page) == [0]), "{scheme}");
            assert!(reached_on_host(&fixture, FAR), "{scheme}");
            // What the program has not pinned it cannot unpin; its own pin of the same pages it can.
            let unpin = Request::Unpin { range: FAR };
            fixture.ask(Request::Pin { range: FAR, at: MemoryId::HOST }).unwrap();
            fixture.ask(unpin.clone()).unwrap();
            let refused = fixture.ask(unpin);
            assert!(matches!(refused, Err(RequestError::NotPinned { .. })), "{refused:?}");
            let refused = fixture.ask(Request::Migrate { range: FAR, to: MemoryId(1) });
            assert!(matches!(refused, Err(RequestError::Pinned { .. })), "{refused:?}");
            disown(&mut fixture, FAR).unwrap();
            assert!(FAR.pages().all(|page| fixture.mapped_by(page).is_empty()), "{scheme}");
        }
    }

    #[test]
    fn what_is_the_spaces_already_is_not_adopted_again() {
        let mut fixture = Fixture::untouched("farside", 1, 64, 16);
        adopt(&mut fixture, FAR, true).unwrap();
        let arena = fixture.pages;
        let (before, behind) = (FAR.start.0 - 1, FAR.end().0 - 1);
        for (start, count) in [(before, 2), (behind, 1), (behind, 9), (FAR.start.0 + 3, 1)] {
            let refused = adopt(&mut fixture, PageRange::new(PageNo(start), count), true);
            assert!(
                matches!(refused, Err(RequestError::InTheSpace { known, .. }) if known == FAR),
                "{refused:?}"
            );
        }
        let refused = adopt(&mut fixture, PageRange::page(PageNo(arena.start.0)), true);
        assert!(matches!(refused, Err(RequestError::InTheSpace { .. })), "{refused:?}");
        let refused = adopt(&mut fixture, PageRange::new(FAR.end(), 0), true);
        assert_eq!(refused, Err(RequestError::EmptyRange));
        let refused = fixture.ask(Request::Free { addr: FAR.start.addr() });
        assert!(matches!(refused, Err(RequestError::NotAnAllocation { .. })), "{refused:?}");
        let refused = disown(&mut fixture, arena);
        assert!(matches!(refused, Err(RequestError::NotAnAllocation { .. })), "{refused:?}");
        adopt(&mut fixture, PageRange::new(FAR.end(), 1), true).unwrap();
    }

    #[test]
    fn what_is_recalled_comes_home_from_a_pin_which_takes_it_back() {
        let mut fixture = Fixture::untouched("farside", 2, 64, 16);
        adopt(&mut fixture, FAR, true).unwrap();
        let pinned = PageRange::new(FAR.start.offset(3), 5);
        fixture.ask(Request::Pin { range: pinned, at: MemoryId(1) }).unwrap();
        FAR.pages().take(6).for_each(|page| fixture.write(0, page));
        fixture.write(1, FAR.start.offset(9));
        fixture.handle(Event::CardLost { card: CardId(1) });
        let refused = fixture.ask(Request::Migrate { range: FAR, to: MemoryId::HOST });
        assert!(matches!(refused, Err(RequestError::Pinned { .. })), "{refused:?}");
        fixture.ask(Request::Recall { range: FAR }).unwrap();
        let home = |fixture: &Fixture, page: PageNo| fixture.copies(page) == [0];
        let lost = FAR.start.offset(9);
        assert!(FAR.pages().filter(|&page| page != lost).all(|page| home(&fixture, page)));
        fixture.write(0, pinned.start);
        assert_eq!(fixture.copies(pinned.start), [1], "the pin's own agent takes it back");
        fixture.ask(Request::Unpin { range: pinned }).unwrap();
    }

    #[test]
    fn what_was_lost_with_a_card_is_told_before_the_rest_goes_home() {
        let mut fixture = Fixture::untouched("on-touch", 2, 64, 16);
        adopt(&mut fixture, FAR, true).unwrap();
        fixture.write(0, FAR.start);
        fixture.write(1, FAR.start.offset(1));
        fixture.handle(Event::CardLost { card: CardId(0) });
        let lost: Vec<PageRange> = fixture.driver.lost(FAR);
        assert_eq!(lost, [PageRange::page(FAR.start)]);
        disown(&mut fixture, FAR).unwrap();
        adopt(&mut fixture, FAR, true).unwrap();
        assert!(fixture.driver.lost(FAR).is_empty());
    }

    proptest! {
        /// Every command of giving memory back fails, once and for ever: it is as it was, and the CPU has
        /// never been without it.
        #[test]
        fn what_cannot_be_taken_home_is_adopted_as_before(seed in any::<u64>(), for_ever in any::<bool>()) {
            let mut fixture = Fixture::untouched("on-touch", 2, 64, 16);
            adopt(&mut fixture, FAR, true).unwrap();
            for (n, page) in FAR.pages().enumerate() {
                if seed >> (n % 64) & 1 == 1 {
                    fixture.write((n % 2) as u8, page);
                }
            }
            fixture.fail_copies(if for_ever { u64::MAX } else { 1 });
            let given_back = disown(&mut fixture, FAR);
            fixture.fail_copies(0);
            if given_back.is_err() {
                prop_assert!(for_ever && seed & ((1 << 40) - 1) != 0);
                for page in FAR.pages() {
                    fixture.cpu_if_unmapped(page, Access::Write);
                    prop_assert_eq!(fixture.copies(page), [0]);
                }
                fixture.write(0, FAR.start);
                disown(&mut fixture, FAR).unwrap();
            }
        }
    }

    #[test]
    fn a_fault_that_comes_after_its_page_was_given_back_poisons_nothing() {
        let mut fixture = Fixture::untouched("farside", 1, 64, 16);
        adopt(&mut fixture, FAR, true).unwrap();
        disown(&mut fixture, FAR).unwrap();
        let mut driver = fixture.driver;
        let now = farside_types::Time(1 << 50);
        driver.handle(now, Event::HostFault { page: FAR.start, access: Access::Write });
        assert_eq!(driver.poll_command(), None);
        assert!(driver.poll_reply().is_none());
    }

    #[test]
    fn a_card_that_confirms_what_is_partly_given_back_breaks_nothing() {
        let mut fixture = Fixture::untouched("farside", 1, 64, 16);
        adopt(&mut fixture, FAR, true).unwrap();
        // Its first block stays in the tables because of the neighbour.
        let neighbour = PageRange::new(PageNo(FAR.start.0 - 2), 2);
        adopt(&mut fixture, neighbour, true).unwrap();
        disown(&mut fixture, FAR).unwrap();
        // It gets the place of the second block of the two.
        adopt(&mut fixture, PageRange::new(LOW.start, 1), true).unwrap();
        let mut driver = fixture.driver;
        driver.confirm(farside_types::AgentSet::EMPTY, std::iter::once(FAR));
        assert!(driver.lost(FAR).is_empty());
    }

    #[test]
    fn all_parts_of_a_range_of_several_allocations_are_located() {
        let mut fixture = Fixture::untouched("farside", 1, 64, 16);
        let edge = PageRange::new(PageNo(FAR.start.0 - 1), 1);
        adopt(&mut fixture, edge, false).unwrap();
        adopt(&mut fixture, FAR, true).unwrap();
        let all = PageRange::new(edge.start, 1 + FAR.count);
        let parts = fixture.driver.locate(PageRange::new(all.start, all.count + 9));
        assert_eq!(parts.iter().map(|part| part.range).collect::<Vec<_>>(), [all]);
    }

    #[test]
    fn no_card_is_told_to_map_its_page_on_the_host() {
        let mut fixture = Fixture::untouched("farside", 2, 64, 16);
        adopt(&mut fixture, FAR, true).unwrap();
        let mut driver = fixture.driver;
        let faults: Vec<crate::CardFault> = FAR
            .pages()
            .zip(1000..)
            .map(|(page, id)| crate::CardFault {
                id: farside_types::FaultId(id),
                need: crate::Need::Page(page, Access::Read),
            })
            .collect();
        let now = farside_types::Time(1 << 50);
        driver.handle(now, Event::CardFaults { card: CardId(1), faults: &faults });
        let mut told = 0;
        while let Some(command) = driver.poll_command() {
            match &command {
                Command::Ring(_, Step { op: RingOp::Map { memory, .. }, .. }) => {
                    assert!(!memory.is_host())
                }
                Command::Host(Step {
                    op: HostOp::Protect { .. } | HostOp::Unmap { .. }, ..
                }) => told += 1,
                _ => {}
            }
            let done = command.header().done(Ok(()));
            driver.handle(now, done);
        }
        assert!(told > 0);
    }
}
