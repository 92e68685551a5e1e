//! The sizes of a card: its TLBs, queues, counters and DMA. Parameters, declared once.

use farside_types::{BLOCK_PAGES, GROUP_PAGES};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::l1::L1_ENTRIES_MAX;

/// How many pages share an access counter.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum CounterGroup {
    /// 16 pages (GRIT, section II-B2).
    #[serde(rename = "64KiB")]
    Kib64,
    /// 512 pages.
    #[serde(rename = "2MiB")]
    Mib2,
}

impl CounterGroup {
    /// Pages in a group.
    pub const fn pages(self) -> u64 {
        match self {
            CounterGroup::Kib64 => GROUP_PAGES,
            CounterGroup::Mib2 => BLOCK_PAGES,
        }
    }
}

/// The sizes of a card. The default is the card of the multi-FPGA SVM paper.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Geometry {
    /// Processing elements, 1 to 65535.
    pub pes: u16,
    /// Entries of each processing element's L1 TLB, 1 to 64. Fully associative.
    pub l1_entries: u32,
    /// All processing elements have one L1 TLB together, as where they are the ports of one element
    /// that has several accesses in flight.
    pub l1_shared: bool,
    /// Entries of the card's L2 TLB: `l2_ways` times a power of two.
    pub l2_entries: u32,
    /// Ways of the L2 TLB, 1 to 64.
    pub l2_ways: u32,
    /// Entries of flexible length, 0 to 64.
    pub flexible_entries: u32,
    /// Most pages of one flexible entry.
    pub flexible_pages_max: u32,
    /// Runs of at least this many pages get a flexible entry, shorter ones L2 entries.
    pub flexible_pages_min: u32,
    /// Faults that can be open at once; further ones stall.
    pub fault_entries: u32,
    /// Most ranges that one access can ask for together.
    pub group_ranges_max: u32,
    /// Pages that share an access counter.
    pub counter_group: CounterGroup,
    /// Remote accesses to a group before it is reported.
    pub counter_threshold: u32,
    /// Most groups that are counted at once.
    pub counter_groups_max: u32,
    /// Most DMA commands under way at a time, whatever their direction.
    pub dma_commands_max: u32,
    /// Most pages of one DMA command.
    pub dma_pages_max: u32,
    /// Pages of the card's own memory that hold translation tables; 0: it has none, and knows what
    /// its TLBs hold. [`Geometry::TABLES_FOR_MEMORY`]: as many as its memory needs.
    pub table_pages: u32,
}

impl Default for Geometry {
    fn default() -> Geometry {
        Geometry {
            pes: 4,
            l1_entries: 32,
            l1_shared: false,
            l2_entries: 1024,
            l2_ways: 4,
            flexible_entries: 32,
            flexible_pages_max: 32768,
            flexible_pages_min: 64,
            fault_entries: 48,
            group_ranges_max: 256,
            counter_group: CounterGroup::Kib64,
            counter_threshold: 256,
            counter_groups_max: 65536,
            dma_commands_max: 64,
            dma_pages_max: 4096,
            table_pages: 0,
        }
    }
}

/// Why sizes do not make a card.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum GeometryError {
    /// A size is outside its bounds.
    #[error("{field} is {value}; a card can have {least} to {most}, so choose one of these")]
    OutOfBounds {
        /// The field of [`Geometry`].
        field: &'static str,
        /// What it was.
        value: u32,
        /// The least it can be.
        least: u32,
        /// The most it can be.
        most: u32,
    },
    /// The L2 TLB does not divide into sets.
    #[error(
        "an L2 TLB of {entries} entries and {ways} ways has no power of two of sets; \
         choose l2_entries = l2_ways times a power of two"
    )]
    UnevenSets {
        /// Entries.
        entries: u32,
        /// Ways.
        ways: u32,
    },
    /// The least run for a flexible entry is longer than the longest one.
    #[error(
        "flexible_pages_min ({min}) exceeds flexible_pages_max ({max}); no run could use a \
         flexible entry, so lower it, or set flexible_entries to 0"
    )]
    FlexibleBounds {
        /// The least run.
        min: u32,
        /// The longest entry.
        max: u32,
    },
}

impl Geometry {
    /// [`Geometry::table_pages`] of a card that has as many as its memory needs.
    pub const TABLES_FOR_MEMORY: u32 = u32::MAX;

    /// The sizes of a card of software: those of the paper's, and tables for its memory.
    pub fn software() -> Geometry {
        Geometry { table_pages: Geometry::TABLES_FOR_MEMORY, ..Geometry::default() }
    }

    /// Table pages of a card with so many frames. Of a card of software there is one for 128 frames:
    /// four times what its own frames take where they lie close together, so that pages of the bus and
    /// scattered ones fit too.
    pub fn table_pages_for(&self, frames: u32) -> u32 {
        match self.table_pages {
            Geometry::TABLES_FOR_MEMORY => frames / 128 + 64,
            pages => pages,
        }
    }

    /// Checks that a card can be made of these sizes.
    ///
    /// # Errors
    /// The first [`GeometryError`] found.
    pub fn validate(&self) -> Result<(), GeometryError> {
        let tlb_most = L1_ENTRIES_MAX as u32;
        let bounds = [
            ("pes", u32::from(self.pes), 1, u32::from(u16::MAX)),
            ("l1_entries", self.l1_entries, 1, tlb_most),
            ("l2_entries", self.l2_entries, 1, 1 << 24),
            ("l2_ways", self.l2_ways, 1, 64),
            ("flexible_entries", self.flexible_entries, 0, 64),
            ("flexible_pages_max", self.flexible_pages_max, 1, 1 << 30),
            ("flexible_pages_min", self.flexible_pages_min, 1, 1 << 30),
            ("fault_entries", self.fault_entries, 1, 1 << 20),
            ("group_ranges_max", self.group_ranges_max, 1, 1 << 20),
            ("counter_threshold", self.counter_threshold, 1, u32::MAX),
            ("counter_groups_max", self.counter_groups_max, 1, 1 << 28),
            ("dma_commands_max", self.dma_commands_max, 1, 1 << 16),
            ("dma_pages_max", self.dma_pages_max, 1, 1 << 20),
            ("table_pages", self.table_pages_for(0), 0, 1 << 26),
        ];
        for (field, value, least, most) in bounds {
            if !(least..=most).contains(&value) {
                return Err(GeometryError::OutOfBounds { field, value, least, most });
            }
        }
        self.validate_shapes()
    }

    fn validate_shapes(&self) -> Result<(), GeometryError> {
        let (entries, ways) = (self.l2_entries, self.l2_ways);
        if entries % ways != 0 || !(entries / ways).is_power_of_two() {
            return Err(GeometryError::UnevenSets { entries, ways });
        }
        let (min, max) = (self.flexible_pages_min, self.flexible_pages_max);
        if min > max {
            return Err(GeometryError::FlexibleBounds { min, max });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_is_the_card_of_the_paper() {
        let paper = Geometry::default();
        assert_eq!(paper.validate(), Ok(()));
        assert_eq!((paper.l1_entries, paper.l2_entries), (32, 1024));
        assert_eq!((paper.flexible_entries, paper.flexible_pages_max), (32, 32768));
        assert_eq!(paper.fault_entries, 48);
        assert_eq!((paper.dma_commands_max, paper.dma_pages_max), (64, 4096));
    }

    #[test]
    fn sizes_that_make_no_card_are_refused_by_name() {
        let no_pe = Geometry { pes: 0, ..Geometry::default() };
        assert!(no_pe.validate().unwrap_err().to_string().contains("pes"));
        let uneven = Geometry { l2_entries: 1000, ..Geometry::default() };
        assert!(matches!(uneven.validate(), Err(GeometryError::UnevenSets { .. })));
        let inverted = Geometry { flexible_pages_min: 70000, ..Geometry::default() };
        assert!(matches!(inverted.validate(), Err(GeometryError::FlexibleBounds { .. })));
    }
}
