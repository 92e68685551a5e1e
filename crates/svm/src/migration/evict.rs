//! Room on a card: frames for those who come, eviction of those who were there.
//!
//! The contract of oversubscription (driver rule 9):
//! - a card that is full sends pages to the host, some at a time ([`crate::Limits::evict_pages`]): those
//!   that came last first, as [`crate::Eviction::Lirs`] has it, then, or with [`crate::Eviction::Clock`] alone,
//!   by a clock hand over its frames: pages used since the hand last passed get a second round;
//! - pages stay that are pinned there, cannot go to the host now, are on the move, or are wanted by a
//!   request under way or by a grouped fault that waits for room;
//! - a page whose way home has failed twice stays too, until somebody is refused because of that, or it
//!   moves: whoever waits then is not kept waiting by what fails for ever, and whoever comes later finds
//!   it tried again;
//! - a page with a valid copy elsewhere leaves without being copied;
//! - a page whose free has failed leaves like any other: nobody else makes its room;
//! - those who wait for room get it in the order they came. Where all of them stand still because
//!   each holds what another waits for, a request takes pages from younger requests, which fetch
//!   them again, and from groups that wait; a fault takes them from any request. So only what can
//!   never be had is refused ([`farside_types::CancelReason::OutOfMemory`]).

use farside_types::{CancelReason, CardId, FrameNo, PageRange, Time};

use crate::Driver;
use crate::api::command::{Run, Runs};
use crate::api::event::Need;
use crate::driver::CardState;
use crate::faults::open::OpenFault;
use crate::tables::page::{PageEntry, flag};
use crate::waiting::{Until, Work};

impl Driver {
    /// Frames of `card` that may be taken now: while others wait for some, those of who was called.
    pub(crate) fn room(&self, card: CardId) -> u32 {
        let first = self.waiting.is_empty(Until::Frames(card));
        let CardState { frames, called, .. } = &self.cards[card.0 as usize];
        if first { frames.free() } else { frames.free().min(*called) }
    }

    /// Takes frames for all pages of `runs`; the caller has made sure that there are as many.
    pub(crate) fn take_frames(&mut self, card: CardId, pages: u32, runs: &mut Runs) {
        let mut placed = Runs::new();
        let (table, now) = (&self.table, self.now);
        let CardState { frames, running, called, .. } = &mut self.cards[card.0 as usize];
        *called = called.saturating_sub(pages);
        let share = frames.replacement.as_ref().map_or(0, |order| order.share(*running));
        for run in runs.iter() {
            let mut done = 0;
            let found = frames.allocate(run.count, |dst, count| {
                let page = run.page.offset(u64::from(done));
                placed.push(Run { page, count, src: run.src.offset(done), dst });
                done += count;
            });
            assert!(found, "{pages} frames were counted on {card}");
        }
        for run in &placed {
            frames.assign(run.dst, run.count, table.index(run.page));
            if let Some(order) = &mut frames.replacement {
                let away = |i| table.get(run.page.offset(u64::from(i))).away(now);
                order.arrived(run.dst, run.count, share, away);
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
        for item in work {
            self.park(item, Until::Frames(card));
        }
        let state = &mut self.cards[card.0 as usize];
        let coming = state.frames.free() + state.evicting;
        if let Some(order) = &mut state.frames.replacement {
            order.want(pages);
        }
        if pages > coming {
            self.evict(now, card, pages - coming, None);
        }
        self.starve(now, card);
    }

    /// Sends at least `need` pages of `card` away, if as many may go. Whoever is first in a line
    /// that stands still may take from others.
    fn evict(&mut self, now: Time, card: CardId, need: u32, first: Option<Work>) -> bool {
        let mut victims = self.scratch.pages.take();
        self.victims(card, need.max(self.batch(card)), first, &mut victims);
        self.look_at_stayers(now, card, victims.len() as u32);
        let mut plan = self.scratch.plans.take();
        let mut alike: Option<(PageEntry, usize)> = None;
        for &page in &victims {
            if first.is_some() {
                self.bring_again(page, card.memory());
            }
            let entry = *self.table.get(page);
            // Neighbours are mostly alike: what was found for one holds for the next.
            if let Some((_, part)) = alike.filter(|(like, _)| entry.is_like(like)) {
                let run = self.run_of(page, &entry, &plan.parts[part].transition);
                plan.add_to(part, run);
                continue;
            }
            if let Some(transition) = self.eviction_transition(&entry, card.memory()) {
                let run = self.run_of(page, &entry, &transition);
                alike = Some((entry, plan.add(transition, run)));
            }
        }
        self.scratch.pages.keep(victims);
        let any = !plan.parts.is_empty();
        self.start_plan(now, plan, None);
        any
    }

    /// The fault, if a grouped one, that waits for room.
    pub(crate) fn waiting_fault(&self, work: Work) -> Option<&OpenFault> {
        let Work::Fault(key) = work else { return None };
        self.faults.get(key).filter(|fault| matches!(fault.need, Need::Group(_)))
    }

    /// Frames of `card` that cannot be freed for a request about `range`: what is in them is pinned,
    /// or wanted there by others.
    fn frames_held(&self, card: CardId, range: PageRange) -> u64 {
        let frames = &self.cards[card.0 as usize].frames;
        let held = |&frame: &u32| {
            frames.page_in(FrameNo(frame)).is_some_and(|index| {
                let page = self.table.page_at(index);
                let wanted = self.is_requested(page, card.memory(), u64::MAX);
                !range.contains(page)
                    && (wanted || self.is_pinned_at(page, self.table.get(page), card))
            })
        };
        (0..frames.total()).filter(held).count() as u64
    }

    /// Faults come before requests, older requests before younger ones: nobody then waits for
    /// somebody behind it.
    fn oldest_first(&mut self, card: CardId) {
        let age = |work| match work {
            Work::Request(id) => self.serial_of(id),
            _ => 0,
        };
        let waiting = self.waiting.queue(Until::Frames(card));
        let oldest = waiting.enumerate().min_by_key(|&(_, work)| age(work));
        if let Some((at, _)) = oldest {
            self.waiting.prefer(at, Until::Frames(card));
        }
    }

    /// Whether older requests bring pages to `card` and wait for something else: they end, and
    /// then there is room.
    fn elders_go_on(&self, card: CardId, first: Option<Work>) -> bool {
        let Some(Work::Request(id)) = first else { return false };
        self.is_bringing(card.memory(), self.serial_of(id))
    }

    /// Whether pages on `card` are about to be freed: there is room then.
    fn is_being_emptied(&self, card: CardId) -> bool {
        let frames = &self.cards[card.0 as usize].frames;
        let leaves = |frame| {
            let page = frames.page_in(FrameNo(frame)).map(|index| self.table.page_at(index));
            page.is_some_and(|page| self.is_being_freed(page, self.table.get(page)))
        };
        (0..frames.total()).any(leaves)
    }

    /// If nothing can ever free a frame of `card`, the first that waits is refused. Only
    /// a group needs more than one frame to go on.
    fn starve(&mut self, now: Time, card: CardId) {
        let memory = card.memory();
        let busy = self.chains.iter().any(|chain| {
            !chain.is_idle()
                && chain.parts.iter().any(|part| {
                    let transition = &part.transition;
                    transition.before.contains(memory) || transition.after.contains(memory)
                })
        });
        let idle = self.has_idle_chain();
        let state = &self.cards[card.0 as usize];
        if busy || state.evicting > 0 || !idle {
            return;
        }
        let until = Until::Frames(card);
        let group =
            self.waiting.first(until).is_some_and(|work| self.waiting_fault(work).is_some());
        if !group && state.frames.free() > 0 {
            return self.wake(until);
        }
        self.oldest_first(card);
        let first = self.waiting.first(until);
        let comes = self.evict(now, card, 1, first)
            || self.elders_go_on(card, first)
            || self.is_being_emptied(card);
        if first.is_none() || comes {
            return;
        }
        match self.waiting.pop(until) {
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
        self.forgive(card);
        self.wake(until);
    }

    /// Somebody was refused: pages of `card` whose way home has failed are tried again for the next. That
    /// is bounded, as each time one waits less.
    fn forgive(&mut self, card: CardId) {
        for frame in 0..self.cards[card.0 as usize].frames.total() {
            if let Some(index) = self.cards[card.0 as usize].frames.page_in(FrameNo(frame)) {
                let page = self.table.page_at(index);
                self.table.get_mut(page).set(flag::STAYS | flag::EVICTION_FAILED, false);
            }
        }
    }
}
