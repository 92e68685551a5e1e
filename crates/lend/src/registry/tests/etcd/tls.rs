//! etcd over TLS, by certificates that somebody else has made: over TCP, in real time.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use farside_lease::BootTime;
use futures_util::future::BoxFuture;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio::net::TcpListener;
use tokio::time::{Instant, sleep};
use tokio_rustls::TlsAcceptor;

use super::server::{Seen, Shared};
use crate::config::{EtcdEndpoint, EtcdFiles, EtcdSettings};
use crate::registry::etcd::Etcd;
use crate::registry::etcd::connect::members;
use crate::registry::{OwnHost, Published, Registry};
use crate::tls;

/// How long anything may take.
const LIMIT: Duration = Duration::from_secs(20);
/// Longer than etcd may be silent.
const SILENCE: Duration = Duration::from_secs(6);

/// An authority, as an organisation has one.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
    der: Vec<u8>,
}

/// What somebody shows, and its key: PEM and DER.
struct Shown {
    pem: [String; 2],
    certificate: Vec<u8>,
    key: Vec<u8>,
}

impl Authority {
    fn new(name: &str) -> Authority {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let certificate = params.self_signed(&key).unwrap();
        let (pem, der) = (certificate.pem(), certificate.der().to_vec());
        Authority { issuer: Issuer::new(params, key), pem, der }
    }

    fn certify(&self, name: &str) -> Shown {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        Shown {
            pem: [certificate.pem(), key.serialize_pem()],
            certificate: certificate.der().to_vec(),
            key: key.serialize_der(),
        }
    }
}

/// An etcd at a port of this host, which asks its callers for certificates.
struct Server {
    shared: Arc<Shared>,
    address: SocketAddr,
}

impl Server {
    async fn start(authority: &Authority, shown: Shown) -> Server {
        let shared = Shared::new();
        let (_, callers, _) = Seen::serve_streams(&shared, 0);
        let mut roots = RootCertStore::empty();
        roots.add(authority.der.clone().into()).unwrap();
        let verifier =
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), tls::provider());
        let config = ServerConfig::builder_with_provider(tls::provider())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_client_cert_verifier(verifier.build().unwrap());
        let key = PrivatePkcs8KeyDer::from(shown.key).into();
        let mut config = config.with_single_cert(vec![shown.certificate.into()], key).unwrap();
        config.alpn_protocols = vec![b"h2".to_vec()];
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let (acceptor, callers) = (acceptor.clone(), callers.clone());
                tokio::spawn(async move {
                    let Ok(mut caller) = acceptor.accept(socket).await else { return };
                    let (mut near, far) = tokio::io::duplex(1 << 20);
                    callers.send(Ok(far)).await.expect("it serves");
                    let _ = tokio::io::copy_bidirectional(&mut caller, &mut near).await;
                });
            }
        });
        Server { shared, address }
    }
}

/// A host, whose clock can be put forward.
struct Own {
    began: Instant,
    ahead_ns: AtomicU64,
}

impl OwnHost for Own {
    fn now(&self) -> (BootTime, Duration) {
        let ahead = Duration::from_nanos(self.ahead_ns.load(Ordering::SeqCst));
        let since = Duration::from_secs(1_000_000) + self.began.elapsed() + ahead;
        (BootTime(since.as_nanos() as u64), since)
    }

    fn spawn(&self, task: BoxFuture<'static, ()>) {
        tokio::spawn(task);
    }
}

/// Files of a test.
struct Files(PathBuf);

impl Files {
    fn new(name: &str) -> Files {
        let path = std::env::temp_dir().join(format!("farside-etcd-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Files(path)
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    /// What `lend.toml` names: whose servers are accepted, and what is shown to them.
    fn named(&self, authority: &Authority, shown: Option<&Shown>) -> EtcdFiles {
        let own = shown.map(|shown| {
            (self.write("own.pem", &shown.pem[0]), self.write("own.key", &shown.pem[1]))
        });
        EtcdFiles { authority: self.write("authority.pem", &authority.pem), own }
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A host that finds others by the server, as its configuration says.
fn host(name: &str, host: &str, port: u16, files: EtcdFiles) -> (Arc<Etcd>, Arc<Own>) {
    let settings = EtcdSettings {
        endpoints: vec![EtcdEndpoint { is_tls: true, host: host.to_owned(), port }],
        prefix: "/farside".to_owned(),
        cluster: "test".to_owned(),
        files: Some(files),
    };
    let own = Arc::new(Own { began: Instant::now(), ahead_ns: AtomicU64::new(0) });
    let members = members(&settings).unwrap();
    let etcd = Etcd::new(name, ("/farside", "test"), members, Arc::clone(&own) as _);
    etcd.begin();
    etcd.publish(Published { address: format!("{name}:7301"), devices: Vec::new() });
    (etcd, own)
}

fn in_real_time(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        tokio::time::timeout(2 * LIMIT, test).await.expect("it ends in time");
    });
}

#[test]
fn hosts_find_each_other_by_an_etcd_that_asks_for_certificates() {
    in_real_time(async {
        let authority = Authority::new("of etcd");
        let server = Server::start(&authority, authority.certify("127.0.0.1")).await;
        let (files, port) = (Files::new("good"), server.address.port());
        let named = || files.named(&authority, Some(&authority.certify("a host")));
        let hosts = ["a", "b"].map(|name| host(name, "127.0.0.1", port, named()).0);
        let until = Instant::now() + LIMIT;
        for (etcd, other) in hosts.iter().zip(["b", "a"]) {
            let knows = |etcd: &Etcd| {
                let view = etcd.view();
                view.iter().any(|seen| seen.said.address == format!("{other}:7301"))
            };
            while !knows(etcd) {
                assert!(Instant::now() < until, "{:?}, {:?}", etcd.view(), etcd.trouble());
                sleep(Duration::from_millis(20)).await;
            }
            assert_eq!(etcd.trouble(), None);
        }
    });
}

/// What is wrong is said by `farside who`: where, and why; nothing has reached etcd.
async fn is_refused(server: &Server, at: &str, files: EtcdFiles, says: &str) {
    let (etcd, own) = host("a", at, server.address.port(), files);
    own.ahead_ns.store(SILENCE.as_nanos() as u64, Ordering::SeqCst);
    let until = Instant::now() + LIMIT;
    let endpoint = format!("https://{at}:{}", server.address.port());
    loop {
        let trouble = etcd.trouble().unwrap_or_default();
        if trouble.contains(&endpoint) && trouble.contains(says) {
            break;
        }
        assert!(Instant::now() < until, "{says:?} is not said: {trouble}");
        sleep(Duration::from_millis(20)).await;
    }
    server.shared.change(|store| assert_eq!(store.revision, 0, "something was written"));
}

#[test]
fn an_etcd_that_another_authority_knows_is_refused_and_named() {
    in_real_time(async {
        let [authority, other] = ["of etcd", "another"].map(Authority::new);
        let server = Server::start(&authority, authority.certify("127.0.0.1")).await;
        let files = Files::new("other");
        let named = files.named(&other, Some(&authority.certify("a host")));
        is_refused(&server, "127.0.0.1", named, "an authority that this host does not know").await;
    });
}

#[test]
fn an_etcd_whose_certificate_has_another_name_is_refused_and_named() {
    in_real_time(async {
        let authority = Authority::new("of etcd");
        let server = Server::start(&authority, authority.certify("etcd.example")).await;
        let files = Files::new("name");
        let named = files.named(&authority, Some(&authority.certify("a host")));
        is_refused(&server, "127.0.0.1", named, "names another host").await;
    });
}

#[test]
fn a_host_without_a_certificate_that_etcd_knows_hears_so() {
    in_real_time(async {
        let [authority, other] = ["of etcd", "another"].map(Authority::new);
        let server = Server::start(&authority, authority.certify("127.0.0.1")).await;
        let files = Files::new("nobody");
        let named = files.named(&authority, None);
        is_refused(&server, "127.0.0.1", named, "asks for a certificate").await;
        let named = files.named(&authority, Some(&other.certify("a host")));
        is_refused(&server, "127.0.0.1", named, "does not know the authority").await;
    });
}

#[test]
fn files_that_are_none_are_named() {
    let files = Files::new("none");
    let authority = files.write("authority.pem", "nonsense");
    let settings = |authority: &Path| EtcdSettings {
        endpoints: vec![EtcdEndpoint { is_tls: true, host: "e".to_owned(), port: 2379 }],
        prefix: "/farside".to_owned(),
        cluster: "test".to_owned(),
        files: Some(EtcdFiles { authority: authority.to_owned(), own: None }),
    };
    for path in [authority, files.0.join("absent.pem")] {
        let why = members(&settings(&path)).err().expect("it is no file").to_string();
        assert!(why.contains(&path.display().to_string()), "{why}");
    }
}
