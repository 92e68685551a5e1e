//! Messages between the two ends, as bytes.
//!
//! Each begins with its length (`u32`, of what follows) and its kind (one byte); numbers are little
//! endian. Nothing that arrives makes this side take more memory than one message has at most.

use farside_card::interface::{
    ENTRY_BYTES, Entry, RING_COUNT, RingKind, entry_from_bytes, entry_to_bytes,
};
use thiserror::Error;

/// Version of these messages: both ends have to speak the same.
pub(crate) const VERSION: u64 = 1;

/// Bytes of card memory in one message, at most: what a register access may have to wait for.
pub(crate) const BULK_BYTES: usize = 256 << 10;

/// Bytes that travel with an entry, at most: a block of the memory for lists.
pub(super) const ATTACHED_MAX: usize = 4096;

/// Entries of one message, at most; more travel in the next.
pub(super) const ITEMS_MAX: usize = 1024;

/// What travels with the entries of one message: past so many bytes the others go in the next.
pub(super) const ATTACHED_SOFT_MAX: usize = 256 << 10;

/// Bytes of a message after its length, at most.
pub(super) const MESSAGE_MAX: usize =
    64 + ITEMS_MAX * (ENTRY_BYTES as usize + 8) + ATTACHED_SOFT_MAX + ATTACHED_MAX;

const _: () = assert!(BULK_BYTES + 64 <= MESSAGE_MAX);

/// What the other end has sent makes no sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub(crate) enum WireError {
    /// Longer than any message.
    #[error("a message says that it has {0} bytes; {MESSAGE_MAX} is the most")]
    TooLong(u32),
    /// No such message, or one that is cut off.
    #[error("a message of kind {0} makes no sense")]
    Malformed(u8),
}

/// What the program's end asks, and is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    /// The version of the messages.
    Hello(u64),
    /// A register of BAR0, this many bytes wide.
    Read(u64, u8),
    /// Writes one: where, how wide, what.
    Write(u64, u8, u64),
    /// Memory for rings and lists, to be seen by the card at a bus address: so many bytes.
    MapRings(u64, u64),
}

/// An entry of a ring, and the memory that it refers to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Item {
    pub(crate) ring: RingKind,
    pub(crate) entry: Entry,
    pub(crate) attached: Vec<u8>,
}

/// Entries that one end puts into the other's rings, and how far it has got with what it was sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Entries {
    /// Of the rings that the other end fills: how many entries were taken out.
    pub(crate) consumed: [u32; RING_COUNT],
    /// There is more, and no room: the other end is to tell of any that it makes.
    pub(crate) wants_room: bool,
    pub(crate) items: Vec<Item>,
}

/// A message.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Message<'a> {
    /// The program's end asks.
    Call(u32, Call),
    /// Its answer: 0 or an error number, and a value.
    Answer { id: u32, errno: u32, value: u64 },
    /// Entries of rings.
    Entries(Entries),
    /// Bytes for the card's memory, in front of whatever is sent later.
    Put { offset: u64, data: &'a [u8] },
    /// Zeros for the card's memory, likewise.
    Zero { offset: u64, bytes: u64 },
    /// Bytes of the card's memory are wanted.
    Get { id: u32, offset: u64, bytes: u32 },
    /// The next of them.
    Data { id: u32, data: &'a [u8] },
}

const CALL: u8 = 1;
const ANSWER: u8 = 2;
const ENTRIES: u8 = 3;
pub(super) const PUT: u8 = 4;
const ZERO: u8 = 5;
const GET: u8 = 6;
pub(super) const DATA: u8 = 7;

impl Message<'_> {
    /// Appends the bytes.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend([0; 4]);
        match self {
            Message::Call(id, call) => {
                out.push(CALL);
                out.extend(id.to_le_bytes());
                let (what, wide, a, b) = match *call {
                    Call::Hello(version) => (0, 0, version, 0),
                    Call::Read(offset, wide) => (1, wide, offset, 0),
                    Call::Write(offset, wide, value) => (2, wide, offset, value),
                    Call::MapRings(bus, bytes) => (3, 0, bus, bytes),
                };
                out.extend([what, wide]);
                out.extend(a.to_le_bytes());
                out.extend(b.to_le_bytes());
            }
            Message::Answer { id, errno, value } => {
                out.push(ANSWER);
                out.extend(id.to_le_bytes());
                out.extend(errno.to_le_bytes());
                out.extend(value.to_le_bytes());
            }
            Message::Entries(entries) => entries.encode(out),
            Message::Put { offset, data } => {
                out.push(PUT);
                out.extend(offset.to_le_bytes());
                out.extend_from_slice(data);
            }
            Message::Zero { offset, bytes } => {
                out.push(ZERO);
                out.extend(offset.to_le_bytes());
                out.extend(bytes.to_le_bytes());
            }
            Message::Get { id, offset, bytes } => {
                out.push(GET);
                out.extend(id.to_le_bytes());
                out.extend(offset.to_le_bytes());
                out.extend(bytes.to_le_bytes());
            }
            Message::Data { id, data } => {
                out.push(DATA);
                out.extend(id.to_le_bytes());
                out.extend_from_slice(data);
            }
        }
        let length = (out.len() - start - 4) as u32;
        out[start..start + 4].copy_from_slice(&length.to_le_bytes());
    }

    /// Reads them back.
    pub(super) fn decode(bytes: &[u8]) -> Result<Message<'_>, WireError> {
        let (&kind, rest) = bytes.split_first().ok_or(WireError::Malformed(0))?;
        let mut fields = Fields(rest);
        let decoded = match kind {
            CALL => fields.call(),
            ANSWER => fields.answer(),
            ENTRIES => fields.entries().map(Message::Entries),
            PUT => {
                fields.u64().and_then(|offset| Some(Message::Put { offset, data: fields.bulk()? }))
            }
            ZERO => fields
                .u64()
                .and_then(|offset| Some((offset, fields.u64()?)))
                .map(|(offset, bytes)| Message::Zero { offset, bytes }),
            GET => fields.get(),
            DATA => fields.u32().and_then(|id| Some(Message::Data { id, data: fields.bulk()? })),
            _ => None,
        };
        decoded.filter(|_| fields.0.is_empty()).ok_or(WireError::Malformed(kind))
    }
}

impl Entries {
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(ENTRIES);
        self.consumed.iter().for_each(|index| out.extend(index.to_le_bytes()));
        out.push(u8::from(self.wants_room));
        debug_assert!(self.items.len() <= ITEMS_MAX, "{} entries", self.items.len());
        out.extend((self.items.len() as u16).to_le_bytes());
        for item in &self.items {
            out.push(item.ring.index() as u8);
            out.extend((item.attached.len() as u16).to_le_bytes());
            out.extend(entry_to_bytes(&item.entry));
            out.extend_from_slice(&item.attached);
        }
    }
}

/// What is left of a message.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, bytes: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(bytes)?;
        self.0 = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    fn u8(&mut self) -> Option<u8> {
        self.array().map(u8::from_le_bytes)
    }

    fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    /// All that is left: something, and not more than a message carries.
    fn bulk(&mut self) -> Option<&'a [u8]> {
        let data = std::mem::take(&mut self.0);
        (!data.is_empty() && data.len() <= BULK_BYTES).then_some(data)
    }

    fn call(&mut self) -> Option<Message<'static>> {
        let id = self.u32()?;
        let (what, wide, a, b) = (self.u8()?, self.u8()?, self.u64()?, self.u64()?);
        let is_register = matches!(wide, 4 | 8);
        let call = match what {
            0 => Call::Hello(a),
            1 if is_register => Call::Read(a, wide),
            2 if is_register => Call::Write(a, wide, b),
            3 => Call::MapRings(a, b),
            _ => return None,
        };
        Some(Message::Call(id, call))
    }

    fn answer(&mut self) -> Option<Message<'static>> {
        let (id, errno, value) = (self.u32()?, self.u32()?, self.u64()?);
        Some(Message::Answer { id, errno, value })
    }

    fn get(&mut self) -> Option<Message<'static>> {
        let (id, offset, bytes) = (self.u32()?, self.u64()?, self.u32()?);
        Some(Message::Get { id, offset, bytes })
    }

    fn entries(&mut self) -> Option<Entries> {
        let mut consumed = [0; RING_COUNT];
        for index in &mut consumed {
            *index = self.u32()?;
        }
        let wants_room = match self.u8()? {
            0 => false,
            1 => true,
            _ => return None,
        };
        let count = usize::from(self.u16()?);
        if count > ITEMS_MAX {
            return None;
        }
        let mut items = Vec::with_capacity(count);
        for _ in 0..count {
            let ring = usize::from(self.u8()?);
            let ring = RingKind::ALL.into_iter().find(|kind| kind.index() == ring)?;
            let attached = usize::from(self.u16()?);
            if attached > ATTACHED_MAX {
                return None;
            }
            let entry = entry_from_bytes(&self.array()?);
            items.push(Item { ring, entry, attached: self.take(attached)?.to_vec() });
        }
        Some(Entries { consumed, wants_room, items })
    }
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;

    fn encoded(message: &Message<'_>) -> Vec<u8> {
        let mut bytes = Vec::new();
        message.encode(&mut bytes);
        bytes
    }

    /// A message of each kind, as bytes.
    pub(in super::super) fn examples() -> Vec<Vec<u8>> {
        let item = |ring, attached| Item { ring, entry: [7; 8], attached };
        let items = vec![item(RingKind::Command, vec![1; 32]), item(RingKind::Notice, Vec::new())];
        let entries = Entries { consumed: [1, 2, 3, u32::MAX], wants_room: true, items };
        let calls = [
            Call::Hello(VERSION),
            Call::Read(0x100, 8),
            Call::Write(0x104, 4, u64::MAX),
            Call::MapRings(1 << 32, 1 << 20),
        ];
        let mut all: Vec<_> = calls.map(|call| encoded(&Message::Call(9, call))).into();
        all.push(encoded(&Message::Answer { id: 1, errno: 22, value: 3 }));
        all.push(encoded(&Message::Entries(entries)));
        all.push(encoded(&Message::Put { offset: 4096, data: &[5; 4096] }));
        all.push(encoded(&Message::Zero { offset: 8, bytes: 16 }));
        all.push(encoded(&Message::Get { id: 2, offset: 4096, bytes: 4096 }));
        all.push(encoded(&Message::Data { id: 2, data: &[6; 512] }));
        all
    }

    proptest! {
        #[test]
        fn whatever_bytes_come_are_messages_or_errors(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Message::decode(&bytes);
        }

        #[test]
        fn a_message_with_changed_bytes_is_a_message_or_an_error(
            which in any::<prop::sample::Index>(),
            at in any::<prop::sample::Index>(),
            value in any::<u8>(),
        ) {
            let mut all = examples();
            let bytes = which.get_mut(&mut all);
            let at = at.index(bytes.len() - 4);
            bytes[4 + at] = value;
            let _ = Message::decode(&bytes[4..]);
        }
    }
}
