//! `farside report`, and the logs that commands write: what is in them, and what is said of files that are none.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// A folder of a test's own, gone with it.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let folder = format!("farside-cli-report-{}-{name}", std::process::id());
        let folder = std::env::temp_dir().join(folder);
        std::fs::create_dir_all(&folder).expect("can be made");
        Scratch(folder)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn command() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_farside"));
    command.env_remove("FARSIDE_EVENTS").stdin(Stdio::null());
    command
}

fn run(command: &mut Command) -> Output {
    command.output().expect("it can be run")
}

fn said(output: &[u8]) -> String {
    String::from_utf8_lossy(output).into_owned()
}

fn report_json(log: &Path) -> Value {
    let output = run(command().arg("report").arg(log).arg("--json"));
    assert!(output.status.success(), "{}", said(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("it is JSON")
}

#[test]
fn the_log_of_a_simulation_has_what_its_driver_has_counted() {
    let scratch = Scratch::new("simulation");
    let log = scratch.file("log.parquet");
    let sim = ["sim", "--workload", "st", "--bytes", "1MB", "--scheme", "grit", "--json"];
    let counters = scratch.file("counters.json");
    let mut logged = command();
    let output = run(logged.args(sim).arg("--events").arg(&log).arg("--stats").arg(&counters));
    assert!(output.status.success(), "{}", said(&output.stderr));
    let plain = run(command().args(sim));
    assert_eq!(said(&plain.stdout), said(&output.stdout), "a log changes nothing");
    let counters = std::fs::read(counters).expect("they were written");
    let counters: Value = serde_json::from_slice(&counters).expect("it is JSON");
    let counters = counters["runs"][0]["statistics"].as_array().expect("a list");
    let driver = |name: &str| {
        let mut its = counters.iter().filter(|it| it["name"] == name);
        let found = its.next().unwrap_or_else(|| panic!("no {name}"));
        found["value"].as_u64().expect("a number")
    };
    let facts = report_json(&log);
    let total = |name: &str| facts["totals"][name].as_u64().expect("a number");
    assert_eq!(total("faults"), driver("driver.faults.gpu"));
    assert_eq!(total("refills"), driver("driver.faults.refills"));
    assert_eq!(total("pages_mapped_afar"), driver("driver.remote_maps"));
    let moves = facts["moves"].as_array().expect("a list");
    for reason in ["demand", "counter", "collapse"] {
        let its = moves.iter().filter(|it| it["reason"] == reason);
        let pages: u64 = its.map(|it| it["bytes"].as_u64().unwrap() / 4096).sum();
        assert_eq!(pages, driver(&format!("driver.pages.{reason}")), "{reason}");
    }
    assert_eq!(facts["log"]["machine"], "simulated GPUs");
    assert_eq!(facts["kernels"].as_array().map(Vec::len), Some(5));
}

#[test]
fn a_page_needs_nothing_else_and_holds_two_runs() {
    let scratch = Scratch::new("page");
    let [one, two, page] = ["one.parquet", "two.parquet", "page.html"].map(|it| scratch.file(it));
    for (log, scheme) in [(&one, "on-touch"), (&two, "duplication")] {
        let sim = ["sim", "--workload", "fir", "--bytes", "256KB", "--quiet", "--scheme", scheme];
        assert!(run(command().args(sim).arg("--events").arg(log)).status.success());
    }
    let output = run(command().arg("report").args([&one, &two]).arg("-o").arg(&page));
    assert!(output.status.success(), "{}", said(&output.stderr));
    let page = std::fs::read_to_string(page).expect("it was written");
    assert!(page.len() < 5 << 20, "{} bytes", page.len());
    assert!(
        page.contains("\"scheme\":\"on-touch\"") && page.contains("\"scheme\":\"duplication\"")
    );
    for elsewhere in ["src=\"http", "href=\"http", "@FACTS@", "@SCRIPT@"] {
        assert!(!page.contains(elsewhere), "{elsewhere}");
    }
    let text = said(&output.stdout);
    assert!(text.contains("on-touch") && text.contains("duplication"), "{text}");
}

#[test]
fn the_environment_asks_any_program_for_a_log() {
    let scratch = Scratch::new("environment");
    let (log, recording) = (scratch.file("log.parquet"), scratch.file("demo.parquet"));
    let demo = ["demo", "--bundled", "--managed", "--iterations", "2"];
    let output =
        run(command().args(demo).env("FARSIDE_EVENTS", &log).env("FARSIDE_RECORD", &recording));
    assert!(output.status.success(), "{}", said(&output.stderr));
    let account = said(&output.stdout);
    assert!(account.contains(&format!("event log managed: {}\n", log.display())), "{account}");
    // The demo looks at its cards first, in a space of its own, which takes neither name.
    assert_eq!(std::fs::read_dir(&scratch.0).expect("a folder").count(), 2);
    assert!(std::fs::metadata(&recording).expect("a file").len() > 10_000);
    let facts = report_json(&log);
    let names: Vec<_> = facts["kernels"].as_array().unwrap().iter().map(|it| &it["name"]).collect();
    assert!(names.iter().any(|name| **name == "demo.pagerank-gather"), "{names:?}");
    let refused = run(command().args(demo).env("FARSIDE_EVENTS", "/nowhere/log.parquet"));
    assert_eq!(refused.status.code(), Some(1));
    assert!(said(&refused.stderr).contains("/nowhere/log.parquet"), "{}", said(&refused.stderr));
}

#[test]
fn a_file_that_is_no_log_is_named_and_what_is_wrong_with_it() {
    let scratch = Scratch::new("wrong");
    let file = scratch.file("file");
    let refused = |bytes: Option<&[u8]>| {
        bytes.into_iter().for_each(|bytes| std::fs::write(&file, bytes).expect("can be written"));
        let output = run(command().arg("report").arg(&file));
        assert_eq!(output.status.code(), Some(2), "{}", said(&output.stderr));
        let text = said(&output.stderr);
        assert!(text.contains("wrong/file") || text.contains("-wrong"), "{text}");
        text
    };
    assert!(refused(None).contains("No such file"));
    assert!(refused(Some(b"")).contains("it is empty"));
    assert!(refused(Some(b"at,kind\n")).contains("does not begin as a Parquet file does"));
    assert!(refused(Some(b"PAR1 and no more")).contains("was cut before its first row group"));
}

#[test]
fn the_log_of_a_run_that_was_killed_is_read_as_far_as_it_goes() {
    let scratch = Scratch::new("killed");
    let log = scratch.file("log.parquet");
    let sim = ["sim", "--workload", "mm", "--bytes", "64MB", "--scheme", "on-touch", "--quiet"];
    let mut child = command().args(sim).arg("--events").arg(&log).spawn().expect("it can be run");
    // Some row groups: behind each of them is a footer.
    let begun = Instant::now();
    let enough = || std::fs::metadata(&log).is_ok_and(|it| it.len() > 400_000);
    while !enough() && begun.elapsed() < Duration::from_secs(60) {
        assert!(child.try_wait().expect("can be asked").is_none(), "it has ended too soon");
        std::thread::sleep(Duration::from_millis(20));
    }
    child.kill().expect("it runs");
    child.wait().expect("it was killed");
    let facts = report_json(&log);
    let events = facts["log"]["events"].as_u64().expect("a number");
    assert!(events > 1000, "{events} events");
    assert_eq!(facts["totals"]["kernels"], 0, "its launch had not ended");
}

#[test]
fn the_demo_says_which_files_it_wrote() {
    let scratch = Scratch::new("names");
    let (log, recording) = (scratch.file("log.parquet"), scratch.file("demo.parquet"));
    let both = |end: &str| {
        let of = |path: &Path| path.with_extension(format!("{end}parquet"));
        [of(&log), of(&recording)]
    };
    for (modes, ends) in [(&["--on-demand"][..], &[""][..]), (&[], &["on-demand.", "managed."])] {
        let mut demo = command();
        demo.args(["demo", "--bundled", "--cards", "1"]).args(modes);
        demo.arg("--events").arg(&log).arg("--record").arg(&recording);
        let account = said(&run(&mut demo).stdout);
        for file in ends.iter().flat_map(|end| both(end)) {
            assert!(account.contains(&format!(": {}\n", file.display())), "{account}");
            std::fs::remove_file(file).expect("it was written");
        }
        demo.arg("--json");
        let outcome: Value = serde_json::from_slice(&run(&mut demo).stdout).expect("JSON");
        for (run, end) in outcome["runs"].as_array().expect("runs").iter().zip(ends) {
            let files = ["events", "recording"].map(|kind| run[kind].as_str().map(PathBuf::from));
            assert_eq!(files, both(end).map(Some));
        }
    }
}

#[test]
fn a_report_is_never_written_over_its_log() {
    let scratch = Scratch::new("over");
    let log = scratch.file("log.parquet");
    let demo = ["demo", "--bundled", "--on-demand", "--quiet", "--events"];
    assert!(command().args(demo).arg(&log).output().expect("it can be run").status.success());
    let before = std::fs::read(&log).expect("it is there");
    let link = scratch.file("link");
    std::os::unix::fs::symlink(&log, &link).expect("a link");
    let other = scratch.file("other");
    let same = [("--perfetto", &log), ("-o", &log), ("--perfetto", &link)];
    let same = same.map(|(option, path)| [option, path.to_str().expect("text")].to_vec());
    let twice = ["-o", "--perfetto"].map(|option| [option, other.to_str().expect("text")]).concat();
    for options in same.iter().chain([&twice]) {
        let refused =
            command().arg("report").arg(&log).args(options).output().expect("it can be run");
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(
            !refused.status.success() && said.contains("name another file"),
            "{options:?}: {said}"
        );
        assert_eq!(std::fs::read(&log).expect("it is there"), before, "{options:?}");
    }
    assert!(!other.exists(), "nothing was written");
}

/// The command in a process whose files may have `blocks` of 512 bytes: it gets an error as on a full disk.
fn short_of_room(blocks: u32, arguments: &[&str]) -> Command {
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("trap '' XFSZ; ulimit -f {blocks}; exec \"$@\""), "sh"]);
    shell.arg(env!("CARGO_BIN_EXE_farside")).args(arguments);
    shell.env_remove("FARSIDE_EVENTS").stdin(Stdio::null());
    shell
}

#[test]
fn a_full_disk_under_a_log_loses_no_result_and_under_a_page_not_the_one_before() {
    let scratch = Scratch::new("full");
    let (log, page) = (scratch.file("log.parquet"), scratch.file("page.html"));
    let sim = ["sim", "--workload", "st", "--bytes", "1MB", "--scheme", "on-touch", "-q"];
    let plain = run(command().args(sim));
    let mut logged = sim.to_vec();
    logged.extend(["--events", log.to_str().expect("text")]);
    let output = run(&mut short_of_room(16, &logged));
    assert!(!output.status.success());
    assert_eq!(said(&output.stdout), said(&plain.stdout), "what came out is there");
    assert!(
        said(&output.stderr).contains("log.parquet cannot be written"),
        "{}",
        said(&output.stderr)
    );
    assert!(run(command().args(&logged)).status.success());
    std::fs::write(&page, "the page before").expect("it can be written");
    let report = ["report", log.to_str().expect("text"), "-o", page.to_str().expect("text")];
    let output = run(&mut short_of_room(16, &report));
    assert!(!output.status.success() && said(&output.stderr).contains("page.html"));
    assert_eq!(std::fs::read_to_string(&page).expect("it is there"), "the page before");
    assert_eq!(std::fs::read_dir(&scratch.0).expect("a folder").count(), 2, "nothing is left over");
    assert!(run(command().args(report)).status.success());
    assert!(std::fs::metadata(&page).expect("it is there").len() > 100_000);
}
