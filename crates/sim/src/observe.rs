//! What can be watched while a machine runs: per-page histories and traces are made of it.
//!
//! Observers are called in the order of the events and cannot change anything. A machine without
//! observers does not make observations.

use farside_svm::Stats;
use farside_svm::placement::Action;
use farside_types::{Access, MemoryId, PageNo, PageRange, Reason, Span, Time};
use serde::{Deserialize, Serialize};

use crate::GpuCounts;

/// Where a wavefront sits: GPU, compute unit, slot of the compute unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot {
    /// The GPU.
    pub gpu: u8,
    /// Its compute unit.
    pub unit: u8,
    /// The wavefront slot of the compute unit.
    pub slot: u8,
}

/// What a wavefront waits for.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub enum WaitsFor {
    /// A page table walk.
    Walk,
    /// Lines from a cache or the GPU's own memory.
    #[default]
    Local,
    /// Lines over a link.
    Remote,
    /// The driver: a page fault.
    Fault,
    /// The other wavefronts of its work-group.
    Barrier,
    /// Its own arithmetic.
    Compute,
    /// The GPU's pipelines, which an invalidation drains.
    Flush,
}

/// Where the time of a fault went. The parts add up to the time from the fault to its replay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultParts {
    /// In the fault buffer and on the way to the host.
    pub reported: Span,
    /// Waiting for the driver's processor, and being served by it.
    pub host: Span,
    /// Invalidations at other agents.
    pub invalidation: Span,
    /// Copies.
    pub copy: Span,
    /// Mapping and replay.
    pub replay: Span,
}

/// Something that happened.
#[derive(Clone, Debug)]
pub enum Observation {
    /// A GPU reports a fault.
    Fault {
        /// Who needs the page.
        slot: Slot,
        /// The page.
        page: PageNo,
        /// For what.
        access: Access,
        /// It is mapped, with too few rights.
        protection: bool,
    },
    /// A fault is over, and what waited in it goes on.
    Replay {
        /// The GPU.
        gpu: u8,
        /// The page.
        page: PageNo,
        /// For what.
        access: Access,
        /// When it was reported.
        since: Time,
        /// Where the time went.
        parts: FaultParts,
    },
    /// The driver decided about a page.
    Decision {
        /// The page.
        page: PageNo,
        /// Whose fault it was; `None`: a counter or a proposal of the scheme.
        gpu: Option<u8>,
        /// What it did.
        action: Action,
        /// Why.
        reason: Reason,
        /// When: what it did about a fault is told when the fault is over.
        made: Time,
    },
    /// Bytes were copied; `from` is `None` for a zero fill.
    Transfer {
        /// The first page.
        page: PageNo,
        /// How many.
        pages: u32,
        /// Where from.
        from: Option<MemoryId>,
        /// Where to.
        to: MemoryId,
        /// Why.
        reason: Reason,
        /// When it began.
        since: Time,
    },
    /// A GPU carried out a command of its ring.
    Command {
        /// The GPU.
        gpu: u8,
        /// The command's name.
        name: &'static str,
        /// The first page it is about, if any.
        page: Option<PageNo>,
        /// Pages.
        pages: u64,
        /// When it began.
        since: Time,
    },
    /// The driver's processor was busy.
    Host {
        /// With what.
        name: &'static str,
        /// Faults and notices of the batch; pages of an operation.
        entries: u64,
        /// When it began.
        since: Time,
    },
    /// A wavefront started.
    WaveBegin {
        /// Where.
        slot: Slot,
        /// Which launch, work-group and wavefront of the work-group.
        wave: (u32, u32, u16),
    },
    /// A wavefront waited.
    Wait {
        /// Where.
        slot: Slot,
        /// For what.
        waits_for: WaitsFor,
        /// The page that it is about, if any.
        page: Option<PageNo>,
        /// Since when.
        since: Time,
    },
    /// A wavefront has ended.
    WaveEnd {
        /// Where.
        slot: Slot,
    },
    /// A launch is over.
    LaunchEnd {
        /// Which, from 0.
        launch: u32,
    },
}

/// What has been counted so far.
#[derive(Clone, Copy, Debug)]
pub struct Sample<'a> {
    /// By each GPU.
    pub gpus: &'a [GpuCounts],
    /// By the driver, without the placing of all pages on the host at the beginning.
    pub driver: &'a Stats,
}

/// A buffer of the program, and where it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BufferPages {
    /// Its name.
    pub name: String,
    /// Its pages.
    pub pages: PageRange,
}

/// Watches a run. Times are from the start of the first launch.
pub trait Observer: Send {
    /// Something happened at `now`. For observations with a `since`, it ended at `now`.
    fn observe(&mut self, now: Time, what: &Observation);

    /// It will watch a run of a program with these buffers, in the order of their pages.
    fn start(&mut self, buffers: &[BufferPages]) {
        let _ = buffers;
    }

    /// How often it wants to see what has been counted; `None`: never. Asked once, at the start.
    fn sample_every(&self) -> Option<Span> {
        None
    }

    /// What was counted before `now`: a multiple of [`Observer::sample_every`], in ascending order
    /// and without gaps, and the end of the run.
    fn sample(&mut self, now: Time, counted: &Sample<'_>) {
        let _ = (now, counted);
    }
}
