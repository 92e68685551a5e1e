//! Faults of the host: threads of the program that are blocked at a page.

use farside_types::{Access, AgentId, CancelReason, PageNo, Time};
use serde::{Deserialize, Serialize};

use crate::Driver;
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
        self.stats.host_faults += 1;
        let newest = self.stats.host_faults;
        let threads = self.blocked.entry(page).or_insert(Blocked { access, newest });
        *threads = Blocked { access: access.max(threads.access), newest };
        self.work.push_back(Work::HostFault(HostFault { page, access, attempts: 0 }));
    }

    /// Plans the page of a host fault, if threads are still blocked there.
    pub(crate) fn serve_host(&mut self, now: Time, fault: HostFault) {
        let HostFault { page, access, .. } = fault;
        if self.blocked.get(&page).is_none_or(|threads| threads.access < access) {
            return;
        }
        match self.plan_host(now, fault) {
            Ok(plan) => self.start_plan(now, plan, Some(fault)),
            Err(Obstacle::Wait(until)) => self.park(Work::HostFault(fault), until),
            Err(Obstacle::Refuse(_)) => self.poison(page),
        }
    }

    fn plan_host(&mut self, now: Time, fault: HostFault) -> Result<Plan, Obstacle> {
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
        let mut plan = Plan::default();
        if let Planned::Resident = self.plan_page(now, page, &entry, asker, &mut plan)? {
            let transition = self.held_transition(&entry, AgentId::CPU);
            self.enter(&mut plan, transition, page, &entry);
        }
        // After a failure the page goes alone: what failed may have been a neighbour.
        if attempts == 0 {
            self.widen(AgentId::CPU, &mut plan);
            self.fault_around(page, access, &mut plan);
        }
        Ok(plan)
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
            for run in part.runs.iter() {
                let pages = self.blocked.range(run.pages().start..run.pages().end());
                let gone: Vec<PageNo> = pages
                    .filter(|(_, threads)| rights.allows(threads.access) && threads.newest <= known)
                    .map(|(&page, _)| page)
                    .collect();
                for page in gone {
                    self.blocked.remove(&page);
                }
            }
        }
    }
}
