//! What a card counts.

use serde::{Deserialize, Serialize};

/// Counters since the card was made; never reset. In events, unless it says pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct CardStats {
    /// Lookups that hit in the L1 TLB.
    pub l1_hits: u64,
    /// Lookups that hit in the L2 TLB.
    pub l2_hits: u64,
    /// Lookups that hit in a flexible entry.
    pub flexible_hits: u64,
    /// Lookups that hit nowhere.
    pub misses: u64,
    /// Lookups that the tables answered, because no TLB could.
    pub walks: u64,
    /// Pages mapped that found no room in the tables.
    pub table_full: u64,
    /// Lookups that hit with too few rights.
    pub rights_misses: u64,
    /// L2 entries that made room.
    pub l2_evictions: u64,
    /// Flexible entries, or parts of split ones, that found no room.
    pub flexible_evictions: u64,
    /// Faults that got an entry.
    pub faults_raised: u64,
    /// Faults that joined an open one.
    pub faults_joined: u64,
    /// Times a processing element stalled because the fault queue was full.
    pub fault_queue_full: u64,
    /// Faults lost. The queue never drops one: always 0.
    pub faults_dropped: u64,
    /// Processing elements that a resume gave their memory.
    pub grants_resumed: u64,
    /// Processing elements that a resume sent back to raise their fault again.
    pub retries: u64,
    /// Processing elements whose fault was answered with an error.
    pub cancels: u64,
    /// Answers to faults that are no longer open.
    pub stale_answers: u64,
    /// Memory acquired without a fault.
    pub grants_direct: u64,
    /// Pages mapped.
    pub pages_mapped: u64,
    /// Mapping commands refused.
    pub mappings_refused: u64,
    /// Invalidations and protections that drained.
    pub drains: u64,
    /// Those of them that had to wait for accesses in flight.
    pub drains_waited: u64,
    /// Accesses to pages in other memories; a page of an acquired range counts once.
    pub remote_accesses: u64,
    /// Those of them that were pages of acquired ranges; the others are words.
    pub remote_pages: u64,
    /// Counter groups reported.
    pub counter_notices: u64,
    /// Counter groups not counted, or no longer, because too many were.
    pub counter_groups_forgotten: u64,
}
