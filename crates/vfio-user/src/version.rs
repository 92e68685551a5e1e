//! VERSION: what both sides propose, and what they agree on.

use serde_json::{Map, Value, json};

use crate::limits::Limits;
use crate::wire::{VERSION_SIZE, u16_at};

/// Major version spoken.
pub const MAJOR: u16 = 0;
/// Highest minor version spoken.
pub const MINOR: u16 = 1;

/// Longest version data read, in bytes.
const DATA_BYTES: usize = 8192;

/// Capabilities of the two users of a connection, beyond those that the engines know: values of JSON by
/// name. VERSION carries them both ways; their meaning is the users'.
pub type Capabilities = Map<String, Value>;

/// The engines' own.
const KNOWN: [&str; 7] = [
    "max_msg_fds",
    "max_data_xfer_size",
    "max_dma_maps",
    "pgsizes",
    "write_multiple",
    "migration",
    "twin_socket",
];

/// What the two sides agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Negotiated {
    /// Minor version.
    pub minor: u16,
    /// Most bytes moved by one read or write message.
    pub max_data_xfer_size: u32,
    /// Most descriptors the other side receives with one message.
    pub peer_max_msg_fds: u32,
    /// Most DMA maps valid at a time.
    pub max_dma_maps: u32,
    /// Page sizes of DMA maps that both sides support, or-ed together.
    pub pgsizes: u64,
    /// Whether REGION_WRITE_MULTI may be used.
    pub write_multiple: bool,
}

impl Negotiated {
    /// Maps begin and end at multiples of this: the smallest page size that both sides have.
    #[must_use]
    pub fn page_size(&self) -> u64 {
        // A side that finds none in common does not agree.
        1 << self.pgsizes.trailing_zeros().min(63)
    }
}

/// The content of a VERSION message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Proposal {
    pub(crate) major: u16,
    pub(crate) minor: u16,
    max_msg_fds: u32,
    max_data_xfer_size: u32,
    max_dma_maps: u32,
    pgsizes: u64,
    write_multiple: bool,
}

impl Proposal {
    /// Reads the payload of a VERSION message. What it does not say has the specification's default;
    /// what it says beyond is the user's.
    pub(crate) fn decode(payload: &[u8]) -> Result<(Proposal, Capabilities), &'static str> {
        if payload.len() < VERSION_SIZE {
            return Err("the message has no version numbers");
        }
        let mut proposal = Proposal {
            major: u16_at(payload, 0),
            minor: u16_at(payload, 2),
            max_msg_fds: 1,
            max_data_xfer_size: 1 << 20,
            max_dma_maps: 65535,
            pgsizes: 4096,
            write_multiple: false,
        };
        let mut capabilities = capabilities(&payload[VERSION_SIZE..])?;
        proposal.read_capabilities(&capabilities)?;
        capabilities.retain(|name, _| !KNOWN.contains(&name.as_str()));
        Ok((proposal, capabilities))
    }

    fn read_capabilities(&mut self, from: &Map<String, Value>) -> Result<(), &'static str> {
        self.max_msg_fds = number(from, "max_msg_fds", self.max_msg_fds)?;
        self.max_data_xfer_size = number(from, "max_data_xfer_size", self.max_data_xfer_size)?;
        self.max_dma_maps = number(from, "max_dma_maps", self.max_dma_maps)?;
        if let Some(value) = from.get("pgsizes") {
            self.pgsizes = value.as_u64().ok_or("pgsizes is not a number")?;
        }
        if let Some(value) = from.get("write_multiple") {
            self.write_multiple = value.as_bool().ok_or("write_multiple is not true or false")?;
        }
        Ok(())
    }

    /// What holds between a side with `limits` and the one that sent this.
    pub(crate) fn agree(&self, limits: &Limits) -> Negotiated {
        Negotiated {
            minor: self.minor.min(MINOR),
            max_data_xfer_size: self.max_data_xfer_size.min(limits.max_data_xfer_size),
            // A stream that brings no descriptors takes none either.
            peer_max_msg_fds: if limits.max_msg_fds == 0 { 0 } else { self.max_msg_fds },
            max_dma_maps: self.max_dma_maps.min(limits.max_dma_maps),
            pgsizes: self.pgsizes & limits.pgsizes,
            write_multiple: self.write_multiple && limits.write_multiple,
        }
    }
}

/// The capabilities in version data. Some senders leave out the closing NUL, some send no data at all.
fn capabilities(data: &[u8]) -> Result<Capabilities, &'static str> {
    let end = data.iter().position(|&byte| byte == 0).unwrap_or(data.len());
    let data = data[..end].trim_ascii();
    if data.is_empty() {
        return Ok(Capabilities::new());
    }
    if data.len() > DATA_BYTES {
        return Err("the version data is longer than 8192 bytes");
    }
    let value: Value =
        serde_json::from_slice(data).map_err(|_| "the version data is not valid JSON")?;
    let Value::Object(mut object) = value else {
        return Err("the version data is not a JSON object");
    };
    match object.remove("capabilities") {
        None | Some(Value::Null) => Ok(Capabilities::new()),
        Some(Value::Object(capabilities)) => Ok(capabilities),
        Some(_) => Err("the capabilities are not a JSON object"),
    }
}

/// Whether capabilities of a user's can be sent: they fit, and none is the engine's.
pub(crate) fn check(extra: &Capabilities) -> Result<(), &'static str> {
    if extra.keys().any(|name| KNOWN.contains(&name.as_str())) {
        return Err("a capability of the user's has the name of one of the protocol's");
    }
    // The engines' own take some 150 bytes.
    let bytes = serde_json::to_vec(extra).map_or(usize::MAX, |bytes| bytes.len());
    if bytes > DATA_BYTES - 1024 {
        Err("the user's capabilities take more than 7 KiB")
    } else {
        Ok(())
    }
}

/// A count that is too large for the field means "no limit that matters".
fn number(from: &Map<String, Value>, name: &str, default: u32) -> Result<u32, &'static str> {
    match from.get(name) {
        None => Ok(default),
        Some(value) => {
            let value = value.as_u64().ok_or("a capability that counts is not a number")?;
            Ok(u32::try_from(value).unwrap_or(u32::MAX))
        }
    }
}

/// The payload of the VERSION command of a client with `limits`, whose user offers `extra`.
pub(crate) fn propose(limits: &Limits, extra: &Capabilities) -> Vec<u8> {
    encode(MINOR, limits, limits.pgsizes, extra)
}

/// The payload of the reply of a server with `limits` that agreed to `agreed`, whose user offers
/// `extra`.
pub(crate) fn accept(limits: &Limits, agreed: &Negotiated, extra: &Capabilities) -> Vec<u8> {
    let limits = Limits {
        max_data_xfer_size: agreed.max_data_xfer_size,
        max_dma_maps: agreed.max_dma_maps,
        write_multiple: agreed.write_multiple,
        ..*limits
    };
    encode(agreed.minor, &limits, agreed.pgsizes, extra)
}

fn encode(minor: u16, limits: &Limits, pgsizes: u64, extra: &Capabilities) -> Vec<u8> {
    let mut capabilities = extra.clone();
    let ours = [
        ("max_msg_fds", json!(limits.max_msg_fds)),
        ("max_data_xfer_size", json!(limits.max_data_xfer_size)),
        ("max_dma_maps", json!(limits.max_dma_maps)),
        ("pgsizes", json!(pgsizes)),
        ("write_multiple", json!(limits.write_multiple)),
    ];
    capabilities.extend(ours.map(|(name, value)| (name.to_owned(), value)));
    let data = json!({ "capabilities": capabilities });
    let mut payload = Vec::new();
    payload.extend_from_slice(&MAJOR.to_le_bytes());
    payload.extend_from_slice(&minor.to_le_bytes());
    payload.extend_from_slice(data.to_string().as_bytes());
    payload.push(0);
    payload
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(data: &[u8]) -> Vec<u8> {
        [&[0, 0, 0, 0][..], data].concat()
    }

    #[test]
    fn defaults_are_the_specification_s() {
        for data in [&b""[..], b"\0", b"{}", b"{}\0", b"{\"capabilities\":{}}\0"] {
            let agreed = Proposal::decode(&message(data)).unwrap().0.agree(&Limits::default());
            assert_eq!(agreed.max_data_xfer_size, 1 << 20);
            assert_eq!(agreed.peer_max_msg_fds, 1);
            assert_eq!(agreed.max_dma_maps, 65535);
            assert_eq!(agreed.pgsizes, 4096);
            assert!(!agreed.write_multiple);
        }
    }

    #[test]
    fn the_smaller_limit_holds() {
        let data = br#"{"capabilities":{"max_data_xfer_size":4096,"max_dma_maps":9999999999,
            "pgsizes":2101248,"max_msg_fds":8,"write_multiple":true,
            "migration":{"pgsize":4096},"twin_socket":{"supported":true}}}"#;
        let agreed = Proposal::decode(&message(data)).unwrap().0.agree(&Limits::default());
        assert_eq!(agreed.max_data_xfer_size, 4096);
        assert_eq!(agreed.max_dma_maps, 65535);
        assert_eq!(agreed.pgsizes, 4096);
        assert_eq!(agreed.peer_max_msg_fds, 8);
        assert!(agreed.write_multiple);
    }

    #[test]
    fn a_proposal_reads_back() {
        let limits = Limits { max_msg_fds: 3, write_multiple: false, ..Limits::default() };
        let mut extra = Capabilities::new();
        extra.insert("epoch".to_owned(), json!(7));
        let (proposal, theirs) = Proposal::decode(&propose(&limits, &extra)).unwrap();
        assert_eq!(theirs, extra, "what is not the engine's is the user's");
        assert_eq!((proposal.major, proposal.minor), (MAJOR, MINOR));
        assert_eq!(proposal.agree(&Limits::default()).peer_max_msg_fds, 3);
        assert!(!proposal.agree(&Limits::default()).write_multiple);
    }

    #[test]
    fn nonsense_is_refused() {
        for data in [
            &b"{"[..],
            b"[]",
            b"7",
            b"{\"capabilities\":7}",
            b"{\"capabilities\":{\"max_msg_fds\":-1}}",
            b"{\"capabilities\":{\"pgsizes\":\"4096\"}}",
            b"{\"capabilities\":{\"write_multiple\":1}}",
            b"\xff\xfe",
        ] {
            assert!(Proposal::decode(&message(data)).is_err(), "{data:?}");
        }
        assert!(Proposal::decode(&[0, 0, 1]).is_err());
        let deep = "[".repeat(DATA_BYTES);
        assert!(Proposal::decode(&message(deep.as_bytes())).is_err());
        let long = format!("{{\"a\":\"{}\"}}", "x".repeat(DATA_BYTES));
        assert!(Proposal::decode(&message(long.as_bytes())).is_err());
    }

    #[test]
    fn a_stream_without_descriptors_takes_none_and_brings_none() {
        let none = Limits { max_msg_fds: 0, ..Limits::default() };
        let (proposal, _) = Proposal::decode(&message(b"{}")).unwrap();
        assert_eq!(proposal.agree(&none).peer_max_msg_fds, 0);
        assert_eq!(proposal.agree(&Limits::default()).peer_max_msg_fds, 1);
    }

    #[test]
    fn a_user_s_capabilities_are_checked() {
        let named = |name: &str, value| Capabilities::from_iter([(name.to_owned(), value)]);
        assert!(check(&named("lease", json!({ "epoch": 3 }))).is_ok());
        assert!(check(&named("pgsizes", json!(1))).is_err());
        assert!(check(&named("long", json!("x".repeat(DATA_BYTES)))).is_err());
    }

    #[test]
    fn the_page_size_is_the_smallest_that_both_have() {
        let limits = Limits { pgsizes: 0x21_1000, ..Limits::default() };
        let (proposal, _) =
            Proposal::decode(&message(b"{\"capabilities\":{\"pgsizes\":2162688}}")).unwrap();
        let agreed = proposal.agree(&limits);
        assert_eq!((agreed.pgsizes, agreed.page_size()), (0x21_0000, 0x1_0000));
    }
}
