//! Feeds this crate what hostile peers say, and checks what must hold whatever that is.
//!
//! Shared by the tests and by the fuzz targets of `crates/lend/fuzz`, which ask for the feature `fuzzing`;
//! nothing else is built with it. Each function takes any bytes and gives how much of them made sense.

mod ends;
mod etcd;
mod input;
mod peers;
#[cfg(test)]
mod tests;
mod words;

pub use ends::{borrower_end, lender_end};
pub use etcd::etcd;
pub use peers::{lender, peers};
pub use words::{ledger, order, ticket, token};
