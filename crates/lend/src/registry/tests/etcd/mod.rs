//! etcd as the registry, against a server in this process that follows a script.

mod faults;
mod hostile;
pub(crate) mod server;
mod store;
mod tls;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use farside_lease::BootTime;
use farside_linux::lock::lock;
use futures_util::future::BoxFuture;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::super::etcd::{Etcd, Member};
use super::super::{OwnHost, Published, Registry};
use super::conformance::{self, Rig, host_name};
use super::in_simulated_time;
use crate::proto::{HostRecord, HostVersion};
use crate::registry::etcd::proto::PutRequest;
use prost::Message;
use server::{Seen, Shared};

/// A host's clock and tasks.
struct Own {
    began: Instant,
    tasks: Mutex<Vec<AbortHandle>>,
}

impl OwnHost for Own {
    fn now(&self) -> (BootTime, Duration) {
        let since = Duration::from_secs(1_000_000) + self.began.elapsed();
        (BootTime(since.as_nanos() as u64), since)
    }

    fn spawn(&self, task: BoxFuture<'static, ()>) {
        lock(&self.tasks).push(tokio::spawn(task).abort_handle());
    }
}

/// Hosts with one etcd.
pub(super) struct Hosts {
    shared: Arc<Shared>,
    hosts: Vec<(Arc<Etcd>, Arc<Own>, Seen)>,
    serving: Vec<AbortHandle>,
}

impl Drop for Hosts {
    fn drop(&mut self) {
        (0..self.hosts.len()).for_each(|host| self.stop(host));
        self.serving.iter().for_each(AbortHandle::abort);
    }
}

pub(super) async fn hosts(count: usize) -> Hosts {
    let (shared, began) = (Shared::new(), Instant::now());
    let (mut hosts, mut serving) = (Vec::new(), Vec::new());
    for host in 0..count {
        let (seen, way, tasks) = Seen::serve(&shared, host);
        serving.extend(tasks);
        let own = Arc::new(Own { began, tasks: Mutex::default() });
        let members = vec![Member { endpoint: "http://etcd:2379".to_owned(), way }];
        let etcd =
            Etcd::new(&host_name(host), ("/farside", "test"), members, Arc::clone(&own) as _);
        etcd.begin();
        hosts.push((etcd, own, seen));
    }
    Hosts { shared, hosts, serving }
}

/// What stands in a host's key if it says that.
fn value(host: &str, said: Published) -> Vec<u8> {
    let at = HostVersion { host: host.to_owned(), ..HostVersion::default() };
    HostRecord { at: Some(at), address: said.address, devices: said.devices }.encode_to_vec()
}

fn key(host: &str) -> Vec<u8> {
    format!("/farside/test/1/hosts/{host}").into_bytes()
}

impl Hosts {
    /// Somebody writes a key.
    fn write(&self, key: impl Into<Vec<u8>>, value: Vec<u8>) {
        let (key, lease) = (key.into(), 0);
        self.shared.change(|store| assert!(store.put(PutRequest { key, value, lease })));
    }
}

impl Rig for Hosts {
    fn host(&self, host: usize) -> Arc<dyn Registry> {
        Arc::clone(&self.hosts[host].0) as _
    }

    fn hosts(&self) -> usize {
        self.hosts.len()
    }

    fn stop(&self, host: usize) {
        lock(&self.hosts[host].1.tasks).iter().for_each(AbortHandle::abort);
    }

    fn cut(&self, host: usize) {
        self.hosts[host].2.set_cut(true);
    }

    fn mend(&self, host: usize) {
        self.hosts[host].2.set_cut(false);
    }

    fn lie(&self, _: usize, about: usize, said: Published) {
        let host = host_name(about);
        self.write(key(&host), value(&host, said));
    }
}

#[test]
fn hosts_that_share_etcd_keep_every_promise() {
    in_simulated_time(async {
        conformance::all(|| hosts(5)).await;
    });
}

#[test]
fn a_lie_in_etcd_about_a_host_is_set_right_by_that_host() {
    in_simulated_time(async {
        conformance::lies_are_set_right(&hosts(5).await).await.unwrap();
    });
}

#[test]
fn a_hundred_hosts_know_of_each_other_by_etcd_within_seconds() {
    in_simulated_time(async {
        conformance::view_converges(&hosts(100).await).await.unwrap();
    });
}
