//! The client's side of one connection: the user of a device.
//!
//! Owns the byte stream in both directions and the requests that wait for replies. Knows nothing of
//! sockets, files or time.

mod event;
mod replies;
mod requests;

use std::os::fd::OwnedFd;

use crate::errno::Errno;
use crate::error::{ProtocolError, RequestError};
use crate::inbox::{Front, Inbox};
use crate::limits::{Limits, OTHER_REPLY_BYTES};
use crate::outbox::{Outbox, Transmit};
use crate::pending::{Pending, RequestId};
use crate::version::{Capabilities, Negotiated};
use crate::wire::{self, Command, Header};

pub use event::{
    ClientEvent, DeviceSummary, DmaToken, IoFdInfo, OtherToken, RegionInfo, RegionIoFds, Reply,
};
pub use requests::MapRequest;

use replies::Expected;

/// The client's engine for one connection.
///
/// 1. Queue a request: [`negotiate`](Client::negotiate) first. Each gives a [`RequestId`]; several may
///    wait at a time.
/// 2. Send what [`transmit`](Client::transmit) gives, and say how much with [`sent`](Client::sent).
/// 3. Read into [`space`](Client::space), say so with [`received`](Client::received), and take events
///    with [`poll`](Client::poll) until there is none: replies, and the server's own DMA requests,
///    which are answered by their tokens.
pub struct Client {
    limits: Limits,
    inbox: Inbox,
    outbox: Outbox,
    requests: Pending<Expected>,
    negotiated: Option<Negotiated>,
    failed: Option<ProtocolError>,
    /// Requests of the server whose tokens are out.
    unanswered: u32,
    /// Bytes of the replies to them.
    reserved: usize,
    /// What the server offers beyond what the engine knows.
    peer: Capabilities,
}

impl Client {
    /// An engine for a new connection.
    #[must_use]
    pub fn new(limits: Limits) -> Client {
        Client {
            limits,
            inbox: Inbox::new(limits.max_message_bytes()),
            outbox: Outbox::default(),
            requests: Pending::new(limits.max_outstanding, 0),
            negotiated: None,
            failed: None,
            unanswered: 0,
            reserved: 0,
            peer: Capabilities::new(),
        }
    }

    /// Tells the engine that its stream carries no descriptors. Before the first request.
    pub fn without_descriptors(&mut self) {
        self.limits.max_msg_fds = 0;
    }

    /// The server's capabilities beyond those that the engine knows, once the version is agreed.
    #[must_use]
    pub fn peer_capabilities(&self) -> &Capabilities {
        &self.peer
    }

    /// What was agreed, once it is.
    #[must_use]
    pub fn negotiated(&self) -> Option<&Negotiated> {
        self.negotiated.as_ref()
    }

    /// Free space to read input into, never empty.
    pub fn space(&mut self) -> &mut [u8] {
        self.inbox.space()
    }

    /// Says that `count` bytes were read into [`space`](Client::space) by one read, and that `fds`
    /// came with them.
    ///
    /// # Errors
    ///
    /// More descriptors than agreed; the connection has failed.
    pub fn received(&mut self, count: usize, fds: Vec<OwnedFd>) -> Result<(), ProtocolError> {
        self.check_failed()?;
        let result = self.inbox.received(count, fds);
        result.map_err(|error| self.fail(error))
    }

    /// Takes input from the embedder's own buffer: the bytes and descriptors of one read.
    ///
    /// # Errors
    ///
    /// More descriptors than agreed, or more bytes than two messages unpolled; the connection has
    /// failed.
    pub fn receive(&mut self, bytes: &[u8], fds: Vec<OwnedFd>) -> Result<(), ProtocolError> {
        self.check_failed()?;
        let result = self.inbox.push(bytes, fds);
        result.map_err(|error| self.fail(error))
    }

    /// Whether it makes sense to read more. False while too much output waits to be sent, and while a
    /// request of the server waits in whole that may not be taken before tokens are answered.
    #[must_use]
    pub fn wants_input(&self) -> bool {
        let blocked = self.is_full() && self.inbox.front() == Front::Command;
        let unread = self.outbox.len() > self.limits.max_queued_bytes;
        self.failed.is_none() && !blocked && !unread
    }

    /// Whether [`poll`](Client::poll) has something to do with what has been read already.
    #[must_use]
    pub fn has_work(&self) -> bool {
        let takes = match self.inbox.front() {
            Front::Nothing => false,
            Front::Command => !self.is_full(),
            Front::Reply => true,
        };
        takes && self.failed.is_none()
    }

    /// What to send next, if anything. It stays queued until [`sent`](Client::sent).
    #[must_use]
    pub fn transmit(&self) -> Option<Transmit<'_>> {
        self.outbox.transmit()
    }

    /// Says that the first `count` bytes of what [`transmit`](Client::transmit) gave were sent, with
    /// its descriptors.
    pub fn sent(&mut self, count: usize) {
        self.outbox.sent(count);
    }

    /// Bytes that wait to be sent.
    #[must_use]
    pub fn queued_bytes(&self) -> usize {
        self.outbox.len()
    }

    /// Requests that wait for a reply.
    #[must_use]
    pub fn awaited(&self) -> usize {
        self.requests.len()
    }

    /// Whether a request waits whose reply may bring descriptors.
    #[must_use]
    pub fn expects_fds(&self) -> bool {
        self.requests.any(Expected::brings_fds)
    }

    /// Drops the reply to a request when it comes. False if it has come already.
    pub fn forget(&mut self, request: RequestId) -> bool {
        self.requests.forget(request)
    }

    /// The next event, or none until there is more input.
    ///
    /// # Errors
    ///
    /// The server broke the protocol: close, and drop the engine.
    pub fn poll(&mut self) -> Result<Option<ClientEvent<'_>>, ProtocolError> {
        let item = self.take()?;
        Ok(item.map(|item| item.event(&self.inbox)))
    }

    /// Answers a DMA read with data that `fill` writes (all of it; it starts as zeros), or a DMA
    /// write, where `fill` gets nothing to write.
    pub fn complete(&mut self, token: DmaToken, fill: impl FnOnce(&mut [u8]) -> Result<(), Errno>) {
        self.unanswered = self.unanswered.saturating_sub(1);
        self.reserved = self.reserved.saturating_sub(token.reply_size());
        let fixed = wire::dma_access(token.address, u64::from(token.count));
        let data = if token.command == Command::DMA_READ { token.count as usize } else { 0 };
        let start = self.outbox.len();
        self.outbox.push_filled(token.id, token.command, &fixed, data, fill);
        if token.no_reply {
            self.outbox.take_back(start);
        }
    }

    /// Answers a command of the users' own: at most 4096 bytes (more is answered with EMSGSIZE), or an
    /// error; ENOTSUP for a command that the user does not know.
    pub fn complete_other(&mut self, token: OtherToken, result: Result<&[u8], Errno>) {
        self.unanswered = self.unanswered.saturating_sub(1);
        self.reserved = self.reserved.saturating_sub(OtherToken::REPLY_SIZE);
        if token.no_reply {
            return;
        }
        let result = result.and_then(|data| {
            if data.len() > OTHER_REPLY_BYTES { Err(Errno::MSGSIZE) } else { Ok(data) }
        });
        match result {
            Ok(data) => self.outbox.push(Header::reply(token.id, token.command, 0), &[data]),
            Err(errno) => {
                self.outbox.push(Header::error(token.id, token.command, errno), &[]);
            }
        }
    }

    /// Whether too much waits for the embedder to take another message.
    fn is_full(&self) -> bool {
        self.unanswered >= self.limits.max_outstanding
            || self.outbox.len() + self.reserved > self.limits.max_queued_bytes
    }

    fn check_failed(&self) -> Result<(), ProtocolError> {
        self.failed.map_or(Ok(()), Err)
    }

    fn fail(&mut self, error: ProtocolError) -> ProtocolError {
        self.failed = Some(error);
        self.inbox.discard();
        error
    }
}
