//! Rings: a header with two indices, and entries of 64 bytes.

/// Bytes of an entry.
pub const ENTRY_BYTES: u64 = 64;
/// Words of an entry.
pub const ENTRY_WORDS: usize = 8;
/// Fewest entries of a ring.
pub const ENTRIES_MIN: u32 = 8;
/// Most entries of a ring.
pub const ENTRIES_MAX: u32 = 1 << 16;
/// Number of rings.
pub const RING_COUNT: usize = 4;

/// One entry of any ring.
pub type Entry = [u64; ENTRY_WORDS];

/// Which ring.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum RingKind {
    /// Driver to card: commands.
    Command,
    /// Card to driver: one completion per command.
    Completion,
    /// Card to driver: faults.
    Fault,
    /// Card to driver: access counters that reached their threshold.
    Notice,
}

impl RingKind {
    /// All four, in the order of their registers.
    pub const ALL: [RingKind; RING_COUNT] =
        [RingKind::Command, RingKind::Completion, RingKind::Fault, RingKind::Notice];

    /// Position among the ring registers.
    pub const fn index(self) -> usize {
        match self {
            RingKind::Command => 0,
            RingKind::Completion => 1,
            RingKind::Fault => 2,
            RingKind::Notice => 3,
        }
    }

    /// The word for it.
    pub const fn name(self) -> &'static str {
        match self {
            RingKind::Command => "command",
            RingKind::Completion => "completion",
            RingKind::Fault => "fault",
            RingKind::Notice => "notice",
        }
    }
}

/// The header in front of a ring's entries: offsets of its words, `u32` each.
///
/// Indices run freely and wrap at 2^32; the slot is the index modulo the number of entries. The two
/// halves lie in cache lines of their own. Entries begin at [`RingHeader::BYTES`].
#[derive(Clone, Copy, Debug)]
pub struct RingHeader;

impl RingHeader {
    /// Entries produced so far; written by the producer after the entries.
    pub const PRODUCER: u64 = 0x00;
    /// Written by the producer: 1 if it waits for room and wants to be told of it.
    pub const PRODUCER_WAITS: u64 = 0x04;
    /// Entries consumed so far; written by the consumer.
    pub const CONSUMER: u64 = 0x40;
    /// Written by the consumer: 1 if it sleeps and wants to be told of new entries.
    pub const CONSUMER_SLEEPS: u64 = 0x44;
    /// Bytes of the header.
    pub const BYTES: u64 = 0x80;
}

/// Bytes of a ring with its header.
pub const fn ring_bytes(entries: u32) -> u64 {
    RingHeader::BYTES + entries as u64 * ENTRY_BYTES
}

/// Bus address of the entry with a free-running index.
pub const fn entry_address(base: u64, entries: u32, index: u32) -> u64 {
    base + RingHeader::BYTES + (index % entries) as u64 * ENTRY_BYTES
}

/// The bytes of an entry.
pub fn entry_to_bytes(entry: &Entry) -> [u8; ENTRY_BYTES as usize] {
    let mut bytes = [0; ENTRY_BYTES as usize];
    for (chunk, word) in bytes.chunks_exact_mut(8).zip(entry) {
        chunk.copy_from_slice(&word.to_le_bytes());
    }
    bytes
}

/// The entry of these bytes.
pub fn entry_from_bytes(bytes: &[u8; ENTRY_BYTES as usize]) -> Entry {
    let mut entry = [0; ENTRY_WORDS];
    for (word, chunk) in entry.iter_mut().zip(bytes.chunks_exact(8)) {
        let mut value = [0; 8];
        value.copy_from_slice(chunk);
        *word = u64::from_le_bytes(value);
    }
    entry
}
