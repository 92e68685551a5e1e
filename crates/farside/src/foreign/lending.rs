//! What is lent to kernels that have not ended.
//!
//! Two kernels may hold the same bytes if both only read them, if both use them as shared words, or if one comes
//! after the other. Anything else is refused before it is launched.

use std::any::Any;
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use farside_softcard::kernels::{ArgKind, KernelArg};

use super::job::ForeignJob;
use super::memory::Allocation;
use crate::Error;

/// Number of a launch in its process: a job of another space is none of this one's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LaunchId(u64);

impl LaunchId {
    fn next() -> LaunchId {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        LaunchId(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// What lives until a kernel has ended, besides the memory that it is lent.
pub(crate) type Kept = Option<Box<dyn Any + Send>>;

/// A launch, and what it was lent.
#[derive(Debug)]
pub(crate) struct Lend {
    kernel: String,
    job: Arc<ForeignJob>,
    bytes: Vec<(Range<u64>, ArgKind)>,
    /// Launches that have ended before this one begins.
    before: BTreeSet<LaunchId>,
    stream: Option<u32>,
    _memory: Vec<Arc<Allocation>>,
    _kept: Kept,
}

/// A launch that is about to be made.
pub(crate) struct Wanted<'a> {
    pub(crate) kernel: &'a str,
    pub(crate) records: &'a [KernelArg],
    pub(crate) after: &'a [LaunchId],
    pub(crate) stream: Option<u32>,
}

/// The launches of a space that have not ended.
#[derive(Debug, Default)]
pub(crate) struct Lendings {
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

    /// Refuses a wanted launch if one beside it holds its memory.
    ///
    /// # Errors
    /// [`Error::Lent`]
    pub(crate) fn check(
        &self,
        wanted: &Wanted<'_>,
        before: &BTreeSet<LaunchId>,
    ) -> Result<(), Error> {
        let beside = self.lends.iter().filter(|(id, _)| !before.contains(id));
        for (_, lend) in beside {
            for (bytes, kind) in lent(wanted.records) {
                let clash = |(held, how): &&(Range<u64>, ArgKind)| {
                    let apart = held.end <= bytes.start || bytes.end <= held.start;
                    let agree = *how == kind && kind != ArgKind::Write;
                    !apart && !agree
                };
                if let Some((held, _)) = lend.bytes.iter().find(clash) {
                    let kernel = format!("kernel `{}` was not launched", wanted.kernel);
                    let holder = lend.kernel.clone();
                    return Err(Error::Lent { kernel, bytes: held.clone(), holder });
                }
            }
        }
        Ok(())
    }

    /// The kernel that has not ended and holds some of these bytes.
    pub(crate) fn holder(&self, bytes: &Range<u64>) -> Option<&str> {
        let holds =
            |(held, _): &(Range<u64>, ArgKind)| held.start < bytes.end && bytes.start < held.end;
        let lend = self.lends.iter().find(|(_, lend)| lend.bytes.iter().any(holds));
        lend.map(|(_, lend)| lend.kernel.as_str())
    }

    /// Notes a launch.
    pub(crate) fn add(
        &mut self,
        wanted: &Wanted<'_>,
        before: BTreeSet<LaunchId>,
        job: Arc<ForeignJob>,
        memory: Vec<Arc<Allocation>>,
        kept: Kept,
    ) -> LaunchId {
        let id = LaunchId::next();
        let lend = Lend {
            kernel: wanted.kernel.to_owned(),
            job,
            bytes: lent(wanted.records).collect(),
            before,
            stream: wanted.stream,
            _memory: memory,
            _kept: kept,
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
