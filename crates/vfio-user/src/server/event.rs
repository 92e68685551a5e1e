//! What the engine hands to the embedder, and the tokens by which it is answered.

use std::num::NonZeroU64;
use std::os::fd::OwnedFd;

use super::OTHER_REPLY_BYTES;
use crate::errno::Errno;
use crate::irqs::SetIrqs;
use crate::maps::{DmaMap, DmaUnmap, Extent};
use crate::pending::RequestId;
use crate::version::Negotiated;
use crate::wire::{self, Command, MULTI_WRITE_SIZE, u32_at, u64_at};

/// A command of the client, or the answer to a request of the server.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// The version is agreed; the client may now use the device.
    Negotiated(Negotiated),
    /// Read a region. The range lies inside the region. Answer with
    /// [`complete_read`](super::Server::complete_read).
    RegionRead {
        /// To be answered.
        token: Token,
        /// What to read.
        access: RegionAccess,
    },
    /// Write a region. The range lies inside the region.
    RegionWrite {
        /// To be answered.
        token: Token,
        /// Where to write.
        access: RegionAccess,
        /// What to write.
        data: &'a [u8],
    },
    /// Several writes, to be done in order. Each lies inside its region.
    RegionWriteMulti {
        /// To be answered when all are done.
        token: Token,
        /// The writes.
        writes: MultiWrites<'a>,
    },
    /// Memory of the client that the device may use once this is answered.
    DmaMap {
        /// To be answered.
        token: Token,
        /// The memory.
        map: DmaMap,
    },
    /// Memory that the device must have let go of when this is answered.
    DmaUnmap {
        /// To be answered.
        token: Token,
        /// Which.
        unmap: DmaUnmap,
    },
    /// Set up, mask or raise interrupts.
    SetIrqs {
        /// To be answered.
        token: Token,
        /// Which and how.
        set: SetIrqs<'a>,
    },
    /// Reset the device.
    Reset {
        /// To be answered.
        token: Token,
    },
    /// Tell the value of a feature. Answer with [`complete_with`](super::Server::complete_with).
    FeatureGet {
        /// To be answered.
        token: Token,
        /// Its number; the description says that it can be read.
        feature: u16,
        /// Bytes that the client has room for.
        room: u32,
    },
    /// Change a feature.
    FeatureSet {
        /// To be answered.
        token: Token,
        /// Its number; the description says that it can be changed.
        feature: u16,
        /// Its new value.
        data: &'a [u8],
    },
    /// A command that the engine does not know. Answer with
    /// [`complete_with`](super::Server::complete_with), or with ENOTSUP if the user does not know it
    /// either.
    Other {
        /// To be answered.
        token: Token,
        /// Its number.
        command: Command,
        /// What came with it.
        data: &'a [u8],
        /// Descriptors that came with it.
        fds: Vec<OwnedFd>,
    },
    /// The client answered a command of the server's user.
    Answered {
        /// What `ask` returned.
        request: RequestId,
        /// What the client gave, or its error.
        result: Result<&'a [u8], Errno>,
    },
    /// The client answered a DMA read or write of the server.
    DmaDone {
        /// What `dma_read` or `dma_write` returned.
        request: RequestId,
        /// The data read (empty for a write), or the client's error.
        result: Result<&'a [u8], Errno>,
    },
}

/// A range of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionAccess {
    /// Index of the region.
    pub region: u32,
    /// First byte, from the start of the region.
    pub offset: u64,
    /// Bytes.
    pub count: u32,
}

/// A command that waits for its answer. Every token must be answered, even if the client wants no
/// reply; one that is dropped counts for ever against `max_outstanding`.
#[must_use = "the client waits for an answer: give it to complete or complete_read"]
#[derive(Debug)]
pub struct Token {
    /// Its number in the table of those that are out. One that is answered before the engine does
    /// anything else, as [`Server::serve`](super::Server::serve) does it, is in no table.
    pub(super) serial: Option<NonZeroU64>,
    pub(super) id: u16,
    pub(super) command: Command,
    pub(super) no_reply: bool,
    pub(super) body: Body,
    pub(super) restore: Restore,
}

/// What the reply repeats of the command.
#[derive(Debug)]
pub(super) enum Body {
    Empty,
    Access(RegionAccess),
    Multi { count: u64 },
    FeatureGet { flags: u32, room: u32 },
    FeatureSet { payload: Vec<u8> },
    Other,
    Unmap { argsz: u32, flags: u32, address: u64, size: u64 },
}

/// What is put back if the embedder refuses.
#[derive(Debug)]
pub(super) enum Restore {
    Nothing,
    Mapped { address: u64, size: u64 },
    Unmapped(Vec<(u64, Extent)>),
}

impl Token {
    /// Whether the client waits for a reply.
    #[must_use]
    pub fn wants_reply(&self) -> bool {
        !self.no_reply
    }

    pub(super) fn read(&self) -> Option<RegionAccess> {
        match self.body {
            Body::Access(access) if self.command == Command::REGION_READ => Some(access),
            _ => None,
        }
    }

    /// Bytes of data that the reply may have, if it is one of those that have any.
    pub(super) fn room(&self) -> Option<usize> {
        match self.body {
            Body::FeatureGet { room, .. } => Some((room as usize).min(OTHER_REPLY_BYTES)),
            Body::Other => Some(OTHER_REPLY_BYTES),
            _ => None,
        }
    }

    /// Bytes that the reply will take in the queue, at most.
    pub(super) fn reply_size(&self) -> usize {
        let data = self.read().map_or(0, |access| access.count as usize);
        let other = self.room().unwrap_or(0) + self.echo().len();
        wire::HEADER_SIZE + wire::DMA_UNMAP_SIZE + data + other
    }

    /// What comes before `data` bytes of data in the good reply to a command with [`Token::room`].
    pub(super) fn reply_to_get(&self, data: usize) -> ([u8; wire::FEATURE_SIZE], usize) {
        match self.body {
            Body::FeatureGet { flags, .. } => {
                let size = (wire::FEATURE_SIZE + data) as u32;
                (wire::Fixed::new().u32(size).u32(flags).done(), wire::FEATURE_SIZE)
            }
            _ => ([0; wire::FEATURE_SIZE], 0),
        }
    }

    /// What the good reply repeats in full.
    pub(super) fn echo(&self) -> &[u8] {
        match &self.body {
            Body::FeatureSet { payload } => payload,
            _ => &[],
        }
    }

    /// The payload of the good reply to anything but a read.
    pub(super) fn reply(&self) -> ([u8; wire::DMA_UNMAP_SIZE], usize) {
        let mut bytes = [0; wire::DMA_UNMAP_SIZE];
        let length = match self.body {
            Body::Empty | Body::Other | Body::FeatureSet { .. } => 0,
            Body::FeatureGet { .. } => {
                let (fixed, length) = self.reply_to_get(0);
                bytes[..length].copy_from_slice(&fixed);
                length
            }
            Body::Access(access) => {
                let fixed = wire::region_access(access.offset, access.region, access.count);
                bytes[..fixed.len()].copy_from_slice(&fixed);
                fixed.len()
            }
            Body::Multi { count } => {
                bytes[..8].copy_from_slice(&count.to_le_bytes());
                8
            }
            Body::Unmap { argsz, flags, address, size } => {
                bytes = wire::Fixed::new().u32(argsz).u32(flags).u64(address).u64(size).done();
                bytes.len()
            }
        };
        (bytes, length)
    }
}

/// The writes of one REGION_WRITE_MULTI.
#[derive(Clone, Debug)]
pub struct MultiWrites<'a> {
    bytes: &'a [u8],
}

/// One of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Write {
    /// Where to write; at most 8 bytes.
    pub access: RegionAccess,
    bytes: [u8; 8],
}

impl Write {
    /// What to write.
    #[must_use]
    pub fn data(&self) -> &[u8] {
        &self.bytes[..(self.access.count as usize).min(8)]
    }

    /// Reads one from exactly [`MULTI_WRITE_SIZE`] bytes.
    pub(super) fn decode(bytes: &[u8]) -> Write {
        let access = RegionAccess {
            offset: u64_at(bytes, 0),
            region: u32_at(bytes, 8),
            count: u32_at(bytes, 12),
        };
        let mut data = [0; 8];
        data.copy_from_slice(&bytes[16..24]);
        Write { access, bytes: data }
    }
}

impl<'a> MultiWrites<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> MultiWrites<'a> {
        MultiWrites { bytes }
    }
}

impl Iterator for MultiWrites<'_> {
    type Item = Write;

    fn next(&mut self) -> Option<Write> {
        let (first, rest) = self.bytes.split_at_checked(MULTI_WRITE_SIZE)?;
        self.bytes = rest;
        Some(Write::decode(first))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let count = self.bytes.len() / MULTI_WRITE_SIZE;
        (count, Some(count))
    }
}

impl ExactSizeIterator for MultiWrites<'_> {}
