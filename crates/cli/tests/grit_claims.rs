//! The claims of the GRIT paper that matter, at a size that fits into a test.
//!
//! A simulation gives the same numbers on every machine, so `docs/measurements/grit-claims.md` is exact: it has each claim by
//! its name, what comes out at this size, and whether that is what the paper says. A change of the model or of a scheme
//! that moves one of them fails here, whichever way. One that is meant to writes the page anew
//! (`FARSIDE_WRITE_CLAIMS=1`), and says why; `docs/experiments.md` has the numbers at larger footprints.

use std::path::{Path, PathBuf};
use std::sync::Mutex;

use farside_cli::reproduce::grit::{Claim, Reproduction, Scale};
use farside_cli::sweep::{self, Cache, Options, Place};

/// The footprints of the paper's Table II divided by this.
const DIVIDED_BY: u64 = 64;

/// Experiments with all eight workloads.
const WHOLE: [&str; 3] = ["figure-1", "figure-17", "figure-18"];

/// Experiments without the two workloads that take longest.
const SHORT: [&str; 10] = [
    "figure-20",
    "figure-21",
    "figure-22",
    "figure-23",
    "figure-26",
    "figure-27",
    "figure-28",
    "figure-29",
    "figure-30",
    "farside",
];
const QUICK: [&str; 6] = ["c2d", "fir", "gemm", "mm", "sc", "st"];

/// Percentage points from the paper's number within which a claim comes out, if it has its sign.
const WITHIN: f64 = 15.0;

/// What this project wants its own scheme to gain over GRIT, in percent.
const GOAL: f64 = 10.0;
const GOALS: [&str; 2] = ["farside.grit", "paper.farside"];

/// Whether a claim is what the paper says, or what this project wants; nothing where nobody says anything.
fn comes_out(claim: &Claim) -> Option<bool> {
    let (ours, fastest) = (claim.row.ours, claim.row.unit == "x");
    if fastest {
        return Some(ours >= 1.0);
    }
    if GOALS.contains(&claim.id.as_str()) {
        return Some(ours >= GOAL);
    }
    let paper = claim.row.paper?;
    Some((ours - paper).abs() <= WITHIN && ours * paper >= 0.0)
}

/// Training, which is not in Table II and takes longest: 4 MB of it, the least that is like the whole.
const NETWORKS: [&str; 2] = ["vgg16", "resnet18"];
const NETWORKS_MEGABYTES: u64 = 4;

/// A folder that is gone with the test.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Runs what `whole` needs, in processes as `farside reproduce grit` does.
fn carry_out(name: &str, whole: &Reproduction) -> Vec<Claim> {
    let name = format!("farside-claims-{name}-{}", std::process::id());
    let folder = Folder(std::env::temp_dir().join(name));
    let options = Options {
        cache: Cache::open(&folder.0).expect("a folder for results"),
        binary: env!("CARGO_BIN_EXE_farside").into(),
        place: Place::Local { jobs: 0 },
    };
    let done = sweep::run(&whole.cells(), &options, |_| ()).expect("a sweep");
    for cell in &done {
        assert!(cell.outcome.is_ok(), "{}: {:?}", cell.cell, cell.outcome);
    }
    whole.claims(&done, &[])
}

fn ours(claims: &[Claim], id: &str) -> f64 {
    let claim = claims.iter().find(|claim| claim.id == id);
    claim.unwrap_or_else(|| panic!("there is no claim {id}")).row.ours
}

/// The page, and whose turn it is to write it.
const PAGE: &str = "../../docs/measurements/grit-claims.md";
static PAGE_LOCK: Mutex<()> = Mutex::new(());

/// A section's rows as the page has them.
fn rows(claims: &[Claim]) -> String {
    let row = |claim: &Claim| {
        let Claim { id, row, .. } = claim;
        let unit = if row.unit == "x" { "x" } else { " %" };
        let paper = match (row.paper, row.unit.as_str()) {
            (Some(paper), _) => format!("{paper}{unit}"),
            (None, "x") => "1x and more".to_owned(),
            (None, _) if GOALS.contains(&id.as_str()) => format!("(goal: {GOAL} %)"),
            (None, _) => String::new(),
        };
        let verdict = comes_out(claim).map_or("", |it| if it { "yes" } else { "no" });
        format!("| `{id}` | {paper} | {:.2}{unit} | {verdict} |\n", row.ours)
    };
    claims.iter().map(row).collect()
}

/// Compares with the section of the page that has this title, or writes it.
fn compare(title: &str, claims: &[Claim]) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(PAGE);
    let _turn = PAGE_LOCK.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let page = std::fs::read_to_string(&path).expect("the page of claims");
    let heading = format!("## {title}\n");
    let (before, section) = page.split_once(&heading).expect("a section of this title");
    let section = section.split_once("\n## ").map_or(section, |(section, _)| section);
    let now = rows(claims);
    let stored = section.lines().filter(|line| line.starts_with("| `"));
    let stored: String = stored.map(|line| format!("{line}\n")).collect();
    if std::env::var_os("FARSIDE_WRITE_CLAIMS").is_some() {
        let rest = &page[before.len() + heading.len() + section.len()..];
        let kept = section.lines().filter(|line| !line.starts_with("| `"));
        let kept: Vec<_> = kept.collect();
        let kept = kept.join("\n");
        let text = format!("{before}{heading}{}\n{now}{rest}", kept.trim_end_matches('\n'));
        std::fs::write(&path, text).expect("the page is written");
        return;
    }
    assert!(
        stored == now,
        "{title}: what comes out has changed; it is now\n{now}and docs/experiments.md needs a new run"
    );
}

#[test]
fn the_schemes_compare_as_the_documentation_says() {
    let whole = Reproduction::new(Scale::Divided(DIVIDED_BY)).only(&WHOLE).expect("experiments");
    compare("Table I's machine", &carry_out("whole", &whole));
}

#[test]
fn the_schemes_compare_on_the_paper_s_machine_as_the_documentation_says() {
    let whole =
        Reproduction::new(Scale::Divided(DIVIDED_BY)).only(&["paper"]).expect("experiments");
    compare("The paper's machine", &carry_out("paper", &whole));
}

#[test]
fn training_compares_as_the_documentation_says() {
    let training = Reproduction::new(Scale::Divided(DIVIDED_BY)).only(&["figure-31"]);
    let training = NETWORKS.iter().fold(training.expect("an experiment"), |training, network| {
        training.size(network, NETWORKS_MEGABYTES * DIVIDED_BY)
    });
    compare("Training", &carry_out("training", &training));
}

#[test]
fn parts_rivals_and_other_machines_compare_as_the_documentation_says() {
    let short = Reproduction::new(Scale::Divided(DIVIDED_BY)).only(&SHORT).expect("experiments");
    let claims = carry_out("short", &short.workloads(&QUICK));
    compare("Parts, rivals and other machines", &claims);

    let part = |name: &str| ours(&claims, &format!("ablation.{name}"));
    assert!(part("table") < part("cache"), "the PA-Cache gives something");
    assert!(part("table") < part("neighbours"), "that neighbours are predicted gives something");
    let without = |name: &str| ours(&claims, &format!("farside.{name}"));
    let loss = |name: &str| without("grit") - without(name);
    assert!(loss("prefetch") > 0.0, "that groups come together gives something");
    assert!(
        loss("objects") == 0.0 && loss("residency") <= 0.0,
        "where costs are known, the other two give nothing"
    );
}
