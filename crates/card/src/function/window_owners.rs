//! Whose an allocation of the window is: the driver's, or that of the kernel that has asked for it.
//!
//! Each reaches its own alone, so a kernel never frees what the driver has shown to others, and the driver never what a
//! kernel works on. A kernel hands over what it leaves behind. It is known by its job: one that was given up may go on, while
//! its processing element has another.

use std::collections::BTreeMap;

use farside_types::{JobId, PeId};

use crate::interface::AllocRequest;
use crate::window::AllocError;

/// What kernels have, and have asked for.
#[derive(Clone, Debug, Default)]
pub(super) struct Owners {
    /// By the first address.
    kernels: BTreeMap<u64, Owned>,
    /// What they have handed over and the driver has not taken over: by the first address, how many bytes.
    made: BTreeMap<u64, u64>,
    /// By the processing element that has asked.
    asked: BTreeMap<PeId, Asked>,
}

#[derive(Clone, Copy, Debug)]
struct Owned {
    /// `None`: its kernel has ended, and it is being freed.
    whose: Option<JobId>,
    bytes: u64,
}

#[derive(Clone, Copy, Debug)]
struct Asked {
    job: JobId,
    request: AllocRequest,
}

/// The allocation that a command is about.
pub(super) fn names(request: AllocRequest) -> Option<u64> {
    match request {
        AllocRequest::Malloc { .. } => None,
        AllocRequest::Realloc { address, .. } | AllocRequest::Free { address } => Some(address),
    }
}

impl Owners {
    fn is_of(&self, job: JobId, address: u64) -> bool {
        self.kernels.get(&address).is_some_and(|own| own.whose == Some(job))
    }

    /// Whether a job may ask for this.
    pub(super) fn may_ask(&self, job: JobId, request: AllocRequest) -> bool {
        names(request).is_none_or(|address| self.is_of(job, address))
    }

    /// Whether the driver may ask for this.
    pub(super) fn may_driver_ask(&self, request: AllocRequest) -> bool {
        names(request).is_none_or(|address| !self.kernels.contains_key(&address))
    }

    /// Whether one of these bytes is a kernel's.
    pub(super) fn are_a_kernels(&self, address: u64, bytes: u64) -> bool {
        let before = self.kernels.range(..address.saturating_add(bytes)).next_back();
        before.is_some_and(|(&first, own)| first.saturating_add(own.bytes) > address)
    }

    /// A job waits for this on a processing element.
    pub(super) fn asks(&mut self, pe: PeId, job: JobId, request: AllocRequest) {
        self.asked.insert(pe, Asked { job, request });
    }

    /// And is answered: which.
    pub(super) fn answered(&mut self, pe: PeId, result: Result<u64, AllocError>) -> Option<JobId> {
        let Asked { job, request } = self.asked.remove(&pe)?;
        if let Ok(address) = result {
            self.done(request, address, Some(job));
        }
        Some(job)
    }

    /// A command was carried out for a kernel, or for one that has ended (`None`), with this address.
    pub(super) fn done(&mut self, request: AllocRequest, address: u64, whose: Option<JobId>) {
        if let Some(before) = names(request) {
            self.kernels.remove(&before);
        }
        match request {
            AllocRequest::Malloc { bytes, .. } | AllocRequest::Realloc { bytes, .. } => {
                self.kernels.insert(address, Owned { whose, bytes });
            }
            AllocRequest::Free { .. } => {}
        }
    }

    /// A job waits for nothing any more: what it has waited for, and where.
    pub(super) fn forget_request(&mut self, job: JobId) -> Option<(PeId, AllocRequest)> {
        let pe = self.asked.iter().find(|(_, asked)| asked.job == job).map(|(&pe, _)| pe)?;
        self.asked.remove(&pe).map(|asked| (pe, asked.request))
    }

    /// A job has ended: what it has is nobody's.
    pub(super) fn ended(&mut self, job: JobId) -> Vec<u64> {
        let its = self.kernels.iter_mut().filter(|(_, own)| own.whose == Some(job));
        let leave = |(&address, own): (&u64, &mut Owned)| {
            own.whose = None;
            address
        };
        its.map(leave).collect()
    }

    /// The driver is answered. What it has freed or moved nobody takes over any more.
    pub(super) fn driver_answered(&mut self, request: AllocRequest, is_done: bool) {
        if let Some(address) = names(request).filter(|_| is_done) {
            self.made.remove(&address);
        }
    }

    /// An allocation is the driver's from now on; `false`: it was not this job's.
    pub(super) fn hand_over(&mut self, job: JobId, address: u64) -> bool {
        if !self.is_of(job, address) {
            return false;
        }
        let own = self.kernels.remove(&address);
        self.made.extend(own.map(|own| (address, own.bytes)));
        true
    }

    /// Whether a kernel has handed over so many bytes at an address, and this is said for the first time.
    pub(super) fn take_over(&mut self, address: u64, bytes: u64) -> bool {
        let is_made = self.made.get(&address).is_some_and(|&made| made >= bytes);
        is_made && self.made.remove(&address).is_some()
    }
}
