//! What is lent to kernels that have not ended.
//!
//! Two kernels may hold the same bytes if both only read them, if both use them as shared words, or if one comes
//! after the other. Anything else is refused before it is launched.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use farside::{ArgKind, ForeignJob, KernelArg};
use pyo3::{Py, PyAny};

use crate::memory::Allocation;

/// Number of a launch in its space.
pub(crate) type LaunchId = u64;

/// A launch, and what it was lent.
pub(crate) struct Lend {
    pub(crate) kernel: String,
    pub(crate) job: Arc<ForeignJob>,
    bytes: Vec<(Range<u64>, ArgKind)>,
    /// Launches that have ended before this one begins.
    before: BTreeSet<LaunchId>,
    stream: Option<u32>,
    /// Lives until the kernel has ended.
    _memory: Vec<Arc<Allocation>>,
    _function: Option<Py<PyAny>>,
}

/// A launch that is about to be made.
pub(crate) struct Wanted<'a> {
    pub(crate) kernel: &'a str,
    pub(crate) records: &'a [KernelArg],
    pub(crate) after: &'a [LaunchId],
    pub(crate) stream: Option<u32>,
}

/// The launches of a space that have not ended.
#[derive(Default)]
pub(crate) struct Lendings {
    next: LaunchId,
    lends: Vec<(LaunchId, Lend)>,
}

impl Lendings {
    /// Takes those out whose kernels have ended. To be dropped where no lock is held: their memory may be freed then.
    #[must_use]
    pub(crate) fn ended(&mut self) -> Vec<Lend> {
        let (mut ended, mut live) = (Vec::new(), Vec::new());
        for (id, lend) in self.lends.drain(..) {
            if lend.job.wait(Some(Duration::ZERO)).is_some() {
                ended.push(lend);
            } else {
                live.push((id, lend));
            }
        }
        self.lends = live;
        ended
    }

    /// The jobs that have not ended.
    pub(crate) fn jobs(&self) -> Vec<Arc<ForeignJob>> {
        self.lends.iter().map(|(_, lend)| Arc::clone(&lend.job)).collect()
    }

    /// The launches that have ended before a wanted one begins.
    pub(crate) fn before(&self, wanted: &Wanted<'_>) -> BTreeSet<LaunchId> {
        let precedes = |id: &LaunchId, lend: &Lend| {
            wanted.after.contains(id) || (wanted.stream.is_some() && lend.stream == wanted.stream)
        };
        let direct = self.lends.iter().filter(|(id, lend)| precedes(id, lend));
        direct.flat_map(|(id, lend)| lend.before.iter().copied().chain([*id])).collect()
    }

    /// Why the wanted launch cannot be made: the launch that holds its memory.
    pub(crate) fn conflict(
        &self,
        wanted: &Wanted<'_>,
        before: &BTreeSet<LaunchId>,
    ) -> Option<String> {
        let beside = self.lends.iter().filter(|(id, _)| !before.contains(id));
        for (_, lend) in beside {
            for (bytes, kind) in lent(wanted.records) {
                let clash = |(held, how): &&(Range<u64>, ArgKind)| {
                    let apart = held.end <= bytes.start || bytes.end <= held.start;
                    let agree = *how == kind && kind != ArgKind::Write;
                    !apart && !agree
                };
                if let Some((held, _)) = lend.bytes.iter().find(clash) {
                    return Some(format!(
                        "kernel `{}` was not launched: {:#x}..{:#x} is lent to kernel `{}`, which has not ended; wait \
                         for its future, or pass that as `after=`",
                        wanted.kernel, held.start, held.end, lend.kernel
                    ));
                }
            }
        }
        None
    }

    /// Notes a launch.
    pub(crate) fn add(
        &mut self,
        wanted: &Wanted<'_>,
        before: BTreeSet<LaunchId>,
        job: Arc<ForeignJob>,
        memory: Vec<Arc<Allocation>>,
        function: Option<Py<PyAny>>,
    ) -> LaunchId {
        let id = self.next;
        self.next += 1;
        let lend = Lend {
            kernel: wanted.kernel.to_owned(),
            job,
            bytes: lent(wanted.records).collect(),
            before,
            stream: wanted.stream,
            _memory: memory,
            _function: function,
        };
        self.lends.push((id, lend));
        id
    }
}

/// The memory among records.
pub(crate) fn lent(records: &[KernelArg]) -> impl Iterator<Item = (Range<u64>, ArgKind)> + '_ {
    let memory = records.iter().filter(|arg| arg.kind != ArgKind::Value && arg.bytes > 0);
    memory.map(|arg| (arg.word..arg.word.saturating_add(arg.bytes), arg.kind))
}
