//! Who the hosts are: an authority that certifies their keys, the certificate of each, and the tokens by
//! which one gets it.
//!
//! The first host that is opened to others makes the authority. A host's name in its certificate is
//! what it is known by. An organisation that has certificates of its own names its files in the configuration
//! (`organisation`), and needs no token.

mod authority;
mod identity;
mod join;
pub(crate) mod organisation;
mod refused;
mod token;

pub use authority::Authority;
pub(crate) use identity::{GRPC, Unsound, unusable};
pub use identity::{HostIdentity, Keypair, host_of, link_credentials};
pub(crate) use join::joining;
pub(crate) use organisation::{certificates, key};
pub(crate) use refused::explained;
pub use token::{Invitations, Token, TokenError};

use thiserror::Error;

/// A key or certificate cannot be made or used.
#[derive(Debug, Error)]
#[error("{what}: {why}")]
pub struct PkiError {
    /// What was to be done.
    pub what: &'static str,
    /// Why it cannot be.
    pub why: String,
}

/// For errors of the libraries.
fn cannot<E: std::fmt::Display>(what: &'static str) -> impl Fn(E) -> PkiError {
    move |error| PkiError { what, why: error.to_string() }
}

/// Bytes that nobody can guess.
pub(crate) fn random<const BYTES: usize>() -> [u8; BYTES] {
    let mut bytes = [0; BYTES];
    let provider = crate::tls::provider();
    provider.secure_random.fill(&mut bytes).expect("the kernel gives random bytes");
    bytes
}

/// SHA-256.
pub(crate) fn digest(bytes: &[u8]) -> [u8; 32] {
    use sha2::Digest;
    sha2::Sha256::digest(bytes).into()
}
