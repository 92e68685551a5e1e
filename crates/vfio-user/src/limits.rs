//! Bounds on everything the other side can make an engine hold.

use crate::wire::{ACCESS_SIZE, HEADER_SIZE};

/// Bounds of one engine. [`Limits::default`] fits QEMU.
///
/// Four of them are announced in VERSION (`max_data_xfer_size`, `max_msg_fds`, `max_dma_maps`,
/// `pgsizes`) and the smaller value of both sides holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most bytes moved by one read or write message. Default 1 MiB.
    pub max_data_xfer_size: u32,
    /// Most descriptors received with one message. Default 16. 0: the stream carries no descriptors,
    /// so none are sent either. None are taken before the version is agreed.
    pub max_msg_fds: u32,
    /// Most DMA maps valid at a time. Default 65535.
    pub max_dma_maps: u32,
    /// Page sizes of DMA maps, or-ed together: maps begin and end at multiples of the smallest that
    /// both sides have. Default 4096.
    pub pgsizes: u64,
    /// Whether REGION_WRITE_MULTI is agreed to. Default true.
    pub write_multiple: bool,
    /// Most requests of the other side that may wait for the embedder's answer, and most requests of
    /// this side that may wait for a reply. Default 256.
    pub max_outstanding: u32,
    /// Bytes of queued output (with the replies still owed) above which no further request is taken.
    /// Default 4 MiB.
    pub max_queued_bytes: usize,
    /// Most regions a device may have. Default 64.
    pub max_regions: u32,
    /// Most interrupt types a device may have. Default 16.
    pub max_irq_types: u32,
    /// Most interrupts of one type. Default 4096.
    pub max_irq_vectors: u32,
    /// Most sparse mmap areas of one region. Default 256.
    pub max_sparse_areas: u32,
    /// Most I/O descriptors (ioeventfd, ioregionfd) of one region. Default 256.
    pub max_io_fds: u32,
}

/// A message is never bounded to less than this, so that VERSION and small commands always fit.
const MESSAGE_FLOOR: u32 = 16 * 1024;

/// Most bytes of the answer to a command of the users' own.
pub(crate) const OTHER_REPLY_BYTES: usize = 4096;

impl Limits {
    /// Most bytes of one message, header included.
    #[must_use]
    pub fn max_message_bytes(&self) -> u32 {
        let access = (HEADER_SIZE + ACCESS_SIZE) as u32;
        self.max_data_xfer_size.saturating_add(access).max(MESSAGE_FLOOR)
    }
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            max_data_xfer_size: 1 << 20,
            max_msg_fds: 16,
            max_dma_maps: 65535,
            pgsizes: 4096,
            write_multiple: true,
            max_outstanding: 256,
            max_queued_bytes: 4 << 20,
            max_regions: 64,
            max_irq_types: 16,
            max_irq_vectors: 4096,
            max_sparse_areas: 256,
            max_io_fds: 256,
        }
    }
}
