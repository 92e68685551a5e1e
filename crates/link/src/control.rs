//! Control frames: who is there, how much may be sent, that somebody lives. They are not counted, and
//! one that is lost with its connection is said again.

use crate::endpoint::{Accepted, Config};
use crate::error::Violation;
use crate::frame::Class;
use crate::wire::{Fields, HEADER_BYTES, Header};

/// The first bytes of a link.
pub const MAGIC: u32 = u32::from_le_bytes(*b"FSLK");
/// The version that is spoken.
pub const VERSION: u16 = 1;
/// Most bytes of a device's name.
pub const NAME_BYTES_MAX: usize = 128;
/// Most bytes behind the header of a control frame.
pub const CONTROL_BYTES_MAX: usize = 40 + NAME_BYTES_MAX;

/// Frames and bytes of data.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Amount {
    /// How many frames.
    pub frames: u64,
    /// Bytes of data in them.
    pub bytes: u64,
}

impl Amount {
    pub(crate) fn add(&mut self, bytes: u64) {
        self.frames += 1;
        self.bytes += bytes;
    }

    /// Whether one frame with so much data fits between this and `limit`.
    pub(crate) fn has_room(self, bytes: u64, limit: Amount) -> bool {
        self.frames < limit.frames
            && self.bytes.checked_add(bytes).is_some_and(|sum| sum <= limit.bytes)
    }

    pub(crate) fn saturating_add(self, other: Amount) -> Amount {
        Amount {
            frames: self.frames.saturating_add(other.frames),
            bytes: self.bytes.saturating_add(other.bytes),
        }
    }
}

/// An amount for each class, in the order of [`Class::ALL`].
pub type Amounts = [Amount; Class::ALL.len()];

/// See the module.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Control<'a> {
    /// The borrower's first frame.
    Hello(Hello<'a>),
    /// The lender's answer.
    Welcome { version: u16, received: u64, capabilities: u64 },
    /// The lender's other answer.
    Refuse { code: u32 },
    /// What may be sent in each class, all together since the link began.
    Credit(Amounts),
    /// Nothing else was to be said.
    Alive,
    /// The link is over.
    Close { code: u32 },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Hello<'a> {
    pub(crate) versions: (u16, u16),
    pub(crate) session: u64,
    pub(crate) epoch: u64,
    /// The frame that the borrower expects next.
    pub(crate) received: u64,
    pub(crate) capabilities: u64,
    pub(crate) device: &'a [u8],
}

/// The control frames and their numbers.
pub const HELLO: u16 = 0x0001;
/// See [`HELLO`].
pub const WELCOME: u16 = 0x0002;
/// See [`HELLO`].
pub const REFUSE: u16 = 0x0003;
/// See [`HELLO`].
pub const CREDIT: u16 = 0x0004;
/// See [`HELLO`].
pub const ALIVE: u16 = 0x0005;
/// See [`HELLO`].
pub const CLOSE: u16 = 0x0006;

/// All of them: number, name, fewest and most bytes behind the header.
pub const CONTROLS: [(u16, &str, usize, usize); 6] = [
    (HELLO, "Hello", 40, 40 + NAME_BYTES_MAX),
    (WELCOME, "Welcome", 18, 18),
    (REFUSE, "Refuse", 4, 4),
    (CREDIT, "Credit", 48, 48),
    (ALIVE, "Alive", 0, 0),
    (CLOSE, "Close", 4, 4),
];

impl<'a> Control<'a> {
    fn number(&self) -> u16 {
        match self {
            Control::Hello(_) => HELLO,
            Control::Welcome { .. } => WELCOME,
            Control::Refuse { .. } => REFUSE,
            Control::Credit(_) => CREDIT,
            Control::Alive => ALIVE,
            Control::Close { .. } => CLOSE,
        }
    }

    /// Appends header and fields.
    pub(crate) fn put(&self, acknowledged: u64, to: &mut Vec<u8>) {
        let start = to.len();
        to.extend([0; HEADER_BYTES]);
        match self {
            Control::Hello(hello) => {
                to.extend(MAGIC.to_le_bytes());
                to.extend(hello.versions.0.to_le_bytes());
                to.extend(hello.versions.1.to_le_bytes());
                for word in [hello.session, hello.epoch, hello.received, hello.capabilities] {
                    to.extend(word.to_le_bytes());
                }
                to.extend(hello.device);
            }
            Control::Welcome { version, received, capabilities } => {
                to.extend(version.to_le_bytes());
                to.extend(received.to_le_bytes());
                to.extend(capabilities.to_le_bytes());
            }
            Control::Credit(amounts) => {
                for amount in amounts {
                    to.extend(amount.frames.to_le_bytes());
                    to.extend(amount.bytes.to_le_bytes());
                }
            }
            Control::Refuse { code } | Control::Close { code } => to.extend(code.to_le_bytes()),
            Control::Alive => {}
        }
        let length = (to.len() - start - HEADER_BYTES) as u32;
        let header = Header { kind: self.number(), length, acknowledged, ..Header::default() };
        to[start..start + HEADER_BYTES].copy_from_slice(&header.encode());
    }

    /// Reads what stands behind the header; `None` if it is none.
    pub(crate) fn decode(number: u16, payload: &'a [u8]) -> Option<Control<'a>> {
        let mut from = Fields(payload);
        let control = match number {
            HELLO => {
                if from.u32()? != MAGIC {
                    return None;
                }
                Control::Hello(Hello {
                    versions: (from.u16()?, from.u16()?),
                    session: from.u64()?,
                    epoch: from.u64()?,
                    received: from.u64()?,
                    capabilities: from.u64()?,
                    device: from.rest(),
                })
            }
            WELCOME => Control::Welcome {
                version: from.u16()?,
                received: from.u64()?,
                capabilities: from.u64()?,
            },
            REFUSE => Control::Refuse { code: from.u32()? },
            CREDIT => {
                let mut amounts = Amounts::default();
                for amount in &mut amounts {
                    *amount = Amount { frames: from.u64()?, bytes: from.u64()? };
                }
                Control::Credit(amounts)
            }
            ALIVE => Control::Alive,
            CLOSE => Control::Close { code: from.u32()? },
            _ => return None,
        };
        from.end(control)
    }
}

/// Most bytes of a borrower's first frame, its header included.
pub const HELLO_BYTES_MAX: usize = HEADER_BYTES + CONTROL_BYTES_MAX;

/// The session that a borrower names in its first frame; `None` as long as that has not come whole. Whoever
/// refuses it tells so by an [`Endpoint`](crate::Endpoint), which is given these bytes too.
///
/// # Errors
/// [`Violation::NoLink`]: these are not the first bytes of a link. Else as an endpoint refuses whom it does
/// not know: it is about another device, another epoch, or of another version.
pub fn session_of(bytes: &[u8], config: &Config) -> Result<Option<u64>, Violation> {
    let Some(header) = bytes.first_chunk() else { return Ok(None) };
    let header = Header::decode(header).ok_or(Violation::NoLink)?;
    let length = header.length as usize;
    if header.kind != HELLO || length > CONTROL_BYTES_MAX {
        return Err(Violation::NoLink);
    }
    let Some(payload) = bytes.get(HEADER_BYTES..HEADER_BYTES + length) else { return Ok(None) };
    match Control::decode(HELLO, payload) {
        Some(Control::Hello(hello)) => Accepted::of(&hello, config, None).map(|a| Some(a.session)),
        _ => Err(Violation::NoLink),
    }
}

/// Fewest and most bytes of a control frame; `None` if there is none of this number.
pub(crate) fn lengths(number: u16) -> Option<(usize, usize)> {
    let found = CONTROLS.iter().find(|(known, ..)| *known == number);
    found.map(|&(_, _, least, most)| (least, most))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::endpoint::Lease;

    #[test]
    fn a_borrowers_session_is_known_when_its_first_frame_is_there() {
        let config = Config::new(Lease { device: "c".to_owned(), epoch: 5 });
        let mut bytes = hello((1, 1), 5, b"c");
        for cut in 0..bytes.len() {
            assert_eq!(session_of(&bytes[..cut], &config), Ok(None), "{cut}");
        }
        assert_eq!(session_of(&bytes, &config), Ok(Some(77)));
        bytes.extend([9; 500]);
        assert_eq!(session_of(&bytes, &config), Ok(Some(77)), "whatever comes behind it");
        for at in [0, 2, 7, HEADER_BYTES] {
            let mut other = bytes.clone();
            other[at] ^= 0x40;
            assert_eq!(session_of(&other, &config), Err(Violation::NoLink), "{at}");
        }
    }

    #[test]
    fn a_first_frame_of_another_lease_is_refused_as_an_endpoint_would() {
        let config = Config::new(Lease { device: "c".to_owned(), epoch: 5 });
        for (bytes, why) in [
            (hello((1, 1), 4, b"c"), Violation::Epoch { theirs: 4, ours: 5 }),
            (hello((1, 1), 5, b"d"), Violation::Device),
            (hello((2, 9), 5, b"c"), Violation::Version),
        ] {
            assert_eq!(session_of(&bytes, &config), Err(why));
        }
    }

    fn hello(versions: (u16, u16), epoch: u64, device: &[u8]) -> Vec<u8> {
        let hello = Hello { versions, session: 77, epoch, received: 0, capabilities: 0, device };
        let mut bytes = Vec::new();
        Control::Hello(hello).put(0, &mut bytes);
        bytes
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_control_frame_or_refused(
            number in 0..8u16,
            mut bytes in proptest::collection::vec(any::<u8>(), 0..60),
            magic in any::<bool>(),
        ) {
            if magic && bytes.len() >= 4 {
                bytes[..4].copy_from_slice(&MAGIC.to_le_bytes());
            }
            if let Some(control) = Control::decode(number, &bytes) {
                let (least, most) = lengths(number).unwrap();
                prop_assert!((least..=most).contains(&bytes.len()));
                let mut again = Vec::new();
                control.put(7, &mut again);
                let header = Header::decode(again[..HEADER_BYTES].try_into().unwrap()).unwrap();
                prop_assert_eq!((header.kind, header.acknowledged), (number, 7));
                prop_assert_eq!(header.length as usize, bytes.len());
                prop_assert_eq!(&again[HEADER_BYTES..], &bytes[..]);
            }
        }
    }
}
