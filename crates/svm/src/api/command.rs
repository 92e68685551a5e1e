//! What the driver tells the machine to do.
//!
//! A migration is an **ordered chain** of commands (stop → copy → map → resume). The driver hands
//! out a command once everything before it that must be finished is finished, so the machine
//! carries out what it is handed, in this order:
//!
//! - [`Command::Ring`] goes on that card's ring; a ring is executed in its order;
//! - all others may be executed at once and in any order.
//!
//! Every command is answered by one [`crate::Event::Done`], also those that nobody waits for.

use farside_types::{
    CancelReason, CardId, CommandId, Epoch, FaultId, FrameNo, JobId, List, MemoryId, PageNo,
    PageRange, Reason, Rights, Shelf, Shelved,
};
use serde::{Deserialize, Serialize};

use crate::api::event::{Event, StepError};

/// A command, of one of three kinds, each with operations of its own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Command {
    /// A paging call of the host.
    Host(Step<HostOp>),
    /// An entry of a card's command ring.
    Ring(CardId, Step<RingOp>),
    /// Bytes that move, and who moves them.
    Transfer(Mover, Step<TransferOp>),
}

/// One step of a chain.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Step<Op> {
    /// What all commands have.
    pub header: Header,
    /// What to do.
    pub op: Op,
}

/// What all commands have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// Pairs the completion with this command. Never used twice.
    pub id: CommandId,
    /// The life of the chain it belongs to. A completion from an abandoned epoch is ignored.
    pub epoch: Epoch,
    /// Whether the chain stands still until the completion.
    pub wait: Wait,
    /// Which of the four steps of a migration it counts to (paper: Table III).
    pub phase: Phase,
    /// Why the pages move.
    pub reason: Reason,
}

impl Header {
    /// What the driver is told when the command has been carried out, or has failed.
    pub fn done(&self, result: Result<(), StepError>) -> Event<'static> {
        Event::Done { command: self.id, epoch: self.epoch, result }
    }
}

impl Command {
    /// What all commands have.
    pub const fn header(&self) -> &Header {
        match self {
            Command::Host(Step { header, .. })
            | Command::Ring(_, Step { header, .. })
            | Command::Transfer(_, Step { header, .. }) => header,
        }
    }

    /// Pairs the completion with this command.
    pub const fn id(&self) -> CommandId {
        self.header().id
    }

    /// Who carries it out.
    pub const fn executor(&self) -> Executor {
        match self {
            Command::Host(_) | Command::Transfer(Mover::HostCpu, _) => Executor::HostCpu,
            Command::Ring(card, _) => Executor::Card(*card),
            Command::Transfer(Mover::CardDma(card), _) => Executor::CardDma(*card),
            Command::Transfer(Mover::Link(from, to), _) => Executor::Link(*from, *to),
        }
    }

    /// The pages it is about, if it is about pages.
    pub fn runs(&self) -> &[Run] {
        match self {
            Command::Host(step) => step.op.runs(),
            Command::Ring(_, step) => step.op.runs(),
            Command::Transfer(_, step) => step.op.runs(),
        }
    }

    /// Number of pages it is about.
    pub fn pages(&self) -> u64 {
        count_pages(self.runs())
    }

    /// A short name for logs.
    pub const fn name(&self) -> &'static str {
        match self {
            Command::Host(step) => step.op.name(),
            Command::Ring(_, step) => step.op.name(),
            Command::Transfer(_, step) => step.op.name(),
        }
    }
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

/// Who moves bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Mover {
    /// A host processor, through its own mappings of the memories.
    HostCpu,
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
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

impl Shelved for Run {
    fn shelf() -> &'static Shelf<Run> {
        static SHELF: Shelf<Run> = Shelf::new();
        &SHELF
    }
}

/// The pages of one command, ascending, without overlap. Shared by the steps of a chain.
pub type Runs = List<Run>;

/// The faults that one command answers. Shared with whoever has to answer them again.
pub type FaultIds = List<FaultId, 4>;

/// One end of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Place {
    /// The frames of a memory, as the runs name them.
    Memory(MemoryId),
    /// A bounce buffer in host memory: page `i` of the command's runs is at its page `i`.
    Bounce(u8),
}

/// What the host is told about its own mappings and frames.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum HostOp {
    /// Take the CPU's mapping away; when it completes no thread of the program can reach the page
    /// without a fault. The bytes stay in the host's frame.
    Unmap {
        /// Which pages.
        runs: Runs,
    },
    /// Change what the CPU may do with pages it has mapped; wakes threads that wait for it when
    /// the rights grow.
    Protect {
        /// Which pages.
        runs: Runs,
        /// The new rights.
        rights: Rights,
    },
    /// Map the host's frame for the CPU and wake the threads that wait for it. Also correct for a
    /// page that is mapped already.
    Map {
        /// Which pages.
        runs: Runs,
        /// What the CPU may do.
        rights: Rights,
    },
    /// Give host frames back to the kernel. The next read of the frame sees zeros.
    Release {
        /// Which pages.
        runs: Runs,
    },
    /// Take the CPU's mapping away and make its next accesses, and those that wait, end with an
    /// error (SIGBUS), until a [`HostOp::Unmap`] or [`HostOp::Map`] of the page.
    Poison {
        /// Which pages.
        runs: Runs,
    },
}

/// What a card is told by an entry of its command ring.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum RingOp {
    /// Invalidate the card's translations of these pages, in every TLB, and drain: it completes
    /// when no access through them is in flight. An access that stands in a fault counts as
    /// drained.
    Unmap {
        /// Which pages.
        runs: Runs,
        /// [`crate::Event::Told`] says before the completion which of them were written. Only for cards that
        /// can tell ([`crate::Capabilities::tells`]).
        tells: bool,
    },
    /// Lower the card's rights and drain accesses that used the old ones.
    Protect {
        /// Which pages.
        runs: Runs,
        /// The new rights.
        rights: Rights,
    },
    /// Insert translations to the frames `dst` of `memory`.
    Map {
        /// Which pages.
        runs: Runs,
        /// Where the frames are: the card's own memory, the host's or a peer's.
        memory: MemoryId,
        /// What the card may do.
        rights: Rights,
    },
    /// Read and clear the accessed bits of these pages. [`crate::Event::Told`] says which were used since,
    /// before the completion. Only for cards that can tell ([`crate::Capabilities::tells`]).
    Accessed {
        /// Which pages.
        runs: Runs,
    },
    /// Replay the accesses that raised these faults. The card takes the translations for them
    /// in ring order, so each makes progress whatever is invalidated afterwards.
    Resume {
        /// Which faults.
        faults: FaultIds,
    },
    /// End the accesses that raised these faults with an error; their jobs fail.
    Cancel {
        /// Which faults.
        faults: FaultIds,
        /// Why.
        reason: CancelReason,
    },
    /// Start a kernel. Answered by [`crate::Event::JobDone`] besides the completion.
    Launch {
        /// Which job.
        job: JobId,
    },
}

/// Bytes that move.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum TransferOp {
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

impl HostOp {
    /// The pages it is about.
    pub fn runs(&self) -> &[Run] {
        match self {
            HostOp::Unmap { runs }
            | HostOp::Protect { runs, .. }
            | HostOp::Map { runs, .. }
            | HostOp::Release { runs }
            | HostOp::Poison { runs } => runs,
        }
    }

    /// Number of pages it is about.
    pub fn pages(&self) -> u64 {
        count_pages(self.runs())
    }

    /// A short name for logs.
    pub const fn name(&self) -> &'static str {
        match self {
            HostOp::Unmap { .. } => "host-unmap",
            HostOp::Protect { .. } => "host-protect",
            HostOp::Map { .. } => "host-map",
            HostOp::Release { .. } => "host-release",
            HostOp::Poison { .. } => "host-poison",
        }
    }
}

impl RingOp {
    /// The pages it is about, if it is about pages.
    pub fn runs(&self) -> &[Run] {
        match self {
            RingOp::Unmap { runs, .. }
            | RingOp::Protect { runs, .. }
            | RingOp::Map { runs, .. }
            | RingOp::Accessed { runs } => runs,
            RingOp::Resume { .. } | RingOp::Cancel { .. } | RingOp::Launch { .. } => &[],
        }
    }

    /// Number of pages it is about.
    pub fn pages(&self) -> u64 {
        count_pages(self.runs())
    }

    /// Whether it completes only when accesses in flight are over.
    pub const fn drains(&self) -> bool {
        matches!(self, RingOp::Unmap { .. } | RingOp::Protect { .. })
    }

    /// A short name for logs.
    pub const fn name(&self) -> &'static str {
        match self {
            RingOp::Unmap { .. } => "card-unmap",
            RingOp::Protect { .. } => "card-protect",
            RingOp::Map { .. } => "card-map",
            RingOp::Accessed { .. } => "card-accessed",
            RingOp::Resume { .. } => "card-resume",
            RingOp::Cancel { .. } => "card-cancel",
            RingOp::Launch { .. } => "card-launch",
        }
    }
}

impl TransferOp {
    /// Which pages, with their frames.
    pub fn runs(&self) -> &[Run] {
        match self {
            TransferOp::Copy { runs, .. } | TransferOp::Fill { runs, .. } => runs,
        }
    }

    /// Number of pages.
    pub fn pages(&self) -> u64 {
        count_pages(self.runs())
    }

    /// Where the bytes come from; `None`: they are zeros.
    pub const fn source(&self) -> Option<Place> {
        match self {
            TransferOp::Copy { from, .. } => Some(*from),
            TransferOp::Fill { .. } => None,
        }
    }

    /// Where the bytes go.
    pub const fn destination(&self) -> Place {
        match self {
            TransferOp::Copy { to, .. } => *to,
            TransferOp::Fill { memory, .. } => Place::Memory(*memory),
        }
    }

    /// A short name for logs.
    pub const fn name(&self) -> &'static str {
        match self {
            TransferOp::Copy { .. } => "copy",
            TransferOp::Fill { .. } => "fill",
        }
    }
}

/// Number of pages of runs.
pub(crate) fn count_pages(runs: &[Run]) -> u64 {
    runs.iter().map(|run| u64::from(run.count)).sum()
}

/// A command before it has a header: what the driver decides to have done.
pub(crate) enum Order {
    Host(HostOp),
    Ring(CardId, RingOp),
    Transfer(Mover, TransferOp),
}

impl Order {
    pub(crate) fn with(self, header: Header) -> Command {
        match self {
            Order::Host(op) => Command::Host(Step { header, op }),
            Order::Ring(card, op) => Command::Ring(card, Step { header, op }),
            Order::Transfer(mover, op) => Command::Transfer(mover, Step { header, op }),
        }
    }
}
