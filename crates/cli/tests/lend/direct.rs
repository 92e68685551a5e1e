//! One program with cards of two lenders: pages between them go from lender to lender.

use super::govern::PLAIN;
use super::*;

/// A and C lend a card each; B has joined A, and so has C.
struct Lenders {
    three: Three,
    _card: Card,
}

impl Lenders {
    fn start(configuration: &str) -> Lenders {
        let folder = Folder::new();
        for host in ["a", "b", "c"] {
            Host::new(&folder, host).configure(configuration);
        }
        let three = Three::start_in(folder, "10");
        let card = Card::serve_as(&three.folder, "card1");
        let listen = ["--listen", "127.0.0.1:0"];
        let lend = ["lend", "up", listen[0], listen[1], "--device", &card.folder, "--lease", "10"];
        three.c.json(&lend);
        let end = Instant::now() + LIMIT;
        while !three.b.run(&["available"]).contains("card1@c") {
            assert!(Instant::now() < end, "b does not hear of card1");
            std::thread::sleep(Duration::from_millis(20));
        }
        Lenders { three, _card: card }
    }

    /// Runs a search on both cards and no other.
    fn search(&self) {
        let program =
            [env!("CARGO_BIN_EXE_farside"), "demo", "--bundled", "--on-demand", "--quiet"];
        let borrow = ["borrow", "card0@a", "card1@c", "--"];
        self.three.b.run(&[&borrow[..], &program, &["--iterations=100"]].concat());
        self.three.a.await_state("free", LIMIT);
        self.three.c.await_state("free", LIMIT);
    }
}

/// What the ends of a host's leases have counted under a name, as they say in its log when a program has gone.
fn counted(host: &Host, name: &str) -> u64 {
    let log = std::fs::read_to_string(PathBuf::from(&host.home).join("run/lend.log")).unwrap();
    let name = format!("{name}: ");
    let counts = log.split(&name).skip(1);
    counts.map(|rest| rest.split([',', ' ']).next().unwrap().parse::<u64>().unwrap()).sum()
}

#[test]
fn pages_go_from_lender_to_lender_and_not_through_the_borrower() {
    let lenders = Lenders::start("version = 1\n");
    lenders.search();
    let Three { a, c, .. } = &lenders.three;
    let [from_a, to_a] = ["bytes_to_peers", "bytes_from_peers"].map(|name| counted(a, name));
    assert!(from_a > 1 << 18 && to_a > 1 << 18, "{from_a} {to_a}");
    assert_eq!((counted(c, "bytes_from_peers"), counted(c, "bytes_to_peers")), (from_a, to_a));
    // What is left for the borrower is the graph and the result.
    let through = [a, c].map(|host| counted(host, "bytes_in") + counted(host, "bytes_out"));
    assert!(through.iter().sum::<u64>() < (from_a + to_a) / 2, "{through:?} {from_a} {to_a}");
}

/// Where leases go without TLS the lenders' ends go to each other with it all the same.
#[test]
fn lenders_in_a_plain_network_reach_each_other_too() {
    let lenders = Lenders::start(PLAIN);
    let Three { a, .. } = &lenders.three;
    lenders.search();
    assert!(counted(a, "bytes_to_peers") > 1 << 18);
    let who = std::fs::read_to_string(PathBuf::from(&a.home).join("run/lend.log")).unwrap();
    assert!(who.contains("plain=true"), "{who}");
}
