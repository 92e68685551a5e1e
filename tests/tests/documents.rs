//! The documents: every page is in the index, every link leads somewhere, every test that the
//! specification names is one, every example in Rust is one that `book.rs` compiles.

use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(path: &str) -> String {
    let path = root().join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Pages of `docs`, and of its folders, from the root.
fn pages() -> Vec<String> {
    let mut pages = Vec::new();
    for folder in ["docs", "docs/measurements"] {
        let entries = std::fs::read_dir(root().join(folder)).expect("it is there");
        let names = entries.map(|entry| entry.expect("it can be read").file_name());
        let names = names.map(|name| name.into_string().expect("names are text"));
        pages.extend(names.filter(|name| name.ends_with(".md")).map(|n| format!("{folder}/{n}")));
    }
    pages.sort();
    pages
}

/// Where the links of a page lead: what stands between `](` and `)`.
fn links(text: &str) -> Vec<&str> {
    let links = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    links.filter(|link| !link.contains("://")).collect()
}

#[test]
fn every_page_is_in_the_index() {
    let index = read("docs/README.md");
    let linked = links(&index);
    let missing = |page: &String| {
        let name = page.trim_start_matches("docs/");
        name != "README.md" && !linked.contains(&name)
    };
    let missing: Vec<String> = pages().into_iter().filter(missing).collect();
    assert!(missing.is_empty(), "docs/README.md does not link to {missing:?}");
}

/// The anchors of a page's headings, as GitHub makes them.
fn anchors(text: &str) -> Vec<String> {
    let headings = text.lines().filter_map(|line| line.trim_start_matches('#').strip_prefix(' '));
    let anchor = |heading: &str| -> String {
        let kept = |c: &char| c.is_alphanumeric() || " -_".contains(*c);
        heading
            .to_lowercase()
            .chars()
            .filter(kept)
            .map(|c| if c == ' ' { '-' } else { c })
            .collect()
    };
    headings.map(anchor).collect()
}

/// The links of `page` that lead to no file, or to no heading of it.
fn broken_links(page: &str, text: &str) -> Vec<String> {
    let folder = root().join(page).parent().expect("a file is in a folder").to_owned();
    let leads = |link: &&str| {
        let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
        let target = if path.is_empty() { root().join(page) } else { folder.join(path) };
        let has = |anchor: &str| {
            let there = std::fs::read_to_string(&target);
            there.is_ok_and(|text| anchors(&text).iter().any(|known| known == anchor))
        };
        target.exists() && (anchor.is_empty() || has(anchor))
    };
    let broken = links(text).into_iter().filter(|link| !leads(link));
    broken.map(|link| format!("{page}: {link}")).collect()
}

#[test]
fn every_link_leads_somewhere() {
    let others = ["README.md", "SPECIFICATION.md", "CHANGELOG.md"].map(String::from);
    let all = pages().into_iter().chain(others);
    let broken: Vec<String> = all.flat_map(|page| broken_links(&page, &read(&page))).collect();
    assert!(broken.is_empty(), "links that lead nowhere:\n{}", broken.join("\n"));
}

#[test]
fn control_a_link_that_leads_nowhere_is_noticed() {
    let page = "docs/experiments.md";
    assert!(
        broken_links(page, "[a](simulator.md#time) [b](#the-cache) [c](../README.md)").is_empty()
    );
    for wrong in ["[a](gone.md)", "[a](simulator.md#gone)", "[a](#gone)"] {
        assert_eq!(broken_links(page, wrong), [format!("{page}: {}", &wrong[4..wrong.len() - 1])]);
    }
}

/// Files and tests that the text names between backquotes, as `file::test`, `file` or, behind a
/// file in the same line or in the line of text before a table, `test` alone.
fn complaints(text: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    let (mut file, mut of_section) = (None::<String>, None::<String>);
    for line in text.lines() {
        if line.starts_with('#') {
            of_section = None;
        }
        let row = line.starts_with('|');
        if row {
            file.clone_from(&of_section);
        }
        // What is tested stands in a table's last cell, or in a sentence.
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").collect();
        let told = if row { cells.last().copied().unwrap_or_default() } else { line };
        for name in told.split('`').skip(1).step_by(2) {
            let (path, test) = match name.split_once("::") {
                Some((path, test)) if path.ends_with(".rs") => (Some(path), Some(test)),
                None if name.ends_with(".rs") && name.contains('/') => (Some(name), None),
                None if row && is_name(name) && file.is_some() => (None, Some(name)),
                _ => continue,
            };
            if let Some(path) = path {
                file = Some(path.to_owned());
                if !row {
                    of_section.clone_from(&file);
                }
            }
            let path = file.as_deref().unwrap_or_default();
            match std::fs::read_to_string(root().join(path)) {
                Err(_) => wrong.push(format!("there is no file {path}")),
                Ok(source) if test.is_some_and(|test| !defines(&source, test)) => {
                    wrong.push(format!("{path} has no #[test] {}", test.unwrap_or_default()));
                }
                Ok(_) => {}
            }
        }
    }
    wrong
}

/// Whether it looks like the name of a test: words with underscores between them.
fn is_name(text: &str) -> bool {
    text.matches('_').count() > 2
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// Whether `source` has a function of this name with `#[test]` before it.
fn defines(source: &str, test: &str) -> bool {
    let start = format!("fn {test}(");
    let mut marked = false;
    for line in source.lines().map(str::trim) {
        if line == "#[test]" {
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

#[test]
fn every_test_that_the_specification_names_exists() {
    let wrong = complaints(&read("SPECIFICATION.md"));
    assert!(wrong.is_empty(), "SPECIFICATION.md:\n{}", wrong.join("\n"));
}

#[test]
fn the_specification_counts_the_outcomes_that_are_stored() {
    let folder = root().join("crates/sim/tests/outcomes");
    let tables = std::fs::read_dir(folder).expect("the tables are there").flatten();
    let rows = |path: PathBuf| {
        let text = std::fs::read_to_string(path).expect("a table can be read");
        // The first line is its head.
        text.lines().count() - 1
    };
    let stored: usize = tables.map(|table| rows(table.path())).sum();
    let row = format!("| {stored} small runs on GPUs and cards |");
    assert!(read("SPECIFICATION.md").contains(&row), "SPECIFICATION.md has no `{row}`");
}

/// Each of the thirteen rules names a file where it is kept, and tests.
#[test]
fn every_rule_of_the_driver_names_files_and_tests_that_exist() {
    let text = read("docs/driver-rules.md");
    let wrong = complaints(&text);
    assert!(wrong.is_empty(), "docs/driver-rules.md:\n{}", wrong.join("\n"));
    let rules = text.lines().filter(|line| {
        let number = line.trim_matches('|').split('|').next().unwrap_or_default().trim();
        line.starts_with('|') && number.parse::<u32>().is_ok()
    });
    let mut count = 0;
    for rule in rules {
        count += 1;
        let named: Vec<&str> = rule.split('`').skip(1).step_by(2).collect();
        let kept =
            named.iter().filter(|name| name.starts_with("crates/svm/") && !name.contains("::"));
        assert!(kept.clone().count() > 0, "it is kept nowhere: {rule}");
        assert!(kept.clone().all(|file| root().join(file).exists()), "no such file: {rule}");
        assert!(named.iter().any(|name| name.contains(".rs::")), "it has no test: {rule}");
    }
    assert_eq!(count, 13);
}

#[test]
fn control_a_test_or_file_that_does_not_exist_is_noticed() {
    let good = read("SPECIFICATION.md");
    for (there, gone) in [
        ("a_host_fault_on_a_page_of_an_idle_card_waits_for_no_card", "a_host_fault_waits_for_all"),
        ("tests/tests/trips.rs", "tests/tests/gone.rs"),
        ("spec_limits.rs::the_tables_take", "spec_limits.rs::the_tables_do_not_take"),
    ] {
        assert!(good.contains(there), "{there} is no longer there: choose another");
        assert_eq!(complaints(&good), Vec::<String>::new());
        assert!(!complaints(&good.replace(there, gone)).is_empty(), "{gone} is not noticed");
    }
}

/// What stands between ```rust and ``` in a page.
fn examples(text: &str) -> Vec<&str> {
    let begun = text.split("```rust\n").skip(1);
    begun.filter_map(|rest| rest.split("```").next()).collect()
}

/// Without spaces and ends of lines, which differ where code is indented.
fn bare(code: &str) -> String {
    code.split_whitespace().collect()
}

/// What of the examples of a page `book` does not have, by paragraphs: a function may stand elsewhere there than its use.
fn untested<'a>(text: &'a str, book: &str) -> Vec<&'a str> {
    let book = bare(book);
    let paragraphs = examples(text).into_iter().flat_map(|example| example.split("\n\n"));
    paragraphs.filter(|paragraph| !book.contains(&bare(paragraph))).collect()
}

#[test]
fn every_example_in_rust_is_compiled_by_the_book() {
    let book = read("tests/tests/book.rs");
    let texts = pages().into_iter().chain(["README.md".to_owned()]);
    for page in texts {
        let text = read(&page);
        let untested = untested(&text, &book);
        assert!(untested.is_empty(), "{page}: tests/tests/book.rs has no\n{}", untested.join("\n"));
    }
    assert!(examples(&read("docs/programming.md")).len() > 15);
}

#[test]
fn control_an_example_that_is_not_in_the_book_is_noticed() {
    let page = "```rust\nlet x = 1;\n```\n```text\nlet z\n```\n```rust\nlet y = 2;\n```\n";
    assert_eq!(untested(page, "fn f() { let x =\n 1; }"), ["let y = 2;\n"]);
}
