//! A card's own memory where the card is a process of its own: kernels there allocate, and what they hand over is the
//! program's and other cards'.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use farside::{
    Backing, CardBuffer, CardId, CardPlace, Error, Growable, KernelArgs, KernelContext,
    KernelError, Kernels, Made, MemoryId, Read, ReadView, Space, SpaceBuilder, Value, WindowError,
    Write, WriteSpan, WriteView,
};
use farside_card::interface::{CommandEntry, CompletionEntry, Operation, RingKind, Status};
use farside_softcard::WindowMemory;
use farside_softcard::serve::{CardConfig, socket_name};
use farside_types::{CancelReason, Span};
use harness::live::hostile::{Fate, HostileCard, Lies, Rings};
use harness::live::served::{
    CardProcess, TempDir, config, place, serve, serve_if_asked, test_kernels,
};
use harness::live::within;

const LIMIT: Duration = Duration::from_secs(60);
/// Frames of a card that kernels allocate in: 16 MiB.
const OWN: u32 = 4096;
/// Words of a page.
const PAGE: usize = 512;

type Outcome = Result<u64, KernelError>;

/// | name | arguments | does |
/// |---|---|---|
/// | `own.grow` | read `u64`, value `u64` n, write `Made` | adds its input n times to a vector, and hands it over |
/// | `own.keep` | none | has two pages that it does not hand over |
/// | `own.use` | value `u64` pages | allocates, grows and frees; gives the sum of what it has written and of what grew |
/// | `own.add` | write `u64` | adds one to each |
/// | `own.hold` | write `u64`, read `u64` | holds both until the first word of the second is not 0 |
/// | `own.scrawl` | write `u64` | holds its first page and counts there, for ever |
/// | `own.finish` | none | makes a buffer that only the program could keep |
fn own_kernels() -> Kernels {
    let with = |kernels: Kernels, name, kernel: fn(&mut KernelContext, &KernelArgs) -> Outcome| {
        kernels.with(name, kernel).expect("the names of tests are sound and differ")
    };
    let kernels = with(test_kernels(), "own.grow", grow);
    let kernels = with(kernels, "own.keep", keep);
    let kernels = with(kernels, "own.use", use_own);
    let kernels = with(kernels, "own.add", add);
    let kernels = with(kernels, "own.hold", hold);
    let kernels = with(kernels, "own.scrawl", scrawl);
    with(kernels, "own.finish", |kernel, _| {
        let mut values = Growable::<u64>::new();
        values.push(kernel, 1)?;
        values.finish(kernel).map(|_| 0)
    })
}

fn store(kernel: &mut KernelContext, args: &KernelArgs, index: usize, made: Made) -> Outcome {
    let out: WriteSpan<Made> = args.write(index)?;
    kernel.with(out, |mut out| out[0] = made)?;
    Ok(made.len)
}

fn grow(kernel: &mut KernelContext, args: &KernelArgs) -> Outcome {
    let (input, times) = (args.read::<u64>(0)?, args.value::<u64>(1)?);
    let mut made = Growable::new();
    for _ in 0..times {
        for first in (0..input.len()).step_by(4096) {
            let part = input.slice(first..input.len().min(first + 4096));
            let values: Vec<u64> = kernel.with(part, |part| part.iter().copied().collect())?;
            made.extend(kernel, &values)?;
        }
    }
    let made = made.hand_over(kernel)?;
    store(kernel, args, 2, made)
}

fn keep(kernel: &mut KernelContext, _: &KernelArgs) -> Outcome {
    let mut span = kernel.alloc::<u64>(PAGE, Backing::Eager)?;
    kernel.realloc(&mut span, 2 * PAGE)?;
    kernel.with(span.slice(PAGE..PAGE + 1), |mut word| word[0] = 7)?;
    Ok(0)
}

fn use_own(kernel: &mut KernelContext, args: &KernelArgs) -> Outcome {
    let pages = args.value::<u64>(0)? as usize;
    let mut span = kernel.alloc::<u64>(pages * PAGE, Backing::Lazy)?;
    for first in (0..span.len()).step_by(PAGE) {
        kernel.with(span.slice(first..first + 1), |mut word| word[0] = 1)?;
    }
    kernel.realloc(&mut span, 2 * pages * PAGE)?;
    let mut sum = 0;
    for first in (0..span.len()).step_by(PAGE) {
        let part = span.slice(first..first + PAGE);
        sum += kernel.with(part, |mut words| words.iter_mut().map(|word| *word).sum::<u64>())?;
    }
    kernel.free(span)?;
    Ok(sum)
}

fn add(kernel: &mut KernelContext, args: &KernelArgs) -> Outcome {
    let mut words = args.write::<u64>(0)?;
    for first in (0..words.len()).step_by(4096) {
        let part = words.slice(first..words.len().min(first + 4096));
        kernel.with(part, |mut part| part.iter_mut().for_each(|word| *word += 1))?;
    }
    Ok(0)
}

fn hold(kernel: &mut KernelContext, args: &KernelArgs) -> Outcome {
    let held = (args.write::<u64>(0)?, args.read::<u64>(1)?);
    kernel.with(held, |(_, let_go): (WriteView<'_, u64>, ReadView<'_, u64>)| {
        // SAFETY: a word of the kernel's, which the test writes from its own process.
        while unsafe { std::ptr::read_volatile(&let_go[0]) } == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
    })?;
    Ok(0)
}

fn scrawl(kernel: &mut KernelContext, args: &KernelArgs) -> Outcome {
    kernel.with(args.write::<u64>(0)?.slice(..1), |mut words: WriteView<'_, u64>| {
        loop {
            let word = &raw mut words[0];
            // SAFETY: a word of the kernel's.
            unsafe { word.write_volatile(word.read_volatile() + 1) };
        }
    })
}

fn with_own(config: CardConfig) -> CardConfig {
    CardConfig { window: WindowMemory::only(OWN), kernels: Arc::new(own_kernels()), ..config }
}

fn builder(places: impl IntoIterator<Item = CardPlace>) -> SpaceBuilder {
    Space::builder().cards_at(places).address_space(64 << 20).kernels(own_kernels())
}

/// A vector that a kernel on `card` has grown and handed over: `times` times the numbers from 0 to `len`.
fn made(space: &Space, card: CardId, len: usize, times: u64) -> Result<Made, Error> {
    let mut input = space.alloc::<u64>(len)?;
    (0..).zip(input.iter_mut()).for_each(|(n, word)| *word = n);
    let mut made = space.alloc::<Made>(1)?;
    // A card that is killed when the kernel has just ended would take it along, and whoever reads it then gets SIGBUS.
    space.pin(&made, MemoryId::HOST)?;
    let args = (Read(&input), Value(times), Write(&mut made));
    space.kernel("own.grow").on(card).call(args)?;
    Ok(made[0])
}

/// The same, taken over.
fn grown(space: &Space, card: CardId, len: usize, times: u64) -> Result<CardBuffer<u64>, Error> {
    space.take_over(card, made(space, card, len, times)?)
}

fn window_error<T: std::fmt::Debug>(outcome: Result<T, Error>) -> WindowError {
    match outcome {
        Err(Error::Window(error)) => error,
        other => panic!("not an error of a window: {other:?}"),
    }
}

#[test]
fn what_a_kernel_in_another_process_grows_is_the_programs() {
    within(LIMIT, "growing elsewhere", || {
        let folder = TempDir::new();
        let server = serve(with_own(config(&folder, 0)));
        let space = builder([place(&server)]).build().unwrap();
        let card = space.card(0).unwrap();
        let before = space.own_memory_free(card).unwrap();
        assert_eq!(before, u64::from(OWN) * 4096);
        let len = 100_000;
        let mut made = grown(&space, card, len, 3).unwrap();
        assert_eq!(made.len(), 3 * len);
        let right = |n: usize, word: u64| word == (n % len) as u64;
        assert!(made.host().unwrap().iter().enumerate().all(|(n, &word)| right(n, word)));
        assert_eq!(made.to_vec().unwrap(), made.host().unwrap());
        // The host writes the card's memory, and a kernel there sees it, at the same address.
        made.host_mut().unwrap().iter_mut().for_each(|word| *word += 1);
        let sum: u64 = made.host().unwrap().iter().sum();
        let seen = space.kernel("farside.sum").on(card).call(Read(made.host().unwrap())).unwrap();
        assert_eq!(seen, sum);
        space.kernel("own.add").on(card).call(Write(made.host_mut().unwrap())).unwrap();
        assert_eq!(made.host().unwrap().iter().sum::<u64>(), sum + 3 * len as u64);
        drop(made);
        assert_eq!(space.own_memory_free(card).unwrap(), before);
        assert_eq!(space.kernel("own.use").on(card).call(Value(100u64)).unwrap(), 100);
        assert_eq!(space.own_memory_free(card).unwrap(), before, "a kernel's own is given back");
        space.check().unwrap();
    });
}

#[test]
fn the_program_allocates_on_a_card_elsewhere_and_gets_zeros() {
    within(LIMIT, "allocating elsewhere", || {
        let folder = TempDir::new();
        let server = serve(with_own(config(&folder, 0)));
        let space = builder([place(&server)]).build().unwrap();
        let card = space.card(0).unwrap();
        let pages = OWN as usize;
        for backing in [Backing::Lazy, Backing::Eager] {
            let mut all = space.alloc_on::<u64>(card, pages * PAGE, backing).unwrap();
            if backing == Backing::Lazy {
                let free = space.own_memory_free(card).unwrap();
                assert!(all.to_vec().unwrap().iter().all(|&word| word == 0));
                assert_eq!(space.own_memory_free(card).unwrap(), free, "a copy gives no memory");
            }
            assert!(all.host().unwrap().iter().all(|&word| word == 0), "{backing:?}");
            all.host_mut().unwrap().fill(u64::MAX);
            let full = window_error(space.alloc_on::<u64>(card, 1, Backing::Eager));
            assert!(full.to_string().contains("card 0"), "{full}");
        }
        let none = window_error(space.alloc_on::<u64>(card, 1 << 40, Backing::Lazy));
        assert!(matches!(none, WindowError::Refused { .. }), "{none}");
    });
}

#[test]
fn other_cards_reach_it_in_the_program_and_in_other_processes() {
    within(LIMIT, "others", || {
        let folder = TempDir::new();
        let servers = [0, 1].map(|card| serve(with_own(config(&folder, card))));
        let places = servers.iter().map(place).chain([CardPlace::InProgram { frames: 1024 }]);
        let space = builder(places).card_window(4 << 20).build().unwrap();
        let cards: Vec<CardId> = space.cards().collect();
        for owner in cards.iter().copied() {
            let mut made = grown(&space, owner, 10_000, 2).unwrap();
            let mut sum: u64 = made.host().unwrap().iter().sum();
            for &reader in &cards {
                let read = Read(made.host().unwrap());
                assert_eq!(space.kernel("farside.sum").on(reader).call(read).unwrap(), sum);
                let words = Write(made.host_mut().unwrap());
                space.kernel("own.add").on(reader).call(words).unwrap();
                sum += 20_000;
                assert_eq!(made.host().unwrap().iter().sum::<u64>(), sum, "{owner} {reader}");
            }
            // What is freed is nobody's: the next allocation is zero for all of them, at whatever address.
            drop(made);
            let next = space.alloc_on::<u64>(owner, 20_000, Backing::Lazy).unwrap();
            for &reader in &cards {
                let read = Read(next.host().unwrap());
                assert_eq!(space.kernel("farside.sum").on(reader).call(read).unwrap(), 0);
            }
        }
        space.check().unwrap();
    });
}

#[test]
fn only_what_was_handed_over_is_taken_over_and_once() {
    within(LIMIT, "taking over", || {
        let folder = TempDir::new();
        let server = serve(with_own(config(&folder, 0)));
        let places = [place(&server), CardPlace::InProgram { frames: 1024 }];
        let space = builder(places).card_window(4 << 20).build().unwrap();
        for card in space.cards() {
            let made = grown(&space, card, 1000, 1).unwrap();
            let again = |addr, len| window_error(space.take_over::<u64>(card, Made { addr, len }));
            let addr = made.addr().0;
            for (addr, len) in
                [(addr, 1000), (addr, 1), (addr + 4096, 1), (addr + 8, 1), (addr, 1 << 60), (8, 1)]
            {
                let refused = again(addr, len);
                assert!(matches!(refused, WindowError::NotMade { .. }), "{refused}");
            }
            let free = again(addr + (1 << 30), 1);
            assert!(free.to_string().contains(&card.to_string()), "{free}");
            let nothing = space.take_over::<u64>(card, Made::default()).unwrap();
            assert!(nothing.is_empty());
            // Of what nobody has taken over yet, nothing but all of it.
            let whole = self::made(&space, card, 2000, 1).unwrap();
            for (addr, len) in [(whole.addr + 4096, 1), (whole.addr, 2001), (whole.addr + 8, 1)] {
                let refused = again(addr, len);
                assert!(matches!(refused, WindowError::NotMade { .. }), "{refused}");
            }
            let whole = space.take_over::<u64>(card, whole).unwrap();
            assert_eq!(whole.host().unwrap()[1999], 1999);
        }
        // What a kernel keeps is freed with it, and only the program keeps buffers as they are.
        let card = space.card(0).unwrap();
        let before = space.own_memory_free(card).unwrap();
        space.kernel("own.keep").on(card).call(()).unwrap();
        let error = space.kernel("own.finish").on(card).call(()).unwrap_err();
        assert!(error.to_string().contains("hand_over"), "{error}");
        assert_eq!(space.own_memory_free(card).unwrap(), before);
    });
}

#[test]
fn a_card_that_is_served_without_has_none() {
    within(LIMIT, "no window", || {
        let folder = TempDir::new();
        let server = serve(CardConfig { window: Vec::new(), ..with_own(config(&folder, 0)) });
        let space = builder([place(&server)]).build().unwrap();
        let card = space.card(0).unwrap();
        let refused = window_error(space.alloc_on::<u64>(card, 1, Backing::Lazy));
        assert!(refused.to_string().contains("farside card serve --window"), "{refused}");
        let refused = space.kernel("own.use").on(card).call(Value(1u64)).unwrap_err();
        assert!(refused.to_string().contains("farside card serve --window"), "{refused}");
    });
}

/// The card's process ends while the program and another card have its memory: what is mapped stays readable, everything
/// else ends with an error, and nothing waits.
#[test]
fn a_card_that_is_killed_takes_its_own_memory_with_it() {
    serve_if_asked(with_own);
    within(LIMIT, "a card is killed", || {
        let folder = TempDir::new();
        let test = "a_card_that_is_killed_takes_its_own_memory_with_it";
        let mut process = CardProcess::start(test, &config(&folder, 0));
        let places = [process.place(), CardPlace::InProgram { frames: 1024 }];
        let space = builder(places).build().unwrap();
        let (card, other) = (space.card(0).unwrap(), space.card(1).unwrap());
        let made = grown(&space, card, 10_000, 1).unwrap();
        let unseen = space.alloc_on::<u64>(card, 10_000, Backing::Lazy).unwrap();
        let sum = (0..10_000u64).sum::<u64>();
        let host = made.host().unwrap();
        assert_eq!(space.kernel("farside.sum").on(other).call(Read(host)).unwrap(), sum);
        process.crash_to_the_last();
        // Whoever asks first may be told that it does not answer; afterwards it is gone for all.
        let told = window_error(space.alloc_on::<u64>(card, 1, Backing::Lazy));
        assert!(matches!(told, WindowError::Gone { .. }), "{told}");
        assert!(told.to_string().contains("card 0"), "{told}");
        assert_eq!(host.iter().sum::<u64>(), sum, "what is mapped is not taken from the program");
        for gone in [window_error(unseen.host().map_err(Error::from)), {
            window_error(made.to_vec().map_err(Error::from))
        }] {
            assert!(matches!(gone, WindowError::Gone { .. }), "{gone}");
        }
        let error = space.kernel("farside.sum").on(other).call(Read(host)).unwrap_err();
        assert!(error.to_string().contains("gone"), "{error}");
        drop(unseen);
        drop(made);
        space.check().unwrap();
    });
}

/// Two cards in processes read each other's memory, and each is killed once: it comes back, and the other goes on.
#[test]
fn a_card_that_reads_anothers_memory_comes_back() {
    serve_if_asked(with_own);
    within(LIMIT, "readers of each other", || {
        let test = "a_card_that_reads_anothers_memory_comes_back";
        let folder = TempDir::new();
        let mut processes = [0, 1].map(|card| CardProcess::start(test, &config(&folder, card)));
        let space = builder(processes.iter().map(CardProcess::place)).build().unwrap();
        let cards: Vec<CardId> = space.cards().collect();
        let sum = (0..10_000u64).sum::<u64>();
        let mut buffers = Vec::new();
        for (&owner, &reader) in cards.iter().zip(cards.iter().rev()) {
            let made = grown(&space, owner, 10_000, 1).unwrap();
            let read = Read(made.host().unwrap());
            assert_eq!(space.kernel("farside.sum").on(reader).call(read).unwrap(), sum);
            buffers.push(made);
        }
        for (card, process) in cards.iter().copied().zip(&mut processes) {
            process.crash_to_the_last();
            process.restart();
            let again = || space.kernel("own.use").on(card).call(Value(10u64));
            let end = std::time::Instant::now() + Duration::from_secs(20);
            while again().is_err() {
                assert!(std::time::Instant::now() < end, "{card} does not come back");
                std::thread::sleep(Duration::from_millis(2));
            }
        }
        drop(buffers);
        space.check().unwrap();
    });
}

/// A card that reads another's memory says that it could not let pages go, while a kernel of its writes them. They are
/// free only when it has ended: who gets them next sees nothing of that kernel.
#[test]
fn a_reader_whose_unmap_fails_has_ended_before_anybody_gets_the_pages() {
    within(LIMIT, "an unmap that fails", || {
        let folder = TempDir::new();
        let grace = Duration::from_millis(20);
        let real = serve(CardConfig { grace, ..with_own(config(&folder, 1)) });
        let socket = real.config().folder.join(socket_name(0));
        let liar = HostileCard::start(folder.join("liar.sock"), socket, || Lies {
            answers: Box::new(|_| Fate::Pass),
            rings: Some(Box::new(fail_unmap)),
        });
        let places = [CardPlace::InProgram { frames: 1024 }, liar.place()];
        let space = builder(places).card_window(1 << 20).grace(grace).build().unwrap();
        let (card, reader) = (space.card(0).unwrap(), space.card(1).unwrap());
        let mut shared = space.alloc_on::<u64>(card, PAGE, Backing::Eager).unwrap();
        let launch = space.kernel("own.scrawl").on(reader).time_limit(grace);
        let hung = launch.call(Write(shared.host_mut().unwrap()));
        assert!(matches!(hung, Err(Error::Kernel(KernelError::Hung { .. }))), "{hung:?}");
        let word = |words: &[u64]| {
            // SAFETY: a word of the card's memory, which a kernel in another process may write.
            unsafe { std::ptr::read_volatile(&words[0]) }
        };
        let seen = word(shared.host().unwrap());
        std::thread::sleep(Duration::from_millis(5));
        assert_ne!(word(shared.host().unwrap()), seen, "it writes");
        FAILS_UNMAP.store(true, SeqCst);
        drop(shared);
        assert!(!FAILS_UNMAP.load(SeqCst), "the card was not asked, or has not failed");
        let all = space.own_memory_free(card).unwrap() as usize;
        let again = space.alloc_on::<u64>(card, all / 8, Backing::Eager).unwrap();
        let begin = std::time::Instant::now();
        while begin.elapsed() < Duration::from_millis(100) {
            assert!(again.host().unwrap().iter().step_by(PAGE).all(|first| *first == 0));
        }
        drop(again);
        assert_eq!(space.own_memory_free(card).unwrap(), 1 << 20);
    });
}

/// The next `UNMAP` is to fail.
static FAILS_UNMAP: AtomicBool = AtomicBool::new(false);

/// Says of an `UNMAP` that is under way that it has failed.
fn fail_unmap(rings: &Rings) {
    while !rings.is_over() {
        std::thread::sleep(Duration::from_micros(100));
        if !FAILS_UNMAP.load(SeqCst) {
            continue;
        }
        let Ok(last) = CommandEntry::from_entry(&rings.last(RingKind::Command)) else { continue };
        if matches!(last.operation, Operation::Unmap(_)) {
            let failed = CompletionEntry::plain(last.tag, Status::CopyFailed);
            rings.say(RingKind::Completion, &failed.to_entry());
            FAILS_UNMAP.store(false, SeqCst);
            return;
        }
    }
}

/// The card's process is killed at any step: kernels there allocate and grow, the program allocates, maps and frees, another
/// card reads. Everything ends with an error that says so, and the card that comes back serves kernels again.
#[test]
fn a_card_that_is_killed_at_any_step_ends_what_was_under_way() {
    serve_if_asked(with_own);
    within(LIMIT, "a card is killed at any step", || {
        let test = "a_card_that_is_killed_at_any_step_ends_what_was_under_way";
        let mut prng = harness::Prng::new(0x0a11_0c8e);
        for round in 0..12 {
            let folder = TempDir::new();
            let mut process = CardProcess::start(test, &config(&folder, 0));
            let places = [process.place(), CardPlace::InProgram { frames: 1024 }];
            let space = builder(places).build().unwrap();
            let (card, other) = (space.card(0).unwrap(), space.card(1).unwrap());
            let until_gone = |work: &(dyn Fn() -> Result<(), Error> + Sync)| {
                let error = loop {
                    if let Err(error) = work() {
                        break error;
                    }
                };
                // A kernel on the other card is told of the page, and that it is lost; all else names the card.
                let reads = |error: &Error| match error {
                    Error::Kernel(KernelError::Fault { card, reason, .. }) => {
                        *card == other && *reason == CancelReason::Lost
                    }
                    _ => false,
                };
                let text = error.to_string();
                let names = text.contains("card 0") && text.contains("gone");
                assert!(names || reads(&error), "{round}: {text}");
            };
            std::thread::scope(|scope| {
                scope.spawn(|| until_gone(&|| grown(&space, card, 5000, 4).map(drop)));
                scope.spawn(|| {
                    until_gone(&|| {
                        let mut words = space.alloc_on::<u64>(card, 5000, Backing::Lazy)?;
                        words.host_mut()?.fill(1);
                        let read = Read(words.host()?);
                        let sum = space.kernel("farside.sum").on(other).call(read)?;
                        assert_eq!(sum, 5000);
                        assert_eq!(words.to_vec()?[4999], 1);
                        Ok(())
                    });
                });
                std::thread::sleep(Duration::from_micros(prng.below(30_000)));
                process.crash_to_the_last();
            });
            process.restart();
            let again = || space.kernel("own.use").on(card).call(Value(10u64));
            let end = std::time::Instant::now() + Duration::from_secs(20);
            while again().is_err() {
                assert!(std::time::Instant::now() < end, "the card does not come back");
                std::thread::sleep(Duration::from_millis(2));
            }
            assert_eq!(again().unwrap(), 10);
            let gone = window_error(space.alloc_on::<u64>(card, 1, Backing::Lazy));
            assert!(matches!(gone, WindowError::Gone { .. }), "{gone}");
            space.check().unwrap();
        }
    });
}

/// A kernel hangs with pages in its hands that are freed. The card is not to blame: nothing is allocated there until it has
/// let go, and everything else goes on.
#[test]
fn a_card_whose_kernel_holds_what_is_freed_allocates_later_and_is_not_reset() {
    within(LIMIT, "a free that waits", || {
        let folder = TempDir::new();
        let grace = Duration::from_millis(20);
        let server = serve(CardConfig { grace, ..with_own(config(&folder, 0)) });
        let builder = builder([place(&server)]).grace(grace);
        let space =
            builder.tune(|config| config.limits.drain = Span::from_millis(300)).build().unwrap();
        let card = space.card(0).unwrap();
        let before = space.own_memory_free(card).unwrap();
        let kept = grown(&space, card, 1000, 1).unwrap();
        let mut let_go = space.alloc_on::<u64>(card, PAGE, Backing::Eager).unwrap();
        let with_kept = space.own_memory_free(card).unwrap();
        let mut held = space.alloc_on::<u64>(card, PAGE, Backing::Eager).unwrap();
        let launch = space.kernel("own.hold").on(card).time_limit(grace);
        let args = (Write(held.host_mut().unwrap()), Read(let_go.host().unwrap()));
        let hung = launch.call(args);
        assert!(matches!(hung, Err(Error::Kernel(KernelError::Hung { .. }))), "{hung:?}");
        let is_refused = || {
            let refused = window_error(space.alloc_on::<u64>(card, PAGE, Backing::Eager));
            assert!(matches!(refused, WindowError::Freeing { .. }), "{refused}");
        };
        std::thread::scope(|scope| {
            scope.spawn(|| drop(held));
            // The free is under way, and the card has it.
            std::thread::sleep(Duration::from_millis(50));
            is_refused();
        });
        is_refused();
        // The card serves everything else, and who waits for memory there ends in time.
        assert!((0..1000).eq(kept.host().unwrap().iter().copied()));
        space.kernel("farside.nop").on(card).call(()).unwrap();
        let launch = || space.kernel("own.use").on(card);
        for _ in 0..3 {
            let late = launch().time_limit(grace).call(Value(3u64));
            assert!(matches!(late, Err(Error::Kernel(KernelError::TimedOut { .. }))), "{late:?}");
        }
        let_go.host_mut().unwrap()[0] = 1;
        let end = std::time::Instant::now() + Duration::from_secs(20);
        let mut again = space.alloc_on::<u64>(card, PAGE, Backing::Eager);
        while again.is_err() {
            assert!(std::time::Instant::now() < end, "{again:?}");
            std::thread::sleep(Duration::from_millis(2));
            again = space.alloc_on::<u64>(card, PAGE, Backing::Eager);
        }
        drop(again);
        assert_eq!(launch().call(Value(3u64)).unwrap(), 3);
        // What was given to nobody is free too.
        while space.own_memory_free(card).unwrap() != with_kept {
            assert!(std::time::Instant::now() < end, "memory of the card's is not given back");
            std::thread::sleep(Duration::from_millis(2));
        }
        drop((kept, let_go));
        assert_eq!(space.own_memory_free(card).unwrap(), before);
        space.check().unwrap();
    });
}

/// A place that the card has freed is another's at once: the answers are believed in the order in which they come.
#[test]
fn threads_that_allocate_and_free_at_once_never_meet() {
    within(LIMIT, "many threads", || {
        let folder = TempDir::new();
        let server = serve(with_own(config(&folder, 0)));
        let space = builder([place(&server)]).build().unwrap();
        let card = space.card(0).unwrap();
        let before = space.own_memory_free(card).unwrap();
        std::thread::scope(|scope| {
            for thread in 1..=4u64 {
                let space = &space;
                scope.spawn(move || {
                    for _ in 0..200 {
                        let mut words = space.alloc_on::<u64>(card, 100, Backing::Lazy).unwrap();
                        assert!(words.host().unwrap().iter().all(|&word| word == 0));
                        words.host_mut().unwrap().fill(thread);
                        assert!(words.host().unwrap().iter().all(|&word| word == thread));
                    }
                });
            }
        });
        assert_eq!(space.own_memory_free(card).unwrap(), before);
    });
}

#[test]
fn what_the_program_has_outlives_its_space() {
    within(LIMIT, "outliving a space", || {
        let folder = TempDir::new();
        let server = serve(with_own(config(&folder, 0)));
        let open = || builder([place(&server)]).build().unwrap();
        let space = open();
        let card = space.card(0).unwrap();
        let mut all = space.alloc_on::<u64>(card, 1000, Backing::Eager).unwrap();
        all.host_mut().unwrap().fill(7);
        let made = grown(&space, card, 1000, 1).unwrap();
        drop(space);
        // The card makes all memory zero when its program goes.
        assert!(all.host().unwrap().iter().all(|&word| word == 7));
        assert!((0..1000).zip(made.to_vec().unwrap()).all(|(n, word)| n == word));
        drop((all, made));
        // Now it has gone.
        assert_eq!(open().own_memory_free(card).unwrap(), u64::from(OWN) * 4096);
    });
}
