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

use farside_svm::PlacementScheme;
use farside_svm::placement::{
    Action, Decision, FaultView, PageMode, Parameters, Proposal, Sample, SchemeError, SchemeState,
};
use farside_types::{CardId, MAX_CARDS, MemoryId, PageNo, PageRange, Reason, Span, Time};
use serde::{Deserialize, Serialize};

use crate::machine::table::Table;
use crate::state::{Reader, Writer};

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
    pages: Table<PageNo, Tracked>,
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
        GriffinDpc { config, pages: Table::default(), interval: 0 }
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

impl PlacementScheme for GriffinDpc {
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
    fn mode(&self, _page: PageNo) -> PageMode {
        PageMode::AccessCounter
    }

    fn save_state(&self) -> SchemeState {
        let mut to = Writer::default();
        to.value(self).expect("numbers are written to memory");
        SchemeState::from_bytes(self.name(), to.into_bytes())
    }

    fn restore_state(&mut self, state: SchemeState) -> Result<(), String> {
        let mut from = Reader::new(state.bytes_of(self.name())?);
        *self = from.value().map_err(|refused| refused.to_string())?;
        from.end().map_err(|refused| refused.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use farside_svm::ObjectId;
    use farside_types::{Access, AgentSet, MemorySet};

    const PAGE: PageNo = PageNo(7);

    /// `card` writes a page that is at `owner`.
    fn fault(scheme: &mut GriffinDpc, card: u8, owner: Option<CardId>) -> Decision {
        let owner = owner.map(CardId::memory);
        scheme.on_fault(&FaultView {
            now: Time::ZERO,
            page: PAGE,
            object: ObjectId::default(),
            object_pages: PageRange::page(PAGE),
            agent: CardId(card).agent(),
            access: Access::Write,
            owner,
            copies: owner.map_or(MemorySet::EMPTY, MemorySet::only),
            mappers: AgentSet::EMPTY,
            room: 64,
            protection: false,
            may_lend: false,
            again: false,
            costs: None,
        })
    }

    /// Where the page is to go after so many intervals with these accesses by card.
    fn told(scheme: &mut GriffinDpc, intervals: u32, accesses: &[(u8, u32)]) -> Vec<MemoryId> {
        let sample = |&(card, accesses)| Sample { page: PAGE, card: CardId(card), accesses };
        let samples: Vec<Sample> = accesses.iter().map(sample).collect();
        let all = (0..intervals).flat_map(|_| scheme.on_samples(Time::ZERO, &samples));
        all.map(|proposal| proposal.to).collect()
    }

    fn touched() -> GriffinDpc {
        let mut scheme = GriffinDpc::new(GriffinConfig::default());
        assert_eq!(fault(&mut scheme, 0, None).action, Action::Migrate);
        let second = fault(&mut scheme, 1, Some(CardId(0)));
        assert_eq!(second.action, Action::MapRemote, "it stays where it was touched first");
        scheme
    }

    #[test]
    fn a_page_moves_to_the_card_it_has_become_dedicated_to() {
        let mut scheme = touched();
        assert!(told(&mut scheme, 100, &[(0, 10)]).is_empty());
        // Both counts are smoothed: it takes a while until the new one is twice the old one.
        assert!(told(&mut scheme, 10, &[(1, 10)]).is_empty());
        assert_eq!(told(&mut scheme, 60, &[(1, 10)]), [CardId(1).memory()]);
    }

    #[test]
    fn a_page_that_both_access_alike_stays() {
        assert!(told(&mut touched(), 200, &[(0, 10), (1, 11)]).is_empty());
    }

    #[test]
    fn it_goes_on_from_what_it_had_learnt() {
        let mut scheme = touched();
        told(&mut scheme, 100, &[(0, 10)]);
        let mut other = GriffinDpc::new(GriffinConfig::default());
        other.restore_state(scheme.save_state()).unwrap();
        let further = [10, 60].map(|intervals| told(&mut other, intervals, &[(1, 10)]));
        assert_eq!(further, [vec![], vec![CardId(1).memory()]]);
        assert!(other.restore_state(SchemeState::nothing()).unwrap_err().contains("griffin-dpc"));
        let damaged = SchemeState::from_bytes("griffin-dpc", vec![1, 2]);
        assert!(other.restore_state(damaged).is_err());
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
