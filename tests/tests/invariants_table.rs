//! The table of invariants (`docs/invariants.md`) is complete and says the truth: every number is
//! there once, every test that it names exists, every mutation has a row.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use farside_svm::Mutation;

/// Numbers run from 1 to this.
const INVARIANTS: u32 = 59;

/// Up to this one none is missing.
const COMPLETE: u32 = 40;

/// One line of a table with five columns.
#[derive(Debug)]
struct Row {
    name: String,
    tests: Vec<String>,
    controls: Vec<String>,
    /// The text of the column of controls, for `none:`.
    control: String,
    state: String,
}

/// The rows of every table with five columns, heads and rulers left out.
fn rows(text: &str) -> Vec<Row> {
    let lines = text.lines().filter(|line| line.starts_with('|'));
    let cells = lines
        .map(|line| -> Vec<&str> { line.trim_matches('|').split('|').map(str::trim).collect() });
    cells
        .filter(|cells| cells.len() == 5 && !cells[0].starts_with("---"))
        .filter(|cells| cells[4] != "state")
        .map(|cells| Row {
            name: cells[0].to_owned(),
            tests: quoted(cells[2]),
            controls: quoted(cells[3]),
            control: cells[3].to_owned(),
            state: cells[4].to_owned(),
        })
        .collect()
}

/// What stands between backquotes.
fn quoted(cell: &str) -> Vec<String> {
    cell.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// What is wrong with the table, in words. `has_test` says whether a file has a test of a name.
fn complaints(text: &str, has_test: &dyn Fn(&str, &str) -> bool) -> Vec<String> {
    let rows = rows(text);
    let mut wrong = numbers(&rows);
    for row in &rows {
        let mut complain = |what: String| wrong.push(format!("row {}: {what}", row.name));
        for problem in state(row) {
            complain(problem);
        }
        let controls = row.controls.iter().filter(|name| !name.starts_with("Mutation::"));
        for name in row.tests.iter().chain(controls) {
            match name.split_once("::") {
                Some((file, test)) if has_test(file, test) => {}
                Some((file, test)) => complain(format!("{file} has no #[test] {test}")),
                None => complain(format!("`{name}` is not file::test")),
            }
        }
    }
    wrong.extend(mutations(&rows));
    wrong
}

/// Every number once, and nothing that looks like one besides.
fn numbers(rows: &[Row]) -> Vec<String> {
    let mut count = BTreeMap::new();
    for number in rows.iter().filter_map(|row| row.name.parse::<u32>().ok()) {
        *count.entry(number).or_insert(0) += 1;
    }
    let missing = (1..=COMPLETE)
        .filter(|number| !count.contains_key(number))
        .map(|number| format!("invariant {number} is missing"));
    let doubled = count
        .iter()
        .filter(|(number, times)| **times > 1 || !(1..=INVARIANTS).contains(*number))
        .map(|(number, times)| format!("invariant {number} is there {times} times"));
    missing.chain(doubled).collect()
}

/// What is said to be tested has a test and a control, what is put off has a reason.
fn state(row: &Row) -> Vec<String> {
    let reason = |prefix: &str| {
        row.state.strip_prefix(prefix).is_some_and(|reason| reason.trim().len() > 10)
    };
    let mut wrong = Vec::new();
    if reason("later:") {
        if !row.tests.is_empty() {
            wrong.push("is `later`, but names tests; say `part:`".to_owned());
        }
        return wrong;
    }
    if row.state != "tested" && !reason("part:") {
        wrong.push(format!("its state is `{}`, without a reason", row.state));
    }
    if row.tests.is_empty() {
        wrong.push("it names no test".to_owned());
    }
    let without = row.control.strip_prefix("none:").is_some_and(|why| why.trim().len() > 10);
    if row.controls.is_empty() && !without {
        wrong.push("it names no control and does not say why".to_owned());
    }
    wrong
}

/// Every mutation has a row, and no row names one that does not exist.
fn mutations(rows: &[Row]) -> Vec<String> {
    let all = Mutation::ALL.map(|mutation| format!("{mutation:?}"));
    let named: Vec<&str> = rows
        .iter()
        .flat_map(|row| &row.controls)
        .filter_map(|name| name.strip_prefix("Mutation::"))
        .collect();
    let missing = all
        .iter()
        .filter(|name| !named.contains(&name.as_str()))
        .map(|name| format!("Mutation::{name} has no row"));
    let unknown = named
        .iter()
        .filter(|name| !all.iter().any(|known| known == *name))
        .map(|name| format!("there is no Mutation::{name}"));
    missing.chain(unknown).collect()
}

/// Whether `source` has a function `test` with `#[test]` before it.
fn defines_test(source: &str, test: &str) -> bool {
    let start = format!("fn {test}(");
    let mut marked = false;
    for line in source.lines().map(str::trim) {
        let line = line.strip_prefix("async ").unwrap_or(line);
        if line == "#[test]" || line == "#[tokio::test]" {
            marked = true;
        } else if line.starts_with("fn ") {
            if marked && line.starts_with(&start) {
                return true;
            }
            marked = false;
        }
    }
    false
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn has_test(file: &str, test: &str) -> bool {
    std::fs::read_to_string(root().join(file)).is_ok_and(|source| defines_test(&source, test))
}

fn table() -> String {
    let path = root().join("docs/invariants.md");
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn the_table_is_complete_and_every_test_in_it_exists() {
    let wrong = complaints(&table(), &has_test);
    assert!(wrong.is_empty(), "docs/invariants.md:\n{}", wrong.join("\n"));
}

/// The table with something broken in it must be found faulty, and for that reason.
fn must_be_noticed(break_it: impl Fn(&str) -> String, why: &str) {
    let good = table();
    let broken = break_it(&good);
    assert_ne!(good, broken, "nothing was broken");
    let wrong = complaints(&broken, &has_test);
    assert!(wrong.iter().any(|line| line.contains(why)), "{why}: {wrong:?}");
}

/// The line of one row.
fn line<'a>(text: &'a str, name: &str) -> &'a str {
    let start = format!("| {name} |");
    text.lines().find(|line| line.starts_with(&start)).expect("the row is there")
}

#[test]
fn control_a_missing_row_is_noticed() {
    must_be_noticed(|text| text.replace(line(text, "19"), ""), "invariant 19 is missing");
}

#[test]
fn control_a_row_that_is_there_twice_is_noticed() {
    let double = |text: &str| text.replace("| 12 |", "| 11 |");
    must_be_noticed(double, "invariant 11 is there 2 times");
    must_be_noticed(|text| text.replace("| 38 |", "| 39 |"), "invariant 39");
}

#[test]
fn control_a_test_that_does_not_exist_is_noticed() {
    let renamed = |text: &str| text.replace("::scenario_14_ten", "::scenario_14_eleven");
    must_be_noticed(renamed, "has no #[test] scenario_14_eleven");
    let moved = |text: &str| text.replace("tests/tests/live_fork.rs", "tests/tests/gone.rs");
    must_be_noticed(moved, "tests/tests/gone.rs has no #[test]");
    let cut = |text: &str| text.replace("tests/tests/live_fork.rs::", "");
    must_be_noticed(cut, "is not file::test");
}

#[test]
fn control_a_mutation_without_a_row_or_of_another_name_is_noticed() {
    let cut = |text: &str| text.replace("`Mutation::SkipDrain`, ", "");
    must_be_noticed(cut, "Mutation::SkipDrain has no row");
    let renamed = |text: &str| text.replace("Mutation::KeepReplicas", "Mutation::KeepThem");
    must_be_noticed(renamed, "there is no Mutation::KeepThem");
}

#[test]
fn control_a_row_without_test_control_or_reason_is_noticed() {
    let without_reason = |text: &str| {
        let row = line(text, "37");
        text.replace(row, &row.replace("| tested |", "| later: |"))
    };
    must_be_noticed(without_reason, "row 37: its state is `later:`, without a reason");
    let claimed = |text: &str| {
        let row = line(text, "37");
        let cells: Vec<&str> = row.split('|').collect();
        text.replace(row, &row.replace(cells[3], " – "))
    };
    must_be_noticed(claimed, "row 37: it names no test");
    let uncontrolled = |text: &str| {
        let row = line(text, "37");
        let cells: Vec<&str> = row.split('|').collect();
        text.replace(row, &row.replace(cells[4], " – "))
    };
    must_be_noticed(uncontrolled, "row 37: it names no control and does not say why");
    let put_off = |text: &str| {
        let row = line(text, "37");
        text.replace(row, &row.replace("| tested |", "| later: some other time |"))
    };
    must_be_noticed(put_off, "row 37: is `later`, but names tests");
}

#[test]
fn control_a_function_that_is_no_test_does_not_count() {
    assert!(defines_test("#[test]\nfn a() {}\n", "a"));
    assert!(defines_test("    #[test]\n    #[cfg(unix)]\n    fn a(x in 0..1) {}\n", "a"));
    assert!(!defines_test("fn a() {}\n", "a"));
    assert!(!defines_test("#[test]\nfn b() {}\nfn a() {}\n", "a"));
    assert!(!defines_test("#[test]\nfn ab() {}\n", "a"));
}
