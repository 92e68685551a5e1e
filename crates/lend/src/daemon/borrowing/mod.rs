//! The borrower's side: the leases that users of this host have of others' devices.
//!
//! What to ask for and when to stop is decided by `farside-lease`, one [`Side`] for each lender; each
//! [`HeldLease`] tells its programs by the page of its term how long it may be used. It is given back when
//! whoever borrowed hangs up.

pub(super) mod held;
mod side;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use farside_lease::{DeviceName, DeviceSet};
use farside_linux::lock::lock;
use futures_util::FutureExt;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};
use tonic::Status;

use super::Daemon;
use super::users::User;
use crate::config::Config;
use crate::proto::borrow_for_event::Event as Told;
use crate::proto::{BorrowForEvent, BorrowForRequest, BorrowedLeases, Held, HostDevices};

use held::HeldLease;
use side::Side;

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
pub(super) struct Borrowing(Mutex<BTreeMap<String, Arc<Side>>>);

impl Borrowing {
    fn leases(&self) -> Vec<(Arc<Side>, Arc<HeldLease>)> {
        let sides: Vec<Arc<Side>> = lock(&self.0).values().cloned().collect();
        let of = |side: Arc<Side>| {
            side.leases()
                .into_iter()
                .map(move |lease| (Arc::clone(&side), lease))
                .collect::<Vec<_>>()
        };
        sides.into_iter().flat_map(of).collect()
    }

    fn side(&self, daemon: &Arc<Daemon>, host: &str) -> Arc<Side> {
        let mut sides = lock(&self.0);
        let side = sides.entry(host.to_owned()).or_insert_with(|| Side::start(daemon, host));
        Arc::clone(side)
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
            while !lock(&self.0).values().all(|side| side.is_idle()) {
                sleep(Duration::from_millis(10)).await;
            }
            // What was sent last is on its way.
            sleep(Duration::from_millis(50)).await;
        };
        let _ = timeout(GIVE_BACK_LIMIT, idle).await;
    }
}

/// Borrows devices for a user, until it hangs up.
pub(super) async fn borrow_for(
    daemon: &Arc<Daemon>,
    user: User,
    request: BorrowForRequest,
) -> Result<mpsc::Receiver<Result<BorrowForEvent, Status>>, Status> {
    let wanted = daemon.by_lender(&request.devices).await?;
    if daemon.borrowing.leases().len() + request.devices.len() > HELD_MAX {
        return Err(Status::resource_exhausted(format!("this host has {HELD_MAX} leases already")));
    }
    let (events, receiver) = mpsc::channel(EVENTS_MAX);
    let daemon = Arc::clone(daemon);
    let wait = Duration::from_nanos(request.wait_ns);
    let machine = Arc::clone(&daemon.machine);
    let borrowing = async move {
        let mut borrowed = Vec::new();
        // One lender after the other, in the order of their names: two that want the same devices never
        // wait for each other.
        for (host, devices) in wanted {
            let side = daemon.borrowing.side(&daemon, &host);
            match borrow_from(&side, devices, &user, wait, &events).await {
                Ok(leases) => {
                    borrowed.extend(leases.into_iter().map(|lease| (Arc::clone(&side), lease)));
                }
                Err(status) => {
                    give_back(&borrowed);
                    let _ = events.send(Err(status)).await;
                    return;
                }
            }
        }
        let leases = borrowed.iter().map(|(_, lease)| lease.described()).collect();
        let _ = events.send(Ok(told(Told::Borrowed(BorrowedLeases { leases })))).await;
        events.closed().await;
        give_back(&borrowed);
    };
    machine.spawn(borrowing.boxed());
    Ok(receiver)
}

fn give_back(borrowed: &[(Arc<Side>, Arc<HeldLease>)]) {
    borrowed.iter().for_each(|(side, lease)| side.give_back(&lease.id));
}

/// Borrows from one lender: all or none.
async fn borrow_from(
    side: &Side,
    devices: DeviceSet,
    user: &User,
    wait: Duration,
    events: &Events,
) -> Result<Vec<Arc<HeldLease>>, Status> {
    let (request, answer) = side.borrow(user, devices, wait, events)?;
    tokio::select! {
        answer = answer => answer.unwrap_or_else(|_| Err(Status::cancelled("it was withdrawn"))),
        () = events.closed() => {
            side.withdraw(request);
            Err(Status::cancelled("whoever borrows has gone"))
        }
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
        for name in names {
            let (device, host) = match name.split_once('@') {
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
