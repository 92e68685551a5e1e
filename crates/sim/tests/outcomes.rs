//! Simulated outcomes stay what they are, to the picosecond: runs of every generated program, of
//! the bundled traces and of the cards' experiments are compared with what is stored in
//! `tests/outcomes/`, a table of comma-separated values per machine.
//!
//! A change that is meant to change a result writes the tables anew and says why where it is
//! recorded (`docs/simulator.md`):
//!
//! ```text
//! FARSIDE_WRITE_OUTCOMES=1 cargo test -p farside-sim --test outcomes
//! ```

use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;

use farside_sim::cards::{
    CardMachine, CardsSpec, JobReport, Layout, Migration, Transport, Work, measure, paper,
};
use farside_sim::functional::{self, Counts, Options};
use farside_sim::scheme::{self, KnownKind};
use farside_sim::{Outcome, Simulation, Spec};
use farside_types::{CardId, PageRange};
use farside_workloads::Trace;
use farside_workloads::Workload;
use farside_workloads::catalog::{self, by_name};

/// Has the tables written instead of compared.
const WRITE: &str = "FARSIDE_WRITE_OUTCOMES";

/// The statistics of a run on GPUs that are stored.
const STATISTICS: [&str; 36] = [
    "time",
    "events",
    "link.nvlink.busy",
    "link.pcie.busy",
    "host.busy",
    "pages.copied_again",
    "total.reads",
    "total.writes",
    "total.local",
    "total.remote",
    "total.tlb.l1.hits",
    "total.tlb.l2.hits",
    "total.walks",
    "total.walk.waited",
    "total.cache.vector.hits",
    "total.cache.l2.hits",
    "total.cache.l2.misses",
    "total.flush.lines",
    "total.flush.stalled",
    "total.stores.broadcast",
    "total.counter.notices",
    "total.faults.reported",
    "total.faults.wait",
    "driver.faults.gpu",
    "driver.faults.batches",
    "driver.migrations",
    "driver.duplications",
    "driver.collapses",
    "driver.remote_maps",
    "driver.evictions",
    "driver.clean_departures",
    "driver.thrash.throttles",
    "driver.thrash.pins",
    "driver.chains",
    "driver.trips.awaited",
    "driver.commands.posted",
];

/// A table in the making: comma-separated values, which themselves hold no comma.
struct Table {
    name: &'static str,
    text: String,
}

impl Table {
    fn new(name: &'static str, head: &[&str]) -> Table {
        Table { name, text: head.join(",") + "\n" }
    }

    fn row(&mut self, keys: &[&str], values: impl IntoIterator<Item = u64>) {
        let keys: Vec<String> = keys.iter().map(|key| key.replace(',', ";")).collect();
        self.text += &keys.join(",");
        for value in values {
            write!(self.text, ",{value}").unwrap();
        }
        self.text.push('\n');
    }

    /// Compares with the stored table, or stores this one.
    fn compare(&self) {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/outcomes").join(self.name);
        if std::env::var_os(WRITE).is_some() {
            std::fs::write(&path, &self.text).unwrap();
            return;
        }
        let stored = std::fs::read_to_string(&path).unwrap();
        let differing: Vec<String> = differences(&stored, &self.text);
        assert!(
            differing.is_empty(),
            "{} outcomes of tests/outcomes/{} have changed:\n{}\nif that is meant, write the \
             tables anew with {WRITE}=1 and say why in docs/simulator.md",
            differing.len(),
            self.name,
            differing.iter().take(40).map(String::as_str).collect::<Vec<_>>().join("\n"),
        );
    }
}

/// Rows that are only in one table, and values that differ, each with its row and column.
fn differences(stored: &str, now: &str) -> Vec<String> {
    let rows = |text: &str| -> Vec<Vec<String>> {
        text.lines().map(|line| line.split(',').map(str::to_owned).collect()).collect()
    };
    let (stored, now) = (rows(stored), rows(now));
    let mut found = Vec::new();
    for index in 0..stored.len().max(now.len()) {
        match (stored.get(index), now.get(index)) {
            (Some(before), Some(after)) if before.len() == after.len() => {
                let keys = after.iter().filter(|it| it.parse::<u64>().is_err());
                let keys = keys.map(String::as_str).collect::<Vec<_>>().join(" ");
                let columns = before.iter().zip(after).zip(&stored[0]);
                let differing = columns.filter(|((before, after), _)| before != after);
                found.extend(differing.map(|((before, after), column)| {
                    format!("{keys}: {column} was {before}, is {after}")
                }));
            }
            (before, after) => found.push(format!("row {index} was {before:?}, is {after:?}")),
        }
    }
    found
}

/// A program on a machine of GPUs.
struct Case {
    program: &'static str,
    kilobytes: u64,
    scheme: String,
    /// Preset, then `key=value` of what differs from it.
    machine: &'static str,
}

impl Case {
    fn program(&self) -> Arc<dyn Workload> {
        match self.program.strip_suffix(".trace") {
            Some(name) => Arc::new(Trace::bundled(name).unwrap()),
            None => by_name(self.program, Some(self.kilobytes << 10)).unwrap(),
        }
    }

    fn run(&self) -> Outcome {
        let mut parts = self.machine.split(' ');
        let preset = Spec::preset(parts.next().unwrap()).unwrap();
        let changes: Vec<_> = parts.map(|part| part.split_once('=').unwrap()).collect();
        let machine = preset.with_overrides(&changes).unwrap();
        let (placement, machine) = scheme::resolve(&self.scheme, &machine).unwrap();
        // The checker never changes a result and takes a part of the time.
        let check = false;
        let run = Simulation::with_placement(&machine, &self.program(), placement, check).unwrap();
        run.run(|_| ()).unwrap()
    }

    fn row(&self, table: &mut Table) {
        let statistics = self.run().statistics();
        let value = |name: &&str| match statistics.iter().find(|it| it.name == *name) {
            Some(statistic) => statistic.value,
            None => panic!("there is no statistic {name}"),
        };
        let kilobytes = self.kilobytes.to_string();
        let keys = [self.program, &kilobytes, &self.scheme, self.machine];
        table.row(&keys, STATISTICS.iter().map(value));
    }
}

/// Every scheme that has a name, real or simulated.
fn schemes() -> Vec<String> {
    let schemes = scheme::all().into_iter().filter(|known| known.kind != KnownKind::Modifier);
    schemes.map(|known| known.name).collect()
}

/// Compares the runs of `cases`.
fn compare(table: &'static str, cases: impl IntoIterator<Item = Case>) {
    let mut table = Table::new(
        table,
        &[&["program", "kilobytes", "scheme", "machine"], &STATISTICS[..]].concat(),
    );
    cases.into_iter().for_each(|case| case.row(&mut table));
    table.compare();
}

/// Kilobytes that take each program a second or two under all schemes.
fn small(program: &str) -> u64 {
    match program {
        "bs" => 64,
        "bfs" => 256,
        "bfs-shared" => least(program),
        _ => least(program).max(1_024),
    }
}

/// The least kilobytes that a program can be had with.
fn least(program: &str) -> u64 {
    let fits = |kilobytes: &u64| by_name(program, Some(kilobytes << 10)).is_ok();
    (5..).map(|log| 1 << log).find(fits).unwrap()
}

#[test]
fn every_program_under_every_scheme() {
    let schemes = schemes();
    let cases = catalog::NAMES.iter().flat_map(|&program| {
        schemes.iter().map(move |scheme| Case {
            program,
            kilobytes: small(program),
            scheme: scheme.clone(),
            machine: "grit-table-1",
        })
    });
    compare("programs.csv", cases);
}

#[test]
fn every_program_event_by_event() {
    let cases = catalog::NAMES.iter().map(|&program| Case {
        program,
        kilobytes: small(program),
        scheme: "grit".to_owned(),
        machine: "grit-table-1 engine.mode=events",
    });
    compare("events.csv", cases);
}

#[test]
fn recorded_traces_on_other_machines() {
    let machines = [
        "grit-table-1",
        "grit-table-1 engine.mode=events",
        "grit-paper",
        "linux-driver",
        "as-shipped",
        "grit-table-1 gpu.capacity_percent=25",
        "grit-table-1 gpu.count=8 page.bytes=2097152",
        "grit-table-1 gpu.constants=each gpu.dispatch=fill",
    ];
    let modifiers = ["+acud", "+prefetch", "+trans-fw", "+all-memory"];
    let schemes = schemes();
    let modified = modifiers.iter().map(|it| ("grit-table-1", format!("on-touch{it}")));
    let under = machines.iter().flat_map(|machine| schemes.iter().map(|it| (*machine, it.clone())));
    // What Griffin does in each of its intervals takes this driver longer than the interval.
    let slow = |machine: &str| machine == "linux-driver" || machine == "as-shipped";
    let under = under.filter(|(machine, it)| !(slow(machine) && it.starts_with("griffin")));
    let runs: Vec<_> = under.chain(modified).collect();
    let cases = ["mm.trace", "st.trace"].into_iter().flat_map(|program| {
        let case = |(machine, scheme): &(&'static str, String)| Case {
            program,
            kilobytes: 0,
            scheme: scheme.clone(),
            machine,
        };
        runs.iter().map(case).collect::<Vec<_>>()
    });
    compare("traces.csv", cases);
}

#[test]
fn replays_without_time() {
    let names: Vec<&str> = Counts::DESCRIPTIONS.iter().map(|it| it.name).collect();
    let head = [&["program", "scheme", "capacity"], &names[..]].concat();
    let mut table = Table::new("replays.csv", &head);
    let replayed = ["on-touch", "first-touch", "access-counter", "duplication", "grit", "farside"];
    for program in ["mm.trace", "st.trace", "fir", "bs", "mm"] {
        let case = Case { program, kilobytes: 1_024, scheme: String::new(), machine: "" };
        let program = case.program();
        for scheme in replayed {
            for percent in [None, Some(40)] {
                let options = Options { capacity_percent: percent, ..Options::default() };
                let counts = functional::replay(&*program, scheme, &options).unwrap().total;
                let capacity = percent.map_or("all".to_owned(), |percent| format!("{percent}%"));
                table.row(&[case.program, scheme, &capacity], counts.values());
            }
        }
    }
    table.compare();
}

/// The machines of cards: a preset, a transport, and what differs.
fn machines_of_cards() -> Vec<(String, CardsSpec)> {
    let others: [&[(&str, &str)]; 3] = [
        &[("machine.cards", "8"), ("ethernet.topology", "switch")],
        &[("mmu.reads_in_flight", "64"), ("mmu.fault_entries", "512")],
        &[("host.entry_pages", "512"), ("dma.commands_max", "1")],
    ];
    let mut machines = Vec::new();
    for preset in ["as-published", "farside"] {
        for transport in Transport::ALL {
            let spec = CardsSpec::preset(preset).unwrap().with_transport(transport);
            machines.push((format!("{preset} {}", transport.key()), spec));
        }
    }
    for changes in others {
        let given: Vec<String> = changes.iter().map(|(key, to)| format!("{key}={to}")).collect();
        let spec = CardsSpec::default().with_overrides(changes).unwrap();
        machines.push((format!("as-published {}", given.join(" ")), spec));
    }
    machines
}

#[test]
fn migrations_between_cards() {
    let head = ["experiment", "machine", "pages", "time", "moved", "setup", "allocate", "dma"];
    let mut table = Table::new("migrations.csv", &[&head[..], &["finalize"]].concat());
    for (name, spec) in machines_of_cards() {
        for size in paper::SIZES {
            let pages = size.pages;
            let scattered = pages.min(1_024);
            let mut row = |experiment: &str, pages: u64, it: Migration| {
                let steps = it.steps;
                let steps = [steps.setup, steps.allocate, steps.dma, steps.finalize];
                let values = [it.time.0, it.pages].into_iter().chain(steps.map(|step| step.0));
                table.row(&[experiment, &name, &pages.to_string()], values);
            };
            let moved = measure::card_to_card(&spec, pages, Layout::Contiguous).unwrap();
            row("card to card", pages, moved);
            let moved = measure::card_to_card(&spec, scattered, Layout::Scattered).unwrap();
            row("card to card scattered", scattered, moved);
            row("host to card", pages, measure::host_to_card(&spec, pages).unwrap());
            row("card to host", pages, measure::card_to_host(&spec, pages).unwrap());
        }
    }
    table.compare();
}

#[test]
fn jobs_on_cards() {
    let head = ["experiment", "machine", "pages", "time", "faults", "batches"];
    let mut table = Table::new("jobs.csv", &head);
    for (name, spec) in machines_of_cards() {
        let mut row = |experiment: &str, pages: u64, it: JobReport| {
            table.row(&[experiment, &name, &pages.to_string()], [it.time.0, it.faults, it.batches]);
        };
        for size in paper::SIZES {
            let pages = size.pages;
            row("update on demand", pages, measure::update_on_demand(&spec, pages).unwrap());
            row("update user-managed", pages, measure::update_user_managed(&spec, pages).unwrap());
        }
        for nodes in [4, 1_024] {
            row("chase on demand", nodes, measure::chase_on_demand(&spec, 1_024, nodes).unwrap());
            let chased = measure::chase_user_managed(&spec, 1_024, nodes).unwrap();
            row("chase user-managed", nodes, chased);
        }
        for (which, report) in fight(&spec).into_iter().enumerate() {
            row(&format!("fight over an array: card {which}"), 64, report);
        }
        row("translations lost", 2_048, lost_translations(&spec));
    }
    table.compare();
}

#[test]
fn exchanges_between_all_cards() {
    let mut table = Table::new("exchanges.csv", &["experiment", "machine", "pages", "time"]);
    for (name, spec) in machines_of_cards() {
        for pages in [8, 128, 1_024] {
            let mut row = |experiment: &str, time: u64| {
                table.row(&[experiment, &name, &pages.to_string()], [time]);
            };
            row("all to all", measure::all_to_all(&spec, pages).unwrap().time.0);
            row("all to one", measure::all_to_one(&spec, pages).unwrap().time.0);
        }
    }
    table.compare();
}

/// Two cards update the same array.
fn fight(spec: &CardsSpec) -> Vec<JobReport> {
    let mut machine = CardMachine::with_checker(spec.clone(), false).unwrap();
    let pages = machine.allocate(64 * 4_096, "shared").unwrap();
    let job = |card| (CardId(card), Work::Update { pages });
    machine.run_all(vec![job(0), job(1)]).unwrap()
}

/// More pieces of memory than the MMU has entries for.
fn lost_translations(spec: &CardsSpec) -> JobReport {
    let mut machine = CardMachine::with_checker(spec.clone(), false).unwrap();
    let array = machine.allocate(2_048 * 4_096, "list").unwrap();
    for first in (0..2_048).step_by(16) {
        let piece = PageRange::new(array.start.offset(first), 16);
        machine.migrate(piece, CardId(1).memory()).unwrap();
    }
    machine.run(CardId(1), Work::chase(array, 2_048)).unwrap()
}
