//! Frames of the link between cards: a header of 32 bytes and a payload.

use crc32fast::Hasher;

/// Bytes of a frame's header.
pub const LINK_HEADER_BYTES: usize = 32;
/// "F1": a link frame of format 1.
pub const LINK_MAGIC: u16 = 0x3146;
/// In the byte of the kind: report when this frame has been taken in.
pub const LINK_LAST: u8 = 0x80;
/// Bytes of payload that a sender puts in one frame, if nothing else is chosen.
pub const LINK_PAYLOAD_BYTES: usize = 1024;
/// Most bytes of payload of one frame: a page.
pub const LINK_PAYLOAD_BYTES_MAX: usize = 4096;
/// Offset and length of a payload are multiples of this many bytes.
pub const LINK_UNIT_BYTES: usize = 64;
/// Most ranges of missing pages in one report, of 8 bytes each.
pub const LINK_RANGES_MAX: usize = 128;

/// Offsets of a header's fields, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct LinkField;

impl LinkField {
    /// `u16`: [`LINK_MAGIC`].
    pub const MAGIC: usize = 0;
    /// `u8`: [`LinkKind`], with [`LINK_LAST`].
    pub const KIND: usize = 2;
    /// `u8`: the round of sending, from 0.
    pub const ROUND: usize = 3;
    /// `u32`: the transfer.
    pub const TRANSFER: usize = 4;
    /// `u16`: [`LinkAddress`] of the function that sends the frame.
    pub const FROM: usize = 8;
    /// `u16`: [`LinkAddress`] of the function that it goes to.
    pub const TO: usize = 10;
    /// `u16`: bytes of payload.
    pub const LENGTH: usize = 12;
    /// `u16`: data: offset in the page. Report: [`LinkVerdict`]. Pause: quanta.
    pub const ARGUMENT: usize = 14;
    /// `u32`: data: index of the page in the transfer. Report: pages that are whole and stored.
    pub const PAGE: usize = 16;
    /// `u32`: frames of data that the transfer has sent before this one, over all rounds.
    pub const SEQUENCE: usize = 20;
    /// `u32`: pages of the whole transfer.
    pub const PAGES: usize = 24;
    /// `u32`: CRC-32 of the header's bytes before it and the payload.
    pub const CRC: usize = 28;
}

/// What a frame is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum LinkKind {
    /// Sender to receiver: bytes of a page.
    Data = 1,
    /// Sender to receiver: tell what has arrived.
    Question = 2,
    /// Sender to receiver: no more will come.
    Stop = 3,
    /// Receiver to sender: what has arrived, in payload the pages that have not.
    Report = 4,
    /// Receiver to sender: send no data for so many quanta of 512 bit times.
    Pause = 5,
}

impl LinkKind {
    /// Every kind.
    pub const ALL: [LinkKind; 5] =
        [LinkKind::Data, LinkKind::Question, LinkKind::Stop, LinkKind::Report, LinkKind::Pause];
}

/// What a report says.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u16)]
pub enum LinkVerdict {
    /// Every page is whole, and stored.
    Done = 0,
    /// The pages in the payload are not whole. None there: wait, they are being stored.
    Missing = 1,
    /// The transfer was given up here.
    Refused = 2,
}

impl LinkVerdict {
    /// Every verdict.
    pub const ALL: [LinkVerdict; 3] =
        [LinkVerdict::Done, LinkVerdict::Missing, LinkVerdict::Refused];

    /// The verdict of a code.
    pub fn from_code(code: u16) -> Option<LinkVerdict> {
        LinkVerdict::ALL.into_iter().find(|&verdict| verdict as u16 == code)
    }
}

/// A function at the link: its card in the low byte, its number on the card in the high byte.
///
/// A card fills in the address of the function that sends, so no function can send for another.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LinkAddress(pub u16);

impl LinkAddress {
    /// The address of a function.
    pub const fn new(card: u8, function: u8) -> LinkAddress {
        LinkAddress(card as u16 | (function as u16) << 8)
    }

    /// The card.
    pub const fn card(self) -> u8 {
        self.0 as u8
    }

    /// The function on it.
    pub const fn function(self) -> u8 {
        (self.0 >> 8) as u8
    }
}

impl core::fmt::Display for LinkAddress {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "card {} function {}", self.card(), self.function())
    }
}

/// A header, without what only the bytes need.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LinkHeader {
    /// What the frame is.
    pub kind: LinkKind,
    /// Whether the receiver is to report when it has taken this frame in.
    pub last: bool,
    /// The round of sending, from 0.
    pub round: u8,
    /// The transfer; 0 in a pause.
    pub transfer: u32,
    /// Who sends the frame.
    pub from: LinkAddress,
    /// Who gets it.
    pub to: LinkAddress,
    /// Bytes of payload.
    pub length: u16,
    /// Data: offset in the page. Report: the verdict. Pause: quanta.
    pub argument: u16,
    /// Data: index of the page in the transfer. Report: pages that are whole.
    pub page: u32,
    /// Frames of data that the transfer has sent before this one.
    pub sequence: u32,
    /// Pages of the whole transfer.
    pub pages: u32,
}

/// Bytes that are no frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LinkDecodeError {
    /// Fewer bytes than the header, or than it says.
    #[error("the frame has {bytes} bytes and needs {needed}; it was cut off, send it again")]
    Short {
        /// Bytes there are.
        bytes: usize,
        /// Bytes there should be.
        needed: usize,
    },
    /// It does not begin as frames do.
    #[error("the frame begins with {0:#06x} and not with {LINK_MAGIC:#06x}: another format")]
    Magic(u16),
    /// No such kind.
    #[error("frame kind {0:#04x} is not defined; see the table of link frames")]
    Kind(u8),
    /// Too long.
    #[error("a payload of {0} bytes, the most is {LINK_PAYLOAD_BYTES_MAX}")]
    Length(u16),
    /// The bytes are not those that were sent.
    #[error("the CRC is {found:#010x} and should be {right:#010x}: damaged on the way")]
    Crc {
        /// The one in the frame.
        found: u32,
        /// The one its bytes give.
        right: u32,
    },
}

/// `N` bytes of a header that is long enough.
fn field<const N: usize>(header: &[u8; LINK_HEADER_BYTES], offset: usize) -> [u8; N] {
    let mut bytes = [0; N];
    bytes.copy_from_slice(&header[offset..offset + N]);
    bytes
}

impl LinkHeader {
    /// The header's bytes, with the CRC over them and the payload. `length` is the payload's.
    pub fn to_bytes(&self, payload: &[u8]) -> [u8; LINK_HEADER_BYTES] {
        let mut bytes = [0; LINK_HEADER_BYTES];
        let mut put = |offset: usize, value: &[u8]| {
            bytes[offset..offset + value.len()].copy_from_slice(value);
        };
        let last = if self.last { LINK_LAST } else { 0 };
        put(LinkField::MAGIC, &LINK_MAGIC.to_le_bytes());
        put(LinkField::KIND, &[self.kind as u8 | last]);
        put(LinkField::ROUND, &[self.round]);
        put(LinkField::TRANSFER, &self.transfer.to_le_bytes());
        put(LinkField::FROM, &self.from.0.to_le_bytes());
        put(LinkField::TO, &self.to.0.to_le_bytes());
        put(LinkField::LENGTH, &self.length.to_le_bytes());
        put(LinkField::ARGUMENT, &self.argument.to_le_bytes());
        put(LinkField::PAGE, &self.page.to_le_bytes());
        put(LinkField::SEQUENCE, &self.sequence.to_le_bytes());
        put(LinkField::PAGES, &self.pages.to_le_bytes());
        let crc = frame_crc(&bytes, payload);
        bytes[LinkField::CRC..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Takes a frame apart and checks it. Bytes behind the payload are padding.
    ///
    /// # Errors
    /// [`LinkDecodeError`]; nothing of the frame may be believed, not even who sent it.
    pub fn from_frame(frame: &[u8]) -> Result<(LinkHeader, &[u8]), LinkDecodeError> {
        let (header, payload) = LinkHeader::parse(frame)?;
        check_crc(frame, payload)?;
        Ok((header, payload))
    }

    /// Takes a frame apart without a look at its CRC.
    pub(crate) fn parse(frame: &[u8]) -> Result<(LinkHeader, &[u8]), LinkDecodeError> {
        let short = |needed| LinkDecodeError::Short { bytes: frame.len(), needed };
        let (bytes, rest) =
            frame.split_first_chunk::<LINK_HEADER_BYTES>().ok_or(short(LINK_HEADER_BYTES))?;
        let half = |offset| u16::from_le_bytes(field(bytes, offset));
        let word = |offset| u32::from_le_bytes(field(bytes, offset));
        let magic = half(LinkField::MAGIC);
        if magic != LINK_MAGIC {
            return Err(LinkDecodeError::Magic(magic));
        }
        let [code] = field(bytes, LinkField::KIND);
        let kind = LinkKind::ALL.into_iter().find(|&kind| kind as u8 == code & !LINK_LAST);
        let kind = kind.ok_or(LinkDecodeError::Kind(code))?;
        let length = half(LinkField::LENGTH);
        if usize::from(length) > LINK_PAYLOAD_BYTES_MAX {
            return Err(LinkDecodeError::Length(length));
        }
        let needed = LINK_HEADER_BYTES + usize::from(length);
        let payload = rest.get(..usize::from(length)).ok_or(short(needed))?;
        let [round] = field(bytes, LinkField::ROUND);
        let header = LinkHeader {
            kind,
            last: code & LINK_LAST != 0,
            round,
            transfer: word(LinkField::TRANSFER),
            from: LinkAddress(half(LinkField::FROM)),
            to: LinkAddress(half(LinkField::TO)),
            length,
            argument: half(LinkField::ARGUMENT),
            page: word(LinkField::PAGE),
            sequence: word(LinkField::SEQUENCE),
            pages: word(LinkField::PAGES),
        };
        Ok((header, payload))
    }
}

/// The CRC of a header, as far as the CRC's own place, and a payload.
fn frame_crc(header: &[u8], payload: &[u8]) -> u32 {
    let mut crc = Hasher::new();
    crc.update(&header[..LinkField::CRC]);
    crc.update(payload);
    crc.finalize()
}

/// Compares the CRC of a frame that was parsed.
fn check_crc(frame: &[u8], payload: &[u8]) -> Result<(), LinkDecodeError> {
    let header: Option<&[u8; LINK_HEADER_BYTES]> = frame.first_chunk();
    let Some(header) = header else {
        return Err(LinkDecodeError::Short { bytes: frame.len(), needed: LINK_HEADER_BYTES });
    };
    let found = u32::from_le_bytes(field(header, LinkField::CRC));
    let right = frame_crc(header, payload);
    if found != right {
        return Err(LinkDecodeError::Crc { found, right });
    }
    Ok(())
}

/// The kind of a frame before any check, so that it can be handed to the sender or the receiver.
pub fn link_frame_kind(frame: &[u8]) -> Option<LinkKind> {
    let code = frame.get(LinkField::KIND)? & !LINK_LAST;
    LinkKind::ALL.into_iter().find(|&kind| kind as u8 == code)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The check value of the standard, as a card in hardware computes it.
    #[test]
    fn the_crc_is_that_of_ethernet() {
        let mut header = [0; LINK_HEADER_BYTES];
        header[LinkField::CRC - 4..LinkField::CRC].copy_from_slice(b"1234");
        let right = crc32fast::hash(&[&header[..LinkField::CRC], b"56789"].concat());
        assert_eq!(frame_crc(&header, b"56789"), right);
        assert_eq!(crc32fast::hash(b"123456789"), 0xcbf4_3926);
    }
}
