//! gem5's packet traces: what `CommMonitor` with a `MemTraceProbe` writes, and its traffic generators read.
//!
//! A file, compressed with gzip or not, is the four bytes `gem5`, then messages of Protocol Buffers, each after its
//! length as a varint: one `PacketHeader`, then a `Packet` each access. Written after `src/proto/packet.proto` and
//! `src/proto/protoio.cc` of gem5. Of a packet the command (2), address (3) and size (4) are used; ticks (1) have the
//! order of the file. Commands are numbers of `MemCmd::Command`, of which all versions have `ReadReq` 1 and `WriteReq`
//! 4; the others moved, so packets with them are left out, and counted.

use std::fs::File;
use std::io::{BufRead, ErrorKind, Read};
use std::path::PathBuf;

use super::{Format, Take, Touch, packed};
use crate::trace::store::Kind;
use crate::{Place, TraceError};

const MAGIC: &[u8] = b"gem5";
/// Longest message.
const MESSAGE_MAX: u64 = 1 << 20;
const READ: u64 = 1;
const WRITE: u64 = 4;

/// Whether a file begins so, decompressed.
pub(super) fn is_it(head: &[u8]) -> bool {
    head.starts_with(MAGIC)
}

#[derive(Debug)]
pub(super) struct Packets {
    path: PathBuf,
}

impl Packets {
    pub(super) fn new(path: PathBuf) -> Packets {
        Packets { path }
    }

    fn open(&self) -> Result<(Box<dyn BufRead>, bool), TraceError> {
        let unreadable = |source| TraceError::Read { path: self.path.clone(), source };
        let file = File::open(&self.path).map_err(unreadable)?;
        packed::open(file).map_err(unreadable)
    }
}

impl Format for Packets {
    fn each(&self, take: Take<'_>) -> Result<u64, TraceError> {
        let (bytes, is_compressed) = self.open()?;
        let mut stream = Stream { bytes, is_compressed, at: 0, path: self.path.clone() };
        let mut magic = [0; 4];
        stream.fill(&mut magic)?;
        if magic != MAGIC {
            return Err(stream.wrong(0, "it does not begin as a packet trace of gem5"));
        }
        let mut message = Vec::new();
        if !stream.message(&mut message)? {
            return Err(stream.wrong(4, "the header is missing; it is cut off"));
        }
        let (mut left_out, mut sequence) = (0, 0_u32);
        loop {
            let begin = stream.at;
            if !stream.message(&mut message)? {
                return Ok(left_out);
            }
            let packet = packet(&message).map_err(|why| stream.wrong(begin, why))?;
            let kind = match packet.command {
                READ => Kind::Load,
                WRITE => Kind::Store,
                _ => {
                    left_out += 1;
                    continue;
                }
            };
            let (place, address, size) = (Place { gpu: 0, unit: 0 }, packet.address, packet.size);
            let touch = Touch { launch: 0, place, wave: None, sequence, kind, address, size };
            if let Some(why) = touch.wrong() {
                return Err(stream.wrong(begin, why));
            }
            take(&touch)?;
            sequence = sequence.wrapping_add(1);
        }
    }
}

/// The bytes of a trace, decompressed, and how many were read.
struct Stream {
    bytes: Box<dyn BufRead>,
    is_compressed: bool,
    at: u64,
    path: PathBuf,
}

impl Stream {
    fn wrong(&self, byte: u64, why: &'static str) -> TraceError {
        let perhaps = if self.is_compressed { packed::PERHAPS_DAMAGED } else { "" };
        self.error(byte, format!("{why}{perhaps}"))
    }

    fn unreadable(&self, byte: u64, error: &std::io::Error) -> TraceError {
        let why = if self.is_compressed { packed::DAMAGED } else { "it cannot be read" };
        self.error(byte, format!("{why} ({error})"))
    }

    fn error(&self, byte: u64, why: String) -> TraceError {
        TraceError::Byte { path: self.path.clone(), byte, why: why.into() }
    }

    fn fill(&mut self, into: &mut [u8]) -> Result<(), TraceError> {
        let begin = self.at;
        self.bytes.read_exact(into).map_err(|error| match error.kind() {
            ErrorKind::UnexpectedEof => self.wrong(begin, "what begins there is cut off"),
            _ => self.unreadable(begin, &error),
        })?;
        self.at += into.len() as u64;
        Ok(())
    }

    /// The next message; false at the end.
    fn message(&mut self, into: &mut Vec<u8>) -> Result<bool, TraceError> {
        let begin = self.at;
        let rest = self.bytes.fill_buf().map(|rest| rest.len());
        let rest = rest.map_err(|error| self.unreadable(begin, &error))?;
        if rest == 0 {
            return Ok(false);
        }
        let mut length = 0_u64;
        for shift in (0..).step_by(7) {
            let mut byte = [0];
            self.fill(&mut byte)?;
            if shift > 28 {
                return Err(self.wrong(begin, "it is no length of a message"));
            }
            length |= u64::from(byte[0] & 0x7f) << shift;
            if byte[0] < 0x80 {
                break;
            }
        }
        if length > MESSAGE_MAX {
            return Err(self.wrong(begin, "a message there has more than 1 MiB"));
        }
        into.clear();
        let read = (&mut self.bytes).take(length).read_to_end(into);
        match read {
            Ok(read) if read as u64 == length => self.at += length,
            Ok(_) => return Err(self.wrong(begin, "the message there is cut off")),
            Err(error) => return Err(self.unreadable(begin, &error)),
        }
        Ok(true)
    }
}

/// What is used of a packet.
struct Packet {
    command: u64,
    address: u64,
    size: u64,
}

/// Takes a message of Protocol Buffers apart: fields with a number and a kind, of which unknown ones are skipped.
fn packet(mut message: &[u8]) -> Result<Packet, &'static str> {
    let (mut command, mut address, mut size) = (None, None, None);
    while !message.is_empty() {
        let key = varint(&mut message)?;
        let (field, wire) = (key >> 3, key & 7);
        let value = match wire {
            0 => varint(&mut message)?,
            1 => skip(&mut message, 8)?,
            2 => {
                let length = varint(&mut message)?;
                skip(&mut message, length)?
            }
            5 => skip(&mut message, 4)?,
            _ => return Err("a packet there has a field of no known kind"),
        };
        match (field, wire) {
            (2, 0) => command = Some(value),
            (3, 0) => address = Some(value),
            (4, 0) => size = Some(value),
            _ => {}
        }
    }
    let lacks = "a packet there lacks its command, its address or its size";
    match (command, address, size) {
        (Some(command), Some(address), Some(size)) => Ok(Packet { command, address, size }),
        // Later versions need not say where; such packets are none that read or write.
        (Some(command), ..) if command != READ && command != WRITE => {
            Ok(Packet { command, address: 0, size: 0 })
        }
        _ => Err(lacks),
    }
}

fn varint(bytes: &mut &[u8]) -> Result<u64, &'static str> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first().ok_or("a packet there ends within a number")?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Ok(value);
        }
    }
    Err("a packet there has a number of more than 64 bits")
}

fn skip(bytes: &mut &[u8], count: u64) -> Result<u64, &'static str> {
    let short = "a packet there ends within a field";
    let count = usize::try_from(count).ok().filter(|&count| count <= bytes.len()).ok_or(short)?;
    *bytes = &bytes[count..];
    Ok(0)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::super::{test_accesses, test_open};
    use super::*;

    fn number(bytes: &mut Vec<u8>, mut value: u64) {
        while value >= 0x80 {
            bytes.push(value as u8 | 0x80);
            value >>= 7;
        }
        bytes.push(value as u8);
    }

    /// A trace with these packets, as command, address and size. Made after the description, not by gem5: UNVERIFIED.
    fn trace(packets: &[(u64, u64, u64)]) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        let mut message = |fields: &[(u64, u64)], text: Option<&str>| {
            let mut content = Vec::new();
            if let Some(text) = text {
                content.extend([1 << 3 | 2, text.len() as u8]);
                content.extend(text.as_bytes());
            }
            for &(field, value) in fields {
                number(&mut content, field << 3);
                number(&mut content, value);
            }
            number(&mut bytes, content.len() as u64);
            bytes.extend(content);
        };
        message(&[(2, 0), (3, 1_000_000_000_000)], Some("system.monitor"));
        for (tick, &(command, address, size)) in (0..).zip(packets) {
            message(
                &[
                    (1, tick * 500),
                    (2, command),
                    (3, address),
                    (4, size),
                    (5, 0x103),
                    (7, u64::MAX),
                ],
                None,
            );
        }
        bytes
    }

    const PACKETS: [(u64, u64, u64); 4] = [
        (READ, 0x8000_0000, 64),
        (WRITE, 0x8000_0020, 64),
        (30, 0x9000_0000, 64),
        (READ, 0x8000_1000, 4),
    ];

    #[test]
    fn requests_are_accesses_whether_compressed_or_not() {
        let plain = trace(&PACKETS);
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        packed.write_all(&plain).unwrap();
        for (name, bytes) in [("gem5", plain), ("gem5-gz", packed.finish().unwrap())] {
            let found = test_accesses(&test_open(name, bytes, 1).unwrap(), 1);
            assert_eq!(
                found,
                [(0, 0, 0, false), (0, 0, 0, true), (0, 0, 1, true), (0, 0, 64, false)]
            );
        }
    }

    #[test]
    fn damage_is_named_by_its_byte() {
        let whole = trace(&PACKETS);
        let header = 4 + 1 + usize::from(whole[4]);
        let first = usize::from(whole[header]) + 1 + header;
        let mut cut_anywhere = 0;
        for end in 5..whole.len() {
            // Between two packets nothing tells.
            cut_anywhere += usize::from(test_open("gem5-cut", &whole[..end], 1).is_ok());
        }
        assert_eq!(cut_anywhere, 3, "after each of the packets but the last");
        let error = test_open("gem5-cut", &whole[..first + 3], 1).unwrap_err().to_string();
        assert!(error.contains(&format!("byte {first}: ")) && error.contains("cut off"), "{error}");
        let mut wrong = whole.clone();
        wrong[header + 1] = 7;
        let error = test_open("gem5-wrong", &wrong, 1).unwrap_err().to_string();
        assert!(error.contains(&format!("byte {header}: ")), "{error}");
        let huge = [MAGIC, &[0xff, 0xff, 0xff, 0x7f]].concat();
        assert!(test_open("gem5-huge", huge, 1).unwrap_err().to_string().contains("1 MiB"));
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::none());
        packed.write_all(&whole).unwrap();
        let mut packed = packed.finish().unwrap();
        let said = |packed: &[u8]| test_open("gem5-gz", packed, 1).unwrap_err().to_string();
        assert!(said(&packed[..packed.len() - 20]).contains("cut off"));
        // What was stored shows no damage before its sum at the end: here it is a packet that cannot be.
        let at = packed.windows(whole.len()).position(|part| part == whole).unwrap();
        packed[at + header + 1] = 7;
        let error = said(&packed);
        assert!(
            error.contains(&format!("byte {header}: ")) && error.contains("gzip -t"),
            "{error}"
        );
        let endless = [MAGIC, &[0xff; 9]].concat();
        assert!(
            test_open("gem5-endless", endless, 1).unwrap_err().to_string().contains("no length")
        );
        let far = trace(&[(READ, u64::MAX, 64)]);
        assert!(test_open("gem5-far", far, 1).unwrap_err().to_string().contains("address space"));
        assert!(
            test_open("gem5-gz-cut", [0x1f, 0x8b, 8, 0], 1)
                .unwrap_err()
                .to_string()
                .contains("line 1: what begins there cannot be decompressed")
        );
    }

    #[test]
    fn no_bytes_make_it_panic() {
        let whole = trace(&PACKETS);
        for at in 4..whole.len() {
            for flip in [0x01, 0x80, 0xff] {
                let mut bytes = whole.clone();
                bytes[at] ^= flip;
                // An error or another trace.
                let _ = test_open("gem5-flipped", &bytes, 1);
            }
        }
    }
}
