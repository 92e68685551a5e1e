//! The authority of a group of hosts.

use rcgen::{
    BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    SubjectPublicKeyInfo,
};

use super::{PkiError, cannot};

/// Certifies hosts. Its key stays on the host that made it.
pub struct Authority {
    certificate: Vec<u8>,
    key: KeyPair,
}

impl std::fmt::Debug for Authority {
    /// The key is nobody's business.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Authority")
    }
}

impl Authority {
    /// A new one.
    ///
    /// # Errors
    /// The cryptography fails.
    pub fn create() -> Result<Authority, PkiError> {
        let fail = cannot("making an authority for certificates");
        let key = KeyPair::generate().map_err(&fail)?;
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        params.distinguished_name.remove(DnType::CommonName);
        params.distinguished_name.push(DnType::CommonName, "Farside hosts");
        let certificate = params.self_signed(&key).map_err(&fail)?.der().to_vec();
        Ok(Authority { certificate, key })
    }

    /// One that was made before: certificate and key, DER.
    ///
    /// # Errors
    /// They are no such pair.
    pub fn restore(certificate: Vec<u8>, key: &[u8]) -> Result<Authority, PkiError> {
        let key = KeyPair::try_from(key).map_err(cannot("reading the key of the authority"))?;
        Ok(Authority { certificate, key })
    }

    /// Its certificate, DER.
    #[must_use]
    pub fn certificate(&self) -> &[u8] {
        &self.certificate
    }

    /// Its key, PKCS #8, DER.
    #[must_use]
    pub fn key(&self) -> Vec<u8> {
        self.key.serialize_der()
    }

    /// Certifies that a public key (SubjectPublicKeyInfo, DER) is that of a host. The certificate
    /// does not expire: clocks of hosts need not agree, and a host is excluded by its name.
    ///
    /// # Errors
    /// The key is none, or the name none of a host.
    pub fn certify(&self, host: &str, public_key: &[u8]) -> Result<Vec<u8>, PkiError> {
        let fail = cannot("certifying a host's key");
        let public_key = SubjectPublicKeyInfo::from_der(public_key).map_err(&fail)?;
        let mut params = CertificateParams::new(vec![host.to_owned()]).map_err(&fail)?;
        params.distinguished_name.remove(DnType::CommonName);
        params.distinguished_name.push(DnType::CommonName, host);
        let own = self.certificate.as_slice().into();
        let issuer = Issuer::from_ca_cert_der(&own, &self.key).map_err(&fail)?;
        let certificate = params.signed_by(&public_key, &issuer).map_err(&fail)?;
        Ok(certificate.der().to_vec())
    }
}
