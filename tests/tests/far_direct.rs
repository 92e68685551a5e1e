//! Two cards that different hosts lend: pages go from the one to the other by a direct link of their lenders'
//! ends, and not through the program; where there is no such link, or it fails, through the program.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

use farside::{CardId, MemoryId, Read, Space, Write};
use farside_live::far::FarEndReport;
use farside_softcard::serve::CardServer;
use harness::live::served::{
    CardProcess, Exercise, FarHost, Neighbourhood, TempDir, await_status, builder_at, config,
    place, serve, serve_if_asked,
};
use harness::live::{Race, seconds, within};

const LIMIT: Duration = Duration::from_secs(120);
/// Words of a page.
const PAGE: usize = 512;
const PAGE_BYTES: u64 = 4096;

const A: CardId = CardId(0);
const B: CardId = CardId(1);

/// Two hosts with a card each.
struct Hosts {
    neighbours: Arc<Neighbourhood>,
    hosts: [FarHost; 2],
    cards: [CardServer; 2],
    _folder: TempDir,
}

impl Hosts {
    fn new() -> Hosts {
        let folder = TempDir::new();
        let cards = [0, 1].map(|card| serve(config(&folder, card)));
        let neighbours = Arc::new(Neighbourhood::default());
        let host = |at: usize| {
            let card = &cards[at].config().folder;
            FarHost::among(&neighbours, folder.join(["a", "b"][at]), card)
        };
        let hosts = [0, 1].map(host);
        Hosts { neighbours, hosts, cards, _folder: folder }
    }

    fn space(&self) -> Space {
        builder_at([self.hosts[0].place(), self.hosts[1].place()]).build().unwrap()
    }

    /// Waits until so many direct links were made.
    fn await_links(&self, count: u64) {
        let end = Instant::now() + Duration::from_secs(20);
        while self.neighbours.made() < count {
            assert!(Instant::now() < end, "{} of {count} direct links", self.neighbours.made());
            std::thread::sleep(Duration::from_millis(5));
        }
        // The last is made; that it works is said a little later.
        std::thread::sleep(Duration::from_millis(100));
    }

    /// What went through the ends once the program has gone.
    fn reports(&self, space: Space) -> [FarEndReport; 2] {
        drop(space);
        for card in &self.cards {
            await_status(&card.config().folder, |s| s.functions.iter().all(|f| f.user.is_none()));
        }
        [0, 1].map(|at| {
            let ended = self.hosts[at].ended();
            let [(report, None)] = &ended[..] else { panic!("one program, in order: {ended:?}") };
            *report
        })
    }
}

fn filled(space: &Space, pages: usize) -> farside::Buffer<u64> {
    let mut data = space.alloc::<u64>(pages * PAGE).unwrap();
    for (word, value) in data.iter_mut().zip(7u64..) {
        *word = value.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
    data
}

#[test]
fn pages_go_from_card_to_card_and_not_through_the_program() {
    within(LIMIT, "direct", || {
        let hosts = Hosts::new();
        let space = hosts.space();
        hosts.await_links(2);
        let mut data = filled(&space, 1000);
        let wanted =
            data.iter().fold(0u64, |sum, &word| sum.wrapping_add(word)) + 1000 * PAGE as u64;
        space.kernel("farside.increment").on(A).call(Write(&mut data)).unwrap();
        space.migrate(&data, B).unwrap();
        let sum = space.kernel("farside.sum").on(B).call(Read(&data)).unwrap();
        assert_eq!(sum, wanted);
        for to in [A, B, A] {
            space.migrate(&data, to).unwrap();
            space.kernel("farside.increment").on(to).call(Write(&mut data)).unwrap();
        }
        let sum = data.iter().fold(0u64, |sum, &word| sum.wrapping_add(word));
        assert_eq!(sum, wanted + 3 * 1000 * PAGE as u64);
        space.check().unwrap();
        drop(data);
        let [a, b] = hosts.reports(space);
        let whole = 1000 * PAGE_BYTES;
        assert_eq!((a.bytes_to_peers, b.bytes_from_peers), (2 * whole, 2 * whole), "{a:?} {b:?}");
        assert_eq!((b.bytes_to_peers, a.bytes_from_peers), (2 * whole, 2 * whole));
        // In once, and out once at the end.
        assert!(a.bytes_in + b.bytes_in < whole + whole / 10, "{a:?} {b:?}");
        assert!(a.bytes_out + b.bytes_out < whole + whole / 10, "{a:?} {b:?}");
    });
}

/// The control of the one before: what is counted there is what the link does.
#[test]
fn hosts_that_do_not_reach_each_other_send_pages_through_the_program() {
    within(LIMIT, "apart", || {
        let hosts = Hosts::new();
        hosts.neighbours.set_apart(true);
        let space = hosts.space();
        std::thread::sleep(Duration::from_millis(100));
        let data = filled(&space, 300);
        for to in [A, B, A, B] {
            space.migrate(&data, to).unwrap();
            let located = space.locate(&data).unwrap();
            assert!(located.iter().all(|part| part.owner == Some(to.memory())), "{located:?}");
        }
        let wanted = (7u64..).map(|value| value.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        assert!(data.iter().zip(wanted).all(|(&word, wanted)| word == wanted));
        space.check().unwrap();
        drop(data);
        let [a, b] = hosts.reports(space);
        assert_eq!((a.bytes_to_peers, b.bytes_from_peers), (0, 0));
        assert!(a.bytes_out >= 2 * 300 * PAGE_BYTES, "{a:?} {b:?}");
        assert_eq!(hosts.neighbours.made(), 0);
    });
}

#[test]
fn direct_links_that_are_cut_all_the_time_lose_nothing_and_are_made_again() {
    within(LIMIT, "cuts", || {
        let hosts = Hosts::new();
        let over = AtomicBool::new(false);
        let builder = Space::builder().cards_at([hosts.hosts[0].place(), hosts.hosts[1].place()]);
        let race = Race::new(builder, "on-touch", 24);
        hosts.await_links(2);
        let counts = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(SeqCst) {
                    hosts.neighbours.cut();
                    std::thread::sleep(Duration::from_millis(37));
                }
            });
            let counts = race.run(seconds());
            over.store(true, SeqCst);
            counts.unwrap()
        });
        assert!(counts.iter().all(|&count| count > 0), "{counts:?}");
        race.space().check().unwrap();
        hosts.await_links(3);
    });
}

#[test]
fn every_kind_of_step_goes_right_between_cards_with_direct_links() {
    within(LIMIT, "every kind of step", || {
        let hosts = Hosts::new();
        let space = hosts.space();
        hosts.await_links(2);
        for (a, b) in [(A, B), (B, A)] {
            let mut exercise = Exercise::new(&space, 80);
            exercise.run(a, b).unwrap_or_else(|error| panic!("{a}, {b}: {error}"));
            assert_eq!(exercise.check(), 0, "{a}, {b}");
        }
        space.check().unwrap();
    });
}

/// A card that is gone takes its pages with it and no others, whoever was reading them; it is back with links.
#[test]
fn a_card_that_dies_while_another_reads_it_harms_nothing_else() {
    const NAME: &str = "a_card_that_dies_while_another_reads_it_harms_nothing_else";
    serve_if_asked(|config| config);
    within(LIMIT, NAME, || {
        let folder = TempDir::new();
        let mut victim = CardProcess::start(NAME, &config(&folder, 0));
        let other = serve(config(&folder, 1));
        let neighbours = Arc::new(Neighbourhood::default());
        let a = FarHost::among(&neighbours, folder.join("a"), victim.folder());
        let b = FarHost::among(&neighbours, folder.join("b"), &other.config().folder);
        let space = builder_at([a.place(), b.place()]).build().unwrap();
        for _ in 0..3 {
            let at_home = filled(&space, 50);
            space.migrate(&at_home, B).unwrap();
            let moving = filled(&space, 2000);
            space.migrate(&moving, A).unwrap();
            std::thread::scope(|scope| {
                // It may be done before, or lose its pages.
                scope.spawn(|| space.migrate(&moving, B).is_ok());
                std::thread::sleep(Duration::from_millis(3));
                victim.crash_and_restart();
            });
            let wanted = (7u64..).map(|value| value.wrapping_mul(0x9e37_79b9_7f4a_7c15));
            assert!(at_home.iter().zip(wanted).all(|(&word, wanted)| word == wanted));
            let end = Instant::now() + Duration::from_secs(20);
            while space.kernel("farside.nop").on(A).call(()).is_err() {
                assert!(Instant::now() < end, "it does not come back");
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        let before = neighbours.made();
        let fresh = filled(&space, 100);
        let end = Instant::now() + Duration::from_secs(20);
        while neighbours.made() == before && before < 8 {
            assert!(Instant::now() < end, "no direct link any more");
            std::thread::sleep(Duration::from_millis(10));
        }
        for to in [A, B, A] {
            space.migrate(&fresh, to).unwrap();
        }
        space.migrate(&fresh, MemoryId::HOST).unwrap();
        let wanted = (7u64..).map(|value| value.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        assert!(fresh.iter().zip(wanted).all(|(&word, wanted)| word == wanted));
        space.check().unwrap();
    });
}

/// A direct link is between cards that both have one: one of this machine's has no part in it.
#[test]
fn a_card_of_this_machine_beside_two_with_a_direct_link_goes_as_ever() {
    within(LIMIT, "three", || {
        let hosts = Hosts::new();
        let folder = TempDir::new();
        let near = serve(config(&folder, 0));
        let places = [hosts.hosts[0].place(), hosts.hosts[1].place(), place(&near)];
        let space = builder_at(places).build().unwrap();
        hosts.await_links(2);
        let data = filled(&space, 200);
        for to in [A, CardId(2), B, A, CardId(2), A, B] {
            space.migrate(&data, to).unwrap();
        }
        let wanted = (7u64..).map(|value| value.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        assert!(data.iter().zip(wanted).all(|(&word, wanted)| word == wanted));
        space.check().unwrap();
    });
}
