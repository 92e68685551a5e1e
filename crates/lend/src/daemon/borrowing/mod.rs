//! The borrower's side: the leases that users of this host have of others' devices.
//!
//! What to ask for and when to stop is decided by `farside-lease`, one [`Side`] for each lender; each
//! [`HeldLease`] tells its programs by the page of its term how long it may be used. It is given back when
//! whoever borrowed hangs up.

mod any;
pub(super) mod held;
mod past;
mod side;
mod together;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use farside_lease::{DeviceName, DeviceSet};
use farside_linux::lock::lock;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};
use tonic::Status;

use super::Daemon;
use super::users::User;
use crate::config::Config;
use crate::end::Counted;
use crate::proto::borrow_for_event::Event as Told;
use crate::proto::{BorrowForEvent, Held, HostDevices};

use held::HeldLease;
use past::Past;
use side::Side;
pub(super) use together::borrow_for;

/// Leases that this host has at a time, at most.
const HELD_MAX: usize = 1024;
/// How long giving everything back may take.
const GIVE_BACK_LIMIT: Duration = Duration::from_secs(2);
/// Events that whoever borrows has not taken, at most.
const EVENTS_MAX: usize = 16;

/// To whoever borrows.
type Events = mpsc::Sender<Result<BorrowForEvent, Status>>;

fn told(event: Told) -> BorrowForEvent {
    BorrowForEvent { event: Some(event) }
}

/// See the module.
#[derive(Default)]
pub(super) struct Borrowing {
    /// By their lenders.
    sides: Mutex<BTreeMap<String, Arc<Side>>>,
    past: Arc<Past>,
}

impl Borrowing {
    fn leases(&self) -> Vec<(Arc<Side>, Arc<HeldLease>)> {
        let sides: Vec<Arc<Side>> = lock(&self.sides).values().cloned().collect();
        let of = |side: Arc<Side>| {
            side.leases()
                .into_iter()
                .map(move |lease| (Arc::clone(&side), lease))
                .collect::<Vec<_>>()
        };
        sides.into_iter().flat_map(of).collect()
    }

    fn side(&self, daemon: &Arc<Daemon>, host: &str) -> Arc<Side> {
        let mut sides = lock(&self.sides);
        let side = sides.entry(host.to_owned()).or_insert_with(|| Side::start(daemon, host));
        Arc::clone(side)
    }

    /// What the borrower's ends of all leases have counted since the daemon's start.
    pub(super) fn carried(&self) -> Counted {
        self.past.with(|| self.leases().iter().map(|(_, lease)| lease.counted()).collect())
    }

    /// The leases that are held.
    pub(super) fn held(&self) -> Vec<Held> {
        self.leases().iter().map(|(_, lease)| lease.described()).collect()
    }

    /// Gives a user's lease back.
    pub(super) fn give_back(&self, user: &User, config: &Config, name: &str) -> Result<(), Status> {
        let mut found = self.leases();
        found.retain(|(_, lease)| lease.is_named(name));
        let Some((side, lease)) = found.pop() else {
            let why = format!("this host does not have {name}; `farside who` lists what it has");
            return Err(Status::not_found(why));
        };
        if !found.is_empty() {
            let why = format!("this host has {name} of several others: say {name}@HOST");
            return Err(Status::invalid_argument(why));
        }
        if lease.user.uid != user.uid {
            user.governs(config)?;
        }
        lease.end(Some("it is given back"));
        side.give_back(&lease.id);
        Ok(())
    }

    /// Gives all back, as far as lenders answer.
    pub(super) async fn give_all_back(&self) {
        self.leases().iter().for_each(|(side, lease)| side.give_back(&lease.id));
        let idle = async {
            while !lock(&self.sides).values().all(|side| side.is_idle()) {
                sleep(Duration::from_millis(10)).await;
            }
            // What was sent last is on its way.
            sleep(Duration::from_millis(50)).await;
        };
        let _ = timeout(GIVE_BACK_LIMIT, idle).await;
    }
}

impl Daemon {
    /// The devices of a request, by the hosts that lend them.
    async fn by_lender(&self, names: &[String]) -> Result<BTreeMap<String, DeviceSet>, Status> {
        let mut wanted: BTreeMap<String, Vec<DeviceName>> = BTreeMap::new();
        let hosts = if names.iter().all(|name| name.contains('@')) {
            Vec::new()
        } else {
            self.available().await
        };
        let invalid = |error: &dyn std::fmt::Display| Status::invalid_argument(error.to_string());
        let (own, peers) = (self.host(), self.peers());
        for name in names {
            let (device, host) = match name.split_once('@') {
                // Something is kept of every lender that is asked: only of hosts that there are.
                Some((_, host)) if host != own && peers.iter().all(|peer| peer.host != host) => {
                    return Err(unknown(host));
                }
                Some((device, host)) => (device, host.to_owned()),
                None => (name.as_str(), lender_of(name, &hosts)?),
            };
            let device = DeviceName::new(device).map_err(|error| invalid(&error))?;
            wanted.entry(host).or_default().push(device);
        }
        if wanted.is_empty() {
            return Err(Status::invalid_argument("no device is named"));
        }
        let set = |(host, devices)| {
            DeviceSet::new(devices).map(|set| (host, set)).map_err(|error| invalid(&error))
        };
        wanted.into_iter().map(set).collect()
    }
}

/// What is said of a host that this one has not heard of.
fn unknown(host: &str) -> Status {
    let why = format!("nothing is known of host {host}; `farside available` lists hosts");
    Status::not_found(why)
}

fn lender_of(name: &str, hosts: &[HostDevices]) -> Result<String, Status> {
    let lends = |host: &&HostDevices| host.devices.iter().any(|device| device.name == name);
    let mut lenders = hosts.iter().filter(lends);
    let lender = lenders.next().ok_or_else(|| {
        Status::not_found(format!("no host lends {name}; `farside available` lists what is lent"))
    })?;
    if let Some(other) = lenders.next() {
        let why = format!("{} and {} lend {name}: say {name}@HOST", lender.host, other.host);
        return Err(Status::invalid_argument(why));
    }
    Ok(lender.host.clone())
}
