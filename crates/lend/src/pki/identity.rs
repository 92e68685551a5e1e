//! A host's key and certificate, and what is checked by them.

use std::sync::Arc;

use crate::tls::{self, Credentials};
use rcgen::{KeyPair, PublicKeyData};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::{CertificateError, ClientConfig, Error, RootCertStore, ServerConfig};
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::{PkiError, cannot, explained};
use crate::config::CertificateFiles;

/// The protocol of gRPC over TLS (ALPN).
pub(crate) const GRPC: &[u8] = b"h2";

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
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostIdentity {
    /// What it shows of itself.
    pub own: Credentials,
    /// Certificates between that and the authority, DER, each certified by the next.
    pub between: Vec<Vec<u8>>,
    /// The certificate of the authority, DER.
    pub authority: Vec<u8>,
    /// Other authorities whose hosts are accepted too.
    pub more_authorities: Vec<Vec<u8>>,
    /// They are its organisation's: nobody joins by a token.
    pub is_organisations: bool,
}

/// What is wrong with certificates that are about to be used.
#[derive(Debug)]
pub(crate) enum Unsound {
    /// Their time is over.
    Expired,
    /// Nobody would accept them.
    Wrong(String),
}

/// Files that cannot be used.
pub(crate) fn unusable(files: &CertificateFiles, why: impl std::fmt::Display) -> PkiError {
    let why = format!("{}: {why}", files.certificate.display());
    PkiError { what: "using the certificate of this host's organisation", why }
}

/// A certificate ends so soon that it is said.
const SOON_S: i64 = 14 * 24 * 3600;

impl HostIdentity {
    /// The host's name.
    #[must_use]
    pub fn host(&self) -> Option<String> {
        host_of(&self.own.certificate)
    }

    /// Of the group that it founded or joined: certified by its authority.
    #[must_use]
    pub fn of_group(own: Credentials, authority: Vec<u8>) -> HostIdentity {
        let (between, more_authorities) = (Vec::new(), Vec::new());
        HostIdentity { own, between, authority, more_authorities, is_organisations: false }
    }

    fn roots(&self) -> Result<Arc<RootCertStore>, PkiError> {
        let mut roots = RootCertStore::empty();
        for authority in [&self.authority].into_iter().chain(&self.more_authorities) {
            let authority = CertificateDer::from(authority.clone());
            roots.add(authority).map_err(cannot("reading the authority's certificate"))?;
        }
        Ok(Arc::new(roots))
    }

    /// What is shown of this host, and by which key.
    fn shown(&self) -> (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>) {
        let (mut chain, key) = self.own.for_rustls();
        chain.extend(self.between.iter().cloned().map(CertificateDer::from));
        (chain, key)
    }

    /// Whether peers who know the same authority will accept it as `host`.
    pub(crate) fn check(&self, host: &str) -> Result<(), Unsound> {
        let wrong = |why: &dyn std::fmt::Display| Unsound::Wrong(why.to_string());
        let roots = self.roots().map_err(|error| wrong(&error))?;
        let verifier = WebPkiServerVerifier::builder_with_provider(roots, tls::provider()).build();
        let verifier = verifier.map_err(|error| wrong(&error))?;
        let name = ServerName::try_from(host.to_owned()).map_err(|error| wrong(&error))?;
        let (chain, _) = self.shown();
        match verifier.verify_server_cert(&chain[0], &chain[1..], &name, &[], UnixTime::now()) {
            Ok(_) => Ok(()),
            Err(Error::InvalidCertificate(
                CertificateError::Expired | CertificateError::ExpiredContext { .. },
            )) => Err(Unsound::Expired),
            Err(error) => match explained(&error) {
                Some(why) => Err(Unsound::Wrong(why)),
                None => Err(wrong(&error)),
            },
        }
    }

    /// When the first of what is shown ends, in seconds since 1970.
    #[must_use]
    pub fn ends(&self) -> Option<i64> {
        let shown = [&self.own.certificate].into_iter().chain(&self.between);
        let end = |der: &Vec<u8>| {
            let (_, certificate) = X509Certificate::from_der(der).ok()?;
            Some(certificate.validity().not_after.timestamp())
        };
        shown.filter_map(end).min()
    }

    /// What to say of its end at `now`, in seconds since 1970.
    #[must_use]
    pub fn warning(&self, now: i64) -> Option<String> {
        let ends = self.ends().filter(|ends| *ends < now.saturating_add(SOON_S))?;
        let day = time::OffsetDateTime::from_unix_timestamp(ends).map_or_else(
            |_| "long ago".to_owned(),
            |time| format!("on {} at {}", time.date(), time.time()),
        );
        let what = if ends <= now { "has expired" } else { "ends" };
        Some(format!(
            "the certificate of this host {what} {day} (UTC); replace its files, then reload the daemon"
        ))
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
        let (mut chain, key) = self.shown();
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
        let (chain, key) = self.shown();
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
            let identity = HostIdentity::of_group(own, authority.certificate().to_vec());
            identity.check("b").unwrap();
            assert!(matches!(identity.check("c"), Err(Unsound::Wrong(_))));
            // It does not end, as far as anybody lives to see.
            assert_eq!(identity.warning(1 << 34), None);
            let ends = identity.ends().unwrap();
            assert!(identity.warning(ends - 1).unwrap().contains("ends on"));
            assert!(identity.warning(ends).unwrap().contains("has expired"));
            identity.server().unwrap();
            identity.client().unwrap();
        }
        assert!(Authority::create().unwrap().certify("b", b"no key").is_err());
        assert_eq!(host_of(b"nonsense"), None);
    }
}
