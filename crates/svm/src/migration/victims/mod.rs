//! Who leaves a full card (driver rule 9), and the look at those who stay.

#[cfg(test)]
mod tests;

use farside_types::{CardId, CommandId, FrameNo, PageNo, PageRange, Time};

use crate::Driver;
use crate::api::command::{RingOp, Run, Runs};
use crate::api::requests::Pin;
use crate::driver::CardState;
use crate::migration::chain::push_page;
use crate::mutation::Mutation;
use crate::tables::page::{PageEntry, PageState, flag, micros};
use crate::tables::replacement::Replacement;
use crate::waiting::{Until, Work};

impl Driver {
    /// Pages that leave together, so that not each newcomer needs an eviction.
    pub(super) fn batch(&self, card: CardId) -> u32 {
        let CardState { frames, running, .. } = &self.cards[card.0 as usize];
        let most = self.config.limits.evict_pages.min(frames.total() / 8).max(1);
        frames.replacement.as_ref().map_or(most, |order| order.batch(*running).min(most))
    }

    /// Finds up to `wanted` pages that may leave `card`, ascending.
    pub(super) fn victims(
        &mut self,
        card: CardId,
        wanted: u32,
        first: Option<Work>,
        victims: &mut Vec<PageNo>,
    ) {
        self.newcomers(card, wanted, first, victims);
        let total = self.cards[card.0 as usize].frames.total();
        // Twice round: the first spares what was used, and the second nobody.
        for step in 0..2 * u64::from(total) {
            let spares_used = step < u64::from(total);
            if victims.len() as u32 >= wanted {
                break;
            }
            let frames = &mut self.cards[card.0 as usize].frames;
            let frame = frames.advance_hand();
            let Some(index) = frames.page_in(frame) else {
                continue;
            };
            let spares = |order: &Replacement| {
                order.is_newcomer(frame) || (spares_used && order.is_in_use(frame))
            };
            let page = self.table.page_at(index);
            if !frames.replacement.as_ref().is_some_and(spares)
                && self.may_leave(card, page, first)
                && !(spares_used && self.takes_second_chance(page))
            {
                victims.push(page);
            }
        }
        victims.sort_unstable();
        self.take_blocks_along(card, victims, first);
        victims.sort_unstable();
        victims.dedup();
    }

    /// Adds the blocks of pages, which are ascending, whose allocations move in blocks.
    fn take_blocks_along(&self, card: CardId, victims: &mut Vec<PageNo>, first: Option<Work>) {
        let mut last = PageRange::default();
        for at in 0..victims.len() {
            let block = self.space.block_of(victims[at]);
            let Some(block) = block.filter(|block| *block != last) else { continue };
            victims.extend(block.pages().filter(|&page| self.may_leave(card, page, first)));
            last = block;
        }
    }

    /// Finds up to `wanted` newcomers that may leave, those that came first.
    fn newcomers(
        &mut self,
        card: CardId,
        wanted: u32,
        first: Option<Work>,
        leaving: &mut Vec<PageNo>,
    ) {
        let frames = &self.cards[card.0 as usize].frames;
        for _ in 0..frames.replacement.as_ref().map_or(0, Replacement::queued) {
            if leaving.len() as u32 >= wanted {
                break;
            }
            let frames = &mut self.cards[card.0 as usize].frames;
            let Some(frame) = frames.replacement.as_mut().and_then(Replacement::rotate) else {
                break;
            };
            let Some(index) = frames.page_in(frame) else { continue };
            let page = self.table.page_at(index);
            if self.may_leave(card, page, first) {
                leaving.push(page);
            }
        }
    }

    /// Whether the page was used since the hand last passed; it counts once.
    fn takes_second_chance(&mut self, page: PageNo) -> bool {
        let entry = self.table.get_mut(page);
        let used = entry.has(flag::REFERENCED);
        entry.set(flag::REFERENCED, false);
        used
    }

    /// So many pages leave `card`: perhaps it is time to see whether those that stay are in use.
    ///
    /// A card that is slow to tell is not asked about all of its pages twice: what has to be done soon would
    /// wait behind questions.
    pub(super) fn look_at_stayers(&mut self, now: Time, card: CardId, leaving: u32) {
        if self.pages_asked(card) >= u64::from(self.config.card_frames[card.0 as usize]) / 2 {
            return;
        }
        let frames = &mut self.cards[card.0 as usize].frames;
        let Some(order) = &mut frames.replacement else { return };
        let Some(stretch) = order.look(leaving, micros(now)) else { return };
        let mut held = self.scratch.held.take();
        for frame in stretch.map(FrameNo) {
            let is_stayer = frames.replacement.as_ref().is_some_and(|o| o.is_stayer(frame));
            held.extend(frames.page_in(frame).filter(|_| is_stayer).map(|index| (index, frame)));
        }
        held.sort_unstable();
        let mut runs = Runs::new();
        for &(index, frame) in &held {
            push_page(&mut runs, self.table.page_at(index), frame, frame);
        }
        self.scratch.held.keep(held);
        if runs.is_empty() {
            return;
        }
        if self.config.capabilities.tells.contains(card.memory()) {
            self.issue_detached(card, RingOp::Accessed { runs });
        } else {
            self.stayers_looked_at(card, flat(&runs).map(|(page, frame)| (page, frame, false)));
        }
    }

    /// A card has told which of `pages` pages of a command, from page `first` on, were used.
    pub(crate) fn stayers_told(
        &mut self,
        command: CommandId,
        first: u64,
        pages: u64,
        bits: &[u64],
    ) {
        let Some((card, runs)) = self.asked_about(command) else { return };
        let used = |at: u64| {
            let word = bits.get((at / 64) as usize);
            word.is_none_or(|word| word >> (at % 64) & 1 == 1)
        };
        let told = flat(&runs).skip(first as usize).take(pages as usize);
        let told = (0..).zip(told).map(|(at, (page, frame))| (page, frame, used(at)));
        self.stayers_looked_at(card, told);
    }

    /// What a card knows of the use of pages, with the frames that they had when it was asked.
    fn stayers_looked_at(
        &mut self,
        card: CardId,
        told: impl Iterator<Item = (PageNo, FrameNo, bool)>,
    ) {
        let mut seen = self.scratch.seen.take();
        for (page, frame, used) in told {
            // Whose page has left meanwhile is another's frame.
            let frames = &self.cards[card.0 as usize].frames;
            if frames.page_in(frame) == Some(self.table.index(page)) {
                seen.push((frame, self.takes_second_chance(page) | used));
            }
        }
        if let Some(order) = &mut self.cards[card.0 as usize].frames.replacement {
            order.looked_at(seen.iter().copied());
        }
        self.scratch.seen.keep(seen);
    }

    fn may_leave(&self, card: CardId, page: PageNo, first: Option<Work>) -> bool {
        let entry = self.table.get(page);
        let pinned =
            self.is_pinned_at(page, entry, card) && !self.mutated.on(Mutation::EvictPinned);
        let held = !matches!(entry.state, PageState::Card | PageState::Replicated);
        // It has left already; its old frame is about to be given back by the chain that took it.
        let copies = entry.directory.copies();
        let gone = !copies.contains(card.memory());
        // The host's frame may still be written by a card that did not answer.
        let homeless = entry.has(flag::HOST_UNSAFE) && copies.without(card.memory()).is_empty();
        if pinned
            || held
            || gone
            || homeless
            || self.is_being_poisoned(page, entry)
            || entry.has(flag::STAYS)
            || self.is_being_freed(page, entry)
            || entry.has(flag::PLANNED)
        {
            return false;
        }
        let waiting = self.waiting.queue(Until::Frames(card));
        match first {
            None => {
                let mut groups = waiting.filter_map(|work| self.waiting_fault(work));
                !self.is_requested(page, card.memory(), u64::MAX)
                    && !groups.any(|group| group.needs(page))
            }
            Some(Work::Request(id)) => {
                let own = self.serial_of(id).saturating_add(1);
                !self.is_requested(page, card.memory(), own)
            }
            Some(work) => !self.waiting_fault(work).is_some_and(|group| group.needs(page)),
        }
    }

    /// Whether the program has pinned the page to `card`. One that is pinned elsewhere, and came here
    /// because its user does not reach it there, is no better than others; a pin ends with its
    /// allocation, also where the free fails.
    pub(super) fn is_pinned_at(&self, page: PageNo, entry: &PageEntry, card: CardId) -> bool {
        let here = |pin: &Pin| pin.at == card.memory() && pin.range.contains(page);
        entry.has(flag::PINNED) && self.pins.iter().any(here)
    }
}

/// The pages of runs with the frames that they are in.
fn flat(runs: &[Run]) -> impl Iterator<Item = (PageNo, FrameNo)> {
    let of_run = |run: &Run| {
        let run = *run;
        (0..run.count).map(move |i| (run.page.offset(u64::from(i)), run.dst.offset(i)))
    };
    runs.iter().flat_map(of_run)
}
