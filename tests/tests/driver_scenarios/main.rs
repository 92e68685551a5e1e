//! Named scenarios: what must always hold of the driver, one case at a time, on a world where
//! nothing is left to chance. Numbers in the names are those of the list of invariants.
//!
//! Every `drive` ends with the whole check of a quiet point: bytes against the flat memory, the
//! machine's tables against the directory, the residency map against the page table.

mod copies;
mod failures;
mod faults;
mod memory;
mod regressions;
mod shadows;

use farside_svm::{Eviction, PageState, Request};
use farside_types::{CardId, MemoryId, PageRange, StreamId};
use harness::{Failure, WordAccess, World};

/// Who leaves a full card, in either way.
const EVICTIONS: [Eviction; 2] = [Eviction::Lirs, Eviction::Clock];
const A: CardId = CardId(0);
const B: CardId = CardId(1);
const C: CardId = CardId(2);

/// What a test returns: the rule that was broken, with the log.
type Checked = Result<(), Failure>;

fn stream(card: CardId) -> StreamId {
    StreamId(u32::from(card.0))
}

fn writes(range: PageRange) -> Vec<WordAccess> {
    range.pages().map(|page| WordAccess::increment(page, 0)).collect()
}

/// The program has written every page once.
fn write_all(world: &mut World, range: PageRange) -> Checked {
    world.cpu(writes(range));
    world.drive()
}

fn loads(range: PageRange) -> Vec<WordAccess> {
    range.pages().map(|page| WordAccess::load(page, 0)).collect()
}

fn sub(range: PageRange, first: u64, count: u64) -> PageRange {
    PageRange::new(range.start.offset(first), count)
}

fn migrate(world: &mut World, range: PageRange, to: MemoryId) -> Checked {
    let answer = world.ask(Request::Migrate { range, to })?;
    assert!(answer.is_ok(), "{answer:?}");
    Ok(())
}

fn all_in(world: &World, range: PageRange, state: PageState) -> bool {
    range.pages().all(|page| world.driver.page(page).state == state)
}

fn all_at(world: &World, range: PageRange, memory: MemoryId) -> bool {
    range.pages().all(|page| world.driver.page(page).owner == Some(memory))
}
