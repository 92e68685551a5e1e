//! etcd as the registry: a server, or several of them, that the hosts of a cluster share.
//!
//! etcd orders and finds; it **grants nothing**. Whatever stands in it, the lender of a device alone decides,
//! by its own epochs. Its keys, below `PREFIX/CLUSTER/1/`:
//!
//! | key | value | under |
//! |---|---|---|
//! | `hosts/HOST` | where the host listens and what it lends (`HostRecord`, protobuf) | the host's etcd lease, 10 s |
//! | `claims/NAME` | the devices that are wanted together, a line each: `HOST/DEVICE` | an etcd lease of its own, 10 s |
//! | `turns/HOST/DEVICE` | the name of the claim whose turn it is | that of its claim |
//!
//! - **Presence.** A host writes its key when something changes, and keeps its etcd lease alive; when it is
//!   gone, so is the key. A key that somebody else has written or taken away is written again.
//! - **View.** All keys are listed every 3 s, only those values are read that are not known yet, and a watch
//!   tells of changes at once. A watch that breaks, lags or was compacted begins anew behind a list.
//! - **Queue.** A claim is one key, so that it waits for all of its devices or for none, in the order of the
//!   revisions in which the keys were made: `Txn(claim does not exist → put; else → read)`, so that a claim
//!   that is made twice has one place.
//! - **Turns.** Who finds no earlier claim for any of its devices takes its turn by
//!   `Txn(own claim is that of its revision, no turn of its devices exists → put all turns; else → read)`: what
//!   was found may be old, and the etcd lease may have ended meanwhile, so this is what keeps two from having
//!   their turn at once. A turn ends, with the claim, when its etcd lease is revoked or runs out.
//!
//! Without etcd (down, cut off from its others, slow) each call ends within its limit, what is known grows
//! older and says so, and devices of several lenders are borrowed without a turn: all of it, or nothing.

#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod attacked;
mod client;
pub(super) mod connect;
mod keeper;
mod keys;
mod presence;
mod queue;
mod view;
mod watching;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use farside_linux::lock::lock;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::{Notify, watch};
use tonic::Status;

use super::{Claim, HostView, OwnHost, Published, Registry, Turn};
use client::Client;
pub(crate) use client::Member;
pub(crate) use connect::members;
use keys::Keys;
use view::View;

/// What is said to etcd: written by `make proto`.
#[allow(clippy::all, clippy::pedantic, unreachable_pub, dead_code)]
pub(crate) mod proto {
    include!("../../generated/etcdserverpb.rs");
}

/// How long etcd leases run.
const LEASE: Duration = super::PRESENCE;
/// How often they are kept alive.
const RENEWAL: Duration = Duration::from_secs(3);
/// How long to wait after something has failed.
const RETRY: Duration = Duration::from_millis(500);

/// See the module.
#[derive(Debug)]
pub(crate) struct Etcd {
    client: Arc<Client>,
    own: Arc<dyn OwnHost>,
    keys: Keys,
    view: Mutex<View>,
    /// There is something to write.
    news: Notify,
    changes: watch::Sender<u64>,
    /// Claims or turns have changed.
    turns: watch::Sender<()>,
    /// Names of claims, so far.
    claims: Mutex<u64>,
}

impl Etcd {
    /// A host that knows itself alone. [`Etcd::begin`] makes it talk to etcd.
    pub(crate) fn new(
        host: &str,
        (prefix, cluster): (&str, &str),
        members: Vec<Member>,
        own: Arc<dyn OwnHost>,
    ) -> Arc<Etcd> {
        let keys = Keys::new(prefix, cluster);
        Arc::new(Etcd {
            client: Arc::new(Client::new(members, Arc::clone(&own))),
            own,
            view: Mutex::new(View::new(host, keys.clone())),
            keys,
            news: Notify::new(),
            changes: watch::Sender::new(0),
            turns: watch::Sender::new(()),
            claims: Mutex::new(0),
        })
    }

    /// Tells of this host and learns of others, from now on.
    pub(crate) fn begin(self: &Arc<Self>) {
        self.own.spawn(Arc::clone(self).be_present().boxed());
        self.own.spawn(Arc::clone(self).keep_watching().boxed());
    }

    /// Does something to the view, and says what came of it to those who care.
    fn tell<T>(&self, tell: impl FnOnce(&mut View) -> T) -> T {
        let (told, changes) = {
            let mut view = lock(&self.view);
            let (refused, stale) = (view.refused(), view.stale());
            let told = tell(&mut view);
            if view.refused() != refused {
                let all = view.refused();
                tracing::warn!(all, "something stands in etcd that no host says; it is ignored");
            }
            if view.stale() != stale {
                let all = view.stale();
                tracing::warn!(all, "etcd says less than it did; it is not believed at once");
            }
            if view.is_to_write() {
                self.news.notify_one();
            }
            (told, view.changes())
        };
        self.changes.send_if_modified(|known| std::mem::replace(known, changes) != changes);
        told
    }
}

impl Registry for Etcd {
    fn publish(&self, said: Published) {
        self.tell(|view| view.publish(said));
    }

    fn view(&self) -> Vec<HostView> {
        let (now, _) = self.own.now();
        lock(&self.view).view(now)
    }

    fn addresses(&self, known: &BTreeMap<String, String>) -> Vec<(String, String)> {
        lock(&self.view).addresses(known)
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    fn claim<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, Result<Turn, Status>> {
        self.wait_for_turn(claim).boxed()
    }

    /// Hosts find each other by etcd.
    fn introduce(&self, _: &str, _: &str) {}

    fn rename(&self, own: &str) {
        self.tell(|view| view.rename(own));
    }

    fn trouble(&self) -> Option<String> {
        let (silent, why) = self.client.silence()?;
        Some(format!(
            "etcd ({}) has not answered for {} s ({why}): what is known of hosts that do not answer is \
             as old, and cards of several hosts are borrowed without a queue; leases go on. See to etcd, \
             or to [registry] in lend.toml",
            self.client.endpoints(),
            silent.as_secs(),
        ))
    }

    fn refused(&self) -> u64 {
        let view = lock(&self.view);
        view.refused() + view.stale()
    }
}
