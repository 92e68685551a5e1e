//! The server's side of one connection: the device.
//!
//! Owns the byte stream in both directions, the description of the device, the table of DMA maps and
//! the requests that wait for an answer. Knows nothing of sockets, files or time.

mod commands;
mod dma;
mod drive;
mod event;
mod feature;
mod info;
mod open;

use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use crate::device::DeviceInfo;
use crate::errno::Errno;
use crate::error::{ProtocolError, RequestError};
use crate::inbox::{Front, Inbox, Message};
use crate::limits::{Limits, OTHER_REPLY_BYTES};
use crate::maps::{DmaMap, Maps};
use crate::outbox::{Outbox, SharedFd, Transmit};
use crate::pending::Pending;
use crate::version::{Capabilities, Negotiated};
use crate::wire::{self, Header, MULTI_WRITE_SIZE};

pub use dma::Bus;
pub use drive::{Device, OtherReply};
pub use event::{Event, MultiWrites, RegionAccess, Token, Write};

use commands::Item;
use dma::Asked;
use event::Restore;
use open::Open;

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
/// VERSION and questions about the device are answered by the engine. Commands that it does not know
/// are events as well: what they mean is between the two users of the connection.
pub struct Server {
    info: Arc<DeviceInfo>,
    limits: Limits,
    inbox: Inbox,
    outbox: Outbox,
    maps: Maps,
    state: State,
    /// Commands whose tokens are out.
    open: Open,
    requests: Pending<Asked>,
    /// What the client offers beyond what the engine knows.
    peer: Capabilities,
    choose: Option<Box<Choose>>,
}

/// Sees what a client offers, and says what this side offers or why it refuses.
type Choose = dyn FnMut(&Capabilities) -> Result<Capabilities, Errno> + Send;

#[derive(Clone, Copy)]
enum State {
    Waiting,
    Refusing(Errno),
    Ready(Negotiated),
    Revoked(Errno),
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
            inbox: Inbox::new(limits.max_message_bytes()),
            outbox: Outbox::default(),
            maps: Maps::default(),
            state,
            open: Open::default(),
            requests: Pending::new(limits.max_outstanding, FIRST_MESSAGE_ID),
            peer: Capabilities::new(),
            choose: None,
        }
    }

    /// The engine with capabilities of its user's in VERSION. `choose` sees those of the client that the
    /// engine does not know, and gives this side's, which by the specification are among them; or an
    /// error, which refuses the client.
    #[must_use]
    pub fn with_capabilities(
        mut self,
        choose: impl FnMut(&Capabilities) -> Result<Capabilities, Errno> + Send + 'static,
    ) -> Server {
        self.choose = Some(Box::new(choose));
        self
    }

    /// Tells the engine that its stream carries no descriptors. Before any input.
    pub fn without_descriptors(&mut self) {
        self.limits.max_msg_fds = 0;
    }

    /// The client's capabilities beyond those that the engine knows, once VERSION has come.
    #[must_use]
    pub fn peer_capabilities(&self) -> &Capabilities {
        &self.peer
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

    /// Whether it makes sense to read more. False while too much output waits to be sent, which is how
    /// a client that does not read is held back, and while a command waits in whole that may not be
    /// taken before tokens are answered.
    #[must_use]
    pub fn wants_input(&self) -> bool {
        let blocked = self.is_full() && self.inbox.front() == Front::Command;
        let unread = self.outbox.len() > self.limits.max_queued_bytes;
        self.failed().is_ok() && !blocked && !unread
    }

    /// Whether [`poll`](Server::poll) has something to do with what has been read already.
    #[must_use]
    pub fn has_work(&self) -> bool {
        let takes = match self.inbox.front() {
            Front::Nothing => false,
            Front::Command => !self.is_full(),
            Front::Reply => true,
        };
        takes && self.failed().is_ok()
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
        self.open.len()
    }

    /// The next event, or none until there is more input.
    ///
    /// Answer its token with [`complete`](Server::complete), [`complete_read`](Server::complete_read) or
    /// [`complete_with`](Server::complete_with). Events come in the order of the client's commands.
    ///
    /// # Errors
    ///
    /// The client broke the protocol: send what is queued, close, and drop the engine.
    pub fn poll(&mut self) -> Result<Option<Event<'_>>, ProtocolError> {
        let mut item = self.take()?;
        if let Some(token) = item.as_mut().and_then(Item::token) {
            self.open.insert(token);
        }
        Ok(item.map(|item| item.event(&self.inbox)))
    }

    /// Answers a command. A read is answered with zeros; use
    /// [`complete_read`](Server::complete_read) for data.
    pub fn complete(&mut self, token: Token, result: Result<(), Errno>) {
        if token.read().is_some() {
            return self.complete_read(token, |_| result);
        }
        if !self.settle(&token) {
            return;
        }
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
                self.outbox.push(header, &[&bytes[..length], token.echo()]);
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
        if !self.settle(&token) {
            return;
        }
        let fixed = wire::region_access(access.offset, access.region, access.count);
        self.outbox.push_filled(token.id, token.command, &fixed, access.count as usize, fill);
    }

    /// Answers a command of the users' own, or a question about a feature, with data and descriptors.
    /// More data than the client has room for, or more than 4096 bytes, is answered with EMSGSIZE; more
    /// descriptors than it takes with ENOSPC; any other command with EINVAL.
    pub fn complete_with(&mut self, token: Token, data: &[u8], fds: Vec<SharedFd>) {
        let room = token.room();
        let takes = self.negotiated().map_or(0, |negotiated| negotiated.peer_max_msg_fds);
        let errno = match room {
            None => Some(Errno::INVAL),
            Some(room) if data.len() > room => Some(Errno::MSGSIZE),
            Some(_) if fds.len() > takes as usize => Some(Errno::NOSPC),
            Some(_) => None,
        };
        if let Some(errno) = errno {
            return self.complete(token, Err(errno));
        }
        if self.settle(&token) && !token.no_reply {
            let (fixed, length) = token.reply_to_get(data.len());
            let header = Header::reply(token.id, token.command, 0);
            self.outbox.push_with_fds(header, &[&fixed[..length], data], fds);
        }
    }

    /// Takes the client's access away: every command that is open is answered with `errno` now, and
    /// every one that comes from now on; the device sees none of them. Answers to tokens that are out
    /// are dropped. Send what is queued, then close.
    ///
    /// Before the version is agreed, the client's VERSION is refused with `errno`.
    pub fn revoke(&mut self, errno: Errno) {
        match self.state {
            State::Failed(_) => return,
            State::Waiting | State::Refusing(_) => self.state = State::Refusing(errno),
            State::Ready(_) | State::Revoked(_) => self.state = State::Revoked(errno),
        }
        for header in self.open.drain(errno) {
            self.outbox.push(header, &[]);
        }
        self.maps.clear();
        self.requests.clear();
    }

    /// Whether [`revoke`](Server::revoke) was called.
    #[must_use]
    pub fn is_revoked(&self) -> bool {
        matches!(self.state, State::Revoked(_) | State::Refusing(_))
    }

    /// Takes a token back; `false` if its command was answered when the client was revoked.
    #[inline]
    fn settle(&mut self, token: &Token) -> bool {
        token.serial.is_none_or(|serial| self.open.remove(serial))
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
        self.open.len() >= self.limits.max_outstanding
            || self.outbox.len() + self.open.reply_bytes() > self.limits.max_queued_bytes
    }

    fn failed(&self) -> Result<(), ProtocolError> {
        match self.state {
            State::Failed(error) => Err(error),
            _ => Ok(()),
        }
    }

    /// Descriptors that came and were not taken are closed at once.
    fn fail(&mut self, error: ProtocolError) -> ProtocolError {
        self.state = State::Failed(error);
        self.inbox.discard();
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
