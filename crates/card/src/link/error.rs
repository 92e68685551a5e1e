//! What can be wrong with a transfer, or with a frame.

use thiserror::Error;

use crate::interface::{LinkAddress, LinkDecodeError, LinkKind};

/// Sizes that make no end of a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum LinkConfigError {
    /// A payload that does not divide a page into units.
    #[error("a payload of {0} bytes; choose a power of two from 64 to 4096")]
    Payload(u32),
    /// A bound of zero, or beyond what frames can say.
    #[error("{field} is {value}; it must be {least} to {most}")]
    OutOfBounds {
        /// Which.
        field: &'static str,
        /// What it was.
        value: u32,
        /// The least it can be.
        least: u32,
        /// The most it can be.
        most: u32,
    },
    /// Marks that are not in order.
    #[error(
        "the buffer's marks must ascend and its room hold a page: low {low}, high {high}, room \
         {room}"
    )]
    Marks {
        /// Below it the sender may go on.
        low: u32,
        /// Above it the sender is paused.
        high: u32,
        /// Beyond it nothing is taken.
        room: u32,
    },
}

/// Why a transfer was not taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum AnnounceError {
    /// As many as there may be are open.
    #[error("{most} transfers are open, the most there may be; wait for one to end")]
    TooMany {
        /// The bound.
        most: u32,
    },
    /// Too many pages.
    #[error("{pages} pages in one transfer, the most is {most}; split it")]
    TooManyPages {
        /// Pages asked for.
        pages: u64,
        /// The bound.
        most: u32,
    },
    /// A run of nothing, or no run.
    #[error("the transfer has no page, or an empty run; leave it out")]
    Empty,
    /// Frames or bus pages that cannot be numbered.
    #[error("{count} pages from {first:#x} on end beyond the last page there can be")]
    BeyondLastPage {
        /// First of the run.
        first: u32,
        /// Pages of the run.
        count: u32,
    },
    /// A page that two pages of the transfer would go to.
    #[error("page {page:#x} is listed twice as a destination; every page needs its own")]
    Twice {
        /// Which.
        page: u32,
    },
    /// The number is in use, or was until lately.
    #[error(
        "transfer {transfer} with {peer} is open, or ended lately and frames of it may still come; \
         count transfers up"
    )]
    InUse {
        /// The transfer.
        transfer: u32,
        /// The other end.
        peer: LinkAddress,
    },
}

/// Why a frame did nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum LinkError {
    /// The bytes are no frame, or not those that were sent.
    #[error(transparent)]
    Damaged(#[from] LinkDecodeError),
    /// For another function.
    #[error("a frame for {to} came to {own}; look at the switch's table")]
    NotHere {
        /// Who it is for.
        to: LinkAddress,
        /// Who got it.
        own: LinkAddress,
    },
    /// A kind that this end does not take.
    #[error("a frame of kind {0:?} came to the end that sends such frames; hand it to the other")]
    WrongEnd(LinkKind),
    /// No such transfer, or not from there.
    #[error("no transfer {transfer} with {from} is open here; announce it before it is sent")]
    UnknownTransfer {
        /// The transfer.
        transfer: u32,
        /// Who sent the frame.
        from: LinkAddress,
    },
    /// Both ends mean different transfers.
    #[error(
        "transfer {transfer} has {announced} pages here and {said} at its sender; list it alike"
    )]
    PagesDiffer {
        /// The transfer.
        transfer: u32,
        /// Pages announced here.
        announced: u32,
        /// Pages that the frame says.
        said: u32,
    },
    /// Beyond the announced list.
    #[error("page {page} of transfer {transfer}, which has {pages}; nothing was written")]
    BeyondList {
        /// The transfer.
        transfer: u32,
        /// Index in the frame.
        page: u32,
        /// Pages of the transfer.
        pages: u32,
    },
    /// Not whole units inside one page.
    #[error(
        "{length} bytes at offset {offset} of page {page} of transfer {transfer}; frames hold whole \
         units of 64 bytes of one page"
    )]
    BadPiece {
        /// The transfer.
        transfer: u32,
        /// Index of the page.
        page: u32,
        /// Offset in the page.
        offset: u16,
        /// Bytes.
        length: u16,
    },
    /// Some of the bytes are here and some are not.
    #[error("a frame overlaps bytes of page {page} of transfer {transfer} that are here; dropped")]
    Overlap {
        /// The transfer.
        transfer: u32,
        /// Index of the page.
        page: u32,
    },
    /// It came before.
    #[error("a frame of page {page} of transfer {transfer} came twice; the second one is dropped")]
    Duplicate {
        /// The transfer.
        transfer: u32,
        /// Index of the page.
        page: u32,
    },
    /// No room: it will be asked for again.
    #[error("no room for {bytes} more bytes; the frame is dropped and will be asked for again")]
    Overrun {
        /// Bytes of the frame.
        bytes: u16,
    },
    /// A report that contradicts itself or the transfer.
    #[error("a report of transfer {transfer} makes no sense; it is dropped, ask again")]
    BadReport {
        /// The transfer.
        transfer: u32,
    },
}

/// Why a receive ended without all pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum ReceiveFailure {
    /// The sender gave up.
    #[error("the sender gave the transfer up; send it again under a new number")]
    Stopped,
    /// This end gave up.
    #[error("the transfer was given up here; announce it again under a new number")]
    GivenUp,
}

/// Why a send ended without the receiver's word that all is there.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum SendFailure {
    /// The receiver gave it up.
    #[error("the receiver gave the transfer up; announce and send it again under a new number")]
    Refused,
    /// Too many rounds.
    #[error("pages were missing after {rounds} rounds; look at the link, then send it again")]
    TooManyRounds {
        /// Rounds that were sent.
        rounds: u8,
    },
    /// A page could not be read.
    #[error("page {page} of the transfer could not be read; it was given up")]
    SourceFailed {
        /// Index of the page.
        page: u32,
    },
    /// This end gave up.
    #[error("the transfer was given up here; whether all arrived is not known")]
    GivenUp,
}
