//! A member of the group that asks for as much as it can, and one beside it.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::tls::Credentials;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;

use super::dial::{self, PeerClient};
use super::machine::ThisMachine;
use super::places::OF_ONE_HOST_MAX;
use super::{Daemon, network};
use crate::home::Home;
use crate::pki::{HostIdentity, Keypair};
use crate::proto::{BorrowRequest, LeaseId, ListRequest, RenewRequest};

/// How long a host waits for another's answer.
const PATIENCE: Duration = Duration::from_secs(3);
/// Calls that are open at a time over each connection of the flood.
const AT_A_TIME: usize = 32;

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// A daemon in a thread of its own.
struct Lender {
    home: Home,
    folder: PathBuf,
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Lender {
    fn start() -> Lender {
        let folder = std::env::temp_dir().join(format!("farside-flood-{}", std::process::id()));
        let home = Home::at(&folder);
        home.make().unwrap();
        let (stop, stopped) = oneshot::channel();
        let (ready, is_ready) = std::sync::mpsc::channel();
        let of_daemon = home.clone();
        let thread = std::thread::spawn(move || {
            runtime().block_on(async {
                let daemon = Daemon::new(&of_daemon, Arc::new(ThisMachine)).unwrap();
                ready.send(network::open(&daemon, "127.0.0.1:0").await.unwrap()).unwrap();
                let _ = stopped.await;
            });
        });
        let address = is_ready.recv().unwrap();
        Lender { home, folder, address, stop: Some(stop), thread: Some(thread) }
    }

    /// A host that has joined it.
    fn member(&self, host: &str) -> Member {
        let (authority, keys) =
            (self.home.authority().unwrap().unwrap(), Keypair::create().unwrap());
        let certificate = authority.certify(host, &keys.public()).unwrap();
        let own = Credentials { certificate, key: keys.private() };
        let identity = HostIdentity::of_group(own, authority.certificate().to_vec());
        let lender = self.home.identity().unwrap().unwrap().host().unwrap();
        Member { identity, lender, address: self.address }
    }
}

/// See [`Lender::member`].
struct Member {
    identity: HostIdentity,
    lender: String,
    address: SocketAddr,
}

impl Member {
    /// A way to the lender, of its own; within a runtime.
    fn dial(&self) -> PeerClient {
        let config = self.identity.client().unwrap();
        dial::peer(&self.address.to_string(), &self.lender, config).unwrap()
    }
}

impl Drop for Lender {
    fn drop(&mut self) {
        self.stop.take();
        let _ = self.thread.take().map(std::thread::JoinHandle::join);
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Asks without a pause: for what is costly to look up, for what nobody lends, and for too much.
async fn flood(mut peer: PeerClient, answers: &AtomicU64, until: &AtomicBool) {
    let lease = LeaseId { device: "d".repeat(64), epoch: 1 };
    while !until.load(Ordering::SeqCst) {
        let request = answers.fetch_add(1, Ordering::SeqCst);
        let _ = peer.list(ListRequest::default()).await;
        let leases = vec![lease.clone(); 300];
        let _ = peer.renew(RenewRequest { request, leases }).await;
        let devices = vec!["none".to_owned(); 4096];
        let borrow =
            BorrowRequest { request, devices, wait_ns: u64::MAX, ..BorrowRequest::default() };
        let _ = peer.borrow(borrow).await;
        // More than a message may have.
        let end = vec![0; 1 << 20];
        let _ = peer.borrow(BorrowRequest { request, end, ..BorrowRequest::default() }).await;
    }
}

#[test]
fn a_host_that_floods_a_lender_leaves_others_served() {
    let lender = Lender::start();
    let (answers, over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let floods: Vec<_> = (0..2)
        .map(|_| {
            let members: Vec<_> = (0..OF_ONE_HOST_MAX / 2).map(|_| lender.member("b")).collect();
            let (answers, over) = (Arc::clone(&answers), Arc::clone(&over));
            std::thread::spawn(move || {
                runtime().block_on(async {
                    let calls = members.iter().flat_map(|member| {
                        let peer = member.dial();
                        (0..AT_A_TIME).map(move |_| peer.clone())
                    });
                    let calls = calls.map(|peer| flood(peer, &answers, &over));
                    futures_util::future::join_all(calls).await;
                });
            })
        })
        .collect();
    while answers.load(Ordering::SeqCst) < 1000 {
        std::thread::sleep(Duration::from_millis(10));
    }
    let other = lender.member("c");
    runtime().block_on(async {
        let mut peer = other.dial();
        for _ in 0..20 {
            let started = Instant::now();
            peer.list(ListRequest::default()).await.unwrap();
            assert!(started.elapsed() < PATIENCE, "{:?}", started.elapsed());
        }
        // The host has all the connections that it may have.
        let more = lender.member("b").dial().list(ListRequest::default()).await;
        assert!(more.is_err(), "a connection more was let in");
    });
    over.store(true, Ordering::SeqCst);
    floods.into_iter().for_each(|flood| flood.join().unwrap());
}
