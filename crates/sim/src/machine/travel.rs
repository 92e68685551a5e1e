//! Lines on their way from stage to stage, an event for each (`engine.mode = events`).
//!
//! Whoever comes to a resource first is served first, at the time at which it really comes. What
//! the caches hold is settled when the line departs, as in the other mode; a second access to a
//! line under way is answered when the first would be if it never had to wait.

use farside_svm::RingOp;
use farside_types::{MemoryId, PageNo, Time};
use serde::{Deserialize, Serialize};

use super::access::Access;
use super::path::Path;
use super::{Machine, SimEvent};
use crate::EngineMode;

/// A line under way.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Travel {
    access: Access,
    page: u32,
    memory: MemoryId,
    path: Path,
    stage: u8,
    /// When it took its translation.
    departed: Time,
}

impl Machine {
    /// Sends a line on its way; it is at the first stage at `at`.
    pub(super) fn depart(
        &mut self,
        access: Access,
        page: u32,
        memory: MemoryId,
        path: Path,
        at: Time,
    ) {
        let departed = self.queue.now();
        let travel = Some(Travel { access, page, memory, path, stage: 0, departed });
        let free = self.travels.iter().position(Option::is_none);
        let index = free.unwrap_or(self.travels.len());
        match self.travels.get_mut(index) {
            Some(slot) => *slot = travel,
            None => self.travels.push(travel),
        }
        self.queue.push(at, SimEvent::Hop { travel: index as u32 });
    }

    /// A line comes to its next stage, or to its end.
    pub(super) fn hop(&mut self, index: u32) {
        let Some(mut travel) = self.travels[index as usize].take() else {
            return;
        };
        match self.pass(&travel.path, travel.stage) {
            Some(at) => {
                travel.stage += 1;
                self.travels[index as usize] = Some(travel);
                self.queue.push(at, SimEvent::Hop { travel: index });
            }
            None => {
                let now = self.queue.now();
                self.over(travel.access, travel.page, travel.memory, now, true);
            }
        }
    }

    /// Whether lines that took their translation before `begun` keep a GPU's invalidation waiting.
    pub(super) fn is_draining(&self, gpu: u8, op: &RingOp, begun: Time) -> bool {
        if self.spec.engine.mode != EngineMode::Events {
            return false;
        }
        let (RingOp::Unmap { runs, .. } | RingOp::Protect { runs, .. }) = op else {
            return false;
        };
        let whole = self.empties(op);
        let concerned = |page: u32| {
            let page = PageNo(self.arena.0 + u64::from(page));
            whole || runs.iter().any(|run| run.pages().contains(page))
        };
        let mut under_way = self.travels.iter().flatten();
        under_way.any(|it| it.access.gpu == gpu && it.departed <= begun && concerned(it.page))
    }
}
