//! What the driver counts. Times come from the machine: the driver has no clock.

use farside_types::{MemoryId, Reason};
use serde::{Deserialize, Serialize};

use crate::SortedMap;

/// Counters since the driver was made. All in pages or events; never reset.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stats {
    /// Card faults received, duplicates included.
    pub card_faults: u64,
    /// Batches they came in.
    pub fault_batches: u64,
    /// Card faults that only lacked a TLB entry.
    pub refills: u64,
    /// Card faults on pages that were mapped with too few rights (page protection faults).
    pub protection_faults: u64,
    /// Faults that joined a move that was under way, or an equal fault of the same batch.
    pub duplicate_faults: u64,
    /// Host faults received.
    pub host_faults: u64,
    /// Faults answered with an error.
    pub cancelled_faults: u64,
    /// Pages moved, by source and destination; a page filled with zeros counts as from nowhere.
    #[serde(with = "moves_as_list")]
    pub moves: SortedMap<(Option<MemoryId>, MemoryId), u64>,
    /// Pages moved, copied or filled, by reason.
    pub by_reason: SortedMap<Reason, u64>,
    /// Pages that changed their only location.
    pub migrations: u64,
    /// Copies made beside an existing one.
    pub duplications: u64,
    /// Of these, copies that were begun while one for another card was made.
    pub followed: u64,
    /// Pages whose other copies were taken away by a write.
    pub collapses: u64,
    /// Pages mapped over the bus.
    pub remote_maps: u64,
    /// Pages that left a full card.
    pub evictions: u64,
    /// Pages that left a full card without a copy, because a clean one existed.
    pub clean_departures: u64,
    /// Pages lent to a card: it read them first and may write them at once, while the host keeps its bytes.
    pub lent: u64,
    /// Of these, pages of which the card told that it had written them: as many protection faults were saved.
    pub lent_written: u64,
    /// Lent pages that came back without a copy, because they were not written.
    pub lent_clean: u64,
    /// Pages that an agent got and a card that runs a kernel lost by it.
    pub taken_from_running: u64,
    /// Of the pages that left a full card, newcomers, which spared those that stay.
    pub spared: u64,
    /// Pages whose fault had to wait because agents fight over them.
    pub throttles: u64,
    /// Pages pinned because agents fight over them.
    pub thrash_pins: u64,
    /// Allocations that agents fought over while cards ran, until their pages were mapped where all reach them.
    pub settled_fights: u64,
    /// Migrations (chains) started.
    pub chains: u64,
    /// Chains rolled back after a failure.
    pub rollbacks: u64,
    /// Completions that came for an abandoned chain.
    pub late_completions: u64,
    /// Round trips to a card that a chain waited for.
    pub awaited_trips: u64,
    /// Commands to a card that nobody waited for.
    pub posted_commands: u64,
}

mod moves_as_list {
    //! JSON has no tuple keys: the table becomes a list of `{from, to, pages}`.
    use super::*;
    use serde::{Deserializer, Serializer};

    #[derive(Serialize, Deserialize)]
    struct Move {
        from: Option<MemoryId>,
        to: MemoryId,
        pages: u64,
    }

    type Table = SortedMap<(Option<MemoryId>, MemoryId), u64>;

    pub(super) fn serialize<S: Serializer>(table: &Table, out: S) -> Result<S::Ok, S::Error> {
        out.collect_seq(table.iter().map(|(&(from, to), &pages)| Move { from, to, pages }))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Table, D::Error> {
        let list = Vec::<Move>::deserialize(from)?;
        Ok(list.into_iter().map(|m| ((m.from, m.to), m.pages)).collect())
    }
}

impl Stats {
    /// With room for all that is counted between `cards` cards and the host.
    pub(crate) fn roomy(cards: usize) -> Stats {
        let moves = SortedMap::with_room((cards + 1) * (cards + 2));
        let by_reason = SortedMap::with_room(Reason::ALL.len());
        Stats { moves, by_reason, ..Stats::default() }
    }

    /// Pages moved from hosts to cards, cards to host, card to card.
    pub fn by_direction(&self) -> Directions {
        let mut sum = Directions::default();
        for (&(from, to), &pages) in self.moves.iter() {
            let field = match (from, to.is_host()) {
                (None, _) => &mut sum.zero_filled,
                (Some(MemoryId::HOST), _) => &mut sum.host_to_card,
                (Some(_), true) => &mut sum.card_to_host,
                (Some(_), false) => &mut sum.card_to_card,
            };
            *field += pages;
        }
        sum
    }
}

/// Pages moved by direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Directions {
    /// Host → card.
    pub host_to_card: u64,
    /// Card → host.
    pub card_to_host: u64,
    /// Card → card.
    pub card_to_card: u64,
    /// Never written: filled with zeros where it was first used.
    pub zero_filled: u64,
}
