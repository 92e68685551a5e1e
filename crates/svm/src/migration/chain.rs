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
use std::sync::Arc;

use farside_types::{
    AgentId, AgentSet, CardId, CommandId, FrameNo, MemoryId, MemorySet, PageNo, Reason, RequestId,
    Rights, Time,
};
use serde::{Deserialize, Serialize};

use crate::api::command::{Executor, FaultIds, Phase, Run, Runs};
use crate::api::event::StepErrorKind;
use crate::faults::open::{FaultKey, HostFault, Work};
use crate::migration::stop::Holder;

/// What is the same for all pages of a part: where they were, where they will be, and what has to
/// happen in between.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Transition {
    /// Valid copies before.
    pub(crate) before: MemorySet,
    /// Main location before; meaningless if `before` is empty.
    pub(crate) from: MemoryId,
    /// Valid copies afterwards.
    pub(crate) after: MemorySet,
    /// Main location afterwards.
    pub(crate) owner: MemoryId,
    /// How the destination gets its bytes.
    pub(crate) fill: Fill,
    /// The memory that is filled, and that `agent` maps.
    pub(crate) at: MemoryId,
    /// Who gets a mapping, with which rights.
    pub(crate) map: Option<(AgentId, Rights)>,
    /// Who loses its mapping first.
    pub(crate) stop: AgentSet,
    /// Who loses the right to write first.
    pub(crate) demote: AgentSet,
    /// What becomes of the pages at the end.
    pub(crate) end: End,
    /// The copies of others go, so that one is left: it counts as a move, as a copy does.
    pub(crate) collapses: bool,
    /// It makes room on a full card: its pages count as room to come until it has ended, and are no
    /// victims again once it has failed twice.
    pub(crate) makes_room: bool,
    /// Why.
    pub(crate) reason: Reason,
    /// What the statistics count it as. Nothing is decided by it.
    pub(crate) label: Label,
}

/// How the destination gets its bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum Fill {
    /// It has them.
    Nothing,
    /// Zeros.
    Zero,
    /// From the main location.
    Copy,
}

/// What becomes of the pages at the end.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum End {
    /// They are in the state that their copies say.
    Settle,
    /// They are freed.
    Free,
    /// The host's frame is given back; the copies stay.
    ReleaseHost,
}

/// What the statistics count a transition as.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum Label {
    /// The only location changed.
    Migration,
    /// One more copy.
    Duplication,
    /// A write took the other copies away.
    Collapse,
    /// Mapped over the bus.
    RemoteMap,
    /// Left a full card.
    Eviction,
    /// Only rights or mappings changed.
    Rights,
}

impl Transition {
    /// One that leaves everything as it is, for pages with these copies.
    pub(crate) fn unchanged(before: MemorySet, from: MemoryId, reason: Reason) -> Transition {
        Transition {
            before,
            from,
            after: before,
            owner: from,
            fill: Fill::Nothing,
            at: from,
            map: None,
            stop: AgentSet::EMPTY,
            demote: AgentSet::EMPTY,
            end: End::Settle,
            collapses: false,
            makes_room: false,
            reason,
            label: Label::Rights,
        }
    }

    /// Whether bytes come to be where none were valid.
    pub(crate) fn fills(&self) -> bool {
        self.fill != Fill::Nothing
    }

    /// Whether what is filled becomes the main location: nobody keeps a mapping of the old one.
    pub(crate) fn relocates(&self) -> bool {
        self.fills() && self.at == self.owner
    }

    /// Whether somebody maps the page through a memory that is not its own.
    pub(crate) fn maps_remotely(&self) -> bool {
        self.map.is_some_and(|(agent, _)| agent.home() != self.at)
    }

    /// Memories that lose their copy.
    pub(crate) fn dropped(&self) -> MemorySet {
        self.before.minus(self.after)
    }

    /// The card whose frames the part needs, if any.
    pub(crate) fn needs_frames(&self) -> Option<CardId> {
        if self.fills() { self.at.card() } else { None }
    }
}

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
    pub(crate) fn new(transition: Transition, runs: Vec<Run>) -> Part {
        let pages = runs.iter().map(|run| run.count).sum();
        Part { transition, runs: Arc::from(runs), pages, prefetched: 0 }
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

/// The migration of some pages.
#[derive(Serialize, Deserialize)]
pub(crate) struct Chain {
    pub(crate) epoch: u32,
    pub(crate) stage: Stage,
    pub(crate) parts: Vec<Part>,
    pub(crate) pending: Vec<Pending>,
    /// What came for these pages meanwhile.
    pub(crate) waiters: Vec<Work>,
    /// Faults that this chain answers.
    pub(crate) faults: Vec<FaultKey>,
    /// The request it is a part of.
    pub(crate) request: Option<RequestId>,
    pub(crate) deadline: Option<Time>,
    /// When the slot's timer is due; a slot has one at most, so that the heap of timers is bounded.
    pub(crate) armed: Option<Time>,
    pub(crate) failure: Option<Failure>,
    /// Frames that become free when every command has been answered.
    pub(crate) release: Vec<(CardId, FrameNo, u32)>,
    /// Cards that did not answer in time and may still use those frames: quarantine them instead.
    pub(crate) suspects: MemorySet,
    /// Agents that did not let go.
    pub(crate) holders: Vec<Holder>,
    /// The answer that it gives to its faults, until that has arrived.
    pub(crate) answer: Option<FaultIds>,
    pub(crate) hops: VecDeque<Hop>,
    pub(crate) bounce: Option<u8>,
    /// Number of the last host fault that was known when pages were mapped for the CPU.
    pub(crate) host_faults: u64,
    /// The host fault that this chain answers.
    pub(crate) host: Option<HostFault>,
}

impl Chain {
    pub(crate) fn idle() -> Chain {
        Chain {
            epoch: 0,
            stage: Stage::Idle,
            parts: Vec::new(),
            pending: Vec::new(),
            waiters: Vec::new(),
            faults: Vec::new(),
            request: None,
            deadline: None,
            armed: None,
            failure: None,
            release: Vec::new(),
            suspects: MemorySet::EMPTY,
            holders: Vec::new(),
            answer: None,
            hops: VecDeque::new(),
            bounce: None,
            host_faults: 0,
            host: None,
        }
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
        if let Some((last_card, last, n)) = self.release.last_mut() {
            if *last_card == card && last.0 + *n == frame.0 {
                *n += count;
                return;
            }
        }
        self.release.push((card, frame, count));
    }
}

/// Appends a page to runs, merging where pages and frames go on.
pub(crate) fn push_page(runs: &mut Vec<Run>, page: PageNo, src: FrameNo, dst: FrameNo) {
    if let Some(last) = runs.last_mut() {
        let n = last.count;
        let goes_on = last.page.0 + u64::from(n) == page.0
            && last.src.0 + n == src.0
            && last.dst.0 + n == dst.0;
        if goes_on {
            last.count += 1;
            return;
        }
    }
    runs.push(Run { page, count: 1, src, dst });
}

/// Sorts runs and merges those that go on from each other.
pub(crate) fn tidy(runs: &mut Vec<Run>) {
    runs.sort_unstable_by_key(|run| run.page);
    let goes_on = |a: &Run, b: &Run| {
        a.page.0 + u64::from(a.count) == b.page.0
            && a.src.0 + a.count == b.src.0
            && a.dst.0 + a.count == b.dst.0
    };
    runs.dedup_by(|next, run| {
        let joins = goes_on(run, next);
        if joins {
            run.count += next.count;
        }
        joins
    });
}

/// Cuts runs after `most` pages and gives what is behind.
pub(crate) fn cut_runs(runs: &mut Vec<Run>, most: u32) -> Vec<Run> {
    let mut left = most;
    for at in 0..runs.len() {
        let run = runs[at];
        if run.count <= left {
            left -= run.count;
            continue;
        }
        let mut behind = runs.split_off(at);
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
    Vec::new()
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
        let mut runs = vec![run(10, 4, 100, 200), run(20, 2, 300, 400)];
        let behind = cut_runs(&mut runs, 3);
        assert_eq!(runs, [run(10, 3, 100, 200)]);
        assert_eq!(behind, [run(13, 1, 103, 203), run(20, 2, 300, 400)]);
        assert!(cut_runs(&mut runs, 3).is_empty());
        assert_eq!(cut_runs(&mut runs, 0).len(), 1);
        assert!(runs.is_empty());
    }

    #[test]
    fn pages_join_a_run_only_if_both_frames_go_on() {
        let mut runs = Vec::new();
        push_page(&mut runs, PageNo(1), FrameNo(1), FrameNo(5));
        push_page(&mut runs, PageNo(2), FrameNo(2), FrameNo(6));
        push_page(&mut runs, PageNo(3), FrameNo(3), FrameNo(9));
        assert_eq!(runs.len(), 2);
        assert_eq!(runs[0].count, 2);
    }
}
