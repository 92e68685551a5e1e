//! The registry's way to other hosts, and what this daemon says and learns by it.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use farside_lease::{BootTime, DeviceSet};
use farside_linux::lock::lock;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::mpsc;
use tokio::time::sleep;
use tonic::{Status, Streaming};

use super::Daemon;
use super::dial::{self, PeerClient};
use super::machine::Machine;
use crate::proto::{ClaimEvent, ClaimRequest, Device, ExchangeReply, ExchangeRequest};
use crate::registry::embedded::{Neighbours, Places};
use crate::registry::{HOSTS_MAX, OwnHost, Published};

/// Events of a claim that are on their way, at most.
const EVENTS_MAX: usize = 16;
/// Hosts that are found within so long are noted together.
const NOTING: Duration = Duration::from_millis(100);

/// The ways to all hosts that were met.
pub(super) struct Ways {
    daemon: Weak<Daemon>,
    machine: Arc<dyn Machine>,
    /// By the hosts, with their addresses.
    known: Mutex<HashMap<String, (String, PeerClient)>>,
}

impl Ways {
    pub(super) fn new(daemon: Weak<Daemon>, machine: Arc<dyn Machine>) -> Arc<Ways> {
        Arc::new(Ways { daemon, machine, known: Mutex::default() })
    }

    /// Calls hosts anew: this one is somebody else now.
    pub(super) fn forget(&self) {
        lock(&self.known).clear();
    }

    fn daemon(&self) -> Result<Arc<Daemon>, Status> {
        self.daemon.upgrade().ok_or_else(|| Status::cancelled("the daemon ends"))
    }

    fn peer(&self, host: &str, address: &str) -> Result<PeerClient, Status> {
        if let Some((at, peer)) = lock(&self.known).get(host) {
            if at == address {
                return Ok(peer.clone());
            }
        }
        let peer = self.daemon()?.dial(address, host)?;
        lock(&self.known).insert(host.to_owned(), (address.to_owned(), peer.clone()));
        Ok(peer)
    }

    async fn claim_at(&self, host: &str, devices: &DeviceSet) -> Result<Places, Status> {
        let daemon = self.daemon()?;
        if host == daemon.host() {
            return daemon.finding.told_by_others()?.take_claim(host, devices);
        }
        let peer = daemon.peers().into_iter().find(|peer| peer.host == host);
        let address = peer.map(|peer| peer.address).filter(|address| !address.is_empty());
        let address =
            address.ok_or_else(|| Status::not_found(format!("nothing is known of host {host}")))?;
        let request = ClaimRequest { devices: devices.iter().map(ToString::to_string).collect() };
        let claimed = self.peer(host, &address)?.claim(request).await;
        let claimed = claimed.map_err(|status| {
            Status::new(status.code(), format!("host {host}: {}", dial::why(&status)))
        })?;
        let (events, places) = mpsc::channel(EVENTS_MAX);
        self.machine.spawn(forward(claimed.into_inner(), events).boxed());
        Ok(places)
    }
}

/// Tells what comes of a claim, as long as somebody wants to know.
async fn forward(
    mut claimed: Streaming<ClaimEvent>,
    events: mpsc::Sender<Result<ClaimEvent, Status>>,
) {
    loop {
        let event = tokio::select! {
            event = claimed.message() => event.transpose(),
            () = events.closed() => None,
        };
        let Some(event) = event else { return };
        if events.send(event).await.is_err() {
            return;
        }
    }
}

impl OwnHost for Ways {
    fn now(&self) -> (BootTime, Duration) {
        (self.machine.now(), self.machine.since_1970())
    }

    fn spawn(&self, task: BoxFuture<'static, ()>) {
        self.machine.spawn(task);
    }
}

impl Neighbours for Ways {
    fn exchange<'a>(
        &'a self,
        host: &'a str,
        address: &'a str,
        request: ExchangeRequest,
    ) -> BoxFuture<'a, Result<ExchangeReply, Status>> {
        let exchange = async move {
            let exchanged = self.peer(host, address)?.exchange(request).await;
            exchanged
                .map(tonic::Response::into_inner)
                .map_err(|status| Status::new(status.code(), dial::why(&status)))
        };
        exchange.boxed()
    }

    fn claim<'a>(
        &'a self,
        host: &'a str,
        devices: &'a DeviceSet,
    ) -> BoxFuture<'a, Result<Places, Status>> {
        self.claim_at(host, devices).boxed()
    }
}

impl Daemon {
    /// Says what this host lends, and where it is.
    pub(super) fn publish(&self) {
        let said = Published { address: self.as_peer().address, devices: self.said_devices() };
        self.registry.publish(said);
    }

    /// What is said of the own devices: nothing that changes as time passes.
    pub(super) fn said_devices(&self) -> Vec<Device> {
        let lasting = |device| Device { left_ns: 0, ..device };
        self.lending.devices().into_iter().map(lasting).collect()
    }

    /// Begins to tell other hosts of this one, and to learn of them.
    pub(super) fn begin_telling(self: &Arc<Self>) {
        self.peers().iter().for_each(|peer| self.registry.introduce(&peer.host, &peer.address));
        let machine = &self.machine;
        self.finding.begin(&**machine);
        machine.spawn(Arc::clone(self).keep_publishing().boxed());
        machine.spawn(Arc::clone(self).keep_noting().boxed());
    }

    /// Says what changes here, for ever.
    async fn keep_publishing(self: Arc<Self>) {
        loop {
            self.publish();
            self.lending.changed().await;
        }
    }

    /// Notes the hosts that the registry finds, for ever.
    async fn keep_noting(self: Arc<Self>) {
        let mut changes = self.registry.changes();
        let mut noted: BTreeMap<String, String> = BTreeMap::new();
        while changes.changed().await.is_ok() {
            // Hosts may come and go under ever new names.
            if noted.len() > HOSTS_MAX {
                noted.clear();
            }
            // Who has no group yet may still join those that stand in the registry.
            if self.is_alone() {
                sleep(NOTING).await;
                continue;
            }
            // Most changes are of devices, and there are many.
            let new = self.registry.addresses(&noted);
            for (host, address) in new.into_iter().filter(|(host, _)| *host != self.host()) {
                match self.hear_of_peer(&host, &address) {
                    Ok(()) => drop(noted.insert(host, address)),
                    Err(error) => tracing::warn!(%error, "a peer cannot be noted"),
                }
            }
            sleep(NOTING).await;
        }
    }

    /// Whether it belongs to no group: it has joined nobody, nobody has joined it, and it has no certificates of an
    /// organisation.
    fn is_alone(&self) -> bool {
        let founded = matches!(self.home.authority(), Ok(Some(_)));
        founded && !self.identity().is_organisations && self.peers().is_empty()
    }

    /// What is known of a host that does not answer, and how long ago it was heard.
    pub(super) fn known_of(&self, host: &str) -> Option<(Vec<Device>, Duration)> {
        let view = self.registry.view();
        let found = view.into_iter().find(|found| found.host == host)?;
        (!found.said.devices.is_empty()).then_some((found.said.devices, found.heard))
    }
}
