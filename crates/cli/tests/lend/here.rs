//! A card that is borrowed on its own host: programs are handed connections to the card's process, and
//! nobody is between the two.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use farside::{Space, Write};
use farside_softcard::serve::{FUNCTIONS_MAX, HolderId, read_status, socket_name};
use farside_vfio_user::unix::UnixClient;
use rustix::process::Signal;

use super::{Card, Folder, Host, LIMIT, PROGRAM, await_that, text};

/// One host that lends a card, to itself if need be.
struct One {
    a: Host,
    card: Card,
    _folder: Folder,
}

impl One {
    fn start(lease: &str) -> One {
        let folder = Folder::new();
        let card = Card::serve(&folder);
        let a = Host::new(&folder, "a");
        a.up(&card.folder, lease);
        a.await_state("free", LIMIT);
        One { a, card, _folder: folder }
    }

    /// Who has functions of the card, each by the epoch of its lease, if it is borrowed.
    fn users(&self) -> Vec<Option<HolderId>> {
        let status = read_status(Path::new(&self.card.folder)).expect("the card is served");
        let users = status.functions.iter().filter_map(|function| function.user.as_ref());
        users.map(|user| user.holder).collect()
    }

    /// Whether kernels have run on it for whoever uses it now.
    fn is_at_work(&self) -> bool {
        let status = read_status(Path::new(&self.card.folder)).expect("the card is served");
        let mut users = status.functions.iter().filter_map(|function| function.user.as_ref());
        users.any(|user| user.counters["jobs_started"] > 0)
    }

    fn await_users(&self, count: usize, limit: Duration) {
        await_that(limit, &format!("{count} users"), || self.users().len() == count);
    }

    /// A program that uses the card for as long as it is let.
    fn use_for_long(&self) -> Child {
        let this = std::env::current_exe().expect("this has a name");
        let this = this.to_str().expect("its name is a text");
        let args = ["borrow", "card0", "--", this, "--exact", USER, "--nocapture"];
        let mut command = self.a.command(&args);
        command.env("FARSIDE_TEST_CHILD", USER).stdout(Stdio::null()).stderr(Stdio::piped());
        let child = command.spawn().unwrap();
        await_that(LIMIT, "it begins", || self.is_at_work());
        child
    }
}

/// The test that is a program of this one's.
const USER: &str = "here::uses_its_card_until_it_is_lost";

#[test]
fn uses_its_card_until_it_is_lost() {
    if std::env::var("FARSIDE_TEST_CHILD").as_deref() != Ok(USER) {
        return;
    }
    let space = Space::builder().build().expect("its card is there");
    let mut words = space.alloc::<u64>(64 << 10).unwrap();
    // What is on the card alone is lost with it: nothing of it is looked at here.
    loop {
        if let Err(error) = space.kernel("farside.increment").call(Write(&mut words)) {
            eprintln!("{error}");
            std::process::exit(1);
        }
    }
}

/// What it says at its end, which must not be a good one.
fn fails(child: Child) -> String {
    let output = child.wait_with_output().expect("it ends");
    assert!(!output.status.success());
    text(&output.stderr)
}

#[test]
fn a_program_uses_a_card_of_its_own_host_with_nobody_between() {
    let one = One::start("10");
    one.a.run(&PROGRAM);
    one.a.await_state("free", LIMIT);
    let held = one.a.hold(&["card0"]);
    assert!(one.a.processes("near-end").is_empty(), "there is an end of a link");
    let mut demo = one.a.command(&["demo", "--bundled", "--quiet"]);
    let output = demo.env("FARSIDE_CARDS", &held.place).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    drop(held);
    one.a.await_state("free", LIMIT);
    one.await_users(0, LIMIT);
}

#[test]
fn a_program_that_was_stopped_past_its_lease_harms_nobody_and_is_told() {
    let one = One::start("10");
    let stopped = one.use_for_long();
    let first = one.users();
    one.a.signal(USER, Signal::STOP);
    one.a.run(&["recall", "card0", "--within", "1"]);
    // It is stopped and has the card's memory mapped: nobody waits for it.
    one.a.await_state("free", Duration::from_secs(20));
    one.await_users(0, LIMIT);
    let held = one.a.hold(&["card0"]);
    one.a.signal(USER, Signal::CONT);
    let mut next = one.a.command(&["demo", "--bundled", "--quiet", "--iterations=3"]);
    let next = next.env("FARSIDE_CARDS", &held.place).output().unwrap();
    assert!(next.status.success(), "{}", text(&next.stderr));
    // It sees first that its card is lost, and why, or still that it was wanted back.
    let why = fails(stopped);
    assert!(why.contains("over") || why.contains("card 0 is gone"), "{why}");
    assert!(!one.users().contains(&first[0]), "{first:?}");
}

#[test]
fn the_lease_of_a_daemon_that_was_killed_ends_at_its_time_at_the_card_too() {
    let one = One::start("6");
    let program = one.use_for_long();
    let started = Instant::now();
    one.a.signal("daemon", Signal::KILL);
    one.await_users(0, Duration::from_secs(20));
    assert!(started.elapsed() > Duration::from_secs(1), "it ended before its time");
    // It sees first that its card is lost, or why.
    let why = fails(program);
    let is_over = why.contains("lease") && why.contains("over");
    assert!(is_over || why.contains("card 0 is gone"), "{why}");
    // The end of the lease is gone as well: another daemon lends the card again.
    one.a.await_state("free", LIMIT);
    one.a.run(&PROGRAM);
}

#[test]
fn a_program_that_is_killed_frees_its_card_at_once() {
    let one = One::start("30");
    let mut program = one.use_for_long();
    let started = Instant::now();
    one.a.signal(USER, Signal::KILL);
    one.a.await_state("free", LIMIT);
    assert!(started.elapsed() < Duration::from_secs(15), "{:?}", started.elapsed());
    assert!(!program.wait().unwrap().success());
}

#[test]
fn a_lenders_end_that_is_killed_leaves_no_function_behind() {
    let one = One::start("3");
    let program = one.use_for_long();
    one.a.signal("end", Signal::KILL);
    // The program goes on until its lease is over; then the card takes the function back.
    one.a.run(&["recall", "card0", "--within", "1"]);
    one.a.await_state("free", Duration::from_secs(20));
    one.await_users(0, LIMIT);
    fails(program);
}

#[test]
fn programs_without_a_function_are_told_so() {
    let one = One::start("10");
    let held = one.a.hold(&["card0"]);
    let own: Vec<_> = (0..FUNCTIONS_MAX.into())
        .filter_map(|function| {
            let socket = Path::new(&one.card.folder).join(socket_name(function));
            UnixClient::connect(socket, LIMIT).ok()
        })
        .collect();
    one.await_users(own.len(), LIMIT);
    let mut demo: Command = one.a.command(&["demo", "--bundled", "--quiet"]);
    let output = demo.env("FARSIDE_CARDS", &held.place).output().unwrap();
    assert!(!output.status.success());
    let why = text(&output.stderr);
    assert!(why.contains("in use"), "{why}");
}
