//! What the machine refuses a daemon: room on its disk, a folder, a port.

use std::net::TcpListener;

use super::*;

/// A daemon with a disk of its own.
struct OnDisk {
    daemon: Child,
    /// Where others find the disk.
    disk: PathBuf,
}

impl Drop for OnDisk {
    fn drop(&mut self) {
        let _ = self.daemon.kill();
        let _ = self.daemon.wait();
    }
}

impl Host {
    /// Starts its daemon with a disk of its own for what lasts, of so many bytes; its processes see it, others
    /// do not.
    fn start_on_a_small_disk(&self, bytes: u32) -> OnDisk {
        let state = PathBuf::from(&self.home).join("state");
        std::fs::create_dir_all(&state).unwrap();
        let script = "mount -t tmpfs -o size=$1,mode=700 none \"$2\" && exec \"$3\" lend daemon";
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--mount", "sh", "-c", script, "sh"]);
        command.arg(bytes.to_string()).arg(&state).arg(env!("CARGO_BIN_EXE_farside"));
        command.env(HOME, &self.home).stdin(Stdio::null()).stderr(Stdio::null());
        let daemon = command.spawn().expect("util-linux is there");
        let end = Instant::now() + LIMIT;
        while !PathBuf::from(&self.home).join("run/lend.sock").exists() {
            assert!(Instant::now() < end, "no daemon in a namespace of its own");
            std::thread::sleep(Duration::from_millis(10));
        }
        let disk = PathBuf::from(format!("/proc/{}/root{}", daemon.id(), state.display()));
        OnDisk { daemon, disk }
    }
}

#[test]
fn on_a_full_disk_nothing_is_lent_what_is_lent_ends_well_and_room_is_found_again() {
    let folder = Folder::new();
    let card = Card::serve(&folder);
    let [a, b, c] = ["a", "b", "c"].map(|name| Host::new(&folder, name));
    let started = a.start_on_a_small_disk(256 << 10);
    let (address, _) = a.up(&card.folder, "10");
    b.join(&a, &address, "b");
    c.join(&a, &address, "c");
    let held = b.hold(&["card0"]);
    let first = a.device()["epoch"].as_u64().unwrap();

    let mut filler = std::fs::File::create(started.disk.join("filler")).unwrap();
    while filler.write_all(&[0; 4096]).is_ok() {}
    // Records still find room in the last page of their file; then they do not.
    drop(held);
    a.await_state("free", LIMIT);
    let end = Instant::now() + LIMIT;
    let mut last = first;
    let why = loop {
        let output = b.output(&["borrow", "card0", "--", "true"]);
        if !output.status.success() {
            break text(&output.stderr);
        }
        assert!(Instant::now() < end, "the disk does not get full");
        a.await_state("free", LIMIT);
    };
    assert!(why.contains("cannot write its ledger"), "{why}");
    // It is the same for all, and the card stays free.
    let why = c.refused(&["borrow", "card0", "--", "true"]);
    assert!(why.contains("cannot write its ledger") && why.contains("disk"), "{why}");
    a.await_state("free", LIMIT);

    drop(filler);
    std::fs::remove_file(started.disk.join("filler")).unwrap();
    // Its end is written in full again; epochs go on above all that were taken.
    for _ in 0..2 {
        let held = c.hold(&["card0", "--wait", "10"]);
        let epoch = a.device()["epoch"].as_u64().unwrap();
        assert!(epoch > last, "{epoch} after {last}");
        last = epoch;
        drop(held);
        a.await_state("free", LIMIT);
    }
}

#[test]
fn a_lease_that_is_held_when_the_disk_gets_full_goes_on_and_ends_properly() {
    let folder = Folder::new();
    let card = Card::serve(&folder);
    let [a, b] = ["a", "b"].map(|name| Host::new(&folder, name));
    let started = a.start_on_a_small_disk(256 << 10);
    let (address, _) = a.up(&card.folder, "2");
    b.join(&a, &address, "b");
    let held = b.hold(&["card0"]);
    let mut filler = std::fs::File::create(started.disk.join("filler")).unwrap();
    while filler.write_all(&[0; 4096]).is_ok() {}
    // Renewals are not written, so that it goes on over several of its terms.
    std::thread::sleep(Duration::from_secs(5));
    assert_eq!(a.device()["state"], "lent");
    let demo = ["demo", "--bundled", "--quiet", "--on-demand", "--iterations", "1"];
    let output = b.command(&demo).env("FARSIDE_CARDS", &held.place).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    drop(held);
    a.await_state("free", LIMIT);
}

#[test]
fn what_the_machine_does_not_give_is_said_with_its_name() {
    let folder = Folder::new();
    let card = Card::serve(&folder);
    let a = Host::new(&folder, "a");
    a.run(&["who"]);
    let why = a.refused(&["lend", "daemon"]);
    assert!(why.contains("serves this host already") && why.contains("lend.lock"), "{why}");

    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let why = a.refused(&["lend", "up", "--listen", &address, "--device", &card.folder]);
    assert!(why.contains(&address) && why.contains("--listen"), "{why}");
    let up = ["lend", "up", "--listen", "127.0.0.1:0", "--device", &card.folder];
    let why = a.refused(&[&up[..], &["--metrics", &address]].concat());
    assert!(why.contains(&address) && why.contains("metrics"), "{why}");
    // It listens where it could, and says so.
    a.run(&["borrow", "card0", "--", "true"]);

    let file = folder.join("file");
    std::fs::write(&file, "").unwrap();
    let none = Host { home: file.clone() };
    let why = none.refused(&["who"]);
    assert!(why.contains(&file), "{why}");
}
