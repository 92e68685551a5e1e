//! The link: pages from card to card, over a wire that may lose, repeat, reorder and damage frames.
//!
//! A transfer is announced where it goes ([`Receiver::announce`]: its number, who sends it, where
//! each of its pages goes) and then sent ([`Sender::send`]). The receiver takes only bytes of
//! announced transfers, from the function they were announced for, inside the announced list, and
//! each byte once; it tells the sender when every page is whole and stored. Pages that did not
//! arrive are asked for again, a bounded number of rounds.
//!
//! No thread, no clock, no I/O: the embedder carries frames ([`Sender::poll_frame`],
//! [`Receiver::poll_frame`], `handle_frame`), reads and stores pages, tells how much time has passed
//! while a sender is paused ([`Sender::elapsed`]), asks again where nothing is heard
//! ([`Sender::nudge`]) and decides when to give up (`give_up`). The layout of frames is
//! [`crate::interface::LinkHeader`].

mod arrived;
mod counters;
mod error;
mod page_list;
mod receiver;
mod sender;

#[cfg(test)]
mod hostile_wire;
#[cfg(test)]
mod pair_tests;

pub use counters::{ReceiverCounters, SenderCounters};
pub use error::{AnnounceError, LinkConfigError, LinkError, ReceiveFailure, SendFailure};
pub use page_list::{PageRun, PagesRead, ReadFailed};
pub use receiver::{Delivered, ReceiveEnded, Received, Receiver, ReceiverConfig};
pub use sender::{SendEnded, Sender, SenderConfig};

use crate::interface::{
    LINK_HEADER_BYTES, LINK_PAYLOAD_BYTES_MAX, LinkAddress, LinkHeader, LinkKind,
};

/// Bytes that hold any frame.
pub const LINK_FRAME_BYTES_MAX: usize = LINK_HEADER_BYTES + LINK_PAYLOAD_BYTES_MAX;

/// A frame to be carried: the first `bytes` bytes of the buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Outgoing {
    /// Where it goes.
    pub to: LinkAddress,
    /// Its length.
    pub bytes: usize,
}

/// Room for one frame.
pub type FrameBuffer = [u8; LINK_FRAME_BYTES_MAX];

/// A header that says nothing yet but what the frame is and between whom.
fn blank(kind: LinkKind, from: LinkAddress, to: LinkAddress) -> LinkHeader {
    LinkHeader {
        kind,
        last: false,
        round: 0,
        transfer: 0,
        from,
        to,
        length: 0,
        argument: 0,
        page: 0,
        sequence: 0,
        pages: 0,
    }
}

/// Writes a header in front of a payload that is in the frame already.
fn put(header: LinkHeader, frame: &mut FrameBuffer) -> Outgoing {
    let bytes = LINK_HEADER_BYTES + usize::from(header.length);
    let (head, payload) = frame.split_at_mut(LINK_HEADER_BYTES);
    head.copy_from_slice(&header.to_bytes(&payload[..usize::from(header.length)]));
    Outgoing { to: header.to, bytes }
}
