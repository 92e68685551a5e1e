//! Programs on cards that are not in the program: the same results by way of rings.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use farside::{
    CardId, CardPlace, Error, KernelError, LiveError, MemoryId, PageState, Read, Shared, Space,
    SpaceBuilder, Value, Write,
};
use farside_softcard::serve::{CardConfig, CardServer};
use farside_types::CancelReason;
use harness::live::served::{TempDir, await_status, config, place, serve, test_kernels};
use harness::live::within;

const LIMIT: Duration = Duration::from_secs(30);
/// Words of a page.
const PAGE: usize = 512;

fn builder(places: impl IntoIterator<Item = CardPlace>) -> SpaceBuilder {
    Space::builder().cards_at(places).address_space(64 << 20).kernels(test_kernels())
}

/// Cards of a folder, and a space over them.
fn space_on(folder: &TempDir, cards: u32) -> (Vec<CardServer>, Space) {
    let servers: Vec<_> = (0..cards).map(|card| serve(config(folder, card))).collect();
    let space = builder(servers.iter().map(place)).build().unwrap();
    (servers, space)
}

fn kernel_error(outcome: Result<u64, Error>) -> KernelError {
    match outcome {
        Err(Error::Kernel(error)) => error,
        other => panic!("not an error of a kernel: {other:?}"),
    }
}

#[test]
fn a_kernel_on_a_card_elsewhere_works_on_the_programs_memory() {
    within(LIMIT, "a kernel elsewhere", || {
        let folder = TempDir::new();
        let (_servers, space) = space_on(&folder, 2);
        let mut data = space.alloc::<u64>(1 << 16).unwrap();
        data.fill(1);
        for card in space.cards() {
            let count = space.kernel("farside.increment").on(card).call(Write(&mut data)).unwrap();
            assert_eq!(count, 1 << 16);
        }
        assert!(data.iter().all(|&x| x == 3));
        let second = space.card(1).unwrap();
        let sum = space.kernel("farside.sum").on(second).call(Read(&data)).unwrap();
        assert_eq!(sum, 3 << 16);
        space.check().unwrap();
    });
}

#[test]
fn every_kind_of_argument_arrives() {
    within(LIMIT, "arguments", || {
        let folder = TempDir::new();
        let (_servers, space) = space_on(&folder, 1);
        let card = space.card(0).unwrap();
        let kernel = |name| space.kernel(name).on(card);
        assert_eq!(kernel("farside.nop").call(()).unwrap(), 0);
        // A value, memory to read, memory to write.
        let (mut x, mut y) = (space.alloc::<f32>(5000).unwrap(), space.alloc::<f32>(5000).unwrap());
        x.iter_mut().enumerate().for_each(|(i, x)| *x = i as f32);
        y.fill(1.0);
        let args = (Value(2.0f32), Read(&x), Write(&mut y));
        assert_eq!(kernel("farside.saxpy").call(args).unwrap(), 5000);
        assert!(y.iter().enumerate().all(|(i, &y)| y == 2.0 * i as f32 + 1.0));
        // Bytes, and shared words.
        let mut bytes = space.alloc::<u8>(10_001).unwrap();
        bytes.iter_mut().enumerate().for_each(|(i, byte)| *byte = i as u8);
        let bins = space.alloc_atomic::<AtomicU64>(256, "bins").unwrap();
        let counted = kernel("farside.histogram").call((Read(&bytes), Shared(&bins))).unwrap();
        assert_eq!(counted, 10_001);
        for (value, bin) in bins.iter().enumerate() {
            let wanted = bytes.iter().filter(|&&byte| usize::from(byte) == value).count();
            assert_eq!(bin.load(SeqCst), wanted as u64, "bin {value}");
        }
        // Slices that are part of an allocation, not aligned to pages; nothing beside them changes.
        let mut words = space.alloc::<u64>(4 * PAGE).unwrap();
        kernel("farside.fill").call((Write(&mut words[100..1500]), Value(7u64))).unwrap();
        assert!(
            words.iter().enumerate().all(|(i, &w)| w == 7 * u64::from((100..1500).contains(&i)))
        );
        let (from, to) = words.split_at_mut(2 * PAGE);
        kernel("farside.copy").call((Read(from), Write(to))).unwrap();
        assert_eq!(words[..2 * PAGE], words[2 * PAGE..]);
        // Nothing at all.
        assert_eq!(kernel("farside.sum").call(Read(&words[..0])).unwrap(), 0);
        // A chain of pointers that the host has made.
        let last = words[PAGE..].as_ptr() as u64;
        words[3] = words[9..].as_ptr() as u64;
        words[9] = last;
        words[PAGE] = 0;
        let start = words[3..].as_ptr() as u64;
        let args = (Read(&words), Value(start), Value(10u64));
        assert_eq!(kernel("farside.chase").call(args).unwrap(), last);
    });
}

#[test]
fn every_error_of_a_kernel_arrives_and_the_card_goes_on() {
    within(LIMIT, "errors", || {
        let folder = TempDir::new();
        let (_servers, space) = space_on(&folder, 1);
        let card = space.card(0).unwrap();
        let kernel = |name| space.kernel(name).on(card);
        let mut data = space.alloc_named::<u64>(2 * PAGE, "the list").unwrap();
        data[0] = data.as_ptr() as u64 + 1_000_000;

        let start = data.as_ptr() as u64;
        let wild = kernel("farside.chase").call((Read(&data), Value(start), Value(2u64)));
        match kernel_error(wild) {
            KernelError::WildAddress { addr, hint, .. } => {
                assert_eq!(addr.0, start + 1_000_000);
                assert!(hint.contains("the list"), "{hint}");
            }
            other => panic!("{other}"),
        }
        let floats = (Read(&data), Value(1.0f64), Value(2u64));
        let bad = kernel_error(kernel("farside.chase").call(floats));
        assert!(
            bad.to_string().contains("a float; wanted is a value of 8 bytes, an integer"),
            "{bad}"
        );
        let bad = kernel_error(kernel("farside.sum").call((Read(&data), Value(1u64))));
        let KernelError::BadRequest { why, .. } = &bad else { panic!("{bad}") };
        assert!(why.contains("it takes 1 argument and was given 2"), "{why}");
        let failed = kernel_error(kernel("test.fail").call(()));
        let KernelError::Failed { message, .. } = &failed else { panic!("{failed}") };
        assert_eq!(message, "it was asked to");
        let panicked = kernel_error(kernel("test.panic").call(()));
        let KernelError::Panicked { message, .. } = &panicked else { panic!("{panicked}") };
        assert_eq!(message, "it was asked to");
        let unknown = kernel_error(kernel("farside.nothing").call(()));
        assert!(matches!(unknown, KernelError::NotOnCard { .. }), "{unknown}");
        let late = kernel("farside.spin").time_limit(Duration::from_millis(30)).call(());
        let late = kernel_error(late);
        assert!(matches!(late, KernelError::TimedOut { .. }), "{late}");
        space.set_read_only(&data, true).unwrap();
        match kernel_error(kernel("farside.increment").call(Write(&mut data))) {
            KernelError::Fault { reason: CancelReason::ReadOnly, page, .. } => {
                assert_eq!(page, space.pages(&data).unwrap().start);
            }
            other => panic!("{other}"),
        }
        space.set_read_only(&data, false).unwrap();
        space.scope(|s| {
            let job = s.kernel("farside.spin").on(card).launch_call(()).unwrap();
            std::thread::sleep(Duration::from_millis(10));
            assert!(!job.is_done());
            job.cancel();
            let cancelled = kernel_error(job.wait());
            assert!(matches!(cancelled, KernelError::Cancelled { .. }), "{cancelled}");
        });
        let closure = space.kernel("closure").on(card).run((), |_, ()| Ok(())).unwrap_err();
        assert!(matches!(closure, Error::Live(LiveError::ClosureElsewhere { .. })), "{closure}");
        // SAFETY: nothing is lent.
        let function = unsafe {
            let nothing = std::sync::Arc::new(|_: &mut _, _: &_| Ok(0));
            space.kernel("function").on(card).launch_function(nothing, Vec::new()).unwrap_err()
        };
        assert!(matches!(function, Error::Live(LiveError::ClosureElsewhere { .. })), "{function}");
        assert!(closure.to_string().contains("closure"), "{closure}");
        let outside = [1u64; 4];
        let outside = kernel("farside.sum").call(Read(&outside)).unwrap_err();
        assert!(matches!(outside, Error::Live(LiveError::NotShared { .. })), "{outside}");

        // After all of these the card still does what it is told.
        data.fill(4);
        kernel("farside.increment").call(Write(&mut data)).unwrap();
        assert!(data.iter().all(|&word| word == 5));
        space.check().unwrap();
    });
}

#[test]
fn a_kernel_that_hangs_is_given_up_and_its_function_goes_on() {
    within(LIMIT, "hung", || {
        let folder = TempDir::new();
        let config = CardConfig { grace: Duration::from_millis(50), ..config(&folder, 0) };
        let server = serve(config);
        let space = builder([place(&server)]).grace(Duration::from_millis(50)).build().unwrap();
        let kernel = |name| space.kernel(name).on(CardId(0));
        for _ in 0..3 {
            // More often than the card has processing elements.
            let limit = Duration::from_millis(10);
            let hung = kernel("test.deaf").time_limit(limit).call(Value(2_000u64));
            let hung = kernel_error(hung);
            assert!(matches!(hung, KernelError::Hung { .. }), "{hung}");
            let mut data = space.alloc::<u64>(PAGE).unwrap();
            kernel("farside.increment").call(Write(&mut data)).unwrap();
            assert!(data.iter().all(|&word| word == 1));
        }
        space.check().unwrap();
    });
}

#[test]
fn more_jobs_than_the_card_takes_are_refused_with_an_error() {
    within(LIMIT, "busy", || {
        let folder = TempDir::new();
        let server = serve(CardConfig { pes: 1, jobs_max: 2, ..config(&folder, 0) });
        let space = builder([place(&server)]).build().unwrap();
        space.scope(|s| {
            let launch = || s.kernel("farside.spin").launch_call(()).unwrap();
            let mut jobs: Vec<_> = (0..5).map(|_| launch()).collect();
            // One runs, two wait; the last two are refused.
            for job in jobs.drain(3..) {
                let busy = kernel_error(job.wait());
                assert!(matches!(busy, KernelError::Busy { .. }), "{busy}");
            }
            for job in jobs {
                job.cancel();
                let cancelled = kernel_error(job.wait());
                assert!(matches!(cancelled, KernelError::Cancelled { .. }), "{cancelled}");
            }
        });
        assert_eq!(space.kernel("farside.nop").call(()).unwrap(), 0);
    });
}

#[test]
fn streams_are_ordered_across_cards_elsewhere_and_here() {
    within(LIMIT, "streams", || {
        let folder = TempDir::new();
        let server = serve(config(&folder, 0));
        let here = CardPlace::InProgram { frames: 1024 };
        let space = builder([here, place(&server)]).build().unwrap();
        let words = space.alloc_atomic::<AtomicU64>(8 * PAGE, "words").unwrap();
        let stream = space.stream();
        let (mut wanted, steps) = (0u64, 60u64);
        space.scope(|s| {
            let jobs: Vec<_> = (0..steps)
                .map(|step| {
                    wanted = wanted.wrapping_mul(3).wrapping_add(step);
                    let args = (Shared(&words[..]), Value(3u64), Value(step));
                    let kernel =
                        s.kernel("test.affine").stream(stream).on(CardId((step % 2) as u8));
                    kernel.launch_call(args).unwrap()
                })
                .collect();
            jobs.into_iter().for_each(|job| assert_eq!(job.wait().unwrap(), 0));
        });
        assert!((0..8).all(|page| words[page * PAGE].load(SeqCst) == wanted));
        space.check().unwrap();
    });
}

#[test]
fn processing_elements_run_side_by_side_and_the_rest_waits_its_turn() {
    within(LIMIT, "elements", || {
        let folder = TempDir::new();
        let server = serve(CardConfig { pes: 3, ..config(&folder, 0) });
        let space = builder([place(&server)]).build().unwrap();
        let words = space.alloc_atomic::<AtomicU64>(PAGE, "words").unwrap();
        space.scope(|s| {
            // None of the three ends before all have begun.
            let meet =
                |_| s.kernel("test.meet").launch_call((Shared(&words[..1]), Value(3u64))).unwrap();
            let jobs: Vec<_> = (0..3).map(meet).collect();
            jobs.into_iter().for_each(|job| assert_eq!(job.wait().unwrap(), 3));
            // Many more than there are elements.
            for _ in 0..50 {
                s.kernel("farside.increment").launch_call(Shared(&words[8..16])).unwrap();
            }
        });
        assert!(words[8..16].iter().all(|word| word.load(SeqCst) == 50));
        space.check().unwrap();
    });
}

/// Three agents change the same pages in turns, so that these go from each to each.
fn pages_go_round(space: &Space) {
    let cards: Vec<CardId> = space.cards().collect();
    let words = space.alloc_atomic::<AtomicU64>(80 * PAGE, "round").unwrap();
    let mut wanted = 0u64;
    let mut change = |agent: Option<CardId>, b: u64| {
        wanted = wanted.wrapping_mul(5).wrapping_add(b);
        match agent {
            Some(card) => {
                let kernel = space.kernel("test.affine").on(card);
                kernel.call((Shared(&words[..]), Value(5u64), Value(b))).unwrap();
            }
            None => {
                for page in 0..80 {
                    let word = &words[page * PAGE];
                    word.store(word.load(SeqCst).wrapping_mul(5).wrapping_add(b), SeqCst);
                }
            }
        }
        wanted
    };
    let mut last = 0;
    for (round, from) in (0..).zip(0..cards.len()) {
        for to in 0..cards.len() {
            change(Some(cards[from]), round);
            change(Some(cards[to]), round + 7);
            last = change(None, round + 9);
        }
    }
    assert!((0..80).all(|page| words[page * PAGE].load(SeqCst) == last));
    space.check().unwrap();
}

#[test]
fn pages_go_round_between_the_host_a_card_here_and_two_elsewhere() {
    within(LIMIT, "mixed", || {
        let folder = TempDir::new();
        let servers = [serve(config(&folder, 0)), serve(config(&folder, 1))];
        let here = CardPlace::InProgram { frames: 4096 };
        let places = [here, place(&servers[0]), place(&servers[1])];
        pages_go_round(&builder(places.clone()).build().unwrap());
        pages_go_round(&builder(places).peer_to_peer(false).build().unwrap());
    });
}

/// The sum that `fill_pattern` gives.
fn fill_pattern(words: &mut [u64], seed: u64) -> u64 {
    for (word, i) in words.iter_mut().zip(0u64..) {
        *word = (i + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(seed);
    }
    words.iter().fold(0, |sum: u64, word| sum.wrapping_add(*word))
}

fn is_at(space: &Space, words: &[u64], memory: MemoryId) -> bool {
    space.locate(words).unwrap().iter().all(|part| part.owner == Some(memory))
}

/// Moves `pages` pages from memory to memory by request, and looks at every word each time.
fn migrate_everywhere(space: &Space, pages: usize) {
    let memories: Vec<MemoryId> =
        std::iter::once(MemoryId::HOST).chain(space.cards().map(CardId::memory)).collect();
    let mut data = space.alloc::<u64>(pages * PAGE).unwrap();
    for (seed, (&from, &to)) in
        (0..).zip(memories.iter().flat_map(|from| memories.iter().map(move |to| (from, to))))
    {
        let sum = fill_pattern(&mut data, seed);
        space.migrate(&data, from).unwrap();
        assert!(is_at(space, &data, from), "{pages} pages are not in {from}");
        space.migrate(&data, to).unwrap();
        assert!(is_at(space, &data, to), "{pages} pages are not in {to}");
        if let Some(card) = to.card() {
            let found = space.kernel("farside.sum").on(card).call(Read(&data)).unwrap();
            assert_eq!(found, sum, "{pages} pages from {from} to {to}, as the card sees them");
        }
        let mut wanted = vec![0; data.len()];
        fill_pattern(&mut wanted, seed);
        assert!(data[..] == wanted, "{pages} pages from {from} to {to}, as the host sees them");
    }
    space.check().unwrap();
}

#[test]
fn pages_are_migrated_by_request_in_small_and_in_large_pieces() {
    within(LIMIT, "user managed", || {
        let folder = TempDir::new();
        let (servers, space) = space_on(&folder, 2);
        let copied = || -> u64 {
            let of = |server: &CardServer| -> u64 {
                let users = server.status().unwrap().functions.into_iter().filter_map(|f| f.user);
                users.map(|user| user.counters["dma_pages"]).sum()
            };
            servers.iter().map(of).sum()
        };
        let before = copied();
        // Below 64 pages the host's CPU copies by itself, through BAR2.
        [1, 3, 17].into_iter().for_each(|pages| migrate_everywhere(&space, pages));
        assert_eq!(copied(), before, "small pieces were copied by page DMA");
        // From there on it is the cards' page DMA; these need several commands, and lists.
        [64, 1000, 2100].into_iter().for_each(|pages| migrate_everywhere(&space, pages));
        assert!(copied() >= before + 4 * 3100, "large pieces were not copied by page DMA");
        drop(space);
        let space = builder(servers.iter().map(place)).peer_to_peer(false).build().unwrap();
        [1, 64, 1500].into_iter().for_each(|pages| migrate_everywhere(&space, pages));
    });
}

#[test]
fn pieces_that_are_scattered_over_a_cards_frames_keep_their_contents() {
    within(LIMIT, "scattered", || {
        let folder = TempDir::new();
        let (_servers, space) = space_on(&folder, 2);
        let mut data = space.alloc::<u64>(600 * PAGE).unwrap();
        let sum = fill_pattern(&mut data, 3);
        // Every second page first, so that no two neighbours follow one another on the card.
        for page in (0..600).step_by(2).chain((1..600).step_by(2)) {
            space.migrate(&data[page * PAGE..(page + 1) * PAGE], CardId(0)).unwrap();
        }
        for card in [CardId(0), CardId(1), CardId(0)] {
            space.migrate(&data, card).unwrap();
            assert_eq!(space.kernel("farside.sum").on(card).call(Read(&data)).unwrap(), sum);
        }
        let mut wanted = vec![0; data.len()];
        fill_pattern(&mut wanted, 3);
        assert!(data[..] == wanted);
        space.check().unwrap();
    });
}

#[test]
fn a_card_that_is_too_small_evicts() {
    within(LIMIT, "eviction", || {
        let folder = TempDir::new();
        let server = serve(CardConfig { frames: 96, ..config(&folder, 0) });
        let space = builder([place(&server)]).build().unwrap();
        let mut data = space.alloc::<u64>(400 * PAGE).unwrap();
        let sum = fill_pattern(&mut data, 1);
        for round in 1..=3 {
            for part in data.chunks_mut(40 * PAGE) {
                space.kernel("farside.increment").call(Write(part)).unwrap();
            }
            for part in data.chunks(40 * PAGE) {
                space.kernel("farside.sum").call(Read(part)).unwrap();
            }
            let found = data.iter().fold(0u64, |sum, word| sum.wrapping_add(*word));
            assert_eq!(found, sum.wrapping_add(round * data.len() as u64));
        }
        let stats = space.report().stats;
        assert!(stats.evictions > 0, "{stats:?}");
        let refused = space.migrate(&data, CardId(0)).unwrap_err();
        assert!(matches!(refused, Error::Live(LiveError::Request(_))), "{refused}");
        space.check().unwrap();
    });
}

/// The card is asked by its ring what it uses.
#[test]
fn of_a_loop_over_more_than_a_card_has_stays_what_fits() {
    within(LIMIT, "loop", || {
        let folder = TempDir::new();
        let server = serve(CardConfig { frames: 96, ..config(&folder, 0) });
        let space = builder([place(&server)]).build().unwrap();
        let mut data = space.alloc::<u64>(144 * PAGE).unwrap();
        let expected = fill_pattern(&mut data, 1);
        let passes = 8;
        for _ in 0..passes {
            let mut sum = 0u64;
            for part in data.chunks(8 * PAGE) {
                let part = space.kernel("farside.sum").call(Read(part)).unwrap();
                sum = sum.wrapping_add(part);
            }
            assert_eq!(sum, expected);
        }
        let came = space.report().stats.by_direction().host_to_card;
        let bound = 144 + (passes - 1) * (144 - 96);
        assert!(came <= bound + passes * 24, "{came} pages came, Belady's bound is {bound}");
        space.check().unwrap();
    });
}

#[test]
fn the_report_tells_of_cards_elsewhere() {
    within(LIMIT, "report", || {
        let folder = TempDir::new();
        let (_servers, space) = space_on(&folder, 2);
        let mut data = space.alloc_named::<u64>(100 * PAGE, "reported").unwrap();
        data.fill(1);
        space.kernel("farside.increment").on(CardId(1)).call(Write(&mut data)).unwrap();
        let report = space.report();
        let moved: u64 = report.stats.moves.values().sum();
        assert!(moved >= 100, "{report}");
        let flow = report.traffic.host_to_card;
        assert_eq!(flow.pages, report.directions.host_to_card, "{report}");
        assert!(flow.bandwidth().is_some(), "copies of the card's DMA take time: {report}");
        assert!(report.to_string().contains("reported"), "{report}");
    });
}

#[test]
fn eight_programs_use_the_eight_functions_of_one_card_at_once() {
    within(LIMIT, "eight functions", || {
        let folder = TempDir::new();
        let server = serve(CardConfig { functions: 8, pes: 1, ..config(&folder, 0) });
        let ready = std::sync::Barrier::new(8);
        std::thread::scope(|s| {
            for program in 0..8u64 {
                let (server, ready) = (&server, &ready);
                s.spawn(move || {
                    let space = builder([place(server)]).build().unwrap();
                    ready.wait();
                    let mut data = space.alloc::<u64>(100 * PAGE).unwrap();
                    data.fill(program << 32);
                    for round in 1..=10 {
                        space.kernel("farside.increment").call(Write(&mut data)).unwrap();
                        assert!(data.iter().all(|&word| word == (program << 32) + round));
                    }
                    ready.wait();
                    space.check().unwrap();
                });
            }
        });
        let folder = &server.config().folder;
        await_status(folder, |status| status.functions.iter().all(|f| f.user.is_none()));
    });
}

#[test]
fn a_program_uses_eight_cards() {
    within(LIMIT, "eight cards", || {
        let folder = TempDir::new();
        let servers: Vec<_> = (0..8)
            .map(|card| {
                serve(CardConfig { functions: 1, pes: 1, frames: 512, ..config(&folder, card) })
            })
            .collect();
        let space = builder(servers.iter().map(place)).build().unwrap();
        let words = space.alloc_atomic::<AtomicU64>(70 * PAGE, "words").unwrap();
        let (mut wanted, cards) = (0u64, space.cards().len() as u64);
        for round in 0..4 {
            for card in space.cards() {
                wanted = wanted.wrapping_mul(3).wrapping_add(round);
                let args = (Shared(&words[..]), Value(3u64), Value(round));
                space.kernel("test.affine").on(card).call(args).unwrap();
            }
        }
        space.scope(|s| {
            for card in space.cards() {
                s.kernel("farside.increment").on(card).launch_call(Shared(&words[..3])).unwrap();
            }
        });
        assert_eq!(words[0].load(SeqCst), wanted + cards);
        assert_eq!(words[69 * PAGE].load(SeqCst), wanted);
        assert_eq!(words[1].load(SeqCst), cards);
        space.check().unwrap();
    });
}

#[test]
fn a_function_in_use_is_passed_over_and_a_card_without_a_free_one_says_so() {
    within(LIMIT, "in use", || {
        let folder = TempDir::new();
        let server = serve(config(&folder, 0));
        let users = || -> Vec<bool> {
            server
                .status()
                .unwrap()
                .functions
                .iter()
                .map(|function| function.user.is_some())
                .collect()
        };
        let first = builder([place(&server)]).build().unwrap();
        assert_eq!(users(), [true, false]);
        let second = builder([place(&server)]).build().unwrap();
        assert_eq!(users(), [true, true]);
        let refused = builder([place(&server)]).build().unwrap_err();
        let Error::Live(LiveError::CardsBusy { functions, .. }) = refused else {
            panic!("{refused}")
        };
        assert_eq!(functions, 2);
        drop(first);
        // The card cleans up in its own time; whoever comes waits for it.
        let third = builder([place(&server)]).build().unwrap();
        for space in [&second, &third] {
            let mut data = space.alloc::<u64>(PAGE).unwrap();
            space.kernel("farside.increment").call(Write(&mut data)).unwrap();
            assert!(data.iter().all(|&word| word == 1));
        }
    });
}

#[test]
fn a_card_that_nobody_serves_is_named() {
    within(LIMIT, "absent", || {
        let folder = TempDir::new();
        let nobody = CardPlace::Socket(folder.join("nobody"));
        let absent = builder([nobody]).build().unwrap_err();
        assert!(matches!(absent, Error::Live(LiveError::CardAbsent { .. })), "{absent}");
        assert!(absent.to_string().contains("nobody"), "{absent}");
        // A socket file that a killed process has left.
        let server = serve(config(&folder, 0));
        let socket: PathBuf = server.config().folder.join("fn0.sock");
        let left = folder.join("left.sock");
        std::fs::hard_link(&socket, &left).unwrap();
        drop(server);
        let absent = builder([CardPlace::Socket(left)]).build().unwrap_err();
        assert!(matches!(absent, Error::Live(LiveError::CardAbsent { .. })), "{absent}");
    });
}

#[test]
fn what_was_never_written_is_zero_on_cards_elsewhere() {
    within(LIMIT, "zero", || {
        let folder = TempDir::new();
        let (_servers, space) = space_on(&folder, 2);
        for round in 0..3 {
            let mut data = space.alloc::<u64>(300 * PAGE).unwrap();
            for card in space.cards() {
                let sum = space.kernel("farside.sum").on(card).call(Read(&data)).unwrap();
                assert_eq!(sum, 0, "in round {round} on {card}");
            }
            assert!(space.locate(&data).unwrap().iter().all(|p| p.state != PageState::Lost));
            for card in space.cards() {
                let args = (Write(&mut data[..]), Value(u64::MAX));
                space.kernel("farside.fill").on(card).call(args).unwrap();
            }
        }
        space.check().unwrap();
    });
}
