//! Page duplication: every reader gets a copy, a write collapses them (GRIT, section II-B3).

use farside_types::{PageNo, Reason};

use super::{Action, Decision, FaultView, PageMode, PlacementScheme};

/// Page duplication with write collapse.
#[derive(Clone, Copy, Debug, Default)]
pub struct Duplication;

impl PlacementScheme for Duplication {
    fn name(&self) -> &'static str {
        "duplication"
    }

    fn grain(&self) -> u64 {
        u64::MAX
    }

    fn mode(&self, _page: PageNo) -> PageMode {
        PageMode::Duplication
    }

    fn on_fault(&mut self, fault: &FaultView) -> Decision {
        let collapse = fault.access.is_write() && fault.copies.len() > 1;
        let reason = if collapse { Reason::Collapse } else { Reason::Demand };
        Decision::page(Action::Duplicate, reason)
    }
}
