//! Faults of the host: threads of the program that are blocked at a page.

use farside_types::{Access, AgentId, CancelReason, PageNo, Time};
use serde::{Deserialize, Serialize};

use crate::Driver;
use crate::api::event::Need;
use crate::migration::chains::ChainId;
use crate::migration::plan::Plan;
use crate::migration::planner::{Asker, Planned};
use crate::mutation::Mutation;
use crate::waiting::{Obstacle, Until, Work};

/// A thread of the program that is blocked at a page.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct HostFault {
    pub(crate) page: PageNo,
    pub(crate) access: Access,
    /// Chains for it that failed.
    pub(crate) attempts: u8,
}

impl HostFault {
    /// The same, after one more failure.
    pub(crate) fn failed(self) -> HostFault {
        HostFault { attempts: self.attempts.saturating_add(1), ..self }
    }
}

/// The threads of the program that are blocked at a page.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Blocked {
    /// The strongest access among them.
    access: Access,
    /// Number of the latest fault.
    newest: u64,
}

impl Driver {
    /// A thread of the program faulted.
    pub(crate) fn take_host_fault(&mut self, page: PageNo, access: Access) {
        self.note_fault(AgentId::CPU, &Need::Page(page, access));
        self.stats.host_faults += 1;
        let newest = self.stats.host_faults;
        let threads = self.blocked.get_or_insert_with(page, || Blocked { access, newest });
        *threads = Blocked { access: access.max(threads.access), newest };
        self.work.push_back(Work::HostFault(HostFault { page, access, attempts: 0 }));
    }

    /// Plans the page of a host fault, if threads are still blocked there.
    pub(crate) fn serve_host(&mut self, now: Time, fault: HostFault) {
        let HostFault { page, access, .. } = fault;
        if self.blocked.get(&page).is_none_or(|threads| threads.access < access) {
            return;
        }
        let mut plan = self.scratch.plans.take();
        let obstacle = match self.plan_host(now, fault, &mut plan) {
            Ok(()) => return self.start_plan(now, plan, Some(fault)),
            Err(obstacle) => obstacle,
        };
        self.scratch.plans.keep(plan);
        match obstacle {
            Obstacle::Wait(until) => self.park(Work::HostFault(fault), until),
            Obstacle::Refuse(_) => self.poison(page),
        }
    }

    fn plan_host(&mut self, now: Time, fault: HostFault, plan: &mut Plan) -> Result<(), Obstacle> {
        let HostFault { page, access, attempts } = fault;
        let entry = *self.table.get(page);
        self.may_plan(page, &entry, None)?;
        if self.is_being_allocated(page, &entry) {
            return Err(Obstacle::Wait(Until::Poisoned));
        }
        if attempts > self.config.limits.attempts && !self.mutated.on(Mutation::RetryForever) {
            return Err(Obstacle::Refuse(CancelReason::CopyFailed));
        }
        let asker = Asker { agent: AgentId::CPU, access, again: attempts > 0 };
        if let Planned::Resident = self.plan_page(now, page, &entry, asker, plan)? {
            let transition = self.held_transition(&entry, AgentId::CPU);
            self.enter(plan, transition, page, &entry);
        }
        // After a failure the page goes alone: what failed may have been a neighbour.
        if attempts == 0 {
            self.widen(AgentId::CPU, plan);
            self.fault_around(page, access, plan);
        }
        Ok(())
    }

    /// Threads that were blocked at pages before they were mapped for them go on. (Those that came while
    /// it was under way are served again, to be sure.)
    pub(crate) fn let_threads_go(&mut self, id: ChainId) {
        if self.blocked.is_empty() {
            return;
        }
        let known = self.chains[id].host_faults;
        for part in &self.chains[id].parts {
            let Some((AgentId::CPU, rights)) = part.transition.map else { continue };
            let runs = &part.runs;
            self.blocked.retain(|&page, threads| {
                let served = rights.allows(threads.access) && threads.newest <= known;
                !(served && runs.iter().any(|run| run.pages().contains(page)))
            });
        }
    }
}
