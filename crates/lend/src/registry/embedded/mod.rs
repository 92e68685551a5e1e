//! The registry without a server: the daemons tell each other.
//!
//! What is known and told is `gossip`; here are the meetings, and the places of claims, of which each host
//! keeps those for its own devices. A claim over several hosts takes its places in the order of the hosts'
//! names, and holds each until it is over: two claims never wait for each other.

mod gossip;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use farside_lease::{BootTime, DeviceSet};
use farside_linux::lock::lock;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::{sleep, timeout};
use tonic::Status;

use super::claims::Claims;
use super::{Claim, HostView, OwnHost, Published, Registry, Turn};
use crate::proto::{ClaimEvent, ExchangeReply, ExchangeRequest};
use gossip::Gossip;
#[cfg(test)]
pub(super) use gossip::first_version;

/// How long a meeting may take.
const MEETING_LIMIT: Duration = Duration::from_secs(1);
/// Changes of this host within so long are told together.
const SETTLE: Duration = Duration::from_millis(20);
/// How long a host may take to give a claim a place.
const PLACE_LIMIT: Duration = Duration::from_secs(3);
/// Claims at a host, at most, and those of one other host among them.
const CLAIMS_MAX: usize = 1024;
const CLAIMS_PER_HOST_MAX: usize = 64;
/// Events that a claimant has not taken, at most: the last one counts.
const EVENTS_MAX: usize = 64;

/// What comes of a claim at one host; dropping it gives the place up.
pub(crate) type Places = mpsc::Receiver<Result<ClaimEvent, Status>>;

/// The way to other hosts.
pub(crate) trait Neighbours: OwnHost {
    /// Meets a host.
    ///
    /// # Errors
    /// It cannot be reached.
    fn exchange<'a>(
        &'a self,
        host: &'a str,
        address: &'a str,
        request: ExchangeRequest,
    ) -> BoxFuture<'a, Result<ExchangeReply, Status>>;

    /// Claims devices at a host.
    ///
    /// # Errors
    /// It cannot be reached, or has too many claims.
    fn claim<'a>(
        &'a self,
        host: &'a str,
        devices: &'a DeviceSet,
    ) -> BoxFuture<'a, Result<Places, Status>>;
}

/// See the module.
pub(crate) struct Embedded {
    gossip: Mutex<Gossip>,
    neighbours: Arc<dyn Neighbours>,
    /// There is something to tell.
    news: Notify,
    changes: watch::Sender<u64>,
    claims: Mutex<OwnClaims>,
    turns: watch::Sender<()>,
}

/// The claims for devices of this host.
#[derive(Default)]
struct OwnClaims {
    claims: Claims<u64>,
    last: u64,
    per_host: BTreeMap<String, usize>,
}

impl Embedded {
    /// A host that knows itself alone. [`Embedded::run`] makes it meet others.
    pub(crate) fn new(own: &str, neighbours: Arc<dyn Neighbours>) -> Arc<Embedded> {
        let (now, since_1970) = neighbours.now();
        Arc::new(Embedded {
            gossip: Mutex::new(Gossip::new(own, since_1970, now)),
            neighbours,
            news: Notify::new(),
            changes: watch::Sender::new(0),
            claims: Mutex::default(),
            turns: watch::Sender::new(()),
        })
    }

    /// Meets others, for ever.
    pub(crate) async fn run(self: Arc<Self>) {
        loop {
            let (now, _) = self.neighbours.now();
            let (meetings, pause) = lock(&self.gossip).meet(now);
            for (host, address) in meetings {
                let embedded = Arc::clone(&self);
                let meeting = async move { embedded.meet(&host, &address).await };
                self.neighbours.spawn(meeting.boxed());
            }
            tokio::select! {
                () = sleep(pause) => {}
                () = self.news.notified() => sleep(SETTLE).await,
            }
        }
    }

    async fn meet(&self, host: &str, address: &str) {
        let meeting = async {
            let request = lock(&self.gossip).request(self.neighbours.now().0);
            let reply = self.neighbours.exchange(host, address, request).await?;
            self.tell(|gossip, now, since_1970| gossip.take(now, since_1970, &reply.news));
            if !reply.wanted.is_empty() {
                let wanted = lock(&self.gossip).bring(self.neighbours.now().0, &reply.wanted);
                self.neighbours.exchange(host, address, wanted).await?;
            }
            Ok::<(), Status>(())
        };
        match timeout(MEETING_LIMIT, meeting).await {
            Ok(Ok(())) => {}
            // It will be met again; that it is not there is seen from its silence.
            Ok(Err(status)) => tracing::debug!(host, why = status.message(), "not met"),
            Err(_) => tracing::debug!(host, "no answer"),
        }
    }

    /// What another host says when it meets this one.
    pub(crate) fn answer(&self, request: &ExchangeRequest) -> ExchangeReply {
        self.tell(|gossip, now, since_1970| gossip.answer(now, since_1970, request))
    }

    fn tell<T>(&self, tell: impl FnOnce(&mut Gossip, BootTime, Duration) -> T) -> T {
        let (now, since_1970) = self.neighbours.now();
        let (told, changes) = {
            let mut gossip = lock(&self.gossip);
            let refused = gossip.refused();
            let told = tell(&mut gossip, now, since_1970);
            if gossip.refused() != refused {
                let all = gossip.refused();
                tracing::warn!(all, "another host tells of hosts what cannot be; it is ignored");
            }
            (told, gossip.changes())
        };
        self.changes.send_if_modified(|known| std::mem::replace(known, changes) != changes);
        told
    }

    /// Takes a claim of another host for devices of this one.
    ///
    /// # Errors
    /// There are too many.
    pub(crate) fn take_claim(
        self: &Arc<Self>,
        host: &str,
        devices: &DeviceSet,
    ) -> Result<Places, Status> {
        let place = {
            let mut own = lock(&self.claims);
            let of_host = own.per_host.get(host).copied().unwrap_or(0);
            if own.claims.len() >= CLAIMS_MAX || of_host >= CLAIMS_PER_HOST_MAX {
                let why = "too many claims wait here; wait for one of them";
                return Err(Status::resource_exhausted(why));
            }
            own.per_host.insert(host.to_owned(), of_host + 1);
            own.last += 1;
            let place = own.last;
            own.claims.enter(place, devices.iter().map(ToString::to_string).collect());
            place
        };
        let (events, places) = mpsc::channel(EVENTS_MAX);
        let (embedded, host) = (Arc::clone(self), host.to_owned());
        let mut turns = self.turns.subscribe();
        let serving = async move {
            let mut told = None;
            loop {
                let before = lock(&embedded.claims).claims.before(place);
                let Some(before) = before.and_then(|before| u32::try_from(before).ok()) else {
                    break;
                };
                if told != Some(before) && events.try_send(Ok(ClaimEvent { before })).is_ok() {
                    told = Some(before);
                }
                tokio::select! {
                    () = events.closed() => break,
                    changed = turns.changed() => if changed.is_err() { break },
                }
            }
            embedded.forget_claim(&host, place);
        };
        self.neighbours.spawn(serving.boxed());
        Ok(places)
    }

    fn forget_claim(&self, host: &str, place: u64) {
        {
            let mut own = lock(&self.claims);
            own.claims.leave(place);
            if let Some(count) = own.per_host.get_mut(host) {
                *count -= 1;
                if *count == 0 {
                    own.per_host.remove(host);
                }
            }
        }
        self.turns.send_replace(());
    }
}

impl Registry for Embedded {
    fn publish(&self, said: Published) {
        let before = *self.changes.borrow();
        self.tell(|gossip, now, _| gossip.publish(now, said));
        if *self.changes.borrow() != before {
            self.news.notify_one();
        }
    }

    fn view(&self) -> Vec<HostView> {
        let (now, _) = self.neighbours.now();
        lock(&self.gossip).view(now)
    }

    fn addresses(&self, known: &BTreeMap<String, String>) -> Vec<(String, String)> {
        lock(&self.gossip).addresses(known)
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    fn claim<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, Result<Turn, Status>> {
        let claiming = async move {
            let mut held = Vec::new();
            for (host, devices) in claim {
                let placed = timeout(PLACE_LIMIT, self.neighbours.claim(host, devices)).await;
                let mut places = placed.map_err(|_| {
                    Status::deadline_exceeded(format!("host {host} does not answer"))
                })??;
                let gone = || Status::unavailable(format!("host {host} gave the place away"));
                while places.recv().await.ok_or_else(gone)??.before != 0 {}
                held.push(places);
            }
            Ok(Turn::held_by(held))
        };
        claiming.boxed()
    }

    fn introduce(&self, host: &str, address: &str) {
        lock(&self.gossip).introduce(host, address);
    }

    fn rename(&self, own: &str) {
        let (now, _) = self.neighbours.now();
        lock(&self.gossip).rename(own, now);
    }

    fn trouble(&self) -> Option<String> {
        None
    }

    fn refused(&self) -> u64 {
        lock(&self.gossip).refused()
    }
}
