//! Output that waits to be sent: bytes, and the descriptors that go with some of them.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use crate::errno::Errno;
use crate::wire::{Command, HEADER_SIZE, Header};

/// A descriptor that is kept open until it is sent, and may be sent several times.
pub type SharedFd = Arc<OwnedFd>;

/// What to hand to one `sendmsg`: bytes, and the descriptors that go with the first of them.
#[derive(Clone, Copy, Debug)]
pub struct Transmit<'a> {
    /// One or more messages, or the rest of one.
    pub bytes: &'a [u8],
    /// Descriptors of the first message in `bytes`, which then holds no other message.
    pub fds: &'a [SharedFd],
}

/// A message with descriptors: it is sent alone, so that the receiver can tell whose they are.
struct Mark {
    start: usize,
    end: usize,
    fds: Vec<SharedFd>,
}

#[derive(Default)]
pub(crate) struct Outbox {
    bytes: Vec<u8>,
    head: usize,
    marks: VecDeque<Mark>,
}

/// Sent bytes are cut off the front of the queue when they are more than this.
const COMPACT_BYTES: usize = 64 * 1024;
/// An idle queue keeps at most this much memory.
const KEEP_BYTES: usize = 2 << 20;

impl Outbox {
    /// Bytes that wait.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len() - self.head
    }

    /// Queues a message. `header.size` is set here.
    pub(crate) fn push(&mut self, mut header: Header, parts: &[&[u8]]) {
        header.size = (HEADER_SIZE + parts.iter().map(|part| part.len()).sum::<usize>()) as u32;
        self.bytes.extend_from_slice(&header.encode());
        for part in parts {
            self.bytes.extend_from_slice(part);
        }
    }

    /// Queues a message with descriptors.
    pub(crate) fn push_with_fds(&mut self, header: Header, parts: &[&[u8]], fds: Vec<SharedFd>) {
        let start = self.bytes.len();
        self.push(header, parts);
        if !fds.is_empty() {
            self.marks.push_back(Mark { start, end: self.bytes.len(), fds });
        }
    }

    /// Queues a reply whose last `count` bytes `fill` writes, or an error reply if it fails.
    pub(crate) fn push_filled(
        &mut self,
        id: u16,
        command: Command,
        fixed: &[u8],
        count: usize,
        fill: impl FnOnce(&mut [u8]) -> Result<(), Errno>,
    ) {
        let start = self.bytes.len();
        self.push(Header::reply(id, command, 0), &[fixed]);
        let data = self.bytes.len();
        self.bytes.resize(data + count, 0);
        match fill(&mut self.bytes[data..]) {
            Ok(()) => {
                let size = (self.bytes.len() - start) as u32;
                self.bytes[start + 4..start + 8].copy_from_slice(&size.to_le_bytes());
            }
            Err(errno) => {
                self.bytes.truncate(start);
                self.push(Header::error(id, command, errno), &[]);
            }
        }
    }

    /// Takes back what was queued last, so that `length` bytes wait as before.
    pub(crate) fn take_back(&mut self, length: usize) {
        self.bytes.truncate(self.head + length);
    }

    /// What to send next.
    pub(crate) fn transmit(&self) -> Option<Transmit<'_>> {
        if self.len() == 0 {
            return None;
        }
        let (end, fds) = match self.marks.front() {
            Some(mark) if mark.start == self.head => (mark.end, mark.fds.as_slice()),
            Some(mark) => (mark.start, &[][..]),
            None => (self.bytes.len(), &[][..]),
        };
        Some(Transmit { bytes: &self.bytes[self.head..end], fds })
    }

    /// Says that `count` bytes of the last `transmit` were sent.
    pub(crate) fn sent(&mut self, count: usize) {
        let count = count.min(self.len());
        if count == 0 {
            return;
        }
        // The descriptors went with the first byte.
        if self.marks.front().is_some_and(|mark| mark.start == self.head) {
            self.marks.pop_front();
        }
        self.head += count;
        if self.head == self.bytes.len() {
            self.head = 0;
            self.bytes.clear();
            self.bytes.shrink_to(KEEP_BYTES);
        } else if self.head > COMPACT_BYTES && self.head > self.bytes.len() / 2 {
            self.compact();
        }
    }

    fn compact(&mut self) {
        self.bytes.drain(..self.head);
        for mark in &mut self.marks {
            mark.start -= self.head;
            mark.end -= self.head;
        }
        self.head = 0;
    }
}
