//! What depends on what: the arrows between the crates of this repository, and how many crates a
//! program compiles for the library.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use serde_json::Value;

/// Crates that a program may have to compile for `farside`, itself included.
const COMPILED_MAX: usize = 45;

/// What each crate may depend on, from the bottom up, and what of it by a feature only. An arrow
/// that is not here is an error, and so is a crate that is not.
const ARROWS: &[(&str, &[&str], &[&str])] = &[
    ("farside-types", &[], &[]),
    ("farside-svm", &["farside-types"], &[]),
    ("farside-card", &["farside-types"], &[]),
    ("farside-vfio-user", &[], &[]),
    ("farside-fabric", &[], &[]),
    ("farside-link", &[], &[]),
    ("farside-linux", &["farside-types"], &[]),
    (
        "farside-softcard",
        &["farside-types", "farside-card", "farside-vfio-user", "farside-linux"],
        &[],
    ),
    (
        "farside-live",
        &[
            "farside-types",
            "farside-svm",
            "farside-card",
            "farside-fabric",
            "farside-link",
            "farside-vfio-user",
            "farside-linux",
            "farside-softcard",
        ],
        &[],
    ),
    ("farside-conformance", &["farside-types", "farside-card"], &["farside-linux", "farside-live"]),
    ("farside-lease", &[], &[]),
    (
        "farside-lend",
        &[
            "farside-types",
            "farside-lease",
            "farside-fabric",
            "farside-link",
            "farside-vfio-user",
            "farside-linux",
            "farside-softcard",
            "farside-live",
        ],
        &[],
    ),
    ("farside-parquet", &[], &[]),
    ("farside-workloads", &["farside-types", "farside-parquet"], &[]),
    ("farside-events", &["farside-types", "farside-svm", "farside-parquet"], &[]),
    ("farside-report", &["farside-types", "farside-events"], &[]),
    (
        "farside-sim",
        &["farside-types", "farside-svm", "farside-card", "farside-parquet", "farside-workloads"],
        &[],
    ),
    ("farside-plugin", &["farside-types", "farside-svm", "farside-linux"], &["farside-sim"]),
    (
        "farside",
        &["farside-types", "farside-svm", "farside-softcard", "farside-live", "farside-plugin"],
        &["farside-workloads", "farside-events"],
    ),
    ("farside-c", &["farside"], &[]),
    (
        "farside-python",
        &[
            "farside",
            "farside-events",
            "farside-plugin",
            "farside-report",
            "farside-sim",
            "farside-workloads",
        ],
        &[],
    ),
    (
        "farside-cli",
        &[
            "farside-types",
            "farside-svm",
            "farside-card",
            "farside-linux",
            "farside-softcard",
            "farside-vfio-user",
            "farside-live",
            "farside-lend",
            "farside-conformance",
            "farside-plugin",
            "farside-sim",
            "farside-workloads",
            "farside-events",
            "farside-report",
            "farside",
        ],
        &[],
    ),
];

/// Crates that nobody depends on and that may see everything: the harness, the guest's program.
const TOPS: [&str; 2] = ["farside-tests", "farside-guest"];

/// What cargo prints about this workspace.
fn cargo(args: &[&str]) -> String {
    let cargo = std::env::var_os("CARGO").expect("cargo says where it is");
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
    let output = Command::new(cargo).args(args).current_dir(folder).output().expect("it starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("cargo prints text")
}

/// The arrows that go out from each crate when it is built: always, or by a feature.
#[derive(Default, Debug)]
struct Arrows {
    always: BTreeSet<String>,
    by_feature: BTreeSet<String>,
}

fn workspace() -> Vec<Value> {
    let text = cargo(&["metadata", "--format-version", "1", "--no-deps", "--locked"]);
    let metadata: Value = serde_json::from_str(&text).expect("cargo prints JSON");
    metadata["packages"].as_array().expect("a list").clone()
}

fn text(value: &Value) -> String {
    value.as_str().expect("a text").to_owned()
}

fn arrows() -> BTreeMap<String, Arrows> {
    let packages = workspace();
    let ours: BTreeSet<String> = packages.iter().map(|package| text(&package["name"])).collect();
    let mut found = BTreeMap::new();
    for package in &packages {
        let mut arrows = Arrows::default();
        for dependency in package["dependencies"].as_array().expect("a list") {
            let name = text(&dependency["name"]);
            // Tests may use more.
            if dependency["kind"] == "dev" || !ours.contains(&name) {
                continue;
            }
            let optional = dependency["optional"] == true;
            if optional { &mut arrows.by_feature } else { &mut arrows.always }.insert(name);
        }
        found.insert(text(&package["name"]), arrows);
    }
    found
}

#[test]
fn arrows_between_crates_point_one_way() {
    let mut wrong = Vec::new();
    let mut below: BTreeSet<&str> = BTreeSet::new();
    for (name, always, by_feature) in ARROWS {
        for to in always.iter().chain(*by_feature) {
            assert!(below.contains(to), "{name} → {to} is allowed, and {to} is not below {name}");
        }
        below.insert(name);
    }
    let found = arrows();
    for (name, arrows) in &found {
        if TOPS.contains(&name.as_str()) {
            continue;
        }
        let Some((_, always, by_feature)) = ARROWS.iter().find(|(known, ..)| known == name) else {
            wrong.push(format!("{name} has no place in the table of this test"));
            continue;
        };
        for to in arrows.always.iter().filter(|to| !always.contains(&to.as_str())) {
            wrong.push(format!("{name} → {to}"));
        }
        let may = |to: &&String| always.contains(&to.as_str()) || by_feature.contains(&to.as_str());
        for to in arrows.by_feature.iter().filter(|to| !may(to)) {
            wrong.push(format!("{name} → {to}, by a feature"));
        }
    }
    assert!(wrong.is_empty(), "arrows that must not be:\n{}", wrong.join("\n"));
    for (name, ..) in ARROWS {
        assert!(found.contains_key(*name), "{name} is in the table of this test, and is no crate");
    }
}

#[test]
fn the_suite_of_the_card_interface_is_in_nobodys_default_features() {
    for package in workspace() {
        let default = package["features"]["default"].as_array().cloned().unwrap_or_default();
        assert!(!default.contains(&"conformance".into()), "{}", package["name"]);
    }
}

#[test]
fn a_program_compiles_few_crates_for_the_library() {
    let tree = [
        "tree",
        "--locked",
        "-p",
        "farside",
        "-e",
        "normal,build",
        "--prefix",
        "none",
        "-f",
        "{p}",
    ];
    let listed = cargo(&tree);
    let crates: BTreeSet<&str> = listed
        .lines()
        .map(|line| line.trim_end_matches(" (*)"))
        .filter(|l| !l.is_empty())
        .collect();
    assert!(crates.len() > 5, "cargo lists the crates:\n{listed}");
    let names: Vec<&str> = crates.iter().copied().collect();
    assert!(crates.len() <= COMPILED_MAX, "{} crates:\n{}", crates.len(), names.join("\n"));
}
