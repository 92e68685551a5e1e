//! The experiments of the paper, each on a machine of its own: what is measured starts when nothing
//! else is under way.

use std::collections::BTreeMap;

use farside_types::{CardId, MemoryId, PAGE_SIZE, PageRange, Span};

use super::{CardMachine, CardsError, CardsSpec, JobReport, Layout, Migration, Work};

/// Where pages come from in the experiments between cards.
const SOURCE: CardId = CardId(0);
/// Where they go to.
const TARGET: CardId = CardId(1);

/// A machine with an array of `pages` pages that lies on the source card.
fn with_array(
    spec: &CardsSpec,
    pages: u64,
    layout: Layout,
) -> Result<(CardMachine, PageRange), CardsError> {
    let mut machine = CardMachine::new(spec.clone())?;
    let array = machine.allocate(pages * PAGE_SIZE as u64, "array")?;
    machine.place(array, SOURCE, layout)?;
    machine.settle()?;
    Ok((machine, array))
}

/// A user-managed migration of `pages` pages from card to card (Table II, Figures 5 and 6).
///
/// # Errors
/// [`CardsError`]: the specification cannot work, or the array does not fit a card.
pub fn card_to_card(spec: &CardsSpec, pages: u64, layout: Layout) -> Result<Migration, CardsError> {
    let (mut machine, array) = with_array(spec, pages, layout)?;
    let migration = machine.migrate(array, TARGET.memory())?;
    machine.settle()?;
    Ok(migration)
}

/// A user-managed migration from the host to a card (Figure 7).
///
/// # Errors
/// As for [`card_to_card`].
pub fn host_to_card(spec: &CardsSpec, pages: u64) -> Result<Migration, CardsError> {
    let mut machine = CardMachine::new(spec.clone())?;
    let array = machine.allocate(pages * PAGE_SIZE as u64, "array")?;
    machine.settle()?;
    let migration = machine.migrate(array, TARGET.memory())?;
    machine.settle()?;
    Ok(migration)
}

/// A user-managed migration from a card to the host (Figure 7).
///
/// # Errors
/// As for [`card_to_card`].
pub fn card_to_host(spec: &CardsSpec, pages: u64) -> Result<Migration, CardsError> {
    let (mut machine, array) = with_array(spec, pages, Layout::Contiguous)?;
    let migration = machine.migrate(array, MemoryId::HOST)?;
    machine.settle()?;
    Ok(migration)
}

/// The synthetic accelerator on an array of the other card, migrated on demand (Table I, ODPM).
///
/// # Errors
/// As for [`card_to_card`].
pub fn update_on_demand(spec: &CardsSpec, pages: u64) -> Result<JobReport, CardsError> {
    let (mut machine, array) = with_array(spec, pages, Layout::Contiguous)?;
    machine.run(TARGET, Work::Update { pages: array })
}

/// The synthetic accelerator on an array of the other card, migrated by the program before the job
/// is launched (Table I, UMPM).
///
/// # Errors
/// As for [`card_to_card`].
pub fn update_user_managed(spec: &CardsSpec, pages: u64) -> Result<JobReport, CardsError> {
    user_managed(spec, pages, |array| Work::Update { pages: array })
}

/// Chasing a list through `nodes` pages of an array of the other card, migrated on demand.
///
/// # Errors
/// As for [`card_to_card`].
pub fn chase_on_demand(spec: &CardsSpec, pages: u64, nodes: u64) -> Result<JobReport, CardsError> {
    let (mut machine, array) = with_array(spec, pages, Layout::Contiguous)?;
    machine.run(TARGET, Work::chase(array, nodes))
}

/// Chasing a list through `nodes` pages of an array, all of which the program migrated before.
///
/// # Errors
/// As for [`card_to_card`].
pub fn chase_user_managed(
    spec: &CardsSpec,
    pages: u64,
    nodes: u64,
) -> Result<JobReport, CardsError> {
    user_managed(spec, pages, |array| Work::chase(array, nodes))
}

fn user_managed(
    spec: &CardsSpec,
    pages: u64,
    work: impl FnOnce(PageRange) -> Work,
) -> Result<JobReport, CardsError> {
    let (mut machine, array) = with_array(spec, pages, Layout::Contiguous)?;
    let migration = machine.migrate(array, TARGET.memory())?;
    let job = machine.run(TARGET, work(array))?;
    Ok(JobReport { time: migration.time + job.time, ..job })
}

/// Every card's migrations to every other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AllToAll {
    /// Until the last page is in place.
    pub time: Span,
    /// Pages that moved.
    pub pages: u64,
}

impl AllToAll {
    /// GB moved a second, all cards together.
    pub fn gb_per_s(&self) -> f64 {
        self.pages as f64 * PAGE_SIZE as f64 / self.time.as_secs_f64() / 1e9
    }
}

/// Every card sends an array of `pages` pages to every other card, all at once.
///
/// # Errors
/// As for [`card_to_card`].
pub fn all_to_all(spec: &CardsSpec, pages: u64) -> Result<AllToAll, CardsError> {
    let mut machine = CardMachine::new(spec.clone())?;
    let cards: Vec<CardId> = (0..spec.machine.cards).map(|card| CardId(card as u8)).collect();
    let mut arrays = BTreeMap::new();
    for &from in &cards {
        for &to in cards.iter().filter(|&&to| to != from) {
            let array = machine.allocate(pages * PAGE_SIZE as u64, "array")?;
            machine.place(array, from, Layout::Contiguous)?;
            arrays.insert((from, to), array);
        }
    }
    machine.settle()?;
    let moves = rounds(&cards, &arrays);
    let time = machine.migrate_all(&moves)?;
    machine.settle()?;
    Ok(AllToAll { time, pages: pages * moves.len() as u64 })
}

/// The moves in rounds in which every card sends once and receives once.
fn rounds(
    cards: &[CardId],
    arrays: &BTreeMap<(CardId, CardId), PageRange>,
) -> Vec<(PageRange, MemoryId)> {
    let count = cards.len();
    let pairs = (1..count).flat_map(|round| (0..count).map(move |i| (i, (i + round) % count)));
    pairs
        .filter_map(|(from, to)| {
            let (from, to) = (cards[from], cards[to]);
            Some((*arrays.get(&(from, to))?, to.memory()))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cards::Transport;

    #[test]
    fn print() {
        let t2 = [
            [16.3, 24.6, 50.4, 310., 1080., 8420.],
            [11.6, 16.4, 36.4, 220., 810., 6300.],
            [12.7, 18.5, 37.5, 210., 760., 5970.],
        ];
        let odpm = [
            [45.7, 60.4, 160., 1010., 3900., 30300.],
            [33.5, 54.2, 140., 830., 3200., 23700.],
            [34.4, 55.2, 150., 870., 3310., 25700.],
        ];
        let umpm = [
            [38.2, 47.4, 110., 610., 2180., 16900.],
            [27.0, 41.2, 90., 530., 1910., 14800.],
            [27.6, 42.1, 100., 520., 1860., 14500.],
        ];
        let sizes = [1u64, 8, 32, 256, 1024, 8192];
        let mut sums = [0.0; 3];
        for (t, transport) in Transport::ALL.into_iter().enumerate() {
            let spec = CardsSpec::default().with_transport(transport);
            for (i, &n) in sizes.iter().enumerate() {
                let m = card_to_card(&spec, n, Layout::Contiguous).unwrap();
                let s = card_to_card(&spec, n, Layout::Scattered).unwrap();
                let o = update_on_demand(&spec, n).unwrap();
                let u = update_user_managed(&spec, n).unwrap();
                let us = |x: Span| x.as_micros_f64();
                let e = |x: Span, p: f64| (us(x) / p - 1.0) * 100.0;
                sums[0] += e(m.time, t2[t][i]).abs() / 18.0;
                sums[1] += e(o.time, odpm[t][i]).abs() / 18.0;
                sums[2] += e(u.time, umpm[t][i]).abs() / 18.0;
                println!(
                    "{:9} {n:5}: T2 {:9.1} {:+5.1}% scat {:9.1} | OD {:9.1} {:+5.1}% b{} | UM {:9.1} {:+5.1}% | setup {:.1} dma {:.1} fin {:.1} sum {:.1}",
                    transport.name(),
                    us(m.time),
                    e(m.time, t2[t][i]),
                    us(s.time),
                    us(o.time),
                    e(o.time, odpm[t][i]),
                    o.batches,
                    us(u.time),
                    e(u.time, umpm[t][i]),
                    100.0 * us(m.steps.setup) / us(m.time),
                    100.0 * us(m.steps.dma) / us(m.time),
                    100.0 * us(m.steps.finalize) / us(m.time),
                    us(m.steps.total()),
                );
            }
        }
        println!("mean {sums:?}");
        for &n in &sizes {
            let spec = CardsSpec::default();
            println!(
                "{n} h2d {:?} d2h {:?}",
                host_to_card(&spec, n).unwrap(),
                card_to_host(&spec, n).unwrap().time
            );
        }
    }
}
