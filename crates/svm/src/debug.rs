//! What is open, for bug reports: chains, requests and who waits for what.

use std::fmt;

use crate::Driver;
use crate::migration::chain::Stage;

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "driver ({})", self.placement.name())?;
        for (id, chain) in self.chains.named() {
            if chain.stage == Stage::Idle {
                continue;
            }
            writeln!(
                f,
                "  {id} epoch {} {:?} for {:?}: pending {:?}, due {:?}",
                chain.epoch, chain.stage, chain.purpose.request, chain.pending, chain.deadline
            )?;
            for part in &chain.parts {
                writeln!(f, "    {:?} {:?}", part.transition, part.runs)?;
            }
        }
        for (id, request) in &self.requests {
            writeln!(f, "  {id}: {request:?}")?;
        }
        for (index, card) in self.cards.iter().enumerate() {
            writeln!(
                f,
                "  card {index}: {} of {} frames free, {} quarantined, {} on the way out, \
                 {} jobs",
                card.frames.free(),
                card.frames.total(),
                card.frames.quarantined(),
                card.evicting,
                card.running
            )?;
        }
        for reservation in &self.reservations {
            writeln!(f, "  pages reserved for {:?}", reservation.key)?;
        }
        for (until, queue) in self.waiting.iter() {
            writeln!(f, "  until {until:?}: {queue:?}")?;
        }
        writeln!(f, "  to be planned: {:?}", self.work)
    }
}
