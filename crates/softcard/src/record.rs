//! What kernels access, told to whoever wants to keep it.
//!
//! Cards in the program tell a recorder of every range and word that their kernels take through the
//! MMU. Cards in other processes do not: what they access is known there. Without a recorder an
//! access costs one test of a pointer more.

use std::fmt;

use farside_types::{Access, CardId, JobId, PeId, VirtAddr};

/// Who accesses memory: a kernel on a processing element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Running {
    /// The job.
    pub job: JobId,
    /// Its card.
    pub card: CardId,
    /// The processing element.
    pub pe: PeId,
}

/// Bytes that a kernel takes: where, how many, for what.
pub type Taken = (VirtAddr, u64, Access);

/// Is told what kernels on cards in the program access. Called by the processing elements, several
/// at a time, without any lock.
pub trait Recorder: fmt::Debug + Send + Sync {
    /// A kernel begins.
    fn begin(&self, who: Running);

    /// It takes these ranges, all together.
    fn take(&self, who: Running, taken: &[Taken]);

    /// It has ended, in whatever way.
    fn end(&self, who: Running);
}
