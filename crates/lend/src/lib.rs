//! Lending cards between hosts: the daemon of a host, its certificates, what it says to its peers and to
//! the users of its host, and the lender's end of each lease.
//!
//! Who may have a device is decided by `farside-lease`; what goes over a lease's connection is the
//! business of `farside-link`.

mod client;
pub mod config;
pub mod daemon;
pub mod end;
pub mod ends;
mod error;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
pub mod home;
pub mod pki;
mod registry;
pub mod steps;
pub mod tls;
pub mod words;

pub use client::{Borrowing, Client};
pub use error::LendError;

/// The protocol between daemons, and of the commands with theirs: written by `make proto`.
#[allow(missing_docs, clippy::all, clippy::pedantic)]
pub mod proto {
    include!("generated/farside.lend.v1.rs");
}

#[cfg(test)]
mod tests {
    use sha2::{Digest, Sha256};

    #[test]
    fn the_code_of_the_protocol_is_that_of_its_description() {
        let digest = Sha256::digest(include_bytes!("../proto/farside/lend/v1/lend.proto"));
        let digest: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        let first = include_str!("generated/farside.lend.v1.rs").lines().next();
        assert_eq!(first, Some(&*format!("// of lend.proto {digest}")), "run `make proto`");
    }
}
