//! The layout of messages: numbers, sizes, the header, and reading integers out of bytes.
//!
//! All integers are little endian, whatever the machine: the specification says "the byte order of the
//! host", which is the same on every machine that vfio-user peers run on so far, and leaves open what
//! holds between two hosts. This is what holds here.

/// Bytes of a message header.
pub const HEADER_SIZE: usize = 16;
/// Bytes of the fixed part of REGION_READ, REGION_WRITE, DMA_READ and DMA_WRITE.
pub const ACCESS_SIZE: usize = 16;
/// Bytes of one write in REGION_WRITE_MULTI.
pub const MULTI_WRITE_SIZE: usize = 24;

pub(crate) const DMA_MAP_SIZE: usize = 32;
pub(crate) const DMA_UNMAP_SIZE: usize = 24;
pub(crate) const DEVICE_INFO_SIZE: usize = 16;
pub(crate) const REGION_INFO_SIZE: usize = 32;
pub(crate) const IO_FDS_SIZE: usize = 16;
pub(crate) const IO_FD_SIZE: usize = 40;
pub(crate) const IRQ_INFO_SIZE: usize = 16;
pub(crate) const SET_IRQS_SIZE: usize = 20;
pub(crate) const FEATURE_SIZE: usize = 8;
pub(crate) const VERSION_SIZE: usize = 4;
pub(crate) const CAP_HEADER_SIZE: usize = 8;
pub(crate) const SPARSE_HEADER_SIZE: usize = 16;
pub(crate) const SPARSE_AREA_SIZE: usize = 16;

pub(crate) const CAP_SPARSE_MMAP: u16 = 1;

pub(crate) const TYPE_MASK: u32 = 0xf;
pub(crate) const TYPE_COMMAND: u32 = 0;
pub(crate) const TYPE_REPLY: u32 = 1;
pub(crate) const FLAG_NO_REPLY: u32 = 1 << 4;
pub(crate) const FLAG_ERROR: u32 = 1 << 5;

pub(crate) const DMA_READABLE: u32 = 1 << 0;
pub(crate) const DMA_WRITABLE: u32 = 1 << 1;
/// As in `<linux/vfio.h>`, which QEMU uses for the message too.
pub(crate) const DMA_UNMAP_ALL: u32 = 1 << 1;

pub(crate) const DEVICE_RESETTABLE: u32 = 1 << 0;
pub(crate) const DEVICE_PCI: u32 = 1 << 1;

pub(crate) const REGION_READABLE: u32 = 1 << 0;
pub(crate) const REGION_WRITABLE: u32 = 1 << 1;
pub(crate) const REGION_MAPPABLE: u32 = 1 << 2;
pub(crate) const REGION_CAPS: u32 = 1 << 3;

pub(crate) const IRQ_EVENTFD: u32 = 1 << 0;
pub(crate) const IRQ_MASKABLE: u32 = 1 << 1;
pub(crate) const IRQ_AUTOMASKED: u32 = 1 << 2;
pub(crate) const IRQ_NORESIZE: u32 = 1 << 3;

pub(crate) const SET_NONE: u32 = 1 << 0;
pub(crate) const SET_BOOL: u32 = 1 << 1;
pub(crate) const SET_EVENTFD: u32 = 1 << 2;
pub(crate) const SET_MASK: u32 = 1 << 3;
pub(crate) const SET_UNMASK: u32 = 1 << 4;
pub(crate) const SET_TRIGGER: u32 = 1 << 5;

pub(crate) const FEATURE_MASK: u32 = 0xffff;
pub(crate) const FEATURE_GET: u32 = 1 << 16;
pub(crate) const FEATURE_SET: u32 = 1 << 17;
pub(crate) const FEATURE_PROBE: u32 = 1 << 18;

pub(crate) const IO_FD_EVENT: u32 = 0;
pub(crate) const IO_FD_REGION: u32 = 1;

/// The number of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Command(pub u16);

#[allow(missing_docs)]
impl Command {
    pub const VERSION: Command = Command(1);
    pub const DMA_MAP: Command = Command(2);
    pub const DMA_UNMAP: Command = Command(3);
    pub const DEVICE_GET_INFO: Command = Command(4);
    pub const DEVICE_GET_REGION_INFO: Command = Command(5);
    pub const DEVICE_GET_REGION_IO_FDS: Command = Command(6);
    pub const DEVICE_GET_IRQ_INFO: Command = Command(7);
    pub const DEVICE_SET_IRQS: Command = Command(8);
    pub const REGION_READ: Command = Command(9);
    pub const REGION_WRITE: Command = Command(10);
    pub const DMA_READ: Command = Command(11);
    pub const DMA_WRITE: Command = Command(12);
    pub const DEVICE_RESET: Command = Command(13);
    pub const REGION_WRITE_MULTI: Command = Command(15);
    pub const DEVICE_FEATURE: Command = Command(16);
}

impl Command {
    /// The first number that the two users of a connection may give meanings of their own. The
    /// specification reserves none; it has used 1 to 18 so far.
    pub const FIRST_OF_USERS: Command = Command(0x4000);

    /// Whether the engines know it. Any other goes to their users.
    #[must_use]
    pub fn is_spoken(self) -> bool {
        matches!(self.0, 1..=13 | 15 | 16)
    }
}

/// The header that every message begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Chosen by the sender of a command, repeated in its reply.
    pub id: u16,
    /// What is asked or answered.
    pub command: Command,
    /// Bytes of the whole message, header included.
    pub size: u32,
    /// Type (bits 0 to 3), no reply (bit 4), error (bit 5).
    pub flags: u32,
    /// Error number of an error reply.
    pub error: u32,
}

impl Header {
    /// The header of a command with `payload` bytes after it.
    #[must_use]
    pub fn command(id: u16, command: Command, payload: usize) -> Header {
        Header { id, command, size: (HEADER_SIZE + payload) as u32, flags: TYPE_COMMAND, error: 0 }
    }

    /// The header of a reply with `payload` bytes after it.
    #[must_use]
    pub fn reply(id: u16, command: Command, payload: usize) -> Header {
        Header { id, command, size: (HEADER_SIZE + payload) as u32, flags: TYPE_REPLY, error: 0 }
    }

    /// The header of an error reply, which has no payload.
    #[must_use]
    pub fn error(id: u16, command: Command, errno: crate::Errno) -> Header {
        let flags = TYPE_REPLY | FLAG_ERROR;
        Header { id, command, size: HEADER_SIZE as u32, flags, error: errno.code() }
    }

    /// Reads a header from exactly [`HEADER_SIZE`] bytes.
    #[must_use]
    pub fn decode(bytes: &[u8; HEADER_SIZE]) -> Header {
        Header {
            id: u16_at(bytes, 0),
            command: Command(u16_at(bytes, 2)),
            size: u32_at(bytes, 4),
            flags: u32_at(bytes, 8),
            error: u32_at(bytes, 12),
        }
    }

    /// Its bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; HEADER_SIZE] {
        let mut bytes = [0; HEADER_SIZE];
        bytes[0..2].copy_from_slice(&self.id.to_le_bytes());
        bytes[2..4].copy_from_slice(&self.command.0.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.size.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.flags.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.error.to_le_bytes());
        bytes
    }

    pub(crate) fn is_reply(&self) -> bool {
        self.flags & TYPE_MASK == TYPE_REPLY
    }

    pub(crate) fn wants_no_reply(&self) -> bool {
        self.flags & FLAG_NO_REPLY != 0
    }

    pub(crate) fn error_reply(&self) -> Option<crate::Errno> {
        (self.flags & FLAG_ERROR != 0).then(|| crate::Errno::new(self.error))
    }
}

/// The integer at `at`. The caller has checked the length of `bytes`.
pub(crate) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

/// The integer at `at`. The caller has checked the length of `bytes`.
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// The integer at `at`. The caller has checked the length of `bytes`.
pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}

/// A payload under construction, of a size known at compile time.
pub(crate) struct Fixed<const N: usize> {
    bytes: [u8; N],
    at: usize,
}

impl<const N: usize> Fixed<N> {
    pub(crate) fn new() -> Fixed<N> {
        Fixed { bytes: [0; N], at: 0 }
    }

    pub(crate) fn u32(mut self, value: u32) -> Fixed<N> {
        self.bytes[self.at..self.at + 4].copy_from_slice(&value.to_le_bytes());
        self.at += 4;
        self
    }

    pub(crate) fn u64(mut self, value: u64) -> Fixed<N> {
        self.bytes[self.at..self.at + 8].copy_from_slice(&value.to_le_bytes());
        self.at += 8;
        self
    }

    pub(crate) fn done(self) -> [u8; N] {
        debug_assert_eq!(self.at, N, "a payload is built in full");
        self.bytes
    }
}

/// The fixed part of a region access: offset, region, count.
pub(crate) fn region_access(offset: u64, region: u32, count: u32) -> [u8; ACCESS_SIZE] {
    Fixed::new().u64(offset).u32(region).u32(count).done()
}

/// The fixed part of a DMA access: address, count.
pub(crate) fn dma_access(address: u64, count: u64) -> [u8; ACCESS_SIZE] {
    Fixed::new().u64(address).u64(count).done()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_there_and_back() {
        let header =
            Header { id: 7, command: Command::DMA_MAP, size: 48, flags: 0x21, error: 0xffff_ffff };
        assert_eq!(Header::decode(&header.encode()), header);
    }

    #[test]
    fn header_layout_is_the_specification_s() {
        let header = Header::error(0x0102, Command::REGION_READ, crate::Errno::INVAL);
        let bytes = header.encode();
        assert_eq!(bytes, [2, 1, 9, 0, 16, 0, 0, 0, 0x21, 0, 0, 0, 22, 0, 0, 0]);
        assert_eq!(region_access(0x0807_0605_0403_0201, 0x0c0b_0a09, 0x100f_0e0d), {
            let mut counting = [0; ACCESS_SIZE];
            counting.iter_mut().zip(1..).for_each(|(byte, value)| *byte = value);
            counting
        });
        assert_eq!(u64_at(&[0, 1, 2, 3, 4, 5, 6, 7, 8], 1), 0x0807_0605_0403_0201);
        assert_eq!((u32_at(&[4, 3, 2, 1], 0), u16_at(&[2, 1], 0)), (0x0102_0304, 0x0102));
    }
}
