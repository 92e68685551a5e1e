//! Grouped faults: a kernel's `with` wants all of its pages at once.
//!
//! All of its pages go through one chain, so that nobody takes one away before it has seen them all.
//! Until it can begin it holds nothing; one that had to wait too often reserves its pages.

use std::sync::Arc;

use farside_types::{Access, AgentId, CancelReason, CardId, PageNo, PageRange, Time};
use serde::{Deserialize, Serialize};

use crate::Driver;
use crate::api::command::RingOp;
use crate::faults::open::FaultKey;
use crate::migration::plan::Plan;
use crate::migration::planner::Asker;
use crate::tables::page::PageEntry;
use crate::waiting::{Obstacle, Until, Work};

/// Pages of a grouped fault that had to wait too often: nobody younger may take them any more.
#[derive(Serialize, Deserialize)]
pub(crate) struct Reservation {
    pub(crate) key: FaultKey,
    ranges: Arc<[(PageRange, Access)]>,
}

/// After this many passes in vain a grouped fault reserves its pages.
const RESERVE_AFTER: u8 = 2;

impl Driver {
    /// A grouped fault begins, waits or is refused.
    pub(crate) fn serve_group(
        &mut self,
        now: Time,
        key: FaultKey,
        card: CardId,
        ranges: &Arc<[(PageRange, Access)]>,
    ) {
        let pages: u64 = ranges.iter().fold(0, |sum, (range, _)| sum.saturating_add(range.count));
        if pages == 0 {
            return self.resume_at_once(key);
        }
        let frames = &self.cards[card.0 as usize].frames;
        let usable = u64::from(frames.total() - frames.quarantined());
        if pages > self.config.limits.group_pages || pages > usable {
            return self.cancel(key, CancelReason::GroupTooLarge);
        }
        let (mut plan, mut wanted) = (self.scratch.plans.take(), self.scratch.wanted.take());
        sort_pages(ranges, &mut wanted);
        let planned = self.plan_group(now, key, card.agent(), &wanted, &mut plan);
        self.scratch.wanted.keep(wanted);
        if let Some(fault) = self.faults.get_mut(key) {
            fault.decided = true;
        }
        match planned {
            Ok(()) => {
                // After a failure the group goes alone: what failed may have been a neighbour.
                if self.faults.get(key).is_some_and(|fault| fault.attempts == 0) {
                    self.bring_blocks(card.agent(), &mut plan);
                }
                if self.start_group(now, key, &mut plan) {
                    self.end_reservation(key);
                }
            }
            Err(Obstacle::Wait(until)) => {
                if let Until::PagesFree(_) = until {
                    self.count_pass(key, ranges);
                }
                self.park(Work::Fault(key), until);
            }
            Err(Obstacle::Refuse(reason)) => self.cancel(key, reason),
        }
        self.scratch.plans.keep(plan);
    }

    /// A fault that wants nothing has all that it wants.
    fn resume_at_once(&mut self, key: FaultKey) {
        if let Some(fault) = self.faults.close(key) {
            self.issue_detached(fault.card, RingOp::Resume { faults: [fault.id].into() });
        }
    }

    fn plan_group(
        &mut self,
        now: Time,
        key: FaultKey,
        agent: AgentId,
        wanted: &[(PageNo, Access)],
        plan: &mut Plan,
    ) -> Result<(), Obstacle> {
        let again = self.faults.get(key).is_some_and(|fault| fault.decided);
        let mut alike: Option<(PageEntry, Access, PageRange, usize)> = None;
        for &(page, access) in wanted {
            let entry = *self.table.get(page);
            self.may_plan(page, &entry, Some(key))?;
            let known = alike.filter(|(like, of, pages, _)| {
                pages.contains(page) && *of == access && entry.is_like(like)
            });
            if let Some((.., part)) = known {
                let run = self.run_of(page, &entry, &plan.parts[part].transition);
                plan.add_to(part, run);
                continue;
            }
            let resolved = self.resolve(now, page, &entry, Asker { agent, access, again })?;
            let transition = match resolved {
                Some((transition, _)) => transition,
                None => self.held_transition(&entry, agent),
            };
            let run = self.run_of(page, &entry, &transition);
            let part = plan.add(transition, run);
            alike = Some((entry, access, self.holds_for(page, &entry, agent), part));
        }
        Ok(())
    }

    /// Notes that a group had to wait; from some number of times on it reserves its pages.
    fn count_pass(&mut self, key: FaultKey, ranges: &Arc<[(PageRange, Access)]>) {
        let Some(fault) = self.faults.get_mut(key) else {
            return;
        };
        fault.passes = fault.passes.saturating_add(1);
        let due = fault.passes >= RESERVE_AFTER;
        if due && !self.reservations.iter().any(|reservation| reservation.key == key) {
            self.reservations.push(Reservation { key, ranges: ranges.clone() });
        }
    }

    /// The group that has reserved `page`, if it is older than that of `own`, or another.
    pub(crate) fn reserved(&self, page: PageNo, own: Option<FaultKey>) -> Option<FaultKey> {
        let mut older = self.reservations.iter().take_while(|other| Some(other.key) != own);
        let holds = |reservation: &&Reservation| {
            reservation.ranges.iter().any(|(range, _)| range.contains(page))
        };
        older.find(holds).map(|reservation| reservation.key)
    }

    /// A group has begun, or is gone: those who stood back are planned again.
    pub(crate) fn end_reservation(&mut self, key: FaultKey) {
        if let Some(at) = self.reservations.iter().position(|other| other.key == key) {
            self.reservations.remove(at);
            self.wake(Until::GroupBegins(key));
        }
    }
}

/// Pages of a group in ascending order, each once, with its strongest access.
fn sort_pages(ranges: &[(PageRange, Access)], pages: &mut Vec<(PageNo, Access)>) {
    for &(range, access) in ranges {
        pages.extend(range.pages().map(|page| (page, access)));
    }
    pages.sort_unstable_by_key(|&(page, access)| (page, std::cmp::Reverse(access)));
    pages.dedup_by_key(|(page, _)| *page);
}

#[cfg(test)]
mod tests {
    use farside_types::FaultId;

    use super::*;
    use crate::api::command::{Command, Step};
    use crate::api::event::{CardFault, Need};
    use crate::placement::by_name;
    use crate::{Config, Event};

    #[test]
    fn a_group_that_wants_nothing_is_resumed() {
        let arena = PageRange::new(PageNo(1 << 12), 1 << 12);
        let config = Config::embedded(arena, vec![8]);
        let mut driver = Driver::new(config, by_name("on-touch").unwrap()).unwrap();
        let nothing: [Arc<[(PageRange, Access)]>; 2] =
            [[].into(), [(PageRange::new(arena.start, 0), Access::Read)].into()];
        for (id, ranges) in nothing.into_iter().enumerate() {
            let fault = CardFault { id: FaultId(id as u64), need: Need::Group(ranges) };
            driver.handle(Time::ZERO, Event::CardFaults { card: CardId(0), faults: &[fault] });
            let command = driver.poll_command();
            let Some(Command::Ring(_, Step { op: RingOp::Resume { faults }, .. })) = command else {
                panic!("{command:?}");
            };
            assert_eq!(*faults, [FaultId(id as u64)]);
        }
    }
}
