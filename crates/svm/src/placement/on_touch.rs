//! On-touch migration: a page moves to whoever touches it (GRIT, section II-B1).

use farside_types::Reason;

use super::{Action, Decision, FaultView, PlacementScheme};

/// On-touch migration: the best for private and for producer-consumer data.
#[derive(Clone, Copy, Debug, Default)]
pub struct OnTouch;

impl PlacementScheme for OnTouch {
    fn name(&self) -> &'static str {
        "on-touch"
    }

    fn grain(&self) -> u64 {
        u64::MAX
    }

    fn on_fault(&mut self, _fault: &FaultView) -> Decision {
        Decision::page(Action::Migrate, Reason::Demand)
    }
}
