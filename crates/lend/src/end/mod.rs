//! The ends of a lease, each a process of its own: the borrower's, between its programs and the link
//! (`near`), and the lender's, between the link and the device.
//!
//! The lender's end: a process, between the borrower's connections and the device.
//!
//! It knows this one lease, its device, and the certificate that the borrower has to show. The daemon
//! hands it connections and tells it how long the lease runs; when that is over it ends, whatever the
//! daemon does. Killing it is the last fence. It outlives its daemon, whose successor finds it by its
//! socket.

#[cfg(test)]
mod attack_tests;
mod control;
pub(crate) mod foreign;
mod here;
#[cfg(test)]
mod line_tests;
mod near;
mod peers;
#[cfg(test)]
mod peers_tests;
pub(crate) mod plain;
mod process;
mod pump;
mod sandbox;
mod secured;
mod serve;
mod tally;

pub(crate) use control::{Begin, Hello, Kind, Order, Said, receive_now, send};
pub use near::run as run_near;
pub(crate) use near::{NearBegin, NearEnd};
pub(crate) use process::EndProcess;
pub use serve::run;
pub(crate) use tally::{Count, Counted, Refused};

/// The name by which connections are led to the end of a lease.
pub(crate) fn link_name(epoch: u64) -> String {
    format!("lease-{epoch}.farside")
}

/// Takes a packet as the process of an end does, and says whether it is an order.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn attacked(socket: std::os::fd::BorrowedFd<'_>) -> bool {
    let order = control::receive::<control::Order>(socket);
    matches!(order, Ok(Some(_)))
}
