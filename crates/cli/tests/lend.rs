//! `farside lend`, `join`, `borrow`: hosts that lend cards to each other, as their users run them. Each
//! host is a daemon with a folder of its own; all listen on the loopback interface.

#[path = "lend_common/mod.rs"]
mod common;
#[path = "lend/foreign.rs"]
mod foreign;
#[path = "lend/here.rs"]
mod here;
#[path = "lend/hostile.rs"]
mod hostile;
#[path = "../../lend/src/end/foreign/hostile_device.rs"]
mod hostile_device;
#[path = "lend/relay.rs"]
mod relay;
#[path = "lend/resume.rs"]
mod resume;
#[path = "lend/samples.rs"]
mod samples;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use common::{HOME, Held, await_that};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

#[path = "lend/any.rs"]
mod any;
#[path = "lend/certificates.rs"]
mod certificates;
#[path = "lend/counted.rs"]
mod counted;
#[path = "lend/direct.rs"]
mod direct;
#[path = "lend/ended.rs"]
mod ended;
#[path = "lend/failures.rs"]
mod failures;
#[path = "lend/govern.rs"]
mod govern;

/// How long anything may take that is not bounded more narrowly.
const LIMIT: Duration = Duration::from_secs(60);

/// A folder of a test's own, with a short path, because it will hold sockets.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Folder {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("fl{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).expect("a folder for a test");
        Folder(path)
    }

    fn join(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A host: its daemon, and whatever its users run. All of it ends with the test.
struct Host {
    home: String,
}

impl Host {
    fn new(folder: &Folder, name: &str) -> Host {
        Host { home: folder.join(name) }
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_farside"));
        command.args(args).env_remove("FARSIDE_CARDS").env(HOME, &self.home);
        command.stdin(Stdio::null());
        command
    }

    fn output(&self, args: &[&str]) -> Output {
        self.command(args).output().expect("the command starts")
    }

    /// What a command that must do well prints.
    fn run(&self, args: &[&str]) -> String {
        let output = self.output(args);
        assert!(output.status.success(), "{args:?}: {}", text(&output.stderr));
        text(&output.stdout)
    }

    fn json(&self, args: &[&str]) -> Value {
        let args: Vec<&str> = args.iter().copied().chain(["--json"]).collect();
        serde_json::from_str(&self.run(&args)).expect("one JSON object and nothing else")
    }

    /// What a command that must fail says.
    fn refused(&self, args: &[&str]) -> String {
        let output = self.output(args);
        assert!(!output.status.success(), "{args:?} did well: {}", text(&output.stdout));
        text(&output.stderr)
    }

    /// Lends a card, with leases of so many seconds; gives where, and a token.
    fn up(&self, card: &str, lease: &str) -> (String, String) {
        let up = self.json(&[
            "lend",
            "up",
            "--listen",
            "127.0.0.1:0",
            "--device",
            card,
            "--lease",
            lease,
            "--name",
            "a",
        ]);
        let word = |name: &str| up[name].as_str().expect("a text").to_owned();
        (word("address"), word("token"))
    }

    /// Joins another host, which lends at `address`.
    fn join(&self, lender: &Host, address: &str, name: &str) {
        let invited = lender.json(&["lend", "invite"]);
        let token = invited["token"].as_str().expect("a token");
        self.run(&["join", address, token, "--name", name]);
    }

    /// Holds cards until the command is ended; gives it once it has them.
    fn hold(&self, args: &[&str]) -> Held {
        let args: Vec<&str> = ["borrow"].iter().chain(args).copied().collect();
        Held::by(self.command(&args)).unwrap_or_else(|why| panic!("{args:?}: {why}"))
    }

    /// Waits until so many requests for its device wait.
    fn await_waiting(&self, count: u64) {
        await_that(LIMIT, "others wait", || self.device()["waiting"] == count);
    }

    /// What a device is doing.
    fn device(&self) -> Value {
        self.json(&["who"])["devices"][0].clone()
    }

    /// Waits until a device is in a state.
    fn await_state(&self, state: &str, limit: Duration) -> Duration {
        let started = Instant::now();
        loop {
            let device = self.device();
            if device["state"] == state {
                return started.elapsed();
            }
            assert!(started.elapsed() < limit, "still {device}, not {state}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// The processes of this host whose command line has this word.
    fn processes(&self, word: &str) -> Vec<Pid> {
        common::processes(&self.home, word)
    }

    /// The only one of these. One that was just started has no command line to see yet.
    fn process(&self, word: &str) -> Pid {
        await_that(LIMIT, word, || !self.processes(word).is_empty());
        let found = self.processes(word);
        assert_eq!(found.len(), 1, "{word}: {found:?}");
        found[0]
    }

    fn signal(&self, word: &str, signal: Signal) {
        for pid in self.processes(word) {
            // One that has ended meanwhile is no matter.
            let _ = kill_process(pid, signal);
        }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.signal("", Signal::KILL);
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A card, and the process that serves it.
struct Card {
    folder: String,
    child: Child,
}

impl Card {
    fn serve(folder: &Folder) -> Card {
        Card::serve_as(folder, "card0")
    }

    fn serve_as(folder: &Folder, name: &str) -> Card {
        let path = folder.join(name);
        let child = Command::new(env!("CARGO_BIN_EXE_farside"))
            .args(["card", "serve", &path, "--memory", "16M"])
            .stderr(Stdio::null())
            .spawn()
            .expect("the card's server starts");
        let end = Instant::now() + LIMIT;
        while !folder.0.join(name).join("status.sock").exists() {
            assert!(Instant::now() < end, "the card is not served");
            std::thread::sleep(Duration::from_millis(10));
        }
        Card { folder: path, child }
    }

    /// Stops its processes, or lets them go on.
    fn signal(&self, signal: Signal) {
        let parent = self.child.id();
        let children = std::fs::read_to_string(format!("/proc/{parent}/task/{parent}/children"));
        for pid in
            children.unwrap_or_default().split_whitespace().filter_map(|pid| pid.parse().ok())
        {
            let _ = kill_process(Pid::from_raw(pid).expect("a process"), signal);
        }
    }
}

impl Drop for Card {
    fn drop(&mut self) {
        self.signal(Signal::CONT);
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A lends a card; B and C have joined it.
struct Three {
    a: Host,
    b: Host,
    c: Host,
    address: String,
    card: Card,
    folder: Folder,
}

impl Three {
    fn start(lease: &str) -> Three {
        Three::start_in(Folder::new(), lease)
    }

    fn start_in(folder: Folder, lease: &str) -> Three {
        let card = Card::serve(&folder);
        let [a, b, c] = ["a", "b", "c"].map(|name| Host::new(&folder, name));
        let (address, _) = a.up(&card.folder, lease);
        b.join(&a, &address, "b");
        c.join(&a, &address, "c");
        Three { a, b, c, address, card, folder }
    }
}

/// A program on a card of its own and the borrowed one, whose results it checks itself.
const PROGRAM: [&str; 11] = [
    "borrow",
    "card0",
    "--with",
    "program:16777216",
    "--",
    env!("CARGO_BIN_EXE_farside"),
    "demo",
    "--bundled",
    "--on-demand",
    "--quiet",
    "--iterations=2",
];

#[test]
fn a_program_uses_a_borrowed_card_and_it_is_given_back_when_the_program_ends() {
    let three = Three::start("10");
    let hosts = three.b.json(&["available"])["hosts"].clone();
    let lent = hosts.as_array().unwrap().iter().find(|host| host["host"] == "a").unwrap();
    assert_eq!(lent["devices"][0]["name"], "card0", "{hosts}");
    assert_eq!(lent["devices"][0]["state"], "free", "{hosts}");
    three.b.run(&PROGRAM);
    let took = three.a.await_state("free", LIMIT);
    assert!(took < Duration::from_secs(5), "{took:?}");
    assert!(three.b.json(&["who"])["held"].as_array().unwrap().is_empty());
    // The program's own exit code comes through.
    let code = three.c.output(&["borrow", "card0@a", "--", "sh", "-c", "exit 7"]).status.code();
    assert_eq!(code, Some(7));
}

#[test]
fn both_ends_of_a_lease_are_confined_and_have_a_key_of_their_own() {
    let three = Three::start("10");
    let _held = three.b.hold(&["card0"]);
    for (host, word) in [(&three.a, "end"), (&three.b, "near-end")] {
        let path = format!("/proc/{}/status", host.process(word).as_raw_nonzero());
        let end = Instant::now() + LIMIT;
        // It may be on its way there.
        loop {
            let status = std::fs::read_to_string(&path).unwrap();
            if ["Seccomp:\t2", "NoNewPrivs:\t1"].iter().all(|line| status.contains(line)) {
                break;
            }
            assert!(Instant::now() < end, "{word} is not confined: {status}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    // Control: what is not confined is seen.
    let daemon = three.a.process("daemon").as_raw_nonzero();
    let status = std::fs::read_to_string(format!("/proc/{daemon}/status")).unwrap();
    assert!(!status.contains("Seccomp:\t2"), "{status}");
}

#[test]
fn two_never_have_the_same_card_and_who_waits_gets_it_next() {
    let Three { a, b, c, card: _card, folder: _folder, .. } = Three::start("10");
    let held = b.hold(&["card0"]);
    let first = a.device();
    assert_eq!(first["state"], "lent");
    assert!(first["holder"].as_str().unwrap().ends_with("on b"), "{first}");
    let why = c.refused(&["borrow", "card0", "--", "true"]);
    assert!(why.contains("card0 is with") && why.contains("on b"), "{why}");
    let waiting = std::thread::spawn(move || (c.hold(&["card0", "--wait", "30"]), c));
    a.await_waiting(1);
    // Its borrower is killed without a word: the daemon of its host gives back.
    drop(held);
    let (next, _c) = waiting.join().unwrap();
    let second = a.device();
    assert!(second["epoch"].as_u64() > first["epoch"].as_u64(), "{first} {second}");
    assert!(second["holder"].as_str().unwrap().ends_with("on c"), "{second}");
    drop(next);
    a.await_state("free", LIMIT);
}

#[test]
fn a_borrower_that_falls_silent_loses_its_lease_and_can_use_it_no_more() {
    let three = Three::start("3");
    let held = three.b.hold(&["card0"]);
    let place = held.place.clone();
    three.b.signal("", Signal::STOP);
    let _next = three.c.hold(&["card0", "--wait", "30"]);
    three.b.signal("", Signal::CONT);
    // Whoever has its place in hand is told that it is over.
    let end = Instant::now() + LIMIT;
    loop {
        let output = three
            .b
            .command(&["demo", "--bundled", "--quiet"])
            .env("FARSIDE_CARDS", &place)
            .output()
            .unwrap();
        let why = text(&output.stderr);
        assert!(!output.status.success(), "it used a card that another has");
        if why.contains("is over; borrow it again") {
            break;
        }
        assert!(Instant::now() < end, "{why}");
    }
    assert!(three.a.device()["holder"].as_str().unwrap().ends_with("on c"));
}

#[test]
fn a_daemon_that_is_killed_and_started_again_keeps_the_leases_and_no_epoch_repeats() {
    let three = Three::start("5");
    let held = three.b.hold(&["card0"]);
    let before = three.a.device();
    three.a.signal("daemon", Signal::KILL);
    // The next command starts another, at the same place.
    let after = three.a.device();
    assert_eq!(after["epoch"], before["epoch"], "{before} {after}");
    assert_eq!(after["state"], "lent");
    // Its borrower goes on for longer than the lease would have run, and the card works.
    std::thread::sleep(Duration::from_secs(6));
    assert_eq!(three.a.device()["epoch"], before["epoch"]);
    let output = three
        .b
        .command(&["demo", "--bundled", "--quiet", "--on-demand", "--iterations", "2"])
        .env("FARSIDE_CARDS", &held.place)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    drop(held);
    three.a.await_state("free", LIMIT);
    let _next = three.c.hold(&["card0"]);
    assert!(three.a.device()["epoch"].as_u64() > before["epoch"].as_u64());
}

/// It cannot say which process it is, and would touch the card when it wakes.
#[test]
fn an_end_that_stands_still_is_killed_by_a_new_daemon_before_the_card_is_lent_again() {
    let three = Three::start("4");
    let _held = three.b.hold(&["card0"]);
    let end = three.a.process("end").as_raw_nonzero();
    three.a.signal("end", Signal::STOP);
    three.a.signal("daemon", Signal::KILL);
    // Any command starts another.
    three.a.device();
    let _next = three.c.hold(&["card0", "--wait", "30"]);
    let status = std::fs::read_to_string(format!("/proc/{end}/status")).unwrap_or_default();
    // Of one that is gone, its parent may not know yet.
    assert!(status.is_empty() || status.contains("State:\tZ"), "two have the card: {status}");
}

#[test]
fn a_lease_whose_end_died_with_its_daemon_is_not_given_on_while_its_borrower_may_believe_in_it() {
    let three = Three::start("6");
    let _held = three.b.hold(&["card0"]);
    three.b.signal("daemon", Signal::STOP);
    three.a.signal("daemon", Signal::KILL);
    three.a.signal("end", Signal::KILL);
    // However long it takes until any command has started another.
    let started = Instant::now();
    three.a.device();
    let _next = three.c.hold(&["card0", "--wait", "30"]);
    let waited = started.elapsed();
    // By b's count the lease runs for two thirds of its time at least.
    assert!(waited > Duration::from_secs(4), "c has it after {waited:?}");
    three.b.signal("daemon", Signal::CONT);
}

#[test]
fn what_a_killed_daemon_had_borrowed_is_over_when_another_starts() {
    let three = Three::start("10");
    let held = three.b.hold(&["card0"]);
    let place = held.place.strip_prefix("lease:").expect("a lease").to_owned();
    three.b.signal("daemon", Signal::KILL);
    assert!(three.b.json(&["who"])["held"].as_array().unwrap().is_empty());
    assert!(!std::path::Path::new(&place).exists());
    await_that(LIMIT, "its end is gone", || three.b.processes("near-end").is_empty());
}

#[test]
fn tokens_are_good_once_and_strangers_get_nothing() {
    let Three { a, b, address, folder, card: _served, .. } = Three::start("10");
    let d = Host::new(&folder, "d");
    let token = a.json(&["lend", "invite"])["token"].as_str().unwrap().to_owned();
    for wrong in ["nonsense", "a.00", &token[..token.len() - 2], &token.replacen("a.", "b.", 1)] {
        let why = d.refused(&["join", &address, wrong]);
        assert!(why.contains("token") || why.contains("cannot be joined"), "{wrong}: {why}");
    }
    // A secret that was never given: the right authority, and no invitation.
    let mut forged = token.clone();
    let last = if forged.ends_with('0') { "1" } else { "0" };
    forged.replace_range(forged.len() - 1.., last);
    let why = d.refused(&["join", &address, &forged]);
    assert!(why.contains("token is not good"), "{why}");
    d.run(&["join", &address, &token]);
    let why = b.refused(&["join", &address, &token]);
    assert!(why.contains("token is not good"), "{why}");
    // Bytes that are no TLS, and none at all.
    for bytes in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0x16, 3, 1, 0xff, 0xff, 1], &[]] {
        let mut stranger = TcpStream::connect(&address).unwrap();
        stranger.set_read_timeout(Some(LIMIT)).unwrap();
        stranger.write_all(bytes).unwrap();
        let started = Instant::now();
        let mut answer = Vec::new();
        let _ = stranger.read_to_end(&mut answer);
        assert!(answer.len() < 100 && started.elapsed() < Duration::from_secs(20), "{answer:?}");
    }
    a.await_state("free", LIMIT);
}

#[test]
fn what_does_not_reset_is_quarantined_until_somebody_releases_it() {
    let three = Three::start("10");
    let held = three.b.hold(&["card0"]);
    // It stands still, so that nobody can say whether it is clean.
    three.card.signal(Signal::STOP);
    drop(held);
    three.a.await_state("quarantined", LIMIT);
    let why = three.c.refused(&["borrow", "card0", "--wait", "5", "--", "true"]);
    assert!(why.contains("quarantined"), "{why}");
    assert!(three.b.run(&["available"]).contains("quarantined"));
    three.card.signal(Signal::CONT);
    three.a.run(&["lend", "release", "card0"]);
    three.c.run(&["borrow", "card0", "--wait", "10", "--", "true"]);
    assert!(three.a.refused(&["lend", "release", "card0"]).contains("not quarantined"));
}

#[test]
fn a_card_that_dies_is_lent_to_nobody_until_it_is_served_again() {
    let folder = Folder::new();
    let card = Card::serve(&folder);
    let a = Host::new(&folder, "a");
    a.up(&card.folder, "10");
    a.await_state("free", LIMIT);
    drop(card);
    await_that(LIMIT, "a card that is gone is not lent", || a.device().is_null());
    let why = a.refused(&["borrow", "card0", "--", "true"]);
    assert!(why.contains("card0"), "{why}");
    let card = Card::serve(&folder);
    a.await_state("free", LIMIT);
    a.run(&["borrow", "card0", "--wait", "10", "--", "true"]);
    drop(card);
}

#[test]
fn a_recalled_card_comes_back_by_its_deadline_at_the_latest() {
    let three = Three::start("2");
    let _held = three.b.hold(&["card0"]);
    three.a.run(&["recall", "card0", "--within", "1"]);
    let took = three.a.await_state("free", LIMIT);
    assert!(took < Duration::from_secs(20), "{took:?}");
    assert!(three.a.refused(&["recall", "card0"]).contains("nobody has card0"));
}

#[test]
fn a_host_that_is_up_already_is_told_more_and_stays_where_it_is() {
    let three = Three::start("10");
    for lease in ["2", "3"] {
        let up = three.a.json(&["lend", "up", "--lease", lease]);
        assert_eq!(up["address"].as_str(), Some(three.address.as_str()));
    }
    three.b.run(&["borrow", "card0", "--", "true"]);
}

#[test]
fn names_that_nobody_lends_and_hosts_that_do_not_answer_are_said() {
    let three = Three::start("10");
    let why = three.b.refused(&["borrow", "card9", "--", "true"]);
    assert!(why.contains("no host lends card9"), "{why}");
    let why = three.b.refused(&["borrow", "card0@nobody", "--", "true"]);
    assert!(why.contains("nobody"), "{why}");
    three.b.refused(&["return", "card0"]);
    three.a.signal("", Signal::STOP);
    let started = Instant::now();
    let why = three.b.refused(&["borrow", "card0@a", "--", "true"]);
    assert!(why.contains("host a"), "{why}");
    assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
    three.a.signal("", Signal::CONT);
}

/// One sample of everything; no file is left behind.
#[test]
fn the_bench_of_leases_measures_every_row() {
    let folder = Folder::new();
    let output = Command::new(env!("CARGO_BIN_EXE_farside"))
        .args(["bench", "lend", "--samples", "1", "--json"])
        .env("TMPDIR", &folder.0)
        .stdin(Stdio::null())
        .output()
        .expect("the command starts");
    assert!(output.status.success(), "{}", text(&output.stderr));
    let printed: Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    let rows = printed["rows"].as_array().expect("rows");
    assert_eq!(rows.len(), 23, "{printed}");
    // The view may have converged by the time of the first look.
    assert!(rows.iter().all(|row| row["reached"].as_f64() >= Some(0.0)), "{printed}");
    let absolute = |row: &Value| ["ns", "µs", "ms", "s"].map(Value::from).contains(&row["unit"]);
    assert!(!rows.iter().any(absolute), "a time is a ratio: {printed}");
    let left: Vec<_> = std::fs::read_dir(&folder.0).expect("the folder").flatten().collect();
    assert!(left.is_empty(), "{left:?}");
}

/// Whenever it comes: while hosts start, while pages are on a card, while cards are searched.
#[test]
fn a_bench_of_leases_that_is_interrupted_leaves_nothing_behind() {
    for after in [0, 600, 1400, 2400].map(Duration::from_millis) {
        let folder = Folder::new();
        let mut bench = Command::new(env!("CARGO_BIN_EXE_farside"))
            .args(["bench", "lend", "--samples", "50"])
            .env("TMPDIR", &folder.0)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .expect("the command starts");
        let home = folder.0.join(format!("fsl{}", bench.id()));
        let end = Instant::now() + LIMIT;
        while !home.exists() {
            assert!(Instant::now() < end, "it does not begin");
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(after);
        kill_process(Pid::from_child(&bench), Signal::INT).expect("it runs");
        let code = bench.wait().expect("it ends").code();
        assert_eq!(code, Some(130), "after {after:?}");
        let left: Vec<_> = std::fs::read_dir(&folder.0).expect("the folder").flatten().collect();
        assert!(left.is_empty(), "after {after:?}: {left:?}");
        for host in ["a", "b", "card0", "card1", "card2"] {
            let left = Host { home: home.join(host).display().to_string() }.processes("");
            assert!(left.is_empty(), "after {after:?}, {host}: {left:?}");
        }
    }
}
