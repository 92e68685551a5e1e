//! Whose an allocation of the window is: the driver's, or that of the processing element whose kernel has asked for it.
//!
//! Each reaches its own alone, so a kernel never frees what the driver has shown to others, and the driver never what a
//! kernel works on. A kernel hands over what it leaves behind.

use std::collections::BTreeMap;

use farside_types::PeId;

use crate::interface::AllocRequest;
use crate::window::AllocError;

/// What kernels have, and have asked for.
#[derive(Clone, Debug, Default)]
pub(super) struct Owners {
    /// By the first address: whose, and how many bytes.
    kernels: BTreeMap<u64, (PeId, u64)>,
    /// What they have handed over and the driver has not taken over: by the first address, how many bytes.
    made: BTreeMap<u64, u64>,
    asked: BTreeMap<PeId, AllocRequest>,
}

impl Owners {
    /// Whether a processing element may ask for this.
    pub(super) fn may_ask(&self, pe: PeId, request: AllocRequest) -> bool {
        match request {
            AllocRequest::Malloc { .. } => true,
            AllocRequest::Realloc { address, .. } | AllocRequest::Free { address } => {
                self.kernels.get(&address).is_some_and(|&(owner, _)| owner == pe)
            }
        }
    }

    /// Whether the driver may ask for this.
    pub(super) fn may_driver_ask(&self, request: AllocRequest) -> bool {
        match request {
            AllocRequest::Malloc { .. } => true,
            AllocRequest::Realloc { address, .. } | AllocRequest::Free { address } => {
                !self.kernels.contains_key(&address)
            }
        }
    }

    /// Whether one of these bytes is a kernel's.
    pub(super) fn are_a_kernels(&self, address: u64, bytes: u64) -> bool {
        let before = self.kernels.range(..address.saturating_add(bytes)).next_back();
        before.is_some_and(|(&first, &(_, size))| first.saturating_add(size) > address)
    }

    /// A processing element waits for this.
    pub(super) fn asks(&mut self, pe: PeId, request: AllocRequest) {
        self.asked.insert(pe, request);
    }

    /// And is answered.
    pub(super) fn answered(&mut self, pe: PeId, result: Result<u64, AllocError>) {
        let Some(request) = self.asked.remove(&pe) else { return };
        let Ok(address) = result else { return };
        match request {
            AllocRequest::Malloc { bytes, .. } => {
                self.kernels.insert(address, (pe, bytes));
            }
            AllocRequest::Realloc { address: before, bytes, .. } => {
                self.kernels.remove(&before);
                self.kernels.insert(address, (pe, bytes));
            }
            AllocRequest::Free { address } => {
                self.kernels.remove(&address);
            }
        }
    }

    /// The driver is answered. What it has freed or moved nobody takes over any more.
    pub(super) fn driver_answered(&mut self, request: AllocRequest, is_done: bool) {
        match request {
            AllocRequest::Realloc { address, .. } | AllocRequest::Free { address } if is_done => {
                self.made.remove(&address);
            }
            _ => {}
        }
    }

    /// An allocation is the driver's from now on; `false`: it was not this processing element's.
    pub(super) fn hand_over(&mut self, pe: PeId, address: u64) -> bool {
        let its = self.kernels.get(&address).filter(|&&(owner, _)| owner == pe);
        let Some(&(_, bytes)) = its else { return false };
        self.kernels.remove(&address);
        self.made.insert(address, bytes);
        true
    }

    /// Whether a kernel has handed over so many bytes at an address, and this is said for the first time.
    pub(super) fn take_over(&mut self, address: u64, bytes: u64) -> bool {
        let is_made = self.made.get(&address).is_some_and(|&made| made >= bytes);
        is_made && self.made.remove(&address).is_some()
    }
}
