//! Cuts a byte stream with descriptors into whole messages.
//!
//! Owns the input buffer and the descriptors that came with it. A message may arrive in any number of
//! pieces, and one read may bring several. Descriptors are taken only once that is allowed, at most so
//! many with one message and so many in all; any beyond are closed at once, with all that are held.

use std::collections::VecDeque;
use std::ops::Range;
use std::os::fd::OwnedFd;

use crate::error::ProtocolError;
use crate::wire::{HEADER_SIZE, Header, TYPE_MASK, TYPE_REPLY, u32_at};

/// The free space that a read is given at least.
const READ_BYTES: usize = 4096;
/// The buffer at the start; it grows only for messages that need it.
const FIRST_BYTES: usize = 16 * 1024;
/// Descriptors of how many messages may wait in the buffer. A session that serves what it reads has
/// those of one message, and of the next that has begun.
const WAITING_MESSAGES_WITH_FDS: usize = 4;

/// One whole message. Its payload lies in the inbox until the next call of `next`.
pub(crate) struct Message {
    pub(crate) header: Header,
    pub(crate) payload: Range<usize>,
    pub(crate) fds: Vec<OwnedFd>,
}

/// What lies at the front of the inbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Front {
    /// No whole message.
    Nothing,
    /// A command, which may have to wait for room in the outbox.
    Command,
    /// A reply (or nonsense, which ends the connection): it needs no room.
    Reply,
}

/// Descriptors that came with one read.
struct Batch {
    /// Position in the stream of the last byte of that read.
    at: u64,
    fds: Vec<OwnedFd>,
}

pub(crate) struct Inbox {
    buffer: Vec<u8>,
    head: usize,
    tail: usize,
    /// Position of `head` in the stream.
    position: u64,
    batches: VecDeque<Batch>,
    fds_held: usize,
    max_message: u32,
    max_fds: usize,
}

impl Inbox {
    /// An inbox that takes no descriptors yet.
    pub(crate) fn new(max_message: u32) -> Inbox {
        Inbox {
            buffer: Vec::new(),
            head: 0,
            tail: 0,
            position: 0,
            batches: VecDeque::new(),
            fds_held: 0,
            max_message,
            max_fds: 0,
        }
    }

    /// Lets each message from now on bring so many descriptors.
    pub(crate) fn allow_fds(&mut self, max_fds: u32) {
        self.max_fds = max_fds as usize;
    }

    /// Closes every descriptor and gives the memory back: nothing is read any more.
    pub(crate) fn discard(&mut self) {
        let (max_message, position) = (self.max_message, self.position);
        *self = Inbox { position, ..Inbox::new(max_message) };
    }

    /// The bytes of a payload that `next` returned.
    pub(crate) fn bytes(&self, range: Range<usize>) -> &[u8] {
        &self.buffer[range]
    }

    /// Free space to read into: enough for the rest of a message that has begun.
    pub(crate) fn space(&mut self) -> &mut [u8] {
        let missing = self.missing().max(READ_BYTES);
        self.make_room(missing);
        &mut self.buffer[self.tail..]
    }

    /// Says that `count` bytes were read into the space, and that `fds` came with them.
    ///
    /// A kernel never joins data behind descriptors to the read that brings them, and a sender gives a
    /// message's descriptors with its first bytes: so they belong to the message in which the read
    /// ends.
    pub(crate) fn received(
        &mut self,
        count: usize,
        fds: Vec<OwnedFd>,
    ) -> Result<(), ProtocolError> {
        let count = count.min(self.buffer.len() - self.tail);
        self.tail += count;
        let (buffered, limit) = (self.tail - self.head, self.max_message as usize * 2);
        if buffered > limit {
            return Err(ProtocolError::InputOverrun { buffered, limit });
        }
        if fds.is_empty() || count == 0 {
            return Ok(());
        }
        if fds.len() > self.max_fds {
            let count = fds.len();
            return Err(ProtocolError::TooManyDescriptors { count, limit: self.max_fds });
        }
        let (held, limit) = (self.fds_held + fds.len(), self.max_fds * WAITING_MESSAGES_WITH_FDS);
        if held > limit {
            return Err(ProtocolError::TooManyDescriptors { count: held, limit });
        }
        self.fds_held = held;
        let at = self.position + (self.tail - self.head) as u64 - 1;
        self.batches.push_back(Batch { at, fds });
        Ok(())
    }

    /// Takes a copy of `bytes`.
    pub(crate) fn push(&mut self, bytes: &[u8], fds: Vec<OwnedFd>) -> Result<(), ProtocolError> {
        let buffered = self.tail - self.head + bytes.len();
        let limit = self.max_message as usize * 2;
        if buffered > limit {
            // Refused before room is made for it.
            return Err(ProtocolError::InputOverrun { buffered, limit });
        }
        self.make_room(bytes.len());
        self.buffer[self.tail..self.tail + bytes.len()].copy_from_slice(bytes);
        self.received(bytes.len(), fds)
    }

    /// The next whole message, if it is there. A command stays where it is unless `commands`.
    pub(crate) fn next(&mut self, commands: bool) -> Result<Option<Message>, ProtocolError> {
        let Some(header) = self.header()? else { return Ok(None) };
        let size = header.size as usize;
        if self.tail - self.head < size || !(commands || header.is_reply()) {
            return Ok(None);
        }
        let payload = self.head + HEADER_SIZE..self.head + size;
        self.head += size;
        self.position += size as u64;
        let fds = self.take_fds()?;
        Ok(Some(Message { header, payload, fds }))
    }

    /// Whether all that has come was taken.
    pub(crate) fn is_empty(&self) -> bool {
        self.head == self.tail
    }

    /// What `next` will give.
    pub(crate) fn front(&self) -> Front {
        match self.header() {
            Ok(Some(header)) if self.tail - self.head < header.size as usize => Front::Nothing,
            Ok(Some(header)) if !header.is_reply() => Front::Command,
            Ok(None) => Front::Nothing,
            // An error is reported whatever waits.
            Ok(Some(_)) | Err(_) => Front::Reply,
        }
    }

    /// The header at the front with its checks, if it is there.
    fn header(&self) -> Result<Option<Header>, ProtocolError> {
        let waiting = &self.buffer[self.head..self.tail];
        let Some(bytes) = waiting.first_chunk::<HEADER_SIZE>() else { return Ok(None) };
        let header = Header::decode(bytes);
        if (header.size as usize) < HEADER_SIZE {
            return Err(ProtocolError::ShortMessage { size: header.size });
        }
        if header.size > self.max_message {
            return Err(ProtocolError::LongMessage { size: header.size, limit: self.max_message });
        }
        let kind = header.flags & TYPE_MASK;
        if kind > TYPE_REPLY {
            return Err(ProtocolError::UnknownType { kind });
        }
        Ok(Some(header))
    }

    /// The header at the front whatever is wrong with it, so that the sender can be told.
    pub(crate) fn faulty_header(&self) -> Option<Header> {
        self.buffer[self.head..self.tail].first_chunk::<HEADER_SIZE>().map(Header::decode)
    }

    /// Bytes that are missing to complete the message at the front.
    fn missing(&self) -> usize {
        let waiting = self.tail - self.head;
        if waiting < HEADER_SIZE {
            return HEADER_SIZE - waiting;
        }
        let size = u32_at(&self.buffer, self.head + 4).min(self.max_message);
        (size as usize).saturating_sub(waiting)
    }

    fn make_room(&mut self, bytes: usize) {
        if self.head == self.tail {
            self.head = 0;
            self.tail = 0;
        }
        if self.buffer.len() - self.tail >= bytes {
            return;
        }
        self.buffer.copy_within(self.head..self.tail, 0);
        self.tail -= self.head;
        self.head = 0;
        let needed = self.tail + bytes;
        if self.buffer.len() < needed {
            self.buffer.resize(needed.max(FIRST_BYTES), 0);
        }
    }

    /// The descriptors whose read ended before `position`.
    fn take_fds(&mut self) -> Result<Vec<OwnedFd>, ProtocolError> {
        let mut fds = Vec::new();
        while self.batches.front().is_some_and(|batch| batch.at < self.position) {
            let Some(batch) = self.batches.pop_front() else { break };
            self.fds_held -= batch.fds.len();
            if fds.is_empty() {
                fds = batch.fds;
            } else {
                fds.extend(batch.fds);
            }
        }
        if fds.len() > self.max_fds {
            let count = fds.len();
            return Err(ProtocolError::TooManyDescriptors { count, limit: self.max_fds });
        }
        Ok(fds)
    }
}
