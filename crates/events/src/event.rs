//! One row of a log.

use farside_types::{AgentId, AgentSet, MemoryId, MemorySet, Reason};

use crate::Name;

/// Something that happened. What a kind has nothing to say of is nothing: no agent, an empty set, 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// When, in picoseconds from the beginning.
    pub at: u64,
    /// What.
    pub kind: Kind,
    /// Why pages changed.
    pub reason: Option<Reason>,
    /// Who: faults, runs a kernel, or is the one that a change was made for.
    pub agent: Option<AgentId>,
    /// The first byte that it is about.
    pub address: u64,
    /// How many bytes.
    pub bytes: u64,
    /// Where bytes came from; nothing, if they are zeros or none came.
    pub from: Option<MemoryId>,
    /// Where bytes came to, or where a hint wants them.
    pub to: Option<MemoryId>,
    /// Memories that had a valid copy.
    pub before: MemorySet,
    /// Memories that have one now.
    pub after: MemorySet,
    /// Who lost its mapping, or the right to write.
    pub stopped: AgentSet,
    /// Bytes of those that came which nobody had asked for: they lay near.
    pub around: u64,
    /// The job; for [`Kind::Dropped`] how many events are missing.
    pub number: u64,
    /// The allocation's or the kernel's name.
    pub name: Name,
}

impl Event {
    /// One that says nothing but when and what.
    pub const fn new(at: u64, kind: Kind) -> Event {
        Event {
            at,
            kind,
            reason: None,
            agent: None,
            address: 0,
            bytes: 0,
            from: None,
            to: None,
            before: MemorySet::EMPTY,
            after: MemorySet::EMPTY,
            stopped: AgentSet::EMPTY,
            around: 0,
            number: 0,
            name: Name::NONE,
        }
    }
}

macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident = $name:literal,)*) => {
        /// What happened.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Kind { $($(#[$doc])* $kind,)* }

        impl Kind {
            /// Every kind, in the order of their declaration.
            pub const ALL: &[Kind] = &[$(Kind::$kind,)*];

            /// Its word in the column `kind`.
            pub const fn name(self) -> &'static str {
                match self { $(Kind::$kind => $name,)* }
            }

            /// The kind of a word.
            pub fn of(name: &[u8]) -> Option<Kind> {
                Kind::ALL.iter().copied().find(|kind| kind.name().as_bytes() == name)
            }
        }
    };
}

kinds! {
    /// An agent could not read pages.
    FaultRead = "fault-read",
    /// An agent could not write pages.
    FaultWrite = "fault-write",
    /// Of a card's faults, one whose page was there: only the translation was missing.
    Refill = "refill",
    /// The only location changed.
    Migration = "migration",
    /// One more copy.
    Duplication = "duplication",
    /// A write took the other copies away.
    Collapse = "collapse",
    /// Mapped where it is, over the bus.
    RemoteMap = "remote-map",
    /// Left a full card.
    Eviction = "eviction",
    /// Only rights or mappings changed.
    Rights = "rights",
    /// Pages of an allocation that is given back.
    Freed = "freed",
    /// The card with the only copy is gone.
    Lost = "lost",
    /// Where pages were when the log was begun.
    Found = "found",
    /// Memory was allocated.
    Alloc = "alloc",
    /// The program gave memory back.
    Free = "free",
    /// The program launched a kernel.
    Launch = "launch",
    /// What a launch may read, to the byte.
    LentRead = "lent-read",
    /// What a launch may write, to the byte.
    LentWrite = "lent-write",
    /// A card was given a kernel to run.
    Begin = "begin",
    /// A kernel has ended well.
    End = "end",
    /// A kernel has ended otherwise.
    Failed = "failed",
    /// The program asks for pages to be moved.
    Migrate = "hint-migrate",
    /// The program asks for pages to be brought, to be read.
    PrefetchRead = "hint-prefetch-read",
    /// The program asks for pages to be brought, to be written.
    PrefetchWrite = "hint-prefetch-write",
    /// The program wants pages to stay somewhere.
    Pin = "hint-pin",
    /// And no more.
    Unpin = "hint-unpin",
    /// The program says that pages are mostly read.
    ReadMostly = "hint-read-mostly",
    /// And no more.
    NotReadMostly = "hint-not-read-mostly",
    /// The program says where pages should be.
    Preferred = "hint-preferred",
    /// The program says that an agent keeps a mapping of pages.
    AccessedBy = "hint-accessed-by",
    /// And no more.
    NotAccessedBy = "hint-not-accessed-by",
    /// The program wants pages to move in blocks of 2 MiB, or no more.
    WholeBlocks = "hint-whole-blocks",
    /// A card's access counter says that it reaches pages from afar.
    Notice = "notice",
    /// A card is gone.
    Gone = "gone",
    /// So many events are missing here: there was no room for them.
    Dropped = "dropped",
}

impl Kind {
    /// Whether an agent could not go on.
    pub const fn is_fault(self) -> bool {
        matches!(self, Kind::FaultRead | Kind::FaultWrite)
    }

    /// Whether it says where pages are, or who may use them.
    pub const fn is_change(self) -> bool {
        matches!(
            self,
            Kind::Migration
                | Kind::Duplication
                | Kind::Collapse
                | Kind::RemoteMap
                | Kind::Eviction
                | Kind::Rights
                | Kind::Freed
                | Kind::Lost
                | Kind::Found
        )
    }

    /// Whether the program said it about its memory.
    pub const fn is_hint(self) -> bool {
        matches!(
            self,
            Kind::Migrate
                | Kind::PrefetchRead
                | Kind::PrefetchWrite
                | Kind::Pin
                | Kind::Unpin
                | Kind::ReadMostly
                | Kind::NotReadMostly
                | Kind::Preferred
                | Kind::AccessedBy
                | Kind::NotAccessedBy
                | Kind::WholeBlocks
        )
    }
}
