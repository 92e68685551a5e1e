//! What the two ends of a lease say to one another: the catalogue of the frames
//! (`docs/link-protocol.md`), each with its number, class and fields.
//!
//! A frame is fields of fixed length and then data, if its kind has any. What is sent owns its data, so
//! that it can be sent again after the connection was lost; what has come borrows it from the buffer
//! that it was read into: one copy at each end.

mod codec;
mod kinds;
#[cfg(test)]
pub(crate) mod tests;

pub use kinds::Kind;

/// Most bytes of data in one frame: bulk is cut into pieces of this.
pub const DATA_BYTES_MAX: usize = 64 << 10;
/// Most bytes of fields in one frame.
pub const FIELD_BYTES_MAX: usize = 32;
/// Most bytes that one request reads.
pub const READ_BYTES_MAX: u32 = 1 << 20;
/// A frame with more data than this is bulk, which waits when much bulk is ahead of it already.
pub const SMALL_BYTES_MAX: usize = 4 << 10;

/// Frames of different classes have credits of their own: none keeps another from going on.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Class {
    /// Done without an answer, in order.
    Posted,
    /// Wants a reply.
    Request,
    /// The reply, or a piece of it.
    Reply,
}

impl Class {
    /// All of them, in the order in which they stand in `Credit`.
    pub const ALL: [Class; 3] = [Class::Posted, Class::Request, Class::Reply];

    /// Its place among them.
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }
}

/// What a reply and its request have in common; the asking end chooses it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Tag(pub u64);

impl Tag {
    /// The tag of posted frames.
    pub const NONE: Tag = Tag(0);
}

/// One of a card's four rings, by its place among their registers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Ring {
    /// Program to card: commands.
    Command,
    /// Card to program: completions.
    Completion,
    /// Card to program: faults.
    Fault,
    /// Card to program: access counters that reached their threshold.
    Notice,
}

impl Ring {
    /// All of them, by number.
    pub const ALL: [Ring; 4] = [Ring::Command, Ring::Completion, Ring::Fault, Ring::Notice];

    fn decode(number: u32) -> Option<Ring> {
        Ring::ALL.get(number as usize).copied()
    }
}

/// What is to be done to interrupts, as in DEVICE_SET_IRQS of vfio-user.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum IrqAction {
    /// They are taken away: nobody listens.
    Disable,
    /// They are told of from here on.
    Enable,
    /// They wait.
    Mask,
    /// They are told of again, and one that waited at once.
    Unmask,
}

impl IrqAction {
    /// All of them, by number.
    pub const ALL: [IrqAction; 4] =
        [IrqAction::Disable, IrqAction::Enable, IrqAction::Mask, IrqAction::Unmask];

    fn decode(number: u32) -> Option<IrqAction> {
        IrqAction::ALL.get(number as usize).copied()
    }
}

/// What a device may do in a piece of memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct MapRights {
    /// It may read.
    pub read: bool,
    /// It may write.
    pub write: bool,
}

impl MapRights {
    fn encode(self) -> u32 {
        u32::from(self.read) | u32::from(self.write) << 1
    }

    fn decode(bits: u32) -> Option<MapRights> {
        (bits < 4).then_some(MapRights { read: bits & 1 != 0, write: bits & 2 != 0 })
    }
}

/// One frame; `D` is its data, owned where it is sent and borrowed where it came.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Frame<D> {
    /// Writes a region of the device: registers, configuration space.
    RegionWrite {
        /// Which region, as in vfio-user.
        region: u32,
        /// First byte in it.
        offset: u64,
        /// The bytes.
        data: D,
    },
    /// Writes the device's memory (BAR2).
    MemoryWrite {
        /// First byte in it.
        offset: u64,
        /// The bytes.
        data: D,
    },
    /// Fills the device's memory with one value.
    MemoryFill {
        /// First byte in it.
        offset: u64,
        /// How many.
        bytes: u64,
        /// The value.
        value: u8,
    },
    /// The device writes the borrower's memory; or the borrower tells what is in memory of its own that
    /// the lender's end has a copy of.
    DmaWrite {
        /// Bus address of the first byte.
        address: u64,
        /// The bytes.
        data: D,
    },
    /// The device raises an interrupt.
    Interrupt {
        /// INTx, MSI or MSI-X, as in vfio-user.
        index: u32,
        /// Which of them.
        vector: u32,
    },
    /// Interrupts are enabled, masked and so on.
    IrqControl {
        /// What is done.
        action: IrqAction,
        /// INTx, MSI or MSI-X, as in vfio-user.
        index: u32,
        /// The first of them.
        start: u32,
        /// How many.
        count: u32,
    },
    /// The device may reach a piece of the borrower's memory.
    DmaMap {
        /// Bus address of the first byte.
        address: u64,
        /// How many.
        bytes: u64,
        /// What it may do there.
        rights: MapRights,
    },
    /// Entries of a ring, whole ones, in their order.
    RingEntries {
        /// Which ring.
        ring: Ring,
        /// Index of the first, which runs freely.
        first: u32,
        /// The entries.
        data: D,
    },
    /// How far a ring's consumer is.
    RingConsumed {
        /// Which ring.
        ring: Ring,
        /// Index of the next entry that it takes.
        index: u32,
    },
    /// There is more for a ring, and no room for it: its consumer tells of any that it makes.
    RingWaits {
        /// Which ring.
        ring: Ring,
    },
    /// A posted frame was refused or failed; nothing of it was done.
    Refused {
        /// The number of its kind.
        kind: u16,
        /// Why, as Linux numbers errors.
        errno: u32,
        /// Where: address or offset.
        address: u64,
        /// How many bytes.
        bytes: u64,
    },
    /// The borrower gives the device back: nothing comes behind this.
    Return,
    /// The end of another lender may come, by what the data says, and read what it is lent.
    PeerAdmit {
        /// By which number the borrower speaks of it here. One that had the number before is none any more.
        peer: u32,
        /// Who may come.
        data: D,
    },
    /// The end of another lender is to be reached, by what the data says.
    PeerReach {
        /// By which number the borrower speaks of it here. One that had the number before is none any more.
        peer: u32,
        /// Where it is.
        data: D,
    },
    /// A piece of the device's memory may be read by another lender's end, once.
    PeerLend {
        /// Which end.
        peer: u32,
        /// Names the piece; larger than all before.
        transfer: u64,
        /// First byte in the device's memory.
        offset: u64,
        /// How many.
        bytes: u32,
    },
    /// No more of a piece that was lent, or is being fetched.
    PeerEnd {
        /// Lent to, or fetched from, which end.
        peer: u32,
        /// Which.
        transfer: u64,
    },
    /// Reads a region of the device.
    RegionRead {
        /// Which region, as in vfio-user.
        region: u32,
        /// First byte in it.
        offset: u64,
        /// How many.
        bytes: u32,
    },
    /// Reads the device's memory (BAR2).
    MemoryRead {
        /// First byte in it.
        offset: u64,
        /// How many.
        bytes: u32,
    },
    /// The device reads the borrower's memory.
    DmaRead {
        /// Bus address of the first byte.
        address: u64,
        /// How many.
        bytes: u32,
    },
    /// The device does not reach a piece of memory any more. A request: when the reply has come, so has
    /// all that the device wrote there.
    DmaUnmap {
        /// Bus address of the first byte.
        address: u64,
        /// How many.
        bytes: u64,
    },
    /// The device is reset.
    Reset,
    /// Answered when all that was posted before is done.
    Barrier,
    /// Asks what the device is: a [`Description`](crate::description::Description) comes as data.
    Describe,
    /// Answered once another lender's end is reached, or cannot be.
    PeerReady {
        /// Which end.
        peer: u32,
    },
    /// The device's memory gets a piece that another lender's end lends: done when all of it is there.
    PeerFetch {
        /// Which end.
        peer: u32,
        /// Which piece.
        transfer: u64,
        /// First byte in the memory of this device.
        offset: u64,
        /// How many: all of the piece.
        bytes: u32,
    },
    /// Between lenders' ends: reads a piece that was lent.
    PeerRead {
        /// Which.
        transfer: u64,
        /// How many: all of it.
        bytes: u32,
    },
    /// Reads the device's memory (BAR2) as soon as a launch that the device was given has completed, and its
    /// completion was told.
    MemoryReadBehind {
        /// The tag of the launch.
        command: u64,
        /// First byte in the memory.
        offset: u64,
        /// How many.
        bytes: u32,
    },
    /// What a request has read, or a piece of it.
    Data {
        /// Where in what was asked for the piece begins.
        offset: u32,
        /// Whether it is the last piece.
        last: bool,
        /// The bytes.
        data: D,
    },
    /// A request that reads nothing is done.
    Done,
    /// A request is refused or has failed; data that came before is nothing.
    Failed {
        /// Why, as Linux numbers errors.
        errno: u32,
    },
}
