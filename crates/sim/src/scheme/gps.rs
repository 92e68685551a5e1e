//! GPS: a global publish-subscribe model for multi-GPU memory (Muthukrishnan et al., MICRO 2021).
//!
//! A GPU that accesses a page subscribes to it and gets a replica; every store goes to all replicas,
//! so that loads are always local. The scheme gives the replicas. That stores are broadcast, instead
//! of taking the other copies away, is what the simulated machine adds: a GPU without the page
//! faults on it as for reading, whatever its access.
//!
//! As GRIT's comparison describes it (section VI-C2), subscribers are those that have accessed the
//! page; a subscription ends when the replica is evicted.

use farside_svm::PlacementScheme;
use farside_svm::placement::{Action, Decision, FaultView, PageMode};
use farside_types::{PageNo, Reason};

/// A replica for every card that accesses a page. Only for simulated machines that broadcast
/// stores.
#[derive(Clone, Copy, Debug, Default)]
pub struct Gps;

impl PlacementScheme for Gps {
    fn name(&self) -> &'static str {
        "gps"
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
