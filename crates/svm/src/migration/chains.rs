//! The chains: slots that are used again, one timer each.

use std::fmt;
use std::ops::{Index, IndexMut};

use farside_types::CommandId;
use serde::{Deserialize, Serialize};

use super::chain::Chain;

/// Names a slot for chains, and the chain that is in it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub(crate) struct ChainId(u32);

/// Bits of a command's id that name its chain.
const BITS: u32 = 24;

impl ChainId {
    /// That of pages that no chain holds.
    pub(crate) const NONE: ChainId = ChainId(u32::MAX);
    /// That of commands of no chain.
    pub(crate) const DETACHED: ChainId = ChainId((1 << BITS) - 1);

    /// The id of command number `n` of this chain.
    pub(crate) fn command(self, n: u64) -> CommandId {
        debug_assert!(self <= ChainId::DETACHED, "{self} gives no commands");
        CommandId(n << BITS | u64::from(self.0))
    }

    /// The chain that gave a command.
    pub(crate) fn of(command: CommandId) -> ChainId {
        ChainId((command.0 & u64::from(ChainId::DETACHED.0)) as u32)
    }
}

/// Names the chain that a command belongs to, for machines that treat the steps of one migration as one.
/// The commands of a later chain may have the same one, with another [`Header::epoch`](crate::Header::epoch).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct ChainKey(u32);

impl ChainKey {
    /// That of the chain that gave a command; none of commands of no chain.
    pub fn of(command: CommandId) -> Option<ChainKey> {
        let chain = ChainId::of(command);
        (chain != ChainId::DETACHED).then_some(ChainKey(chain.0))
    }
}

impl Default for ChainId {
    fn default() -> ChainId {
        ChainId::NONE
    }
}

impl fmt::Display for ChainId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "chain {}", self.0)
    }
}

/// All chains, by their ids.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Chains {
    slots: Vec<Chain>,
    idle: Vec<ChainId>,
    /// Slots to come, with room for what a chain has.
    #[serde(skip)]
    spare: Vec<Chain>,
}

impl Chains {
    /// None yet, with room for `chains` of them.
    pub(crate) fn with_room(chains: usize) -> Chains {
        let spare = (0..chains).map(|_| Chain::idle()).collect();
        let (slots, idle) = (Vec::with_capacity(chains), Vec::with_capacity(chains));
        Chains { slots, idle, spare }
    }

    /// Whether a chain can be started, where there are at most `most`.
    pub(crate) fn has_idle(&self, most: usize) -> bool {
        !self.idle.is_empty() || self.slots.len() < most
    }

    /// Whether none is under way.
    pub(crate) fn are_idle(&self) -> bool {
        self.slots.len() == self.idle.len()
    }

    /// A slot for a new chain.
    pub(crate) fn take(&mut self) -> ChainId {
        self.idle.pop().unwrap_or_else(|| {
            self.slots.push(self.spare.pop().unwrap_or_else(Chain::idle));
            ChainId(self.slots.len() as u32 - 1)
        })
    }

    /// The chain has ended: its slot can be used again.
    pub(crate) fn give_back(&mut self, id: ChainId) {
        self.idle.push(id);
    }

    pub(crate) fn get(&self, id: ChainId) -> Option<&Chain> {
        self.slots.get(id.0 as usize)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Chain> {
        self.slots.iter()
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Chain> {
        self.slots.iter_mut()
    }

    /// All slots with their ids.
    pub(crate) fn named(&self) -> impl Iterator<Item = (ChainId, &Chain)> {
        self.slots.iter().enumerate().map(|(at, chain)| (ChainId(at as u32), chain))
    }
}

impl Index<ChainId> for Chains {
    type Output = Chain;

    fn index(&self, id: ChainId) -> &Chain {
        &self.slots[id.0 as usize]
    }
}

impl IndexMut<ChainId> for Chains {
    fn index_mut(&mut self, id: ChainId) -> &mut Chain {
        &mut self.slots[id.0 as usize]
    }
}
