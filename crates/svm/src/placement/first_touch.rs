//! First touch: a page goes to the first card that touches it and stays there.

use farside_types::{MemoryId, Reason};

use super::{Action, Decision, FaultView, PageMode, PlacedView, PlacementScheme};
use crate::Evidence;

/// First-touch placement. Later accesses of others go over the bus, where they can.
#[derive(Clone, Copy, Debug, Default)]
pub struct FirstTouch;

impl PlacementScheme for FirstTouch {
    fn name(&self) -> &'static str {
        "first-touch"
    }

    fn grain(&self) -> u64 {
        u64::MAX
    }

    fn explain(&self, page: &PlacedView) -> (PageMode, Vec<Evidence>) {
        let there = page.owner.is_some_and(|owner| !owner.is_host());
        (if there { PageMode::AccessCounter } else { PageMode::OnTouch }, Vec::new())
    }

    fn on_fault(&mut self, fault: &FaultView) -> Decision {
        let action = match fault.owner {
            None | Some(MemoryId::HOST) if !fault.agent.is_cpu() => Action::Migrate,
            None => Action::Migrate,
            Some(_) => Action::MapRemote,
        };
        Decision::page(action, Reason::Demand)
    }
}
