//! A card that is gone, or does not let go: what was only there is lost, and says so; everything
//! else goes on.

use farside_types::{AgentSet, CardId, FrameNo, MemoryId, MemorySet, PageNo, PageRange, Time};
use serde::{Deserialize, Serialize};

use crate::Driver;
use crate::api::command::{Executor, RingOp, Run};
use crate::api::event::{StepError, StepErrorKind};
use crate::api::journal::{Change, ChangeKind, Note};
use crate::faults::open::FaultKey;
use crate::migration::chain::{Chain, Pending, Stage};
use crate::migration::transition::displaced;
use crate::mutation::Mutation;
use crate::tables::frames::Frames;
use crate::tables::page::{PageState, flag};
use crate::tables::residency::Residency;
use crate::waiting::Until;

/// Something that cards which did not answer in time may still write. It is out of use until each
/// of them is reset, or gone.
#[derive(Serialize, Deserialize)]
pub(crate) struct Quarantined {
    suspects: MemorySet,
    held: Held,
}

/// What is out of use.
#[derive(Clone, Copy, Serialize, Deserialize)]
pub(crate) enum Held {
    /// Frames of a card.
    Frames(CardId, FrameNo, u32),
    /// The host's frames of these pages.
    Host(PageRange),
    /// A bounce buffer.
    Bounce(u8),
}

impl Driver {
    /// Takes something out of use until the suspects are reset.
    pub(crate) fn put_in_quarantine(&mut self, suspects: MemorySet, held: Held) {
        if let Held::Frames(card, frame, count) = held {
            self.cards[card.0 as usize].frames.quarantine(frame, count);
        }
        self.quarantine.push(Quarantined { suspects, held });
    }

    /// A card writes nothing any more of what was begun before now.
    fn clear_suspect(&mut self, now: Time, memory: MemoryId) {
        self.stuck = self.stuck.without(memory);
        self.distrusted = self.distrusted.without(memory);
        for chain in self.chains.iter_mut() {
            chain.suspects = chain.suspects.without(memory);
        }
        let mut freed = Vec::new();
        self.quarantine.retain_mut(|entry| {
            entry.suspects = entry.suspects.without(memory);
            let over = entry.suspects.is_empty();
            if over {
                freed.push(entry.held);
            }
            !over
        });
        if freed.is_empty() {
            return;
        }
        for held in freed {
            match held {
                Held::Frames(card, frame, count) => {
                    self.cards[card.0 as usize].frames.end_quarantine(frame, count);
                }
                Held::Host(range) => {
                    self.table.for_each_known_mut(range, |e| e.set(flag::HOST_UNSAFE, false));
                }
                Held::Bounce(slot) => {
                    self.bounce_free.push(slot);
                    self.wake_bounce_waiter(now);
                }
            }
        }
        self.wake_for_room();
    }

    /// The card and its memory are gone for good.
    pub(crate) fn card_gone(&mut self, now: Time, card: CardId) {
        self.resetting = self.resetting.without(card.memory());
        self.card_lost(now, card);
    }

    /// The card and its memory are gone.
    fn card_lost(&mut self, now: Time, card: CardId) {
        let memory = card.memory();
        if !self.is_usable(memory) {
            return;
        }
        self.dead = self.dead.with(memory);
        self.note(Note::Gone { card });
        self.drop_jobs(card);
        self.faults.close_card(card);
        self.end_stale_reservations();
        self.clear_suspect(now, memory);
        self.answer_for(now, card);
        let resident: Vec<PageRange> = self.cards[card.0 as usize].residency.iter().collect();
        for range in resident {
            self.scrub(range);
        }
        self.drop_mapper(card);
        self.forget_detached(card);
        self.end_lingering();
        self.forget_card(card);
        self.wake(Until::Frames(card));
    }

    /// Commands that are out to a card that is gone are answered in its place.
    fn answer_for(&mut self, now: Time, card: CardId) {
        let mut orphans = Vec::new();
        for chain in self.chains.iter() {
            let epoch = farside_types::Epoch(chain.epoch);
            let of_card = |pending: &&Pending| involves(pending.executor, card);
            orphans.extend(chain.pending.iter().filter(of_card).map(|p| (p.command, epoch)));
        }
        for (command, epoch) in orphans {
            let kind = StepErrorKind::CardGone;
            self.done(now, command, epoch, Err(StepError { pages_done: 0, kind }));
        }
    }

    fn end_stale_reservations(&mut self) {
        let stale: Vec<FaultKey> = self
            .reservations
            .iter()
            .map(|reservation| reservation.key)
            .filter(|&key| self.faults.get(key).is_none())
            .collect();
        for key in stale {
            self.end_reservation(key);
        }
    }

    /// The card maps nothing any more: host pages and peers' pages included.
    fn drop_mapper(&mut self, card: CardId) {
        let gone = AgentSet::only(card.agent());
        let ranges: Vec<PageRange> = self.space.objects().map(|object| object.range).collect();
        for range in
            ranges.into_iter().flat_map(|range| self.table.touched(range)).collect::<Vec<_>>()
        {
            self.table.for_each_mut(range, |_, entry| entry.directory.unmap(gone));
        }
        self.late_stops.retain(|late| !late.is_of(card));
        for chain in self.chains.iter_mut() {
            chain.holders.retain(|holder| !holder.is(card.agent()));
        }
        self.cards[card.0 as usize].maps_failed = 0;
    }

    /// The card's tables start anew. Frames that chains still hold are forgotten with them.
    fn forget_card(&mut self, card: CardId) {
        let state = &mut self.cards[card.0 as usize];
        state.frames = Frames::of_card(state.frames.total(), self.config.eviction);
        state.residency = Residency::new(self.space.layout().clone());
        state.replicas.clear();
        self.quarantine.retain(|entry| !matches!(entry.held, Held::Frames(on, ..) if on == card));
        for chain in self.chains.iter_mut() {
            chain.release =
                chain.release.iter().filter(|left| left.card != card).copied().collect();
        }
    }

    /// The card was reset: empty, idle and usable again. Chains of its former life end first.
    pub(crate) fn card_reset(&mut self, now: Time, card: CardId) {
        if card.0 as usize >= self.cards.len() {
            return;
        }
        self.card_lost(now, card);
        self.resetting = self.resetting.with(card.memory());
        self.finish_resets();
    }

    /// Takes cards back into use whose last chain has ended.
    pub(crate) fn finish_resets(&mut self) {
        for memory in self.resetting.iter() {
            if self.chains.iter().any(|chain| touches(chain, memory)) {
                continue;
            }
            let Some(card) = memory.card() else { continue };
            self.forget_card(card);
            self.cards[card.0 as usize].evicting = 0;
            self.resetting = self.resetting.without(memory);
            self.dead = self.dead.without(memory);
        }
    }

    /// Takes the copies on dead cards off pages that no chain holds.
    pub(crate) fn scrub(&mut self, range: PageRange) {
        for page in range.pages() {
            let entry = *self.table.get(page);
            let copies = entry.directory.copies();
            let gone = copies.and(self.dead);
            if entry.state == PageState::Moving || gone.is_empty() {
                continue;
            }
            let left = copies.minus(gone);
            match left.first() {
                None => self.lose(page),
                Some(first) => self.keep_copy(page, left, first),
            }
        }
    }

    /// A page goes on with the copies that are left.
    fn keep_copy(&mut self, page: PageNo, left: MemorySet, first: MemoryId) {
        let index = self.table.index(page);
        let owner = self.table.get(page).owner();
        let gone = self.dead;
        for card in gone.iter().filter_map(MemoryId::card) {
            self.cards[card.0 as usize].replicas.remove(&index);
        }
        let frame = match first.card() {
            Some(card) if owner != first && !left.contains(owner) => {
                self.cards[card.0 as usize].replicas.remove(&index)
            }
            _ => None,
        };
        let entry = *self.table.get(page);
        let next = if left.contains(owner) { owner } else { first };
        let elsewhere = displaced(entry.directory.mappers(), &entry, left, next);
        // They map a memory that is gone, which is no mapping of the page.
        self.table.get_mut(page).directory.unmap(elsewhere);
        self.invalidate(page, elsewhere);
        self.note_lost(page, entry.directory.copies(), left);
        let entry = self.table.get_mut(page);
        entry.directory.set_copies(left);
        entry.owner = next.0;
        if let Some(frame) = frame {
            entry.frame = frame;
        }
        entry.state = entry.settled_state();
    }

    /// Takes translations of bytes that are gone away. Nobody waits: ring order puts it before
    /// whatever the cards map next, and what they read meanwhile is a dead card's. Of a
    /// page that is lost they stay in the directory until they have answered.
    fn invalidate(&mut self, page: PageNo, agents: AgentSet) {
        let frame = self.table.host_frame(page);
        for card in agents.iter().filter_map(farside_types::AgentId::card) {
            if !self.is_dead(card.memory()) {
                let runs = [Run { page, count: 1, src: frame, dst: frame }].as_slice().into();
                let op = RingOp::Unmap { runs, tells: false };
                self.issue_detached(card, op);
            }
        }
    }

    /// Notes that a page has lost copies with a card.
    fn note_lost(&mut self, page: PageNo, before: MemorySet, after: MemorySet) {
        self.note(Note::Change(Change {
            pages: PageRange::page(page),
            before,
            after,
            came: None,
            around: 0,
            stopped: AgentSet::EMPTY,
            agent: None,
            kind: ChangeKind::Lost,
            reason: farside_types::Reason::Lost,
        }));
    }

    /// A page's bytes are gone: accesses end with an error, never with zeros.
    pub(crate) fn lose(&mut self, page: PageNo) {
        let entry = self.table.get_mut(page);
        if entry.directory.is_lent() && self.mutated.on(Mutation::LoanOutlivesCard) {
            let only = MemorySet::only(MemoryId::HOST);
            return self.keep_copy(page, only, MemoryId::HOST);
        }
        let mappers = self.table.get(page).directory.mappers();
        self.invalidate(page, mappers);
        self.note_lost(page, self.table.get(page).directory.copies(), MemorySet::EMPTY);
        let entry = self.table.get_mut(page);
        entry.set(flag::LOST, true);
        // Nobody told whether it was written.
        entry.directory.set_lent(false);
        entry.directory.set_copies(MemorySet::EMPTY);
        if entry.state != PageState::Moving {
            entry.state = entry.settled_state();
        }
        let from = entry.owner();
        let range = PageRange::page(page);
        let reason = farside_types::Reason::Lost;
        *self.stats.by_reason.get_or_insert_with(reason, || 0) += 1;
        let at = self.now;
        let moved = crate::Moved { at, range, from: Some(from), to: from, reason };
        self.history.push(moved);
        self.poison(page);
    }
}

/// The memories of the cards that carry out what is given to an executor.
pub(crate) fn cards_of(executor: Executor) -> MemorySet {
    match executor {
        Executor::HostCpu => MemorySet::EMPTY,
        Executor::Card(card) | Executor::CardDma(card) => MemorySet::only(card.memory()),
        Executor::Link(from, to) => MemorySet::only(from.memory()).with(to.memory()),
    }
}

fn involves(executor: Executor, card: CardId) -> bool {
    cards_of(executor).contains(card.memory())
}

/// Whether a chain still has something to do with a memory.
fn touches(chain: &Chain, memory: MemoryId) -> bool {
    chain.stage != Stage::Idle
        && chain.parts.iter().any(|part| {
            let transition = &part.transition;
            let copies = transition.before.union(transition.after);
            copies.contains(memory) || transition.at == memory || transition.from == memory
        })
}
