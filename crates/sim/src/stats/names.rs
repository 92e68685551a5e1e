//! Every statistic of a run under its dotted name: the registry, read off an outcome.
//!
//! Names are declared once: those of a GPU's counters beside the fields (`counters!`), those of a
//! run and of the driver here. Tests see that no field is left out. The page `docs/statistics.md` is
//! made from it; what stands above its table is `page.md`.

use farside_svm::Stats;
use farside_types::{MemoryId, Reason};
use serde::Serialize;

use super::{Description, GpuCounts, Outcome};

/// A statistic of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Statistic {
    /// Its dotted name, as in `gpu.2.tlb.l1.hits`.
    pub name: String,
    /// Its unit: `count`, `cycles`, `pages`, `ps`.
    pub unit: &'static str,
    /// What it says.
    pub text: &'static str,
    /// Its value.
    pub value: u64,
}

/// A field with its name, and how it is read.
struct Entry<T> {
    #[cfg(test)]
    field: &'static str,
    description: Description,
    read: fn(&T) -> u64,
}

macro_rules! entries {
    ($Type:ty: $($field:ident = $name:literal, $unit:literal, $text:literal;)+) => {
        &[$(Entry {
            #[cfg(test)]
            field: stringify!($field),
            description: Description { name: $name, unit: $unit, text: $text },
            read: |from: &$Type| u64::from(from.$field),
        },)+]
    };
}

/// What a run as a whole is measured by.
const RUN: &[Entry<Outcome>] = entries! { Outcome:
    time = "time", "ps", "From the first launch until the end of the last job is known.";
    cycles = "cycles", "cycles", "The same in cycles of the GPUs' clock.";
    events = "events", "count", "Events that the simulator took from its queue.";
    nvlink_busy = "link.nvlink.busy", "ps",
        "Time the ports between GPUs were busy, summed over ports.";
    pcie_busy = "link.pcie.busy", "ps",
        "Time the ports to and from the host were busy, summed over ports.";
    host_busy = "host.busy", "ps", "Time the driver's processor was busy.";
    pages = "pages", "pages", "Pages of the program's in the shared address space.";
    copied_again = "pages.copied_again", "pages",
        "Pages that lost their copies to a write and were copied again.";
};

/// What the driver counts.
const DRIVER: &[Entry<Stats>] = entries! { Stats:
    card_faults = "driver.faults.gpu", "count", "Faults of GPUs received, duplicates included.";
    fault_batches = "driver.faults.batches", "count", "Batches they came in.";
    refills = "driver.faults.refills", "count", "Faults that only lacked a TLB entry.";
    protection_faults = "driver.faults.protection", "count",
        "Faults on pages that were mapped with too few rights.";
    duplicate_faults = "driver.faults.duplicate", "count",
        "Faults that joined a move under way, or an equal fault of the same batch.";
    host_faults = "driver.faults.host", "count", "Faults of the CPU received.";
    cancelled_faults = "driver.faults.cancelled", "count", "Faults answered with an error.";
    migrations = "driver.migrations", "pages", "Pages that changed their only location.";
    duplications = "driver.duplications", "pages", "Copies made beside an existing one.";
    followed = "driver.followed", "pages",
        "Of these, copies that were begun while one for another GPU was made.";
    collapses = "driver.collapses", "pages",
        "Pages whose other copies were taken away by a write.";
    remote_maps = "driver.remote_maps", "pages", "Pages mapped over a link.";
    evictions = "driver.evictions", "pages", "Pages that left a full GPU.";
    clean_departures = "driver.clean_departures", "pages",
        "Pages that left a GPU without a copy, because a clean one existed.";
    taken_from_running = "driver.taken", "pages",
        "Pages that a GPU got and one that runs a kernel lost by it.";
    spared = "driver.spared", "pages",
        "Of the pages that left a full GPU, newcomers, which spared those that stay.";
    throttles = "driver.thrash.throttles", "pages",
        "Pages whose fault had to wait because GPUs fight over them.";
    thrash_pins = "driver.thrash.pins", "pages", "Pages pinned because GPUs fight over them.";
    settled_fights = "driver.thrash.settled", "count",
        "Allocations whose pages were mapped where they are because GPUs fight over them.";
    chains = "driver.chains", "count", "Migrations (chains of commands) started.";
    rollbacks = "driver.rollbacks", "count", "Chains rolled back after a failure.";
    late_completions = "driver.late_completions", "count",
        "Completions that came for an abandoned chain.";
    awaited_trips = "driver.trips.awaited", "count",
        "Round trips to a GPU that a chain waited for.";
    posted_commands = "driver.commands.posted", "count",
        "Commands to a GPU that nobody waited for.";
};

const LAUNCH_END: Description = Description {
    name: "launch.N.end",
    unit: "ps",
    text: "When launch N was over, from the start of the first.",
};
const PAGES_BY_REASON: Description = Description {
    name: "driver.pages.REASON",
    unit: "pages",
    text: "Pages moved, copied or filled for this reason.",
};
const PAGES_BY_WAY: Description = Description {
    name: "driver.moves.FROM.TO",
    unit: "pages",
    text: "Pages moved or copied from one memory to another; `zero`: filled with zeros.",
};

impl Outcome {
    /// Every statistic of the run. The same machine gives the same names in the same order.
    #[must_use]
    pub fn statistics(&self) -> Vec<Statistic> {
        let mut list = Vec::new();
        RUN.iter().for_each(|entry| list.push(of(entry, self)));
        for (launch, end) in self.launches.iter().enumerate() {
            list.push(named(format!("launch.{launch}.end"), LAUNCH_END, end.0));
        }
        gpu_statistics("total.", &self.total, &mut list);
        for (gpu, counts) in self.gpus.iter().enumerate() {
            gpu_statistics(&format!("gpu.{gpu}."), counts, &mut list);
        }
        driver_statistics(&self.driver, self.gpus.len(), &mut list);
        list
    }
}

/// The counters of a GPU, under names that begin with `prefix`.
pub(crate) fn gpu_statistics(prefix: &str, counts: &GpuCounts, list: &mut Vec<Statistic>) {
    let both = GpuCounts::DESCRIPTIONS.iter().zip(counts.values());
    list.extend(both.map(|(what, value)| named(format!("{prefix}{}", what.name), *what, value)));
}

/// The counters of the driver of a machine with so many GPUs.
pub(crate) fn driver_statistics(stats: &Stats, gpus: usize, list: &mut Vec<Statistic>) {
    DRIVER.iter().for_each(|entry| list.push(of(entry, stats)));
    for reason in Reason::ALL {
        let pages = stats.by_reason.get(&reason).copied().unwrap_or(0);
        list.push(named(format!("driver.pages.{reason}"), PAGES_BY_REASON, pages));
    }
    let memories = || (0..=gpus).map(|memory| MemoryId(memory as u8));
    for from in std::iter::once(None).chain(memories().map(Some)) {
        for to in memories().filter(|&to| from != Some(to)) {
            let pages = stats.moves.get(&(from, to)).copied().unwrap_or(0);
            let name = format!("driver.moves.{}.{}", memory(from), memory(Some(to)));
            list.push(named(name, PAGES_BY_WAY, pages));
        }
    }
}

fn memory(memory: Option<MemoryId>) -> String {
    match memory.map(MemoryId::card) {
        None => "zero".to_owned(),
        Some(None) => "host".to_owned(),
        Some(Some(gpu)) => format!("gpu{}", gpu.0),
    }
}

fn of<T>(entry: &Entry<T>, from: &T) -> Statistic {
    named(entry.description.name.to_owned(), entry.description, (entry.read)(from))
}

fn named(name: String, what: Description, value: u64) -> Statistic {
    Statistic { name, unit: what.unit, text: what.text, value }
}

/// The page `docs/statistics.md`: all names with unit and meaning. `N` stands for a number, a word in
/// capitals for one of several.
#[must_use]
pub fn markdown() -> String {
    let reasons = Reason::ALL.map(|reason| format!("`{}`", reason.name()));
    let mut text = PAGE.replace("REASONS", &reasons.join(", "));
    for (name, what) in catalogue() {
        text += &format!("| `{name}` | {} | {} |\n", what.unit, what.text);
    }
    text
}

/// What stands above the table. It ends with the table's head.
const PAGE: &str = include_str!("page.md");

fn catalogue() -> Vec<(String, Description)> {
    let plain = |what: Description| (what.name.to_owned(), what);
    let gpu = GpuCounts::DESCRIPTIONS.iter();
    let mut list: Vec<_> = RUN.iter().map(|entry| plain(entry.description)).collect();
    list.push(plain(LAUNCH_END));
    list.extend(gpu.map(|what| (format!("gpu.N.{}", what.name), *what)));
    list.extend(DRIVER.iter().map(|entry| plain(entry.description)));
    list.extend([PAGES_BY_REASON, PAGES_BY_WAY].map(plain));
    list
}

#[cfg(test)]
mod tests {
    use super::super::tests::outcome;
    use super::*;
    use std::collections::BTreeSet;

    /// Has the page written instead of compared.
    const WRITE: &str = "FARSIDE_WRITE_STATISTICS";

    fn fields(value: &impl Serialize) -> BTreeSet<String> {
        let value = serde_json::to_value(value).unwrap();
        value.as_object().unwrap().keys().cloned().collect()
    }

    fn with<T>(entries: &[Entry<T>], others: &[&str]) -> BTreeSet<String> {
        let named = entries.iter().map(|entry| entry.field);
        named.chain(others.iter().copied()).map(str::to_owned).collect()
    }

    #[test]
    fn every_field_has_a_name() {
        let others = ["placement", "trace", "spec", "launches", "total", "gpus", "driver"];
        assert_eq!(fields(&outcome("grit", 1)), with(RUN, &others), "name it in RUN");
        // No simulated card tells what it wrote, so none gets pages on loan.
        let others = ["moves", "by_reason", "lent", "lent_written", "lent_clean"];
        assert_eq!(fields(&Stats::default()), with(DRIVER, &others), "name it in DRIVER");
        assert_eq!(GpuCounts::DESCRIPTIONS.len(), fields(&GpuCounts::default()).len());
    }

    #[test]
    fn names_are_dotted_words_and_none_comes_twice() {
        let mut outcome = outcome("grit", 1);
        outcome.gpus = vec![GpuCounts::default(); 3];
        let list = outcome.statistics();
        let names: BTreeSet<_> = list.iter().map(|statistic| &statistic.name).collect();
        assert_eq!(names.len(), list.len());
        for Statistic { name, unit, text, .. } in &list {
            let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "._".contains(c);
            assert!(name.chars().all(plain), "{name}");
            assert!(!name.contains("..") && !name.ends_with('.'), "{name}");
            assert!(["ps", "count", "cycles", "pages", "bytes"].contains(unit), "{name}: {unit}");
            assert!(text.ends_with('.') && !text.contains('\n'), "{name}: {text}");
        }
    }

    #[test]
    fn values_are_those_of_the_outcome() {
        let mut outcome = outcome("grit", 3_000_000);
        outcome.gpus = vec![GpuCounts { l1_tlb_hits: 7, ..GpuCounts::default() }; 2];
        outcome.gpus[1].l1_tlb_hits = 8;
        let list = outcome.statistics();
        let value = |name: &str| {
            let found = list.iter().find(|statistic| statistic.name == name);
            found.unwrap_or_else(|| panic!("no {name}")).value
        };
        assert_eq!(value("time"), 3_000_000);
        assert_eq!(value("launch.0.end"), 3_000_000);
        assert_eq!((value("gpu.0.tlb.l1.hits"), value("gpu.1.tlb.l1.hits")), (7, 8));
        assert_eq!((value("total.reads"), value("driver.migrations")), (5, 3));
        assert_eq!((value("driver.moves.host.gpu0"), value("driver.moves.gpu1.gpu0")), (17, 0));
        assert_eq!((value("driver.pages.demand"), value("driver.pages.lost")), (17, 0));
    }

    #[test]
    fn the_page_says_what_the_registry_says() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/statistics.md");
        if std::env::var_os(WRITE).is_some() {
            std::fs::write(path, markdown()).expect(path);
            return;
        }
        let page = std::fs::read_to_string(path).expect(path);
        let differs = page.lines().zip(markdown().lines()).position(|(has, should)| has != should);
        assert!(
            page == markdown(),
            "docs/statistics.md is old, in line {}; `make statistics` writes it anew",
            differs.map_or(page.lines().count(), |line| line) + 1
        );
    }
}
