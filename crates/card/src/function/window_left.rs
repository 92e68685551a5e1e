//! What kernels leave behind that they have neither freed nor handed over: the function frees it in their place.

use std::collections::VecDeque;

use super::window_owners::{Owners, names};
use crate::interface::AllocRequest;
use crate::window::AllocError;

/// What is to be freed, and what was begun for kernels that have ended.
#[derive(Clone, Debug, Default)]
pub(super) struct Left {
    /// Addresses; the first may be with the arbiter.
    addresses: VecDeque<u64>,
    is_asked: bool,
    /// A kernel's command that was under way when the kernel ended.
    inherited: Option<AllocRequest>,
}

impl Left {
    /// A kernel has ended with these allocations, while `under_way` was.
    pub(super) fn take_in(&mut self, addresses: Vec<u64>, under_way: Option<AllocRequest>) {
        // One command is under way at a time.
        self.inherited = under_way.or(self.inherited);
        let goes = self.inherited.and_then(names);
        self.addresses.extend(addresses.into_iter().filter(|&address| Some(address) != goes));
    }

    /// What is to be asked for next.
    pub(super) fn next(&self) -> Option<AllocRequest> {
        let address = self.addresses.front().filter(|_| !self.is_asked);
        address.map(|&address| AllocRequest::Free { address })
    }

    /// Whether the arbiter has taken that.
    pub(super) fn asked(&mut self, is_asked: bool) {
        self.is_asked = is_asked;
    }

    /// The function is answered: what was under way comes before what waits.
    pub(super) fn answered(&mut self, result: Result<u64, AllocError>, owners: &mut Owners) {
        let (request, is_inherited) = match self.inherited.take() {
            Some(request) => (request, true),
            None => {
                self.is_asked = false;
                let Some(address) = self.addresses.pop_front() else { return };
                (AllocRequest::Free { address }, false)
            }
        };
        let moves = is_inherited && matches!(request, AllocRequest::Realloc { .. });
        match result {
            Ok(address) => {
                owners.done(request, address, None);
                self.addresses.extend(Some(address).filter(|_| moves));
            }
            // It is as it was. A free that fails finds broken tables; nobody gets the pages.
            Err(_) => self.addresses.extend(names(request).filter(|_| moves)),
        }
    }
}
