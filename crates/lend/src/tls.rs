//! TLS 1.3 for the connection of a lease: each end knows the one certificate that the other has to
//! show, made for this lease alone and exchanged by the two daemons, which know each other.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, Error, ServerConfig,
    SignatureScheme,
};

/// The protocol that is agreed on (ALPN), and by which a listener tells it from gRPC.
pub const PROTOCOL: &[u8] = b"farside-link/1";

/// What an end shows of itself, and proves to have the key of.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// X.509, DER.
    pub certificate: Vec<u8>,
    /// PKCS #8, DER.
    pub key: Vec<u8>,
}

impl std::fmt::Debug for Credentials {
    /// The key is nobody's business.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Credentials({} bytes of certificate)", self.certificate.len())
    }
}

impl Credentials {
    /// As rustls wants them.
    #[must_use]
    pub fn for_rustls(&self) -> (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>) {
        let key = PrivatePkcs8KeyDer::from(self.key.clone());
        (vec![CertificateDer::from(self.certificate.clone())], key.into())
    }
}

/// The cryptography that everything of Farside uses.
#[must_use]
pub fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// The borrower's end, which accepts no other peer than the one with this certificate.
///
/// # Errors
/// The own certificate or key cannot be used.
pub fn client(own: &Credentials, peer: &[u8]) -> Result<Arc<ClientConfig>, Error> {
    let provider = provider();
    let pinned = Arc::new(Pinned::new(only(peer), &provider));
    let (chain, key) = own.for_rustls();
    let builder = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(pinned);
    let mut config = builder.with_client_auth_cert(chain, key)?;
    config.alpn_protocols = vec![PROTOCOL.to_vec()];
    // A connection is made once for a lease: what would be resumed is not worth keeping.
    config.resumption = rustls::client::Resumption::disabled();
    Ok(Arc::new(config))
}

/// The lender's end, which accepts no other peer than the one with this certificate.
///
/// # Errors
/// The own certificate or key cannot be used.
pub fn server(own: &Credentials, peer: &[u8]) -> Result<Arc<ServerConfig>, Error> {
    server_for(own, only(peer))
}

/// The lender's end, which accepts whoever shows a certificate that it knows.
///
/// # Errors
/// The own certificate or key cannot be used.
pub fn server_for(own: &Credentials, is_known: Arc<IsKnown>) -> Result<Arc<ServerConfig>, Error> {
    let provider = provider();
    let pinned = Arc::new(Pinned::new(is_known, &provider));
    let (chain, key) = own.for_rustls();
    let builder = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_client_cert_verifier(pinned);
    let mut config = builder.with_single_cert(chain, key)?;
    config.alpn_protocols = vec![PROTOCOL.to_vec()];
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}

/// Whether a certificate is one of those that may be shown, DER.
pub type IsKnown = dyn Fn(&[u8]) -> bool + Send + Sync;

fn only(peer: &[u8]) -> Arc<IsKnown> {
    let peer = peer.to_vec();
    Arc::new(move |shown| shown == peer)
}

/// Accepts known certificates, whatever they say, from whoever has their keys.
struct Pinned {
    is_known: Arc<IsKnown>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl std::fmt::Debug for Pinned {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Pinned")
    }
}

impl Pinned {
    fn new(is_known: Arc<IsKnown>, provider: &CryptoProvider) -> Pinned {
        Pinned { is_known, algorithms: provider.signature_verification_algorithms }
    }

    fn is(&self, shown: &CertificateDer<'_>) -> Result<(), Error> {
        let is = (self.is_known)(shown.as_ref());
        let wrong = CertificateError::ApplicationVerificationFailure;
        is.then_some(()).ok_or(Error::InvalidCertificate(wrong))
    }

    fn signed(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.algorithms)
    }
}

/// An older TLS than this speaks.
fn too_old() -> Error {
    Error::PeerIncompatible(rustls::PeerIncompatible::Tls12NotOffered)
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        shown: &CertificateDer<'_>,
        _between: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _status: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.is(shown).map(|()| ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(too_old())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.signed(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

impl ClientCertVerifier for Pinned {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        shown: &CertificateDer<'_>,
        _between: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.is(shown).map(|()| ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(too_old())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.signed(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
