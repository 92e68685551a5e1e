//! What the driver tells the machine to do.
//!
//! A migration is an **ordered chain** of commands (stop → copy → map → resume). The driver hands
//! out a command once everything before it that must be finished is finished, so the machine
//! carries out what it is handed, in this order:
//!
//! - commands of [`Executor::Card`] go on that card's ring and are executed in ring order;
//! - all others may be executed by anyone, at once and in any order.
//!
//! Every command is answered by one [`crate::Event::Done`], also those that nobody waits for.

use std::sync::Arc;

use farside_types::{
    CancelReason, CardId, CommandId, Epoch, FaultId, FrameNo, JobId, MemoryId, PageNo, PageRange,
    Reason, Rights,
};
use serde::{Deserialize, Serialize};

/// One step of a chain.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Command {
    /// Pairs the completion with this command. Never used twice.
    pub id: CommandId,
    /// The life of the chain it belongs to. A completion from an abandoned epoch is ignored.
    pub epoch: Epoch,
    /// Who carries it out.
    pub executor: Executor,
    /// Whether the chain stands still until the completion.
    pub wait: Wait,
    /// Which of the four steps of a migration it counts to (paper: Table III).
    pub phase: Phase,
    /// Why the pages move.
    pub reason: Reason,
    /// What to do.
    pub op: Op,
}

/// Who carries out a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Executor {
    /// A host processor, through the kernel's paging calls and its own mappings of the memories.
    HostCpu,
    /// The card's command ring: carried out in the order of the ring.
    Card(CardId),
    /// The card's page DMA.
    CardDma(CardId),
    /// The link between two cards: the first sends, the second receives.
    Link(CardId, CardId),
}

/// Whether a chain stands still until a command has completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Wait {
    /// The chain goes on at once; ring order or the frame's quarantine protects it.
    Posted,
    /// The chain goes on when the completion is seen. On a card this is a round trip: the latency.
    Awaited,
}

/// The four steps of a migration (multi-FPGA SVM paper, Table III), for the account of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Phase {
    /// Collect the source pages, stop those who write, wait for accesses in flight.
    Setup,
    /// Find frames in the destination.
    Allocate,
    /// Move the bytes.
    Copy,
    /// Map, resume, hand frames back.
    Finalize,
}

impl Phase {
    /// All four, in order.
    pub const ALL: [Phase; 4] = [Phase::Setup, Phase::Allocate, Phase::Copy, Phase::Finalize];

    /// The word for it.
    pub const fn name(self) -> &'static str {
        match self {
            Phase::Setup => "setup",
            Phase::Allocate => "allocate",
            Phase::Copy => "copy",
            Phase::Finalize => "finalize",
        }
    }
}

/// `count` virtually contiguous pages whose frames are contiguous as well, at both ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Run {
    /// First page.
    pub page: PageNo,
    /// Number of pages.
    pub count: u32,
    /// First frame in the source memory; meaningless where an operation has no source.
    pub src: FrameNo,
    /// First frame in the destination, or the frame that is mapped.
    pub dst: FrameNo,
}

impl Run {
    /// The pages.
    pub const fn pages(&self) -> PageRange {
        PageRange::new(self.page, self.count as u64)
    }
}

/// The pages of one command, ascending, without overlap. Shared by the steps of a chain.
pub type Runs = Arc<[Run]>;

/// The faults that one command answers. Shared with whoever has to answer them again.
pub type FaultIds = Arc<[FaultId]>;

/// One end of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Place {
    /// The frames of a memory, as the runs name them.
    Memory(MemoryId),
    /// A bounce buffer in host memory: page `i` of the command's runs is at its page `i`.
    Bounce(u8),
}

/// What to do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Op {
    /// Take the CPU's mapping away; when it completes no thread of the program can reach the page
    /// without a fault. The bytes stay in the host's frame.
    HostUnmap {
        /// Which pages.
        runs: Runs,
    },
    /// Change what the CPU may do with pages it has mapped; wakes threads that wait for it when
    /// the rights grow.
    HostProtect {
        /// Which pages.
        runs: Runs,
        /// The new rights.
        rights: Rights,
    },
    /// Map the host's frame for the CPU and wake the threads that wait for it. Also correct for a
    /// page that is mapped already.
    HostMap {
        /// Which pages.
        runs: Runs,
        /// What the CPU may do.
        rights: Rights,
    },
    /// Give host frames back to the kernel. The next read of the frame sees zeros.
    HostRelease {
        /// Which pages.
        runs: Runs,
    },
    /// Take the CPU's mapping away and make its next accesses, and those that wait, end with an
    /// error (SIGBUS), until a [`Op::HostUnmap`] or [`Op::HostMap`] of the page.
    HostPoison {
        /// Which pages.
        runs: Runs,
    },
    /// Invalidate the card's translations of these pages, in every TLB, and drain: it completes
    /// when no access through them is in flight. An access that stands in a fault counts as
    /// drained.
    CardUnmap {
        /// Which pages.
        runs: Runs,
    },
    /// Lower the card's rights and drain accesses that used the old ones.
    CardProtect {
        /// Which pages.
        runs: Runs,
        /// The new rights.
        rights: Rights,
    },
    /// Insert translations to the frames `dst` of `memory`.
    CardMap {
        /// Which pages.
        runs: Runs,
        /// Where the frames are: the card's own memory, the host's or a peer's.
        memory: MemoryId,
        /// What the card may do.
        rights: Rights,
    },
    /// Replay the accesses that raised these faults. The card takes the translations for them
    /// in ring order, so each makes progress whatever is invalidated afterwards.
    CardResume {
        /// Which faults.
        faults: FaultIds,
    },
    /// End the accesses that raised these faults with an error; their jobs fail.
    CardCancel {
        /// Which faults.
        faults: FaultIds,
        /// Why.
        reason: CancelReason,
    },
    /// Start a kernel. Answered by [`crate::Event::JobDone`] besides the completion.
    CardLaunch {
        /// Which job.
        job: JobId,
    },
    /// Copy whole pages. For [`Place::Memory`] the frames are `src` at the source and `dst` at the
    /// destination.
    Copy {
        /// Source.
        from: Place,
        /// Destination.
        to: Place,
        /// Which pages, with their frames.
        runs: Runs,
    },
    /// Fill the frames `dst` of `memory` with zeros.
    Fill {
        /// Where.
        memory: MemoryId,
        /// Which pages, with their frames.
        runs: Runs,
    },
}

impl Op {
    /// The pages it is about, if it is about pages.
    pub fn runs(&self) -> &[Run] {
        match self {
            Op::HostUnmap { runs }
            | Op::HostProtect { runs, .. }
            | Op::HostMap { runs, .. }
            | Op::HostRelease { runs }
            | Op::HostPoison { runs }
            | Op::CardUnmap { runs }
            | Op::CardProtect { runs, .. }
            | Op::CardMap { runs, .. }
            | Op::Copy { runs, .. }
            | Op::Fill { runs, .. } => runs,
            Op::CardResume { .. } | Op::CardCancel { .. } | Op::CardLaunch { .. } => &[],
        }
    }

    /// Number of pages it is about.
    pub fn pages(&self) -> u64 {
        self.runs().iter().map(|run| u64::from(run.count)).sum()
    }

    /// A short name for logs.
    pub const fn name(&self) -> &'static str {
        match self {
            Op::HostUnmap { .. } => "host-unmap",
            Op::HostProtect { .. } => "host-protect",
            Op::HostMap { .. } => "host-map",
            Op::HostRelease { .. } => "host-release",
            Op::HostPoison { .. } => "host-poison",
            Op::CardUnmap { .. } => "card-unmap",
            Op::CardProtect { .. } => "card-protect",
            Op::CardMap { .. } => "card-map",
            Op::CardResume { .. } => "card-resume",
            Op::CardCancel { .. } => "card-cancel",
            Op::CardLaunch { .. } => "card-launch",
            Op::Copy { .. } => "copy",
            Op::Fill { .. } => "fill",
        }
    }
}
