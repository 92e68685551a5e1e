//! `farside card serve`, `farside cards` and `--cards`: cards as processes, as a user runs them.

use std::io::{BufRead, BufReader, Read, Write as _};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use farside::{CardPlace, Space, Write};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// How long anything may take.
const LIMIT: Duration = Duration::from_secs(30);

/// A folder of a test's own, with a short path, because it will hold sockets.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Folder {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("fc{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
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

fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_farside"));
    command.args(args).env_remove("FARSIDE_CARDS").stdin(Stdio::null());
    command
}

fn farside(args: &[&str]) -> Output {
    command(args).output().expect("the command starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("text")
}

/// What a command that must do well writes as JSON.
fn json(args: &[&str]) -> Value {
    let output = farside(args);
    assert!(output.status.success(), "{args:?}: {}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("one JSON object and nothing else")
}

/// What a command that must fail with this code says.
fn refused(code: i32, args: &[&str]) -> String {
    let output = farside(args);
    assert_eq!(output.status.code(), Some(code), "{args:?}: {}", text(&output.stderr));
    text(&output.stderr)
}

/// A card that is being served.
struct Server {
    child: Child,
    /// What it said when it was ready.
    ready: Value,
}

impl Server {
    fn start(folder: &str, more: &[&str]) -> Server {
        Server::start_with_log(folder, more, Stdio::null())
    }

    fn start_with_log(folder: &str, more: &[&str], log: Stdio) -> Server {
        let mut child = command(&["card", "serve", folder, "--json"])
            .args(more)
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .expect("the command starts");
        let mut line = String::new();
        let stdout = child.stdout.take().expect("it is a pipe");
        BufReader::new(stdout).read_line(&mut line).expect("it can be read");
        let ready = serde_json::from_str(&line);
        let ready = ready.unwrap_or_else(|_| panic!("{folder} is not served: {line:?}"));
        Server { child, ready }
    }

    fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends it a signal and waits for its end.
    fn end(&mut self, signal: Signal) -> ExitStatus {
        let pid = Pid::from_raw(self.child.id() as i32).expect("a process id");
        kill_process(pid, signal).expect("it is a child");
        self.await_end()
    }

    /// Waits for its end.
    fn await_end(&mut self) -> ExitStatus {
        let late = Instant::now() + LIMIT;
        loop {
            if let Some(status) = self.child.try_wait().expect("it is a child") {
                return status;
            }
            assert!(Instant::now() < late, "it does not end");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Names, in order.
fn files(folder: &str) -> Vec<String> {
    let entries = std::fs::read_dir(folder).expect("the folder is there");
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn the_demo_on_card_processes_finds_what_it_finds_on_cards_in_the_program() {
    let folder = Folder::new();
    let (first, second) = (folder.join("card0"), folder.join("card1"));
    let mut servers = [Server::start(&first, &[]), Server::start(&second, &[])];
    let places = format!("{first},{second}");
    let there = json(&["demo", "--bundled", "--json", "--cards", &places]);
    let here = json(&["demo", "--bundled", "--json", "--cards", "2"]);
    assert_eq!(there["exact"], true);
    assert_eq!(there["graph"], here["graph"], "sources, levels and ranks");
    assert_eq!(there["places"], serde_json::json!([first, second]));
    assert_eq!(here["places"], serde_json::json!([]));
    for run in there["runs"].as_array().expect("a list") {
        let directions = &run["report"]["directions"];
        assert!(
            directions["card_to_card"].as_u64() > Some(0),
            "cards hand data over: {directions}"
        );
    }

    // The same by a file with one of them and one in the program, and by the environment.
    let file = folder.join("cards.list");
    let lines = format!("# one elsewhere, one here\n{first}\nprogram:1048576\n");
    std::fs::write(&file, lines).expect("the folder can be written");
    let mixed = json(&["demo", "--bundled", "--on-demand", "--json", "--cards", &file]);
    assert_eq!((&mixed["exact"], &mixed["cards"]), (&Value::Bool(true), &Value::from(2)));
    assert_eq!(mixed["card_memory_bytes"], 1_048_576, "of the smallest");
    let mut named = command(&["demo", "--bundled", "--on-demand", "--cards", "4"]);
    let named = named.env("FARSIDE_CARDS", &second).output().expect("the command starts");
    assert!(named.status.success(), "{}", text(&named.stderr));
    let account = text(&named.stdout);
    assert!(account.contains("1 cards of 64 MiB"), "{account}");
    assert!(account.contains(&format!("  at {second}\n")), "{account}");

    for (server, folder) in servers.iter_mut().zip([&first, &second]) {
        assert_eq!(server.end(Signal::TERM).code(), Some(0));
        assert_eq!(files(folder), Vec::<String>::new(), "no socket is left");
    }
}

#[test]
fn the_demo_by_messages_finds_what_it_finds_on_cards_in_the_program() {
    let folder = Folder::new();
    let (first, second) = (folder.join("card0"), folder.join("card1"));
    let _servers = [Server::start(&first, &[]), Server::start(&second, &[])];
    let places = format!("messages:{first},messages:{second}");
    let there = json(&["demo", "--bundled", "--json", "--cards", &places]);
    let here = json(&["demo", "--bundled", "--json", "--cards", "2"]);
    assert_eq!(there["exact"], true);
    assert_eq!(there["graph"], here["graph"], "sources, levels and ranks");
    // A card of each kind in one space, and the suite.
    let mixed = format!("{first},messages:{second},program:67108864");
    let mixed = json(&["demo", "--bundled", "--json", "--cards", &mixed]);
    assert_eq!(mixed["exact"], true);
    let checked = json(&["card", "check", "--json", &format!("messages:{first}")]);
    assert_eq!(checked["conforms"], true, "{checked}");
}

#[test]
fn cards_and_their_users_are_listed() {
    let folder = Folder::new();
    let place = folder.join("farside/card7");
    let mut server = Server::start(&place, &["--functions", "3", "--memory", "1M", "--pes", "4"]);
    let status = &server.ready["status"];
    assert_eq!((&server.ready["ready"], &status["card"]), (&Value::Bool(true), &Value::from(7)));
    assert_eq!(
        (&status["memory_bytes"], &status["processing_elements"]),
        (&1_048_576.into(), &4.into())
    );

    let space = Space::builder().cards_at([CardPlace::Socket(place.clone().into())]).build();
    let space = space.expect("the card is there");
    let card = space.card(0).unwrap();
    assert_eq!(space.card_memory(card).unwrap(), 1 << 20);
    let mut words = space.alloc::<u64>(1024).unwrap();
    space.kernel("farside.increment").on(card).call(Write(&mut words)).unwrap();
    let cards = json(&["cards", "--json", &place]);
    let card = &cards["cards"][0];
    assert_eq!((&card["folder"], &card["error"]), (&Value::from(place.as_str()), &Value::Null));
    assert_eq!(card["status"]["pid"], server.pid());
    let functions = card["status"]["functions"].as_array().expect("a list");
    assert_eq!(functions.len(), 3);
    let users: Vec<&Value> = functions.iter().filter(|f| !f["user"].is_null()).collect();
    assert_eq!(users.len(), 1, "{functions:?}");
    assert_eq!(users[0]["user"]["pid"], std::process::id());
    assert_eq!(users[0]["user"]["counters"]["jobs_started"], 1);

    // Watched, it says so again and again, until nobody reads it.
    let mut watch = command(&["cards", "--watch=0.05", "--json", &place]);
    let mut watch = watch.stdout(Stdio::piped()).spawn().expect("the command starts");
    let mut lines = BufReader::new(watch.stdout.take().expect("a pipe")).lines();
    let mut jobs = || {
        let line = lines.next().expect("it goes on").expect("can be read");
        let seen: Value = serde_json::from_str(&line).expect("one JSON object in a line");
        let user = &seen["cards"][0]["status"]["functions"][0]["user"];
        user["counters"]["jobs_started"].as_u64().unwrap_or_else(|| panic!("{line}"))
    };
    assert_eq!(jobs(), 1);
    let card = space.card(0).unwrap();
    space.kernel("farside.increment").on(card).call(Write(&mut words)).unwrap();
    let late = Instant::now() + LIMIT;
    while jobs() != 2 {
        assert!(Instant::now() < late, "the second job is not seen");
    }
    drop(lines);
    assert!(watch.wait().expect("it ends").success(), "whoever stops reading has seen enough");
    let watched = farside(&["cards", "--watch=nothing", &place]);
    assert_eq!(watched.status.code(), Some(2), "{}", text(&watched.stderr));

    // Found where cards are by default, and in the folder above; the table has the same.
    let mut by_default = command(&["cards", "--kernels"]);
    let by_default = by_default.env("XDG_RUNTIME_DIR", &folder.0).output().unwrap();
    for output in [by_default, farside(&["cards", "--kernels", &folder.join("farside")])] {
        assert!(output.status.success(), "{}", text(&output.stderr));
        // Lines end where a screen does.
        let table = text(&output.stdout).split_whitespace().collect::<Vec<_>>().join(" ");
        for words in [
            format!("{place}: card 7, process {}, 1 of 3 functions in use, 1 MiB", server.pid()),
            format!(" {} ", std::process::id()),
            "farside.saxpy".to_owned(),
            "demo.chase".to_owned(),
        ] {
            assert!(table.contains(&words), "{words} is missing in\n{table}");
        }
    }
    drop((words, space));
    assert_eq!(server.end(Signal::INT).code(), Some(0));
    assert!(refused(1, &["cards", &place]).is_empty(), "the table has said it");
    let gone = farside(&["cards", &place]);
    assert!(text(&gone.stdout).contains("farside card serve"), "{}", text(&gone.stdout));
}

#[test]
fn a_folder_has_one_server_and_what_a_killed_one_left_is_replaced() {
    let folder = Folder::new();
    let place = folder.join("card0");
    let mut first = Server::start(&place, &["--functions", "2"]);
    let said = refused(1, &["card", "serve", &place]);
    assert!(
        said.contains(&format!("process {}", first.pid())) && said.contains("in use"),
        "{said}"
    );
    let all = ["control.sock", "fn0.sock", "fn1.sock", "status.sock"];
    assert_eq!(files(&place), all, "the refused server took nothing away");

    // The process that listens, which is a child of the one that was started.
    let supervisor = Pid::from_raw(child_of(first.pid()) as i32).expect("a process id");
    kill_process(supervisor, Signal::KILL).expect("it runs");
    assert_eq!(first.await_end().code(), Some(1), "nothing is served any more");
    assert_eq!(files(&place), all, "a killed process leaves its sockets");
    let table = text(&farside(&["cards", &place]).stdout);
    assert!(table.contains("ended without a word"), "{table}");
    assert!(refused(1, &["demo", "--bundled", "--cards", &place]).contains("farside card serve"));

    let mut second = Server::start(&place, &["--functions", "2"]);
    assert_eq!(json(&["demo", "--bundled", "--json", "--cards", &place])["exact"], true);
    assert_eq!(second.end(Signal::TERM).code(), Some(0));
    assert_eq!(files(&place), Vec::<String>::new());

    // The card ends with the process that was started, however that ends.
    let mut third = Server::start(&place, &["--functions", "2"]);
    assert_eq!(third.end(Signal::KILL).signal(), Some(9));
    let late = Instant::now() + LIMIT;
    while !files(&place).is_empty() {
        assert!(Instant::now() < late, "the card outlives the process that served it");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The process that another has made.
fn child_of(parent: u32) -> u32 {
    let processes = std::fs::read_dir("/proc").expect("the system tells").flatten();
    let found = processes.into_iter().find_map(|entry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        let stat = std::fs::read_to_string(entry.path().join("stat")).ok()?;
        // State and parent follow the name, which is in brackets and may hold anything.
        let of: u32 = stat.rsplit(')').next()?.split_whitespace().nth(1)?.parse().ok()?;
        (of == parent).then_some(pid)
    });
    found.expect("it has a child")
}

/// A space over a card, and the process that serves it there.
fn space_at(place: &str) -> (Space, u32) {
    let builder = Space::builder().cards_at([CardPlace::Socket(place.into())]);
    let space = builder.address_space(64 << 20).build().expect("the card is there");
    let cards = json(&["cards", "--json", place]);
    let lease = cards["cards"][0]["status"]["functions"][0]["user"]["worker"].as_u64();
    (space, child_of(lease.expect("the function is in use") as u32))
}

#[test]
fn what_a_program_shares_with_a_card_is_limited_as_it_is_told() {
    let folder = Folder::new();
    let run = |card: &str, memory: &str| {
        let place = folder.join(card);
        let _server = Server::start(&place, &["--shared-memory", memory]);
        let (space, _) = space_at(&place);
        // Everything in the files that are shared counts, whoever has made it.
        let mut words = space.alloc::<u64>(4 << 20).unwrap();
        words.fill(1);
        space.kernel("farside.increment").call(Write(&mut words)).map_err(|e| e.to_string())
    };
    assert_eq!(run("card0", "128M"), Ok(4 << 20));
    let refused = run("card1", "16M").expect_err("32 MiB are more than 16");
    assert!(refused.contains("card"), "{refused}");
}

#[test]
fn kernels_have_as_much_memory_of_their_own_as_the_server_is_told() {
    let folder = Folder::new();
    let limit_of = |card: &str, memory: &str| -> u64 {
        let place = folder.join(card);
        let server = Server::start(&place, &["--own-memory", memory, "--card", "7"]);
        assert_eq!(server.ready["status"]["card"], 7, "whatever the folder's name ends in");
        let (_space, worker) = space_at(&place);
        let limits = std::fs::read_to_string(format!("/proc/{worker}/limits")).unwrap();
        let line = limits.lines().find_map(|line| line.strip_prefix("Max data size"));
        let number = line.and_then(|line| line.split_whitespace().next());
        number.and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("{limits}"))
    };
    let (little, much) = (limit_of("card0", "64M"), limit_of("card1", "192M"));
    // What else there is differs by little from process to process.
    assert!((little + (120 << 20)..little + (136 << 20)).contains(&much), "{little}, {much}");
}

#[test]
fn clients_that_come_and_go_all_the_time_cannot_flood_the_log() {
    const CLIENTS: u64 = 1500;
    let folder = Folder::new();
    let (place, log) = (folder.join("card0"), folder.join("log"));
    let file = std::fs::File::create(&log).unwrap();
    let began = Instant::now();
    let mut server = Server::start_with_log(&place, &["--functions", "1"], file.into());
    let socket = Path::new(&place).join("fn0.sock");
    for _ in 0..CLIENTS {
        let mut client = UnixStream::connect(&socket).expect("the card is there");
        client.set_read_timeout(Some(LIMIT)).unwrap();
        // No message of the protocol begins so. The answer is the end of the connection.
        client.write_all(&[0xff; 64]).unwrap();
        let _ = client.read(&mut [0; 64]);
    }
    assert_eq!(server.end(Signal::TERM).code(), Some(0));
    let text = std::fs::read_to_string(&log).unwrap();
    // What a function may have logged at once, what it may in so much time, and the server's own.
    let most = (16 << 10) + (1 << 10) * (1 + began.elapsed().as_secs()) + 1000;
    let bytes = text.len() as u64;
    assert!(bytes <= most, "{bytes} bytes of log, where {most} may be; it begins {:.2000}", text);
    assert!(text.contains("a client has come"), "{text}");
}

#[test]
fn a_served_card_keeps_to_the_specification() {
    let folder = Folder::new();
    let place = folder.join("card0");
    let _server = Server::start(&place, &["--functions", "1"]);
    let told = json(&["card", "check", &place, "--json"]);
    assert_eq!(told["conforms"], true, "{told}");
    let checks = told["checks"].as_array().expect("a list");
    assert!(checks.iter().filter(|check| check["end"] == "passed").count() > 20, "{told}");
    let output = farside(&["card", "check", &place]);
    let lines = text(&output.stdout);
    // What goes on in a second line is indented.
    let begin = lines.lines().filter(|line| !line.starts_with(' ')).count();
    assert_eq!((output.status.code(), begin), (Some(0), checks.len() + 2), "{lines}");
    assert!(refused(1, &["card", "check", &folder.join("none")]).contains("farside card serve"));
}

#[test]
fn systemd_is_told_when_the_card_is_ready() {
    let folder = Folder::new();
    let notify = folder.join("notify");
    let socket = UnixDatagram::bind(&notify).expect("the folder can be written");
    socket.set_read_timeout(Some(LIMIT)).unwrap();
    let place = folder.join("card0");
    let mut child = command(&["card", "serve", &place])
        .env("NOTIFY_SOCKET", &notify)
        .stderr(Stdio::null())
        .spawn()
        .map(|child| Server { child, ready: Value::Null })
        .expect("the command starts");
    let mut told = [0; 64];
    let bytes = socket.recv(&mut told).expect("it is told in time");
    assert_eq!(&told[..bytes], b"READY=1\n");
    assert!(Path::new(&place).join("status.sock").exists(), "ready means ready");
    assert_eq!(child.end(Signal::TERM).code(), Some(0));
}

#[test]
fn what_cannot_be_served_or_used_is_refused_with_what_to_do() {
    let folder = Folder::new();
    let place = folder.join("card0");
    let serve = |more: &[&str]| refused(2, &[&["card", "serve", &place], more].concat());
    assert!(serve(&["--functions", "99"]).contains("1 to 64 functions"));
    assert!(serve(&["--pes", "0"]).contains("processing elements"));
    assert!(serve(&["--memory", "5000"]).contains("4096"));
    assert!(serve(&["--kernels", "/nonexistent.so"]).contains("/nonexistent.so"));
    assert!(serve(&["--grace", "0"]).contains("--grace"));
    assert!(!Path::new(&place).exists(), "nothing is made before all is known to be sound");

    let file = folder.join("file");
    std::fs::write(&file, "").unwrap();
    assert!(refused(1, &["card", "serve", &file]).contains(&file));
    let long = folder.join(&"x".repeat(120));
    assert!(refused(1, &["card", "serve", &long]).contains("another folder"));

    let demo = |code, more: &[&str]| refused(code, &[&["demo", "--bundled"], more].concat());
    assert!(demo(1, &["--cards", &place]).contains(&place));
    assert!(demo(2, &["--cards", "card0"]).contains("farside card serve"));
    assert!(demo(2, &["--cards", "/nonexistent.list"]).contains("/nonexistent.list"));
    assert!(demo(2, &["--cards", &place, "--card-memory", "4M"]).contains("--memory"));
    let _small = Server::start(&place, &["--memory", "64K"]);
    assert!(demo(2, &["--cards", &place]).contains("256K"));
}
