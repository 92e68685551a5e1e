//! Who calls this host: one port for its peers' daemons and for the connections of leases, which are
//! told apart by the first message of TLS and led to their lender's end as they are.

use std::io;
use std::net::TcpStream as StdTcpStream;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use farside_link::tls::PROTOCOL;
use rustls::ServerConfig;
use rustls::server::Acceptor;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tonic::transport::server::Connected;

use crate::pki::host_of;

/// The first message of TLS, at most.
const HELLO_MAX: usize = 16 << 10;
/// How long a caller may take until it is known who it is.
const HELLO_LIMIT: Duration = Duration::from_secs(5);
/// Callers of whom that is not known yet, at most: others wait.
const STRANGERS_MAX: usize = 64;

/// A peer's daemon that has called, or whoever wants to join.
pub(super) struct Caller {
    stream: TlsStream<TcpStream>,
}

/// Who calls: the host that its certificate names, if it has one of this authority.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CallerHost(pub(super) Option<String>);

impl Connected for Caller {
    type ConnectInfo = CallerHost;

    fn connect_info(&self) -> CallerHost {
        let certificates = self.stream.get_ref().1.peer_certificates();
        CallerHost(certificates.and_then(|shown| host_of(shown.first()?)))
    }
}

impl AsyncRead for Caller {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
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

/// Takes callers until the receivers are gone.
pub(super) async fn listen(
    listener: TcpListener,
    config: Arc<ServerConfig>,
    peers: mpsc::Sender<io::Result<Caller>>,
    links: mpsc::Sender<LinkCall>,
) {
    let acceptor = TlsAcceptor::from(config);
    let strangers = Arc::new(Semaphore::new(STRANGERS_MAX));
    loop {
        let permit = Arc::clone(&strangers).acquire_owned().await.expect("it is never closed");
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                // Too many files are open, say: it passes, or nobody can be let in.
                tracing::warn!(%error, "a caller cannot be let in");
                sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        if peers.is_closed() {
            return;
        }
        let (acceptor, peers, links) = (acceptor.clone(), peers.clone(), links.clone());
        tokio::spawn(async move {
            let from = stream.peer_addr();
            let led = timeout(HELLO_LIMIT, lead(stream, acceptor, peers, links)).await;
            let why = match led {
                Ok(Ok(())) => return drop(permit),
                Ok(Err(error)) => error.to_string(),
                Err(_) => "it does not say who it is".to_owned(),
            };
            tracing::info!(?from, why, "a caller is refused");
        });
    }
}

async fn lead(
    stream: TcpStream,
    acceptor: TlsAcceptor,
    peers: mpsc::Sender<io::Result<Caller>>,
    links: mpsc::Sender<LinkCall>,
) -> io::Result<()> {
    let gone = || io::Error::other("this daemon is about to end");
    if let Some(name) = link_name(&stream).await? {
        let stream = stream.into_std()?;
        return links.send(LinkCall { name, stream }).await.map_err(|_| gone());
    }
    stream.set_nodelay(true)?;
    let stream = acceptor.accept(stream).await?;
    peers.send(Ok(Caller { stream })).await.map_err(|_| gone())
}

/// The end of a lease that a caller wants, if it wants one. What it has sent is left where it is.
async fn link_name(stream: &TcpStream) -> io::Result<Option<String>> {
    let mut hello = vec![0; HELLO_MAX];
    loop {
        let length = stream.peek(&mut hello).await?;
        if length == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let mut acceptor = Acceptor::default();
        acceptor.read_tls(&mut &hello[..length])?;
        match acceptor.accept() {
            Ok(Some(accepted)) => {
                let hello = accepted.client_hello();
                let is_link =
                    hello.alpn().is_some_and(|mut offers| offers.any(|offer| offer == PROTOCOL));
                let name = hello.server_name().map(str::to_owned);
                return Ok(is_link.then_some(name.unwrap_or_default()));
            }
            Ok(None) if length < hello.len() => sleep(Duration::from_millis(2)).await,
            Ok(None) => return Err(io::Error::other("its first message is too long")),
            Err((error, _)) => return Err(io::Error::other(error)),
        }
    }
}
