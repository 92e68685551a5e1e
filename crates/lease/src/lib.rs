//! Leases of devices: who may use which device, and until when.
//!
//! Owns the decision, at both sides of a lease, as pure state machines: events and the time go in,
//! actions come out. [`Lender`] decides about the devices of its host, alone; nobody votes.
//! [`Borrower`] asks one lender, keeps its leases alive and says until when each may be used.
//! [`Ledger`] is what a lender must not forget when it is restarted, as bytes.
//!
//! Does not own: sockets, files, processes, clocks. The daemon (`farside-lend`) carries the actions
//! out and answers them. What a lease lets through, byte by byte, is the business of the link
//! (`farside-link`) and of the windows.
//!
//! # The rules
//!
//! 1. A lease has an *epoch*, which never repeats at one lender. The epoch is in the ledger, durably,
//!    before the grant is told. If the ledger cannot be written, nothing is granted.
//! 2. The borrower counts its time from before it asked, shortened by the drift that is allowed; the
//!    lender from receipt, lengthened by it. So the borrower stops first.
//! 3. A reply counts for the request that it names, and for no other.
//! 4. A lease ends at once when its borrower gives it back or hangs up; at its end when the borrower
//!    is silent; a lost connection ends nothing before that.
//! 5. Then the device is fenced: link cut, windows closed, jobs stopped, device reset, memory scrubbed
//!    and replaced by a new generation. What does not reset is quarantined.
//! 6. A device is granted again when it is clean *and* nobody may still believe in the lease before.
//! 7. Several devices are granted all at once or not at all.
//!
//! A recall moves no end that was promised: it limits what renewals promise. The paper's devices are
//! given away and taken back by hand (Device Lending, section 4); the leases are this project's.
#![forbid(unsafe_code)]

pub mod borrower;
mod ids;
pub mod ledger;
pub mod lender;
mod limits;
mod mutation;
mod queue;
mod refusal;
mod seen;
mod text;
mod time;

pub use borrower::Borrower;
pub use ids::{
    BorrowerId, DeviceName, DeviceSet, DeviceSetError, Epoch, HostName, LeaseId, NAME_BYTES_MAX,
    NameError, RequestId, UserName,
};
pub use ledger::{BootId, Ledger, LedgerError};
pub use lender::Lender;
pub use limits::{Limits, Stats};
pub use mutation::Mutation;
pub use refusal::{EndReason, Refusal};
pub use text::Text;
pub use time::{BootTime, Drift};
