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
        let end = Instant::now() + LIMIT;
        while three.a.device()["waiting"] != 1 {
            assert!(Instant::now() < end, "it does not wait");
            std::thread::sleep(Duration::from_millis(20));
        }
        three.b.signal("daemon", Signal::KILL);
        drop(before);
        let mut held = waits.join().unwrap();
        assert!(three.a.device()["holder"].as_str().is_some_and(|holder| holder.contains('b')));
        // What was borrowed goes with the daemon: nothing is borrowed again.
        three.b.signal("daemon", Signal::KILL);
        assert_eq!(held.child.wait().unwrap().code(), Some(1));
    });
}
