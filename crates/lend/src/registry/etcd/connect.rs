//! The ways to the members of an etcd cluster: TCP, and TLS where the configuration says so.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use crate::tls;
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tonic::transport::{Endpoint, Uri};
use tower::service_fn;

use super::Member;
use crate::LendError;
use crate::config::{EtcdEndpoint, EtcdFiles, EtcdSettings};
use crate::pki;

/// How long a connection may take.
const CONNECT_LIMIT: Duration = Duration::from_secs(1);
/// A connection over which nothing comes is tried so often, and given up after as long again.
const KEEP_ALIVE: Duration = Duration::from_secs(2);

/// What bytes go over.
trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// The members that are configured; they are connected when they are used.
///
/// # Errors
/// A file for TLS cannot be used.
pub(crate) fn members(settings: &EtcdSettings) -> Result<Vec<Member>, LendError> {
    let config = settings.files.as_ref().map(config).transpose()?;
    settings.endpoints.iter().map(|endpoint| member(endpoint, config.as_ref())).collect()
}

fn config(files: &EtcdFiles) -> Result<Arc<ClientConfig>, LendError> {
    let mut roots = RootCertStore::empty();
    for authority in pki::certificates(&files.authority)? {
        let fail = |error| unusable(&format!("{}: {error}", files.authority.display()));
        roots.add(authority.into()).map_err(fail)?;
    }
    let fail = |error: rustls::Error| unusable(&error.to_string());
    let config = ClientConfig::builder_with_provider(tls::provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(fail)?
        .with_root_certificates(roots);
    let mut config = match &files.own {
        None => config.with_no_client_auth(),
        Some((certificate, key)) => {
            let chain = pki::certificates(certificate)?.into_iter().map(Into::into).collect();
            let key = rustls::pki_types::PrivatePkcs8KeyDer::from(pki::key(key)?);
            config.with_client_auth_cert(chain, key.into()).map_err(fail)?
        }
    };
    config.alpn_protocols = vec![pki::GRPC.to_vec()];
    Ok(Arc::new(config))
}

fn unusable(why: &str) -> LendError {
    LendError::Refused(format!("[registry] in lend.toml: {why}"))
}

fn member(
    endpoint: &EtcdEndpoint,
    config: Option<&Arc<ClientConfig>>,
) -> Result<Member, LendError> {
    let tls = match (endpoint.is_tls, config) {
        (false, _) => None,
        (true, None) => return Err(unusable("https needs an `authority`")),
        (true, Some(config)) => {
            let name = ServerName::try_from(endpoint.host.clone());
            let name = name.map_err(|error| unusable(&format!("{}: {error}", endpoint.host)))?;
            Some((TlsConnector::from(Arc::clone(config)), name))
        }
    };
    let (host, port) = (endpoint.host.clone(), endpoint.port);
    let connect = service_fn(move |_: Uri| {
        let (host, tls) = (host.clone(), tls.clone());
        let connecting = async move {
            let stream = TcpStream::connect((host.as_str(), port)).await?;
            stream.set_nodelay(true)?;
            let stream: Box<dyn Stream> = match tls {
                None => Box::new(stream),
                Some((connector, name)) => {
                    let mut stream = connector.connect(name, stream).await?;
                    // It speaks first. That it does not accept this host it says only now.
                    stream.fill_buf().await?;
                    Box::new(stream)
                }
            };
            Ok::<_, io::Error>(TokioIo::new(stream))
        };
        async move {
            let connected = timeout(CONNECT_LIMIT, connecting).await;
            connected.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
        }
    });
    let way = settings().connect_with_connector_lazy(connect);
    Ok(Member { endpoint: endpoint.to_string(), way })
}

/// Of all connections to etcd.
pub(in super::super) fn settings() -> Endpoint {
    Endpoint::from_static("http://etcd")
        .connect_timeout(CONNECT_LIMIT)
        .http2_keep_alive_interval(KEEP_ALIVE)
        .keep_alive_timeout(KEEP_ALIVE)
        .keep_alive_while_idle(true)
}
