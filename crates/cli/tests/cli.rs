//! The `farside` command and the examples, as a user runs them.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_farside"));
    command.args(args);
    command
}

fn farside(args: &[&str]) -> Output {
    command(args).output().expect("the command starts")
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("text")
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).expect("text")
}

/// Standard output of a command that must do well.
fn done(args: &[&str]) -> String {
    let output = farside(args);
    assert!(output.status.success(), "{args:?}: {}", stderr(&output));
    stdout(&output)
}

fn json(args: &[&str]) -> Value {
    serde_json::from_str(&done(args)).expect("one JSON object and nothing else")
}

/// Standard error of a command that must fail with this code; it says nothing else.
fn refused(code: i32, args: &[&str]) -> String {
    let output = farside(args);
    assert_eq!(output.status.code(), Some(code), "{args:?}: {}", stderr(&output));
    assert_eq!(stdout(&output), "", "{args:?}");
    stderr(&output)
}

fn file(name: &str, text: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&path, text).expect("the directory for temporary files can be written");
    path
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is a number"))
}

/// The words of each line that a page shows below a command, `…` for those that it leaves out.
fn shown(page: &str, command: &str) -> Vec<Vec<String>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(page);
    let text = std::fs::read_to_string(&path).expect("the page is there");
    let (_, behind) = text.split_once(command).expect("the page has the command");
    let lines = behind.lines().skip(1).take_while(|line| !line.starts_with("```"));
    lines.map(|line| line.split_whitespace().map(str::to_owned).collect()).collect()
}

#[test]
fn pages_show_what_sim_prints() {
    let args = ["sim", "--workload", "mm", "--bytes", "4MB", "--scheme", "on-touch,grit,farside"];
    let printed = done(&args);
    let mut printed = printed.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let lines = shown("README.md", &format!("$ farside {}", args.join(" ")));
    assert_eq!(lines, shown("docs/simulator.md", &format!("$ farside {}", args.join(" "))));
    assert!(lines.len() > 5);
    for line in lines.iter().filter(|line| *line != &["…"]) {
        assert!(printed.any(|it| it == *line), "{line:?} is not printed, or not there");
    }
}

#[test]
fn the_demo_is_exact_in_both_modes_and_accounts_for_every_page() {
    let outcome = json(&["demo", "--bundled", "--json"]);
    assert_eq!(outcome["exact"], true);
    assert!(number(&outcome["graph"]["vertices"]) > 1_500);
    assert_eq!(outcome["graph"]["fallback"], Value::Null);
    let runs = outcome["runs"].as_array().expect("a list");
    assert_eq!(runs.len(), 2);
    for (run, mode) in runs.iter().zip(["on-demand", "managed"]) {
        assert_eq!(run["mode"], mode);
        let workloads = run["workloads"].as_array().expect("a list");
        let names: Vec<_> = workloads.iter().map(|w| w["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["BFS, pointers", "BFS, CSR", "PageRank", "pointer chase"]);
        assert!(workloads.iter().all(|workload| workload["exact"] == true));
        // Workloads and building together are all that moved; reasons add up to directions.
        let (report, pages) = (&run["report"], |directions: &Value| -> u64 {
            directions.as_object().unwrap().values().map(number).sum()
        });
        let all = pages(&report["directions"]);
        assert!(workloads.iter().map(|w| pages(&w["pages"])).sum::<u64>() <= all);
        let reasons = report["stats"]["by_reason"].as_object().expect("a table");
        assert_eq!(reasons.values().map(number).sum::<u64>(), all, "{report}");
        assert!(number(&report["directions"]["card_to_card"]) > 0, "cards hand data over");
        assert!(!report["busiest"].as_array().unwrap().is_empty());
    }
    let by_user = |run: &Value| run["report"]["stats"]["by_reason"].get("user").map(number);
    assert_eq!(by_user(&runs[0]), None, "on demand nobody asks for a move");
    assert!(by_user(&runs[1]) > Some(0), "managed means that the program asks");
    let faults = |run: &Value| number(&run["report"]["stats"]["card_faults"]);
    assert!(faults(&runs[1]) < faults(&runs[0]), "that is what it is for");
}

#[test]
fn the_account_shows_what_a_reader_needs() {
    let text = done(&["demo", "--bundled"]);
    for words in [
        "the bundled graph",
        "pointer chase",
        "host → card",
        "card → card",
        "card faults",
        "in batches",
        "demand",
        "setup",
        "planning",
        "speed while copied",
        "GB/s",
        "walks of cards' tables",
        "copy",
        "finalize",
        "moved most, on demand",
        "moved most, managed",
        "All results equal the plain host run",
    ] {
        assert!(text.contains(words), "{words} is missing in\n{text}");
    }
    assert_eq!(done(&["demo", "--bundled", "--quiet"]), "");
}

#[test]
fn every_scheme_and_any_number_of_cards_is_exact() {
    for scheme in ["on-touch", "first-touch", "access-counter", "duplication"] {
        let args = ["demo", "--bundled", "--json", "--no-advice", "--placement", scheme];
        assert_eq!(json(&args)["exact"], true, "{scheme}");
    }
    for cards in ["1", "3", "16"] {
        let args = ["demo", "--bundled", "--json", "--on-demand", "--cards", cards];
        let outcome = json(&args);
        assert_eq!(outcome["exact"], true, "{cards} cards");
        assert_eq!(outcome["runs"].as_array().map(Vec::len), Some(1));
    }
}

#[test]
fn a_graph_larger_than_the_cards_is_exact_and_is_evicted() {
    let outcome = json(&["demo", "--bundled", "--json", "--card-memory", "256K"]);
    assert_eq!(outcome["exact"], true);
    let evictions = &outcome["runs"][0]["report"]["stats"]["evictions"];
    assert!(number(evictions) > 0);
}

#[test]
fn any_graph_can_be_given() {
    let edges = file("edges.txt", "# a ring with a tail\n1 2\n2 3\n3 1\n3 40\n");
    let outcome = json(&["demo", "--json", "--input", edges.to_str().unwrap()]);
    assert_eq!((number(&outcome["graph"]["vertices"]), &outcome["exact"]), (4, &Value::Bool(true)));
    let matrix = "%%MatrixMarket matrix coordinate pattern symmetric\n3 3 2\n2 1\n3 2\n";
    let matrix = file("matrix.mtx", matrix);
    let outcome = json(&["demo", "--json", "--input", matrix.to_str().unwrap()]);
    assert_eq!((number(&outcome["graph"]["edges"]), &outcome["exact"]), (4, &Value::Bool(true)));
}

#[test]
fn what_cannot_be_used_is_refused_with_what_to_do() {
    let missing = refused(2, &["demo", "--input", "/nonexistent/graph"]);
    assert!(missing.contains("/nonexistent/graph"), "{missing}");
    let nonsense = file("nonsense.txt", "this is no graph\n");
    let nonsense = refused(2, &["demo", "--input", nonsense.to_str().unwrap()]);
    assert!(nonsense.contains("line 1"), "{nonsense}");
    let empty = file("empty.txt", "");
    assert!(refused(2, &["demo", "--input", empty.to_str().unwrap()]).contains("holds no graph"));
    assert!(refused(2, &["demo", "--bundled", "--cards", "17"]).contains("1 to 16"));
    assert!(refused(2, &["demo", "--bundled", "--card-memory", "4K"]).contains("256K"));
    assert!(refused(2, &["demo", "--bundled", "--placement", "x"]).contains("on-touch"));
    let simulated = refused(2, &["demo", "--bundled", "--placement", "gps"]);
    assert!(simulated.contains("farside sim --scheme gps"), "{simulated}");
    assert!(refused(2, &["demo", "--bundled", "--card-memory", "lots"]).contains("64M"));
    assert!(refused(2, &["demo", "--managed", "--on-demand"]).contains("cannot be used with"));
    assert!(refused(2, &["sim", "--scheme", "x"]).contains("duplication"));
    assert!(refused(2, &["sim", "--set", "gpu.count=99"]).contains("gpu.count"));
    assert!(refused(2, &["sim", "--trace", "/nonexistent/t.bin.zst"]).contains("/nonexistent"));
    refused(2, &["no-such-command"]);
}

#[test]
fn a_machine_that_cannot_run_it_is_told_so_and_where_to_ask() {
    // No descriptor beyond the standard ones and one to load the program with, whatever this process
    // was given: neither userfaultfd nor memory files.
    let mut shell = Command::new("sh");
    shell.args(["-c", "exec 3>&-; ulimit -n 4; exec \"$0\" demo --bundled"]);
    let output = shell.arg(env!("CARGO_BIN_EXE_farside")).output().expect("sh starts");
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(stderr(&output).contains("farside doctor"), "{}", stderr(&output));
}

#[test]
fn the_doctor_reports_each_check_and_its_verdict() {
    let report = json(&["doctor", "--json"]);
    assert_eq!(report["usable"], true);
    let checks = report["checks"].as_array().expect("a list");
    assert!(checks.iter().any(|check| check["name"] == "userfaultfd" && check["status"] == "ok"));
    let text = done(&["doctor"]);
    assert!(checks.iter().all(|check| text.contains(check["name"].as_str().unwrap())));

    let mut shell = Command::new("sh");
    shell.args(["-c", "exec 3>&-; ulimit -n 4; exec \"$0\" doctor"]);
    let output = shell.arg(env!("CARGO_BIN_EXE_farside")).output().expect("sh starts");
    assert_eq!(output.status.code(), Some(1), "nothing runs without descriptors");
    assert!(stdout(&output).contains("missing"), "{}", stdout(&output));
}

#[test]
fn the_simulator_compares_schemes_on_the_bundled_traces() {
    let args = ["sim", "--json", "--scheme", "on-touch,duplication", "--set", "gpu.wavefronts=8"];
    let result = json(&args);
    assert_eq!(result["machine"]["gpu"]["wavefronts"], 8);
    let traces = result["traces"].as_array().expect("a list");
    assert_eq!(traces.len(), 2);
    for trace in traces {
        let outcomes = trace["outcomes"].as_array().expect("a list");
        let schemes: Vec<_> = outcomes.iter().map(|o| o["placement"].as_str().unwrap()).collect();
        assert_eq!(schemes, ["on-touch", "duplication"]);
        let accesses = |o: &Value| number(&o["total"]["reads"]) + number(&o["total"]["writes"]);
        assert!(accesses(&outcomes[0]) > 20_000);
        assert_eq!(accesses(&outcomes[0]), accesses(&outcomes[1]));
    }
    assert_eq!(result, json(&args), "a simulation repeats itself");
    let table = done(&["sim", "--scheme", "all"]);
    assert!(table.contains("access-counter") && table.contains("speedup"), "{table}");
    assert!(done(&["sim", "--print-machine"]).contains("[link]"));
}

#[test]
fn files_about_a_run_agree_with_its_table() {
    let folder = std::env::temp_dir().join(format!("farside-watch-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let file = |name: &str| folder.join(name).to_str().expect("UTF-8").to_owned();
    let [stats, trace, history, series] =
        ["stats.json", "trace.json", "history.json", "series.csv"].map(file);
    let run = ["sim", "--workload", "st", "--bytes", "512k", "--scheme", "grit", "--json"];
    let files = ["--stats", &stats, "--perfetto", &trace, "--history", &history];
    let result = json(&[&run[..], &files, &["--series", &series]].concat());
    let outcome = &result["traces"][0]["outcomes"][0];
    let read = |path: &str| std::fs::read_to_string(path).expect("it is there");
    let parsed = |path: &str| serde_json::from_str::<Value>(&read(path)).expect("JSON");

    let list = parsed(&stats)["runs"][0]["statistics"].as_array().expect("a list").clone();
    let value =
        |name: &str| number(&list.iter().find(|it| it["name"] == name).expect(name)["value"]);
    assert_eq!(value("total.faults.reported"), number(&outcome["total"]["faults"]));
    let sum = |column: usize| -> u64 {
        let rows = read(&series);
        rows.lines()
            .skip(1)
            .map(|row| row.split(',').nth(column).unwrap().parse::<u64>().unwrap())
            .sum()
    };
    assert_eq!(sum(2), value("total.faults.reported"));
    assert_eq!(sum(5), value("driver.migrations"));
    assert!(parsed(&trace).as_array().is_some_and(|events| events.len() > 100));
    let moved = parsed(&history);
    assert!(moved.as_array().is_some_and(|pages| pages.len() == 10), "{moved}");
    std::fs::remove_dir_all(&folder).expect("it can be removed");

    let sharing = json(&["sim", "--workload", "st", "--bytes", "512k", "--sharing", "--json"]);
    assert_eq!(sharing[0]["workload"], "st");
    for wrong in [["--series", "x.txt"], ["--history", "x.csv"], ["--stats", "x"]] {
        assert_eq!(command(&[&run[..], &wrong].concat()).output().unwrap().status.code(), Some(2));
    }
    let several = command(&["sim", "--perfetto", &trace]).output().expect("it starts");
    assert_eq!(several.status.code(), Some(2), "six runs and one trace");
    assert!(stderr(&several).contains("one run"), "{}", stderr(&several));
}

#[test]
fn a_simulation_goes_on_from_its_stored_state() {
    let path = std::env::temp_dir().join(format!("farside-{}.state", std::process::id()));
    let path = path.to_str().expect("a path of text");
    let program = ["sim", "--quiet", "--workload", "fir", "--bytes", "256KB"];
    let with = |more: &[&'static str]| [&program, more].concat();
    let save = ["--scheme", "grit", "--stop-after", "1000", "--save", path];
    let said = done(&[program.as_slice(), &save].concat());
    assert!(said.contains("bytes, at access 1"), "{said}");
    let restored = done(&[program.as_slice(), &["--restore", path]].concat());
    assert_eq!(restored, done(&with(&["--scheme", "grit"])));
    let other = ["sim", "--workload", "st", "--bytes", "256KB", "--restore", path];
    assert!(refused(2, &other).contains("another program"));
    std::fs::remove_file(path).expect("it is there");
}

#[test]
fn words_about_the_command_itself() {
    assert_eq!(done(&["--version"]).trim(), concat!("farside ", env!("CARGO_PKG_VERSION")));
    let schemes = done(&["schemes"]);
    for name in [
        "on-touch ",
        "grit ",
        "farside ",
        "griffin ",
        "griffin-dpc ",
        "gps ",
        "ideal ",
        "+acud ",
        "+trans-fw ",
        "threshold=4 ",
        "residency_us=250 ",
        "map-host=off ",
        "alpha_permille=30 ",
    ] {
        assert!(
            schemes.lines().any(|line| line.trim_start().starts_with(name)),
            "{name}: {schemes}"
        );
    }
    assert!(done(&["schemes", "--json"]).contains("\"interval_ns\""));
    for name in [
        "bench",
        "card",
        "cards",
        "demo",
        "doctor",
        "probe",
        "replay",
        "reproduce",
        "schemes",
        "sim",
        "sweep",
    ] {
        assert!(done(&["--help"]).contains(name));
        assert!(done(&[name, "--help"]).contains("Usage"), "{name}");
    }
    assert!(done(&["demo", "--help"]).contains("Examples:"));
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let mut child = command(&["sim", "--print-machine"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command starts");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{}", stderr(&output));
}

/// Columns of a screen.
const WIDTH: usize = 80;

/// What is promised of a time is a ratio to something of the same run; counts are there for machines.
#[test]
fn no_row_of_the_bench_is_an_absolute_time() {
    let printed = json(&["bench", "moves", "stream", "driver", "--samples", "1", "--json"]);
    let rows = printed["rows"].as_array().expect("rows");
    assert_eq!(rows.len(), 8 + 3 + 4, "{printed}");
    for row in rows {
        let unit = row["unit"].as_str().expect("a unit");
        assert!(unit.starts_with("x ") || unit == "B/page", "{row}");
        assert!(row["reached"].as_f64() > Some(0.0), "{row}");
    }
    let moved = &rows[3]["counts"];
    assert_eq!(moved["pages_card_to_card"].as_u64(), Some(2 * 8192), "{moved}");
}

/// Both sides of a comparison are this program: every row of one is a row of the other, and is printed.
#[test]
fn the_bench_is_compared_with_that_of_another_program_by_turns() {
    let this = env!("CARGO_BIN_EXE_farside");
    let args = ["bench", "driver", "--samples", "1", "--against", this, "--pairs", "1"];
    let printed = json(&[&args[..], &["--json"]].concat());
    let rows = printed["rows"].as_array().expect("rows");
    assert_eq!((rows.len(), &printed["not_compared"]), (4, &Value::Array(Vec::new())), "{printed}");
    for row in rows {
        assert_eq!(row["factors"].as_array().map(Vec::len), Some(1), "{row}");
        assert_eq!(row["verdict"], "alike", "one pair tells nothing: {row}");
    }
    let tables = rows.last().expect("a row");
    assert_eq!(tables["factor"].as_f64(), Some(1.0), "bytes of tables are counted: {tables}");
    let text = done(&args);
    fits(&args, &text);
    assert!(text.contains("0 of 4 rows worse, 0 better, in 1 pair"), "{text}");

    let missing = refused(1, &["bench", "driver", "--against", "/nowhere/farside"]);
    assert!(missing.contains("/nowhere/farside: No such file"), "{missing}");
    let other = refused(1, &["bench", "driver", "--pairs", "1", "--against", "/bin/echo"]);
    assert!(other.contains("/bin/echo: what `bench --json` printed"), "{other}");
}

/// The first paper's tables, live: every check of the data is the command's own, so that it ends well says that
/// all of it was right.
#[test]
fn the_first_papers_tables_are_measured_live_and_written_as_files() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("migrate");
    let out = folder.to_str().unwrap();
    let printed = json(&["bench", "migrate", "--samples", "1", "--json", "--out", out]);
    let rows = printed["rows"].as_array().expect("rows");
    assert_eq!(rows.len(), 2 + 4, "{printed}");
    for row in rows {
        assert!(row["unit"].as_str().is_some_and(|unit| unit.starts_with("x ")), "{row}");
        assert!(row["reached"].as_f64() > Some(0.0), "{row}");
    }
    for row in &rows[..2] {
        let counts = &row["counts"];
        assert_eq!(counts["pages_card_to_card"].as_u64(), Some(8192), "{row}");
        assert_eq!(counts["card_faults"].as_u64(), Some(16), "2 MiB at a time: {row}");
    }
    let report = &printed["reports"]["migrate"];
    let of = |source: &str| {
        let rows = report["rows"].as_array().expect("rows");
        rows.iter().filter(|row| row["source"] == source).count()
    };
    assert_eq!((of("Table I"), of("Table II"), of("Figure 5")), (24, 12, 6));
    let folder = folder.join("migrate");
    let written = std::fs::read_to_string(folder.join("report.json")).expect("it was written");
    let written: Value = serde_json::from_str(&written).expect("JSON");
    assert_eq!(&written, report, "the files have what was printed");
    let figures = written["figures"].as_array().expect("figures");
    let names: Vec<_> = figures.iter().filter_map(|figure| figure["name"].as_str()).collect();
    let wanted = ["figure-4", "figure-5", "figure-6b", "figure-6c", "figure-7", "on-demand"];
    assert_eq!(names, wanted);
}

#[test]
fn no_line_is_longer_than_a_screen_is_wide() {
    let tapasco = Path::new(env!("CARGO_TARGET_TMPDIR")).join("width-tapasco");
    let sim = ["sim", "--quiet", "--workload", "st", "--bytes", "256K"];
    let commands: [&[&str]; 16] = [
        &["doctor"],
        &["demo", "--bundled"],
        &["demo", "--bundled", "--on-demand", "--cards", "16", "--placement", "access-counter"],
        &["bench", "driver", "--samples", "1"],
        &["bench", "migrate", "--samples", "1"],
        &["cards"],
        &["schemes"],
        &[&sim[..], &["--scheme", "all"]].concat(),
        &[&sim[..], &["--scheme", "grit:threshold=2,cache=off,neighbours=off+acud"]].concat(),
        &[&sim[..], &["--sharing"]].concat(),
        &["sim", "--print-machine"],
        &["replay", "--functional", "--workload", "st", "--bytes", "256K", "--scheme", "all"],
        &["probe", "--set", "gpu.wavefronts=8"],
        &["probe", "--sums"],
        &["probe", "--load", "--set", "gpu.wavefronts=4"],
        &["reproduce", "tapasco", "--quiet", "--out", tapasco.to_str().unwrap()],
    ];
    for args in commands {
        fits(args, &done(args));
    }
    let names = [
        "bench",
        "card",
        "cards",
        "demo",
        "doctor",
        "probe",
        "replay",
        "reproduce",
        "schemes",
        "sim",
        "sweep",
    ];
    fits(&["--help"], &done(&["--help"]));
    for name in names {
        fits(&[name, "--help"], &done(&[name, "--help"]));
    }
    for nested in
        [["card", "serve"], ["card", "check"], ["reproduce", "grit"], ["reproduce", "tapasco"]]
    {
        fits(&nested, &done(&[&nested[..], &["--help"]].concat()));
    }
    fits(&["replay", "convert"], &done(&["replay", "convert", "--help"]));
}

/// A word that is longer, such as a path, may be a line.
fn fits(args: &[&str], text: &str) {
    assert!(!text.is_empty(), "{args:?}");
    for line in text.lines() {
        let fits = line.chars().count() <= WIDTH || line.split_whitespace().count() == 1;
        assert!(fits, "{args:?}, {} columns:\n{line}", line.chars().count());
    }
}

#[test]
fn a_reproduction_prints_a_summary_that_fits_a_screen_and_writes_every_row() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("summary-tapasco");
    let args = ["reproduce", "tapasco", "--quiet", "--out", folder.to_str().unwrap()];
    let text = done(&args);
    assert!(text.lines().count() < 24, "{text}");
    assert!(text.contains("Table II") && text.contains("farthest"), "{text}");
    let rows = std::fs::read_to_string(folder.join("report.csv")).expect("it was written");
    assert!(rows.lines().count() > 100, "{rows}");
}

#[test]
fn an_experiment_without_schemes_of_ones_own_runs_those_of_the_paper_alone() {
    let folder = std::env::temp_dir().join(format!("farside-paper-{}", std::process::id()));
    let (out, cache) = (folder.join("out"), folder.join("cache"));
    let [out, cache] = [&out, &cache].map(|path| path.to_str().expect("a name"));
    let experiment = ["reproduce", "grit", "--only", "figure-26", "--divide", "64", "--quiet"];
    let text = done(&[&experiment[..], &["--out", out, "--cache", cache]].concat());
    assert!(text.contains("Figure 26"), "{text}");
    std::fs::remove_dir_all(&folder).expect("it was written");
}

#[test]
fn the_same_mistake_has_the_same_exit_code() {
    let absent = "/nonexistent/file";
    let grid = |name: &str, text: &str| {
        file(name, &format!("[[grid]]\n{text}\n")).to_str().unwrap().to_owned()
    };
    let scheme = grid("scheme.toml", "workloads = ['fir']\nschemes = ['on-touch', 'girt']");
    let workload = grid("workload.toml", "workloads = ['fri']\nschemes = ['on-touch']");
    let trace = grid("trace.toml", "traces = ['/nonexistent/t.bin.zst']\nschemes = ['grit']");
    let state = file("no-state", "this is no state").to_str().unwrap().to_owned();
    let mistakes: [(&str, &[&[&str]]); 6] = [
        (
            "girt",
            &[
                &["demo", "--bundled", "--placement", "girt"],
                &["sim", "--scheme", "girt"],
                &["replay", "--functional", "--scheme", "on-touch,girt"],
                &["sweep", &scheme],
            ],
        ),
        (
            "fri",
            &[
                &["sim", "--workload", "fri"],
                &["replay", "--functional", "--workload", "fri"],
                &["sweep", &workload],
            ],
        ),
        ("gpu.cuont", &[&["sim", "--set", "gpu.cuont=2"], &["probe", "--set", "gpu.cuont=2"]]),
        (
            "/nonexistent",
            &[
                &["demo", "--input", absent],
                &["demo", "--bundled", "--cards", "/nonexistent/cards.list"],
                &["sim", "--trace", "/nonexistent/t.bin.zst"],
                &["sim", "--workload", "fir", "--restore", absent],
                &["replay", "--functional", absent],
                &["replay", "convert", absent, "/tmp/out.parquet"],
                &["sweep", absent],
                &["sweep", &trace],
                &["card", "serve", "/tmp/card0", "--kernels", absent],
            ],
        ),
        ("figure-99", &[&["reproduce", "grit", "--only", "figure-99"]]),
        ("no-state", &[&["sim", "--workload", "fir", "--restore", &state]]),
    ];
    for (named, commands) in mistakes {
        for args in commands {
            let said = refused(2, args);
            assert!(said.contains(named), "{args:?}: {said}");
        }
    }
    for (given, meant) in [
        (["sim", "--scheme", "girt"], "`grit`"),
        (["sim", "--workload", "gem"], "`gemm`"),
        (["sim", "--set", "gpu.cuont=2"], "`gpu.count`"),
    ] {
        let said = refused(2, &given);
        assert!(said.contains(&format!("did you mean {meant}?")), "{given:?}: {said}");
    }
    let small = refused(2, &["sim", "--workload", "c2d", "--bytes", "4K"]);
    assert!(small.contains("it works from") && !small.contains("did you mean"), "{small}");
}

#[test]
fn a_variable_that_nothing_knows_is_named() {
    let output = command(&["schemes"]).env("FARSIDE_CARD", "/tmp/card0").output().expect("it runs");
    assert!(output.status.success());
    let said = stderr(&output);
    assert!(said.contains("FARSIDE_CARD; did you mean FARSIDE_CARDS?"), "{said}");
    assert_eq!(stderr(&command(&["schemes"]).env("FARSIDE_SEED", "1").output().unwrap()), "");
}

#[test]
fn a_trace_is_converted_into_a_pipe_and_nothing_else_is_printed_there() {
    let rows = file("piped.csv", "address,write\n0x10000,0\n0x10040,1\n");
    let to = file("piped.parquet", "");
    let told = done(&["replay", "convert", rows.to_str().unwrap(), to.to_str().unwrap()]);
    assert!(told.contains("2 accesses"), "{told}");
    let output = farside(&["replay", "convert", rows.to_str().unwrap(), "/dev/stdout"]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(output.stdout == std::fs::read(&to).unwrap());
    assert!(stderr(&output).contains("/dev/stdout: 2 accesses"), "{}", stderr(&output));
    let full = farside(&["replay", "convert", rows.to_str().unwrap(), "/dev/full"]);
    assert!(!full.status.success() && stderr(&full).contains("No space left"), "{}", stderr(&full));
}

#[test]
fn replays_under_one_scheme_with_other_parameters_are_told_apart() {
    let list = "grit,grit:threshold=2";
    let replay =
        ["replay", "--functional", "--workload", "fir", "--bytes", "256K", "--scheme", list];
    let table = done(&[&replay[..], &["-q"]].concat());
    assert!(table.lines().next().unwrap().ends_with("grit  grit:threshold=2"), "{table}");
    let reports = json(&[&replay[..], &["--json"]].concat());
    let named = |report: &serde_json::Value| report["scheme"].clone();
    let named: Vec<_> = reports["reports"].as_array().unwrap().iter().map(named).collect();
    assert_eq!(named, ["grit", "grit:threshold=2"]);
}

#[test]
fn what_a_trace_of_gem5_has_beside_reads_and_writes_is_told_of_wherever_it_is_read() {
    let mut bytes = b"gem5".to_vec();
    let mut message = |content: &[u8]| {
        bytes.push(content.len() as u8);
        bytes.extend(content);
    };
    message(&[16, 0]);
    for (command, page) in [(1, 1), (4, 2), (30, 3), (22, 4)] {
        // Tick, command, address and size.
        message(&[8, 0, 16, command, 24, page << 4, 32, 4]);
    }
    let trace = Path::new(env!("CARGO_TARGET_TMPDIR")).join("packets.gem5");
    std::fs::write(&trace, bytes).unwrap();
    let trace = trace.to_str().unwrap();
    let others = "2 records of other commands than reading and writing are left out";
    for args in [
        &["replay", "--functional", "--scheme", "on-touch", "-q", trace][..],
        &["sim", "--scheme", "on-touch", "-q", "--trace", trace],
    ] {
        let output = farside(args);
        assert!(output.status.success(), "{}", stderr(&output));
        assert!(stderr(&output).contains(others), "{args:?}: {}", stderr(&output));
    }
    let to = Path::new(env!("CARGO_TARGET_TMPDIR")).join("packets.parquet");
    assert!(done(&["replay", "convert", trace, to.to_str().unwrap()]).contains(others));
}

#[test]
fn where_there_is_no_event_log_one_is_refused_with_what_has_one() {
    for args in [
        &["replay", "--functional", "--events", "log.parquet"][..],
        &["bench", "--events", "log.parquet"],
        &["sweep", "grid.toml", "--events", "log.parquet"],
        &["reproduce", "tapasco", "--events", "log.parquet"],
        &["reproduce", "grit", "--events", "log.parquet"],
    ] {
        let error = refused(2, args);
        assert!(error.contains("farside sim --workload NAME"), "{args:?}: {error}");
    }
}
