//! The ideal of GRIT's Figure 1: every page is local after its first read, and writes cost nothing.
//!
//! No machine can do this; it shows what placement could gain at most. The scheme gives every card
//! that asks a copy. That a write needs no right of its own, and takes nothing from others, is what
//! the simulated machine adds: there no fault is ever one for writing.

use farside_svm::PlacementScheme;
use farside_svm::placement::{Action, Decision, FaultView, PageMode};
use farside_types::{PageNo, Reason};

/// Copies for everybody. Only for simulated machines whose writes do not fault.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ideal;

impl PlacementScheme for Ideal {
    fn name(&self) -> &'static str {
        "ideal"
    }

    fn grain(&self) -> u64 {
        u64::MAX
    }

    fn on_fault(&mut self, _fault: &FaultView) -> Decision {
        Decision::page(Action::Duplicate, Reason::Demand)
    }

    fn mode(&self, _page: PageNo) -> PageMode {
        PageMode::Duplication
    }
}
