//! DMA by messages: the server asks the client to read or write its memory.

use super::commands::Item;
use super::{
    Errno, Header, Limits, Maps, Message, Outbox, Pending, ProtocolError, RequestError, Server,
    State,
};
use crate::pending::RequestId;
use crate::version::Negotiated;
use crate::wire::{ACCESS_SIZE, Command, FLAG_NO_REPLY, dma_access, u32_at, u64_at};

/// A request that waits for the client's reply.
#[derive(Clone, Copy, Debug)]
pub(super) enum Asked {
    Dma(DmaRequest),
    /// A command of the users' own.
    Other(Command),
}

impl Asked {
    fn command(&self) -> Command {
        match self {
            Asked::Dma(request) => request.command,
            Asked::Other(command) => *command,
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct DmaRequest {
    command: Command,
    address: u64,
    count: u32,
}

/// The way from a device to the client's memory, by messages.
pub struct Bus<'a> {
    pub(super) outbox: &'a mut Outbox,
    pub(super) requests: &'a mut Pending<Asked>,
    pub(super) maps: &'a Maps,
    pub(super) limits: &'a Limits,
    pub(super) negotiated: Option<Negotiated>,
}

impl Bus<'_> {
    /// Asks the client for `count` bytes at a DMA address. The answer comes as a `DmaDone` event (or
    /// to [`Device::dma_done`](super::Device::dma_done)).
    ///
    /// # Errors
    ///
    /// `NotMapped` if the client has not made the whole range readable; the limits.
    pub fn dma_read(&mut self, address: u64, count: u32) -> Result<RequestId, RequestError> {
        self.check(address, count as usize, false)?;
        let asked = Asked::Dma(DmaRequest { command: Command::DMA_READ, address, count });
        let (id, request) = self.requests.insert(asked);
        let payload = dma_access(address, u64::from(count));
        self.outbox.push(Header::command(id, Command::DMA_READ, 0), &[&payload]);
        Ok(request)
    }

    /// Asks the client to write `data` at a DMA address. The answer comes as a `DmaDone` event.
    ///
    /// # Errors
    ///
    /// `NotMapped` if the client has not made the whole range writable; the limits.
    pub fn dma_write(&mut self, address: u64, data: &[u8]) -> Result<RequestId, RequestError> {
        self.check(address, data.len(), true)?;
        let count = data.len() as u32;
        let asked = Asked::Dma(DmaRequest { command: Command::DMA_WRITE, address, count });
        let (id, request) = self.requests.insert(asked);
        let payload = dma_access(address, u64::from(count));
        self.outbox.push(Header::command(id, Command::DMA_WRITE, 0), &[&payload, data]);
        Ok(request)
    }

    /// Sends the client a command that the engines do not know. The answer comes as an `Answered` event
    /// (or to [`Device::answered`](super::Device::answered)); a client that does not know the command
    /// either says ENOTSUP.
    ///
    /// # Errors
    ///
    /// `Invalid` for a command that the engines know; the limits.
    pub fn ask(&mut self, command: Command, data: &[u8]) -> Result<RequestId, RequestError> {
        RequestError::unless_of_users(command)?;
        self.check_room(data.len())?;
        let (id, request) = self.requests.insert(Asked::Other(command));
        self.outbox.push(Header::command(id, command, 0), &[data]);
        Ok(request)
    }

    /// Sends the client a command that the engines do not know, and wants no answer.
    ///
    /// # Errors
    ///
    /// As for [`ask`](Bus::ask).
    pub fn notify(&mut self, command: Command, data: &[u8]) -> Result<(), RequestError> {
        RequestError::unless_of_users(command)?;
        self.check_queue(data.len())?;
        let mut header = Header::command(self.requests.unanswered(), command, 0);
        header.flags |= FLAG_NO_REPLY;
        self.outbox.push(header, &[data]);
        Ok(())
    }

    /// Drops the answer to a request when it comes. False if it has come already.
    pub fn forget(&mut self, request: RequestId) -> bool {
        self.requests.forget(request)
    }

    fn check(&self, address: u64, count: usize, write: bool) -> Result<(), RequestError> {
        self.check_room(count)?;
        if !self.maps.allow(address, count as u64, write) {
            return Err(RequestError::NotMapped { address, count: count as u64 });
        }
        Ok(())
    }

    /// Whether a request can be made that is answered.
    fn check_room(&self, count: usize) -> Result<(), RequestError> {
        self.check_queue(count)?;
        if self.requests.is_full() {
            return Err(RequestError::TooManyOutstanding { limit: self.requests.limit() });
        }
        Ok(())
    }

    /// Whether a message can be queued.
    fn check_queue(&self, count: usize) -> Result<(), RequestError> {
        let negotiated = self.negotiated.as_ref().ok_or(RequestError::NotReady)?;
        if count > negotiated.max_data_xfer_size as usize {
            return Err(RequestError::TooLarge { count, limit: negotiated.max_data_xfer_size });
        }
        if self.outbox.len() > self.limits.max_queued_bytes {
            return Err(RequestError::QueueFull { queued: self.outbox.len() });
        }
        Ok(())
    }
}

impl Server {
    /// The way to the client's memory, by messages.
    pub fn bus(&mut self) -> Bus<'_> {
        let negotiated = self.negotiated().copied();
        Bus {
            outbox: &mut self.outbox,
            requests: &mut self.requests,
            maps: &self.maps,
            limits: &self.limits,
            negotiated,
        }
    }

    /// Requests of the server that wait for the client's answer.
    #[must_use]
    pub fn awaited(&self) -> usize {
        self.requests.len()
    }

    pub(super) fn reply(&mut self, message: Message) -> Result<Option<Item>, ProtocolError> {
        let Header { id, command, .. } = message.header;
        match self.state {
            State::Ready(_) => {}
            // Whatever it answers is over.
            State::Revoked(_) => return Ok(None),
            _ => return Err(ProtocolError::NotNegotiated { command: command.0 }),
        }
        let unexpected = ProtocolError::UnexpectedReply { id, command: command.0 };
        let answered = self.requests.take(id).ok_or(unexpected)?;
        if answered.what.command() != command {
            return Err(unexpected);
        }
        if answered.forgotten {
            return Ok(None);
        }
        let request = answered.request;
        let errno = message.header.error_reply();
        let Asked::Dma(asked) = answered.what else {
            let result = errno.map_or(Ok(message.payload), Err);
            return Ok(Some(Item::Answered { request, result }));
        };
        let data = match errno {
            Some(errno) => Err(errno),
            None => self.check_reply(&asked, &message),
        };
        let start = message.payload.start + ACCESS_SIZE;
        let result = data.map(|count| start..start + count);
        let result = result.map(|range| if range.is_empty() { 0..0 } else { range });
        Ok(Some(Item::DmaDone { request, result }))
    }

    /// Bytes of data in a good reply. Some clients repeat the count of a write in four bytes.
    fn check_reply(&self, request: &DmaRequest, message: &Message) -> Result<usize, Errno> {
        let payload = self.inbox.bytes(message.payload.clone());
        let read = request.command == Command::DMA_READ;
        let fixed = if read { ACCESS_SIZE } else { 12 };
        if payload.len() < fixed || !message.fds.is_empty() {
            return Err(Errno::PROTO);
        }
        let count = match payload.len() {
            12..ACCESS_SIZE => u64::from(u32_at(payload, 8)),
            _ => u64_at(payload, 8),
        };
        let data = if read { request.count as usize } else { 0 };
        let right_size = !read || payload.len() == ACCESS_SIZE + data;
        if u64_at(payload, 0) != request.address || count != u64::from(request.count) || !right_size
        {
            return Err(Errno::PROTO);
        }
        Ok(data)
    }
}
