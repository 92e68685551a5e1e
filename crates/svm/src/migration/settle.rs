//! Settling a chain: its pages enter their new state in page table, directory, residency maps and
//! frames, and whoever waited goes on.

use farside_types::{AgentId, AgentSet, CardId, MemoryId, MemorySet, Reason, Span, Time};

use crate::Driver;
use crate::api::command::{FaultIds, Order, RingOp, Run, Wait, count_pages};
use crate::api::journal::{Change, ChangeKind, Note};
use crate::api::query::Moved;
use crate::migration::chain::{Part, Role};
use crate::migration::chains::ChainId;
use crate::migration::transition::{End, Fill, Label, Transition};
use crate::mutation::Mutation;
use crate::tables::page::{PageEntry, PageState, flag};
use crate::waiting::{Until, Work};

impl Driver {
    /// The pages are in their new state; whoever waited goes on.
    pub(crate) fn settle(&mut self, now: Time, id: ChainId) {
        let parts = std::mem::take(&mut self.chains[id].parts);
        for (number, part) in parts.iter().enumerate() {
            self.apply(now, id, number as u16, part);
        }
        self.chains[id].parts = parts;
        self.map_accessors(id);
        self.finish_host_failure(id);
        self.resume(id);
        let request = self.chains[id].purpose.request;
        if let Some(request) = request {
            self.request_progress(request, id);
        }
        self.release_followers(id, None);
        self.leave_pages(id);
    }

    /// A mapping for the CPU failed: the bytes are on the host all the same; the thread that waits
    /// is served again, a bounded number of times. Some of the pages may have been mapped before it
    /// failed, so the CPU counts as one that maps them all.
    fn finish_host_failure(&mut self, id: ChainId) {
        let chain = &mut self.chains[id];
        if chain.failure.take().is_none() {
            return self.let_threads_go(id);
        }
        if let Some(host) = chain.purpose.host {
            self.park(Work::HostFault(host.failed()), Until::PagesFree(id));
        }
    }

    /// Enters a part's new state into the tables.
    fn apply(&mut self, now: Time, id: ChainId, number: u16, part: &Part) {
        let transition = part.transition;
        let stayed = self.stayed(id, number);
        if transition.end == End::Free {
            return self.apply_free(id, part, stayed);
        }
        let replicas = has_replicas(&transition);
        let copied = self.copied(part);
        for run in part.runs.iter() {
            if replicas {
                self.move_frames_slowly(id, &transition, run);
            } else {
                self.move_frames(id, &transition, run);
            }
            self.track_residency(&transition, run);
            self.enter_run(now, id, &transition, run, stayed);
            self.note_taken(now, &transition, run.pages());
            self.record_eviction(&transition, run);
        }
        for run in copied.iter().filter(|_| transition.fills()) {
            self.record(now, &transition, run);
        }
        if self.keeps_journal() {
            self.note_part(part, &copied);
        }
        self.count(part, count_pages(&copied));
    }

    /// Notes what became of a part: of pages of which some came with bytes and others did not, first where they
    /// all are, then what came.
    fn note_part(&mut self, part: &Part, copied: &[Run]) {
        let transition = &part.transition;
        let whole = transition.fills() && count_pages(copied) == u64::from(part.pages);
        if !whole {
            for run in part.runs.iter() {
                self.note(Note::Change(Change::of(transition, run.pages(), false)));
            }
        }
        let mut around = part.prefetched;
        for run in copied.iter().filter(|_| transition.fills()) {
            let mut change = Change::of(transition, run.pages(), true);
            if !whole {
                (change.before, change.stopped) = (change.after, AgentSet::EMPTY);
            }
            change.around = around.min(run.count);
            around -= change.around;
            self.note(Note::Change(change));
        }
    }

    /// Frames of pages that no card has beside their owner, before and after: by whole runs.
    fn move_frames(&mut self, id: ChainId, transition: &Transition, run: &Run) {
        if let Some(card) = transition.dropped().iter().find_map(MemoryId::card) {
            // The runs name the source's frames, unless they name what is mapped.
            let names_source = transition.fill == Fill::Copy || transition.map.is_none();
            let from = (names_source && transition.from.card() == Some(card)).then_some(run.src);
            match from {
                Some(frame) => self.drop_frames(id, transition, card, frame, run.count),
                None => {
                    for page in run.pages().pages() {
                        let frame = self.table.get(page).frame;
                        self.drop_frames(id, transition, card, frame, 1);
                    }
                }
            }
        }
    }

    /// Who was to let go of a part's pages and did not, although the chain has gone on.
    fn stayed(&self, id: ChainId, part: u16) -> AgentSet {
        if self.mutated.on(Mutation::LeaveUnconfirmed) {
            return AgentSet::EMPTY;
        }
        self.chains[id].stayed(part)
    }

    /// The pages of a freed allocation are nowhere.
    fn apply_free(&mut self, id: ChainId, part: &Part, stayed: AgentSet) {
        let transition = part.transition;
        for run in part.runs.iter() {
            for page in run.pages().pages() {
                let entry = *self.table.get(page);
                for memory in transition.before.iter() {
                    let Some(card) = memory.card().filter(|_| !self.is_dead(memory)) else {
                        continue;
                    };
                    let frame = self.frame_at(page, &entry, memory);
                    self.cards[card.0 as usize].replicas.remove(&self.table.index(page));
                    self.drop_frames(id, &transition, card, frame, 1);
                }
                let flags = entry.flags & (flag::POISONED | flag::HOST_UNSAFE) | flag::DOOMED;
                let state = PageState::Tombstone;
                let directory = entry.directory.only(stayed);
                *self.table.get_mut(page) = PageEntry {
                    directory,
                    flags,
                    state,
                    chain: ChainId::NONE,
                    ..Default::default()
                };
            }
            self.track_residency(&transition, run);
            let mut change = Change::of(&transition, run.pages(), false);
            (change.after, change.kind) = (MemorySet::EMPTY, ChangeKind::Free);
            self.note(Note::Change(change));
        }
    }

    /// A card's frames leave: they are reusable when the chain has been answered in full.
    fn drop_frames(
        &mut self,
        id: ChainId,
        transition: &Transition,
        card: CardId,
        frame: farside_types::FrameNo,
        count: u32,
    ) {
        if self.is_dead(card.memory()) {
            return;
        }
        if let (Label::Eviction, Some(order)) =
            (transition.label, &self.cards[card.0 as usize].frames.replacement)
        {
            self.stats.spared += u64::from(order.newcomers_in(frame, count));
        }
        if self.mutated.on(Mutation::FreeBeforeDrain) {
            self.cards[card.0 as usize].frames.release(frame, count);
            return;
        }
        self.chains[id].let_go(card, frame, count);
    }

    /// Frames of pages with several cards' copies: page by page.
    fn move_frames_slowly(&mut self, id: ChainId, transition: &Transition, run: &Run) {
        for (i, page) in run.pages().pages().enumerate() {
            let entry = *self.table.get(page);
            let page_index = self.table.index(page);
            let mut kept = None;
            for memory in transition.before.iter() {
                // Frames of a card that went away meanwhile are forgotten already.
                let Some(card) = memory.card().filter(|_| !self.is_dead(memory)) else { continue };
                let frame = self.frame_at(page, &entry, memory);
                self.cards[card.0 as usize].replicas.remove(&page_index);
                if !transition.after.contains(memory) {
                    self.drop_frames(id, transition, card, frame, 1);
                } else if memory == transition.owner {
                    kept = Some(frame);
                } else {
                    self.cards[card.0 as usize].replicas.insert(page_index, frame);
                }
            }
            let gained = transition.fills() && !transition.at.is_host();
            let new = run.dst.offset(i as u32);
            if gained && transition.at != transition.owner {
                if let Some(card) = transition.at.card() {
                    self.cards[card.0 as usize].replicas.insert(page_index, new);
                }
            }
            if let Some(frame) = kept {
                self.table.get_mut(page).frame = frame;
            }
        }
    }

    fn track_residency(&mut self, transition: &Transition, run: &Run) {
        for card in transition.dropped().iter().filter_map(MemoryId::card) {
            if !self.mutated.on(Mutation::StaleResidency) && !self.is_dead(card.memory()) {
                self.cards[card.0 as usize].residency.remove(run.pages());
            }
        }
        for card in transition.after.minus(transition.before).iter().filter_map(MemoryId::card) {
            self.cards[card.0 as usize].residency.insert(run.pages());
        }
    }

    /// The new entries of a run.
    fn enter_run(
        &mut self,
        now: Time,
        id: ChainId,
        transition: &Transition,
        run: &Run,
        stayed: AgentSet,
    ) {
        let entering = self.entering(now, transition, stayed);
        let takes_frame =
            entering.gained() && transition.at == transition.owner && !transition.owner.is_host();
        // Neighbours are mostly alike: what becomes of one becomes of the next.
        let mut before = PageEntry::default();
        let mut after = entering.entry(before);
        let mut frame = run.dst;
        self.table.for_each_mut(run.pages(), |_, entry| {
            if entry.moved_at != before.moved_at || !entry.is_like(&before) {
                before = *entry;
                after = entering.entry(before);
            }
            *entry = PageEntry { frame: if takes_frame { frame } else { entry.frame }, ..after };
            frame = frame.offset(1);
        });
        self.hand_over(id, run.pages());
        if !transition.after.and(self.dead).is_empty() {
            self.scrub(run.pages());
        }
    }

    /// What becomes of a page's entry by a transition, if all let go that are to.
    pub(crate) fn entry_afterwards(
        &self,
        now: Time,
        transition: &Transition,
        entry: PageEntry,
    ) -> PageEntry {
        self.entering(now, transition, AgentSet::EMPTY).entry(entry)
    }

    fn entering<'a>(
        &self,
        now: Time,
        transition: &'a Transition,
        stayed: AgentSet,
    ) -> Entering<'a> {
        Entering {
            now,
            transition,
            stop: transition.stop.minus(stayed),
            demote: transition.demote.minus(stayed),
            window: self.config.thrash.window,
            keeps_loans: self.keeps_loans(transition),
        }
    }

    fn record_eviction(&mut self, transition: &Transition, run: &Run) {
        let evicted = transition.label == Label::Eviction;
        let object = self.space.holding_mut(run.page);
        let Some(object) = object.filter(|_| evicted) else { return };
        object.pages_evicted += u64::from(run.count);
        for card in transition.dropped().iter().filter_map(MemoryId::card) {
            self.placement.on_evicted(card, run.pages());
        }
    }

    fn record(&mut self, now: Time, transition: &Transition, run: &Run) {
        let from = (!transition.before.is_empty()).then_some(transition.from);
        let reason = transition.reason;
        let range = run.pages();
        self.history.push(Moved { at: now, range, from, to: transition.at, reason });
        if let Some(object) = self.space.holding_mut(run.page) {
            object.pages_moved += u64::from(run.count);
            let fetched = matches!(reason, Reason::Demand | Reason::Collapse);
            if fetched && from.is_some() {
                object.pages_fetched += u64::from(run.count);
            }
        }
    }

    /// Counts what became of a part's pages, of which so many were copied or filled, if that was to be done.
    fn count(&mut self, part: &Part, copied: u64) {
        let (transition, pages) = (&part.transition, u64::from(part.pages));
        let around = u64::from(part.prefetched).min(copied);
        let stats = &mut self.stats;
        if transition.fills() && copied > 0 {
            let from = (!transition.before.is_empty()).then_some(transition.from);
            *stats.moves.get_or_insert_with((from, transition.at), || 0) += copied;
            *stats.by_reason.get_or_insert_with(transition.reason, || 0) += copied - around;
            if around > 0 {
                *stats.by_reason.get_or_insert_with(Reason::Prefetch, || 0) += around;
            }
        }
        stats.lent += if transition.lends { pages } else { 0 };
        let clean = if transition.fills() { pages - copied } else { pages };
        stats.lent_clean += if transition.reclaims { clean } else { 0 };
        match transition.label {
            Label::Migration => stats.migrations += pages,
            Label::Duplication => stats.duplications += pages,
            Label::Collapse => stats.collapses += pages,
            Label::RemoteMap => stats.remote_maps += pages,
            Label::Eviction => {
                stats.evictions += pages;
                stats.clean_departures += clean;
            }
            Label::Rights => {}
        }
    }

    /// Resumes the faults that the chain answers.
    fn resume(&mut self, id: ChainId) {
        let faults = std::mem::take(&mut self.chains[id].purpose.faults);
        let mut card = None;
        let mut ids = FaultIds::new();
        for &key in &faults {
            if let Some(fault) = self.faults.close(key) {
                card = Some(fault.card);
                ids.push(fault.id);
            }
        }
        let Some(card) = card else { return };
        self.prices.answered(self.faults.len() as u64);
        self.chains[id].answer = Some(ids.clone());
        let order = Order::Ring(card, RingOp::Resume { faults: ids });
        self.issue(id, 0, Role::Answer, Wait::Posted, order);
    }

    /// Keeps mappings that were promised (advice `AccessedBy`) after a move.
    fn map_accessors(&mut self, id: ChainId) {
        for part in 0..self.chains[id].parts.len() {
            let part = &self.chains[id].parts[part];
            let hinted = self.table.get(part.first_page()).has(flag::HINTED);
            if !hinted || !part.transition.fills() || part.transition.end != End::Settle {
                continue;
            }
            for run in part.runs.clone().iter() {
                self.promise_mappings(run.pages());
            }
        }
    }
}

/// Whether a card has, or had, a copy of pages that another memory owns.
fn has_replicas(transition: &Transition) -> bool {
    let Transition { before, after, owner, from, .. } = *transition;
    let moves = before.len() <= 1 && after.len() <= 1;
    let cards = before.union(after).without(MemoryId::HOST).len();
    let beside_host = |memories: MemorySet, owner: MemoryId| memories.len() > 1 && owner.is_host();
    !moves && (cards > 1 || beside_host(after, owner) || beside_host(before, from))
}

/// What becomes of the entries of pages that a transition has brought to their new state.
struct Entering<'a> {
    now: Time,
    transition: &'a Transition,
    /// Who has let go, and who may only read now.
    stop: AgentSet,
    demote: AgentSet,
    /// How soon a move after another is one of a fight.
    window: Span,
    /// What is lent stays lent.
    keeps_loans: bool,
}

impl Entering<'_> {
    /// Whether a memory has got the bytes.
    fn gained(&self) -> bool {
        self.transition.fills()
    }

    /// The entry of a page that had `entry`, in the same frame.
    fn entry(&self, mut entry: PageEntry) -> PageEntry {
        let transition = self.transition;
        entry.directory.unmap(self.stop);
        entry.directory.protect(self.demote);
        entry.directory.set_copies(transition.after);
        if let Some((agent, rights)) = transition.map {
            entry.directory.map(agent, rights);
            entry.set(flag::REFERENCED, true);
        }
        if transition.stop.contains(AgentId::CPU) {
            entry.set(flag::POISONED, false);
        }
        let moved = self.gained() || transition.collapses;
        if moved {
            let fight = matches!(transition.reason, Reason::Demand | Reason::Collapse);
            let again = entry.moved_at != 0 && entry.residency(self.now) < self.window;
            // What the program asked for is no fight, and ends one.
            let count = if fight && again { entry.directory.bounces() + 1 } else { 0 };
            entry.directory.set_bounces(count.min(15));
        }
        if moved || transition.makes_room {
            entry.stamp(self.now);
        }
        entry.owner = transition.owner.0;
        entry.set(flag::STAYS | flag::EVICTION_FAILED, false);
        if !transition.owner.is_host() {
            entry.set(flag::COMMON, false);
        }
        entry
            .directory
            .set_lent(transition.lends || (self.keeps_loans && entry.directory.is_lent()));
        if transition.after.contains(MemoryId::HOST) {
            entry.set(flag::HOST_BACKED, true);
        }
        if transition.end == End::ReleaseHost {
            entry.set(flag::HOST_BACKED, false);
        }
        entry.state = entry.settled_state();
        entry.chain = ChainId::NONE;
        entry
    }
}
