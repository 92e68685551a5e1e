//! A compute unit: issues its stream in order, so many accesses at a time, and stands still
//! while one of them waits in a fault.

use farside_types::Time;

/// A compute unit in a launch.
#[derive(Clone, Debug, Default)]
pub(crate) struct ComputeUnit {
    /// Index of the next access of its stream.
    pub(crate) next: usize,
    /// Accesses of the stream.
    pub(crate) end: usize,
    /// Accesses under way, those in faults included.
    pub(crate) outstanding: u32,
    /// Accesses that wait in a fault.
    pub(crate) faults: u32,
    /// It issues at most one access a cycle: not before this.
    pub(crate) next_issue: Time,
    /// An issue event waits in the queue.
    pub(crate) scheduled: bool,
}

impl ComputeUnit {
    /// Starts on a stream of `accesses`.
    pub(crate) fn start(&mut self, accesses: usize, now: Time) {
        debug_assert!(self.outstanding == 0 && self.faults == 0);
        *self = ComputeUnit { end: accesses, next_issue: now, ..ComputeUnit::default() };
    }

    /// Whether it may issue its next access.
    pub(crate) fn ready(&self, limit: u32) -> bool {
        self.next < self.end && self.faults == 0 && self.outstanding < limit
    }

    /// Whether its stream is not finished.
    pub(crate) fn busy(&self) -> bool {
        self.next < self.end || self.outstanding > 0
    }
}
