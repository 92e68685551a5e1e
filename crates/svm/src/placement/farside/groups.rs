//! What is known of each 64 KiB group, and how far around a fault one card is at home.

use farside_types::{
    AgentId, AgentSet, BLOCK_PAGES, CardId, GROUP_PAGES, IndexMap, MAX_CARDS, PageNo, PageRange,
    Time,
};
use serde::{Deserialize, Serialize};

use crate::GroupFacts;
use crate::placement::Action;

use super::cost::Claim;
use super::{bit, index_in_block};

/// Groups of a block.
pub(super) const PER_BLOCK: u64 = BLOCK_PAGES / GROUP_PAGES;

/// What is known of a group.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Group {
    /// Agents that pages of it were brought to, or mapped for.
    pub(super) had: u32,
    /// When pages of it were last taken from somebody.
    pub(super) taken_at: Time,
    /// Times in a row that it was taken before it had rested.
    pub(super) fights: u8,
    /// A card wrote it.
    pub(super) written: bool,
    /// It is mapped over the bus.
    pub(super) remote: bool,
    /// Pages of it came back from a loan as they were, and no card has written it since.
    pub(super) spared: bool,
    /// Its pages that each card had and has lost for want of room, one bit for each.
    pub(super) evicted: [u16; MAX_CARDS],
    /// Who reaches over most.
    pub(super) claim: Claim,
}

const _: () = assert!(GROUP_PAGES <= u16::BITS as u64);

/// Most blocks that room is made for at once: what nobody touches of it takes addresses only, but there may
/// be a limit to those.
const ROOM_MOST: u64 = 1 << 13;

const UNKNOWN: Group = Group {
    had: 0,
    taken_at: Time::ZERO,
    fights: 0,
    written: false,
    remote: false,
    spared: false,
    evicted: [0; MAX_CARDS],
    claim: Claim::NONE,
};

impl Group {
    /// A card writes it, or has.
    pub(super) fn write(&mut self) {
        self.written = true;
        self.spared = false;
    }

    /// It is taken from somebody, before it had rested or afterwards.
    pub(super) fn fought(&mut self, rested: bool) {
        self.fights = if rested { 0 } else { self.fights.saturating_add(1) };
    }

    /// How it comes to an agent that has paid for it: what others use and no card has written is copied, which nobody loses
    /// by; what nobody else uses had better come with the right to write.
    pub(super) fn goes(&self, agent: AgentId) -> Action {
        if self.written || self.others(agent) == 0 { Action::Migrate } else { Action::Duplicate }
    }

    /// So many others than `agent` have used it.
    pub(super) fn others(&self, agent: AgentId) -> u64 {
        u64::from((self.had & !bit(agent)).count_ones())
    }

    /// For who asks why about one of its pages.
    pub(super) fn facts(&self, page: PageNo) -> GroupFacts {
        GroupFacts {
            pages: PageRange::new(page.align_down(GROUP_PAGES), GROUP_PAGES),
            had: AgentSet(self.had),
            written: self.written,
            fights: self.fights,
            taken_at: (self.taken_at > Time::ZERO).then_some(self.taken_at),
        }
    }
}

/// All groups, by block, dense where cards have been.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Groups {
    /// Looked up only: no result depends on its order.
    blocks: IndexMap<u64, [Group; PER_BLOCK as usize]>,
    /// Blocks that allocations have been in: the first, and the one behind the last.
    #[serde(skip)]
    known: (u64, u64),
}

impl Groups {
    pub(super) fn get(&self, page: PageNo) -> &Group {
        let block = self.blocks.get(&page.block().0);
        block.map_or(&UNKNOWN, |groups| &groups[index_in_block(page)])
    }

    pub(super) fn get_mut(&mut self, page: PageNo) -> &mut Group {
        let block = self.blocks.entry(page.block().0).or_insert([UNKNOWN; PER_BLOCK as usize]);
        &mut block[index_in_block(page)]
    }

    /// Makes room for the groups of `pages`.
    pub(super) fn make_room(&mut self, pages: PageRange) {
        let (first, end) = (pages.start.block().0, pages.end().0.div_ceil(BLOCK_PAGES));
        self.known.0 = if self.known.1 == 0 { first } else { self.known.0.min(first) };
        self.known.1 = self.known.1.max(end);
        let absent = (self.known.1 - self.known.0).saturating_sub(self.blocks.len() as u64);
        // Without it there is room for them when they come.
        let _ = self.blocks.try_reserve(absent.min(ROOM_MOST) as usize);
    }

    /// Whether the agent is a card that had the page, and has lost it for want of room.
    pub(super) fn is_evicted(&self, page: PageNo, agent: AgentId) -> bool {
        let evicted = |card: CardId| self.get(page).evicted[usize::from(card.0)];
        agent.card().is_some_and(|card| evicted(card) & bits(PageRange::page(page)) != 0)
    }

    /// `card` has lost pages of `range` for want of room.
    pub(super) fn evicted(&mut self, range: PageRange, card: CardId) {
        for part in by_group(range) {
            self.get_mut(part.start).evicted[usize::from(card.0)] |= bits(part);
        }
    }

    /// The agent is to get pages of `range`.
    pub(super) fn come(&mut self, range: PageRange, agent: AgentId) {
        let Some(card) = agent.card() else { return };
        for part in by_group(range) {
            self.get_mut(part.start).evicted[usize::from(card.0)] &= !bits(part);
        }
    }

    /// `card` gets pages of `range`.
    pub(super) fn note(&mut self, range: PageRange, card: AgentId) {
        let mut page = range.start;
        while page < range.end() {
            self.get_mut(page).had |= bit(card);
            page = page.align_down(GROUP_PAGES).offset(GROUP_PAGES);
        }
    }

    /// The largest aligned subtree of the block around `page` of which more than half has been
    /// brought to `card`, the page's group included. What is moved goes only where no other card has
    /// been; copies (`shared`) take nothing from anybody. At most `reach` groups.
    pub(super) fn subtree(
        &self,
        page: PageNo,
        card: AgentId,
        shared: bool,
        reach: u64,
    ) -> PageRange {
        let own = index_in_block(page);
        let Some(groups) = self.blocks.get(&page.block().0) else {
            return PageRange::new(page.align_down(GROUP_PAGES), GROUP_PAGES);
        };
        let mut best = (own, 1);
        let mut len = 2;
        while len <= reach as usize {
            let from = own & !(len - 1);
            let part = &groups[from..from + len];
            let foreign = |group: &Group| group.had & !bit(card) != 0;
            if !shared && part.iter().any(foreign) {
                break;
            }
            let here = |&(at, group): &(usize, &Group)| at == own || group.had & bit(card) != 0;
            let full = (from..).zip(part).filter(here).count();
            if full * 2 > len {
                best = (from, len);
            }
            len *= 2;
        }
        let (from, len) = (best.0 as u64 * GROUP_PAGES, best.1 as u64 * GROUP_PAGES);
        PageRange::new(page.align_down(BLOCK_PAGES).offset(from), len)
    }

    /// A card had pages of `range` on loan, and has written all of them, or none.
    pub(super) fn told(&mut self, range: PageRange, written: bool) {
        let mut page = range.start;
        while page < range.end() {
            let group = self.get_mut(page);
            if written {
                group.write()
            } else {
                group.spared = true
            }
            page = page.align_down(GROUP_PAGES).offset(GROUP_PAGES);
        }
    }

    /// Pages that are freed are unknown again.
    pub(super) fn forget(&mut self, pages: PageRange) {
        if self.blocks.is_empty() {
            return;
        }
        let mut page = pages.start;
        while page < pages.end() {
            if let Some(groups) = self.blocks.get_mut(&page.block().0) {
                groups[index_in_block(page)] = UNKNOWN;
            }
            page = page.align_down(GROUP_PAGES).offset(GROUP_PAGES);
        }
    }
}

/// The parts of `range` in each group.
fn by_group(range: PageRange) -> impl Iterator<Item = PageRange> {
    let groups =
        (range.start.align_down(GROUP_PAGES).0..range.end().0).step_by(GROUP_PAGES as usize);
    groups.map(move |start| PageRange::new(PageNo(start), GROUP_PAGES).intersection(range))
}

/// A bit for each page of `part`, which is in one group.
fn bits(part: PageRange) -> u16 {
    let all = ((1u32 << part.count) - 1) << (part.start.0 % GROUP_PAGES);
    all as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: PageNo = PageNo(512 * 7);
    const CARD: AgentId = AgentId(1);

    fn group(index: u64) -> PageNo {
        BLOCK.offset(index * GROUP_PAGES)
    }

    fn size(groups: &Groups, index: u64, shared: bool) -> u64 {
        groups.subtree(group(index), CARD, shared, 32).count / GROUP_PAGES
    }

    #[test]
    fn a_card_at_home_in_more_than_half_of_a_subtree_gets_all_of_it() {
        let mut groups = Groups::default();
        assert_eq!(size(&groups, 0, false), 1);
        groups.note(PageRange::new(group(0), GROUP_PAGES), CARD);
        assert_eq!(size(&groups, 1, false), 2);
        groups.note(PageRange::new(group(1), GROUP_PAGES), CARD);
        assert_eq!(size(&groups, 2, false), 4, "three of four");
        assert_eq!(size(&groups, 4, false), 1, "three of eight");
        groups.note(PageRange::new(group(0), 17 * GROUP_PAGES), CARD);
        assert_eq!(size(&groups, 17, false), 32);
    }

    #[test]
    fn what_is_moved_stops_where_another_card_has_been() {
        let mut groups = Groups::default();
        groups.note(PageRange::new(group(0), 3 * GROUP_PAGES), CARD);
        groups.note(PageRange::new(group(5), GROUP_PAGES), AgentId(2));
        assert_eq!(size(&groups, 4, false), 1);
        assert_eq!(size(&groups, 3, false), 4);
        groups.note(PageRange::new(group(3), 2 * GROUP_PAGES), CARD);
        assert_eq!(size(&groups, 6, false), 1);
        assert_eq!(size(&groups, 6, true), 8, "copies do not mind");
    }

    #[test]
    fn what_has_gone_for_want_of_room_is_known_of_each_page_and_card_until_it_comes() {
        let mut groups = Groups::default();
        let (card, other) = (CardId(0), CardId(15));
        let range = PageRange::new(group(3).offset(5), 2 * GROUP_PAGES + 1);
        groups.evicted(range, card);
        let gone = |groups: &Groups, card: CardId| {
            let pages = PageRange::new(group(0), 16 * GROUP_PAGES).pages();
            pages.filter(|page| groups.is_evicted(*page, card.agent())).collect::<Vec<_>>()
        };
        assert_eq!(gone(&groups, card), range.pages().collect::<Vec<_>>());
        assert_eq!(gone(&groups, other), []);
        assert!(!groups.is_evicted(range.start, AgentId::CPU));
        groups.come(PageRange::page(range.start), card.agent());
        assert_eq!(gone(&groups, card).first(), Some(&range.start.offset(1)));
        groups.evicted(range, other);
        groups.come(range, card.agent());
        assert_eq!((gone(&groups, card).len(), gone(&groups, other).len()), (0, 33));
    }
}
