//! Access-counter migration: map remotely, move when it is used enough (GRIT, section II-B2).

use farside_types::{MemoryId, PageNo, Reason};
use serde::{Deserialize, Serialize};

use super::parameters::Parameters;
use super::{
    Action, CounterView, Decision, FaultView, PageMode, PlacedView, PlacementScheme, SchemeError,
    Scope,
};
use crate::Evidence;

/// Access-counter migration. The threshold (256 on Volta) is the card's: the driver hears of a
/// group when it is reached.
///
/// A page on the host moves to the card that touches it first: the paper maps pages "in another
/// GPU" remotely, and NVIDIA's driver, too, brings host pages in on their first fault.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccessCounter {
    /// Pages on the host are mapped over the bus as well, and move when the counter says so.
    pub map_host: bool,
}

impl AccessCounter {
    pub(super) fn from_parameters(
        parameters: &mut Parameters<'_>,
    ) -> Result<AccessCounter, SchemeError> {
        let about = "map pages of the host too, instead of moving them at the first fault";
        Ok(AccessCounter { map_host: parameters.switch("map-host", false, about)? })
    }
}

impl PlacementScheme for AccessCounter {
    fn name(&self) -> &'static str {
        "access-counter"
    }

    fn grain(&self) -> u64 {
        u64::MAX
    }

    fn mode(&self, _page: PageNo) -> PageMode {
        PageMode::AccessCounter
    }

    fn explain(&self, page: &PlacedView) -> (PageMode, Vec<Evidence>) {
        let there = page.owner.is_some_and(|owner| !owner.is_host() || self.map_host);
        (if there { PageMode::AccessCounter } else { PageMode::OnTouch }, Vec::new())
    }

    fn on_fault(&mut self, fault: &FaultView) -> Decision {
        let comes = |owner: MemoryId| owner.is_host() && !self.map_host;
        let action =
            if fault.owner.is_none_or(comes) { Action::Migrate } else { Action::MapRemote };
        Decision::page(action, Reason::Demand)
    }

    fn on_counter(&mut self, notice: &CounterView, decisions: &mut Vec<Decision>) {
        let scope = Scope::Range(notice.pages);
        decisions.push(Decision::page(Action::Migrate, Reason::Counter).over(scope));
    }
}
