//! The lender's end of a lease: a process of its own, between the borrower's connections and the device.
//!
//! It knows this one lease, its device, and the certificate that the borrower has to show. The daemon
//! hands it connections and tells it how long the lease runs; when that is over it ends, whatever the
//! daemon does. Killing it is the last fence. It outlives its daemon, whose successor finds it by its
//! socket.

mod control;
mod process;
mod serve;

pub(crate) use control::Begin;
pub(crate) use process::EndProcess;
pub use serve::run;
