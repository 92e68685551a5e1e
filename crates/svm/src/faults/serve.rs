//! Serving faults: batches are deduplicated and sorted, pages that need the same go together, and
//! what is resident only gets its translation back (driver rule 6).

use std::sync::Arc;

use farside_types::{
    Access, AgentId, BLOCK_PAGES, CancelReason, CardId, FaultId, FrameNo, PageNo, PageRange,
    Reason, Rights, Time,
};
use serde::{Deserialize, Serialize};

use crate::Driver;
use crate::api::command::{RingOp, Run};
use crate::api::event::{CardFault, Need};
use crate::driver::Due;
use crate::faults::open::{FaultKey, Faults, HostFault, OpenFault, Work};
use crate::migration::chain::{Fill, Part, Transition, cut_runs, push_page};
use crate::migration::plan::{Reach, Resolve, location};
use crate::mutation::Mutation;
use crate::placement::{Action, Scope};
use crate::tables::page::{PageEntry, PageState, flag};

/// A grouped fault that had to wait too often: nobody younger may take its pages any more.
#[derive(Serialize, Deserialize)]
pub(crate) struct Claim {
    pub(crate) key: FaultKey,
    pub(crate) ranges: Arc<[(PageRange, Access)]>,
    /// Who had to stand back.
    pub(crate) waiters: Vec<Work>,
}

/// After this many passes in vain a grouped fault claims its pages.
const CLAIM_AFTER: u8 = 2;

/// Buffers that are used again, so that a batch does not allocate them.
#[derive(Default)]
pub(crate) struct Scratch {
    singles: Vec<(PageNo, Access, FaultKey)>,
    resumed: Vec<FaultId>,
}

/// Parts under construction: pages by transition.
#[derive(Default)]
pub(crate) struct Plan {
    pub(crate) parts: Vec<OpenPart>,
    /// Decisions that reach further than their page.
    pub(crate) wider: Vec<Wider>,
}

/// A decision that reaches further than its page.
pub(crate) struct Wider {
    pub(crate) page: PageNo,
    pub(crate) access: Access,
    pub(crate) transition: Transition,
    pub(crate) reach: Reach,
}

/// Pages with one transition, and what waits for them.
pub(crate) struct OpenPart {
    pub(crate) transition: Transition,
    pub(crate) runs: Vec<Run>,
    pub(crate) pages: u32,
    pub(crate) faults: Vec<FaultKey>,
    /// Pages that nobody asked for.
    pub(crate) prefetched: u32,
}

impl Plan {
    /// Adds pages that are mapped where they are.
    fn add_run(&mut self, transition: Transition, run: Run) {
        let at = self.part_of(transition);
        let part = &mut self.parts[at];
        // Another fault of the batch may have brought the same run.
        if !part.runs.iter().any(|known| known.pages().overlaps(run.pages())) {
            part.runs.push(run);
            part.pages += run.count;
        }
    }

    /// The number of the part with this transition.
    fn part_of(&mut self, transition: Transition) -> usize {
        let known = self.parts.iter().rposition(|part| part.transition == transition);
        known.unwrap_or_else(|| {
            let runs = Vec::new();
            self.parts.push(OpenPart {
                transition,
                runs,
                pages: 0,
                faults: Vec::new(),
                prefetched: 0,
            });
            self.parts.len() - 1
        })
    }

    /// Adds `page`; its frames in the runs are `src` and `dst`. Gives the part's number.
    pub(crate) fn add(
        &mut self,
        transition: Transition,
        page: PageNo,
        src: FrameNo,
        dst: FrameNo,
    ) -> usize {
        let at = self.part_of(transition);
        self.add_to(at, page, src, dst);
        at
    }

    /// Adds `page` to part number `at`.
    pub(crate) fn add_to(&mut self, at: usize, page: PageNo, src: FrameNo, dst: FrameNo) {
        let part = &mut self.parts[at];
        push_page(&mut part.runs, page, src, dst);
        part.pages += 1;
    }
}

impl Driver {
    /// Takes a batch of faults of one card in.
    pub(crate) fn take_faults(&mut self, now: Time, card: CardId, faults: &[CardFault]) {
        if !self.is_usable(card.memory()) {
            return;
        }
        for batch in faults.chunks(self.config.limits.fault_batch) {
            self.stats.fault_batches += 1;
            let mut singles = std::mem::take(&mut self.scratch.singles);
            for fault in batch {
                self.stats.card_faults += 1;
                self.take_fault(card, fault, &mut singles);
            }
            self.serve_singles(now, card, &mut singles);
            self.scratch.singles = singles;
        }
    }

    fn take_fault(
        &mut self,
        card: CardId,
        fault: &CardFault,
        singles: &mut Vec<(PageNo, Access, FaultKey)>,
    ) {
        let (id, need) = (fault.id, fault.need.clone());
        let open = OpenFault { card, id, need, attempts: 0, passes: 0, decided: false };
        if self.faults.len() >= self.config.limits.faults {
            self.stats.cancelled_faults += 1;
            self.loose_cancel(card, fault.id, CancelReason::TooManyFaults);
            return;
        }
        let key = self.faults.open(open);
        match &fault.need {
            Need::Page(page, access) => singles.push((*page, *access, key)),
            Need::Group(_) => self.work.push_back(Work::Fault(key)),
        }
    }

    /// Plans until nothing is left that can be planned now.
    pub(crate) fn pump(&mut self, now: Time) {
        while let Some(work) = self.work.pop_front() {
            match work {
                Work::Fault(key) => self.serve_again(now, key),
                Work::HostFault(fault) => self.serve_host(now, fault),
                Work::Request(id) => self.serve_request(now, id),
                Work::Move { range, agent, action, reason } => {
                    self.serve_move(now, range, agent, action, reason);
                }
            }
        }
    }

    /// Faults that waited come back: those of one card next to each other are a batch again. One
    /// whose chain failed goes alone: what failed may have been a neighbour.
    fn serve_again(&mut self, now: Time, first: FaultKey) {
        let Some(fault) = self.faults.get(first) else {
            return;
        };
        let (card, alone) = (fault.card, fault.attempts > 0);
        if let Need::Group(ranges) = &fault.need {
            let ranges = ranges.clone();
            self.serve_group(now, first, card, &ranges);
            return;
        }
        let mut singles = std::mem::take(&mut self.scratch.singles);
        let mut next = Some(first);
        while let Some(key) = next {
            if let Some(OpenFault { need: Need::Page(page, access), .. }) = self.faults.get(key) {
                singles.push((*page, *access, key));
            }
            next = if alone { None } else { self.next_single_of(card) };
        }
        self.serve_singles(now, card, &mut singles);
        self.scratch.singles = singles;
    }

    fn next_single_of(&mut self, card: CardId) -> Option<FaultKey> {
        let Some(&Work::Fault(key)) = self.work.front() else {
            return None;
        };
        let fault = self.faults.get(key)?;
        let first = fault.attempts == 0;
        let fits = first && fault.card == card && matches!(fault.need, Need::Page(..));
        if !fits {
            return None;
        }
        self.work.pop_front();
        Some(key)
    }

    /// Serves single-page faults of one card together. Empties `singles`.
    fn serve_singles(
        &mut self,
        now: Time,
        card: CardId,
        singles: &mut Vec<(PageNo, Access, FaultKey)>,
    ) {
        // The strongest access of a page comes first and speaks for the others.
        singles.sort_unstable_by_key(|&(page, access, key)| {
            (page, std::cmp::Reverse(access), key.slot)
        });
        let mut plan = Plan::default();
        let mut refills = Plan::default();
        let mut resumed = std::mem::take(&mut self.scratch.resumed);
        let mut last: Option<(PageNo, Answer)> = None;
        for &(page, access, key) in singles.iter() {
            let answer = match last {
                Some((same, answer)) if same == page => {
                    self.stats.duplicate_faults += 1;
                    answer
                }
                _ => self.answer(now, card.agent(), page, access, key, &mut plan, &mut refills),
            };
            last = Some((page, answer));
            self.attach(key, access, answer, &mut plan, &mut resumed);
        }
        singles.clear();
        self.widen(card.agent(), &mut plan);
        self.prefetch_around(card, &mut plan);
        self.refill(card, refills, &mut resumed);
        self.scratch.resumed = resumed;
        self.start_plan(now, plan, None);
    }

    /// Looks one page of a batch up and enters what it needs.
    #[allow(clippy::too_many_arguments)]
    fn answer(
        &mut self,
        now: Time,
        agent: AgentId,
        page: PageNo,
        access: Access,
        key: FaultKey,
        plan: &mut Plan,
        refills: &mut Plan,
    ) -> Answer {
        let entry = *self.table.get(page);
        if entry.state == PageState::Moving {
            return Answer::Wait(entry.chain);
        }
        if self.is_being_poisoned(page, &entry) {
            return Answer::Poisoning;
        }
        if let Some(claim) = self.claimed(page, Some(key)) {
            return Answer::StandBack(claim);
        }
        if entry.directory.mappers().contains(agent) && access.is_write() {
            self.stats.protection_faults += 1;
        }
        let again = self.faults.get(key).is_some_and(|fault| fault.decided);
        match self.resolve(now, page, agent, access, again) {
            Resolve::Resident => {
                self.table.get_mut(page).set(flag::REFERENCED, true);
                self.refill_run(agent, page, &entry, refills);
                self.stats.refills += 1;
                Answer::Refill
            }
            Resolve::Transition(transition, reach) => {
                let part = self.enter(plan, transition, page, &entry);
                if reach.scope != Scope::Page {
                    plan.wider.push(Wider { page, access, transition, reach });
                }
                Answer::Part(part)
            }
            Resolve::Cancel(reason) => Answer::Cancel(reason),
            Resolve::Later(at) => Answer::Later(at),
        }
    }

    /// Enters a resident page for its translation, with the neighbours in its block that the agent
    /// maps in the same way and whose frames go on: the card gets one entry of flexible length
    /// instead of a fault for each.
    fn refill_run(&self, agent: AgentId, page: PageNo, entry: &PageEntry, refills: &mut Plan) {
        let transition = self.held_transition(entry, agent);
        let frame = self.frame_at(page, entry, transition.at);
        let goes_on = |other: PageNo| {
            let neighbour = self.table.get(other);
            let expected = u64::from(frame.0) + other.0;
            neighbour.state != PageState::Moving
                && neighbour.is_mapped_like(entry)
                && u64::from(self.frame_at(other, neighbour, transition.at).0) + page.0 == expected
        };
        let block = PageRange::new(page.align_down(BLOCK_PAGES), BLOCK_PAGES);
        let before = PageRange::new(block.start, page.0 - block.start.0);
        let behind = PageRange::new(page.offset(1), block.end().0 - page.0 - 1);
        let first = before.pages().rev().take_while(|&p| goes_on(p)).last().unwrap_or(page);
        let last = behind.pages().take_while(|&p| goes_on(p)).last().unwrap_or(page);
        let start = FrameNo((u64::from(frame.0) + first.0 - page.0) as u32);
        let count = (last.0 - first.0 + 1) as u32;
        refills.add_run(transition, Run { page: first, count, src: start, dst: start });
    }

    /// The transition of a page that stays as it is and is mapped (again) for `agent`.
    pub(crate) fn held_transition(&self, entry: &PageEntry, agent: AgentId) -> Transition {
        let copies = entry.directory.copies();
        let mut transition = Transition::unchanged(copies, entry.owner(), Reason::Demand);
        transition.at = location(agent, copies, entry.owner());
        let writes = entry.directory.writers().contains(agent);
        let rights = if writes { Rights::ReadWrite } else { Rights::Read };
        transition.map = Some((agent, rights));
        transition
    }

    /// The frames that a run names: where the bytes come from, and where they go or are mapped.
    /// Frames that are yet to be found on a card stand as the source's for the time being.
    pub(crate) fn frames_for(
        &self,
        page: PageNo,
        entry: &PageEntry,
        transition: &Transition,
    ) -> (FrameNo, FrameNo) {
        let host = self.table.host_frame(page);
        let (fresh, maps) = (transition.before.is_empty(), transition.map.is_some());
        let src = match transition.fill {
            Fill::Zero => host,
            Fill::Copy => self.frame_at(page, entry, transition.from),
            Fill::Nothing if fresh => host,
            Fill::Nothing if maps => self.frame_at(page, entry, transition.at),
            Fill::Nothing => self.frame_at(page, entry, transition.from),
        };
        (src, if transition.at.is_host() { host } else { src })
    }

    /// Enters a page into a plan and marks it, so that nothing enters it twice.
    pub(crate) fn enter(
        &mut self,
        plan: &mut Plan,
        transition: Transition,
        page: PageNo,
        entry: &PageEntry,
    ) -> usize {
        let (src, dst) = self.frames_for(page, entry, &transition);
        self.table.get_mut(page).set(flag::PLANNED, true);
        plan.add(transition, page, src, dst)
    }

    /// Puts a fault where its page's answer says.
    fn attach(
        &mut self,
        key: FaultKey,
        access: Access,
        answer: Answer,
        plan: &mut Plan,
        resumed: &mut Vec<FaultId>,
    ) {
        match answer {
            Answer::Wait(chain) => {
                self.stats.duplicate_faults += 1;
                self.wait_on(chain, Work::Fault(key));
            }
            Answer::StandBack(claim) => self.claims[claim].waiters.push(Work::Fault(key)),
            Answer::Poisoning => self.poison_waiters.push(Work::Fault(key)),
            Answer::Refill => {
                if let Some(fault) = self.faults.close(key) {
                    resumed.push(fault.id);
                }
            }
            Answer::Part(part) => {
                if let Some(fault) = self.faults.get_mut(key) {
                    fault.decided = true;
                }
                plan.parts[part].faults.push(key);
            }
            Answer::Cancel(reason) => {
                // A read may be fine where the write that spoke for it is not.
                let allowed = reason == CancelReason::ReadOnly && !access.is_write();
                if allowed {
                    self.work.push_back(Work::Fault(key));
                } else {
                    self.cancel(key, reason);
                }
            }
            Answer::Later(at) => self.set_timer(at, Due::Work(Work::Fault(key))),
        }
    }

    /// Gives translations of resident pages back and resumes their faults.
    fn refill(&mut self, card: CardId, refills: Plan, resumed: &mut Vec<FaultId>) {
        for part in refills.parts {
            let Some((_, rights)) = part.transition.map else {
                continue;
            };
            let op = RingOp::Map { runs: part.runs.into(), memory: part.transition.at, rights };
            self.loose(card, op);
        }
        if !resumed.is_empty() {
            let faults = resumed.as_slice().into();
            resumed.clear();
            let op = RingOp::Resume { faults };
            self.loose(card, op);
        }
    }

    /// A grouped fault: all of its pages go through one chain, so that nobody takes one away
    /// before it has seen them all (a kernel's `with`). Until it can begin it holds nothing.
    fn serve_group(
        &mut self,
        now: Time,
        key: FaultKey,
        card: CardId,
        ranges: &Arc<[(PageRange, Access)]>,
    ) {
        let pages: u64 = ranges.iter().fold(0, |sum, (range, _)| sum.saturating_add(range.count));
        let frames = &self.cards[card.0 as usize].frames;
        let usable = u64::from(frames.total() - frames.quarantined());
        if pages > self.config.limits.group_pages || pages > usable {
            return self.cancel(key, CancelReason::GroupTooLarge);
        }
        let answer = self.plan_group(now, key, card.agent(), ranges);
        if let Some(fault) = self.faults.get_mut(key) {
            fault.decided = true;
        }
        match answer {
            GroupPlan::Go(plan) => {
                if self.start_group(now, key, plan) {
                    self.drop_claim(key);
                }
            }
            GroupPlan::Wait(chain) => {
                self.count_pass(key, ranges);
                self.wait_on(chain, Work::Fault(key));
            }
            GroupPlan::StandBack(claim) => self.claims[claim].waiters.push(Work::Fault(key)),
            GroupPlan::Poisoning => self.poison_waiters.push(Work::Fault(key)),
            GroupPlan::Cancel(reason) => self.cancel(key, reason),
            GroupPlan::Later(at) => self.set_timer(at, Due::Work(Work::Fault(key))),
        }
    }

    fn plan_group(
        &mut self,
        now: Time,
        key: FaultKey,
        agent: AgentId,
        ranges: &[(PageRange, Access)],
    ) -> GroupPlan {
        let again = self.faults.get(key).is_some_and(|fault| fault.decided);
        let mut plan = Plan::default();
        let mut alike: Option<(PageEntry, Access, usize)> = None;
        for (page, access) in sorted_pages(ranges) {
            let entry = *self.table.get(page);
            if entry.state == PageState::Moving {
                return GroupPlan::Wait(entry.chain);
            }
            if self.is_being_poisoned(page, &entry) {
                return GroupPlan::Poisoning;
            }
            if let Some(claim) = self.claimed(page, Some(key)) {
                return GroupPlan::StandBack(claim);
            }
            let known = alike.filter(|(like, of, _)| *of == access && entry.is_like(like));
            if let Some((_, _, part)) = known {
                let (src, dst) = self.frames_for(page, &entry, &plan.parts[part].transition);
                plan.add_to(part, page, src, dst);
                continue;
            }
            let transition = match self.resolve(now, page, agent, access, again) {
                Resolve::Resident => self.held_transition(&entry, agent),
                Resolve::Transition(transition, _) => transition,
                Resolve::Cancel(reason) => return GroupPlan::Cancel(reason),
                Resolve::Later(at) => return GroupPlan::Later(at),
            };
            let (src, dst) = self.frames_for(page, &entry, &transition);
            let part = plan.add(transition, page, src, dst);
            alike = self.holds_for_neighbours(&entry).then_some((entry, access, part));
        }
        GroupPlan::Go(plan)
    }

    /// Whether what was found for a page holds for a neighbour with an equal entry: nobody fights
    /// over it, no pin or advice of its own applies, and the scheme looks at nothing else.
    fn holds_for_neighbours(&self, entry: &PageEntry) -> bool {
        let special = flag::PINNED | flag::THRASH_PINNED | flag::HINTED;
        self.placement.is_uniform()
            && !entry.has(special)
            && entry.directory.bounces() < self.config.thrash.throttle_after
    }

    /// Notes that a group had to wait; from some number of times on it claims its pages.
    fn count_pass(&mut self, key: FaultKey, ranges: &Arc<[(PageRange, Access)]>) {
        let Some(fault) = self.faults.get_mut(key) else {
            return;
        };
        fault.passes = fault.passes.saturating_add(1);
        let due = fault.passes >= CLAIM_AFTER;
        if due && !self.claims.iter().any(|claim| claim.key == key) {
            self.claims.push(Claim { key, ranges: ranges.clone(), waiters: Vec::new() });
        }
    }

    /// The claim that keeps `page` from `key`: an older one on the page that is not its own.
    pub(crate) fn claimed(&self, page: PageNo, key: Option<FaultKey>) -> Option<usize> {
        if self.claims.is_empty() {
            return None;
        }
        let older = self.claims.iter().take_while(|claim| Some(claim.key) != key);
        older
            .enumerate()
            .find(|(_, claim)| claim.ranges.iter().any(|(range, _)| range.contains(page)))
            .map(|(index, _)| index)
    }

    /// Ends a claim: its group has begun, or is gone. Those who stood back are planned again.
    pub(crate) fn drop_claim(&mut self, key: FaultKey) {
        if let Some(at) = self.claims.iter().position(|claim| claim.key == key) {
            let claim = self.claims.remove(at);
            self.work.extend(claim.waiters);
        }
    }

    /// A thread of the program stands at `page`.
    fn serve_host(&mut self, now: Time, fault: HostFault) {
        let HostFault { page, access, attempts } = fault;
        let again = Work::HostFault(fault);
        if self.standing.get(&page).is_none_or(|standing| standing.access < access) {
            return;
        }
        let entry = *self.table.get(page);
        if entry.state == PageState::Moving {
            return self.wait_on(entry.chain, again);
        }
        if self.is_being_poisoned(page, &entry) || self.is_being_allocated(page, &entry) {
            return self.poison_waiters.push(again);
        }
        if let Some(claim) = self.claimed(page, None) {
            return self.claims[claim].waiters.push(again);
        }
        if attempts > self.config.limits.attempts && !self.mutated.on(Mutation::RetryForever) {
            return self.poison(page);
        }
        let mut plan = Plan::default();
        match self.resolve(now, page, AgentId::CPU, access, attempts > 0) {
            Resolve::Resident => {
                let transition = self.held_transition(&entry, AgentId::CPU);
                self.enter(&mut plan, transition, page, &entry);
            }
            Resolve::Transition(transition, reach) => {
                self.enter(&mut plan, transition, page, &entry);
                if reach.scope != Scope::Page {
                    plan.wider.push(Wider { page, access, transition, reach });
                }
            }
            Resolve::Cancel(_) => return self.poison(page),
            Resolve::Later(at) => return self.set_timer(at, Due::Work(again)),
        }
        // After a failure the page goes alone: what failed may have been a neighbour.
        if attempts == 0 {
            self.widen(AgentId::CPU, &mut plan);
            self.fault_around(page, access, &mut plan);
        }
        self.start_plan(now, plan, Some(fault));
    }

    /// A move that the driver or a scheme wants; pages that are on the move are left alone.
    fn serve_move(
        &mut self,
        now: Time,
        range: PageRange,
        agent: AgentId,
        action: Action,
        reason: Reason,
    ) {
        if !self.is_usable(agent.home()) {
            return;
        }
        let mut plan = Plan::default();
        for page in range.intersection(self.config.arena).pages() {
            let entry = *self.table.get(page);
            let busy = entry.state == PageState::Moving
                || self.is_being_poisoned(page, &entry)
                || self.claimed(page, None).is_some();
            let held = entry.has(flag::PINNED) || entry.directory.copies().is_empty();
            if busy || held || self.refusal(&entry, agent, Access::Read).is_some() {
                continue;
            }
            let here = location(agent, entry.directory.copies(), entry.owner()) == agent.home();
            if here && entry.directory.mappers().contains(agent) {
                continue;
            }
            let access = self.move_access(&entry, action);
            if let Ok(transition) = self.transition(&entry, agent, access, action, reason) {
                self.enter(&mut plan, transition, page, &entry);
            }
        }
        self.start_plan(now, plan, None);
    }

    /// A page that may be written migrates with the right to write.
    fn move_access(&self, entry: &PageEntry, action: Action) -> Access {
        let migrates = action == Action::Migrate;
        if migrates && !entry.has(flag::READ_ONLY) { Access::Write } else { Access::Read }
    }

    /// Splits a plan into chains and starts them; what finds no frames waits for them.
    pub(crate) fn start_plan(&mut self, now: Time, plan: Plan, host: Option<HostFault>) {
        let mut late = Vec::new();
        for part in plan.parts {
            late.extend(self.start_part(now, part, host));
        }
        // Only now: what was taken no longer counts as free, its chains count as under way, and no
        // page of this plan is kept from eviction because its part has yet to begin.
        for (card, part) in late {
            let waiting = part.faults.into_iter().map(Work::Fault);
            self.wait_for_frames(now, card, part.pages, waiting);
        }
    }

    /// Starts what there is room for and gives the rest, with the card that is full.
    fn start_part(
        &mut self,
        now: Time,
        mut part: OpenPart,
        host: Option<HostFault>,
    ) -> Option<(CardId, OpenPart)> {
        for run in &part.runs {
            self.table.for_each_mut(run.pages(), |_, entry| entry.set(flag::PLANNED, false));
        }
        let mut late = None;
        if let Some(card) = part.transition.needs_frames() {
            let room = self.room(card);
            if part.pages > room {
                late = Some((card, cut_part(&mut part, room, &self.faults)));
            }
            self.take_frames(card, part.pages, &mut part.runs);
        }
        while part.pages > 0 {
            let most = self.chain_limit(&part.transition, part.pages);
            let rest = (part.pages > most).then(|| cut_part(&mut part, most, &self.faults));
            let OpenPart { transition, runs, faults, prefetched, .. } = part;
            let sealed = Part { prefetched, ..Part::new(transition, runs) };
            let of_part =
                |fault: &HostFault| sealed.runs.iter().any(|run| run.pages().contains(fault.page));
            let host = host.filter(of_part);
            self.start_chain(now, vec![sealed], faults, None, host);
            let Some(rest) = rest else { break };
            part = rest;
        }
        late
    }

    /// Most pages of a chain with this transition.
    pub(crate) fn chain_limit(&self, transition: &Transition, pages: u32) -> u32 {
        use crate::api::capability::Transport;
        let most = self.config.limits.chain_pages;
        let bounced = transition.fill == Fill::Copy
            && matches!(
                self.config.capabilities.transport(transition.from, transition.at, pages),
                Transport::Bounce(..)
            );
        if bounced { most.min(self.config.capabilities.bounce_pages) } else { most }
    }

    /// Starts a group's chain; `false` if it has to wait for frames.
    fn start_group(&mut self, now: Time, key: FaultKey, mut plan: Plan) -> bool {
        let needed: u32 = plan
            .parts
            .iter()
            .filter(|part| part.transition.needs_frames().is_some())
            .map(|part| part.pages)
            .sum();
        let Some(card) = self.faults.get(key).map(|fault| fault.card) else {
            return true;
        };
        if needed > self.room(card) {
            self.wait_for_frames(now, card, needed, std::iter::once(Work::Fault(key)));
            return false;
        }
        let mut parts = Vec::with_capacity(plan.parts.len());
        for OpenPart { transition, mut runs, pages, .. } in plan.parts.drain(..) {
            if transition.needs_frames().is_some() {
                self.take_frames(card, pages, &mut runs);
            }
            parts.push(Part::new(transition, runs));
        }
        if self.mutated.on(Mutation::ResumeGroupEarly) {
            let mut answered = vec![key];
            for part in parts {
                self.start_chain(now, vec![part], std::mem::take(&mut answered), None, None);
            }
            return true;
        }
        self.start_chain(now, parts, vec![key], None, None);
        true
    }

    /// Answers a fault with an error.
    pub(crate) fn cancel(&mut self, key: FaultKey, reason: CancelReason) {
        if let Some(fault) = self.faults.close(key) {
            self.stats.cancelled_faults += 1;
            self.loose_cancel(fault.card, fault.id, reason);
        }
        self.drop_claim(key);
    }

    fn loose_cancel(&mut self, card: CardId, id: FaultId, reason: CancelReason) {
        let op = RingOp::Cancel { faults: [id].into(), reason };
        self.loose(card, op);
    }

    /// Waits for a chain to let its pages go.
    pub(crate) fn wait_on(&mut self, chain: u32, work: Work) {
        if self.mutated.on(Mutation::DropWaiters) {
            return;
        }
        let waiters = &mut self.chains[chain as usize].waiters;
        if !waiters.contains(&work) {
            waiters.push(work);
        }
    }
}

/// What a page of a batch needs.
#[derive(Clone, Copy)]
enum Answer {
    Wait(u32),
    StandBack(usize),
    Poisoning,
    Refill,
    Part(usize),
    Cancel(CancelReason),
    Later(Time),
}

/// What a group needs.
enum GroupPlan {
    Go(Plan),
    Wait(u32),
    StandBack(usize),
    Poisoning,
    Cancel(CancelReason),
    Later(Time),
}

/// Pages of a group in ascending order, each once, with its strongest access.
fn sorted_pages(ranges: &[(PageRange, Access)]) -> Vec<(PageNo, Access)> {
    let mut pages: Vec<(PageNo, Access)> = ranges
        .iter()
        .flat_map(|&(range, access)| range.pages().map(move |page| (page, access)))
        .collect();
    pages.sort_unstable_by_key(|&(page, access)| (page, std::cmp::Reverse(access)));
    pages.dedup_by_key(|(page, _)| *page);
    pages
}

/// Cuts a part after `most` pages and gives what is behind, each with the faults for its pages.
fn cut_part(part: &mut OpenPart, most: u32, open: &Faults) -> OpenPart {
    let behind = cut_runs(&mut part.runs, most);
    let late = behind.first().map_or(PageNo(u64::MAX), |run| run.page);
    let belongs_before = |key: &FaultKey| match open.get(*key).map(|fault| &fault.need) {
        Some(Need::Page(page, _)) => *page < late,
        _ => true,
    };
    let (before, after) = part.faults.drain(..).partition(belongs_before);
    part.faults = before;
    let pages = part.pages.saturating_sub(most);
    part.pages -= pages;
    OpenPart { transition: part.transition, runs: behind, pages, faults: after, prefetched: 0 }
}
