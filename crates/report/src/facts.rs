//! The facts of a log, for people's pages and for machines. Times are picoseconds from the beginning, sizes bytes.

use farside_events::Memory;
use serde::Serialize;

use crate::rules::Remedy;

/// All that a log says.
#[derive(Clone, Debug, Serialize)]
pub struct Facts {
    /// What ran, and what of it is in the log.
    pub log: LogFacts,
    /// Sums.
    pub totals: Totals,
    /// What to do, what saves most first. None: nothing that is known is wrong.
    pub remedies: Vec<Remedy>,
    /// Bytes that came to a memory, by where from and why; most first.
    pub moves: Vec<MoveFacts>,
    /// Faults by who had them, most first.
    pub faults: Vec<FaultFacts>,
    /// The allocations that cost most, most first.
    pub allocations: Vec<AllocationFacts>,
    /// Allocations that are not listed.
    pub allocations_left_out: u64,
    /// Kernels by name, those that ran longest first.
    pub kernels: Vec<KernelFacts>,
    /// The ranges that cost most, with what happened to them.
    pub ranges: Vec<RangeFacts>,
    /// Sums over time.
    pub series: SeriesFacts,
    /// Which memory had which pages when.
    pub heat: HeatFacts,
    /// When kernels ran.
    pub runs: Vec<RunFacts>,
}

/// What ran, and what of it is in the log.
#[derive(Clone, Debug, Serialize)]
pub struct LogFacts {
    /// The program or workload.
    pub program: String,
    /// Live, or what was simulated.
    pub machine: String,
    /// The placement scheme.
    pub scheme: String,
    /// Bytes of a page.
    pub page_bytes: u64,
    /// The memories; their numbers are positions in this list. An agent has the number of its memory.
    pub memories: Vec<Memory>,
    /// Events in the log.
    pub events: u64,
    /// Events that found no room in it.
    pub dropped: u64,
    /// Bytes behind the last footer of a log that was cut; they are not read.
    pub cut: Option<u64>,
    /// The last event.
    pub end: u64,
}

/// Sums over the whole log.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Totals {
    /// Faults, of whomever.
    pub faults: u64,
    /// Of these, those of cards that only lacked a translation.
    pub refills: u64,
    /// Pages that came to a memory, zeros as well.
    pub pages_moved: u64,
    /// Those of them that came from another memory.
    pub pages_copied: u64,
    /// Pages that left a full card.
    pub pages_evicted: u64,
    /// Those that came back to it later.
    pub pages_returned: u64,
    /// Pages that an agent took from another by faults, after another had taken them.
    pub pages_handed: u64,
    /// Pages that agents had to let go of, or stop writing.
    pub pages_stopped: u64,
    /// Pages mapped over the bus.
    pub pages_mapped_afar: u64,
    /// Pages that changed and are beyond those that are followed one by one, 2^26 at a time: they are not in the picture.
    pub pages_not_followed: u64,
    /// Kernels that ended.
    pub kernels: u64,
    /// Those of them that did not end well.
    pub kernels_failed: u64,
    /// Allocations.
    pub allocations: u64,
    /// Hints of the program.
    pub hints: u64,
}

/// Bytes that came to a memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MoveFacts {
    /// From which memory; none: zeros.
    pub from: Option<u8>,
    /// To which.
    pub to: u8,
    /// Why.
    pub reason: &'static str,
    /// How much.
    pub bytes: u64,
}

/// Faults of an agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FaultFacts {
    /// Who.
    pub agent: u8,
    /// To read.
    pub reads: u64,
    /// To write.
    pub writes: u64,
    /// Those that only lacked a translation.
    pub refills: u64,
}

/// An allocation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AllocationFacts {
    /// Its name; may be empty.
    pub name: String,
    /// Its first byte.
    pub address: u64,
    /// Its size.
    pub bytes: u64,
    /// How often it was made: one that is given back and made again is one.
    pub times: u64,
    /// Faults on it.
    pub faults: u64,
    /// Pages of it that came to a memory.
    pub pages_moved: u64,
    /// Pages that left a full card.
    pub pages_evicted: u64,
    /// Pages that came back after that.
    pub pages_returned: u64,
    /// Pages that agents took from each other.
    pub pages_handed: u64,
}

/// All kernels of a name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct KernelFacts {
    /// The name.
    pub name: String,
    /// How many ended.
    pub count: u64,
    /// How many of them not well.
    pub failed: u64,
    /// Time from begin to end, added up.
    pub time: u64,
    /// The longest.
    pub longest: u64,
    /// Faults of its card while it ran; where several ran, of the one that began last.
    pub faults: u64,
    /// Pages that came to its card meanwhile.
    pub pages_moved: u64,
}

/// Kernels that ran, behind each other if they are of one name and too short to be told apart.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RunFacts {
    /// Where.
    pub agent: u8,
    /// The kernel: its position in [`Facts::kernels`].
    pub kernel: usize,
    /// From when.
    pub from: u64,
    /// Until when.
    pub until: u64,
    /// How many.
    pub count: u64,
}

/// A range of an allocation that cost much.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RangeFacts {
    /// The allocation's name.
    pub name: String,
    /// Its first page in the allocation.
    pub first_page: u64,
    /// Its pages.
    pub pages: u64,
    /// Faults on it.
    pub faults: u64,
    /// Pages of it that came to a memory.
    pub pages_moved: u64,
    /// What happened, in the order of time: the first and the last of it.
    pub history: Vec<HistoryFacts>,
    /// What happened between these and is left out.
    pub left_out: u64,
}

/// Something that happened to a range.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HistoryFacts {
    /// When.
    pub at: u64,
    /// What, in words.
    pub what: String,
}

/// Sums over time, [`crate::BINS`] of the same length.
#[derive(Clone, Debug, Serialize)]
pub struct SeriesFacts {
    /// The length.
    pub bin: u64,
    /// Bytes from memory to memory.
    pub links: Vec<Series>,
    /// Faults of agents.
    pub faults: Vec<Series>,
    /// Pages that came, by reason.
    pub reasons: Vec<Series>,
}

/// Sums of one kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Series {
    /// Of what.
    pub name: String,
    /// By bin.
    pub values: Vec<u64>,
}

/// Which memory had which pages when.
#[derive(Clone, Debug, Serialize)]
pub struct HeatFacts {
    /// Ranges of pages, by allocation and address.
    pub rows: Vec<HeatRow>,
    /// Allocations that have no rows: those that cost least.
    pub left_out: u64,
}

/// A range of pages over time.
#[derive(Clone, Debug, Serialize)]
pub struct HeatRow {
    /// The allocation's name.
    pub name: String,
    /// The first page in the allocation.
    pub first_page: u64,
    /// Its pages.
    pub pages: u64,
    /// A character for each bin: `.` nowhere, `*` in several memories, `a` in the first one, and so on; where
    /// they are in different ones, the one that has most.
    pub places: String,
    /// Pages that came in each bin: pairs of bin and pages.
    pub moves: Vec<(usize, u64)>,
}
