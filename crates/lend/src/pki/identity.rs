//! A host's key and certificate, and what is checked by them.

use std::sync::Arc;

use farside_link::tls::{self, Credentials};
use rcgen::{KeyPair, PublicKeyData};
use rustls::client::WebPkiServerVerifier;
use rustls::pki_types::CertificateDer;
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::{PkiError, cannot};

/// The protocol of gRPC over TLS (ALPN).
pub(super) const GRPC: &[u8] = b"h2";

/// A key that nobody has certified yet.
pub struct Keypair(KeyPair);

impl Keypair {
    /// A new one.
    ///
    /// # Errors
    /// The cryptography fails.
    pub fn create() -> Result<Keypair, PkiError> {
        KeyPair::generate().map(Keypair).map_err(cannot("making a host's key"))
    }

    /// SubjectPublicKeyInfo, DER.
    #[must_use]
    pub fn public(&self) -> Vec<u8> {
        self.0.subject_public_key_info()
    }

    /// PKCS #8, DER.
    #[must_use]
    pub fn private(&self) -> Vec<u8> {
        self.0.serialize_der()
    }
}

/// What an end of a lease's connection shows: made for that lease, and certified by nobody.
///
/// # Errors
/// The cryptography fails.
pub fn link_credentials() -> Result<Credentials, PkiError> {
    let made = rcgen::generate_simple_self_signed(vec!["lease.farside".to_owned()]);
    let made = made.map_err(cannot("making a certificate for a lease"))?;
    let key = made.signing_key.serialize_der();
    Ok(Credentials { certificate: made.cert.der().to_vec(), key })
}

/// The name of the host that a certificate is about.
#[must_use]
pub fn host_of(certificate: &[u8]) -> Option<String> {
    let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
    let names = certificate.subject_alternative_name().ok()??;
    names.value.general_names.iter().find_map(|name| match name {
        GeneralName::DNSName(name) => Some((*name).to_owned()),
        _ => None,
    })
}

/// A certified host.
#[derive(Clone, Debug)]
pub struct HostIdentity {
    /// What it shows of itself.
    pub own: Credentials,
    /// The certificate of the authority, DER.
    pub authority: Vec<u8>,
}

impl HostIdentity {
    /// The host's name.
    #[must_use]
    pub fn host(&self) -> Option<String> {
        host_of(&self.own.certificate)
    }

    fn roots(&self) -> Result<Arc<RootCertStore>, PkiError> {
        let mut roots = RootCertStore::empty();
        let authority = CertificateDer::from(self.authority.clone());
        roots.add(authority).map_err(cannot("reading the authority's certificate"))?;
        Ok(Arc::new(roots))
    }

    /// For those who call: hosts of the same authority, and whoever has no certificate yet, which the
    /// services look at.
    ///
    /// # Errors
    /// A certificate or the key cannot be used.
    pub fn server(&self) -> Result<Arc<ServerConfig>, PkiError> {
        let fail = cannot("setting up TLS for this host");
        let provider = tls::provider();
        let verifier =
            WebPkiClientVerifier::builder_with_provider(self.roots()?, Arc::clone(&provider))
                .allow_unauthenticated()
                .build()
                .map_err(cannot("setting up the check of callers"))?;
        let (mut chain, key) = self.own.for_rustls();
        // One that joins knows the authority's digest and nothing else.
        chain.push(CertificateDer::from(self.authority.clone()));
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(&fail)?
            .with_client_cert_verifier(verifier)
            .with_single_cert(chain, key)
            .map_err(&fail)?;
        config.alpn_protocols = vec![GRPC.to_vec()];
        Ok(Arc::new(config))
    }

    /// To call hosts of the same authority.
    ///
    /// # Errors
    /// A certificate or the key cannot be used.
    pub fn client(&self) -> Result<Arc<ClientConfig>, PkiError> {
        let fail = cannot("setting up TLS for this host");
        let provider = tls::provider();
        let verifier =
            WebPkiServerVerifier::builder_with_provider(self.roots()?, Arc::clone(&provider))
                .build()
                .map_err(cannot("setting up the check of peers"))?;
        let (chain, key) = self.own.for_rustls();
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(&fail)?
            .with_webpki_verifier(verifier)
            .with_client_auth_cert(chain, key)
            .map_err(&fail)?;
        config.alpn_protocols = vec![GRPC.to_vec()];
        Ok(Arc::new(config))
    }
}

#[cfg(test)]
mod tests {
    use super::super::Authority;
    use super::*;

    #[test]
    fn a_host_is_certified_by_its_name_and_only_by_its_authority() {
        let authority = Authority::create().unwrap();
        let restored = Authority::restore(authority.certificate().to_vec(), &authority.key());
        let key = Keypair::create().unwrap();
        for authority in [authority, restored.unwrap()] {
            let certificate = authority.certify("b", &key.public()).unwrap();
            assert_eq!(host_of(&certificate).as_deref(), Some("b"));
            let own = Credentials { certificate, key: key.private() };
            let identity = HostIdentity { own, authority: authority.certificate().to_vec() };
            identity.server().unwrap();
            identity.client().unwrap();
        }
        assert!(Authority::create().unwrap().certify("b", b"no key").is_err());
        assert_eq!(host_of(b"nonsense"), None);
    }
}
