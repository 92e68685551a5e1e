//! The two ends of a lease of any vfio-user device whose memory cannot be handed over: its registers
//! are trapped, its DMA and its interrupts go over the link.
//!
//! [`borrower::BorrowerEnd`] is a vfio-user server for the local client, a virtual machine or a program;
//! [`lender::LenderEnd`] is a vfio-user client of the device. Both are pure: messages of vfio-user in and
//! out by their engines, frames in and out by an [`Endpoint`](farside_link::Endpoint). Both have the
//! table of windows, and neither trusts the other's. No region is offered to be mapped: what is mapped
//! cannot be taken back, and the memory of a foreign device is not renewed at the end of a lease.

pub mod borrower;
mod description;
pub mod lender;
pub mod local;
mod mutation;
#[cfg(test)]
mod tests;

#[cfg(test)]
pub(crate) use mutation::{Unchecked, take_away};

use farside_vfio_user::Errno;

/// What an end has counted, beside what its windows refuse.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Frames that have no place at this end, and are refused.
    pub misplaced: u64,
    /// Posted frames that this end refused, or its device or client did.
    pub refused: u64,
    /// Of these, those that had a place and were allowed, and were not done all the same: the client's memory is
    /// gone, or its device has no such interrupt. The borrower's end counts them.
    pub failed: u64,
    /// Posted frames of this end that the other refused.
    pub refused_there: u64,
}

/// The number of an error on the wire, never 0.
fn number(errno: Errno) -> u32 {
    if errno.code() == 0 { Errno::IO.code() } else { errno.code() }
}
