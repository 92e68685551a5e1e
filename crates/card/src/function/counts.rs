//! What a function counts beside its card.

use crate::Card;
use crate::interface::register::COUNTER_NAMES;

/// Counters since the function was made; a reset leaves them.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Counts {
    pub(super) commands: u64,
    pub(super) commands_refused: u64,
    pub(super) foreign_frames_refused: u64,
    pub(super) completions: u64,
    pub(super) faults_written: u64,
    pub(super) notices_written: u64,
    pub(super) interrupts: u64,
    pub(super) doorbells: u64,
    pub(super) jobs_started: u64,
    pub(super) jobs_done: u64,
    pub(super) dma_pages: u64,
}

impl Counts {
    /// The counter registers, in the order of [`COUNTER_NAMES`].
    pub(super) fn registers(&self, card: &Card) -> [u64; COUNTER_NAMES.len()] {
        let stats = card.stats();
        [
            self.commands,
            self.commands_refused,
            self.foreign_frames_refused,
            self.completions,
            self.faults_written,
            self.notices_written,
            self.interrupts,
            self.doorbells,
            self.jobs_started,
            self.jobs_done,
            stats.l1_hits,
            stats.l2_hits,
            stats.flexible_hits,
            stats.misses,
            stats.rights_misses,
            stats.faults_raised,
            stats.faults_joined,
            stats.fault_queue_full,
            stats.pages_mapped,
            stats.drains,
            stats.drains_waited,
            stats.remote_accesses,
            self.dma_pages,
            stats.counter_groups_forgotten,
            stats.stale_answers,
            stats.walks,
            stats.table_full,
        ]
    }
}
