//! The tables on a terminal, laid out as the paper's: each line of ours above the paper's.

use farside_sim::cards::paper::{self, Micros, SIZES};

use super::LARGEST;
use super::samples::{Cell, Measured, Migration};
use crate::commands::{paragraph, table};

/// Software of a page of 32 MB between two cards in the paper, in µs: what is not DMA ("about 50 %", section
/// V-C) of 6.30 ms (PCIe E2E) and 5.97 ms (Ethernet, Table II) is 0.38 and 0.36 µs for each of 8192 pages.
pub(super) const SOFTWARE_OF_THE_PAPER: f64 = 0.37;

/// A time given in µs as the paper prints times: below 100 in µs, above in ms, three digits.
fn micros(time: f64) -> String {
    let (value, unit) = if time < 100.0 { (time, "µs") } else { (time / 1e3, "ms") };
    let digits = if value < 10.0 { 2 } else { 1 };
    format!("{value:.digits$} {unit}")
}

fn line(label: String, cells: impl IntoIterator<Item = String>) -> Vec<String> {
    std::iter::once(label).chain(cells).collect()
}

fn times(label: String, times: &Micros) -> Vec<String> {
    line(label, times.map(micros))
}

/// Of every size.
fn of(measured: &Measured, time: impl Fn(&Cell) -> f64) -> Micros {
    std::array::from_fn(|size| time(&measured.cells[size]))
}

fn header() -> Vec<String> {
    line(String::new(), SIZES.map(|size| size.name.to_owned()))
}

const PAPER: &str = "  the paper";

/// All of them.
pub(super) fn text(bounce: &Measured, peer: &Measured) -> String {
    let both = [bounce, peer];
    let sizes = "l".to_owned() + &"r".repeat(SIZES.len());
    let parts = [
        (
            "Table I: the synthetic accelerator; on demand by 16 pages; half of each",
            sizes.clone(),
            table_1(both),
        ),
        (
            "Table II: a migration from card to card, source pages contiguous",
            sizes.clone(),
            table_2(both),
        ),
        (
            "Figure 5: the same, source pages scattered; 4 kB: across a page border",
            sizes.clone(),
            scattered(both),
        ),
        ("4 kB on a page, and across the border of two", "lrrr".into(), border(both)),
        ("Table III: a page of a migration of 32 MB by steps", "lrrrrl".into(), table_3(both)),
        ("Figure 7: speedup over host to card", sizes, figure_7(both)),
    ];
    let part = |(title, kinds, rows): (&str, String, Vec<Vec<String>>)| {
        format!("\n{}{}", paragraph("", title), table(&kinds, rows))
    };
    parts.into_iter().map(part).collect()
}

fn table_1(both: [&Measured; 2]) -> Vec<Vec<String>> {
    let mut rows = vec![header()];
    for way in both {
        rows.push(times(
            format!("ODPM ({})", way.transport.name()),
            &of(way, |cell| cell.on_demand),
        ));
        rows.push(times(PAPER.to_owned(), &paper::on_demand(way.transport)));
    }
    for way in both {
        let label = format!("by 16 ({})", way.transport.name());
        rows.push(times(label, &of(way, |cell| cell.by_sixteen)));
    }
    for way in both {
        let cells = way.cells.iter().map(|cell| cell.mixed.map_or("-".to_owned(), micros));
        rows.push(line(format!("half ({})", way.transport.name()), cells));
    }
    for way in both {
        let label = format!("UMPM ({})", way.transport.name());
        rows.push(times(label, &of(way, |cell| cell.user_managed)));
        rows.push(times(PAPER.to_owned(), &paper::user_managed(way.transport)));
    }
    rows
}

fn table_2(both: [&Measured; 2]) -> Vec<Vec<String>> {
    let mut rows = vec![header()];
    for way in both {
        let label = way.transport.name().to_owned();
        rows.push(times(label, &of(way, |cell| cell.contiguous.time)));
        rows.push(times(PAPER.to_owned(), &paper::migration(way.transport)));
    }
    rows
}

fn scattered(both: [&Measured; 2]) -> Vec<Vec<String>> {
    let row = |way: &Measured| {
        let time: Micros = std::array::from_fn(|size| way.scattered(size).time);
        times(way.transport.name().to_owned(), &time)
    };
    std::iter::once(header()).chain(both.map(row)).collect()
}

fn border(both: [&Measured; 2]) -> Vec<Vec<String>> {
    let cells = ["", "one page", "across", "ratio"].map(String::from).to_vec();
    let mut rows = vec![cells];
    type Time = fn(&Cell) -> f64;
    let experiments: [(&str, Time); 3] = [
        ("ODPM", |cell| cell.on_demand),
        ("UMPM", |cell| cell.user_managed),
        ("migration", |cell| cell.contiguous.time),
    ];
    for (name, time) in experiments {
        for way in both {
            let (one, across) = (time(&way.cells[0]), time(&way.border));
            let ratio = format!("{:.2}x", across / one);
            let label = format!("{name} ({})", way.transport.name());
            rows.push(vec![label, micros(one), micros(across), ratio]);
        }
    }
    rows
}

/// A step of a migration.
pub(super) struct Step {
    pub(super) name: &'static str,
    /// The paper's steps that it belongs to, with what it says of PCIe E2E at 32 MB.
    paper: &'static str,
    /// Its time in µs.
    pub(super) time: fn(&Migration) -> f64,
}

const fn step(name: &'static str, paper: &'static str, time: fn(&Migration) -> f64) -> Step {
    Step { name, paper, time }
}

/// The steps in order.
pub(super) const STEPS: [Step; 6] = [
    step("planning", "setup, allocate", |it| it.steps.plan),
    step("commands", "setup, finalize", |it| it.steps.commands),
    step("setup", "setup", |it| it.steps.setup),
    step("DMA", "DMA: about 50 %", |it| it.steps.copy),
    step("finalize", "finalize: 40 %", |it| it.steps.finalize),
    step("rest", "", Migration::rest),
];

/// The share of a step in the whole of all of them, in percent.
pub(super) fn share(migration: &Migration, step: fn(&Migration) -> f64) -> f64 {
    let whole: f64 = STEPS.iter().map(|step| (step.time)(migration)).sum();
    if whole > 0.0 { 100.0 * step(migration) / whole } else { 0.0 }
}

/// ns of each page of a migration of 32 MB.
fn nanos(micros: f64) -> f64 {
    micros * 1e3 / SIZES[LARGEST].pages as f64
}

fn table_3(both: [&Measured; 2]) -> Vec<Vec<String>> {
    let names = both.map(|way| way.transport.name().to_owned());
    let [bounce, peer] = names;
    let mut rows =
        vec![vec![String::new(), bounce, "".into(), peer, "".into(), "the paper".into()]];
    let migrations = both.map(|way| way.cells[LARGEST].contiguous);
    for Step { name, paper, time } in STEPS {
        let cells = migrations.iter().flat_map(|migration| {
            let nanos = format!("{:.0} ns", nanos(time(migration)));
            [nanos, format!("{:.0} %", share(migration, time))]
        });
        let mut row = line(name.to_owned(), cells);
        row.push(paper.to_owned());
        rows.push(row);
    }
    let software = migrations.map(|it| format!("{:.0} ns", nanos(it.steps.software())));
    let [bounce, peer] = software;
    let paper = format!("{:.0} ns", SOFTWARE_OF_THE_PAPER * 1e3);
    rows.push(vec!["software".into(), bounce, "".into(), peer, "".into(), paper]);
    rows
}

fn figure_7(both: [&Measured; 2]) -> Vec<Vec<String>> {
    let base = &both[1].cells;
    let over = |time: &dyn Fn(usize) -> f64| {
        let ratio = |size: usize| format!("{:.2}", base[size].from_host.time / time(size));
        (0..SIZES.len()).map(ratio).collect::<Vec<_>>()
    };
    let mut rows = vec![header()];
    for way in both {
        let label = format!("card ({})", way.transport.name());
        rows.push(line(label, over(&|size| way.cells[size].contiguous.time)));
    }
    rows.push(line("card to host".to_owned(), over(&|size| base[size].to_host.time)));
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::migrate::samples::tests::measured;
    use farside_sim::cards::Transport;

    #[test]
    fn times_are_printed_as_the_paper_prints_them() {
        let printed = [6.2, 45.7, 99.96, 160.0, 1010.0, 30_300.0].map(micros);
        assert_eq!(printed, ["6.20 µs", "45.7 µs", "100.0 µs", "0.16 ms", "1.01 ms", "30.3 ms"]);
    }

    #[test]
    fn the_tables_have_the_papers_lines_below_ours_and_fit_a_screen() {
        let (bounce, peer) = (measured(Transport::Bounce, 2.0), measured(Transport::Peer, 1.0));
        let text = text(&bounce, &peer);
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        let mut lines = text.lines().skip_while(|line| !line.starts_with("ODPM (PCIe E2E)"));
        let words = |line: Option<&str>| -> Vec<String> {
            line.unwrap_or_default().split_whitespace().map(String::from).collect()
        };
        let ours = ["ODPM", "(PCIe", "E2E)", "1.00", "µs", "8.00", "µs", "32.0", "µs"];
        assert_eq!(words(lines.next())[..9], ours);
        let theirs = ["the", "paper", "33.5", "µs", "54.2", "µs", "0.14", "ms"];
        assert_eq!(words(lines.next())[..8], theirs);
        let half = text.lines().find(|line| line.starts_with("half (PCIe)"));
        assert_eq!(words(half)[..5], ["half", "(PCIe)", "-", "9.60", "µs"]);
        let across = text.lines().find(|line| line.starts_with("migration (PCIe)"));
        assert_eq!(words(across)[2..], ["0.80", "µs", "1.60", "µs", "2.00x"]);
        let to_host = text.lines().find(|line| line.starts_with("card to host"));
        assert_eq!(words(to_host)[3..5], ["1.25", "1.25"]);
        let software = text.lines().find(|line| line.starts_with("software"));
        assert_eq!(words(software), ["software", "400", "ns", "200", "ns", "370", "ns"]);
    }

    #[test]
    fn the_shares_of_the_steps_are_a_whole() {
        let migration = measured(Transport::Peer, 1.0).cells[LARGEST].contiguous;
        let whole: f64 = STEPS.iter().map(|step| share(&migration, step.time)).sum();
        assert!((whole - 100.0).abs() < 1e-9, "{whole}");
        assert!((share(&migration, |it| it.steps.copy) - 25.0).abs() < 1e-9);
        assert_eq!(share(&Migration::default(), |it| it.steps.copy), 0.0);
    }
}
