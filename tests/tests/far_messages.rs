//! Cards that share no memory with their program: rings, DMA, doorbells and interrupts go by messages,
//! over a socket of which no descriptor is used or over TCP, or over a link to an end beside the card. The
//! results are the same.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use farside::{
    Advice, Buffer, CardId, CardPlace, Dialled, Error, KernelError, MemoryId, Read, Shared, Space,
    SpaceBuilder, Value, Write,
};
use farside_softcard::serve::{CardConfig, CardServer};
use farside_svm::{Command, Mover};
use farside_types::{CancelReason, Span};
use harness::Prng;
use harness::live::hostile::{Answer, Fate, HostileCard, Lies};
use harness::live::intruder::Intruder;
use harness::live::served::{
    CardProcess, Census, Exercise, FarHost, Program, TcpRelay, TempDir, await_status, config,
    expect_loss, place, place_by_messages, serve, serve_if_asked, test_kernels,
};
use harness::live::{Race, role, seconds, within};

const LIMIT: Duration = Duration::from_secs(120);
/// Words of a page.
const PAGE: usize = 512;

fn builder(places: impl IntoIterator<Item = CardPlace>) -> SpaceBuilder {
    Space::builder()
        .cards_at(places)
        .address_space(64 << 20)
        .grace(Duration::from_millis(50))
        .kernels(test_kernels())
}

/// Five cards of which no two are reached alike: in the program, by shared memory, by messages over a
/// socket, over TCP, and over a link.
struct Mixed {
    _folder: TempDir,
    servers: Vec<CardServer>,
    relay: TcpRelay,
    host: FarHost,
}

impl Mixed {
    fn start() -> Mixed {
        let folder = TempDir::new();
        let servers: Vec<_> = (0..4).map(|card| serve(config(&folder, card))).collect();
        let relay = TcpRelay::start(&servers[2].config().folder);
        let host = FarHost::start(folder.join("host"), &servers[3].config().folder);
        Mixed { _folder: folder, servers, relay, host }
    }

    fn places(&self) -> [CardPlace; 5] {
        let here = CardPlace::InProgram { frames: 4096 };
        let messages = place_by_messages(&self.servers[1]);
        [here, place(&self.servers[0]), messages, self.relay.place(), self.host.place()]
    }

    fn builder(&self) -> SpaceBuilder {
        builder(self.places())
    }
}

/// The cards of a [`Mixed`] that share no memory.
const SECLUDED: [CardId; 3] = [CardId(2), CardId(3), CardId(4)];

/// Whether a command is one that nobody can carry out: the host's processor, or another card, at the
/// memory of a card that shares none.
fn reaches_what_it_cannot(command: &Command) -> bool {
    use farside_svm::{Place, RingOp, TransferOp};
    let is_secluded = |memory: MemoryId| SECLUDED.iter().any(|card| card.memory() == memory);
    match command {
        Command::Transfer(mover, step) => {
            let places = match &step.op {
                TransferOp::Copy { from, to, .. } => vec![*from, *to],
                TransferOp::Fill { memory, .. } => vec![Place::Memory(*memory)],
            };
            let own = match mover {
                Mover::CardDma(card) => Some(card.memory()),
                _ => None,
            };
            places.into_iter().any(|place| match place {
                Place::Memory(memory) => {
                    is_secluded(memory) && own != Some(memory)
                        || own.is_some_and(is_secluded)
                            && own != Some(memory)
                            && memory != MemoryId::HOST
                }
                Place::Bounce(_) => false,
            })
        }
        Command::Ring(card, step) => match &step.op {
            RingOp::Map { memory, .. } => {
                let at = card.memory();
                (is_secluded(*memory) || is_secluded(at)) && at != *memory
            }
            _ => false,
        },
        Command::Host(_) => false,
    }
}

/// Commands that nobody could have carried out.
static WRONG: AtomicU64 = AtomicU64::new(0);

fn watch(command: &Command) {
    WRONG.fetch_add(u64::from(reaches_what_it_cannot(command)), SeqCst);
}

#[test]
fn every_kind_of_step_goes_right_between_every_two_kinds_of_cards() {
    within(LIMIT, "every kind of step", || {
        let cards = Mixed::start();
        WRONG.store(0, SeqCst);
        let space = cards.builder().probe(watch).build().unwrap();
        for card in SECLUDED {
            for other in space.cards().filter(|&other| other != card) {
                for (a, b) in [(card, other), (other, card)] {
                    let mut exercise = Exercise::new(&space, 80);
                    exercise.run(a, b).unwrap_or_else(|error| panic!("{a}, {b}: {error}"));
                    assert_eq!(exercise.check(), 0, "{a}, {b}");
                }
            }
        }
        space.check().unwrap();
        assert_eq!(WRONG.load(SeqCst), 0, "somebody was to reach memory that is not shared");
    });
}

/// The sum that `fill_pattern` gives.
fn fill_pattern(words: &mut [u64], seed: u64) -> u64 {
    for (word, i) in words.iter_mut().zip(0u64..) {
        *word = (i + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(seed);
    }
    words.iter().fold(0, |sum: u64, word| sum.wrapping_add(*word))
}

#[test]
fn pages_are_migrated_from_every_memory_to_every_memory() {
    within(LIMIT, "everywhere", || {
        let cards = Mixed::start();
        let space = cards.builder().build().unwrap();
        let memories: Vec<MemoryId> =
            std::iter::once(MemoryId::HOST).chain(space.cards().map(CardId::memory)).collect();
        for pages in [1, 70, 1500] {
            let mut data = space.alloc::<u64>(pages * PAGE).unwrap();
            for (index, &from) in (0..).zip(&memories) {
                for &to in &memories {
                    let sum = fill_pattern(&mut data, index);
                    space.migrate(&data, from).unwrap();
                    space.migrate(&data, to).unwrap();
                    let located = space.locate(&data).unwrap();
                    assert!(located.iter().all(|part| part.owner == Some(to)), "{located:?}");
                    if let Some(card) = to.card() {
                        let found = space.kernel("farside.sum").on(card).call(Read(&data));
                        assert_eq!(found.unwrap(), sum, "{pages} pages, {from} to {to}");
                    }
                    let found = data.iter().fold(0u64, |sum, word| sum.wrapping_add(*word));
                    assert_eq!(found, sum, "{pages} pages, {from} to {to}, on the host");
                }
            }
        }
        space.check().unwrap();
    });
}

/// A space, memory in it, and what it must hold.
struct Differential<'a> {
    space: &'a Space,
    data: Buffer<u64>,
    oracle: Vec<u64>,
    rng: Prng,
}

impl Differential<'_> {
    /// A random part of the words, and the same of pages.
    fn part(&mut self) -> std::ops::Range<usize> {
        let start = self.rng.below(self.oracle.len() as u64) as usize;
        let most = 1 << self.rng.between(0, 14);
        let end = start + 1 + self.rng.below(most) as usize;
        start..end.min(self.oracle.len())
    }

    fn card(&mut self) -> CardId {
        CardId(self.rng.below(self.space.cards().len() as u64) as u8)
    }

    fn step(&mut self) -> Result<(), Error> {
        let (part, card, value) = (self.part(), self.card(), self.rng.bits());
        let space = self.space;
        let kernel = |name: &str| space.kernel(name).on(card);
        match self.rng.below(10) {
            0 => {
                kernel("farside.fill").call((Write(&mut self.data[part.clone()]), Value(value)))?;
                self.oracle[part].fill(value);
            }
            1 | 2 => {
                kernel("farside.increment").call(Write(&mut self.data[part.clone()]))?;
                self.oracle[part].iter_mut().for_each(|word| *word = word.wrapping_add(1));
            }
            3 | 4 => {
                let sum = kernel("farside.sum").call(Read(&self.data[part.clone()]))?;
                let wanted = self.oracle[part].iter().fold(0u64, |a, &b| a.wrapping_add(b));
                assert_eq!(sum, wanted, "the sum on {card}");
            }
            5 => {
                let half = self.data.len() / 2;
                let length = part.len().min(half);
                let (from, to) = self.data.split_at_mut(half);
                kernel("farside.copy").call((Read(&from[..length]), Write(&mut to[..length])))?;
                self.oracle.copy_within(..length, half);
            }
            6 => {
                let memories = 1 + space.cards().len() as u64;
                let to = MemoryId(self.rng.below(memories) as u8);
                space.migrate(&self.data[part], to)?;
            }
            7 => {
                let on = self.rng.chance(500);
                space.advise(&self.data[part], Advice::ReadMostly(on))?;
            }
            _ => {
                let write = self.rng.chance(500);
                for index in part.step_by(97) {
                    if write {
                        (self.data[index], self.oracle[index]) = (value, value);
                    }
                    assert_eq!(self.data[index], self.oracle[index], "word {index} on the host");
                }
            }
        }
        Ok(())
    }
}

#[test]
fn random_accesses_give_what_flat_memory_gives_under_every_scheme() {
    let seed = std::env::var("FARSIDE_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(11);
    within(LIMIT, "random accesses", || {
        let cards = Mixed::start();
        for (scheme, seed) in farside::placement::NAMES.iter().zip(seed..) {
            WRONG.store(0, SeqCst);
            let space = cards.builder().placement(scheme).probe(watch).build().unwrap();
            let words = 300 * PAGE;
            let data = space.alloc::<u64>(words).unwrap();
            let (oracle, rng) = (vec![0; words], Prng::new(seed));
            let mut run = Differential { space: &space, data, oracle, rng };
            for step in 0..120 {
                run.step().unwrap_or_else(|e| panic!("{scheme} seed {seed} step {step}: {e}"));
            }
            assert!(run.data[..] == run.oracle[..], "{scheme}, FARSIDE_SEED={seed}");
            space.check().unwrap();
            assert_eq!(
                WRONG.load(SeqCst),
                0,
                "{scheme}: memory that is not shared was to be reached"
            );
        }
    });
}

/// A race on cards of all kinds, of which the last three share no memory.
fn race_of(cards: &Mixed, scheme: &str) -> Race {
    const PAGES: usize = 24;
    Race::new(Space::builder().cards_at(cards.places()), scheme, PAGES)
}

#[test]
fn nothing_is_lost_while_threads_and_five_kinds_of_cards_race() {
    within(LIMIT, "race", || {
        let cards = Mixed::start();
        for scheme in ["on-touch", "access-counter", "duplication"] {
            let race = race_of(&cards, scheme);
            let counts = race.run(seconds()).unwrap();
            assert!(counts.iter().all(|&count| count > 0), "{scheme}: {counts:?}");
            race.space().check().unwrap();
        }
    });
}

#[test]
fn a_small_card_evicts_by_its_own_page_dma() {
    within(LIMIT, "eviction", || {
        let folder = TempDir::new();
        let server = serve(CardConfig { frames: 96, ..config(&folder, 0) });
        let space = builder([place_by_messages(&server)]).build().unwrap();
        let mut data = space.alloc::<u64>(400 * PAGE).unwrap();
        let sum = fill_pattern(&mut data, 1);
        for part in data.chunks_mut(40 * PAGE) {
            space.kernel("farside.increment").call(Write(part)).unwrap();
        }
        let found = data.iter().fold(0u64, |sum, word| sum.wrapping_add(*word));
        assert_eq!(found, sum.wrapping_add(data.len() as u64));
        assert!(space.report().stats.evictions > 0);
        space.check().unwrap();
    });
}

#[test]
fn what_is_pinned_to_the_host_or_to_a_peer_is_not_mapped_from_there() {
    within(LIMIT, "pins", || {
        let cards = Mixed::start();
        WRONG.store(0, SeqCst);
        let space = cards.builder().probe(watch).build().unwrap();
        let words = space.alloc_atomic::<AtomicU64>(8 * PAGE, "pinned").unwrap();
        let mut wanted = 0u64;
        for home in [MemoryId::HOST, CardId(1).memory(), SECLUDED[0].memory()] {
            space.advise(&words, Advice::Preferred(Some(home))).unwrap();
            for card in space.cards() {
                let args = (Shared(&words[..]), Value(3u64), Value(5u64));
                space.kernel("test.affine").on(card).call(args).unwrap();
                wanted = wanted.wrapping_mul(3).wrapping_add(5);
                assert!((0..8).all(|page| words[page * PAGE].load(SeqCst) == wanted), "{home}");
            }
        }
        assert_eq!(WRONG.load(SeqCst), 0);
        space.check().unwrap();
    });
}

/// A device of the program's may write pinned memory by itself, so it must not go away.
#[test]
fn what_is_pinned_to_the_host_stays_there_and_a_card_that_cannot_map_it_is_told() {
    within(LIMIT, "pinned", || {
        let folder = TempDir::new();
        let server = serve(config(&folder, 0));
        let space = builder([place_by_messages(&server)]).build().unwrap();
        let mut data = space.alloc::<u64>(4 * PAGE).unwrap();
        data.fill(1);
        space.pin(&data, MemoryId::HOST).unwrap();
        let refused = space.kernel("farside.increment").call(Write(&mut data));
        let Err(Error::Kernel(KernelError::Fault { reason, .. })) = refused else {
            panic!("{refused:?}")
        };
        assert_eq!(reason, CancelReason::PinnedElsewhere);
        let located = space.locate(&data).unwrap();
        assert!(located.iter().all(|part| part.owner == Some(MemoryId::HOST)), "{located:?}");
        assert!(data.iter().all(|&word| word == 1));
        space.unpin(&data).unwrap();
        space.kernel("farside.increment").call(Write(&mut data)).unwrap();
        assert!(data.iter().all(|&word| word == 2));
        space.check().unwrap();
    });
}

/// Waits until a card works, or does not.
#[track_caller]
fn await_card(space: &Space, card: CardId, works: bool) {
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        let answer = space.kernel("farside.nop").on(card).call(());
        if answer.is_ok() == works {
            return;
        }
        assert!(Instant::now() < end, "{card} does not come to work: {works}; {answer:?}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_connection_that_is_cut_in_the_middle_of_a_transfer_loses_that_cards_pages_only() {
    within(LIMIT, "cut", || {
        let folder = TempDir::new();
        let servers = [serve(config(&folder, 0)), serve(config(&folder, 1))];
        let relay = TcpRelay::start(&servers[0].config().folder);
        let space = builder([relay.place(), place(&servers[1])]).build().unwrap();
        let (victim, other) = (CardId(0), CardId(1));
        let mut rng = Prng::new(5);
        let (mut lost, mut cuts) = (0, 0);
        for round in 0..12 {
            let mut exercise = Exercise::new(&space, 80);
            let made = relay.connections();
            // From the middle of a header to the middle of the last transfer of some rounds.
            let most = 1 << rng.between(4, 21);
            relay.cut_after(rng.between(1, most));
            let end = Instant::now() + Duration::from_secs(30);
            let error = loop {
                match exercise.run(victim, other) {
                    Err(error) => break error,
                    Ok(()) => assert!(Instant::now() < end, "round {round}: nobody noticed"),
                }
            };
            expect_loss(&error);
            assert!(relay.was_cut());
            cuts += 1;
            relay.mend();
            await_card(&space, victim, true);
            assert!(relay.connections() > made, "the card was not dialled again");
            lost += exercise.check();
            drop(exercise);
            let mut again = Exercise::new(&space, 80);
            again.run(victim, other).unwrap();
            assert_eq!(again.check(), 0, "after round {round}");
            space.check().unwrap();
        }
        assert!(lost > 0, "nothing was lost in {cuts} cuts: the card was never the owner");
    });
}

#[test]
fn a_card_process_that_dies_or_stands_still_harms_nothing_else() {
    const NAME: &str = "a_card_process_that_dies_or_stands_still_harms_nothing_else";
    serve_if_asked(|config| config);
    within(LIMIT, NAME, || {
        let folder = TempDir::new();
        let mut victim = CardProcess::start(NAME, &config(&folder, 0));
        let other = CardProcess::start(NAME, &config(&folder, 1));
        let places = [victim.place_by_messages(), other.place_by_messages()];
        let space = builder(places).build().unwrap();
        for round in 0..3 {
            let mut exercise = Exercise::new(&space, 80);
            exercise.run(CardId(0), CardId(1)).unwrap();
            let mut on_victim = space.alloc::<u64>(20 * PAGE).unwrap();
            on_victim.fill(7);
            space.migrate(&on_victim, CardId(0)).unwrap();
            let begun = Instant::now();
            if round == 1 {
                // It comes to itself after the driver has given it up.
                victim.freeze();
                let limit = Duration::from_millis(500);
                let late = space.kernel("farside.nop").on(CardId(0)).time_limit(limit).call(());
                late.unwrap_err();
                space.migrate(&on_victim, MemoryId::HOST).unwrap_err();
                victim.thaw();
            } else {
                victim.crash_and_restart();
            }
            await_card(&space, CardId(0), true);
            assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
            assert_eq!(exercise.check(), 0, "pages that were at home");
            drop(exercise);
            let mut again = Exercise::new(&space, 80);
            again.run(CardId(0), CardId(1)).unwrap();
            assert_eq!(again.check(), 0);
            space.check().unwrap();
        }
    });
}

#[test]
fn a_program_that_is_killed_leaves_functions_that_are_free_and_quiet() {
    const NAME: &str = "a_program_that_is_killed_leaves_functions_that_are_free_and_quiet";
    if let Some(role) = role() {
        let folders = role.split(' ').map(|folder| CardPlace::Messages(folder.into()));
        let space = builder(folders).build().unwrap();
        let mut exercise = Exercise::new(&space, 80);
        exercise.run(CardId(0), CardId(1)).unwrap();
        println!("it works");
        loop {
            exercise.run(CardId(0), CardId(1)).unwrap();
        }
    }
    within(LIMIT, NAME, || {
        let folder = TempDir::new();
        let servers = [serve(config(&folder, 0)), serve(config(&folder, 1))];
        let folders = servers.each_ref().map(|server| server.config().folder.clone());
        let role = format!("{} {}", folders[0].display(), folders[1].display());
        let mut rng = Prng::new(3);
        for _ in 0..8 {
            let mut program = Program::start(NAME, &role);
            program.await_line("it works");
            std::thread::sleep(Duration::from_micros(rng.below(50_000)));
            program.kill();
            for folder in &folders {
                await_status(folder, |status| {
                    status.functions.iter().all(|f| f.user.is_none() && f.hung_threads == 0)
                });
            }
        }
        let next = builder(servers.iter().map(place_by_messages)).build().unwrap();
        let mut exercise = Exercise::new(&next, 80);
        exercise.run(CardId(1), CardId(0)).unwrap();
        assert_eq!(exercise.check(), 0);
    });
}

/// A space on a card that reaches out, and on an honest one, which has to work all the while.
fn beside_an_intruder(floods: bool, body: impl FnOnce(&Space, &Intruder)) {
    let folder = TempDir::new();
    let servers = [serve(config(&folder, 0)), serve(config(&folder, 1))];
    let real = servers[0].config().folder.join("fn0.sock");
    let intruder = Intruder::start(folder.join("intruder.sock"), real, floods);
    let space = builder([intruder.place(), place(&servers[1])]).build().unwrap();
    body(&space, &intruder);
    let mut data = space.alloc::<u64>(40 * PAGE).unwrap();
    data.fill(1);
    space.kernel("farside.increment").on(CardId(1)).call(Write(&mut data)).unwrap();
    assert!(data.iter().all(|&word| word == 2));
}

#[test]
fn invariant_44_a_card_that_asks_for_memory_that_was_never_shared_gets_none() {
    within(LIMIT, "an intruder", || {
        beside_an_intruder(false, |space, intruder| {
            for _ in 0..6 {
                let mut exercise = Exercise::new(space, 80);
                exercise.run(CardId(0), CardId(1)).unwrap();
                assert_eq!(exercise.check(), 0);
            }
            let asked = intruder.asked();
            let granted: Vec<_> =
                asked.iter().filter(|asked| asked.granted == Some(true)).collect();
            // What was shared is granted: the asking itself works.
            assert!(granted.iter().any(|asked| asked.is_shared), "nothing is granted at all");
            assert!(granted.iter().all(|asked| asked.is_shared), "{granted:?}");
            let refused = asked.len() - granted.len();
            assert!(refused > 50, "only {refused} of {} were refused", asked.len());
            space.check().unwrap();
        });
    });
}

#[test]
fn invariant_44_interrupts_without_end_harm_that_card_alone() {
    within(LIMIT, "a flood of interrupts", || {
        beside_an_intruder(true, |space, _| {
            let end = Instant::now() + Duration::from_secs(5);
            while Instant::now() < end {
                let mut data = space.alloc::<u64>(4 * PAGE).unwrap();
                let kernel = space.kernel("farside.increment").on(CardId(0));
                // It is given up now and then, and comes back.
                let _ = kernel.time_limit(Duration::from_millis(500)).call(Write(&mut data));
                let kernel = space.kernel("farside.sum").on(CardId(1));
                let other = space.alloc::<u64>(4 * PAGE).unwrap();
                assert_eq!(kernel.call(Read(&other)).unwrap(), 0);
            }
        });
    });
}

/// Passes on so many answers of a card, then lies about one.
fn lie_after(mut left: u32, fate: Fate) -> Lies {
    let answers = Box::new(move |_: &mut Answer<'_>| {
        left = left.wrapping_sub(1);
        if left == 0 { fate } else { Fate::Pass }
    });
    Lies { answers, rings: None }
}

#[test]
fn invariant_44_messages_that_lie_are_errors_in_time() {
    const TIME: Duration = Duration::from_secs(15);
    within(2 * LIMIT, "lies", || {
        let folder = TempDir::new();
        let servers = [serve(config(&folder, 0)), serve(config(&folder, 1))];
        let real = servers[0].config().folder.join("fn0.sock");
        let huge = Fate::Sized(u32::MAX);
        let fates = [Fate::End, Fate::Silence, Fate::Half(7), Fate::Sized(3), huge, Fate::Flood];
        let cases = fates.into_iter().flat_map(|fate| [(fate, 3), (fate, 60)]);
        for (number, (fate, after)) in cases.enumerate() {
            let socket = folder.join(&format!("liar{number}.sock"));
            let liar = HostileCard::start(socket, real.clone(), move || lie_after(after, fate));
            let begun = Instant::now();
            let opened = builder([liar.place_by_messages(), place(&servers[1])])
                .tune(|config| {
                    config.limits.drain = Span::from_millis(200);
                    config.limits.copy = Span::from_millis(300);
                })
                .build();
            assert!(begun.elapsed() < TIME, "{fate:?}: {:?}", begun.elapsed());
            let Ok(space) = opened else { continue };
            for _ in 0..2 {
                let mut data = space.alloc::<u64>(100 * PAGE).unwrap();
                data.fill(1);
                let begun = Instant::now();
                let kernel = space.kernel("farside.increment").on(CardId(0));
                let _ = kernel.time_limit(Duration::from_millis(500)).call(Write(&mut data));
                assert!(begun.elapsed() < TIME, "{fate:?}, {after}: {:?}", begun.elapsed());
                let mut data = space.alloc::<u64>(4 * PAGE).unwrap();
                data.fill(1);
                space.kernel("farside.increment").on(CardId(1)).call(Write(&mut data)).unwrap();
                assert!(data.iter().all(|&word| word == 2), "{fate:?} after {after}");
            }
        }
    });
}

#[test]
fn spaces_and_connections_that_come_and_go_leave_nothing_behind() {
    const NAME: &str = "spaces_and_connections_that_come_and_go_leave_nothing_behind";
    serve_if_asked(|config| config);
    within(LIMIT, NAME, || {
        let folder = TempDir::new();
        let cards = [0, 1].map(|card| CardProcess::start(NAME, &config(&folder, card)));
        let relay = TcpRelay::start(cards[0].folder());
        let pids = [std::process::id(), cards[0].pid(), cards[1].pid()];
        let round = || {
            let space = builder([relay.place(), cards[1].place_by_messages()]).build().unwrap();
            let mut exercise = Exercise::new(&space, 80);
            exercise.run(CardId(0), CardId(1)).unwrap();
            // A connection that is lost and made again, in the same space.
            relay.cut_after(1 << 10);
            while exercise.run(CardId(0), CardId(1)).is_ok() {}
            relay.mend();
            await_card(&space, CardId(0), true);
            exercise.check();
            drop(exercise);
            drop(space);
            for card in &cards {
                card.await_status(|status| status.functions.iter().all(|f| f.user.is_none()));
            }
        };
        round();
        let before = pids.map(Census::at_rest);
        (0..6).for_each(|_| round());
        for (pid, before) in pids.into_iter().zip(before) {
            before.await_at_most(pid, "after many spaces and connections");
        }
    });
}

#[test]
fn a_card_that_cannot_be_dialled_says_why() {
    within(LIMIT, "dialling", || {
        let folder = TempDir::new();
        let server = serve(CardConfig { functions: 1, ..config(&folder, 0) });
        let relay = TcpRelay::start(&server.config().folder);
        let says = |place: CardPlace| builder([place]).build().unwrap_err().to_string();
        let in_use = builder([relay.place()]).build().unwrap();
        let busy = says(relay.place());
        assert!(busy.contains("tcp 127.0.0.1"), "{busy}");
        drop(in_use);
        let nobody = Dialled::new("lab 7", || Err(io::ErrorKind::ConnectionRefused.into()));
        let absent = says(CardPlace::Stream(nobody));
        assert!(absent.contains("lab 7"), "{absent}");
        let refused = Dialled::new("lab 8", || Err(io::Error::from_raw_os_error(libc::EACCES)));
        let refused = says(CardPlace::Stream(refused));
        assert!(refused.contains("lab 8") && refused.contains("denied"), "{refused}");
        let wrong = Dialled::new("lab 9", || Err(io::Error::other("the certificate has expired")));
        let wrong = says(CardPlace::Stream(wrong));
        assert!(wrong.contains("the certificate has expired"), "{wrong}");
        let folder = CardPlace::Messages(folder.join("nothing here"));
        let absent = says(folder);
        assert!(absent.contains("messages:") && absent.contains("nothing here"), "{absent}");
    });
}
