//! GRIT: fine-grained dynamic page placement (Wang et al., HPCA 2024).
//!
//! Every page has a scheme of its own: on-touch migration at first, then duplication or
//! access-counter migration. A page's faults say when its scheme does not fit (the Fault-Aware
//! Initiator, section V-B); the PA-Table says what its accesses were ([`pa_table`], section V-C);
//! pages around it follow it ([`neighbours`], section V-D). Each part can be switched off, for the
//! paper's ablation (Figure 20).
//!
//! What counts is a fault of a card that reaches the driver: a page without a translation (local
//! page fault) and a write to a page that is mapped for reading (page protection fault). Not
//! counted are faults of the CPU, a fault that waited for room and comes again, and the write after
//! a read of a page whose only other copy is the clean one that the host kept
//! ([`crate::Config::keep_clean_copies`]): nobody shares such a page.

use farside_types::{MemoryId, MemorySet, PageNo, PageRange, Reason};
use serde::{Deserialize, Serialize};

use super::parameters::Parameters;
use super::{
    Action, CounterView, Decision, FaultView, PageMode, PlacedView, PlacementScheme, SchemeError,
    Scope,
};
use crate::Evidence;

mod neighbours;
mod pa_cache;
mod pa_table;
mod scheme_bits;
mod sheets;

use pa_table::PaTable;
pub use pa_table::{cache_bits, table_entry_bits};
use scheme_bits::SchemeBits;

/// What GRIT is made with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GritConfig {
    /// The fault of a page that changes its scheme; the paper's default is the fourth.
    pub threshold: u16,
    /// Whether the PA-Table has a cache in front of it.
    pub cache: bool,
    /// Whether neighbours are predicted.
    pub neighbours: bool,
}

impl Default for GritConfig {
    fn default() -> GritConfig {
        GritConfig { threshold: 4, cache: true, neighbours: true }
    }
}

/// The scheme.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Grit {
    config: GritConfig,
    table: PaTable,
    bits: SchemeBits,
}

impl Grit {
    /// With these parts.
    pub fn new(config: GritConfig) -> Grit {
        let table = PaTable::new(config.cache);
        Grit { config, table, bits: SchemeBits::default() }
    }

    pub(super) fn from_parameters(parameters: &mut Parameters<'_>) -> Result<Grit, SchemeError> {
        let default = GritConfig::default();
        let (count, most) = (default.threshold.into(), u32::from(u16::MAX));
        let threshold = "faults of a page until its scheme is decided anew";
        let cache = "the PA-Cache in front of the PA-Table";
        let neighbours = "pages get the scheme that most pages around them have";
        Ok(Grit::new(GritConfig {
            threshold: parameters.number("threshold", count, 1..=most, threshold)? as u16,
            cache: parameters.switch("cache", default.cache, cache)?,
            neighbours: parameters.switch("neighbours", default.neighbours, neighbours)?,
        }))
    }

    /// The Fault-Aware Initiator: counts the fault and changes the scheme when there are too many.
    fn initiate(&mut self, fault: &FaultView) {
        let write = fault.access.is_write();
        let Some(written) = self.table.count(fault.page, write, self.config.threshold) else {
            return;
        };
        // Figure 13: a page with that many faults is shared; only its writes are asked for.
        let scheme = if written { PageMode::AccessCounter } else { PageMode::Duplication };
        // A decision for the scheme it has anyway must not push the neighbours back and forth.
        if scheme == self.bits.mode(fault.page) {
            return;
        }
        if self.config.neighbours {
            self.bits.change(fault.page, scheme);
        } else {
            self.bits.set_scheme(fault.page, scheme);
        }
    }
}

impl PlacementScheme for Grit {
    fn name(&self) -> &'static str {
        "grit"
    }

    fn on_fault(&mut self, fault: &FaultView) -> Decision {
        if counts(fault) {
            self.initiate(fault);
        }
        match self.bits.mode(fault.page) {
            PageMode::OnTouch => Decision::page(Action::Migrate, Reason::Demand),
            PageMode::Duplication => {
                let collapse = fault.access.is_write() && fault.copies.len() > 1;
                let reason = if collapse { Reason::Collapse } else { Reason::Demand };
                Decision::page(Action::Duplicate, reason)
            }
            // What is left of a duplication is taken away: the page stays with who asks.
            PageMode::AccessCounter if is_duplicated(fault) => {
                let write = fault.access.is_write();
                let reason = if write { Reason::Collapse } else { Reason::Demand };
                Decision::page(Action::Migrate, reason)
            }
            PageMode::AccessCounter => {
                // Pages of other cards are mapped remotely; one on the host moves (section II-B2).
                let comes = fault.owner.is_none_or(MemoryId::is_host);
                let action = if comes { Action::Migrate } else { Action::MapRemote };
                Decision::page(action, Reason::Demand)
            }
        }
    }

    /// The pages of the group that are under access-counter migration move.
    fn on_counter(&mut self, notice: &CounterView, decisions: &mut Vec<Decision>) {
        let counted = |page: &PageNo| self.bits.mode(*page) == PageMode::AccessCounter;
        let decide = |run| Decision::page(Action::Migrate, Reason::Counter).over(Scope::Range(run));
        let mut run = PageRange::default();
        for page in notice.pages.pages().filter(counted) {
            if run.is_empty() || run.end() != page {
                decisions.extend((!run.is_empty()).then(|| decide(run)));
                run = PageRange::page(page);
            } else {
                run.count += 1;
            }
        }
        decisions.extend((!run.is_empty()).then(|| decide(run)));
    }

    fn on_free(&mut self, pages: PageRange) {
        self.table.forget(pages);
        self.bits.forget(pages);
    }

    fn mode(&self, page: PageNo) -> PageMode {
        self.bits.mode(page)
    }

    fn explain(&self, page: &PlacedView) -> (PageMode, Vec<Evidence>) {
        let there = page.owner.is_some_and(|owner| !owner.is_host());
        let alone = page.copies.without(MemoryId::HOST).len() == 1;
        let mode = match self.bits.mode(page.page) {
            // One on the host moves, and so does what is left of a duplication.
            PageMode::AccessCounter if !(there && alone) => PageMode::OnTouch,
            mode => mode,
        };
        (mode, Vec::new())
    }

    fn table_accesses(&mut self) -> u32 {
        self.table.take_accesses()
    }

    fn save_state(&self) -> super::SchemeState {
        super::SchemeState(super::state::Learnt::Grit(self.clone()))
    }

    fn restore_state(&mut self, state: super::SchemeState) -> Result<(), String> {
        match state.0 {
            super::state::Learnt::Grit(saved) => *self = saved,
            _ => return Err(state.is_not_of(self.name())),
        }
        Ok(())
    }
}

/// Whether the fault says something about sharing.
fn counts(fault: &FaultView) -> bool {
    let home = fault.agent.home();
    let others = fault.copies.without(home).without(MemoryId::HOST);
    let alone = fault.protection && others.is_empty() && fault.owner == Some(home);
    !fault.agent.is_cpu() && !fault.again && !alone
}

/// Whether a duplication left copies: on several cards, or on one beside the host's page. (A host's
/// frame beside the page of the card that owns it is no duplication: it is kept for clean
/// departures.)
fn is_duplicated(fault: &FaultView) -> bool {
    let cards: MemorySet = fault.copies.without(MemoryId::HOST);
    cards.len() > 1 || (!cards.is_empty() && fault.owner == Some(MemoryId::HOST))
}

#[cfg(test)]
mod tests;
