//! Who calls this host: one port for its peers' daemons and for the connections of leases, which are
//! told apart by the first message of TLS, or by what one without TLS begins with, and led to their
//! lender's end as they are.

use std::io;
use std::net::TcpStream as StdTcpStream;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::tls::PROTOCOL;
use farside_lease::Epoch;
use farside_linux::lock::lock;
use rustls::ServerConfig;
use rustls::server::Acceptor;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::configured::Configured;
use super::connection::Connection;
use super::lending::link_of;
use super::observed::Observed;
use super::places::{Place, Places, Whose};
use crate::config::Way;
use crate::end::plain::{self, First};
use crate::pki::{explained, host_of};

/// The first message of TLS, at most.
const HELLO_MAX: usize = 16 << 10;
/// How long a caller may take until it is known who it is.
const HELLO_LIMIT: Duration = Duration::from_secs(5);
/// How long one may stay who has no certificate: joining takes less.
const STRANGER_LIMIT: Duration = Duration::from_secs(15);
/// Callers of whom that is not known yet, at most: others wait.
const STRANGERS_MAX: usize = 64;

/// A peer's daemon that has called, or whoever wants to join.
pub(super) type Caller = Connection<TlsStream<TcpStream>, CallerHost>;

/// Who calls, and from where.
#[derive(Clone, Debug)]
pub(super) struct CallerHost {
    /// The host that its certificate names, if it has one of this authority.
    pub(super) host: Option<String>,
    pub(super) way: Option<Way>,
    /// Its place among the connections of its host, if it came over one.
    pub(super) _place: Option<Place>,
}

fn way(stream: &TcpStream) -> io::Result<Way> {
    Ok(Way { own: stream.local_addr()?.ip(), other: stream.peer_addr()?.ip() })
}

/// A connection that names the end of a lease.
#[derive(Debug)]
pub(super) struct LinkCall {
    /// The name it wants to be led to.
    pub(super) name: String,
    pub(super) stream: StdTcpStream,
}

/// What callers are shown, and let in by; it changes with the certificate of this host.
pub(super) type Shown = Arc<Mutex<Arc<ServerConfig>>>;

/// What callers are let in by, and to whom.
pub(super) struct Door {
    pub(super) config: Shown,
    pub(super) configured: Arc<Configured>,
    pub(super) observed: Arc<Observed>,
    pub(super) places: Arc<Places>,
    pub(super) peers: mpsc::Sender<io::Result<Caller>>,
    pub(super) links: mpsc::Sender<LinkCall>,
}

/// Takes callers until the receivers are gone.
pub(super) async fn listen(listener: TcpListener, door: Door) {
    let door = Arc::new(door);
    let strangers = Arc::new(Semaphore::new(STRANGERS_MAX));
    loop {
        let permit = Arc::clone(&strangers).acquire_owned().await.expect("it is never closed");
        let (stream, from) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                // Too many files are open, say: it passes, or nobody can be let in.
                tracing::warn!(%error, "a caller cannot be let in");
                sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        if door.peers.is_closed() {
            return;
        }
        let Some(place) = door.places.take(Whose::Address(from.ip())) else {
            tracing::info!(%from, "a caller is refused: too many come from there at a time");
            door.observed.count(|counts| counts.caller_refused("refused"));
            continue;
        };
        let door = Arc::clone(&door);
        tokio::spawn(async move {
            let _place = place;
            let led = timeout(HELLO_LIMIT, door.lead(stream)).await;
            let (reason, why) = match led {
                Ok(Ok(())) => return drop(permit),
                Ok(Err(error)) => {
                    ("refused", explained(&error).unwrap_or_else(|| error.to_string()))
                }
                Err(_) => ("silent", "it does not say who it is".to_owned()),
            };
            tracing::info!(%from, why, "a caller is refused");
            door.observed.count(|counts| counts.caller_refused(reason));
        });
    }
}

impl Door {
    async fn lead(&self, stream: TcpStream) -> io::Result<()> {
        let gone = || io::Error::other("this daemon is about to end");
        let name = match wanted(&stream).await? {
            Wanted::Peers => {
                stream.set_nodelay(true)?;
                let way = way(&stream)?;
                let config = Arc::clone(&lock(&self.config));
                let stream = TlsAcceptor::from(config).accept(stream).await?;
                let caller = self.caller(stream, way)?;
                return self.peers.send(Ok(caller)).await.map_err(|_| gone());
            }
            Wanted::Link(name) => name,
            Wanted::Plain(epoch) => {
                if !self.configured.get().plain.contain(way(&stream)?) {
                    let why = "it comes without TLS over a network that the configuration of this \
                               host does not name";
                    return Err(io::Error::other(why));
                }
                link_of(Epoch(epoch))
            }
        };
        let stream = stream.into_std()?;
        self.links.send(LinkCall { name, stream }).await.map_err(|_| gone())
    }

    /// Gives a caller its place, whose certificate was checked if it has shown one.
    fn caller(&self, stream: TlsStream<TcpStream>, way: Way) -> io::Result<Caller> {
        let shown = stream.get_ref().1.peer_certificates();
        let host = shown.and_then(|shown| host_of(shown.first()?));
        let place = self.places.take(Whose::of(host.as_deref())).ok_or_else(|| {
            let who = host.as_deref().unwrap_or("those who are to join");
            io::Error::other(format!("there are too many connections of {who} already"))
        })?;
        let limit = host.is_none().then_some(STRANGER_LIMIT);
        Ok(Connection::new(stream, CallerHost { host, way: Some(way), _place: Some(place) }, limit))
    }
}

/// What a caller wants.
enum Wanted {
    /// To talk to this daemon.
    Peers,
    /// The end of a lease by its name, over TLS.
    Link(String),
    /// The end of the lease with this epoch, without TLS.
    Plain(u64),
}

/// What a caller wants. What it has sent is left where it is.
async fn wanted(stream: &TcpStream) -> io::Result<Wanted> {
    let mut hello = vec![0; HELLO_MAX];
    loop {
        let length = stream.peek(&mut hello).await?;
        if length == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        match plain::first(&hello[..length]) {
            First::Plain { epoch } => return Ok(Wanted::Plain(epoch)),
            First::More => {
                sleep(Duration::from_millis(2)).await;
                continue;
            }
            First::Other => {}
        }
        let mut acceptor = Acceptor::default();
        acceptor.read_tls(&mut &hello[..length])?;
        match acceptor.accept() {
            Ok(Some(accepted)) => {
                let hello = accepted.client_hello();
                let is_link =
                    hello.alpn().is_some_and(|mut offers| offers.any(|offer| offer == PROTOCOL));
                let name = hello.server_name().unwrap_or_default().to_owned();
                return Ok(if is_link { Wanted::Link(name) } else { Wanted::Peers });
            }
            Ok(None) if length < hello.len() => sleep(Duration::from_millis(2)).await,
            Ok(None) => return Err(io::Error::other("its first message is too long")),
            Err((error, _)) => return Err(io::Error::other(error)),
        }
    }
}
