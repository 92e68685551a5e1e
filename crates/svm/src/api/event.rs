//! What the driver is told.

use std::sync::Arc;

use farside_types::{
    Access, AgentId, CardId, CommandId, Epoch, FaultId, JobId, MemoryId, PageNo, PageRange,
    RequestId, Rights, StreamId, VirtAddr,
};
use serde::{Deserialize, Serialize};

use crate::api::order::Task;
use crate::placement::Sample;

/// Something that happened. The driver is told through [`crate::Driver::handle`].
#[derive(Clone, Debug)]
pub enum Event<'a> {
    /// Accesses of a card that found no translation, as one batch. Batches larger than
    /// [`crate::Limits::fault_batch`] are served in pieces.
    CardFaults {
        /// The card.
        card: CardId,
        /// The faults, in any order, with duplicates.
        faults: &'a [CardFault],
    },
    /// A thread of the program faulted on a page of the space.
    HostFault {
        /// The page.
        page: PageNo,
        /// What it wanted to do.
        access: Access,
    },
    /// The program wants a kernel to run.
    Launch {
        /// Names the job from here on.
        job: JobId,
        /// Where it runs.
        card: CardId,
        /// Launches of one stream run in order; other streams do not wait.
        stream: StreamId,
        /// It starts when these have ended well, and never if one of them does not. What the driver
        /// does not know has ended well.
        after: &'a [Task],
        /// The pages that it may write, as far as the program has said: what it only reads is never lent to it.
        writes: &'a [PageRange],
    },
    /// The program wants a launch in parts, each of which is told of by [`Event::Launch`]: others can
    /// wait for the end of all of them, which is told by [`Event::JobDone`].
    LaunchParts {
        /// Names all of it from here on.
        job: JobId,
    },
    /// A job will not end well: what comes after it never begins. It may go on for a while, and its end
    /// is told as that of any other.
    JobFailed {
        /// The job.
        job: JobId,
    },
    /// A job ended, in whatever way. Its faults are cancelled by the card itself.
    JobDone {
        /// The job.
        job: JobId,
    },
    /// A job was given up, and still holds memory. Nobody else is let at what its card has mapped
    /// until that has been taken from it, or the job has ended after all ([`Event::JobDone`]).
    JobHung {
        /// The job.
        job: JobId,
    },
    /// A job that may not have started is no longer wanted.
    JobCancel {
        /// The job.
        job: JobId,
    },
    /// The program asks for something. Answered by a [`crate::Reply`] of this id.
    Request {
        /// Names the request in the reply.
        id: RequestId,
        /// What it asks for.
        request: Request,
        /// It begins when these have ended well, as a launch does.
        after: &'a [Task],
    },
    /// A command completed or failed.
    Done {
        /// Which.
        command: CommandId,
        /// The epoch that the command carried.
        epoch: Epoch,
        /// Success, or what went wrong.
        result: Result<(), StepError>,
    },
    /// What a [`crate::RingOp::Accessed`] has found, or a [`crate::RingOp::Unmap`] that tells. Said before the
    /// command is done, when no access begins any more that would change it.
    Told {
        /// Which command.
        command: CommandId,
        /// The first of its pages that this is about, counted in the order of its runs.
        first: u64,
        /// How many it is about.
        pages: u64,
        /// A bit for each of them, from bit 0 of the first word on: whether it was used, or written. What is
        /// missing was.
        bits: &'a [u64],
    },
    /// A card's remote accesses to a group of pages reached the access counter's threshold.
    CounterNotice {
        /// The card that accesses.
        card: CardId,
        /// The group's pages.
        pages: PageRange,
        /// Accesses counted.
        count: u32,
    },
    /// Who accessed what since the last samples, ascending by page and card. For schemes that ask
    /// for it ([`crate::Driver::sample_every`]).
    Samples {
        /// The accesses; those that are zero are left out.
        samples: &'a [Sample],
    },
    /// A card is gone, with its memory.
    CardLost {
        /// Which.
        card: CardId,
    },
    /// A card was reset: no access is in flight and no translation is left; its memory is empty.
    /// It counts as gone until others have answered, or given up, what they had begun with its
    /// memory ([`crate::Driver::is_usable`] says when); launches and requests for it are refused
    /// until then.
    CardReset {
        /// Which.
        card: CardId,
    },
    /// Copies from one card to another may go by a direct link between them, from now on or no more. One that
    /// fails a copy is not used again until this is said.
    Link {
        /// Which sends.
        from: CardId,
        /// Which receives.
        to: CardId,
        /// Whether it works.
        works: bool,
    },
}

/// One access of a card that cannot go on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CardFault {
    /// Unique among the open faults of the machine.
    pub id: FaultId,
    /// What the access needs.
    pub need: Need,
}

/// What a fault needs before its access can go on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Need {
    /// One page.
    Page(PageNo, Access),
    /// All of these at the same instant: a kernel's `with`. At most
    /// [`crate::Limits::group_pages`] pages in all.
    Group(Arc<[(PageRange, Access)]>),
}

/// A request of the program.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Request {
    /// Reserve address space. Pages are fresh: zero, and nowhere yet.
    Alloc {
        /// Size in bytes; rounded up to pages.
        bytes: u64,
        /// A name for reports; may be empty.
        name: Arc<str>,
    },
    /// Give an allocation back. `addr` is its first byte.
    Free {
        /// Where the allocation starts.
        addr: VirtAddr,
    },
    /// Take memory that the program has, outside the arena, as an allocation. All of it is on the host,
    /// mapped by the CPU, which may write it. The host's frames are the program's own pages: they are not
    /// given back by [`Request::Trim`].
    Adopt {
        /// The pages.
        range: PageRange,
        /// Bytes, for reports.
        bytes: u64,
        /// A name for reports; may be empty.
        name: Arc<str>,
        /// Whether its pages move. Cards do not map pages that do at the host then. Those that do not are
        /// pinned to the host, and reached there.
        moves: bool,
    },
    /// Give an adopted allocation back to the program. It succeeds when all of it is on the host, mapped by
    /// the CPU alone, but for what was lost with cards; the CPU may use it all the time, cards get none of it
    /// any more. If it fails the memory is adopted as before.
    Disown {
        /// Where the allocation starts.
        addr: VirtAddr,
    },
    /// Move a range to a memory now (UMPM). Succeeds when it is all there.
    Migrate {
        /// The pages.
        range: PageRange,
        /// Where to.
        to: MemoryId,
    },
    /// Bring home what the program has emptied, whatever keeps it elsewhere: pins stay, and the next access of a
    /// pin's own agent takes the page back. What was lost with a card is passed over.
    Recall {
        /// The pages.
        range: PageRange,
    },
    /// Bring a range to an agent as far as room allows, without evicting anything for it.
    Prefetch {
        /// The pages.
        range: PageRange,
        /// Where to.
        to: MemoryId,
        /// What for. To read: others keep their copies, and lose no more than the right to write. To write:
        /// what is not advised as mostly read moves there.
        access: Access,
    },
    /// Tell how a range will be used.
    Advise {
        /// The pages.
        range: PageRange,
        /// How.
        advice: Advice,
    },
    /// Move a range to a memory and keep it there. Pins nest. A pin keeps a page from eviction and
    /// from moves that the driver or its scheme wants; agents that can map that memory reach the
    /// page there. An agent that cannot still gets the page when it accesses it (no access ever
    /// fails for a pin); the next access of the pin's own agent takes it back.
    Pin {
        /// The pages.
        range: PageRange,
        /// Where.
        at: MemoryId,
    },
    /// Undo one [`Request::Pin`].
    Unpin {
        /// The pages.
        range: PageRange,
    },
    /// Change what cards may do with a range.
    Protect {
        /// The pages.
        range: PageRange,
        /// [`Rights::Read`]: a card's write fails its job.
        rights: Rights,
    },
    /// Give back the host frames of pages that live on cards only.
    Trim,
}

/// How a range will be used. As in CUDA's `cudaMemAdvise`, advice is kept until it is taken back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Advice {
    /// Mostly read: copies are kept wherever it is read.
    ReadMostly(bool),
    /// Pages stay in this memory where the agent that faults can map it.
    Preferred(Option<MemoryId>),
    /// The agent keeps a mapping, also when the pages live elsewhere, where it can.
    AccessedBy(AgentId, bool),
    /// Allocations of which the range has a part move in whole blocks of 2 MiB: a fault brings the block of
    /// its page, and a page that makes room takes its block along. Where there is no room for all of a
    /// block, a part of it moves.
    WholeBlocks(bool),
}

/// Why a command failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepError {
    /// Pages that were finished before it failed, in the order of the runs.
    pub pages_done: u64,
    /// What went wrong.
    pub kind: StepErrorKind,
}

/// What went wrong in a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StepErrorKind {
    /// The transfer failed; nothing is in flight any more.
    Transfer,
    /// The executor gave no answer in time; it may still act.
    TimedOut,
    /// The kernel refused, with this error number.
    Os(i32),
    /// The card is gone.
    CardGone,
}

impl std::fmt::Display for StepErrorKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            StepErrorKind::Transfer => f.write_str("the executor refused or failed it"),
            StepErrorKind::TimedOut => f.write_str("no answer in time"),
            StepErrorKind::Os(errno) => std::io::Error::from_raw_os_error(*errno).fmt(f),
            StepErrorKind::CardGone => f.write_str("the card is gone"),
        }
    }
}
