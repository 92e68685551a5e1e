//! Certificates of an organisation in the place of the group's own: files that its administrators put there,
//! and replace before they end.

use std::path::Path;

use crate::tls::Credentials;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::{HostIdentity, PkiError};
use crate::config::CertificateFiles;

/// Certificates in a file, at most.
const CERTIFICATES_MAX: usize = 16;

/// Reads them: a host's certificate and those between it and the authority, its key, the authorities.
///
/// # Errors
/// A file cannot be read, or has something else in it.
pub(crate) fn read(files: &CertificateFiles) -> Result<HostIdentity, PkiError> {
    let mut own = certificates(&files.certificate)?;
    let mut authorities = certificates(&files.authority)?;
    let own_credentials = Credentials { certificate: own.remove(0), key: key(&files.key)? };
    let authority = authorities.remove(0);
    Ok(HostIdentity {
        own: own_credentials,
        between: own,
        authority,
        more_authorities: authorities,
        is_organisations: true,
    })
}

fn unusable(path: &Path, why: impl std::fmt::Display) -> PkiError {
    let why = format!("{}: {why}", path.display());
    PkiError { what: "reading certificates", why }
}

/// All certificates of a file; at least one.
pub(crate) fn certificates(path: &Path) -> Result<Vec<Vec<u8>>, PkiError> {
    let found = CertificateDer::pem_file_iter(path).map_err(|error| unusable(path, error))?;
    let found: Result<Vec<Vec<u8>>, _> =
        found.take(CERTIFICATES_MAX + 1).map(|found| found.map(|der| der.to_vec())).collect();
    let found = found.map_err(|error| unusable(path, error))?;
    match found.len() {
        0 => Err(unusable(path, "there is no certificate in it (PEM)")),
        count if count > CERTIFICATES_MAX => Err(unusable(
            path,
            format!("there are more than {CERTIFICATES_MAX} certificates in it"),
        )),
        _ => Ok(found),
    }
}

/// A key, PKCS #8.
pub(crate) fn key(path: &Path) -> Result<Vec<u8>, PkiError> {
    match PrivateKeyDer::from_pem_file(path).map_err(|error| unusable(path, error))? {
        PrivateKeyDer::Pkcs8(key) => Ok(key.secret_pkcs8_der().to_vec()),
        _ => Err(unusable(
            path,
            "the key is not PKCS #8; `openssl pkcs8 -topk8 -nodes -in KEY` makes it one",
        )),
    }
}
