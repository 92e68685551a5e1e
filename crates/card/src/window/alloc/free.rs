//! Free: checked, marked, and left to the sweep.

use super::allocator::{AllocStep, Allocator, Kind, Pending};
use super::bus::TableBus;
use super::mutation::AllocMutation;
use super::status::AllocError;
use super::sweep::{Dying, Stage};

impl Allocator {
    /// Two accesses, then the invalidation; of a large allocation none before it.
    pub(super) fn free(
        &mut self,
        bus: &mut impl TableBus,
        address: u64,
    ) -> Result<AllocStep, AllocError> {
        let found = self.locate(bus, address, false)?;
        let is_large = matches!(found.kind, Kind::Large(_));
        self.dying.push_back(Dying::freed(found.pages, is_large));
        if let Kind::Small { table, word } = found.kind {
            let at = self.word_address(table, found.pages.first);
            bus.write(at, word.freed().0);
            if bus.wait().is_err() {
                // Whether it is marked is not known. As it was before, nothing has changed; else it goes, and the
                // sweep finds out page by page what can be used again.
                bus.write(at, word.0);
                if bus.wait().is_ok() {
                    self.dying.pop_back();
                    return Err(AllocError::BusError);
                }
            }
        }
        self.forget_doubt(found.pages.first);
        self.touches.words_changed();
        if self.mutated.on(AllocMutation::FreeTellsNobody) {
            if let Some(dying) = self.dying.back_mut() {
                dying.stage = Stage::Sweeping;
            }
            return Ok(AllocStep::Answer(Ok(0)));
        }
        self.pending = Some(Pending::Answer(0));
        Ok(AllocStep::Invalidate(found.pages))
    }
}
