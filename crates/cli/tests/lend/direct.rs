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
        await_that(LIMIT, "b hears of card1", || three.b.run(&["available"]).contains("card1@c"));
        Lenders { three, _card: card }
    }

    /// Runs a search on both cards and no other, and waits until both ends have said what they have counted.
    fn search(&self) {
        let Three { a, b, c, .. } = &self.three;
        let held = b.hold(&["card0@a", "card1@c"]);
        let leases = b.json(&["who"])["held"].clone();
        let places = leases.as_array().unwrap().iter().map(|lease| lease["place"].as_str());
        let places: Vec<&str> = places.map(Option::unwrap).collect();
        // So often that what goes before the lenders' ends have found each other is little.
        let program = ["demo", "--bundled", "--on-demand", "--quiet", "--iterations=400"];
        let output = b.command(&program).env("FARSIDE_CARDS", places.join(",")).output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        // An end that is killed with its lease may not come to it.
        for host in [a, c] {
            await_that(LIMIT, "its end says what it counted", || {
                host.log().contains("bytes_to_peers: ")
            });
        }
        drop(held);
        a.await_state("free", LIMIT);
        c.await_state("free", LIMIT);
    }
}

/// What the ends of a host's leases have counted under a name, as they say in its log when a program has gone.
fn counted(host: &Host, name: &str) -> u64 {
    let log = host.log();
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
    // What is left for the borrower is the graph, the result, and what the program reads between launches.
    let through = [a, c].map(|host| counted(host, "bytes_in") + counted(host, "bytes_out"));
    assert!(through.iter().sum::<u64>() < from_a + to_a, "{through:?} {from_a} {to_a}");
}

/// Where leases go without TLS the lenders' ends go to each other with it all the same.
#[test]
fn lenders_in_a_plain_network_reach_each_other_too() {
    let lenders = Lenders::start(PLAIN);
    let Three { a, .. } = &lenders.three;
    lenders.search();
    assert!(counted(a, "bytes_to_peers") > 1 << 18);
    assert!(a.log().contains("plain=true"), "{}", a.log());
}
