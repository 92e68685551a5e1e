//! The card interface in numbers and layouts: what `docs/card-interface.md` specifies.
//!
//! Registers, rings and records as both sides of the bus see them. Everything is little endian; an
//! entry of a ring is eight words of 64 bits. Encoding never fails; decoding takes any bytes and
//! either gives a value or says what is wrong with it.

mod alloc_request;
mod arg;
pub mod by_messages;
mod command;
mod completion;
mod extent;
mod fault_record;
mod link_frame;
mod memory;
mod notice_record;
pub mod pci;
mod reason;
pub mod register;
mod ring;

pub use alloc_request::AllocRequest;
pub use arg::{ARG_BYTES, ARGS_MAX, ArgKind, KernelArg, Number};
pub use command::{
    ALLOC_LAZY, BITS_BYTES_MAX, BitsBuffer, CommandEntry, ExtentArg, ExtentList, FLAG_LIST,
    FLAG_QUIET, FLAG_RANGE, FaultArg, LOCATE_NOWHERE, LOCATE_PAGES_MAX, LOCATE_TOUCH, MAP_WRITTEN,
    MESSAGE_BYTES_MAX, NAME_BYTES_MAX, Opcode, Operation, rights_code, rights_from_code,
};
pub use completion::{BITS_PAGES, CompletionEntry, Status};
pub use extent::{DmaAddr, EXTENT_BYTES, EXTENTS_MAX, Extent, LIST_PAGES_MAX};
pub use fault_record::{FaultHead, FaultRecord, FaultWants, RANGES_PER_RECORD};
pub use link_frame::{
    LINK_HEADER_BYTES, LINK_LAST, LINK_MAGIC, LINK_PAYLOAD_BYTES, LINK_PAYLOAD_BYTES_MAX,
    LINK_RANGES_MAX, LINK_UNIT_BYTES, LinkAddress, LinkDecodeError, LinkField, LinkHeader,
    LinkKind, LinkVerdict, link_frame_kind,
};
pub use memory::{MemoryKind, UnknownMemoryKind};
pub use notice_record::NoticeRecord;
pub use reason::{reason_from_word, reason_to_word};
pub use ring::{
    ENTRIES_MAX, ENTRIES_MIN, ENTRY_BYTES, ENTRY_WORDS, Entry, RING_COUNT, RingHeader, RingKind,
    entry_address, entry_from_bytes, entry_to_bytes, ring_bytes,
};

use thiserror::Error;

/// Version of the interface: major in the upper half. A driver refuses another major.
pub const VERSION: u32 = 1 << 16 | 5;

/// Pages of a 64-bit address space: page numbers are below it.
pub const PAGE_NUMBERS: u64 = 1 << 52;

/// A record that cannot be understood.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum DecodeError {
    /// No such operation.
    #[error("operation {0:#x} is not defined; see the table of commands")]
    Opcode(u16),
    /// A word has a value that is not allowed.
    #[error("word {word} of the entry is {value:#x}, which is not allowed there")]
    Word {
        /// Which word.
        word: u8,
        /// What it was.
        value: u64,
    },
    /// A flag that this operation does not take.
    #[error("flags {0:#x} are not allowed for this operation")]
    Flags(u16),
}
