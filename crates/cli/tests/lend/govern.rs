//! What the administrators of hosts say, and what becomes of it.

use std::net::{SocketAddr, TcpListener};
use std::sync::mpsc;

use super::*;

impl Host {
    /// Writes the configuration of this host.
    pub(super) fn configure(&self, text: &str) {
        let folder = PathBuf::from(&self.home);
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("lend.toml"), text).unwrap();
    }
}

/// Passes connections on to `to`, and tells what each begins with.
fn relay(to: SocketAddr) -> (String, mpsc::Receiver<Vec<u8>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (seen, firsts) = mpsc::channel();
    std::thread::spawn(move || {
        for near in listener.incoming().flatten() {
            let seen = seen.clone();
            std::thread::spawn(move || {
                let Ok(far) = TcpStream::connect(to) else { return };
                let mut first = vec![0; 16];
                // Who comes and says nothing is nobody's matter.
                let Ok(count @ 1..) = near.peek(&mut first) else { return };
                first.truncate(count);
                let _ = seen.send(first);
                let ways = [(near.try_clone(), far.try_clone()), (Ok(far), Ok(near))];
                for (from, to) in ways {
                    let (Ok(mut from), Ok(mut to)) = (from, to) else { return };
                    std::thread::spawn(move || {
                        let _ = std::io::copy(&mut from, &mut to);
                        let _ = to.shutdown(std::net::Shutdown::Write);
                    });
                }
            });
        }
    });
    (address, firsts)
}

pub(super) const PLAIN: &str = "version = 1\nplain-networks = [\"127.0.0.0/8\"]\n";

#[test]
fn a_lease_goes_without_tls_where_both_hosts_name_the_network_and_not_else() {
    for (lender, borrower) in [(true, true), (true, false), (false, true)] {
        let folder = Folder::new();
        let card = Card::serve(&folder);
        let [a, b] = ["a", "b"].map(|name| Host::new(&folder, name));
        for (host, named) in [(&a, lender), (&b, borrower)] {
            host.configure(if named { PLAIN } else { "version = 1\n" });
        }
        let (address, _) = a.up(&card.folder, "10");
        let (relayed, firsts) = relay(address.parse().unwrap());
        b.join(&a, &relayed, "b");
        b.run(&PROGRAM);
        a.await_state("free", LIMIT);
        let held = b.hold(&["card0"]);
        let plain = lender && borrower;
        assert_eq!(a.device()["plain"], plain);
        assert_eq!(b.json(&["who"])["held"][0]["plain"], plain);
        assert_eq!(a.run(&["who"]).contains("without TLS"), plain);
        drop(held);
        let firsts: Vec<Vec<u8>> = firsts.try_iter().collect();
        let said = firsts.iter().filter(|first| first.starts_with(b"FSPL")).count();
        assert_eq!(said > 0, plain, "{firsts:?}");
        assert!(firsts.iter().all(|first| first.starts_with(b"FSPL") || first[0] == 0x16));
    }
}

#[test]
fn who_does_not_know_the_secret_of_a_lease_without_tls_gets_nothing_of_it() {
    let folder = Folder::new();
    let card = Card::serve(&folder);
    let [a, b] = ["a", "b"].map(|name| Host::new(&folder, name));
    a.configure(PLAIN);
    b.configure(PLAIN);
    let (address, _) = a.up(&card.folder, "10");
    b.join(&a, &address, "b");
    let held = b.hold(&["card0"]);
    let epoch = a.device()["epoch"].as_u64().unwrap();
    for (epoch, secret) in [(epoch, [0; 32]), (epoch + 1, [0; 32]), (0, [7; 32])] {
        let mut stranger = TcpStream::connect(&address).unwrap();
        stranger.set_read_timeout(Some(LIMIT)).unwrap();
        let greeting = [b"FSPL\x01\0\0\0".as_slice(), &epoch.to_le_bytes(), &secret].concat();
        let _ = stranger.write_all(&greeting);
        let mut answer = Vec::new();
        let _ = stranger.read_to_end(&mut answer);
        assert!(answer.is_empty(), "{answer:?}");
    }
    // Its borrower goes on, and so does another that comes while one of these says nothing.
    let _silent = TcpStream::connect(&address).unwrap();
    let demo = ["demo", "--bundled", "--quiet", "--on-demand", "--iterations", "1"];
    let output = b.command(&demo).env("FARSIDE_CARDS", &held.place).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
}

#[test]
fn a_configuration_that_makes_no_sense_is_refused_with_its_line_and_at_reload_changes_nothing() {
    let folder = Folder::new();
    let card = Card::serve(&folder);
    let a = Host::new(&folder, "a");
    a.configure("version = 1\nplain-networks = [\"nonsense\"]\n");
    let why = a.refused(&["who"]);
    assert!(why.contains("lend.toml, line 2") && why.contains("nonsense"), "{why}");
    a.configure("version = 1\n");
    a.up(&card.folder, "10");
    a.configure("version = 7\n");
    a.signal("daemon", Signal::HUP);
    await_that(LIMIT, "it is said", || a.log().contains("stays as it was"));
    a.await_state("free", LIMIT);
}

impl Host {
    /// Has the daemon read its configuration anew.
    fn reload(&self, text: &str) {
        self.configure(text);
        let before = self.acts("configured").len();
        self.signal("daemon", Signal::HUP);
        self.await_acts("configured", before + 1);
    }

    /// The lines of the audit log. Nothing waits until they are written: what has just happened may be missing.
    pub(super) fn audit(&self) -> Vec<Value> {
        let path = PathBuf::from(&self.home).join("state/audit.jsonl");
        let text = std::fs::read_to_string(path).unwrap_or_default();
        // The last one may be on its way.
        let lines = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
        lines.map(|line| serde_json::from_str(line).expect(line)).collect()
    }

    fn acts(&self, act: &str) -> Vec<Value> {
        self.audit().into_iter().filter(|line| line["act"] == act).collect()
    }

    /// Waits until something stands so often in the audit log.
    fn await_acts(&self, act: &str, count: usize) -> Vec<Value> {
        await_that(LIMIT, &format!("{act} {count} times"), || self.acts(act).len() >= count);
        self.acts(act)
    }
}

/// A folder with a program in it.
fn program(folder: &Folder, name: &str, script: &str, mode: u32) -> String {
    use std::os::unix::fs::PermissionsExt;
    let path = folder.0.join(name);
    std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
    path.display().to_string()
}

const RULES: &str = r#"
version = 1

[[rule]]
name = "no c"
hosts = ["c"]
allow = false

[[rule]]
name = "members"
hosts = ["?"]
devices = ["card*"]
at-most = 1
"#;

#[test]
fn a_rule_decides_who_borrows_and_a_refusal_names_it() {
    let three = Three::start("10");
    let Three { a, b, c, .. } = &three;
    let none = a.run(&["lend", "rules"]);
    assert!(none.contains("may borrow everything"), "{none}");
    a.reload(RULES);
    let printed = a.run(&["lend", "rules"]);
    assert!(printed.contains("no c") && printed.contains("1 for each host"), "{printed}");
    let rules = a.json(&["lend", "rules"]);
    assert_eq!(rules["rules"][1]["name"], "members");
    assert_eq!(rules["rules"][1]["at_most"], 1);
    let why = c.refused(&["borrow", "card0", "--", "true"]);
    for word in ["`no c`", "host c", "card0", "user"] {
        assert!(why.contains(word), "{word}: {why}");
    }
    let held = b.hold(&["card0"]);
    // It has one, and one is what the rule says, whether it waits or not.
    let why = b.refused(&["borrow", "card0", "--wait", "5", "--", "true"]);
    assert!(why.contains("`members`") && why.contains("give one back"), "{why}");
    drop(held);
    a.await_state("free", LIMIT);
    b.run(&["borrow", "card0", "--", "true"]);
    // Whoever is refused at the top of the file is not asked for by a bad one.
    a.configure("version = 1\n[[rule]]\nname = \"x\"\nhost = [\"c\"]\n");
    a.signal("daemon", Signal::HUP);
    let file = format!("{}/lend.toml", a.home);
    let why = a.refused(&["lend", "rules", "--check", &file]);
    assert!(why.contains("line 4") && why.contains("host"), "{why}");
    assert!(c.refused(&["borrow", "card0", "--", "true"]).contains("`no c`"));
    let refused = a.await_acts("rule-refused", 3);
    assert_eq!(refused.len(), 3, "{refused:?}");
    assert_eq!(refused[0]["rule"], "no c");
    assert_eq!((&refused[0]["host"], &refused[0]["devices"][0]), (&"c".into(), &"card0".into()));
}

#[test]
fn a_lease_of_limited_length_is_back_in_time() {
    let three = Three::start("2");
    three.a.reload("version = 1\n[[rule]]\nname = \"short\"\nlongest-s = 4\n");
    let started = Instant::now();
    let _held = three.b.hold(&["card0"]);
    three.a.await_state("free", LIMIT);
    // By the deadline, or when the last promise ends: a lease later at most, and the fence.
    assert!(started.elapsed() < Duration::from_secs(15), "{:?}", started.elapsed());
    let recalled = three.a.await_acts("recalled", 1);
    assert!(recalled[0]["why"].as_str().unwrap().contains("`short`: 4 s"), "{recalled:?}");
}

#[test]
fn hooks_are_asked_at_a_grant_and_told_of_the_end_when_the_card_is_clean() {
    let three = Three::start("10");
    let Three { a, b, folder, .. } = &three;
    let out = folder.join("told");
    let told = || std::fs::read_to_string(&out).unwrap_or_default();
    let note =
        format!("echo $LEASE_EVENT $LEASE_HOST $LEASE_DEVICE $LEASE_EPOCH $LEASE_OUTCOME >>{out}");
    let good = program(folder, "good", &note, 0o755);
    let veto = program(folder, "veto", "echo first >&2; echo not on Sundays >&2; exit 1", 0o755);
    let hang = program(folder, "hang", "sleep 1000", 0o755);
    let no_program = program(folder, "no-program", "", 0o644);
    let config = |grant: &str, end: &str| {
        let hook = |on: &str, run: &str| format!("[[hook]]\non = \"{on}\"\nrun = \"{run}\"\n");
        format!("version = 1\n{}{}", hook("grant", grant), hook("end", end))
    };
    a.reload(&config(&good, &good));
    b.run(&["borrow", "card0", "--", "true"]);
    await_that(LIMIT, "both hooks are told", || told().matches('\n').count() == 2);
    let epoch = a.await_acts("granted", 1)[0]["epoch"].as_u64().unwrap();
    assert_eq!(told(), format!("grant b card0 {epoch}\nend b card0 {epoch} clean\n"));
    // One that says no, hangs, is not there or is no program: nothing is lent, and it is said why. Nobody
    // had a lease, so that no hook is told of its end.
    let missing = folder.join("missing");
    for (hook, word) in [
        (&veto, "says: not on Sundays"),
        (&hang, "did not end within"),
        (&missing, "cannot be run"),
        (&no_program, "cannot be run"),
    ] {
        a.reload(&config(hook, &good));
        let started = Instant::now();
        let why = b.refused(&["borrow", "card0", "--", "true"]);
        assert!(why.contains(word), "{why}");
        assert!(started.elapsed() < Duration::from_secs(15), "{:?}", started.elapsed());
        a.await_state("free", LIMIT);
    }
    assert_eq!(a.await_acts("hook-refused", 4).len(), 4);
    assert_eq!(told().lines().count(), 2, "{}", told());
    // One that fails or hangs at the end holds nobody up.
    a.reload(&config(&good, &hang));
    b.run(&["borrow", "card0", "--", "true"]);
    a.await_state("free", LIMIT);
    a.reload(&config(&good, &veto));
    b.run(&["borrow", "card0", "--", "true"]);
    let failed = a.await_acts("hook-failed", 1);
    assert!(failed[0]["why"].as_str().unwrap().contains("not on Sundays"), "{failed:?}");
    assert_eq!(a.await_acts("granted", 3).len(), 3);
}

/// What Prometheus reads: each family has its help and its kind before its samples. Gives the samples.
pub(super) fn scraped(address: &str) -> std::collections::BTreeMap<String, f64> {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    let mut family = ("", "");
    let mut samples = std::collections::BTreeMap::new();
    for line in body.lines() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, text) = help.split_once(' ').unwrap();
            assert!(name.starts_with("farside_lend_") && !text.is_empty(), "{line}");
            family = (name, "");
        } else if let Some(kind) = line.strip_prefix("# TYPE ") {
            let (name, kind) = kind.split_once(' ').unwrap();
            assert_eq!(name, family.0);
            assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
            assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
            family.1 = kind;
        } else {
            let (name, value) = line.rsplit_once(' ').unwrap();
            let bare = name.split('{').next().unwrap();
            let parts = ["_bucket", "_sum", "_count"].map(|part| format!("{}{part}", family.0));
            let is_part = family.1 == "histogram" && parts.iter().any(|part| part == bare);
            assert!(bare == family.0 || is_part, "{line} in {family:?}");
            let twice = samples.insert(name.to_owned(), value.parse().unwrap());
            assert_eq!(twice, None, "{line}");
        }
    }
    samples
}

#[test]
fn the_audit_log_and_the_metrics_say_what_has_happened() {
    // So long that on a busy machine no lease is over which is not meant to be.
    let three = Three::start("4");
    let Three { a, b, c, card, .. } = &three;
    a.reload("version = 1\nmetrics = \"127.0.0.1:0\"\n[[rule]]\nname = \"all\"\n");
    let metrics = a.json(&["lend", "up"])["metrics"].as_str().unwrap().to_owned();
    // Somebody who says nothing keeps nobody out.
    let _silent: Vec<TcpStream> = (0..8).map(|_| TcpStream::connect(&metrics).unwrap()).collect();

    let held = b.hold(&["card0"]);
    assert!(c.refused(&["borrow", "card0", "--", "true"]).contains("card0"));
    drop(held);
    a.await_state("free", LIMIT);
    let held = c.hold(&["card0"]);
    a.run(&["recall", "card0", "--within", "1"]);
    a.await_state("free", LIMIT);
    drop(held);
    let held = b.hold(&["card0"]);
    b.signal("", Signal::STOP);
    a.await_state("free", LIMIT);
    b.signal("", Signal::CONT);
    drop(held);
    let held = c.hold(&["card0"]);
    card.signal(Signal::STOP);
    drop(held);
    a.await_state("quarantined", LIMIT);
    card.signal(Signal::CONT);
    a.run(&["lend", "release", "card0"]);
    a.await_state("free", LIMIT);

    a.await_acts("released", 1);
    let log = a.audit();
    let word = |line: &Value, name: &str| line[name].as_str().unwrap_or_default().to_owned();
    // From the first lease on: what was before is how the hosts came together.
    let acts: Vec<(String, String)> = log
        .iter()
        .map(|line| (word(line, "act"), word(line, "host")))
        .skip_while(|(act, _)| act != "granted")
        .collect();
    let wanted = [
        ("granted", "b"),
        ("refused", "c"),
        ("returned", "b"),
        ("reset", ""),
        ("granted", "c"),
        ("recalled", "c"),
        // By its lender, or just before by its borrower, which counts as well.
        (if acts[6].0 == "returned" { "returned" } else { "revoked" }, "c"),
        ("reset", ""),
        ("granted", "b"),
        ("expired", "b"),
        ("reset", ""),
        ("granted", "c"),
        ("returned", "c"),
        ("quarantined", ""),
        ("released", ""),
    ];
    let wanted: Vec<(String, String)> =
        wanted.iter().map(|(act, host)| ((*act).to_owned(), (*host).to_owned())).collect();
    assert_eq!(acts, wanted, "{log:#?}");
    for act in ["started", "opened", "invited", "joined", "configured"] {
        assert!(!a.acts(act).is_empty(), "{act}: {log:#?}");
    }
    // Each line has what the schema says, and epochs rise.
    let known = ["v", "time", "act", "host", "user", "devices", "epoch", "rule", "why"];
    let mut last = 0;
    for line in &log {
        assert!(line.as_object().unwrap().keys().all(|key| known.contains(&&**key)), "{line}");
        assert_eq!(line["v"], 1);
        assert!(word(line, "time").ends_with('Z'), "{line}");
        if line["act"] == "granted" {
            let epoch = line["epoch"].as_u64().unwrap();
            assert!(
                epoch > last && line["devices"][0] == "card0" && line["rule"] == "all",
                "{line}"
            );
            last = epoch;
        }
    }

    let samples = scraped(&metrics);
    for (name, value) in [
        ("farside_lend_grants_total", 4.0),
        ("farside_lend_ends_total{reason=\"silent\"}", 1.0),
        ("farside_lend_refusals_total{reason=\"busy\"}", 1.0),
        ("farside_lend_cleanings_total{outcome=\"quarantined\"}", 1.0),
        ("farside_lend_recalls_total", 1.0),
        ("farside_lend_joined_total", 2.0),
        ("farside_lend_devices{state=\"free\"}", 1.0),
        ("farside_lend_devices{state=\"lent\"}", 0.0),
        ("farside_lend_requests_waiting", 0.0),
        ("farside_lend_peers", 2.0),
        ("farside_lend_wait_seconds_count", 4.0),
        ("farside_lend_wait_seconds_bucket{le=\"+Inf\"}", 4.0),
        ("farside_lend_audit_lost_total", 0.0),
        ("farside_lend_ledger_failures_total", 0.0),
    ] {
        assert_eq!(samples.get(name), Some(&value), "{name} in {samples:#?}");
    }
    let ends =
        |reason: &str| samples.get(&format!("farside_lend_ends_total{{reason=\"{reason}\"}}"));
    let by_word = [ends("returned"), ends("recalled")].into_iter().flatten().sum::<f64>();
    assert_eq!(by_word, 3.0, "{samples:#?}");
    assert!(samples["farside_lend_renewals_total"] > 0.0);
    // As many lines as the program has, whoever borrowed.
    assert!(samples.len() < 100, "{samples:#?}");
}
