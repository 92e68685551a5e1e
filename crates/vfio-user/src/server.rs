//! The server's side of one connection: the device.
//!
//! Owns the byte stream in both directions, the description of the device, the table of DMA maps and
//! the requests that wait for an answer. Knows nothing of sockets, files or time.

mod commands;
mod dma;
mod drive;
mod event;
mod info;

use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use crate::device::DeviceInfo;
use crate::errno::Errno;
use crate::error::{ProtocolError, RequestError};
use crate::inbox::{Inbox, Message};
use crate::limits::Limits;
use crate::maps::{DmaMap, Maps};
use crate::outbox::{Outbox, Transmit};
use crate::pending::Pending;
use crate::version::Negotiated;
use crate::wire::{self, Header, MULTI_WRITE_SIZE};

pub use dma::Bus;
pub use drive::Device;
pub use event::{Event, MultiWrites, RegionAccess, Token, Write};

use dma::DmaRequest;
use event::Restore;

/// Message ids of a server's requests begin here, so that even a client that confuses the two
/// directions seldom takes one for its own.
const FIRST_MESSAGE_ID: u16 = 0x8000;

/// The server's engine for one connection.
///
/// ```text
/// bytes, descriptors -> space/received, receive -> poll -> Event -> complete… -> transmit/sent -> bytes, descriptors
/// ```
///
/// 1. Read into [`space`](Server::space) and say so with [`received`](Server::received).
/// 2. Take events with [`poll`](Server::poll) until there is none, and answer each token, at once or
///    later, in any order. Or give everything to a [`Device`] with [`serve`](Server::serve).
/// 3. Send what [`transmit`](Server::transmit) gives, and say how much with [`sent`](Server::sent).
///
/// VERSION and questions about the device are answered by the engine. Unknown commands are answered
/// with ENOTSUP.
pub struct Server {
    info: Arc<DeviceInfo>,
    limits: Limits,
    inbox: Inbox,
    outbox: Outbox,
    maps: Maps,
    state: State,
    /// Commands whose tokens are out.
    unanswered: u32,
    /// Bytes of the replies to them.
    reserved: usize,
    requests: Pending<DmaRequest>,
}

#[derive(Clone, Copy)]
enum State {
    Waiting,
    Refusing(Errno),
    Ready(Negotiated),
    Failed(ProtocolError),
}

impl Server {
    /// An engine that offers this device.
    ///
    /// # Errors
    ///
    /// `Invalid` if the description breaks a limit or contradicts itself.
    pub fn new(info: impl Into<Arc<DeviceInfo>>, limits: Limits) -> Result<Server, RequestError> {
        let info = info.into();
        info.check(&limits)?;
        Ok(Server::with_state(info, limits, State::Waiting))
    }

    /// An engine that answers VERSION with an error, for instance EBUSY to a second client, and then
    /// fails with [`ProtocolError::VersionRefused`].
    #[must_use]
    pub fn refusing(errno: Errno, limits: Limits) -> Server {
        Server::with_state(Arc::new(DeviceInfo::default()), limits, State::Refusing(errno))
    }

    fn with_state(info: Arc<DeviceInfo>, limits: Limits, state: State) -> Server {
        Server {
            info,
            limits,
            inbox: Inbox::new(limits.max_message_bytes(), limits.max_msg_fds),
            outbox: Outbox::default(),
            maps: Maps::default(),
            state,
            unanswered: 0,
            reserved: 0,
            requests: Pending::new(limits.max_outstanding, FIRST_MESSAGE_ID),
        }
    }

    /// The device offered.
    #[must_use]
    pub fn info(&self) -> &Arc<DeviceInfo> {
        &self.info
    }

    /// What was agreed, once it is.
    #[must_use]
    pub fn negotiated(&self) -> Option<&Negotiated> {
        match &self.state {
            State::Ready(negotiated) => Some(negotiated),
            _ => None,
        }
    }

    /// Free space to read input into, never empty.
    pub fn space(&mut self) -> &mut [u8] {
        self.inbox.space()
    }

    /// Says that `count` bytes were read into [`space`](Server::space) by one read, and that `fds`
    /// came with them.
    ///
    /// # Errors
    ///
    /// More descriptors than agreed; the connection has failed.
    pub fn received(&mut self, count: usize, fds: Vec<OwnedFd>) -> Result<(), ProtocolError> {
        self.failed()?;
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
        self.failed()?;
        let result = self.inbox.push(bytes, fds);
        result.map_err(|error| self.fail(error))
    }

    /// Whether it makes sense to read more. False while a whole message waits that may not be taken
    /// before tokens are answered or output is sent.
    #[must_use]
    pub fn wants_input(&self) -> bool {
        let blocked = self.is_full() && self.inbox.has_message();
        self.failed().is_ok() && !blocked
    }

    /// What to send next, if anything. It stays queued until [`sent`](Server::sent).
    #[must_use]
    pub fn transmit(&self) -> Option<Transmit<'_>> {
        self.outbox.transmit()
    }

    /// Says that the first `count` bytes of what [`transmit`](Server::transmit) gave were sent, with
    /// its descriptors.
    pub fn sent(&mut self, count: usize) {
        self.outbox.sent(count);
    }

    /// Bytes that wait to be sent.
    #[must_use]
    pub fn queued_bytes(&self) -> usize {
        self.outbox.len()
    }

    /// Commands taken by [`poll`](Server::poll) and not answered yet.
    #[must_use]
    pub fn unanswered(&self) -> u32 {
        self.unanswered
    }

    /// The next event, or none until there is more input.
    ///
    /// Answer its token with [`complete`](Server::complete) or
    /// [`complete_read`](Server::complete_read). Events come in the order of the client's commands.
    ///
    /// # Errors
    ///
    /// The client broke the protocol: send what is queued, close, and drop the engine.
    pub fn poll(&mut self) -> Result<Option<Event<'_>>, ProtocolError> {
        let item = self.take()?;
        Ok(item.map(|item| item.event(&self.inbox)))
    }

    /// Answers a command. A read is answered with zeros; use
    /// [`complete_read`](Server::complete_read) for data.
    pub fn complete(&mut self, token: Token, result: Result<(), Errno>) {
        if token.read().is_some() {
            return self.complete_read(token, |_| result);
        }
        self.unanswered = self.unanswered.saturating_sub(1);
        self.reserved = self.reserved.saturating_sub(token.reply_size());
        if result.is_err() {
            self.restore(&token);
        }
        if token.no_reply {
            return;
        }
        match result {
            Ok(()) => {
                let (bytes, length) = token.reply();
                let header = Header::reply(token.id, token.command, 0);
                self.outbox.push(header, &[&bytes[..length]]);
            }
            Err(errno) => {
                self.outbox.push(Header::error(token.id, token.command, errno), &[]);
            }
        }
    }

    /// Answers a read. `fill` writes the data (all of it; it starts as zeros) straight into the reply.
    ///
    /// A token of another command is answered with EINVAL and `fill` is not called.
    pub fn complete_read(
        &mut self,
        token: Token,
        fill: impl FnOnce(&mut [u8]) -> Result<(), Errno>,
    ) {
        let Some(access) = token.read() else {
            return self.complete(token, Err(Errno::INVAL));
        };
        self.unanswered = self.unanswered.saturating_sub(1);
        self.reserved = self.reserved.saturating_sub(token.reply_size());
        let fixed = wire::region_access(access.offset, access.region, access.count);
        self.outbox.push_filled(token.id, token.command, &fixed, access.count as usize, fill);
    }

    /// What a refused map or unmap changed is put back.
    fn restore(&mut self, token: &Token) {
        match &token.restore {
            Restore::Nothing => {}
            &Restore::Mapped { address, size } => {
                // It may be gone if the client unmapped everything meanwhile.
                let _ = self.maps.remove(address, size);
            }
            Restore::Unmapped(extents) => {
                for &(address, extent) in extents {
                    // The client may have mapped something else there meanwhile.
                    let _ = self.maps.insert(address, extent, u32::MAX);
                }
            }
        }
    }

    /// The client's DMA maps: address, bytes, readable, writable.
    pub fn maps(&self) -> impl Iterator<Item = (u64, u64, bool, bool)> + '_ {
        self.maps.iter().map(|(address, e)| (address, e.size, e.readable, e.writable))
    }

    /// Whether too much waits for the embedder to take another command.
    fn is_full(&self) -> bool {
        self.unanswered >= self.limits.max_outstanding
            || self.outbox.len() + self.reserved > self.limits.max_queued_bytes
    }

    fn failed(&self) -> Result<(), ProtocolError> {
        match self.state {
            State::Failed(error) => Err(error),
            _ => Ok(()),
        }
    }

    fn fail(&mut self, error: ProtocolError) -> ProtocolError {
        self.state = State::Failed(error);
        error
    }

    /// Tells the client why, if its header can be read and it waits for a reply.
    fn fail_on_header(&mut self, error: ProtocolError) -> ProtocolError {
        if let Some(header) = self.inbox.faulty_header() {
            if !header.is_reply() && !header.wants_no_reply() {
                let header = Header::error(header.id, header.command, Errno::MSGSIZE);
                self.outbox.push(header, &[]);
            }
        }
        self.fail(error)
    }
}
