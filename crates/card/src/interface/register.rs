//! Registers of BAR0: offsets in bytes. Each is read and written whole, at its own width.

use super::RingKind;

/// `u32`, read only: [`MAGIC_VALUE`].
pub const MAGIC: u64 = 0x000;
/// `u32`, read only: [`super::VERSION`].
pub const VERSION: u64 = 0x004;
/// `u64`, read only: capability bits, `CAP_*`.
pub const CAPABILITIES: u64 = 0x008;
/// `u64`, read only: the lease generation of this function; never twice the same on one card.
pub const GENERATION: u64 = 0x010;
/// `u32`, read only: frames of this function's memory (4 KiB each).
pub const FRAMES: u64 = 0x018;
/// `u32`, read only: processing elements.
pub const PES: u64 = 0x01c;
/// `u32`, read only: address-space ids 0 to n-1 may be used.
pub const ASIDS: u64 = 0x020;
/// `u32`, read only: faults that may be open at once.
pub const FAULT_ENTRIES: u64 = 0x024;
/// `u32`, read only: ranges of one grouped fault.
pub const GROUP_RANGES: u64 = 0x028;
/// `u32`, read only: pages of one group of the access counters.
pub const COUNTER_GROUP_PAGES: u64 = 0x02c;
/// `u32`: remote accesses to a group before a notice is written.
pub const COUNTER_THRESHOLD: u64 = 0x030;
/// `u32`, read only: pages of one DMA command.
pub const DMA_PAGES: u64 = 0x034;
/// `u32`, read only: DMA commands under way at once; more wait in order.
pub const DMA_COMMANDS: u64 = 0x038;
/// `u32`, read only: jobs that may wait for a processing element.
pub const JOBS: u64 = 0x03c;
/// `u32`, read only: number of the card at its server.
pub const CARD: u64 = 0x040;
/// `u32`, read only: number of this function on the card.
pub const FUNCTION: u64 = 0x044;
/// `u32`, read only: page sizes of translations: bit n for pages of 2^n bytes.
pub const PAGE_SIZES: u64 = 0x048;
/// `u32`, read only: kernels on the card; their ids are 0 to n-1.
pub const KERNELS: u64 = 0x04c;

/// `u32`, read only: pages of the function's own memory for translation tables, which BAR2 does not
/// show.
pub const TABLE_PAGES: u64 = 0x050;
/// `u32`, read only: of these, pages that are in use.
pub const TABLE_PAGES_USED: u64 = 0x054;

/// `u64`: the address with which the card's own window begins, a multiple of [`WINDOW_BYTES`]. Writable
/// while disabled, if nothing is allocated.
pub const WINDOW_BASE: u64 = 0x058;
/// `u64`, read only: bytes of the card's own window.
pub const WINDOW_BYTES: u64 = 0x060;
/// `u64`, read only: frames of the window's memories, each of a page of the window.
pub const WINDOW_FRAMES: u64 = 0x068;
/// `u64`, read only: of these, frames that nobody has.
pub const WINDOW_FRAMES_FREE: u64 = 0x070;
/// `u32`, read only: bytes of a page of the window, as a power of two.
pub const WINDOW_PAGE: u64 = 0x078;
/// `u32`, read only: memories of the window; their numbers are 0 to n-1.
pub const WINDOW_MEMORIES: u64 = 0x07c;
/// `u32`, read only: the page of BAR2 with which the window's memories begin; 0: BAR2 does not show them.
pub const WINDOW_FIRST: u64 = 0x080;

/// `u32`: [`CONTROL_ENABLE`], [`CONTROL_RESET`] (reads as 0).
pub const CONTROL: u64 = 0x100;
/// `u32`, read only: `STATUS_*`.
pub const STATUS: u64 = 0x104;
/// `u64`: sticky, `ERROR_*`; a one that is written clears its bit. Reading changes nothing.
pub const ERRORS: u64 = 0x108;
/// `u64`, read only: tag of the command that set the first of the errors, or the address concerned.
pub const ERROR_DETAIL: u64 = 0x110;

/// Ring registers: [`ring`] gives a ring's first; the offsets below are within it.
pub const RINGS: u64 = 0x200;
/// Bytes from one ring's registers to the next.
pub const RING_STRIDE: u64 = 0x20;
/// `u64`: bus address of the ring's header, a multiple of 64. Writable while disabled.
pub const RING_BASE: u64 = 0x00;
/// `u32`: number of entries, a power of two; 0: no ring. Writable while disabled.
pub const RING_ENTRIES: u64 = 0x08;
/// `u32`: interrupt vector. Writable while disabled.
pub const RING_VECTOR: u64 = 0x0c;
/// `u32`, read only: the index that the card has reached, as producer or as consumer.
pub const RING_INDEX: u64 = 0x10;

/// Registers of the window's memories: [`memory`] gives a memory's first; the offsets below are within it.
pub const MEMORIES: u64 = 0x300;
/// Bytes from one memory's registers to the next.
pub const MEMORY_STRIDE: u64 = 0x10;
/// `u32`, read only: frames of the memory; not 0.
pub const MEMORY_FRAMES: u64 = 0x00;
/// `u32`, read only: of these, frames that nobody has.
pub const MEMORY_FRAMES_FREE: u64 = 0x04;
/// `u32`, read only: [`super::MemoryKind::code`].
pub const MEMORY_KIND: u64 = 0x08;
/// Memories of a window, at most.
pub const MEMORIES_MAX: u32 = 16;

/// Counters, `u64` each, read only: [`counter`].
pub const COUNTERS: u64 = 0x400;
/// Names of the counters, in the order of their registers.
pub const COUNTER_NAMES: [&str; 27] = [
    "commands",
    "commands_refused",
    "foreign_frames_refused",
    "completions",
    "faults_written",
    "notices_written",
    "interrupts",
    "doorbells",
    "jobs_started",
    "jobs_done",
    "l1_hits",
    "l2_hits",
    "flexible_hits",
    "misses",
    "rights_misses",
    "faults_raised",
    "faults_joined",
    "fault_queue_full",
    "pages_mapped",
    "drains",
    "drains_waited",
    "remote_accesses",
    "dma_pages",
    "counter_groups_forgotten",
    "stale_answers",
    "walks",
    "table_full",
];

/// `u32`, write only, on a page of its own: something was put in the command ring, or room was made
/// in another ring. The value is ignored: indices are in the rings' headers.
pub const DOORBELL: u64 = 0x1000;

/// "FAR1".
pub const MAGIC_VALUE: u32 = 0x3152_4146;

/// Page DMA between bus addresses and own memory, and fill.
pub const CAP_DMA: u64 = 1 << 0;
/// DMA whose both ends are bus addresses.
pub const CAP_DMA_BUS_TO_BUS: u64 = 1 << 1;
/// A link to other cards.
pub const CAP_LINK: u64 = 1 << 2;
/// Access counters.
pub const CAP_COUNTERS: u64 = 1 << 3;
/// Grouped faults (`with`).
pub const CAP_GROUPS: u64 = 1 << 4;
/// Translation tables, with accessed and dirty bits.
pub const CAP_TABLES: u64 = 1 << 5;
/// The card's own window and the commands that allocate in it.
pub const CAP_ALLOC: u64 = 1 << 6;
/// Values may say what numbers they are.
pub const CAP_NUMBERS: u64 = 1 << 7;

/// The rings are used.
pub const CONTROL_ENABLE: u32 = 1 << 0;
/// Return to the known state.
pub const CONTROL_RESET: u32 = 1 << 1;

/// The rings are used.
pub const STATUS_ENABLED: u32 = 1 << 0;
/// No access, copy, job or drain is under way.
pub const STATUS_QUIET: u32 = 1 << 1;
/// A reset is under way; the function touches memory no more when this bit goes.
pub const STATUS_RESETTING: u32 = 1 << 2;
/// The function has stopped because of an error that only a reset ends.
pub const STATUS_FAILED: u32 = 1 << 3;

/// A ring's registers or indices make no ring; the function has stopped.
pub const ERROR_RING: u64 = 1 << 0;
/// A ring or a list could not be read or written on the bus.
pub const ERROR_BUS: u64 = 1 << 1;
/// A command named a frame beyond this function's memory.
pub const ERROR_FOREIGN_FRAME: u64 = 1 << 2;
/// A command was refused for another reason; its completion says which.
pub const ERROR_COMMAND: u64 = 1 << 3;
/// A register that does not exist, is read only or is locked was written, or at a wrong width.
pub const ERROR_REGISTER: u64 = 1 << 4;
/// A frame of the link was lost, repeated, out of order, damaged or foreign.
pub const ERROR_LINK: u64 = 1 << 5;
/// The card failed.
pub const ERROR_CARD: u64 = 1 << 6;

/// First register of a ring.
pub const fn ring(kind: RingKind) -> u64 {
    RINGS + RING_STRIDE * kind.index() as u64
}

/// First register of a memory of the window.
pub const fn memory(number: u8) -> u64 {
    MEMORIES + MEMORY_STRIDE * number as u64
}

/// Register of the `index`th counter.
pub const fn counter(index: usize) -> u64 {
    COUNTERS + 8 * index as u64
}
