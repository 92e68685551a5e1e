//! The embedded registry, with hosts that meet in memory.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use farside_lease::{BootTime, DeviceSet};
use farside_linux::lock::lock;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep};
use tonic::Status;

use super::super::embedded::{Embedded, Neighbours, Places};
use super::super::{OwnHost, Published, Registry};
use super::conformance::{self, Rig, host_name};
use super::in_simulated_time;
use crate::proto::{ExchangeReply, ExchangeRequest, HostRecord, HostVersion};

/// How long a message is on its way.
const DELAY: Duration = Duration::from_millis(3);

/// The hosts, by their names; `None` of one that is gone or cut off.
#[derive(Default)]
struct Net {
    hosts: Mutex<BTreeMap<String, Weak<Embedded>>>,
    cut: Mutex<BTreeMap<String, bool>>,
}

impl Net {
    fn is_cut(&self, host: &str) -> bool {
        lock(&self.cut).get(host).copied().unwrap_or(false)
    }

    fn reach(&self, from: &str, to: &str) -> Result<Arc<Embedded>, Status> {
        let host = lock(&self.hosts).get(to).and_then(Weak::upgrade);
        let lost = self.is_cut(from) || self.is_cut(to);
        host.filter(|_| !lost).ok_or_else(|| Status::unavailable("nobody answers"))
    }
}

struct InMemory {
    own: String,
    net: Arc<Net>,
    began: Instant,
    tasks: Mutex<Vec<AbortHandle>>,
}

impl OwnHost for InMemory {
    fn now(&self) -> (BootTime, Duration) {
        let since = Duration::from_secs(1_000_000) + self.began.elapsed();
        (BootTime(since.as_nanos() as u64), since)
    }

    fn spawn(&self, task: BoxFuture<'static, ()>) {
        lock(&self.tasks).push(tokio::spawn(task).abort_handle());
    }
}

impl Neighbours for InMemory {
    fn exchange<'a>(
        &'a self,
        host: &'a str,
        _: &'a str,
        request: ExchangeRequest,
    ) -> BoxFuture<'a, Result<ExchangeReply, Status>> {
        let exchange = async move {
            sleep(DELAY).await;
            let reply = self.net.reach(&self.own, host)?.answer(&request);
            sleep(DELAY).await;
            self.net.reach(&self.own, host).map(|_| reply)
        };
        exchange.boxed()
    }

    fn claim<'a>(
        &'a self,
        host: &'a str,
        devices: &'a DeviceSet,
    ) -> BoxFuture<'a, Result<Places, Status>> {
        let claim = async move {
            sleep(DELAY).await;
            self.net.reach(&self.own, host)?.take_claim(&self.own, devices)
        };
        claim.boxed()
    }
}

pub(super) struct Hosts {
    net: Arc<Net>,
    began: Instant,
    hosts: Vec<(Arc<Embedded>, Arc<InMemory>)>,
}

impl Drop for Hosts {
    fn drop(&mut self) {
        (0..self.hosts.len()).for_each(|host| self.stop(host));
    }
}

pub(super) async fn hosts(count: usize) -> Hosts {
    let (net, began) = (Arc::new(Net::default()), Instant::now());
    let mut hosts = Vec::new();
    for host in 0..count {
        let tasks = Mutex::default();
        let neighbours = InMemory { own: host_name(host), net: Arc::clone(&net), began, tasks };
        let neighbours = Arc::new(neighbours);
        let embedded = Embedded::new(&host_name(host), Arc::clone(&neighbours) as _);
        // It has joined at the first one.
        embedded.introduce(&host_name(0), "10.0.0.0:7301");
        lock(&net.hosts).insert(host_name(host), Arc::downgrade(&embedded));
        neighbours.spawn(Arc::clone(&embedded).run().boxed());
        hosts.push((embedded, neighbours));
    }
    Hosts { net, began, hosts }
}

impl Rig for Hosts {
    fn host(&self, host: usize) -> Arc<dyn Registry> {
        Arc::clone(&self.hosts[host].0) as _
    }

    fn hosts(&self) -> usize {
        self.hosts.len()
    }

    fn stop(&self, host: usize) {
        lock(&self.net.hosts).remove(&host_name(host));
        lock(&self.hosts[host].1.tasks).iter().for_each(AbortHandle::abort);
    }

    fn cut(&self, host: usize) {
        lock(&self.net.cut).insert(host_name(host), true);
    }

    fn mend(&self, host: usize) {
        lock(&self.net.cut).insert(host_name(host), false);
    }

    fn lie(&self, liar: usize, about: usize, said: Published) {
        let since = Duration::from_secs(1_000_000) + self.began.elapsed();
        let at = HostVersion {
            host: host_name(about),
            version: super::super::embedded::first_version(since + Duration::from_secs(60)),
            beat: 7,
            heard_ns: 0,
        };
        let record = HostRecord { at: Some(at), address: said.address, devices: said.devices };
        let request = ExchangeRequest { known: Vec::new(), news: vec![record] };
        self.hosts[liar].0.answer(&request);
    }
}

#[test]
fn hosts_that_tell_each_other_keep_every_promise() {
    in_simulated_time(async {
        conformance::all(|| hosts(5)).await;
    });
}

#[test]
fn a_lie_about_a_host_is_set_right_by_that_host() {
    in_simulated_time(async {
        conformance::lies_are_set_right(&hosts(5).await).await.unwrap();
    });
}

#[test]
fn a_hundred_hosts_know_of_each_other_within_seconds() {
    in_simulated_time(async {
        let rig = hosts(100).await;
        conformance::view_converges(&rig).await.unwrap();
    });
}

#[test]
fn what_cannot_be_is_ignored_and_counted() {
    in_simulated_time(async {
        use crate::proto::Device;
        let rig = hosts(1).await;
        let before = rig.host(0).view();
        let good = HostVersion { host: "a".to_owned(), version: 7, beat: 1, heard_ns: 0 };
        let with = |at: HostVersion| HostRecord { at: Some(at), ..HostRecord::default() };
        let long = Device { name: "card0".to_owned(), why: "x".repeat(513), ..Device::default() };
        let nameless = Device::default();
        let news = vec![
            HostRecord::default(),
            with(HostVersion { host: "../x".to_owned(), ..good.clone() }),
            with(HostVersion { version: 0, ..good.clone() }),
            with(HostVersion { version: u64::MAX, ..good.clone() }),
            with(HostVersion { beat: u64::MAX, ..good.clone() }),
            HostRecord { address: "x".repeat(513), ..with(good.clone()) },
            HostRecord { devices: vec![long], ..with(good.clone()) },
            HostRecord { devices: vec![nameless.clone()], ..with(good.clone()) },
            HostRecord { devices: vec![nameless; 1025], ..with(good.clone()) },
        ];
        let known = vec![HostVersion { version: u64::MAX, ..good }];
        let reply = rig.hosts[0].0.answer(&ExchangeRequest { known, news });
        assert_eq!(reply.wanted, [""; 0]);
        assert_eq!(rig.host(0).view(), before);
    });
}

#[test]
fn one_host_cannot_take_all_places_of_a_queue() {
    in_simulated_time(async {
        let rig = hosts(2).await;
        let set = conformance::claim_of(&[0], &["card0"]).remove("host0").unwrap();
        let lender = &rig.hosts[0].0;
        let mut places: Vec<Places> =
            (0..64).map(|_| lender.take_claim("host1", &set).unwrap()).collect();
        assert!(lender.take_claim("host1", &set).is_err());
        assert!(lender.take_claim("host2", &set).is_ok());
        places.pop();
        sleep(DELAY).await;
        assert!(lender.take_claim("host1", &set).is_ok());
    });
}
