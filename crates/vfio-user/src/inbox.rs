//! Cuts a byte stream with descriptors into whole messages.
//!
//! Owns the input buffer and the descriptors that came with it. A message may arrive in any number of
//! pieces, and one read may bring several.

use std::collections::VecDeque;
use std::ops::Range;
use std::os::fd::OwnedFd;

use crate::error::ProtocolError;
use crate::wire::{HEADER_SIZE, Header, TYPE_MASK, TYPE_REPLY, u32_at};

/// The free space that a read is given at least.
const READ_BYTES: usize = 4096;
/// The buffer at the start; it grows only for messages that need it.
const FIRST_BYTES: usize = 16 * 1024;
/// Descriptors of how many messages may wait in the buffer.
const WAITING_MESSAGES_WITH_FDS: usize = 16;

/// One whole message. Its payload lies in the inbox until the next call of `next`.
pub(crate) struct Message {
    pub(crate) header: Header,
    pub(crate) payload: Range<usize>,
    pub(crate) fds: Vec<OwnedFd>,
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
    pub(crate) fn new(max_message: u32, max_fds: u32) -> Inbox {
        Inbox {
            buffer: Vec::new(),
            head: 0,
            tail: 0,
            position: 0,
            batches: VecDeque::new(),
            fds_held: 0,
            max_message,
            max_fds: max_fds as usize,
        }
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
        self.fds_held += fds.len();
        let limit = self.max_fds * WAITING_MESSAGES_WITH_FDS;
        if fds.len() > self.max_fds {
            let count = fds.len();
            return Err(ProtocolError::TooManyDescriptors { count, limit: self.max_fds });
        }
        if self.fds_held > limit {
            return Err(ProtocolError::TooManyDescriptors { count: self.fds_held, limit });
        }
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

    /// The next whole message, if it is there.
    pub(crate) fn next(&mut self) -> Result<Option<Message>, ProtocolError> {
        let Some(header) = self.header()? else { return Ok(None) };
        let size = header.size as usize;
        if self.tail - self.head < size {
            return Ok(None);
        }
        let payload = self.head + HEADER_SIZE..self.head + size;
        self.head += size;
        self.position += size as u64;
        let fds = self.take_fds()?;
        Ok(Some(Message { header, payload, fds }))
    }

    /// Whether a whole message waits (or an error that `next` will report).
    pub(crate) fn has_message(&self) -> bool {
        match self.header() {
            Ok(Some(header)) => self.tail - self.head >= header.size as usize,
            Ok(None) => false,
            Err(_) => true,
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
