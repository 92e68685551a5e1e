//! What waits to be sent over a link, and what has come and is not understood yet.

use std::io;
use std::ops::Range;

use farside_vfio_user::Transmit;
use farside_vfio_user::unix::Stream;

use super::wire::{DATA, MESSAGE_MAX, Message, PUT, WireError};

/// Messages that wait to be sent.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    /// Room, of which all has been written once: it is not cleared for every message.
    bytes: Vec<u8>,
    /// What of it waits.
    waiting: Range<usize>,
    /// One message, before it is put there.
    message: Vec<u8>,
}

impl Outbox {
    /// Adds a message.
    pub(crate) fn push(&mut self, message: &Message<'_>) {
        let mut bytes = std::mem::take(&mut self.message);
        bytes.clear();
        message.encode(&mut bytes);
        self.room(bytes.len()).copy_from_slice(&bytes);
        self.waiting.end += bytes.len();
        self.message = bytes;
    }

    /// Adds a message that carries `bytes` bytes of memory, which `fill` writes; if it cannot, there is no
    /// message.
    pub(crate) fn push_bulk(
        &mut self,
        head: &Bulk,
        bytes: usize,
        fill: impl FnOnce(&mut [u8]) -> Option<()>,
    ) -> Option<()> {
        let (kind, number) = match head {
            Bulk::Put { offset } => (PUT, &offset.to_le_bytes()[..]),
            Bulk::Data { id } => (DATA, &id.to_le_bytes()[..]),
        };
        let length = 1 + number.len() + bytes;
        let room = self.room(4 + length);
        room[..4].copy_from_slice(&(length as u32).to_le_bytes());
        room[4] = kind;
        room[5..5 + number.len()].copy_from_slice(number);
        fill(&mut room[5 + number.len()..])?;
        self.waiting.end += 4 + length;
        Some(())
    }

    /// So many bytes behind those that wait.
    fn room(&mut self, bytes: usize) -> &mut [u8] {
        if self.waiting.is_empty() {
            self.waiting = 0..0;
        } else if self.waiting.end + bytes > self.bytes.len() {
            self.bytes.copy_within(self.waiting.clone(), 0);
            self.waiting = 0..self.waiting.len();
        }
        let end = self.waiting.end + bytes;
        if end > self.bytes.len() {
            self.bytes.resize(end, 0);
        }
        &mut self.bytes[self.waiting.end..end]
    }

    /// Bytes that were not sent.
    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Sends what the stream takes now.
    ///
    /// # Errors
    /// The stream failed, or has ended.
    pub(crate) fn flush(&mut self, stream: &mut dyn Stream) -> io::Result<()> {
        while !self.waiting.is_empty() {
            let transmit = Transmit { bytes: &self.bytes[self.waiting.clone()], fds: &[] };
            match stream.send(transmit) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => self.waiting.start += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// What a message with card memory begins with.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Bulk {
    /// [`Message::Put`].
    Put { offset: u64 },
    /// [`Message::Data`].
    Data { id: u32 },
}

/// Bytes that have come, of which messages are made.
#[derive(Debug)]
pub(crate) struct Inbox {
    bytes: Vec<u8>,
    /// Those of them that wait.
    waiting: Range<usize>,
}

/// Bytes that one read is given at least.
const READ_BYTES: usize = 256 << 10;

impl Default for Inbox {
    fn default() -> Inbox {
        Inbox { bytes: vec![0; 4 + MESSAGE_MAX + READ_BYTES], waiting: 0..0 }
    }
}

impl Inbox {
    /// Lets `read` add bytes; how many it says that it has.
    pub(crate) fn fill<E>(
        &mut self,
        read: impl FnOnce(&mut [u8]) -> Result<usize, E>,
    ) -> Result<usize, E> {
        if self.bytes.len() - self.waiting.end < READ_BYTES || self.waiting.is_empty() {
            // Less than a message waits, so there is room in front of it.
            self.bytes.copy_within(self.waiting.clone(), 0);
            self.waiting = 0..self.waiting.len();
        }
        let space = &mut self.bytes[self.waiting.end..];
        let most = space.len();
        let count = read(space)?.min(most);
        self.waiting.end += count;
        Ok(count)
    }

    /// The next message that has come whole. To be asked for until there is none, before more is read.
    ///
    /// # Errors
    /// [`WireError`]; nothing that follows can be understood.
    pub(crate) fn next(&mut self) -> Result<Option<Message<'_>>, WireError> {
        let Some(length) = self.bytes[self.waiting.clone()].first_chunk::<4>() else {
            return Ok(None);
        };
        let length = u32::from_le_bytes(*length);
        if length as usize > MESSAGE_MAX {
            return Err(WireError::TooLong(length));
        }
        let start = self.waiting.start + 4;
        let end = start + length as usize;
        if end > self.waiting.end {
            return Ok(None);
        }
        self.waiting.start = end;
        Message::decode(&self.bytes[start..end]).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::super::wire::tests::examples;
    use super::*;

    #[test]
    fn messages_read_back_however_they_are_cut() {
        let all = examples().concat();
        for step in [1, 7, 4096, all.len()] {
            let (mut inbox, mut back) = (Inbox::default(), Vec::new());
            for part in all.chunks(step) {
                let filled: Result<usize, ()> = inbox.fill(|space| {
                    space[..part.len()].copy_from_slice(part);
                    Ok(part.len())
                });
                assert_eq!(filled, Ok(part.len()));
                while let Some(message) = inbox.next().unwrap() {
                    message.encode(&mut back);
                }
            }
            assert!(back == all, "cut into {step}");
        }
    }

    #[test]
    fn messages_that_are_too_long_or_cut_off_are_errors() {
        let mut inbox = Inbox::default();
        let put = |inbox: &mut Inbox, bytes: &[u8]| {
            let filled: Result<usize, ()> = inbox.fill(|space| {
                space[..bytes.len()].copy_from_slice(bytes);
                Ok(bytes.len())
            });
            filled.unwrap();
        };
        put(&mut inbox, &u32::MAX.to_le_bytes());
        assert_eq!(inbox.next().unwrap_err(), WireError::TooLong(u32::MAX));
        for bytes in examples() {
            let mut inbox = Inbox::default();
            let short = bytes.len() - 5;
            let mut cut = (short as u32).to_le_bytes().to_vec();
            cut.extend_from_slice(&bytes[4..4 + short]);
            put(&mut inbox, &cut);
            match inbox.next() {
                // Bulk has no length of its own.
                Ok(Some(Message::Put { .. } | Message::Data { .. })) | Err(_) => {}
                other => panic!("{other:?}"),
            }
        }
    }
}
