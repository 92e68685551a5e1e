//! Who is served next: a fair queue of requests for sets of devices.
//!
//! Each request gets a *tag* when it arrives: one above the tag of the host's last waiting request, and
//! one above that of the last request that was served (start-time fair queueing with cost one). The
//! order of tags never changes, so nobody is pushed back; a host that asks for much gets high tags for
//! it, so another's single request comes before most of them.
//!
//! A request is served when all its devices are free at once; it holds none while it waits, so there
//! is no deadlock. Later requests may overtake it a bounded number of times; then free devices that it
//! waits for are kept for it, so it is not starved by small requests either.

use std::collections::BTreeSet;

use crate::ids::{BorrowerId, DeviceName, DeviceSet, HostName, RequestId};
use crate::time::BootTime;

/// A request that waits.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Waiting {
    pub(crate) request: RequestId,
    pub(crate) borrower: BorrowerId,
    pub(crate) devices: DeviceSet,
    /// For how long it wants them, each time.
    pub(crate) duration_ns: u64,
    pub(crate) since: BootTime,
    /// When it gives up.
    pub(crate) until: BootTime,
    tag: u64,
    overtaken: u32,
}

impl Waiting {
    pub(crate) fn new(
        request: RequestId,
        borrower: BorrowerId,
        devices: DeviceSet,
        duration_ns: u64,
        since: BootTime,
        until: BootTime,
    ) -> Self {
        Self { request, borrower, devices, duration_ns, since, until, tag: 0, overtaken: 0 }
    }

    pub(crate) fn is(&self, host: &HostName, request: RequestId) -> bool {
        self.request == request && self.borrower.host == *host
    }
}

/// The requests that wait, in the order in which they are to be served.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Queue {
    /// In the order of tags, and of arrival among equals.
    waiting: Vec<Waiting>,
    /// The highest tag that was served.
    served: u64,
}

impl Queue {
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Waiting> {
        self.waiting.iter()
    }

    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// The requests of one host.
    pub(crate) fn of(&self, host: &HostName) -> impl Iterator<Item = &Waiting> {
        self.iter().filter(move |entry| entry.borrower.host == *host)
    }

    /// How many are to be served before a request, if it waits.
    pub(crate) fn place(&self, host: &HostName, request: RequestId) -> Option<usize> {
        self.waiting.iter().position(|entry| entry.is(host, request))
    }

    /// Puts a request where it belongs.
    pub(crate) fn insert(&mut self, mut entry: Waiting) {
        let own = self.of(&entry.borrower.host).map(|entry| entry.tag).max().unwrap_or(0);
        entry.tag = own.max(self.served) + 1;
        let at = self.waiting.partition_point(|before| before.tag <= entry.tag);
        self.waiting.insert(at, entry);
    }

    /// Takes the next request out whose devices are all free and not kept for another.
    pub(crate) fn next(
        &mut self,
        overtakes_max: u32,
        free: impl Fn(&DeviceName) -> bool,
    ) -> Option<Waiting> {
        let mut kept: BTreeSet<&DeviceName> = BTreeSet::new();
        let mut found = None;
        for (at, entry) in self.waiting.iter().enumerate() {
            if entry.devices.iter().all(|device| free(device) && !kept.contains(device)) {
                found = Some(at);
                break;
            }
            if entry.overtaken >= overtakes_max {
                kept.extend(entry.devices.iter());
            }
        }
        let entry = self.waiting.remove(found?);
        self.served = self.served.max(entry.tag);
        for before in &mut self.waiting[..found?] {
            if before.devices.meets(&entry.devices) {
                before.overtaken += 1;
            }
        }
        Some(entry)
    }

    /// Takes one request out.
    pub(crate) fn remove(&mut self, host: &HostName, request: RequestId) -> Option<Waiting> {
        self.place(host, request).map(|at| self.waiting.remove(at))
    }

    /// Takes all requests out that `gone` says.
    pub(crate) fn take(&mut self, gone: impl Fn(&Waiting) -> bool) -> Vec<Waiting> {
        let (taken, kept) = std::mem::take(&mut self.waiting).into_iter().partition(gone);
        self.waiting = kept;
        taken
    }
}
