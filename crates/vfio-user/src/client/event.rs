//! What the engine hands to the embedder: replies, and the server's own requests.

use super::{Command, Errno, Negotiated, OTHER_REPLY_BYTES, RequestId, wire};
use crate::device::{IoFdKind, Irq, SparseArea};
use std::os::fd::OwnedFd;

/// A reply to a request of the client, or a request of the server.
#[derive(Debug)]
#[non_exhaustive]
pub enum ClientEvent<'a> {
    /// The server answered.
    Reply {
        /// What the request returned when it was queued.
        request: RequestId,
        /// The answer, or the server's error. EPROTO if the answer made no sense.
        reply: Result<Reply<'a>, Errno>,
    },
    /// The server reads the client's memory. Answer with [`complete`](super::Client::complete).
    DmaRead {
        /// To be answered.
        token: DmaToken,
        /// First DMA address.
        address: u64,
        /// Bytes, at most the agreed `max_data_xfer_size`.
        count: u32,
    },
    /// The server writes the client's memory. Answer with [`complete`](super::Client::complete).
    DmaWrite {
        /// To be answered.
        token: DmaToken,
        /// First DMA address.
        address: u64,
        /// What to write.
        data: &'a [u8],
    },
    /// A command that the engine does not know. Answer with
    /// [`complete_other`](super::Client::complete_other).
    Other {
        /// To be answered.
        token: OtherToken,
        /// Its number.
        command: Command,
        /// What came with it.
        data: &'a [u8],
    },
}

/// A good reply.
#[derive(Debug)]
#[non_exhaustive]
pub enum Reply<'a> {
    /// To VERSION.
    Negotiated(Negotiated),
    /// To DEVICE_GET_INFO.
    Device(DeviceSummary),
    /// To DEVICE_GET_REGION_INFO.
    Region(RegionInfo),
    /// To DEVICE_GET_REGION_IO_FDS.
    IoFds(RegionIoFds),
    /// To DEVICE_GET_IRQ_INFO.
    Irq(Irq),
    /// To REGION_READ: the bytes read, perhaps fewer than asked for.
    Data(&'a [u8]),
    /// To a question about a feature: its value; nothing to a probe or a change.
    Feature(&'a [u8]),
    /// To a command of the users' own: its data and descriptors.
    Other(&'a [u8], Vec<OwnedFd>),
    /// To everything else.
    Done,
}

/// What a device has, in short.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceSummary {
    /// Whether DEVICE_RESET does anything.
    pub resettable: bool,
    /// Whether it is a PCI device.
    pub pci: bool,
    /// Number of regions.
    pub regions: u32,
    /// Number of interrupt types.
    pub irqs: u32,
}

/// One region of a device.
#[derive(Debug)]
pub struct RegionInfo {
    /// Its index.
    pub index: u32,
    /// Bytes; 0 means that the device has no such region.
    pub size: u64,
    /// Whether it may be read.
    pub readable: bool,
    /// Whether it may be written.
    pub writable: bool,
    /// Whether it may be mapped.
    pub mappable: bool,
    /// The memory behind it, to be mapped at `offset`.
    pub fd: Option<OwnedFd>,
    /// Where the region begins in `fd`, in bytes.
    pub offset: u64,
    /// The parts that may be mapped; none means the whole region, if it is mappable.
    pub areas: Vec<SparseArea>,
    /// Bytes of reply that the server needs to tell everything; ask again with this much room if it is
    /// more than was given.
    pub needed: u32,
}

/// Descriptors that stand for parts of a region.
#[derive(Debug)]
pub struct RegionIoFds {
    /// The parts.
    pub parts: Vec<IoFdInfo>,
    /// The descriptors that `parts` name.
    pub fds: Vec<OwnedFd>,
    /// Bytes of reply that the server needs to tell everything.
    pub needed: u32,
}

/// One part of a region with a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IoFdInfo {
    /// First byte, from the start of the region.
    pub offset: u64,
    /// Bytes; 0 where the size of an access does not matter.
    pub size: u64,
    /// Index of its descriptor. It is one that the reply brought.
    pub fd_index: u32,
    /// Flags of KVM_IOEVENTFD or of the ioregion.
    pub flags: u32,
    /// What the descriptor is.
    pub kind: IoFdKind,
}

/// A DMA request of the server that waits for its answer. Every token must be answered; one that is
/// dropped counts for ever against `max_outstanding`.
#[must_use = "the server waits for an answer: give it to complete"]
#[derive(Debug)]
pub struct DmaToken {
    pub(super) id: u16,
    pub(super) command: Command,
    pub(super) address: u64,
    pub(super) count: u32,
    pub(super) no_reply: bool,
}

/// A command of the users' own that waits for its answer. Every token must be answered, as for
/// [`DmaToken`].
#[must_use = "the server waits for an answer: give it to complete_other"]
#[derive(Debug)]
pub struct OtherToken {
    pub(super) id: u16,
    pub(super) command: Command,
    pub(super) no_reply: bool,
}

impl OtherToken {
    /// Bytes that the reply will take in the queue, at most.
    pub(super) const REPLY_SIZE: usize = wire::HEADER_SIZE + OTHER_REPLY_BYTES;
}

impl DmaToken {
    /// Bytes that the reply will take in the queue, at most.
    pub(super) fn reply_size(&self) -> usize {
        let data = if self.command == Command::DMA_READ { self.count as usize } else { 0 };
        wire::HEADER_SIZE + wire::ACCESS_SIZE + data
    }
}
