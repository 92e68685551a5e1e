//! What the driver tells the program.

use farside_types::{AgentId, CardId, JobId, MemoryId, PageNo, PageRange, RequestId, VirtAddr};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::api::event::StepErrorKind;
use crate::api::order::Task;

/// An answer, or news, for the program. Polled with [`crate::Driver::poll_reply`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Reply {
    /// A request ended.
    Request {
        /// Which.
        id: RequestId,
        /// How.
        result: Result<Outcome, RequestError>,
    },
    /// A job that was cancelled, or whose card is gone, will never start.
    JobDropped {
        /// The job.
        job: JobId,
    },
    /// A job never starts, because one that it was to come after has not ended well.
    JobNotRun {
        /// The job.
        job: JobId,
        /// What has not.
        because: Task,
    },
    /// A card did not drain, or its page DMA or link did not answer, in time. What it may still
    /// read or write is quarantined, wherever that is; reset the card to use it again.
    CardSuspect {
        /// The card.
        card: CardId,
        /// The first pages it would not let go.
        pages: PageRange,
    },
    /// A card fails commands that a card cannot fail: it launches nothing until it is reset, or
    /// gone. The machine is to see to that.
    CardBroken {
        /// The card.
        card: CardId,
    },
    /// Threads of the program wait for this page, which they cannot have, and their accesses could
    /// not be ended with an error either. The machine is to end the program and say why: they would
    /// wait for ever.
    ThreadsStuck {
        /// The page.
        page: PageNo,
        /// Why not.
        kind: StepErrorKind,
    },
}

/// What a request that succeeded gives back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// Memory was allocated.
    Allocated(PageRange),
    /// The request is done. For moves: how many pages moved.
    Done {
        /// Pages whose bytes were moved or filled for it.
        pages_moved: u64,
    },
}

/// Why a request failed.
#[derive(Clone, Debug, PartialEq, Eq, Error, Serialize, Deserialize)]
pub enum RequestError {
    /// A size of nothing.
    #[error("cannot allocate 0 bytes; give a size of at least one byte")]
    EmptyAllocation,
    /// No gap is large enough.
    #[error(
        "no {pages} contiguous pages of address space are free (largest gap: {largest_gap} pages); \
         free something or open the space with a larger arena"
    )]
    OutOfAddressSpace {
        /// Pages asked for.
        pages: u64,
        /// The largest gap.
        largest_gap: u64,
    },
    /// Memory that is to be adopted is the space's already.
    #[error(
        "{range} cannot be adopted: {known} of it, or around it, is memory of the space already"
    )]
    InTheSpace {
        /// What was to be adopted.
        range: PageRange,
        /// What is there: an allocation, or the arena.
        known: PageRange,
    },
    /// The address is not the start of an allocation.
    #[error("{addr} is not the start of an allocation; pass the address that alloc returned")]
    NotAnAllocation {
        /// The address.
        addr: VirtAddr,
    },
    /// Part of the range is not allocated.
    #[error("{page} of {range} is not allocated; pass a range inside one or more allocations")]
    Unallocated {
        /// The range of the request.
        range: PageRange,
        /// The first page that is not allocated.
        page: PageNo,
    },
    /// The range has no page.
    #[error("the range is empty; pass at least one page")]
    EmptyRange,
    /// There is no such memory, or its card is gone.
    #[error("there is no {memory} in this space, or it is gone; list the cards of the space")]
    NoSuchMemory {
        /// The memory asked for.
        memory: MemoryId,
    },
    /// The range cannot be in that memory all at once.
    #[error(
        "{pages} pages cannot be at {memory} at once: it has {frames} frames, {pinned} of them \
         pinned or awaited by others; migrate a smaller range, or let the kernel fault the pages in"
    )]
    DoesNotFit {
        /// The memory.
        memory: MemoryId,
        /// Pages asked for.
        pages: u64,
        /// Frames it has.
        frames: u64,
        /// Frames that hold pages which stay: pinned, or wanted there by others under way.
        pinned: u64,
    },
    /// A page is pinned elsewhere.
    #[error("{page} is pinned at {at}; unpin it first")]
    Pinned {
        /// The page.
        page: PageNo,
        /// Where it is pinned.
        at: MemoryId,
    },
    /// The range was not pinned.
    #[error("{page} is not pinned; unpin only what was pinned")]
    NotPinned {
        /// The page.
        page: PageNo,
    },
    /// A copy failed; the source is unharmed.
    #[error("copying {page} from {from} to {to} failed; the page is still at {from}, try again")]
    CopyFailed {
        /// The first page of the failed copy.
        page: PageNo,
        /// Source.
        from: MemoryId,
        /// Destination.
        to: MemoryId,
    },
    /// An agent did not let a page go that was to move, or be freed.
    #[error("{agent} does not let {page} go ({why}); nothing was lost, try again")]
    NotLetGo {
        /// The page.
        page: PageNo,
        /// Who holds it.
        agent: AgentId,
        /// Why.
        why: StepErrorKind,
    },
    /// The host's memory of a page was not given back.
    #[error("the host's memory of {page} could not be given back ({why}); try again")]
    NotReleased {
        /// The page.
        page: PageNo,
        /// Why.
        why: StepErrorKind,
    },
    /// A page was lost with its card.
    #[error("{page} was lost with {memory}; free the allocation and make the data again")]
    Lost {
        /// The page.
        page: PageNo,
        /// The memory that is gone.
        memory: MemoryId,
    },
    /// The range was freed while the request was under way.
    #[error("{page} was freed while the request was under way")]
    Freed {
        /// The page.
        page: PageNo,
    },
    /// It was to come after something that has not ended well.
    #[error("it was not begun: {because}, which it was to come after, did not end well")]
    NotBegun {
        /// What has not.
        because: Task,
    },
    /// Too many chains are open.
    #[error("{open} requests are open, the most there may be; wait for some of them")]
    TooManyRequests {
        /// How many are open.
        open: usize,
    },
}
