//! A rule of twelve lines, as a yardstick for schemes that learn: a page that is read is copied, one that is
//! written moves, and one that a card has written while another had it is mapped where it is from then on.

use std::collections::BTreeSet;

use farside_svm::PlacementScheme;
use farside_svm::placement::{Action, Decision, FaultView, PageMode, SchemeState};
use farside_types::{MemoryId, PageNo, PageRange, Reason};

use crate::state::{Reader, Writer};

/// Read: copy. Write: move. After one foreign write: map remotely, for good.
#[derive(Clone, Debug, Default)]
pub struct CopyMoveMap {
    /// Pages that a card has written while another had them.
    foreign: BTreeSet<PageNo>,
}

impl PlacementScheme for CopyMoveMap {
    fn name(&self) -> &'static str {
        "copy-move-map"
    }

    fn on_fault(&mut self, fault: &FaultView) -> Decision {
        let write = fault.access.is_write();
        let others = fault.copies.without(MemoryId::HOST).without(fault.agent.home());
        // What capacity sent to the host comes back as it came.
        if self.foreign.contains(&fault.page) && fault.copies.len() == 1 && !others.is_empty() {
            return Decision::page(Action::MapRemote, Reason::Demand);
        }
        if write && !others.is_empty() {
            self.foreign.insert(fault.page);
        }
        let taken = write && fault.copies.len() > 1;
        let reason = if taken { Reason::Collapse } else { Reason::Demand };
        Decision::page(if write { Action::Migrate } else { Action::Duplicate }, reason)
    }

    fn on_free(&mut self, pages: PageRange) {
        self.foreign.retain(|&page| !pages.contains(page));
    }

    fn mode(&self, page: PageNo) -> PageMode {
        match self.foreign.contains(&page) {
            true => PageMode::AccessCounter,
            false => PageMode::Duplication,
        }
    }

    fn save_state(&self) -> SchemeState {
        let mut to = Writer::default();
        to.value(&self.foreign).expect("numbers are written to memory");
        SchemeState::from_bytes(self.name(), to.into_bytes())
    }

    fn restore_state(&mut self, state: SchemeState) -> Result<(), String> {
        let mut from = Reader::new(state.bytes_of(self.name())?);
        self.foreign = from.value().map_err(|refused| refused.to_string())?;
        from.end().map_err(|refused| refused.to_string())
    }
}
