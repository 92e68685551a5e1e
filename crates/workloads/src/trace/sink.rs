//! What a reader of recordings hands out, whatever the format: markers and accesses in recorded
//! order.

use super::store::Kind;
use crate::Place;
use crate::TraceError;

/// One access of a recording.
#[derive(Clone, Copy, Debug)]
pub(super) struct Recorded {
    /// Its number in the recording, from 0, for errors.
    pub(super) record: u64,
    /// The launch, from 0.
    pub(super) launch: usize,
    pub(super) place: Place,
    /// Number of the wavefront's memory instruction, or the cycle.
    pub(super) sequence: u32,
    pub(super) kind: Kind,
    /// The byte address.
    pub(super) address: u64,
    /// The line of the workload's memory.
    pub(super) line: u32,
}

/// Takes a recording in.
pub(super) trait Sink {
    /// From here on the compute unit runs this wavefront of this work-group.
    fn marker(&mut self, launch: usize, place: Place, group: u32, wave: u16);

    /// An access, checked.
    fn access(&mut self, access: &Recorded) -> Result<(), TraceError>;
}
