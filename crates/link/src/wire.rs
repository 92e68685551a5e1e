//! Numbers on the wire: all little endian. Reading never goes beyond what is there.

/// Bytes of a frame's header.
pub const HEADER_BYTES: usize = 32;

/// What stands before every frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Header {
    /// What it is: a [`Kind`](crate::frame::Kind) or a control frame, by number.
    pub kind: u16,
    /// Bytes behind the header: fields, then data.
    pub length: u32,
    /// Which frame of its direction this is, from 0. 0 in control frames, which are not counted.
    pub sequence: u64,
    /// The frame of the other direction that is expected next: all before it have arrived.
    pub acknowledged: u64,
    /// What a reply and its request have in common. 0 elsewhere.
    pub tag: u64,
}

impl Header {
    /// Where [`acknowledged`](Self::acknowledged) lies: it is written when the frame leaves.
    pub(crate) const ACKNOWLEDGED_AT: usize = 16;

    /// Its bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[0..2].copy_from_slice(&self.kind.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.length.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.acknowledged.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.tag.to_le_bytes());
        bytes
    }

    /// Reads a header, or says that the bytes are none: the two that mean nothing yet have to be 0.
    #[must_use]
    pub fn decode(bytes: &[u8; HEADER_BYTES]) -> Option<Header> {
        let mut fields = Fields(bytes);
        let kind = fields.u16()?;
        let reserved = fields.u16()?;
        let (length, sequence) = (fields.u32()?, fields.u64()?);
        let (acknowledged, tag) = (fields.u64()?, fields.u64()?);
        (reserved == 0).then_some(Header { kind, length, sequence, acknowledged, tag })
    }
}

/// Takes numbers from the front of bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fields<'a>(pub(crate) &'a [u8]);

impl<'a> Fields<'a> {
    pub(crate) fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.bytes(N)?.try_into().ok()
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    /// All that is left.
    pub(crate) fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }

    /// `value`, if nothing is left.
    pub(crate) fn end<T>(self, value: T) -> Option<T> {
        self.0.is_empty().then_some(value)
    }
}
