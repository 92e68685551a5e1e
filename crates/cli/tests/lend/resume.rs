//! A borrowed card whose connections break: the lease goes on over others, and so does the program.

use super::relay::Relay;
use super::*;

/// A lends a card; B has joined it by a way that can be cut.
struct Cut {
    a: Host,
    b: Host,
    relay: Relay,
    _card: Card,
    _folder: Folder,
}

impl Cut {
    fn start(lease: &str) -> Cut {
        let folder = Folder::new();
        let card = Card::serve(&folder);
        let [a, b] = ["a", "b"].map(|name| Host::new(&folder, name));
        let (address, _) = a.up(&card.folder, lease);
        let relay = Relay::to(address.parse().unwrap());
        b.join(&a, &relay.address, "b");
        Cut { a, b, relay, _card: card, _folder: folder }
    }
}

#[test]
fn a_program_goes_on_over_connections_that_break_again_and_again() {
    let cut = Cut::start("10");
    let mut args = PROGRAM;
    args[10] = "--iterations=300";
    let mut program = cut.b.command(&args);
    let mut program = program.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let (mut cuts, end) = (0, Instant::now() + LIMIT);
    let status = loop {
        if let Some(status) = program.try_wait().unwrap() {
            break status;
        }
        assert!(Instant::now() < end, "it does not end after {cuts} cuts");
        std::thread::sleep(Duration::from_millis(100));
        // Not before it has the card, nor for ever: the daemons' connection is cut too, which renews the
        // lease.
        if cuts < 12 && !cut.b.processes("near-end").is_empty() {
            cuts += usize::from(cut.relay.cut() > 0);
        }
    };
    let mut said = String::new();
    program.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(status.success(), "{said}");
    assert!(cuts > 3, "{cuts} cuts only");
    cut.a.await_state("free", LIMIT);
}

/// A lender whose end has died is not waited for: the program hears of it before the lease would be over.
#[test]
fn a_program_whose_lenders_end_has_died_hears_of_it_soon() {
    let cut = Cut::start("10");
    let held = cut.b.hold(&["card0"]);
    let mut program = cut.b.command(&["demo", "--bundled", "--quiet", "--iterations", "100000"]);
    let program = program.env("FARSIDE_CARDS", &held.place).stdout(Stdio::null());
    let mut program = program.stderr(Stdio::piped()).spawn().unwrap();
    await_that(LIMIT, "it is at work", || {
        let traffic = cut.a.json(&["who"])["traffic"][0].clone();
        traffic["bytes_in"].as_u64() > Some(1 << 20)
    });
    assert!(program.try_wait().unwrap().is_none(), "it is at work");
    let died = Instant::now();
    cut.a.signal("end", Signal::KILL);
    let mut said = String::new();
    program.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(!program.wait().unwrap().success());
    assert!(died.elapsed() < Duration::from_secs(8), "{:?}: {said}", died.elapsed());
    assert!(said.contains("card0 of host a"), "{said}");
}
