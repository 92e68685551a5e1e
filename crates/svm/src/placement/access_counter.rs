//! Access-counter migration: map remotely, move when it is used enough (GRIT, section II-B2).

use farside_types::{PageNo, Reason};

use super::{Action, CounterView, Decision, FaultView, Placement, Scheme, Scope};

/// Access-counter migration. The threshold (256 on Volta) is the card's: the driver hears of a
/// group when it is reached.
#[derive(Clone, Copy, Debug, Default)]
pub struct AccessCounter;

impl Placement for AccessCounter {
    fn name(&self) -> &'static str {
        "access-counter"
    }

    fn is_uniform(&self) -> bool {
        true
    }

    fn scheme(&self, _page: PageNo) -> Scheme {
        Scheme::AccessCounter
    }

    fn on_fault(&mut self, fault: &FaultView) -> Decision {
        let action = if fault.owner.is_none() { Action::Migrate } else { Action::MapRemote };
        Decision::page(action, Reason::Demand)
    }

    fn on_counter(&mut self, notice: &CounterView) -> Vec<Decision> {
        let scope = Scope::Range(notice.pages);
        vec![Decision::page(Action::Migrate, Reason::Counter).over(scope)]
    }
}
