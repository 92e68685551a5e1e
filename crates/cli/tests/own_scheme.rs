//! Placement schemes from shared libraries, as their authors use them: written by `farside new`, compiled,
//! compared with those that are built in, and refused or survived where they are wrong.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;

/// A folder of a test's own.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Folder {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("farside-own-scheme-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).expect("a folder for a test");
        Folder(path)
    }

    fn file(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }

    fn write(&self, name: &str, text: &str) -> String {
        std::fs::write(self.0.join(name), text).expect("a file for a test");
        self.file(name)
    }

    /// A library of C with the header before it.
    fn library(&self, name: &str, text: &str) -> String {
        let source = self.write(&format!("{name}.c"), text);
        let library = self.file(&format!("lib{name}.so"));
        let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../include");
        let mut cc = Command::new("cc");
        cc.args([
            "-std=c11",
            "-O1",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-Wno-override-init",
            "-Wno-unused-function",
            "-shared",
            "-fPIC",
            "-I",
        ]);
        run(cc.arg(include).arg("-o").arg(&library).arg(source));
        library
    }

    /// A scheme in C: what it has beside name, version and size, and its functions.
    fn scheme(&self, name: &str, functions: &str, table: &str) -> String {
        let text = format!(
            "#include <farside-scheme.h>\n#include <stdio.h>\n#include <stdlib.h>\n#include <unistd.h>\n{functions}\n\
             static const farside_scheme scheme = {{ .abi_version = FARSIDE_SCHEME_ABI,\n\
             .size = sizeof(farside_scheme), .name = \"{name}\", .about = \"a test\", {table} }};\n\
             FARSIDE_EXPORT_SCHEME(scheme)\n"
        );
        self.library(name, &text)
    }

    /// A scheme whose on_fault has this body.
    fn on_fault(&self, name: &str, body: &str) -> String {
        let function = format!(
            "static void on_fault(void *at, const farside_fault *fault, farside_decision *answer)\n\
             {{ (void)at; (void)fault; (void)answer; {body} }}"
        );
        self.scheme(name, &function, ".on_fault = on_fault")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn run(command: &mut Command) {
    let output = command.output().expect("the compiler that links Rust programs is there");
    let said = text(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}");
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn farside(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_farside"));
    command.args(args).env("FARSIDE_SCHEME_SECONDS", "2").output().expect("the command starts")
}

fn done(args: &[&str]) -> String {
    let output = farside(args);
    assert!(output.status.success(), "{args:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

/// Standard error of a command that fails with this code.
fn refused(code: i32, args: &[&str]) -> String {
    let output = farside(args);
    assert_eq!(output.status.code(), Some(code), "{args:?}: {}", text(&output.stderr));
    text(&output.stderr)
}

fn json(args: &[&str]) -> Value {
    serde_json::from_str(&done(args)).expect("one JSON object and nothing else")
}

/// The template, written and built.
fn template(folder: &Folder, lang: &str) -> String {
    let at = folder.0.display().to_string();
    let told = done(&["new", "scheme", "mine", "--at", &at, "--lang", lang]);
    assert!(told.contains("farside sim --scheme"), "{told}");
    if lang == "c" {
        run(Command::new("make").args([
            "-C",
            &folder.file("mine"),
            "CFLAGS=-O2 -Wall -Wextra -Wpedantic -Werror",
        ]));
        return folder.file("mine/libmine.so");
    }
    let mut cargo = Command::new(std::env::var_os("CARGO").expect("cargo says where it is"));
    cargo.args([
        "build",
        "--release",
        "--offline",
        "--manifest-path",
        &folder.file("mine/Cargo.toml"),
    ]);
    run(cargo.env("CARGO_TARGET_DIR", folder.file("target")).env("RUSTFLAGS", "-Dwarnings"));
    folder.file("target/release/libmine.so")
}

/// All that a simulation gives, without the scheme's name.
fn outcomes(arguments: &[&str], scheme: &str) -> Vec<Value> {
    let mut all = vec!["sim", "--json", "--quiet", "--scheme", scheme];
    all.extend(arguments);
    let mut printed = json(&all);
    let traces = printed["traces"].as_array_mut().expect("a list").iter_mut();
    let outcome = |trace: &mut Value| {
        let mut outcome = trace["outcomes"][0].take();
        outcome.as_object_mut().expect("an object").remove("placement");
        outcome
    };
    traces.map(outcome).collect()
}

/// What `farside new` writes is the rule that is built in as copy-move-map: the same results, to the number.
#[test]
fn the_template_in_c_has_the_results_of_the_same_rule_in_rust() {
    let folder = Folder::new();
    let library = template(&folder, "c");
    for program in
        [&[][..], &["--workload", "bfs", "--bytes", "1M"], &["--workload", "st", "--bytes", "1M"]]
    {
        let built_in = outcomes(program, "copy-move-map");
        assert_eq!(outcomes(program, &library), built_in, "{program:?}");
        assert_eq!(
            outcomes(program, &format!("{library}:after=1+acud")),
            outcomes(program, "copy-move-map+acud")
        );
        assert_ne!(
            outcomes(program, &format!("{library}:after=1000")),
            built_in,
            "{program:?}: a parameter"
        );
    }
}

#[test]
fn the_template_in_rust_builds_without_a_warning_and_has_the_same_results() {
    let folder = Folder::new();
    let library = template(&folder, "rust");
    assert_eq!(outcomes(&[], &library), outcomes(&[], "copy-move-map"));
    let refused = refused(2, &["sim", "--quiet", "--scheme", &format!("{library}:after=0")]);
    assert!(
        refused.contains("mine cannot have after=0: it is a whole number from 1 to 1000"),
        "{refused}"
    );
}

#[test]
fn what_new_writes_is_not_written_over_anything() {
    let folder = Folder::new();
    let at = folder.0.display().to_string();
    done(&["new", "scheme", "mine", "--at", &at]);
    assert!(refused(2, &["new", "scheme", "mine", "--at", &at]).contains("is there already"));
    for name in ["Mine", "../mine", "", "1mine", "mine.so"] {
        assert!(
            refused(2, &["new", "scheme", name, "--at", &at]).contains("no name of a scheme"),
            "{name}"
        );
    }
}

/// A library stands beside built-in schemes in every table; each of its runs is a process of its own.
#[test]
fn a_scheme_of_ones_own_is_beside_those_that_are_built_in() {
    let folder = Folder::new();
    let library = folder.on_fault(
        "copies",
        "printf(\"debug\\n\"); if (!fault->write) answer->action = FARSIDE_DUPLICATE;",
    );
    let list = format!("on-touch,{library}");
    let table = done(&["sim", "--quiet", "--scheme", &list]);
    assert_eq!(table.matches("libcopies.so").count(), 2, "of both traces:\n{table}");
    assert!(!table.contains("debug"), "{table}");
    let replayed = json(&["replay", "--functional", "--json", "--scheme", &list]);
    let names =
        replayed["reports"].as_array().unwrap().iter().map(|report| report["scheme"].clone());
    assert_eq!(names.collect::<Vec<_>>(), ["on-touch", &*library, "on-touch", &*library]);
    let grid = folder.write(
        "grid.toml",
        "[[grid]]\nworkloads = ['fir']\nbytes = ['256K']\nschemes = ['on-touch', 'libcopies.so', './libcopies.so+acud']\n",
    );
    let cache = folder.file("cache");
    let sweep = done(&["sweep", &grid, "--quiet", "--cache", &cache]);
    assert_eq!(sweep.lines().filter(|line| line.contains("libcopies.so")).count(), 2, "{sweep}");
    assert!(
        sweep.lines().skip(1).all(|line| line.contains(",grit-table-1,,")),
        "no error: {sweep}"
    );
}

/// A kept result is that of the library's content, not of its name.
#[test]
fn a_library_that_was_built_anew_is_run_anew() {
    let folder = Folder::new();
    let grid = folder.write(
        "grid.toml",
        "[[grid]]\nworkloads = ['mm']\nbytes = ['256K']\nschemes = ['libmine.so']\n",
    );
    let cache = folder.file("cache");
    let sweep = || done(&["sweep", &grid, "--quiet", "--cache", &cache]);
    folder.on_fault("mine", "");
    let moved = sweep();
    folder.on_fault("mine", "answer->action = FARSIDE_DUPLICATE;");
    let copied = sweep();
    assert_ne!(moved, copied);
    folder.on_fault("mine", "");
    assert_eq!(sweep(), moved);
}

/// Which tables and figures: `crates/cli/src/reproduce/grit/tests.rs`.
#[test]
fn reproduce_refuses_a_scheme_that_cannot_be_before_it_runs_anything() {
    let folder = Folder::new();
    let library = folder.on_fault("mine", "");
    for (scheme, why) in [
        ("girt".to_owned(), "girt"),
        (format!("{library}:a=1"), "no parameter"),
        (folder.file("libnone.so"), "libnone.so"),
    ] {
        let (out, cache) = (folder.file("out"), folder.file("cache"));
        let args = ["reproduce", "grit", "--only", "figure-17", "--quiet", "--scheme", &scheme];
        let said = refused(2, &[&args[..], &["--out", &out, "--cache", &cache]].concat());
        assert!(said.contains(why), "{said}");
        assert!(!Path::new(&out).exists());
    }
}

/// One that crashes, exits or runs away is named, and the others go on.
#[test]
fn what_a_scheme_does_to_its_process_it_does_to_its_run_alone() {
    let folder = Folder::new();
    let broken = [
        (folder.on_fault("crashes", "fprintf(stderr, \"so far\\n\"); *(volatile int *)8 = 1;"), "signal"),
        (folder.on_fault("exits", "exit(0);"), "must not call exit"),
        (folder.on_fault("fails", "exit(7);"), "exit status: 7"),
        (folder.on_fault("hangs", "for (volatile int i = 0;;) i = i + 1;"), "has not returned from on_fault for 2 s"),
        (folder.scheme("early", "__attribute__((constructor)) static void early(void) { abort(); }\n\
            static void on_fault(void *at, const farside_fault *f, farside_decision *a) { (void)at; (void)f; (void)a; }",
            ".on_fault = on_fault"), "signal"),
        (folder.on_fault("nonsense", "answer->action = 77;"), "on_fault of page"),
    ];
    let mut list = vec!["on-touch"];
    list.extend(broken.iter().map(|(library, _)| library.as_str()));
    list.push("duplication");
    let list = list.join(",");
    let started = Instant::now();
    let output =
        farside(&["sim", "--quiet", "--workload", "fir", "--bytes", "256K", "--scheme", &list]);
    assert!(started.elapsed() < Duration::from_secs(60), "{:?}", started.elapsed());
    assert_eq!(output.status.code(), Some(1));
    let (table, said) = (text(&output.stdout), text(&output.stderr));
    assert!(table.contains("on-touch") && table.contains("duplication"), "{table}");
    for (library, why) in &broken {
        let named = said.lines().find(|line| line.contains(&format!("farside: fir, {library}: ")));
        assert!(named.is_some_and(|line| line.contains(why)), "{library}: {why}: {said}");
        assert!(!table.contains(library), "{table}");
    }
    let replayed = farside(&[
        "replay",
        "--functional",
        "--quiet",
        "--workload",
        "fir",
        "--bytes",
        "256K",
        "--scheme",
        &list,
    ]);
    let said = text(&replayed.stderr);
    assert_eq!(replayed.status.code(), Some(1));
    assert!(
        broken.iter().all(|(library, why)| said.contains(library) && said.contains(why)),
        "{said}"
    );
    assert!(text(&replayed.stdout).contains("duplication"));
}

#[test]
fn a_sweep_goes_on_beside_schemes_that_do_not() {
    let folder = Folder::new();
    folder.on_fault("crashes", "abort();");
    folder.on_fault(
        "nonsense",
        "answer->scope = FARSIDE_RANGE; answer->first = fault->page; answer->pages = 1ull << 40;",
    );
    let grid = folder.write(
        "grid.toml",
        "[[grid]]\nworkloads = ['fir']\nbytes = ['256K']\nschemes = ['libcrashes.so', 'libnonsense.so', 'on-touch']\n",
    );
    let output = farside(&["sweep", &grid, "--quiet", "--cache", &folder.file("cache")]);
    assert_eq!(output.status.code(), Some(1));
    let (table, said) = (text(&output.stdout), text(&output.stderr));
    let row = |scheme: &str| table.lines().find(|line| line.contains(scheme)).unwrap().to_owned();
    assert!(row("libcrashes.so").contains("signal: 6"), "{table}");
    assert!(row("libnonsense.so").contains("which are not pages of one allocation"), "{table}");
    assert!(row("on-touch").contains(",grit-table-1,,"), "{table}");
    assert!(said.contains("2 of 3 runs failed"), "{said}");
}

const ON_FAULT: &str = "static void on_fault(void *at, const farside_fault *f, farside_decision *a)\n\
                        { (void)at; (void)f; (void)a; }";

/// Every way in which a library cannot be is refused before the first run, and says what is wrong.
#[test]
fn a_library_that_cannot_be_is_refused_with_what_is_wrong() {
    let folder = Folder::new();
    let scheme = |name: &str, table: &str| folder.scheme(name, ON_FAULT, table);
    let other = "#include <farside-scheme.h>\n#include <stddef.h>\n";
    let version = |name: &str, version: &str| {
        let text = format!(
            "{other}static const farside_scheme scheme = {{ .abi_version = {version}, .size = sizeof(farside_scheme) }};\n\
             const farside_scheme *farside_scheme_export(uint32_t abi);\n\
             const farside_scheme *farside_scheme_export(uint32_t abi) {{ (void)abi; return &scheme; }}\n"
        );
        folder.library(name, &text)
    };
    let parameters = |name: &str, list: &str| {
        let functions =
            format!("{ON_FAULT}\nstatic const farside_parameter parameters[] = {{ {list} }};");
        let table = ".on_fault = on_fault, .parameters = parameters, .parameter_count = sizeof parameters / sizeof *parameters";
        folder.scheme(name, &functions, table)
    };
    let refuses = "static void *create(const uint32_t *values, const char **why)\n\
                   { (void)values; *why = \"the moon is wrong\"; return NULL; }";
    let null = "farside_scheme_export(uint32_t abi)";
    let cases = [
        (folder.file("libnone.so"), "No such file"),
        (folder.write("libtext.so", "this is a text, and not a short one"), "no shared library"),
        (folder.write("libempty.so", ""), "no shared library"),
        (folder.library("nothing", "int nothing; int nothing = 1;"), "exports no farside_scheme_export"),
        (folder.library("undefined", "int missing(void); int f(void); int f(void) { return missing(); }"), "missing"),
        (version("newer", "2"), "it is written for version 2"),
        (folder.library("null", &format!("{other}const farside_scheme *{null}; const farside_scheme *{null} {{ (void)abi; return NULL; }}")),
            "does not know version 1"),
        (scheme("small", ".on_fault = on_fault, .size = 16"), "its table says that it has 16 bytes"),
        (scheme("deaf", ""), "there is no on_fault"),
        (scheme("two words", ".on_fault = on_fault"), "letters, digits"),
        (scheme("nameless", ".on_fault = on_fault, .name = NULL"), "name is NULL"),
        (scheme("lines", ".on_fault = on_fault, .about = \"a\\nb\""), "more than a line"),
        (scheme("grainy", ".on_fault = on_fault, .grain = 3"), "grain is 3"),
        (scheme("unsampled", ".on_fault = on_fault, .sample_every_ns = (uint64_t (*)(void *))1"), "go together"),
        (scheme("many", ".on_fault = on_fault, .parameter_count = 1000"), "1000 parameters"),
        (parameters("twice", "{ \"a\", \"b\", 0, 1, 1, 1 }, { \"a\", \"b\", 0, 1, 1, 1 }"), "two parameters a"),
        (parameters("outside", "{ \"a\", \"b\", 0, 5, 1, 4 }"), "standard of parameter a is 5"),
        (parameters("kind", "{ \"a\", \"b\", 9, 1, 1, 4 }"), "of kind 9"),
        (parameters("given", "{ \"a\", \"b\", 0, 1, 1, 4 }") + ":b=1", "has no parameter \"b\"; it has: a"),
        (parameters("range", "{ \"a\", \"b\", 0, 1, 1, 4 }") + ":a=5", "from 1 to 4"),
        (parameters("switch", "{ \"a\", \"b\", 1, 1, 0, 1 }") + ":a=maybe", "on or off"),
        (folder.scheme("picky", &format!("{ON_FAULT}\n{refuses}"), ".on_fault = on_fault, .create = create"), "the moon is wrong"),
    ];
    let cache = folder.file("cache");
    for (library, why) in &cases {
        let said = refused(2, &["sim", "--quiet", "--scheme", &format!("on-touch,{library}")]);
        assert!(said.contains(why), "{library}: {why}: {said}");
        let path = library.split(".so").next().unwrap();
        let named = said.contains(path)
            || said.contains(
                Path::new(path).file_name().unwrap().to_str().unwrap().trim_start_matches("lib"),
            );
        assert!(named, "{library}: {said}");
        assert!(refused(2, &["schemes", library]).contains(why));
        assert!(refused(2, &["replay", "--functional", "--scheme", library]).contains(why));
        let grid = folder.write(
            "grid.toml",
            &format!("[[grid]]\nworkloads = ['fir']\nschemes = ['{library}']\n"),
        );
        assert!(refused(2, &["sweep", &grid, "--cache", &cache]).contains(why), "{library}");
        assert!(
            refused(2, &["demo", "--bundled", "--quiet", "--scheme", library]).contains(why),
            "{library}"
        );
    }
}

#[test]
fn a_library_of_another_machine_is_refused_before_any_of_it_runs() {
    let folder = Folder::new();
    let library = folder.on_fault("mine", "");
    let mut bytes = std::fs::read(&library).unwrap();
    // The machine's number, of RISC-V or, there, of ARM.
    let other: u16 = if cfg!(target_arch = "riscv64") { 183 } else { 243 };
    bytes[18..20].copy_from_slice(&other.to_ne_bytes());
    std::fs::write(&library, bytes).unwrap();
    let said = refused(2, &["sim", "--quiet", "--scheme", &library]);
    assert!(
        said.contains("for another machine") && said.contains(std::env::consts::ARCH),
        "{said}"
    );
}

#[test]
fn what_has_no_simulated_machine_refuses_what_changes_one() {
    let folder = Folder::new();
    let library = folder.on_fault("mine", "");
    for args in [
        &["demo", "--bundled", "--quiet", "--scheme"][..],
        &["replay", "--functional", "--quiet", "--scheme"],
    ] {
        let name = format!("{library}+acud");
        let said = refused(2, &[args, &[name.as_str()]].concat());
        assert!(said.contains("+acud changes a simulated machine"), "{said}");
    }
    let said = refused(2, &["sim", "--quiet", "--scheme", &format!("{library}+fast")]);
    assert!(said.contains("+fast is not known"), "{said}");
}

#[test]
fn a_library_lists_its_parameters() {
    let folder = Folder::new();
    let library = template(&folder, "c");
    let listed = done(&["schemes", &library]);
    assert!(
        listed.contains("mine") && listed.contains("after=1") && listed.contains("(1 to 1000)"),
        "{listed}"
    );
    let json = json(&["schemes", "--json", &library]);
    assert_eq!((&json["name"], &json["parameters"][0]["most"]), (&"mine".into(), &1000.into()));
}

/// Observers watch a run in a process of its own too.
#[test]
fn a_run_of_a_library_can_be_watched() {
    let folder = Folder::new();
    let library = folder.on_fault("mine", "");
    let (series, stats) = (folder.file("series.csv"), folder.file("stats.json"));
    done(&[
        "sim",
        "--quiet",
        "--workload",
        "fir",
        "--bytes",
        "256K",
        "--scheme",
        &library,
        "--series",
        &series,
        "--stats",
        &stats,
    ]);
    assert!(std::fs::read_to_string(series).unwrap().lines().count() > 2);
    assert!(std::fs::read_to_string(stats).unwrap().contains("libmine.so"));
    let refused = refused(
        2,
        &[
            "sim",
            "--quiet",
            "--workload",
            "fir",
            "--scheme",
            &library,
            "--stop-after",
            "9",
            "--save",
            "x",
        ],
    );
    assert!(refused.contains("--save"), "{refused}");
}

/// All that a scheme can do beside faults, as it is told: counters, samples, allocations.
#[test]
fn a_scheme_hears_of_counters_samples_and_allocations() {
    let folder = Folder::new();
    let functions = "
        static int seen[5];
        static uint64_t allocated;
        static void on_fault(void *at, const farside_fault *fault, farside_decision *answer)
        {
            (void)at;
            if (fault->note != NULL || fault->page < fault->object_first || fault->page >= fault->object_first + fault->object_pages)
                abort();
            if (fault->owner != FARSIDE_NOWHERE && fault->owner != FARSIDE_HOST)
                answer->action = FARSIDE_MAP_REMOTE;
        }
        static uint32_t on_counter(void *at, const farside_notice *notice, farside_decision *answers, uint32_t capacity)
        {
            (void)at;
            if (notice->count < 256 || notice->agent < FARSIDE_CARD(0) || notice->agent > FARSIDE_CARD(3) || !capacity
                || answers->reason != FARSIDE_COUNTER)
                abort();
            if (!seen[0]++)
                fprintf(stderr, \"heard of a counter\\n\");
            return 1;
        }
        static void on_alloc(void *at, uint64_t first, uint64_t pages) { (void)at; (void)first; allocated += pages; }
        static uint64_t every(void *at) { (void)at; return 1000; }
        static uint32_t on_samples(void *at, uint64_t now_ns, const farside_sample *samples, uint64_t count, farside_move *moves,
            uint32_t capacity)
        {
            (void)at; (void)now_ns; (void)moves; (void)capacity;
            if (count && samples->accesses && allocated && !seen[1]++)
                fprintf(stderr, \"heard of samples\\n\");
            return 0;
        }";
    let table = ".on_fault = on_fault, .on_counter = on_counter, .on_alloc = on_alloc, .sample_every_ns = every, .on_samples = on_samples";
    let library = folder.scheme("hears", functions, table);
    let output =
        farside(&["sim", "--quiet", "--workload", "mm", "--bytes", "1M", "--scheme", &library]);
    let said = text(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert_eq!(said.matches("heard of a counter").count(), 1, "{said}");
    assert_eq!(said.matches("heard of samples").count(), 1, "{said}");
}

/// The demo on cards in the program, on demand, under a scheme of a library.
fn live(library: &str) -> Output {
    farside(&[
        "demo",
        "--bundled",
        "--on-demand",
        "--iterations",
        "2",
        "--json",
        "--scheme",
        library,
    ])
}

#[test]
fn live_a_scheme_of_ones_own_places_the_pages_of_a_program() {
    let folder = Folder::new();
    let output = live(&template(&folder, "c"));
    assert!(output.status.success(), "{}", text(&output.stderr));
    let outcome: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(outcome["exact"], true);
    assert!(outcome["placement"].as_str().unwrap().ends_with("libmine.so"));
    assert_eq!(text(&output.stderr), "");
    // It is asked: one that never moves a page to a card moves none.
    let stays = folder.on_fault(
        "stays",
        "if (fault->owner != FARSIDE_NOWHERE) answer->action = FARSIDE_MAP_ON_HOST;",
    );
    let outcome: Value = serde_json::from_slice(&live(&stays).stdout).unwrap();
    let moves = |outcome: &Value| {
        outcome["runs"][0]["workloads"][0]["pages"]["host_to_card"].as_u64().unwrap()
    };
    assert_eq!((moves(&outcome), &outcome["exact"]), (0, &true.into()), "{outcome}");
}

#[test]
fn live_an_answer_that_makes_no_sense_is_named_once_and_stands_for_the_default() {
    let folder = Folder::new();
    let range = "answer->scope = FARSIDE_RANGE; answer->first = 0; answer->pages = UINT64_MAX;";
    for (name, body) in [("action", "answer->action = 99;"), ("range", range)] {
        let output = live(&folder.on_fault(name, body));
        let said = text(&output.stderr);
        assert!(output.status.success(), "{said}");
        let outcome: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(outcome["exact"], true);
        assert_eq!(said.matches("answered nonsense").count(), 1, "{said}");
        assert!(said.contains(&format!("{name} (")) && said.contains("on_fault of page"), "{said}");
    }
}

#[test]
fn live_a_call_that_does_not_return_is_named_and_the_program_ends() {
    let folder = Folder::new();
    let library = folder.on_fault("hangs", "for (volatile int i = 0;;) i = i + 1;");
    let started = Instant::now();
    let output = live(&library);
    assert!(started.elapsed() < Duration::from_secs(30), "{:?}", started.elapsed());
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains("hangs (") && said.contains("has not returned from on_fault for 2 s"),
        "{said}"
    );
}

#[test]
fn live_a_crash_is_the_programs() {
    let folder = Folder::new();
    let output = live(&folder.on_fault("crashes", "abort();"));
    assert_eq!(output.status.code(), None, "a signal: {}", text(&output.stderr));
}

#[test]
fn the_time_that_a_call_may_take_is_a_number_of_seconds() {
    let folder = Folder::new();
    let library = folder.on_fault("mine", "");
    for wrong in ["0", "-1", "ten", "3601", ""] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_farside"));
        command.args(["schemes", &library]).env("FARSIDE_SCHEME_SECONDS", wrong);
        let output = command.output().expect("the command starts");
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains("FARSIDE_SCHEME_SECONDS") && said.contains("1 to 3600"), "{said}");
    }
}

/// What runs before the first fault is watched too.
#[test]
fn a_library_that_hangs_before_it_is_a_scheme_is_named() {
    let folder = Folder::new();
    let fault = "static void on_fault(void *at, const farside_fault *f, farside_decision *a) { (void)at; (void)f; (void)a; }\n";
    let hang = "{ for (volatile int i = 0;;) i = i + 1; return 0; }";
    let (created, sampled) = (
        format!(
            "{fault}static void *create(const uint32_t *v, const char **w) {{ (void)v; (void)w; {hang} }}"
        ),
        format!(
            "{fault}static uint64_t every(void *at) {{ (void)at; {hang} }}\n\
            static uint32_t on_samples(void *at, uint64_t now, const farside_sample *s, uint64_t n, farside_move *m, uint32_t room)\n\
            {{ (void)at; (void)now; (void)s; (void)n; (void)m; (void)room; return 0; }}"
        ),
    );
    let exported = format!("const void *farside_scheme_export(unsigned v) {{ (void)v; {hang} }}");
    for (library, named) in [
        (folder.scheme("created", &created, ".on_fault = on_fault, .create = create"), "create"),
        (
            folder.scheme(
                "sampled",
                &sampled,
                ".on_fault = on_fault, .sample_every_ns = every, .on_samples = on_samples",
            ),
            "sample_every_ns",
        ),
        (folder.library("exported", &exported), "farside_scheme_export"),
    ] {
        let mut command = Command::new("timeout");
        command.args(["-s", "KILL", "30", env!("CARGO_BIN_EXE_farside"), "schemes", &library]);
        let output =
            command.env("FARSIDE_SCHEME_SECONDS", "1").output().expect("the command starts");
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        let expected = format!("has not returned from {named}");
        assert!(
            said.contains(&library) && said.contains(&expected) && said.contains("for 1 s"),
            "{said}"
        );
    }
}
