//! What happened: counters, times, fights, the busiest allocations.

use std::fmt;

use farside_live::arena::LargePages;
use farside_live::{Flow, TimeSpent, Traffic};
use farside_svm::{Directions, Fight, Moved, ObjectView, Stats};
use farside_types::{CardId, PAGE_SIZE, PageRange, Reason};
use serde::{Deserialize, Serialize};

use crate::Space;
use crate::slow::{self, Account, Slow};

/// Allocations that a report lists.
const BUSIEST: usize = 5;
/// Moves that it lists for each.
const MOVES: usize = 4;

/// What happened in a space so far.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Report {
    /// The driver's counters.
    pub stats: Stats,
    /// Pages moved by direction.
    pub directions: Directions,
    /// Pages copied, and how fast.
    pub traffic: Traffic,
    /// Where time went.
    pub times: TimeSpent,
    /// Blocks of 2 MiB that were to be large pages, and those that have become some.
    pub large_pages: LargePages,
    /// Moves of adopted memory that failed because a device of the program's had a page pinned.
    pub pinned_by_devices: u64,
    /// What the cards in this program have counted. `farside cards --json` has the counters of others.
    pub cards: Vec<CardAccount>,
    /// The allocations of which most pages moved.
    pub busiest: Vec<Busy>,
    /// Pages that agents fought over, worst first.
    pub fights: Vec<NamedFight>,
    /// Cards that did not let pages go in time.
    pub suspects: Vec<(CardId, PageRange)>,
    /// What is slow, why, and what to do; nothing where nothing is.
    pub slow: Vec<Slow>,
}

/// What a card in the program has counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CardAccount {
    /// The card.
    pub card: CardId,
    /// Walks of its page tables: lookups that no TLB could answer.
    pub walks: u64,
    /// Accesses to pages in other memories, over the bus; a page of a `with` counts once.
    pub remote_accesses: u64,
    /// Those of them that were pages of a `with`; the others are words.
    pub remote_pages: u64,
}

impl CardAccount {
    fn of(space: &Space, card: CardId) -> Option<CardAccount> {
        let stats = space.runtime().card_stats(card)?;
        let (walks, remote_accesses) = (stats.walks, stats.remote_accesses);
        Some(CardAccount { card, walks, remote_accesses, remote_pages: stats.remote_pages })
    }
}

/// An allocation and its latest moves.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Busy {
    /// The allocation.
    pub object: ObjectView,
    /// Its latest moves, oldest first.
    pub moves: Vec<Moved>,
}

/// A fight, and in which allocation it is.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NamedFight {
    /// The fight.
    pub fight: Fight,
    /// The allocation; empty if it has no name or was freed.
    pub object: String,
}

impl fmt::Display for NamedFight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let NamedFight { fight, object } = self;
        let name = if object.is_empty() { "(unnamed)" } else { object };
        let agents: Vec<String> = fight.agents.iter().map(|agent| agent.to_string()).collect();
        let agents = match agents.as_slice() {
            [alone] => alone.clone(),
            [first, second] => format!("{first} and {second}"),
            [first, .., last] => format!("{first} to {last} ({} agents)", agents.len()),
            [] => "nobody".to_owned(),
        };
        if fight.settled > 0 {
            return write!(
                f,
                "{name} by {agents}: its pages stay where all reach them; who only reads gets copies, others \
                 reach them from afar; give each card parts of its own to change"
            );
        }
        write!(
            f,
            "{} of {name} by {agents}: held back {} times, pinned {} times; give each agent data on \
             pages of its own",
            fight.page, fight.throttles, fight.pins
        )
    }
}

impl Report {
    pub(crate) fn of(space: &Space) -> Report {
        let runtime = space.runtime();
        let (times, traffic) = (runtime.times(), runtime.traffic());
        let cards: Vec<_> = space.cards().filter_map(|card| CardAccount::of(space, card)).collect();
        let large_pages = runtime.large_pages();
        let pinned_by_devices = runtime.pinned_by_devices();
        let suspects = runtime.suspects().unwrap_or_default();
        let report = runtime.inspect(|driver| {
            let mut objects = driver.objects();
            let slow = slow::findings(&Account::of(driver, &objects, space.cards(), cards.clone()));
            let name_of = |range: PageRange| {
                let object = objects.iter().find(|object| object.range.overlaps(range));
                object.map_or_else(String::new, |object| object.name.to_string())
            };
            let fights = driver
                .fights()
                .into_iter()
                .map(|fight| NamedFight { object: name_of(PageRange::page(fight.page)), fight })
                .collect();
            objects.retain(|object| object.pages_moved > 0);
            objects.sort_by_key(|object| std::cmp::Reverse(object.pages_moved));
            objects.truncate(BUSIEST);
            let busiest = objects
                .into_iter()
                .map(|object| {
                    let mut moves = driver.history(object.range);
                    let old = moves.len().saturating_sub(MOVES);
                    Busy { moves: moves.split_off(old), object }
                })
                .collect();
            let stats = driver.stats().clone();
            let directions = stats.by_direction();
            Report {
                stats,
                directions,
                traffic,
                times,
                large_pages,
                pinned_by_devices,
                cards,
                busiest,
                fights,
                suspects,
                slow,
            }
        });
        report.unwrap_or_default()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.pages(f)?;
        self.faults(f)?;
        self.time(f)?;
        self.objects(f)?;
        self.trouble(f)
    }
}

fn mib(pages: u64) -> f64 {
    (pages * PAGE_SIZE as u64) as f64 / (1 << 20) as f64
}

impl Report {
    fn pages(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let d = self.directions;
        writeln!(f, "pages moved          pages        MiB    GB/s while copied")?;
        let t = self.traffic;
        let rows = [
            ("host → card", d.host_to_card, t.host_to_card),
            ("card → host", d.card_to_host, t.card_to_host),
            ("card → card", d.card_to_card, t.card_to_card),
            ("zero filled", d.zero_filled, Flow::default()),
        ];
        for (name, pages, flow) in rows {
            write!(f, "  {name:<14} {pages:>9} {:>10.1}", mib(pages))?;
            match flow.bandwidth() {
                Some(bandwidth) => writeln!(f, " {:>7.2}", bandwidth / 1e9)?,
                None => writeln!(f)?,
            }
        }
        write!(f, "  why:")?;
        for (reason, pages) in self.stats.by_reason.iter() {
            write!(f, " {reason} {pages}")?;
        }
        writeln!(f)
    }

    fn faults(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let s = &self.stats;
        writeln!(
            f,
            "faults: {} of cards in {} batches ({} refills, {} duplicates, {} for rights), \
             {} of the host",
            s.card_faults,
            s.fault_batches,
            s.refills,
            s.duplicate_faults,
            s.protection_faults,
            s.host_faults
        )?;
        writeln!(
            f,
            "chains: {} ({} rolled back), {} round trips to cards waited for",
            s.chains, s.rollbacks, s.awaited_trips
        )?;
        writeln!(
            f,
            "evicted: {} pages, {} without a copy, {} newcomers that spared others",
            s.evictions, s.clean_departures, s.spared
        )?;
        writeln!(
            f,
            "loans: {} pages, {} of them written without a fault, {} back without a copy",
            s.lent, s.lent_written, s.lent_clean
        )?;
        writeln!(
            f,
            "fights: {} settled; {} pages taken from cards that ran",
            s.settled_fights, s.taken_from_running
        )?;
        let LargePages { wanted, had } = self.large_pages;
        if wanted > 0 {
            write!(f, "large pages: {had} of {wanted} blocks of 2 MiB")?;
            let rest = if had < wanted { "; the others have pages of 4 KiB" } else { "" };
            writeln!(f, "{rest}")?;
        }
        if self.pinned_by_devices > 0 {
            let times = self.pinned_by_devices;
            writeln!(
                f,
                "adopted memory: {times} times a page stayed because a device had it pinned"
            )?;
        }
        for CardAccount { card, walks, remote_accesses, .. } in &self.cards {
            writeln!(f, "{card}: {walks} table walks, {remote_accesses} accesses over the bus")?;
        }
        Ok(())
    }

    fn time(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let t = self.times;
        let all = (t.plan + t.command + t.setup + t.copy + t.finalize).0.max(1) as f64;
        write!(f, "time in migrations:")?;
        for (name, span) in [
            ("planning", t.plan),
            ("commands", t.command),
            ("setup", t.setup),
            ("copy", t.copy),
            ("finalize", t.finalize),
        ] {
            write!(f, " {name} {span} ({:.0} %)", 100.0 * span.0 as f64 / all)?;
        }
        writeln!(f)
    }

    fn objects(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.busiest.is_empty() {
            writeln!(f, "moved most:")?;
        }
        for Busy { object, moves } in &self.busiest {
            let name = if object.name.is_empty() { "(unnamed)" } else { &object.name };
            let (pages, moved) = (object.range.count, object.pages_moved);
            writeln!(f, "  {name}: {moved} moves of its {pages} pages; lately")?;
            for m in moves {
                let first = m.range.start.0 - object.range.start.0.min(m.range.start.0);
                let from = m.from.map_or_else(|| "zeros".to_owned(), |from| from.to_string());
                let last = first + m.range.count - 1;
                writeln!(f, "    pages {first}-{last}: {from} → {} ({})", m.to, m.reason)?;
            }
        }
        Ok(())
    }

    fn trouble(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for slow in &self.slow {
            writeln!(f, "{slow}")?;
        }
        for fight in self.fights.iter().take(BUSIEST) {
            writeln!(f, "fought over: {fight}")?;
        }
        for (card, pages) in &self.suspects {
            writeln!(f, "{card} did not let {pages} go in time: its kernel hangs")?;
        }
        let lost = self.stats.by_reason.get(&Reason::Lost).copied().unwrap_or(0);
        if lost > 0 {
            writeln!(f, "lost: {lost} pages were only on a card that is gone")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use farside_svm::Fight;
    use farside_types::{AgentSet, CardId, PageNo};

    use super::*;

    #[test]
    fn a_fight_says_what_was_done_about_it_and_what_to_do() {
        let agents = AgentSet::only(CardId(0).agent()).with(CardId(1).agent());
        let fight = Fight { page: PageNo(7), agents, throttles: 2, pins: 1, settled: 0 };
        let mut named = NamedFight { fight, object: "table".into() };
        let pinned = named.to_string();
        assert!(pinned.contains("held back 2 times, pinned 1 times"), "{pinned}");
        named.fight.settled = 1;
        let settled = named.to_string();
        assert!(settled.contains("table by card 0 and card 1: its pages stay"), "{settled}");
        assert!(!settled.contains("pinned"), "{settled}");
    }
}
