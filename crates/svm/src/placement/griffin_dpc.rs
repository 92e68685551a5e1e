//! Griffin's dynamic page classification (Baruah et al., HPCA 2020, section III).
//!
//! A page goes to the GPU that touches it first; others reach it there. In fixed intervals every
//! GPU's accesses to every page are collected and smoothed, and say what the page is: mostly
//! dedicated to one GPU, shared, on its way from one owner to the next, or out of interest. Pages
//! that are dedicated to another GPU, or are becoming its, move there.
//!
//! Griffin's asynchronous draining is a matter of the simulated machine. Its scheduling of
//! CPU-to-GPU moves and its delayed first touch are not part of what GRIT compares with (section
//! VI-C1: classification, and draining) and are left out.

use std::collections::HashMap;

use farside_types::{CardId, MAX_CARDS, MemoryId, PageNo, PageRange, Reason, Span, Time};
use serde::{Deserialize, Serialize};

use super::parameters::Parameters;
use super::{Action, Decision, FaultView, Placement, Proposal, Sample, Scheme, SchemeError};
use crate::hash::IndexHash;

/// What the classification is made with. Defaults: Griffin's hyper-parameters, at 1 GHz.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct GriffinConfig {
    /// Interval in which accesses are collected (1000 cycles).
    pub every: Span,
    /// Weight of the newest interval in the smoothed count.
    pub alpha: f64,
    /// A page is dedicated to a GPU with this many times the accesses of the next.
    pub dedicated: f64,
    /// A page is shared if the GPU with most has fewer than this many times those of the next.
    pub shared: f64,
    /// A change of a count by more than this share is a trend; a page of which nobody has as many
    /// accesses in an interval is out of interest.
    pub trend: f64,
}

impl Default for GriffinConfig {
    fn default() -> GriffinConfig {
        let every = Span::from_nanos(1_000);
        GriffinConfig { every, alpha: 0.03, dedicated: 2.0, shared: 1.3, trend: 0.03 }
    }
}

/// Page classification.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct GriffinDpc {
    config: GriffinConfig,
    /// Looked up by page only: no result depends on its order.
    pages: HashMap<PageNo, Tracked, IndexHash>,
    interval: u64,
}

/// What is known of a page.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Tracked {
    /// Smoothed accesses per interval, by card; as many as have accessed it.
    counts: Vec<f64>,
    /// The interval of `counts`.
    interval: u64,
    /// Where it is, as far as the scheme was told.
    at: Option<MemoryId>,
}

/// What a page is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    /// Almost only this card accesses it.
    Dedicated(CardId),
    /// Several cards access it alike.
    Shared,
    /// This card accesses it more and more, and more than others.
    Shifting(CardId),
    /// Nobody accesses it, or nothing can be said.
    OutOfInterest,
}

impl GriffinDpc {
    /// With these parameters.
    pub fn new(config: GriffinConfig) -> GriffinDpc {
        GriffinDpc { config, pages: HashMap::default(), interval: 0 }
    }

    pub(super) fn from_parameters(
        parameters: &mut Parameters<'_>,
    ) -> Result<GriffinDpc, SchemeError> {
        let default = GriffinConfig::default();
        let nanos = (default.every.0 / 1_000) as u32;
        let about = "ns in which accesses are collected before pages are classified";
        let nanos = parameters.number("interval_ns", nanos, 1..=1_000_000_000, about)?;
        let alpha = (default.alpha * 1000.0) as u32;
        let about = "weight of the newest interval, in thousandths";
        let alpha = parameters.number("alpha_permille", alpha, 1..=1000, about)?;
        let every = Span::from_nanos(nanos.into());
        let alpha = f64::from(alpha) / 1000.0;
        Ok(GriffinDpc::new(GriffinConfig { every, alpha, ..default }))
    }

    /// Enters the samples of one page and says what it has become.
    fn classify(&mut self, page: PageNo, samples: &[Sample]) -> Class {
        let (config, interval) = (self.config, self.interval);
        let tracked = self.pages.entry(page).or_insert(Tracked::new(interval));
        let kept = power(1.0 - config.alpha, interval - tracked.interval);
        tracked.interval = interval;
        tracked.counts.iter_mut().for_each(|count| *count *= kept);
        let before = tracked.counts.clone();
        for sample in samples {
            *tracked.count_mut(sample.card) += config.alpha * f64::from(sample.accesses);
        }
        class(&config, &before, &tracked.counts)
    }
}

impl Tracked {
    fn new(interval: u64) -> Tracked {
        Tracked { counts: Vec::new(), interval, at: None }
    }

    fn count_mut(&mut self, card: CardId) -> &mut f64 {
        let card = card.0 as usize;
        if card >= self.counts.len() {
            self.counts.resize(card + 1, 0.0);
        }
        &mut self.counts[card]
    }
}

/// What a page with these counts is; `before` are the counts before the latest samples, decayed.
fn class(config: &GriffinConfig, before: &[f64], counts: &[f64]) -> Class {
    let mut order: Vec<usize> = (0..counts.len().min(MAX_CARDS)).collect();
    // Equal counts: the lower number comes first.
    order.sort_by(|&a, &b| counts[b].total_cmp(&counts[a]));
    let Some(&top) = order.first() else { return Class::OutOfInterest };
    let first = counts[top];
    let second = order.get(1).map_or(0.0, |&card| counts[card]);
    let card = CardId(top as u8);
    if first < config.trend {
        Class::OutOfInterest
    } else if first >= config.dedicated * second {
        Class::Dedicated(card)
    } else if first < config.shared * second {
        Class::Shared
    } else if first > before.get(top).copied().unwrap_or(0.0) * (1.0 + config.trend) {
        Class::Shifting(card)
    } else {
        Class::Shared
    }
}

/// `base` to the power of `exponent`, by the same multiplications on every machine.
fn power(mut base: f64, mut exponent: u64) -> f64 {
    let mut result = 1.0;
    while exponent > 0 {
        if exponent & 1 == 1 {
            result *= base;
        }
        base *= base;
        exponent >>= 1;
    }
    result
}

impl Placement for GriffinDpc {
    fn name(&self) -> &'static str {
        "griffin-dpc"
    }

    fn on_fault(&mut self, fault: &FaultView) -> Decision {
        let interval = self.interval;
        let tracked = self.pages.entry(fault.page).or_insert(Tracked::new(interval));
        let on_card = fault.owner.filter(|memory| !memory.is_host());
        let (action, at) = match on_card {
            Some(memory) => (Action::MapRemote, memory),
            None => (Action::Migrate, fault.agent.home()),
        };
        tracked.at = Some(at);
        Decision::page(action, Reason::Demand)
    }

    fn sample_every(&self) -> Option<Span> {
        Some(self.config.every)
    }

    fn on_samples(&mut self, _now: Time, samples: &[Sample]) -> Vec<Proposal> {
        self.interval += 1;
        let mut proposals = Vec::new();
        for of_page in samples.chunk_by(|a, b| a.page == b.page) {
            let page = of_page[0].page;
            let (Class::Dedicated(card) | Class::Shifting(card)) = self.classify(page, of_page)
            else {
                continue;
            };
            let to = card.memory();
            let tracked = self.pages.get_mut(&page).filter(|tracked| tracked.at != Some(to));
            if let Some(tracked) = tracked {
                tracked.at = Some(to);
                let pages = PageRange::page(page);
                proposals.push(Proposal { pages, to, reason: Reason::Counter });
            }
        }
        proposals
    }

    fn on_free(&mut self, pages: PageRange) {
        if !self.pages.is_empty() {
            self.pages.retain(|&page, _| !pages.contains(page));
        }
    }

    /// Pages are mapped where they are, and move by how often they are accessed.
    fn scheme(&self, _page: PageNo) -> Scheme {
        Scheme::AccessCounter
    }

    fn save_state(&self) -> super::SchemeState {
        super::SchemeState(super::state::Kind::GriffinDpc(self.clone()))
    }

    fn restore_state(&mut self, state: super::SchemeState) -> Result<(), String> {
        match state.0 {
            super::state::Kind::GriffinDpc(saved) => *self = saved,
            _ => return Err(state.is_not_of(self.name())),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Event;
    use crate::placement::bed::Bed;

    fn told(bed: &mut Bed, intervals: u32, accesses: &[(u8, u32)]) {
        let page = bed.page(0);
        let sample = |&(card, accesses)| Sample { page, card: CardId(card), accesses };
        let samples: Vec<Sample> = accesses.iter().map(sample).collect();
        for _ in 0..intervals {
            bed.tell(Event::Samples { samples: &samples });
        }
    }

    fn touched() -> Bed {
        let mut bed = Bed::new("griffin-dpc", 2, 64, 4);
        bed.write(0, bed.page(0));
        bed.write(1, bed.page(0));
        assert_eq!(bed.copies(bed.page(0)), [1], "it stays where it was touched first");
        bed
    }

    #[test]
    fn a_page_moves_to_the_card_it_has_become_dedicated_to() {
        let mut bed = touched();
        told(&mut bed, 100, &[(0, 10)]);
        assert_eq!(bed.copies(bed.page(0)), [1]);
        // Both counts are smoothed: it takes a while until the new one is twice the old one.
        told(&mut bed, 10, &[(1, 10)]);
        assert_eq!(bed.copies(bed.page(0)), [1]);
        told(&mut bed, 60, &[(1, 10)]);
        assert_eq!(bed.copies(bed.page(0)), [2]);
    }

    #[test]
    fn a_page_that_both_access_alike_stays() {
        let mut bed = touched();
        told(&mut bed, 200, &[(0, 10), (1, 11)]);
        assert_eq!(bed.copies(bed.page(0)), [1]);
    }

    #[test]
    fn classes_are_those_of_the_paper() {
        let config = GriffinConfig::default();
        let of = |before: &[f64], counts: &[f64]| class(&config, before, counts);
        assert_eq!(of(&[0.0; 2], &[0.0, 0.01]), Class::OutOfInterest);
        assert_eq!(of(&[4.0, 2.0], &[4.0, 2.0]), Class::Dedicated(CardId(0)));
        assert_eq!(of(&[4.0, 3.5], &[4.0, 3.5]), Class::Shared);
        assert_eq!(of(&[3.0, 2.0], &[3.0, 2.0]), Class::Shared, "more, but no trend");
        assert_eq!(of(&[2.8, 2.0], &[3.0, 2.0]), Class::Shifting(CardId(0)));
    }
}
