//! Where time goes: per step of a migration, from all threads.

use std::sync::atomic::{AtomicU64, Ordering};

use farside_svm::Phase;
use farside_types::Span;
use serde::{Deserialize, Serialize};

use crate::execute::HostWork;

/// Sums of time per step, in nanoseconds.
#[derive(Debug, Default)]
pub(crate) struct Times {
    phases: [AtomicU64; 4],
    plan: AtomicU64,
    pages_copied: AtomicU64,
}

/// Where time went, summed over threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimeSpent {
    /// Stopping those who could write.
    pub setup: Span,
    /// Planning in the driver: frames, splits, bookkeeping.
    pub allocate: Span,
    /// Moving bytes.
    pub copy: Span,
    /// Mapping, waking, giving frames back.
    pub finalize: Span,
    /// Pages copied or filled by host processors.
    pub pages_copied: u64,
}

impl Times {
    pub(crate) fn planned(&self, span: Span) {
        self.plan.fetch_add(span.as_nanos(), Ordering::Relaxed);
    }

    pub(crate) fn carried_out(&self, work: &HostWork, span: Span) {
        let phase = work.header().phase as usize;
        self.phases[phase].fetch_add(span.as_nanos(), Ordering::Relaxed);
        self.pages_copied.fetch_add(work.pages_moved(), Ordering::Relaxed);
    }

    pub(crate) fn spent(&self) -> TimeSpent {
        let of =
            |phase: Phase| Span::from_nanos(self.phases[phase as usize].load(Ordering::Relaxed));
        TimeSpent {
            setup: of(Phase::Setup),
            allocate: Span::from_nanos(self.plan.load(Ordering::Relaxed)),
            copy: of(Phase::Copy),
            finalize: of(Phase::Finalize),
            pages_copied: self.pages_copied.load(Ordering::Relaxed),
        }
    }
}
