//! Room on a card: frames for those who come, eviction of those who were there.
//!
//! The contract of oversubscription (driver rule 9):
//! - a card that is full sends pages to the host, at least [`crate::Limits::evict_pages`] at a time
//!   (an eighth of its memory at most), by a clock hand over its frames: pages used since the hand
//!   last passed get a second round;
//! - pages that are pinned, on the move, wanted by a request under way or by a grouped fault that
//!   waits for room stay;
//! - a page with a valid copy elsewhere leaves without being copied;
//! - those who wait for room get it in the order they came; only what can never be had is refused
//!   ([`farside_types::CancelReason::OutOfMemory`]).

use farside_types::{CancelReason, CardId, FrameNo, PageNo, PageRange, Time};

use crate::Driver;
use crate::chain::Stage;
use crate::command::Run;
use crate::event::Need;
use crate::fault::Work;
use crate::mutation::Mutation;
use crate::page::{PageState, flag};
use crate::serve::Plan;

impl Driver {
    /// Frames of `card` that a newcomer may take: none while others wait for some.
    pub(crate) fn room(&self, card: CardId) -> u32 {
        let state = &self.cards[card.0 as usize];
        if state.waiting.is_empty() { state.frames.free() } else { 0 }
    }

    /// Takes frames for all pages of `runs`; the caller has made sure that there are as many.
    pub(crate) fn take_frames(&mut self, card: CardId, pages: u32, runs: &mut Vec<Run>) {
        let mut placed = Vec::with_capacity(runs.len());
        let table = &self.table;
        let frames = &mut self.cards[card.0 as usize].frames;
        let mut pieces: Vec<(FrameNo, u32)> = Vec::new();
        for run in runs.iter() {
            pieces.clear();
            let found = frames.allocate(run.count, |frame, count| pieces.push((frame, count)));
            assert!(found, "{pages} frames were counted on {card}");
            let mut done = 0;
            for &(frame, count) in &pieces {
                let page = run.page.offset(u64::from(done));
                placed.push(Run { page, count, src: run.src.offset(done), dst: frame });
                let index = table.index(page);
                for i in 0..count {
                    frames.assign(frame.offset(i), index + i);
                }
                done += count;
            }
        }
        *runs = placed;
    }

    /// `work` waits until there are `pages` more frames on `card`; somebody is evicted for it.
    pub(crate) fn wait_for_frames(
        &mut self,
        now: Time,
        card: CardId,
        pages: u32,
        work: impl Iterator<Item = Work>,
    ) {
        let state = &mut self.cards[card.0 as usize];
        for item in work {
            if !state.waiting.contains(&item) {
                state.waiting.push_back(item);
            }
        }
        let coming = state.frames.free() + state.evicting;
        if pages > coming {
            self.evict(now, card, pages - coming);
        }
        self.starve(card);
    }

    /// Sends at least `need` pages of `card` away, if as many may go.
    fn evict(&mut self, now: Time, card: CardId, need: u32) {
        let total = self.cards[card.0 as usize].frames.total();
        let batch = self.config.limits.evict_pages.min(total / 8).max(1);
        let victims = self.victims(card, need.max(batch));
        let mut plan = Plan::default();
        for page in victims {
            let entry = *self.table.get(page);
            if let Some(shape) = self.shape_eviction(&entry, card.memory()) {
                let (src, dst) = self.frames_for(page, &entry, &shape);
                plan.add(shape, page, src, dst);
            }
        }
        self.start_plan(now, plan, None);
    }

    /// Up to `wanted` pages that may leave `card`, ascending.
    fn victims(&mut self, card: CardId, wanted: u32) -> Vec<PageNo> {
        let mut victims = Vec::new();
        let total = self.cards[card.0 as usize].frames.total();
        // Twice round: the first round takes the second chance away, the second round evicts.
        for _ in 0..2 * u64::from(total) {
            if victims.len() as u32 >= wanted {
                break;
            }
            let frames = &mut self.cards[card.0 as usize].frames;
            let frame = frames.advance_hand();
            let Some(index) = frames.page_in(frame) else {
                continue;
            };
            let page = self.table.page_at(index);
            if self.may_leave(card, page) {
                victims.push(page);
            }
        }
        victims.sort_unstable();
        victims.dedup();
        victims
    }

    fn may_leave(&mut self, card: CardId, page: PageNo) -> bool {
        let entry = self.table.get(page);
        let pinned = entry.has(flag::PINNED) && !self.mutated.on(Mutation::EvictPinned);
        let held = !matches!(entry.state, PageState::Card | PageState::Replicated);
        // It has left already; its old frame is about to be given back by the chain that took it.
        let gone = !entry.directory.copies().contains(card.memory());
        if pinned || held || gone || entry.has(flag::DOOMED) || entry.has(flag::PLANNED) {
            return false;
        }
        if entry.has(flag::REFERENCED) {
            self.table.get_mut(page).set(flag::REFERENCED, false);
            return false;
        }
        !self.is_requested(page, card.memory()) && !self.is_awaited(card, page)
    }

    /// Frames of `card` that cannot be freed for a request about `range`: what is in them is pinned,
    /// or wanted there by others.
    fn frames_held(&self, card: CardId, range: PageRange) -> u64 {
        let frames = &self.cards[card.0 as usize].frames;
        let held = |&frame: &u32| {
            frames.page_in(FrameNo(frame)).is_some_and(|index| {
                let page = self.table.page_at(index);
                let wanted =
                    self.is_requested(page, card.memory()) || self.is_awaited(card, page);
                !range.contains(page) && (wanted || self.table.get(page).has(flag::PINNED))
            })
        };
        (0..frames.total()).filter(held).count() as u64
    }

    /// Whether a grouped fault that waits for room needs `page`.
    fn is_awaited(&self, card: CardId, page: PageNo) -> bool {
        self.cards[card.0 as usize].waiting.iter().any(|work| match work {
            Work::Fault(key) => self
                .faults
                .get(*key)
                .is_some_and(|fault| matches!(fault.need, Need::Group(_)) && fault.needs(page)),
            _ => false,
        })
    }

    /// If nothing can ever free a frame of `card`, the first that waits is refused. Only
    /// a group needs more than one frame to go on.
    fn starve(&mut self, card: CardId) {
        let memory = card.memory();
        let busy = self.chains.iter().any(|chain| {
            chain.stage != Stage::Idle
                && chain.parts.iter().any(|part| {
                    let shape = &part.shape;
                    shape.before.contains(memory) || shape.after.contains(memory)
                })
        });
        let idle = self.has_idle_chain();
        let state = &mut self.cards[card.0 as usize];
        if busy || state.evicting > 0 || !idle {
            return;
        }
        let group = match state.waiting.front() {
            Some(Work::Fault(key)) => {
                self.faults.get(*key).is_some_and(|fault| matches!(fault.need, Need::Group(_)))
            }
            _ => false,
        };
        if !group && state.frames.free() > 0 {
            let waiting = std::mem::take(&mut state.waiting);
            self.work.extend(waiting);
            return;
        }
        match state.waiting.pop_front() {
            Some(Work::Fault(key)) => self.cancel(key, CancelReason::OutOfMemory),
            Some(Work::Request(id)) => {
                let range = self.requests.get(&id).map_or_else(Default::default, |r| r.whole);
                let pinned = self.frames_held(card, range);
                let state = &self.cards[card.0 as usize].frames;
                let frames = u64::from(state.total() - state.quarantined());
                let pages = range.count;
                let error = crate::RequestError::DoesNotFit { memory, pages, frames, pinned };
                self.request_failed(id, error);
            }
            _ => {}
        }
        let rest = std::mem::take(&mut self.cards[card.0 as usize].waiting);
        self.work.extend(rest);
    }
}
