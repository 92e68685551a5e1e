//! Who calls this host: one port for its peers' daemons and for the connections of leases, which are
//! told apart by the first message of TLS, or by what one without TLS begins with, and led to their
//! lender's end as they are.

use std::future::Future;
use std::io;
use std::net::TcpStream as StdTcpStream;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use farside_lease::Epoch;
use farside_link::tls::PROTOCOL;
use rustls::ServerConfig;
use rustls::server::Acceptor;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::{Sleep, sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tonic::transport::server::Connected;

use super::configured::Configured;
use super::guests::{Guests, Place};
use super::lending::link_of;
use crate::config::Way;
use crate::end::plain::{self, First};
use crate::pki::host_of;

/// The first message of TLS, at most.
const HELLO_MAX: usize = 16 << 10;
/// How long a caller may take until it is known who it is.
const HELLO_LIMIT: Duration = Duration::from_secs(5);
/// Callers of whom that is not known yet, at most: others wait.
const STRANGERS_MAX: usize = 64;
/// Those of them that come from one address, at most: more are sent away.
const STRANGERS_PER_ADDRESS_MAX: usize = 32;
/// Connections of one host at a time, at most, and of all who have no certificate.
const CALLERS_PER_HOST_MAX: usize = 32;
/// Connections of all hosts at a time, at most.
const CALLERS_MAX: usize = 512;
/// How long one may stay who has no certificate: joining takes less.
const JOINER_LIMIT: Duration = Duration::from_secs(20);

/// A peer's daemon that has called, or whoever wants to join.
pub(super) struct Caller {
    stream: TlsStream<TcpStream>,
    /// When it is sent away, if it shows no certificate.
    leaves: Option<Pin<Box<Sleep>>>,
    /// Counts it.
    _place: Place<Option<String>>,
}

/// Who calls, and from where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CallerHost {
    /// The host that its certificate names, if it has one of this authority.
    pub(super) host: Option<String>,
    /// Unknown of a connection that is broken already.
    pub(super) way: Option<Way>,
}

impl Connected for Caller {
    type ConnectInfo = CallerHost;

    fn connect_info(&self) -> CallerHost {
        CallerHost { host: host(&self.stream), way: way(self.stream.get_ref().0).ok() }
    }
}

/// The host that a caller's certificate names, if it has one.
fn host(stream: &TlsStream<TcpStream>) -> Option<String> {
    let certificates = stream.get_ref().1.peer_certificates();
    certificates.and_then(|shown| host_of(shown.first()?))
}

fn way(stream: &TcpStream) -> io::Result<Way> {
    Ok(Way { own: stream.local_addr()?.ip(), other: stream.peer_addr()?.ip() })
}

impl Caller {
    fn of(
        stream: TlsStream<TcpStream>,
        callers: &Arc<Guests<Option<String>>>,
    ) -> io::Result<Caller> {
        let host = host(&stream);
        let leaves = host.is_none().then(|| Box::pin(sleep(JOINER_LIMIT)));
        let who = host.clone().unwrap_or_else(|| "callers without a certificate".to_owned());
        let place = callers.place(host).ok_or_else(|| {
            io::Error::other(format!("{who}: too many connections at a time; close some of them"))
        })?;
        Ok(Caller { stream, leaves, _place: place })
    }
}

impl AsyncRead for Caller {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if let Some(leaves) = &mut self.leaves {
            if leaves.as_mut().poll(cx).is_ready() {
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
        }
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Caller {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// A connection that names the end of a lease.
#[derive(Debug)]
pub(super) struct LinkCall {
    /// The name it wants to be led to.
    pub(super) name: String,
    pub(super) stream: StdTcpStream,
}

/// What callers are let in by, and to whom.
pub(super) struct Door {
    pub(super) config: Arc<ServerConfig>,
    pub(super) configured: Arc<Configured>,
    pub(super) peers: mpsc::Sender<io::Result<Caller>>,
    pub(super) links: mpsc::Sender<LinkCall>,
}

/// Takes callers until the receivers are gone.
pub(super) async fn listen(listener: TcpListener, door: Door) {
    let door = Arc::new(door);
    let strangers = Arc::new(Semaphore::new(STRANGERS_MAX));
    let addresses = Guests::new(STRANGERS_PER_ADDRESS_MAX, STRANGERS_MAX);
    let callers = Guests::new(CALLERS_PER_HOST_MAX, CALLERS_MAX);
    loop {
        let permit = Arc::clone(&strangers).acquire_owned().await.expect("it is never closed");
        let (stream, place) = match listener.accept().await {
            Ok((stream, from)) => {
                let Some(place) = addresses.place(from.ip()) else {
                    tracing::info!(%from, "a caller is refused: too many come from there");
                    continue;
                };
                (stream, place)
            }
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
        let (door, callers) = (Arc::clone(&door), Arc::clone(&callers));
        tokio::spawn(async move {
            let _place = place;
            let from = stream.peer_addr();
            let led = timeout(HELLO_LIMIT, door.lead(stream, &callers)).await;
            let why = match led {
                Ok(Ok(())) => return drop(permit),
                Ok(Err(error)) => error.to_string(),
                Err(_) => "it does not say who it is".to_owned(),
            };
            tracing::info!(?from, why, "a caller is refused");
        });
    }
}

impl Door {
    async fn lead(
        &self,
        stream: TcpStream,
        callers: &Arc<Guests<Option<String>>>,
    ) -> io::Result<()> {
        let gone = || io::Error::other("this daemon is about to end");
        let name = match wanted(&stream).await? {
            Wanted::Peers => {
                stream.set_nodelay(true)?;
                let stream = TlsAcceptor::from(Arc::clone(&self.config)).accept(stream).await?;
                let caller = Caller::of(stream, callers)?;
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
