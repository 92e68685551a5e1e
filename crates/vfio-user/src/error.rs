//! What can go wrong on a connection, and with one request.

use crate::errno::Errno;
use crate::wire::Command;

/// The other side broke the protocol in a way after which the byte stream means nothing.
///
/// The engine that reports it takes no more input and gives the same error on every call. Send what
/// is still queued (it may hold an error reply), then close the socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProtocolError {
    /// A header announces a message shorter than a header.
    #[error("the other side sent a header that announces {size} bytes; a message has at least 16")]
    ShortMessage {
        /// Bytes announced.
        size: u32,
    },
    /// A header announces more than the limit.
    #[error("the other side announces a message of {size} bytes; the limit here is {limit}")]
    LongMessage {
        /// Bytes announced.
        size: u32,
        /// Bytes allowed.
        limit: u32,
    },
    /// The type in the flags is neither command nor reply.
    #[error("the other side sent a message of type {kind}; only command (0) and reply (1) exist")]
    UnknownType {
        /// The type bits.
        kind: u32,
    },
    /// More descriptors came than was agreed.
    #[error("the other side sent {count} descriptors with a message; the limit here is {limit}")]
    TooManyDescriptors {
        /// Descriptors received.
        count: usize,
        /// Descriptors allowed.
        limit: usize,
    },
    /// The embedder gave more bytes than `wants_input` allows.
    #[error("{buffered} bytes of input wait unread, more than the limit of {limit}; poll first")]
    InputOverrun {
        /// Bytes that wait.
        buffered: usize,
        /// Bytes allowed.
        limit: usize,
    },
    /// A command came before VERSION.
    #[error("the client sent command {command} before VERSION")]
    NotNegotiated {
        /// The command's number.
        command: u16,
    },
    /// VERSION proposes what this side cannot accept, or is not readable.
    #[error("VERSION was refused: {reason}")]
    VersionRefused {
        /// Why.
        reason: &'static str,
        /// What the client was told.
        errno: Errno,
    },
    /// A reply came that answers nothing.
    #[error("the other side sent a reply with id {id} to command {command}, which was not asked")]
    UnexpectedReply {
        /// The message id in it.
        id: u16,
        /// The command in it.
        command: u16,
    },
}

/// A request could not be queued. Nothing was sent; the connection is fine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    /// VERSION has not been answered yet.
    #[error("the version is not negotiated yet; wait for the Negotiated event")]
    NotReady,
    /// More bytes than may be moved by one message.
    #[error("{count} bytes in one message; at most {limit} were agreed, split the transfer")]
    TooLarge {
        /// Bytes asked for.
        count: usize,
        /// Bytes allowed.
        limit: u32,
    },
    /// Too many requests wait for their replies.
    #[error("{limit} requests already wait for a reply; take replies first")]
    TooManyOutstanding {
        /// How many may wait.
        limit: u32,
    },
    /// Too much output waits to be sent.
    #[error("{queued} bytes of output already wait to be sent; send them first")]
    QueueFull {
        /// Bytes that wait.
        queued: usize,
    },
    /// The other side takes fewer descriptors in one message.
    #[error("{count} descriptors in one message; the other side takes {limit}, split the request")]
    TooManyDescriptors {
        /// Descriptors given.
        count: usize,
        /// Descriptors allowed.
        limit: u32,
    },
    /// The client has not mapped this range with these rights.
    #[error("the client has not mapped {count} bytes at {address:#x} for this access")]
    NotMapped {
        /// DMA address.
        address: u64,
        /// Bytes.
        count: u64,
    },
    /// The other side did not agree to this command.
    #[error("the server did not agree to {what}")]
    NotAgreed {
        /// The capability.
        what: &'static str,
    },
    /// The arguments make no valid message.
    #[error("{reason}")]
    Invalid {
        /// What is wrong with them.
        reason: &'static str,
    },
    /// The engine failed earlier and takes no more requests.
    #[error("the connection failed: {0}")]
    Failed(#[from] ProtocolError),
}

impl RequestError {
    /// Refuses a command that the engines know.
    pub(crate) fn unless_of_users(command: Command) -> Result<(), RequestError> {
        if command.is_spoken() {
            let reason = "the engines know this command; a user's own has another number";
            return Err(RequestError::Invalid { reason });
        }
        Ok(())
    }
}
