//! Whom this host listens to: itself alone at first, its peers once it is opened to them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use farside_linux::lock::lock;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Server;

use super::listener::{Door, Shown};
use super::{Daemon, listener, peers};
use crate::LendError;
use crate::config::Way;
use crate::pki::HostIdentity;
use crate::proto::peers_server::PeersServer;

/// Where a host listens that only it reaches.
const LOOPBACK: &str = "127.0.0.1:0";
/// Where a host listens that is opened, unless somebody says otherwise.
pub(super) const OPEN: &str = "0.0.0.0:7301";
/// Callers that wait to be served, at most.
const WAITING_MAX: usize = 64;

/// Bytes of a message of a peer, at most.
const MESSAGE_BYTES_MAX: usize = 256 << 10;
/// Bytes of what comes before a message, at most.
const HEADER_BYTES_MAX: u32 = 16 << 10;
/// Requests of one connection that are worked on at a time, at most: others wait behind them.
const REQUESTS_MAX: usize = 256;
/// Requests of one connection that are open at a time, at most: those that wait for devices are.
const STREAMS_MAX: u32 = 1024;
/// Requests that were taken back before anybody looked at them, at most: then the connection ends.
const RESETS_MAX: usize = 64;
/// A connection over which nothing comes is tried so often, and given up after as long again.
const KEEP_ALIVE: Duration = Duration::from_secs(10);

/// The listener that is in use.
#[derive(Default)]
pub(super) struct Network(Mutex<Option<Listening>>);

struct Listening {
    address: SocketAddr,
    /// What callers are shown.
    config: Shown,
    tasks: [JoinHandle<()>; 3],
}

impl Network {
    /// Where it listens.
    pub(super) fn address(&self) -> Option<SocketAddr> {
        lock(&self.0).as_ref().map(|listening| listening.address)
    }
}

/// Listens there from now on, and no longer where it did; empty is for this host alone.
pub(super) async fn open(daemon: &Arc<Daemon>, listen: &str) -> Result<SocketAddr, LendError> {
    let wanted = if listen.is_empty() { LOOPBACK } else { listen };
    let same =
        lock(&daemon.network.0).as_ref().is_some_and(|now| now.address.to_string() == wanted);
    if same {
        close(daemon).await;
    }
    let bound = TcpListener::bind(wanted).await;
    let tcp = bound.map_err(|error| {
        LendError::Refused(format!("cannot listen at {wanted}: {error}; choose another --listen"))
    })?;
    let address = tcp.local_addr().map_err(LendError::system("listening"))?;
    let (callers, served) = mpsc::channel(WAITING_MAX);
    let (links, mut led) = mpsc::channel(WAITING_MAX);
    let config = Arc::new(Mutex::new(daemon.identity().server()?));
    let door = Door {
        config: Arc::clone(&config),
        configured: Arc::clone(&daemon.configured),
        observed: Arc::clone(&daemon.observed),
        places: Arc::default(),
        peers: callers,
        links,
    };
    let service = PeersServer::new(peers::PeersService(Arc::clone(daemon)));
    let service = service.max_decoding_message_size(MESSAGE_BYTES_MAX);
    let serving = Server::builder()
        .concurrency_limit_per_connection(REQUESTS_MAX)
        .max_concurrent_streams(STREAMS_MAX)
        .http2_max_header_list_size(HEADER_BYTES_MAX)
        .http2_max_pending_accept_reset_streams(Some(RESETS_MAX))
        .http2_keepalive_interval(Some(KEEP_ALIVE))
        .http2_keepalive_timeout(Some(KEEP_ALIVE))
        .add_service(service);
    let serving = serving.serve_with_incoming(ReceiverStream::new(served));
    let lending = Arc::clone(&daemon.lending);
    let tasks = [
        tokio::spawn(listener::listen(tcp, door)),
        tokio::spawn(async move {
            if let Err(error) = serving.await {
                tracing::error!(%error, "peers are not served any more");
            }
        }),
        tokio::spawn(async move {
            while let Some(call) = led.recv().await {
                lending.connect(&call);
            }
        }),
    ];
    close(daemon).await;
    *lock(&daemon.network.0) = Some(Listening { address, config, tasks });
    Ok(address)
}

/// Shows callers another certificate from here on; those who are here already stay.
pub(super) fn show(daemon: &Daemon, identity: &HostIdentity) -> Result<(), LendError> {
    let config = identity.server()?;
    if let Some(listening) = lock(&daemon.network.0).as_ref() {
        *lock(&listening.config) = config;
    }
    Ok(())
}

/// When this returns the port is free again.
async fn close(daemon: &Daemon) {
    let former = lock(&daemon.network.0).take();
    for task in former.into_iter().flat_map(|former| former.tasks) {
        task.abort();
        // That it was ended is no error.
        let _ = task.await;
    }
}

/// How others reach this host, which listens at `address`: by the address that leads out of it, where it
/// listens on all.
pub(super) fn reachable(address: SocketAddr) -> SocketAddr {
    if !address.ip().is_unspecified() {
        return address;
    }
    SocketAddr::new(outward().unwrap_or(address.ip()), address.port())
}

/// The address of this host on the way to others. Nothing is sent.
fn outward() -> Option<IpAddr> {
    // An address for documentation (RFC 5737).
    address_towards(SocketAddr::from(([192, 0, 2, 1], 9)))
}

/// The address of this host on the way to another. Nothing is sent: only the way is looked up.
fn address_towards(other: SocketAddr) -> Option<IpAddr> {
    let any: IpAddr = match other {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    socket.connect(other).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

/// The way to a host that listens at `address`, if there is one.
pub(super) async fn way_to(address: &str) -> Option<Way> {
    way_of(tokio::net::lookup_host(address).await.ok()?.next()?)
}

/// The way to that address, if there is one.
pub(super) fn way_of(other: SocketAddr) -> Option<Way> {
    Some(Way { own: address_towards(other)?, other: other.ip() })
}
