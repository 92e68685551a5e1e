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
    fn the_code_of_the_protocols_is_that_of_their_descriptions() {
        let lend = include_bytes!("../proto/farside/lend/v1/lend.proto");
        let etcd = include_bytes!("../proto/etcdserverpb/rpc.proto");
        for (name, description, code) in [
            ("lend.proto", &lend[..], include_str!("generated/farside.lend.v1.rs")),
            ("rpc.proto", &etcd[..], include_str!("generated/etcdserverpb.rs")),
        ] {
            let digest = Sha256::digest(description);
            let digest: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
            let wanted = format!("// of {name} {digest}");
            assert_eq!(code.lines().next(), Some(&*wanted), "run `make proto`");
        }
    }
}
