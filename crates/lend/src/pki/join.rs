//! TLS of a host that joins: it knows the digest of an authority, and finds its certificate in what the
//! other side shows.

use std::sync::Arc;

use crate::tls;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
};

use super::identity::GRPC;
use super::{PkiError, Token, cannot};

/// To call the host that gave the token, and no other, without a certificate of one's own.
pub(crate) fn joining(token: &Token) -> Result<Arc<ClientConfig>, PkiError> {
    let provider = tls::provider();
    let algorithms = provider.signature_verification_algorithms;
    let verifier = Arc::new(ByToken { token: token.clone(), algorithms });
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(cannot("setting up TLS for this host"))?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth();
    config.alpn_protocols = vec![GRPC.to_vec()];
    Ok(Arc::new(config))
}

#[derive(Debug)]
struct ByToken {
    token: Token,
    algorithms: WebPkiSupportedAlgorithms,
}

impl ServerCertVerifier for ByToken {
    fn verify_server_cert(
        &self,
        shown: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        status: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let unknown = || Error::InvalidCertificate(CertificateError::UnknownIssuer);
        let authority = between.iter().find(|shown| self.token.is_authority(shown));
        let mut roots = RootCertStore::empty();
        roots.add(authority.ok_or_else(unknown)?.clone().into_owned())?;
        let verifier = WebPkiServerVerifier::builder_with_provider(roots.into(), tls::provider());
        let verifier = verifier.build().map_err(|_| unknown())?;
        verifier.verify_server_cert(shown, &[], name, status, now)
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::PeerIncompatible(rustls::PeerIncompatible::Tls12NotOffered))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
