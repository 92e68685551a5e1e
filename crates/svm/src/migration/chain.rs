//! A chain: the state machine of one migration (driver rule 4).
//!
//! ```text
//!           frames found              stopped              copied            mapped
//! (planned) ------------> Setup ------------> Copy ------------> Finalize ------------> Closing
//!                           |                   |                   |     pages are free   | all
//!                           +--- failure -------+---- roll back ----+------ again ---------+ answered
//! ```
//!
//! Frames are found before anybody is stopped, so that nobody stands still while an eviction makes
//! room. The pages are `Moving` from the start until `Closing`; frames that were left are reusable
//! only when every command of the chain has been answered.

use std::collections::VecDeque;

use farside_types::{
    AgentId, CardId, CommandId, FrameNo, List, MemoryId, MemorySet, PageNo, RequestId, Shelf,
    Shelved, Time,
};
use serde::{Deserialize, Serialize};

use crate::api::command::{Executor, FaultIds, Phase, Run, Runs};
use crate::api::event::StepErrorKind;
use crate::faults::host::HostFault;
use crate::faults::open::FaultKeys;
use crate::migration::chains::ChainId;
use crate::migration::prices::Bringing;
use crate::migration::stop::Holder;
use crate::migration::transition::Transition;

/// Pages with one transition.
#[derive(Serialize, Deserialize)]
pub(crate) struct Part {
    pub(crate) transition: Transition,
    pub(crate) runs: Runs,
    pub(crate) pages: u32,
    /// How many of them nobody asked for.
    pub(crate) prefetched: u32,
}

impl Part {
    pub(crate) fn new(transition: Transition, runs: Runs) -> Part {
        let pages = runs.iter().map(|run| run.count).sum();
        Part { transition, runs, pages, prefetched: 0 }
    }

    pub(crate) fn first_page(&self) -> PageNo {
        self.runs.first().map_or(PageNo(0), |run| run.page)
    }
}

/// Where a chain stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum Stage {
    /// The slot is free.
    Idle,
    /// Those who could write are being stopped.
    Setup,
    /// Bytes are on their way.
    Copy,
    /// The new mapping is being made.
    Finalize,
    /// The pages are free again; commands that nobody waited for are still out.
    Closing,
}

/// A command that has not been answered.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Pending {
    pub(crate) command: CommandId,
    pub(crate) executor: Executor,
    pub(crate) awaited: bool,
    pub(crate) part: u16,
    pub(crate) role: Role,
}

/// What a command does for its chain, and so what its failure means.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum Role {
    /// Takes a mapping, or the right to write, from an agent.
    Stop(AgentId),
    /// Copies or fills.
    Copy,
    /// Copies into this bounce buffer.
    CopyOut(u8),
    /// Gives the host's frames back.
    Release,
    /// Maps for the CPU.
    HostMap,
    /// Inserts translations in a card.
    CardMap,
    /// Answers faults of a card.
    Answer,
}

impl Role {
    /// Which of the four steps of a migration it counts to.
    pub(crate) fn phase(self) -> Phase {
        match self {
            Role::Stop(_) => Phase::Setup,
            Role::Copy | Role::CopyOut(_) => Phase::Copy,
            Role::Release | Role::HostMap | Role::CardMap | Role::Answer => Phase::Finalize,
        }
    }
}

impl Pending {
    /// Who is to let go.
    pub(crate) fn stops(&self) -> Option<AgentId> {
        match self.role {
            Role::Stop(agent) => Some(agent),
            _ => None,
        }
    }
}

/// One copy through a bounce buffer: `runs` of part `part`.
#[derive(Serialize, Deserialize)]
pub(crate) struct Hop {
    pub(crate) part: u16,
    pub(crate) runs: Runs,
    /// Out of the source is done, into the destination is next.
    pub(crate) inbound: bool,
}

/// Why a chain fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Failure {
    pub(crate) step: FailedStep,
    pub(crate) kind: StepErrorKind,
    /// First page that was not finished.
    pub(crate) page: PageNo,
    pub(crate) from: MemoryId,
    pub(crate) to: MemoryId,
}

/// The step that failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum FailedStep {
    /// An agent did not let go.
    Stop(AgentId),
    /// The bytes did not arrive.
    Copy,
    /// The host's frames were not given back.
    Release,
    /// The pages were not mapped for the CPU.
    Map,
}

/// Whom a chain is for.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Purpose {
    /// Faults of a card that it answers.
    pub(crate) faults: FaultKeys,
    /// The host fault that it answers.
    pub(crate) host: Option<HostFault>,
    /// The request that it is a part of.
    pub(crate) request: Option<RequestId>,
}

impl Purpose {
    pub(crate) fn of_faults(faults: FaultKeys) -> Purpose {
        Purpose { faults, ..Purpose::default() }
    }
}

/// Frames that pages have left.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Left {
    pub(crate) card: CardId,
    pub(crate) frame: FrameNo,
    pub(crate) count: u32,
}

/// None.
impl Default for Left {
    fn default() -> Left {
        Left { card: CardId(0), frame: FrameNo(0), count: 0 }
    }
}

impl Shelved for Left {
    fn shelf() -> &'static Shelf<Left> {
        static SHELF: Shelf<Left> = Shelf::new();
        &SHELF
    }
}

/// Parts that a slot has room for from the start.
const USUAL: usize = 4;

/// The migration of some pages.
#[derive(Serialize, Deserialize)]
pub(crate) struct Chain {
    pub(crate) epoch: u32,
    pub(crate) stage: Stage,
    pub(crate) parts: Vec<Part>,
    pub(crate) pending: Vec<Pending>,
    pub(crate) purpose: Purpose,
    /// While it copies or fills.
    pub(crate) brings: Option<Bringing>,
    pub(crate) deadline: Option<Time>,
    /// When the slot's timer is due; a slot has one at most, so that the heap of timers is bounded.
    pub(crate) armed: Option<Time>,
    pub(crate) failure: Option<Failure>,
    /// Frames that become free when every command has been answered.
    pub(crate) release: List<Left, 4>,
    /// Cards that did not answer in time and may still use those frames: quarantine them instead.
    pub(crate) suspects: MemorySet,
    /// Agents that did not let go.
    pub(crate) holders: Vec<Holder>,
    /// The answer that it gives to its faults, until that has arrived.
    pub(crate) answer: Option<FaultIds>,
    /// The chain that holds its pages, to whose copies it adds its own (`follow.rs`).
    pub(crate) follows: Option<ChainId>,
    /// Those that do so with its pages.
    pub(crate) followers: Vec<ChainId>,
    pub(crate) hops: VecDeque<Hop>,
    pub(crate) bounce: Option<u8>,
    /// Number of the last host fault that was known when pages were mapped for the CPU.
    pub(crate) host_faults: u64,
}

impl Chain {
    /// An empty slot with room for a chain of the usual size.
    pub(crate) fn idle() -> Chain {
        Chain {
            epoch: 0,
            stage: Stage::Idle,
            parts: Vec::with_capacity(USUAL),
            pending: Vec::with_capacity(4 * USUAL),
            purpose: Purpose::default(),
            brings: None,
            deadline: None,
            armed: None,
            failure: None,
            release: List::new(),
            suspects: MemorySet::EMPTY,
            holders: Vec::new(),
            answer: None,
            follows: None,
            followers: Vec::with_capacity(USUAL),
            hops: VecDeque::new(),
            bounce: None,
            host_faults: 0,
        }
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.stage == Stage::Idle
    }

    /// It begins, with the parts that it has.
    pub(crate) fn begin(&mut self, purpose: Purpose) {
        self.stage = Stage::Setup;
        self.purpose = purpose;
    }

    /// It has ended: its slot is as new, in its next life, and has the room that it had.
    pub(crate) fn end(&mut self) {
        self.epoch = self.epoch.wrapping_add(1);
        self.stage = Stage::Idle;
        self.parts.clear();
        self.pending.clear();
        self.purpose = Purpose::default();
        (self.deadline, self.failure, self.answer) = (None, None, None);
        self.release = List::new();
        self.suspects = MemorySet::EMPTY;
        self.holders.clear();
        self.follows = None;
        self.followers.clear();
        self.hops.clear();
        self.bounce = None;
        self.host_faults = 0;
    }

    /// Notes why it fails; the first reason counts.
    pub(crate) fn fail(&mut self, part: u16, step: FailedStep, page: PageNo, kind: StepErrorKind) {
        let Transition { from, at, .. } = self.parts[part as usize].transition;
        self.failure.get_or_insert(Failure { step, kind, page, from, to: at });
    }

    /// Whether something that the present stage waits for is still out.
    pub(crate) fn waits(&self) -> bool {
        self.pending.iter().any(|pending| pending.awaited)
    }

    /// Frames that leave; neighbours are merged.
    pub(crate) fn let_go(&mut self, card: CardId, frame: FrameNo, count: u32) {
        if let Some(last) = self.release.last_mut() {
            if last.card == card && last.frame.0 + last.count == frame.0 {
                last.count += count;
                return;
            }
        }
        self.release.push(Left { card, frame, count });
    }
}

/// Appends a page to runs, merging where pages and frames go on.
pub(crate) fn push_page(runs: &mut Runs, page: PageNo, src: FrameNo, dst: FrameNo) {
    push_run(runs, Run { page, count: 1, src, dst });
}

/// Appends pages to runs, merging where pages and frames go on.
pub(crate) fn push_run(runs: &mut Runs, run: Run) {
    match runs.last_mut() {
        Some(last) if goes_on(last, &run) => last.count += run.count,
        _ => runs.push(run),
    }
}

/// Whether pages and frames of `b` are those behind `a`.
fn goes_on(a: &Run, b: &Run) -> bool {
    a.page.0 + u64::from(a.count) == b.page.0
        && a.src.0 + a.count == b.src.0
        && a.dst.0 + a.count == b.dst.0
}

/// Sorts runs and merges those that go on from each other.
pub(crate) fn tidy(runs: &mut Runs) {
    if runs.len() < 2 {
        return;
    }
    runs.sort_unstable_by_key(|run| run.page);
    let all = &mut **runs;
    let mut last = 0;
    for at in 1..all.len() {
        let next = all[at];
        if goes_on(&all[last], &next) {
            all[last].count += next.count;
        } else {
            last += 1;
            all[last] = next;
        }
    }
    runs.truncate(last + 1);
}

/// Cuts runs after `most` pages and gives what is behind.
pub(crate) fn cut_runs(runs: &mut Runs, most: u32) -> Runs {
    let mut left = most;
    for at in 0..runs.len() {
        let run = runs[at];
        if run.count <= left {
            left -= run.count;
            continue;
        }
        let mut behind: Runs = runs[at..].into();
        runs.truncate(at);
        if left > 0 {
            runs.push(Run { count: left, ..run });
            behind[0] = Run {
                page: run.page.offset(u64::from(left)),
                count: run.count - left,
                src: run.src.offset(left),
                dst: run.dst.offset(left),
            };
        }
        return behind;
    }
    Runs::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cutting_runs_keeps_every_page_once_and_its_frames() {
        let run = |page, count, src, dst| Run {
            page: PageNo(page),
            count,
            src: FrameNo(src),
            dst: FrameNo(dst),
        };
        let mut runs: Runs = [run(10, 4, 100, 200), run(20, 2, 300, 400)].into();
        let behind = cut_runs(&mut runs, 3);
        assert_eq!(*runs, [run(10, 3, 100, 200)]);
        assert_eq!(*behind, [run(13, 1, 103, 203), run(20, 2, 300, 400)]);
        assert!(cut_runs(&mut runs, 3).is_empty());
        assert_eq!(cut_runs(&mut runs, 0).len(), 1);
        assert!(runs.is_empty());
    }

    #[test]
    fn pages_join_a_run_only_if_both_frames_go_on() {
        let mut runs = Runs::new();
        push_page(&mut runs, PageNo(1), FrameNo(1), FrameNo(5));
        push_page(&mut runs, PageNo(2), FrameNo(2), FrameNo(6));
        push_page(&mut runs, PageNo(3), FrameNo(3), FrameNo(9));
        assert_eq!(runs.len(), 2);
        assert_eq!(runs[0].count, 2);
    }
}
