//! Faults of cards in batches: deduplicated and sorted, pages that need the same go together, and what
//! is resident only gets its translation back (driver rule 6).

use farside_types::{
    Access, AgentId, BLOCK_PAGES, CancelReason, CardId, FaultId, FrameNo, PageNo, PageRange, Time,
};

use crate::Driver;
use crate::api::command::{FaultIds, RingOp, Run};
use crate::api::event::{CardFault, Need};
use crate::api::journal::Note;
use crate::faults::open::{FaultKey, OpenFault};
use crate::migration::plan::Plan;
use crate::migration::planner::{Asker, Planned};
use crate::scratch::Singles;
use crate::tables::page::{PageEntry, PageState, flag};
use crate::waiting::{Obstacle, Until, Work};

impl Driver {
    /// Takes a batch of faults of one card in.
    pub(crate) fn take_faults(&mut self, now: Time, card: CardId, faults: &[CardFault]) {
        if !self.is_usable(card.memory()) {
            return;
        }
        for batch in faults.chunks(self.config.limits.fault_batch) {
            self.stats.fault_batches += 1;
            let mut singles = self.scratch.singles.take();
            for fault in batch {
                self.stats.card_faults += 1;
                self.take_fault(card, fault, &mut singles);
            }
            self.serve_singles(now, card, singles);
        }
    }

    fn take_fault(&mut self, card: CardId, fault: &CardFault, singles: &mut Singles) {
        self.note_fault(card.agent(), &fault.need);
        if self.faults.len() >= self.config.limits.faults {
            self.stats.cancelled_faults += 1;
            self.answer_with_error(card, fault.id, CancelReason::TooManyFaults);
            return;
        }
        let key = self.faults.open(card, fault.id, fault.need.clone());
        match &fault.need {
            Need::Page(page, access) => singles.push((*page, *access, key)),
            Need::Group(_) => self.work.push_back(Work::Fault(key)),
        }
    }

    /// Faults that waited come back: those of one card next to each other are a batch again. One
    /// whose chain failed goes alone: what failed may have been a neighbour.
    pub(crate) fn serve_again(&mut self, now: Time, first: FaultKey) {
        let Some(fault) = self.faults.get(first) else {
            return;
        };
        let (card, alone) = (fault.card, fault.attempts > 0);
        if let Need::Group(ranges) = &fault.need {
            let ranges = ranges.clone();
            self.serve_group(now, first, card, &ranges);
            return;
        }
        let mut singles = self.scratch.singles.take();
        let mut next = Some(first);
        while let Some(key) = next {
            if let Some(OpenFault { need: Need::Page(page, access), .. }) = self.faults.get(key) {
                singles.push((*page, *access, key));
            }
            next = if alone { None } else { self.next_single_of(card) };
        }
        self.serve_singles(now, card, singles);
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

    /// Serves single-page faults of one card together.
    fn serve_singles(&mut self, now: Time, card: CardId, mut singles: Singles) {
        // The strongest access of a page comes first and speaks for the others.
        singles.sort_unstable_by_key(|&(page, access, key)| {
            (page, std::cmp::Reverse(access), key.slot)
        });
        let mut outcome = Outcome {
            plan: self.scratch.plans.take(),
            refills: self.scratch.plans.take(),
            resumed: FaultIds::new(),
        };
        let mut last: Option<(PageNo, Result<Answer, Obstacle>)> = None;
        for &(page, access, key) in singles.iter() {
            let answer = match last {
                Some((same, answer)) if same == page => {
                    self.stats.duplicate_faults += 1;
                    answer
                }
                _ => self.answer(now, card.agent(), (page, access, key), &mut outcome),
            };
            last = Some((page, answer));
            self.attach(key, access, answer, &mut outcome);
        }
        self.scratch.singles.keep(singles);
        let Outcome { mut plan, refills, resumed } = outcome;
        self.widen(card.agent(), &mut plan);
        self.prefetch_around(card, &mut plan);
        self.refill(card, refills, resumed);
        self.start_plan(now, plan, None);
    }

    /// Looks one page of a batch up and enters what it needs.
    fn answer(
        &mut self,
        now: Time,
        agent: AgentId,
        (page, access, key): (PageNo, Access, FaultKey),
        outcome: &mut Outcome,
    ) -> Result<Answer, Obstacle> {
        let again = self.faults.get(key).is_some_and(|fault| fault.decided);
        let asker = Asker { agent, access, again };
        if let Some(part) = self.follow(now, page, (asker, key), &mut outcome.plan) {
            return Ok(Answer::Follows(part));
        }
        let entry = *self.table.get(page);
        self.may_plan(page, &entry, Some(key))?;
        let planned = self.plan_page(now, page, &entry, asker, &mut outcome.plan)?;
        // One that has to wait first, while its page rests, is counted when it has its turn.
        if !again && entry.directory.mappers().contains(agent) && access.is_write() {
            self.stats.protection_faults += 1;
        }
        match planned {
            Planned::Resident => {
                self.table.get_mut(page).set(flag::REFERENCED, true);
                self.refill_run(agent, page, &entry, &mut outcome.refills);
                self.stats.refills += 1;
                if let Some(card) = agent.card() {
                    self.note(Note::Refill { card, pages: PageRange::page(page) });
                }
                Ok(Answer::Refill)
            }
            Planned::In(part) => Ok(Answer::Part(part)),
        }
    }

    /// Puts a fault where its page's answer says.
    fn attach(
        &mut self,
        key: FaultKey,
        access: Access,
        answer: Result<Answer, Obstacle>,
        outcome: &mut Outcome,
    ) {
        match answer {
            Ok(Answer::Refill) => {
                if let Some(fault) = self.faults.close(key) {
                    outcome.resumed.push(fault.id);
                }
            }
            Ok(Answer::Follows(part)) => outcome.plan.followers[part].part.faults.push(key),
            Ok(Answer::Part(part)) => {
                if let Some(fault) = self.faults.get_mut(key) {
                    fault.decided = true;
                }
                outcome.plan.parts[part].faults.push(key);
            }
            Err(Obstacle::Wait(until)) => {
                if let Until::PagesFree(_) = until {
                    self.stats.duplicate_faults += 1;
                }
                self.park(Work::Fault(key), until);
            }
            // A read may be fine where the write that spoke for it is not.
            Err(Obstacle::Refuse(CancelReason::ReadOnly)) if !access.is_write() => {
                self.work.push_back(Work::Fault(key));
            }
            Err(Obstacle::Refuse(reason)) => self.cancel(key, reason),
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

    /// Gives translations of resident pages back and resumes their faults.
    fn refill(&mut self, card: CardId, mut refills: Plan, resumed: FaultIds) {
        for part in refills.parts.drain(..) {
            let Some((_, rights)) = part.transition.map else {
                continue;
            };
            let op = RingOp::Map { runs: part.runs, memory: part.transition.at, rights };
            self.issue_detached(card, op);
        }
        self.scratch.plans.keep(refills);
        if !resumed.is_empty() {
            self.issue_detached(card, RingOp::Resume { faults: resumed });
        }
    }

    /// Answers a fault with an error.
    pub(crate) fn cancel(&mut self, key: FaultKey, reason: CancelReason) {
        if let Some(fault) = self.faults.close(key) {
            self.stats.cancelled_faults += 1;
            self.answer_with_error(fault.card, fault.id, reason);
        }
        self.end_reservation(key);
    }

    fn answer_with_error(&mut self, card: CardId, id: FaultId, reason: CancelReason) {
        let op = RingOp::Cancel { faults: [id].into(), reason };
        self.issue_detached(card, op);
    }
}

/// What becomes of a batch.
struct Outcome {
    plan: Plan,
    refills: Plan,
    /// Faults whose pages are resident.
    resumed: FaultIds,
}

/// What becomes of a fault of a batch.
#[derive(Clone, Copy)]
enum Answer {
    /// Its page is resident: the translation comes back.
    Refill,
    /// This part of the plan brings its page.
    Part(usize),
    /// Its page comes with this one of those that follow chains.
    Follows(usize),
}
