//! Calling other daemons.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::AsyncBufReadExt;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::http::{Request, Response};
use tonic::transport::{Channel, Endpoint, Uri};
use tower::util::BoxCloneService;
use tower::{ServiceExt, service_fn};

use crate::pki::explained;
use crate::proto::peers_client::PeersClient;

/// How long a connection may take.
const CONNECT_LIMIT: Duration = Duration::from_secs(3);
/// A connection over which nothing comes is tried so often, and given up after as long again.
const KEEP_ALIVE: Duration = Duration::from_secs(2);

/// A way to another daemon.
pub(crate) type PeerClient = PeersClient<Carrier>;

/// What takes a call to another daemon, and its answer back.
pub(crate) type Carrier = BoxCloneService<Request<Body>, Response<Body>, Status>;

/// A way to the daemon of `host`, which listens at `address`. It connects when it is used, and again
/// when the connection has broken.
pub(crate) fn peer(address: &str, host: &str, config: Arc<ClientConfig>) -> io::Result<PeerClient> {
    let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
    let (address, connector) = (address.to_owned(), TlsConnector::from(config));
    let connect = service_fn(move |_: Uri| {
        let (address, connector, name) = (address.clone(), connector.clone(), name.clone());
        let connecting = async move {
            let stream = TcpStream::connect(&address).await?;
            stream.set_nodelay(true)?;
            let mut stream = connector.connect(name, stream).await?;
            // The other speaks first. That it does not accept this host it says only now, and nobody would
            // hear it from a connection that is used already.
            stream.fill_buf().await?;
            Ok::<_, io::Error>(TokioIo::new(stream))
        };
        async move {
            let connected = timeout(CONNECT_LIMIT, connecting).await;
            connected.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
        }
    });
    let endpoint = Endpoint::from_static("http://peer")
        .connect_timeout(CONNECT_LIMIT)
        .http2_keep_alive_interval(KEEP_ALIVE)
        .keep_alive_timeout(KEEP_ALIVE)
        .keep_alive_while_idle(true);
    let channel: Channel = endpoint.connect_with_connector_lazy(connect);
    Ok(PeersClient::new(channel.map_err(|error| Status::from_error(error.into())).boxed_clone()))
}

/// Why a call failed, for people: the library's own words do not say what was wrong below.
pub(crate) fn why(status: &tonic::Status) -> String {
    if let Some(why) = explained(status) {
        return why;
    }
    let mut source = std::error::Error::source(status);
    let mut why = status.message().to_owned();
    while let Some(error) = source {
        why = error.to_string();
        source = error.source();
    }
    why
}
