//! Who shares which pages, and who writes them (Figures 4 to 10): counted in the order of a
//! functional replay, without any machine.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use farside_sim::analysis::{Kind, PageOverTime, Sharing, SharingOptions};
use farside_workloads::catalog;

use super::Scale;
use super::claims::Claim;
use super::plan::{PageKind, Plan, SharingClaim, SharingPlan};
use crate::reproduce::{Axis, Bar, Cells, Drawing, Figure, Row};

/// GPUs and compute units of the paper's machine.
const GPUS: u32 = 4;
const UNITS: u32 = 64;

/// Looks at every workload, several at a time; those that cannot be built are left out here, and
/// named by the cells that fail for them.
pub(super) fn look(plan: &Plan, scale: Scale, jobs: usize) -> Vec<Sharing> {
    if plan.sharing.is_none() {
        return Vec::new();
    }
    let names: Vec<&String> = plan.megabytes.keys().collect();
    let (next, found) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..jobs.clamp(1, names.len().max(1)) {
            scope.spawn(|| {
                while let Some(name) = names.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let bytes = plan.bytes(None, name, scale);
                    if let Ok(workload) = catalog::by_name(name, bytes) {
                        let sharing =
                            Sharing::of(&*workload, GPUS, UNITS, &SharingOptions::default());
                        found.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).push(sharing);
                    }
                }
            });
        }
    });
    let mut found = found.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
    found.sort_by(|a, b| a.workload.cmp(&b.workload));
    found
}

/// The numbers that the text prints about pages.
pub(super) fn claims(plan: &Plan, sharings: &[Sharing]) -> Vec<Claim> {
    let stated = plan.sharing.iter().flat_map(|sharing: &SharingPlan| &sharing.claims);
    let claim = |stated: &SharingClaim| {
        let sharing = sharings.iter().find(|sharing| sharing.workload == stated.workload)?;
        let all = sharing.all().pages.max(1) as f64;
        let (pages, text) = match stated.pages {
            PageKind::Shared => (sharing.share(Kind::Shared).pages, "shared"),
            PageKind::Private => (sharing.share(Kind::Private).pages, "private"),
            PageKind::SharedWritten => (shared_and_written(sharing), "shared and written"),
        };
        let row = Row {
            what: format!("{}: pages that are {text}", stated.workload.to_uppercase()),
            unit: "%".to_owned(),
            paper: stated.paper,
            ours: 100.0 * pages as f64 / all,
            source: stated.source.clone(),
        };
        Some(Claim { id: stated.id.clone(), row, workloads: 1 })
    };
    stated.filter_map(claim).collect()
}

fn shared_and_written(sharing: &Sharing) -> u64 {
    let read = sharing.read_by_sharers.get(1..).unwrap_or_default();
    sharing.share(Kind::Shared).pages - read.iter().map(|share| share.pages).sum::<u64>()
}

/// Figures 4 to 10.
pub(super) fn figures(sharings: &[Sharing]) -> Vec<Figure> {
    if sharings.is_empty() {
        return Vec::new();
    }
    let named = |name: &str| sharings.iter().find(|sharing| sharing.workload == name);
    let mut figures = vec![private_and_shared(sharings)];
    for (workload, letter) in [("c2d", "a"), ("st", "b")] {
        let page = named(workload).and_then(|sharing| sharing.shared_page.as_ref());
        figures.extend(page.map(|page| shared_page(workload, letter, page)));
    }
    figures.extend(named("gemm").map(|sharing| map(6, sharing, "private or shared", WHO)));
    figures.extend(named("gemm").map(|sharing| map(7, sharing, "read or read-write", WHAT)));
    figures.extend(named("st").map(|sharing| map(8, sharing, "private or shared", WHO)));
    figures.push(read_and_written(sharings));
    let page = named("st").and_then(|sharing| sharing.read_write_page.as_ref());
    figures.extend(page.map(written_page));
    figures
}

const INTERVALS: &str = "Intervals are of equal numbers of accesses, in the order of a functional \
    replay; the paper's are of cycles.";

fn figure(name: &str, title: String, labels: (&str, &str), drawing: Drawing) -> Figure {
    let axis = |label: &str| Axis { label: label.to_owned(), ..Axis::default() };
    let (x, y) = (axis(labels.0), axis(labels.1));
    Figure { name: name.to_owned(), title, note: None, x, y, drawing }
}

fn percent(part: u64, whole: u64) -> f64 {
    100.0 * part as f64 / whole.max(1) as f64
}

fn private_and_shared(sharings: &[Sharing]) -> Figure {
    let mut bars = Vec::new();
    for (group, sharing) in sharings.iter().enumerate() {
        let (private, all) = (sharing.share(Kind::Private), sharing.all());
        for (label, part, whole) in
            [("pages", private.pages, all.pages), ("accesses", private.accesses, all.accesses)]
        {
            let part = percent(part, whole);
            bars.push(Bar { group, label: label.to_owned(), parts: vec![part, 100.0 - part] });
        }
    }
    let title = "Figure 4: private and shared pages, and accesses to them".to_owned();
    let parts = ["private", "shared"].map(String::from).into();
    let drawing = Drawing::Stacked { groups: groups(sharings), parts, bars };
    figure("figure-4", title, ("", "%"), drawing)
}

fn read_and_written(sharings: &[Sharing]) -> Figure {
    let bar = |(group, sharing): (usize, &Sharing)| {
        let read = percent(sharing.share(Kind::Read).accesses, sharing.all().accesses);
        Bar { group, label: String::new(), parts: vec![read, 100.0 - read] }
    };
    let bars = sharings.iter().enumerate().map(bar).collect();
    let title = "Figure 9: accesses to read pages and to read-write pages".to_owned();
    let parts = ["read page", "read-write page"].map(String::from).into();
    let drawing = Drawing::Stacked { groups: groups(sharings), parts, bars };
    figure("figure-9", title, ("", "%"), drawing)
}

fn groups(sharings: &[Sharing]) -> Vec<String> {
    sharings.iter().map(|sharing| sharing.workload.to_uppercase()).collect()
}

/// Every tenth interval has its number below it.
fn interval_labels(count: usize) -> Vec<String> {
    let label = |index: usize| if index % 10 == 0 { index.to_string() } else { String::new() };
    (0..count).map(label).collect()
}

fn shared_page(workload: &str, letter: &str, page: &PageOverTime) -> Figure {
    let count = page.reads.len();
    let bar = |group: usize| {
        let accesses = page.by_gpu(group);
        let parts = accesses.iter().map(|&accesses| accesses as f64).collect();
        Bar { group, label: String::new(), parts }
    };
    let drawing = Drawing::Stacked {
        groups: interval_labels(count),
        parts: (0..GPUS).map(|gpu| format!("GPU {gpu}")).collect(),
        bars: (0..count).map(bar).collect(),
    };
    let title = format!("Figure 5{letter}: a shared page of {} over time", workload.to_uppercase());
    let mut figure = figure(&format!("figure-5{letter}"), title, ("interval", "accesses"), drawing);
    figure.note = Some(format!("Page {}: {}. {INTERVALS}", page.page, page.rule));
    figure
}

fn written_page(page: &PageOverTime) -> Figure {
    let count = page.reads.len();
    let sum = |counts: Option<&Vec<u64>>| counts.map_or(0.0, |c| c.iter().sum::<u64>() as f64);
    let bar = |group: usize| {
        let parts = vec![sum(page.reads.get(group)), sum(page.writes.get(group))];
        Bar { group, label: String::new(), parts }
    };
    let drawing = Drawing::Stacked {
        groups: interval_labels(count),
        parts: ["reads", "writes"].map(String::from).into(),
        bars: (0..count).map(bar).collect(),
    };
    let title = "Figure 10: a read-write page of ST over time".to_owned();
    let mut figure = figure("figure-10", title, ("interval", "accesses"), drawing);
    figure.note = Some(format!("Page {}: {}. {INTERVALS}", page.page, page.rule));
    figure
}

/// A class for each letter of [`farside_sim::analysis::Attributes`]; 0 is not accessed.
type Classes = (fn(u8) -> u8, [&'static str; 2]);

const WHO: Classes = (
    |letter| match letter {
        b'p' | b'P' => 1,
        b's' | b'S' => 2,
        _ => 0,
    },
    ["private", "shared"],
);

const WHAT: Classes = (
    |letter| match letter {
        b'p' | b's' => 1,
        b'P' | b'S' => 2,
        _ => 0,
    },
    ["read", "read-write"],
);

fn map(number: u32, sharing: &Sharing, about: &str, (class, names): Classes) -> Figure {
    let rows = &sharing.attributes.rows;
    let columns = rows.first().map_or(0, String::len);
    let cells = rows.iter().flat_map(|row| row.bytes().map(class)).collect();
    let classes = ["not accessed", names[0], names[1]].map(String::from).into();
    let workload = sharing.workload.to_uppercase();
    let title = format!("Figure {number}: pages of {workload} over time, {about}");
    let drawing = Drawing::Map(Cells { columns, classes, cells });
    let mut figure = figure(&format!("figure-{number}"), title, ("page", "interval"), drawing);
    figure.note = Some(INTERVALS.to_owned());
    figure
}
