//! A daemon that ends while commands are with it: the next one is asked what may be asked twice.

use std::os::unix::net::UnixListener;
use std::thread::JoinHandle;

use super::*;

impl Host {
    /// Takes one command at the daemon's place and ends without an answer, as a daemon does that is being
    /// killed: its socket still lets callers in.
    fn ends_unheard(&self) -> JoinHandle<()> {
        let run = PathBuf::from(&self.home).join("run");
        std::fs::create_dir_all(&run).unwrap();
        let socket = run.join("lend.sock");
        let _ = std::fs::remove_file(&socket);
        let listener = UnixListener::bind(&socket).unwrap();
        std::thread::spawn(move || {
            let (mut caller, _) = listener.accept().unwrap();
            caller.read_exact(&mut [0]).unwrap();
            drop(listener);
        })
    }
}

#[test]
fn a_command_that_a_dying_daemon_does_not_answer_is_answered_by_the_next() {
    let folder = Folder::new();
    let host = Host::new(&folder, "a");
    let ended = host.ends_unheard();
    assert!(host.json(&["who"])["pid"].as_u64().is_some());
    ended.join().unwrap();

    // What may not be done twice is not, and says so.
    host.signal("daemon", Signal::KILL);
    let ended = host.ends_unheard();
    let said = host.refused(&["return", "card0"]);
    assert!(said.contains("ended before it answered") && said.contains("farside who"), "{said}");
    ended.join().unwrap();
}

#[test]
fn who_borrows_when_the_daemon_ends_gets_the_card_by_the_next_daemon() {
    let three = Three::start("2");
    three.b.signal("daemon", Signal::KILL);
    let ended = three.b.ends_unheard();
    let held = three.b.hold(&["card0"]);
    ended.join().unwrap();
    assert_eq!(three.a.device()["state"], "lent");
    drop(held);

    // Also one that waits already, as long as nothing was granted.
    let before = three.c.hold(&["card0", "--wait", "30"]);
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| three.b.hold(&["card0", "--wait", "60"]));
        three.a.await_waiting(1);
        three.b.signal("daemon", Signal::KILL);
        drop(before);
        let mut held = waits.join().unwrap();
        assert!(three.a.device()["holder"].as_str().is_some_and(|holder| holder.contains('b')));
        // What was borrowed goes with the daemon: nothing is borrowed again.
        three.b.signal("daemon", Signal::KILL);
        assert_eq!(held.child.wait().unwrap().code(), Some(1));
    });
}

#[test]
fn who_waits_while_the_lenders_daemon_stands_still_still_gets_the_card_in_the_end() {
    let three = Three::start("10");
    let before = three.c.hold(&["card0"]);
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| three.b.hold(&["card0", "--wait", "60"]));
        three.a.await_waiting(1);
        // Long enough that B's daemon gives the connection up and asks again by another.
        three.a.signal("daemon", Signal::STOP);
        std::thread::sleep(Duration::from_secs(7));
        three.a.signal("daemon", Signal::CONT);
        // It is refused by the old number, and asks by a new one.
        await_that(LIMIT, "it is refused by the old number", || {
            let why = |line: &Value| line["why"].as_str().unwrap_or_default().to_owned();
            three.a.audit().iter().any(|line| why(line).contains("was answered before"))
        });
        three.a.await_waiting(1);
        drop(before);
        let _held = waits.join().unwrap();
        assert_eq!(three.a.device()["state"], "lent");
        assert_eq!(three.b.json(&["who"])["held"].as_array().map(Vec::len), Some(1));
    });
}

#[test]
fn a_card_that_is_being_cleaned_is_waited_for_and_one_that_another_has_is_not() {
    let three = Three::start("10");
    for _ in 0..5 {
        drop(three.c.hold(&["card0"]));
        // Its lease ends and it is scrubbed now. There is no pause: that does not take long.
        let end = Instant::now() + LIMIT;
        while three.a.device()["state"] == "lent" {
            assert!(Instant::now() < end, "it is not given back");
        }
        three.b.run(&["borrow", "card0", "--", "true"]);
        // The command ends before its lease does.
        three.a.await_state("free", LIMIT);
    }
    let _held = three.c.hold(&["card0"]);
    let asked = Instant::now();
    let said = three.b.refused(&["borrow", "card0", "--", "true"]);
    assert!(said.contains("card0 is with"), "{said}");
    assert!(asked.elapsed() < Duration::from_secs(3), "{:?}", asked.elapsed());
}

/// Wherever on its way the grant is: the lender may have said it to a host that no longer listens.
#[test]
fn a_card_whose_borrower_is_killed_while_it_is_granted_is_free_at_once() {
    const TIMES: u32 = 40;
    let three = Three::start("30");
    let begun = Instant::now();
    drop(three.b.hold(&["card0"]));
    let whole = begun.elapsed();
    for part in 0..TIMES {
        three.a.await_state("free", LIMIT);
        let mut borrow = three.b.command(&["borrow", "card0"]);
        let mut borrow = borrow.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(whole * part / TIMES);
        borrow.kill().unwrap();
        borrow.wait().unwrap();
        // Much sooner than its lease would be over.
        let taken = three.a.await_state("free", LIMIT);
        assert!(taken < Duration::from_secs(15), "{taken:?}, killed after {part} of {TIMES}");
    }
}

#[test]
fn hosts_that_nobody_knows_are_not_asked() {
    let folder = Folder::new();
    let host = Host::new(&folder, "a");
    let said = host.refused(&["borrow", "card0@elsewhere", "--wait", "30", "--", "true"]);
    assert!(said.contains("nothing is known of host elsewhere"), "{said}");
}
