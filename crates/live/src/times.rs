//! Where time goes: planning, and each step of a migration, from all threads.

use std::sync::atomic::{AtomicU64, Ordering};

use farside_svm::Phase;
use farside_types::Span;
use serde::{Deserialize, Serialize};

use crate::execute::HostWork;

/// Sums of time, in nanoseconds; no command belongs to the step that finds frames.
#[derive(Debug, Default)]
pub(crate) struct Times {
    phases: [AtomicU64; 4],
    plan: AtomicU64,
    command: AtomicU64,
    pages_copied: AtomicU64,
}

/// Where time went, summed over threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimeSpent {
    /// The driver's own part: deciding what goes where, finding frames, making chains, entering what was
    /// done. Finding frames is too short to be timed by itself. Waiting for the driver is not in it.
    pub plan: Span,
    /// Handing commands to cards; those in the program carry theirs out meanwhile.
    pub command: Span,
    /// Stopping those who could write, as far as host processors do it.
    pub setup: Span,
    /// Moving bytes by host processors; what cards copy themselves takes none of them.
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

    pub(crate) fn commanded(&self, span: Span) {
        self.command.fetch_add(span.as_nanos(), Ordering::Relaxed);
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
            plan: Span::from_nanos(self.plan.load(Ordering::Relaxed)),
            command: Span::from_nanos(self.command.load(Ordering::Relaxed)),
            setup: of(Phase::Setup),
            copy: of(Phase::Copy),
            finalize: of(Phase::Finalize),
            pages_copied: self.pages_copied.load(Ordering::Relaxed),
        }
    }
}
