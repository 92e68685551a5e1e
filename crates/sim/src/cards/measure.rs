//! The experiments of the paper, each on a machine of its own: what is measured starts when nothing
//! else is under way.

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

/// Migrations between all cards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exchange {
    /// Until the last page is mapped.
    pub time: Span,
    /// Pages that moved.
    pub pages: u64,
}

impl Exchange {
    /// GB moved a second, all cards together.
    pub fn gb_per_s(&self) -> f64 {
        self.pages as f64 * PAGE_SIZE as f64 / self.time.as_secs_f64() / 1e9
    }
}

/// Every card sends an array of `pages` pages to every other card, all at once. A thread of the
/// program per card asks for its card's arrays: as many threads carry the driver's commands out,
/// and as many migrations may be under way as there are arrays.
///
/// # Errors
/// As for [`card_to_card`].
pub fn all_to_all(spec: &CardsSpec, pages: u64) -> Result<Exchange, CardsError> {
    exchange(spec, pages, |_, _| true)
}

/// As [`all_to_all`], but everything goes to the last card.
///
/// # Errors
/// As for [`card_to_card`].
pub fn all_to_one(spec: &CardsSpec, pages: u64) -> Result<Exchange, CardsError> {
    let last = CardId((spec.machine.cards.saturating_sub(1)) as u8);
    exchange(spec, pages, |_, to| to == last)
}

fn exchange(
    spec: &CardsSpec,
    pages: u64,
    wanted: impl Fn(CardId, CardId) -> bool,
) -> Result<Exchange, CardsError> {
    let mut spec = spec.clone();
    spec.host.processors = spec.machine.cards;
    let count = spec.machine.cards;
    // Rounds in which every card sends once and receives once.
    let rounds = (1..count).flat_map(|round| (0..count).map(move |i| (i, (i + round) % count)));
    let pairs: Vec<(CardId, CardId)> = rounds
        .map(|(from, to)| (CardId(from as u8), CardId(to as u8)))
        .filter(|&(from, to)| wanted(from, to))
        .collect();
    spec.driver.chains = spec.driver.chains.max(pairs.len() as u32);
    let mut machine = CardMachine::new(spec)?;
    let mut moves = Vec::with_capacity(pairs.len());
    for (from, to) in pairs {
        let array = machine.allocate(pages * PAGE_SIZE as u64, "array")?;
        machine.place(array, from, Layout::Contiguous)?;
        moves.push((array, to.memory()));
    }
    machine.settle()?;
    let time = machine.migrate_all(&moves)?;
    machine.settle()?;
    Ok(Exchange { time, pages: pages * moves.len() as u64 })
}
