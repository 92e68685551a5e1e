//! Who and what: memories, agents, cards, and the ids that pair an answer with its question.

use core::fmt;

use serde::{Deserialize, Serialize};

use crate::{Shelf, Shelved};

/// Most cards in one space. With the host this makes 17 memories, and 17 bits in a set.
pub const MAX_CARDS: usize = 16;

/// A card, counted from 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct CardId(pub u8);

impl CardId {
    /// The memory on this card.
    pub const fn memory(self) -> MemoryId {
        MemoryId(self.0 + 1)
    }

    /// This card as an agent.
    pub const fn agent(self) -> AgentId {
        AgentId(self.0 + 1)
    }
}

impl fmt::Debug for CardId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "card {}", self.0)
    }
}

impl fmt::Display for CardId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// A memory: a pool of frames. 0 is the host, `n + 1` is card `n`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct MemoryId(pub u8);

impl MemoryId {
    /// Host memory.
    pub const HOST: MemoryId = MemoryId(0);

    /// The card that this memory is on; `None` for the host.
    pub const fn card(self) -> Option<CardId> {
        match self.0 {
            0 => None,
            n => Some(CardId(n - 1)),
        }
    }

    /// Whether this is host memory.
    pub const fn is_host(self) -> bool {
        self.0 == 0
    }

    /// The agent next to this memory: the CPU, or the card.
    pub const fn agent(self) -> AgentId {
        AgentId(self.0)
    }
}

impl fmt::Debug for MemoryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.card() {
            None => f.write_str("host"),
            Some(card) => write!(f, "{card}"),
        }
    }
}

impl fmt::Display for MemoryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// Something that accesses memory. 0 is the CPU (all cores), `n + 1` is card `n`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct AgentId(pub u8);

impl AgentId {
    /// The host's processors.
    pub const CPU: AgentId = AgentId(0);

    /// The card, if this agent is one.
    pub const fn card(self) -> Option<CardId> {
        match self.0 {
            0 => None,
            n => Some(CardId(n - 1)),
        }
    }

    /// The memory next to this agent.
    pub const fn home(self) -> MemoryId {
        MemoryId(self.0)
    }

    /// Whether this is the CPU.
    pub const fn is_cpu(self) -> bool {
        self.0 == 0
    }
}

impl fmt::Debug for AgentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.card() {
            None => f.write_str("cpu"),
            Some(card) => write!(f, "{card}"),
        }
    }
}

impl fmt::Display for AgentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

macro_rules! bit_set {
    ($(#[$doc:meta])* $name:ident of $item:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
        pub struct $name(pub u32);

        impl $name {
            /// The empty set.
            pub const EMPTY: $name = $name(0);

            /// The set of one.
            pub const fn only(item: $item) -> $name {
                $name(1 << item.0)
            }

            /// Whether `item` is in the set.
            pub const fn contains(self, item: $item) -> bool {
                self.0 & (1 << item.0) != 0
            }

            /// The set with `item`.
            #[must_use]
            pub const fn with(self, item: $item) -> $name {
                $name(self.0 | 1 << item.0)
            }

            /// The set without `item`.
            #[must_use]
            pub const fn without(self, item: $item) -> $name {
                $name(self.0 & !(1 << item.0))
            }

            /// Members of either set.
            #[must_use]
            pub const fn union(self, other: $name) -> $name {
                $name(self.0 | other.0)
            }

            /// Members of both sets.
            #[must_use]
            pub const fn and(self, other: $name) -> $name {
                $name(self.0 & other.0)
            }

            /// Members of this set that are not in `other`.
            #[must_use]
            pub const fn minus(self, other: $name) -> $name {
                $name(self.0 & !other.0)
            }

            /// Whether the set has no member.
            pub const fn is_empty(self) -> bool {
                self.0 == 0
            }

            /// Number of members.
            pub const fn len(self) -> u32 {
                self.0.count_ones()
            }

            /// Lowest-numbered member.
            pub const fn first(self) -> Option<$item> {
                if self.0 == 0 { None } else { Some($item(self.0.trailing_zeros() as u8)) }
            }

            /// Members in ascending order.
            pub fn iter(self) -> impl Iterator<Item = $item> {
                let mut left = self.0;
                core::iter::from_fn(move || {
                    let item = $name(left).first()?;
                    left &= left - 1;
                    Some(item)
                })
            }
        }

        impl FromIterator<$item> for $name {
            fn from_iter<I: IntoIterator<Item = $item>>(items: I) -> $name {
                items.into_iter().fold($name::EMPTY, $name::with)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_set().entries(self.iter()).finish()
            }
        }
    };
}

bit_set! {
    /// A set of memories.
    MemorySet of MemoryId
}
bit_set! {
    /// A set of agents.
    AgentSet of AgentId
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty), $word:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
        pub struct $name(pub $inner);

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($word, " {}"), self.0)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(self, f)
            }
        }
    };
}

id! {
    /// An address-space id on a card: which program's translations an entry belongs to.
    Asid(u16), "asid"
}
id! {
    /// A fault, numbered by the machine; unique among the faults that are open.
    FaultId(u64), "fault"
}
id! {
    /// A launched kernel, numbered by the machine.
    JobId(u64), "job"
}
id! {
    /// A stream: launches of one stream run in the order they were made.
    StreamId(u32), "stream"
}
id! {
    /// A request of the program, numbered by the machine.
    RequestId(u64), "request"
}
id! {
    /// A processing element of a card, counted from 0.
    PeId(u16), "pe"
}
id! {
    /// One step of a chain, numbered by the driver; never used twice.
    CommandId(u64), "command"
}
id! {
    /// Counts the lives of a chain's slot: a completion of an older epoch is ignored.
    Epoch(u32), "epoch"
}

impl From<CardId> for MemoryId {
    fn from(card: CardId) -> MemoryId {
        card.memory()
    }
}

impl From<CardId> for AgentId {
    fn from(card: CardId) -> AgentId {
        card.agent()
    }
}

impl Shelved for FaultId {
    fn shelf() -> &'static Shelf<FaultId> {
        static SHELF: Shelf<FaultId> = Shelf::new();
        &SHELF
    }
}

impl Shelved for CommandId {
    fn shelf() -> &'static Shelf<CommandId> {
        static SHELF: Shelf<CommandId> = Shelf::new();
        &SHELF
    }
}
