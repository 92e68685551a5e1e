//! What all simulated machines share: the true time, the network between them, and the history.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use farside_linux::lock::lock;
use tokio::sync::watch;
use tokio::time::Instant;

use super::super::Daemon;
use super::clock::TrueTime;
use super::history::History;
use super::machine::SimulatedMachine;
use super::random::Random;
use crate::registry::etcd::Member;

/// The time since 1970 when a simulation begins.
const BEGAN: Duration = Duration::from_secs(1_750_000_000);

/// A daemon that runs.
#[derive(Clone)]
pub(super) struct Running {
    pub(super) daemon: Arc<Daemon>,
    pub(super) machine: Arc<SimulatedMachine>,
}

/// See the module.
pub(super) struct World {
    began: Instant,
    pub(super) history: Mutex<History>,
    random: Mutex<Random>,
    running: Mutex<BTreeMap<String, Running>>,
    /// Nothing gets through from the first to the second.
    cut: watch::Sender<BTreeSet<(String, String)>>,
    /// Messages of a hundred that are lost.
    lost_percent: watch::Sender<usize>,
    /// The ways of a host to etcd, where that is its registry.
    etcd: Mutex<Option<Etcd>>,
}

/// See [`World::set_etcd`].
type Etcd = Box<dyn Fn(&str) -> Vec<Member> + Send>;

impl World {
    pub(super) fn new(seed: u64) -> Arc<World> {
        Arc::new(World {
            began: Instant::now(),
            history: Mutex::default(),
            random: Mutex::new(Random::of(seed)),
            running: Mutex::default(),
            cut: watch::Sender::default(),
            lost_percent: watch::Sender::new(0),
            etcd: Mutex::default(),
        })
    }

    /// Hosts find each other by etcd, to which these are the ways of a host. They do by themselves otherwise.
    #[cfg(test)]
    pub(super) fn set_etcd(&self, etcd: impl Fn(&str) -> Vec<Member> + Send + 'static) {
        *lock(&self.etcd) = Some(Box::new(etcd));
    }

    pub(super) fn has_etcd(&self) -> bool {
        lock(&self.etcd).is_some()
    }

    pub(super) fn etcd(&self, host: &str) -> Vec<Member> {
        lock(&self.etcd).as_ref().map_or_else(Vec::new, |etcd| etcd(host))
    }

    pub(super) fn now(&self) -> TrueTime {
        self.began.elapsed().as_nanos() as u64
    }

    pub(super) fn since_1970(&self) -> Duration {
        BEGAN + self.began.elapsed()
    }

    /// A number that the seed decides.
    pub(super) fn random<T>(&self, of: impl FnOnce(&mut Random) -> T) -> T {
        of(&mut lock(&self.random))
    }

    pub(super) fn running(&self, host: &str) -> Option<Running> {
        lock(&self.running).get(host).cloned()
    }

    pub(super) fn set_running(&self, host: &str, running: Option<Running>) {
        let former = match running {
            Some(running) => lock(&self.running).insert(host.to_owned(), running),
            None => lock(&self.running).remove(host),
        };
        // What it has may look at this world when it is dropped.
        drop(former);
    }

    pub(super) fn set_cut(&self, change: impl FnOnce(&mut BTreeSet<(String, String)>)) {
        self.cut.send_modify(change);
    }

    pub(super) fn is_cut(&self, from: &str, to: &str) -> bool {
        self.cut.borrow().contains(&(from.to_owned(), to.to_owned()))
    }

    pub(super) fn cuts(&self) -> watch::Receiver<BTreeSet<(String, String)>> {
        self.cut.subscribe()
    }

    pub(super) fn set_lost(&self, percent: usize) {
        self.lost_percent.send_replace(percent);
    }

    /// How long a message takes, and whether it arrives.
    pub(super) fn message(&self, from: &str, to: &str) -> (Duration, bool) {
        let lost = *self.lost_percent.borrow();
        let (delay, arrives) = self.random(|random| {
            let slow = random.percent(2);
            let delay = if slow { random.millis(20, 200) } else { random.millis(1, 5) };
            (delay, !random.percent(lost))
        });
        (delay, arrives && !self.is_cut(from, to))
    }
}
