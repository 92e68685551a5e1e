//! How a link ends, and what is wrong with what the other end says.

use thiserror::Error;

use crate::frame::{Class, Kind};

/// The other end does not keep to the protocol, or is not the one that this end wants.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Error)]
pub enum Violation {
    /// The first bytes are not those of a link.
    #[error("the other end does not speak the protocol of a lease's connection")]
    NoLink,
    /// There is no version that both speak.
    #[error(
        "the other end speaks other versions of the protocol; use the same Farside at both ends"
    )]
    Version,
    /// It wants another device.
    #[error("the other end wants another device than this lease's")]
    Device,
    /// Its lease is another.
    #[error("the other end has epoch {theirs} of the lease, here it is {ours}; borrow again")]
    Epoch {
        /// What it said.
        theirs: u64,
        /// What holds.
        ours: u64,
    },
    /// It is not the program that began.
    #[error("the other end is not the one that this link began with; borrow again")]
    Session,
    /// It has received what was never sent, or wants what is not kept any more.
    #[error("the other end wants to go on from frame {wanted}, and {first} to {end} are there")]
    Resume {
        /// What it expects next.
        wanted: u64,
        /// The first frame that is kept.
        first: u64,
        /// The first that was never sent.
        end: u64,
    },
    /// A frame of no known kind.
    #[error("the other end sent a frame of kind {0:#06x}, which there is not")]
    UnknownKind(u16),
    /// A control frame that has no place here.
    #[error("the other end sent a control frame of kind {0:#06x} where it has no place")]
    Unexpected(u16),
    /// The header's spare bytes are used, or a length is not one of its kind.
    #[error(
        "the other end sent a frame of kind {kind:#06x} with {length} bytes, which it cannot have"
    )]
    Length {
        /// Its kind.
        kind: u16,
        /// The length that its header says.
        length: u32,
    },
    /// Spare bits are used.
    #[error("the other end sent a header that is none")]
    Header,
    /// Fields have values that they cannot have.
    #[error("the other end sent a {0:?} with fields that it cannot have")]
    Malformed(Kind),
    /// Frames are missing.
    #[error("the other end sent frame {got}, and {expected} is missing")]
    Gap {
        /// What had to come.
        expected: u64,
        /// What came.
        got: u64,
    },
    /// It has received what was not sent.
    #[error("the other end says that it has received what was never sent")]
    Acknowledged,
    /// It sends more than it may.
    #[error("the other end sent more frames of class {0:?} than it has credit for")]
    Credit(Class),
    /// It takes credit back.
    #[error("the other end takes credit back")]
    CreditBack,
    /// Two requests cannot be told apart.
    #[error("the other end uses tag {0} for two requests at a time")]
    TagInUse(u64),
    /// A reply to nothing, or not the reply that the request has.
    #[error("the other end sent a reply, tag {0}, that no request of this end has")]
    Reply(u64),
}

impl Violation {
    /// Its number in `Refuse` and `Close`.
    #[must_use]
    pub const fn code(&self) -> u32 {
        match self {
            Violation::NoLink => 1,
            Violation::Version => 2,
            Violation::Device => 3,
            Violation::Epoch { .. } => 4,
            Violation::Session => 5,
            Violation::Resume { .. } => 6,
            Violation::UnknownKind(_) => 7,
            Violation::Unexpected(_) => 8,
            Violation::Length { .. } => 9,
            Violation::Header => 10,
            Violation::Malformed(_) => 11,
            Violation::Gap { .. } => 12,
            Violation::Acknowledged => 13,
            Violation::Credit(_) => 14,
            Violation::CreditBack => 15,
            Violation::TagInUse(_) => 16,
            Violation::Reply(_) => 17,
        }
    }
}

/// Why a connection is of no use any more, while the link may go on over another.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum Lost {
    /// Nothing was heard for too long.
    #[error("the other end has been silent for too long")]
    Silent,
    /// The other end did not say who it is in time.
    #[error("the other end did not say in time who it is")]
    NoGreeting,
    /// The other end is not the one that this link is with.
    #[error(transparent)]
    Stranger(Violation),
}

/// How a link ended. Nothing goes over it any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum End {
    /// This end closed it.
    #[error("this end has closed the link")]
    Closed,
    /// The other end closed it, with a code of the programs' own, or a violation's.
    #[error("the other end has closed the link, code {0}")]
    PeerClosed(u32),
    /// The lender's end does not want this borrower, with the violation's code.
    #[error("the lender's end refuses this link, code {0}; borrow again")]
    Refused(u32),
    /// The other end is refused.
    #[error(transparent)]
    Violation(#[from] Violation),
    /// There was no connection for longer than a link may be without.
    #[error("there was no connection to the other end for too long; the lease is lost")]
    NoConnection,
}
