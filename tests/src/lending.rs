//! A placement scheme that lends by chance what another would copy or move for a reader.

use farside_svm::placement::{
    CounterView, Decision, FaultView, PageMode, PlacedView, PlacementScheme, Proposal, SchemeState,
    Scope,
};
use farside_svm::{Advice, Evidence};
use farside_types::{PageNo, PageRange, Time};

use crate::prng::Prng;

/// See the module.
#[derive(Debug)]
pub(crate) struct Lending {
    inner: Box<dyn PlacementScheme>,
    rng: Prng,
    permille: u32,
}

impl Lending {
    pub(crate) fn new(inner: Box<dyn PlacementScheme>, seed: u64, permille: u32) -> Lending {
        Lending { inner, rng: Prng::new(seed), permille }
    }
}

impl PlacementScheme for Lending {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn grain(&self) -> u64 {
        self.inner.grain()
    }

    fn on_fault(&mut self, fault: &FaultView) -> Decision {
        let decision = self.inner.on_fault(fault);
        let lends = fault.may_lend && self.rng.chance(self.permille);
        if lends && fault.access.is_write() {
            // Its neighbours, that is.
            return Decision { lends, ..decision.over(Scope::Group) };
        }
        Decision { lends: decision.lends || lends, ..decision }
    }

    fn on_counter(&mut self, notice: &CounterView, decisions: &mut Vec<Decision>) {
        self.inner.on_counter(notice, decisions);
    }

    fn on_alloc(&mut self, pages: PageRange) {
        self.inner.on_alloc(pages);
    }

    fn on_written(&mut self, pages: PageRange, written: bool) {
        self.inner.on_written(pages, written);
    }

    fn on_free(&mut self, pages: PageRange) {
        self.inner.on_free(pages);
    }

    fn mode(&self, page: PageNo) -> PageMode {
        self.inner.mode(page)
    }

    fn explain(&self, page: &PlacedView) -> (PageMode, Vec<Evidence>) {
        self.inner.explain(page)
    }

    fn save_state(&self) -> SchemeState {
        self.inner.save_state()
    }

    fn restore_state(&mut self, state: SchemeState) -> Result<(), String> {
        self.inner.restore_state(state)
    }

    fn on_hint(&mut self, pages: PageRange, advice: Advice) {
        self.inner.on_hint(pages, advice);
    }

    fn on_tick(&mut self, now: Time) -> Vec<Proposal> {
        self.inner.on_tick(now)
    }

    fn next_tick(&self) -> Option<Time> {
        self.inner.next_tick()
    }
}
