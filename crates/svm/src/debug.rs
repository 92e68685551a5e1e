//! What is open, for bug reports: chains, requests and who waits for what.

use std::fmt;

use crate::Driver;
use crate::migration::chain::Stage;

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "driver ({})", self.placement.name())?;
        for (index, chain) in self.chains.iter().enumerate() {
            if chain.stage == Stage::Idle {
                continue;
            }
            writeln!(
                f,
                "  chain {index} epoch {} {:?} for {:?}: pending {:?}, waiters {:?}, due {:?}",
                chain.epoch,
                chain.stage,
                chain.request,
                chain.pending,
                chain.waiters,
                chain.deadline
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
                 {} jobs, waiting {:?}",
                card.frames.free(),
                card.frames.total(),
                card.frames.quarantined(),
                card.evicting,
                card.running,
                card.waiting
            )?;
        }
        for claim in &self.claims {
            writeln!(f, "  claim {:?}, waiters {:?}", claim.key, claim.waiters)?;
        }
        writeln!(f, "  work {:?}, wait for a chain {:?}", self.work, self.chain_waiters)
    }
}
