//! What the rules look at: allocations and cards, as the driver and the cards have counted.

use farside_svm::{Driver, Moved, ObjectView};
use farside_types::{AgentId, CardId, MemoryId, PAGE_SIZE, PageNo};

use crate::report::CardAccount;

/// Allocations whose latest moves are looked at: those of which most pages moved.
const LOOKED_AT: usize = 16;
/// Pages of a pinned allocation of which is asked who maps them.
const SAMPLES: u64 = 64;

/// All that the rules know.
#[derive(Clone, Debug, Default)]
pub(crate) struct Account {
    /// The allocations of which most pages moved, most first.
    pub(crate) moved: Vec<Object>,
    /// Allocations that cards reach where they are pinned, which is elsewhere.
    pub(crate) afar: Vec<Afar>,
    /// Counters of the cards in this program.
    pub(crate) cards: Vec<CardAccount>,
    /// Bytes of all allocations that were ever on a card.
    pub(crate) bytes_on_cards: u64,
    /// Whether every card can map host memory.
    pub(crate) host_in_reach: bool,
}

/// An allocation that moved.
#[derive(Clone, Debug)]
pub(crate) struct Object {
    pub(crate) view: ObjectView,
    /// Its latest moves, oldest first, as far back as the driver remembers.
    pub(crate) latest: Vec<Moved>,
}

/// An allocation that is pinned, and the cards that map it from elsewhere.
#[derive(Clone, Debug)]
pub(crate) struct Afar {
    pub(crate) view: ObjectView,
    pub(crate) at: MemoryId,
    pub(crate) users: Vec<CardId>,
}

impl Account {
    pub(crate) fn of(
        driver: &Driver,
        objects: &[ObjectView],
        mut all_cards: impl Iterator<Item = CardId>,
        cards: Vec<CardAccount>,
    ) -> Account {
        let mut moved: Vec<&ObjectView> = objects.iter().filter(|it| it.pages_moved > 0).collect();
        let pages: u64 = moved.iter().map(|object| object.range.count).sum();
        moved.sort_by_key(|object| std::cmp::Reverse(object.pages_moved));
        moved.truncate(LOOKED_AT);
        let with_history =
            |view: &ObjectView| Object { view: view.clone(), latest: driver.history(view.range) };
        Account {
            moved: moved.into_iter().map(with_history).collect(),
            afar: objects.iter().filter_map(|view| from_afar(driver, view)).collect(),
            bytes_on_cards: pages * PAGE_SIZE as u64,
            host_in_reach: all_cards.all(|card| driver.reaches(card.agent(), MemoryId::HOST)),
            cards,
        }
    }
}

/// Who maps a pinned allocation from afar; nothing if nobody does.
fn from_afar(driver: &Driver, view: &ObjectView) -> Option<Afar> {
    let at = driver.pinned_at(view.range.start)?;
    let apart = view.range.count.div_ceil(SAMPLES) as usize;
    let pages = view.range.pages().step_by(apart);
    let mappers = |page: PageNo| driver.page(page).mappers.iter().collect::<Vec<_>>();
    let mut users: Vec<CardId> = pages
        .flat_map(mappers)
        .filter_map(AgentId::card)
        .filter(|card| card.memory() != at)
        .collect();
    users.sort_unstable();
    users.dedup();
    (!users.is_empty()).then(|| Afar { view: view.clone(), at, users })
}
