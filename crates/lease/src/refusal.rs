//! Why a request is refused, and why a lease ends.

use crate::ids::{BorrowerId, DeviceName, LeaseId, RequestId};
use crate::text::Text;

/// Why a lender says no. Its text is for the person who asked: what, who, and what to do.
#[derive(Clone, PartialEq, Eq, Hash, Debug, thiserror::Error)]
pub enum Refusal {
    /// the lender has no such device
    #[error("{device} is not lent here; look at what is available")]
    NoSuchDevice {
        /// What was asked for.
        device: DeviceName,
    },
    /// the device is quarantined
    #[error("{device} is quarantined ({why}); its owner has to look at it and release it")]
    Quarantined {
        /// Which.
        device: DeviceName,
        /// Why it is.
        why: Text,
    },
    /// the device was withdrawn by its owner, or died
    #[error("{device} is not lent any more ({why}); borrow another")]
    Withdrawn {
        /// Which.
        device: DeviceName,
        /// What became of it.
        why: Text,
    },
    /// somebody else has it
    #[error("{device} is with {holder}; wait for it, or borrow another")]
    Busy {
        /// Which.
        device: DeviceName,
        /// Who has it.
        holder: BorrowerId,
    },
    /// it is being cleaned, or kept for somebody who waits
    #[error("{device} is not free yet; wait for it a few seconds")]
    NotYet {
        /// Which.
        device: DeviceName,
    },
    /// nobody gave it back in time
    #[error(
        "request {request} was not served within the time that it may wait; wait longer, or ask for a recall"
    )]
    TimedOut {
        /// Which.
        request: RequestId,
    },
    /// the request was answered before
    #[error("request {request} was answered before; ask again with a new number")]
    Repeated {
        /// Which.
        request: RequestId,
    },
    /// too many wait
    #[error("{waiting} requests wait already; ask again later")]
    QueueFull {
        /// How many.
        waiting: usize,
    },
    /// the host has or wants too much
    #[error("a host may have or wait for {allowed} devices; give some back")]
    TooMuch {
        /// How many.
        allowed: usize,
    },
    /// a message names too many leases
    #[error("a message may name {allowed} leases; send several")]
    TooLong {
        /// How many.
        allowed: usize,
    },
    /// too many hosts
    #[error("{hosts} hosts borrow here already; ask again later")]
    TooManyHosts {
        /// How many.
        hosts: usize,
    },
    /// the ledger cannot be written
    #[error(
        "the lender cannot write its ledger ({why}), so it grants nothing; its owner has to look at its disk"
    )]
    Ledger {
        /// What happened.
        why: Text,
    },
    /// the lease is not there, or not the asker's
    #[error("{lease} has ended, or is another's; borrow the device again")]
    Ended {
        /// Which.
        lease: LeaseId,
    },
}

/// Why a lease ended.
#[derive(Clone, PartialEq, Eq, Hash, Debug, thiserror::Error)]
pub enum EndReason {
    /// its borrower gave it back
    #[error("given back")]
    Returned,
    /// its borrower hung up
    #[error("its borrower hung up")]
    HungUp,
    /// its borrower did not renew it
    #[error("its borrower did not renew it in time")]
    Silent,
    /// it was recalled, and the time to give it back is over
    #[error("recalled by {by}, and not given back in time")]
    Recalled {
        /// Who wanted it.
        by: Text,
    },
    /// its borrower no longer waited when it was granted
    #[error("nobody waited for it any more")]
    Unwanted,
    /// the device died
    #[error("the device is lost: {why}")]
    DeviceLost {
        /// What happened.
        why: Text,
    },
}
