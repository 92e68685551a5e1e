//! What the administrators of hosts say, and what becomes of it.

use std::net::{SocketAddr, TcpListener};
use std::sync::mpsc;

use super::*;

impl Host {
    /// Writes the configuration of this host.
    fn configure(&self, text: &str) {
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
                let Ok(count) = near.peek(&mut first) else { return };
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

const PLAIN: &str = "version = 1\nplain-networks = [\"127.0.0.0/8\"]\n";

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
    let log = folder.0.join("a/run/lend.log");
    let end = Instant::now() + LIMIT;
    let told = || std::fs::read_to_string(&log).unwrap().contains("stays as it was");
    while !told() {
        assert!(Instant::now() < end, "it is not said");
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(a.device()["state"], "free");
}
