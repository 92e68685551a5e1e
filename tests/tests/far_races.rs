//! The program's threads and kernels on cards elsewhere write to the same pages while these move
//! about; nothing is lost.
//!
//! The negative controls run the same race with one protecting step of the driver left out and
//! require that the loss is seen.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use farside::{Advice, AgentId, Buffer, CardId, CardPlace, MemoryId, Shared, Space, Value};
use farside_live::serve::CardConfig;
use farside_svm::Mutation;
use farside_tests::Prng;
use farside_tests::live::served::{
    CardProcess, TempDir, config, place, serve, serve_if_asked, test_kernels,
};
use farside_tests::live::{must_be_caught, seconds, within};

const LIMIT: Duration = Duration::from_secs(60);
/// Words of a page.
const PAGE: usize = 512;
/// Threads of the program that write.
const THREADS: usize = 2;

fn below(rng: &mut Prng, end: usize) -> usize {
    rng.below(end as u64) as usize
}

/// Frames of a card that has room for half of the pages, so that evictions happen all the time.
fn narrow(pages: usize) -> impl FnOnce(CardConfig) -> CardConfig {
    move |config| CardConfig { frames: pages as u32 / 2, ..config }
}

/// The pages, who moves them, and when to stop.
struct Race {
    space: Space,
    words: Buffer<AtomicU64>,
    pages: usize,
    stop: AtomicBool,
}

impl Race {
    fn new(places: impl IntoIterator<Item = CardPlace>, scheme: &str, pages: usize) -> Race {
        let space = Space::builder()
            .cards_at(places)
            .address_space(16 << 20)
            .placement(scheme)
            .kernels(test_kernels())
            // As few pages as a race has, card DMA moves too.
            .tune(|config| config.capabilities.dma_from_pages = 4)
            .build()
            .unwrap();
        let words = space.alloc_atomic(pages * PAGE, "fought over").unwrap();
        Race { space, words, pages, stop: AtomicBool::new(false) }
    }

    /// A thread of the program: increments the first word of a page, which all share, and its own
    /// word beside it, until told to stop. Gives how often.
    fn thread(&self, agent: usize) -> u64 {
        let mut rng = Prng::new(agent as u64 + 77);
        let mut count = 0;
        while !self.stop.load(SeqCst) {
            let page = below(&mut rng, self.pages) * PAGE;
            self.words[page].fetch_add(1, SeqCst);
            // Load and store: no other agent touches this word, only its page.
            let own = &self.words[page + agent];
            own.store(own.load(SeqCst) + 1, SeqCst);
            count += 1;
        }
        count
    }

    /// The same, by a kernel.
    fn kernel(&self, card: CardId, agent: usize) -> u64 {
        let (mut count, mut seed) = (0, agent as u64);
        while !self.stop.load(SeqCst) {
            seed += 1;
            let args = (Shared(&self.words[..]), Value(agent as u64), Value(100u64), Value(seed));
            count += self.space.kernel("test.race").on(card).call(args).unwrap();
        }
        count
    }

    /// Moves pages about at random until told to stop.
    fn shake(&self, seed: u64) {
        let mut rng = Prng::new(seed);
        let cards = self.space.cards().len();
        while !self.stop.load(SeqCst) {
            let from = below(&mut rng, self.pages);
            let to = from + 1 + below(&mut rng, (self.pages - from).min(12));
            let part = &self.words[from * PAGE..to * PAGE];
            let memory = MemoryId(below(&mut rng, cards + 1) as u8);
            // A full card refuses: that is fine, as long as it says so.
            let _ = match below(&mut rng, 8) {
                0..=3 => self.space.migrate(part, memory).map(drop),
                4 => self.space.prefetch(part, memory).map(drop),
                5 => self.space.advise(part, Advice::ReadMostly(below(&mut rng, 2) == 0)),
                6 => {
                    let agent = AgentId(below(&mut rng, cards + 1) as u8);
                    self.space.advise(part, Advice::AccessedBy(agent, below(&mut rng, 2) == 0))
                }
                _ => self.space.trim(),
            };
        }
    }

    /// Runs the threads, a kernel on every card and the shaker for a while; says what is missing
    /// afterwards, or how often each agent incremented.
    fn run(&self, time: Duration) -> Result<Vec<u64>, String> {
        let cards = self.space.cards().len();
        let counts: Vec<u64> = std::thread::scope(|s| {
            let mut agents = Vec::new();
            for agent in 1..=THREADS {
                agents.push(s.spawn(move || self.thread(agent)));
            }
            for card in 0..cards {
                let agent = 1 + THREADS + card;
                agents.push(s.spawn(move || self.kernel(CardId(card as u8), agent)));
            }
            let shaker = s.spawn(|| self.shake(5));
            std::thread::sleep(time);
            self.stop.store(true, SeqCst);
            shaker.join().unwrap();
            agents.into_iter().map(|agent| agent.join().unwrap()).collect()
        });
        let sum = |slot: usize| -> u64 {
            (0..self.pages).map(|page| self.words[page * PAGE + slot].load(SeqCst)).sum()
        };
        for (agent, &count) in counts.iter().enumerate() {
            let found = sum(agent + 1);
            if found != count {
                return Err(format!("agent {agent} counted {count}, its words say {found}"));
            }
        }
        let (all, found) = (counts.iter().sum::<u64>(), sum(0));
        if found != all {
            return Err(format!("all agents together counted {all}, the words say {found}"));
        }
        Ok(counts)
    }
}

/// Races on two cards that are processes.
fn race(test: &str, scheme: &str) {
    const PAGES: usize = 48;
    serve_if_asked(narrow(PAGES));
    within(LIMIT, test, || {
        let folder = TempDir::new();
        let cards: Vec<_> =
            (0..2).map(|card| CardProcess::start(test, &config(&folder, card))).collect();
        let race = Race::new(cards.iter().map(CardProcess::place), scheme, PAGES);
        let counts = race.run(seconds()).unwrap();
        assert!(counts.iter().all(|&count| count > 0), "somebody starved: {counts:?}");
        let stats = race.space.report().stats;
        assert!(stats.migrations > 100, "the pages did not move: {stats:?}");
        race.space.check().unwrap();
    });
}

#[test]
fn nothing_is_lost_between_the_host_and_two_card_processes() {
    race("nothing_is_lost_between_the_host_and_two_card_processes", "on-touch");
}

#[test]
fn nothing_is_lost_while_pages_are_duplicated_on_card_processes() {
    race("nothing_is_lost_while_pages_are_duplicated_on_card_processes", "duplication");
}

#[test]
fn nothing_is_lost_while_cards_map_pages_over_the_bus() {
    race("nothing_is_lost_while_cards_map_pages_over_the_bus", "access-counter");
}

#[test]
fn nothing_is_lost_on_card_processes_under_first_touch() {
    race("nothing_is_lost_on_card_processes_under_first_touch", "first-touch");
}

#[test]
fn nothing_is_lost_between_a_card_in_the_program_and_one_elsewhere() {
    within(LIMIT, "mixed", || {
        let folder = TempDir::new();
        let server = serve(narrow(48)(config(&folder, 0)));
        let race = Race::new([CardPlace::InProgram { frames: 24 }, place(&server)], "on-touch", 48);
        race.run(seconds()).unwrap();
        race.space.check().unwrap();
    });
}

/// Runs the race in a child with a rule broken.
fn control(test: &str, mutation: Mutation) {
    must_be_caught(test, || {
        let folder = TempDir::new();
        let servers = [0, 1].map(|card| serve(narrow(12)(config(&folder, card))));
        (0..20).try_for_each(|_| {
            let race = Race::new(servers.iter().map(place), "on-touch", 12);
            race.space.mutate(mutation).map_err(|error| error.to_string())?;
            race.run(Duration::from_millis(400)).map(drop)
        })
    });
}

#[test]
fn control_copying_to_a_card_elsewhere_before_the_cpu_is_stopped_loses_writes() {
    control(
        "control_copying_to_a_card_elsewhere_before_the_cpu_is_stopped_loses_writes",
        Mutation::CopyBeforeUnmap,
    );
}

#[test]
fn control_not_waiting_for_the_accesses_of_a_card_elsewhere_loses_writes() {
    control(
        "control_not_waiting_for_the_accesses_of_a_card_elsewhere_loses_writes",
        Mutation::SkipDrain,
    );
}

#[test]
fn control_mapping_on_a_card_elsewhere_before_the_copy_is_done_loses_writes() {
    control(
        "control_mapping_on_a_card_elsewhere_before_the_copy_is_done_loses_writes",
        Mutation::MapBeforeCopy,
    );
}
