//! What is asked of the allocator of the card's own window, by a command or by a kernel.

use farside_types::Rights;

/// A request; its answer is an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AllocRequest {
    /// Pages for `bytes` bytes.
    Malloc {
        /// Bytes; not 0.
        bytes: u64,
        /// The memory that frames come from.
        memory: u8,
        /// What may be done with them.
        rights: Rights,
        /// Pages get their frames when they are touched.
        lazy: bool,
    },
    /// Another size for the allocation at `address`.
    Realloc {
        /// The first of the allocation.
        address: u64,
        /// Bytes; not 0.
        bytes: u64,
        /// Pages that are added get their frames when they are touched.
        lazy: bool,
    },
    /// The allocation at `address` is used no more.
    Free {
        /// The first of the allocation.
        address: u64,
    },
}
