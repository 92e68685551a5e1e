//! What a program's own process does while its cards are elsewhere: it forks, takes signals, has a
//! bug; and its kernels fault more than a queue holds.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use farside::{
    CardId, CardPlace, Error, LiveError, MemoryId, Read, Shared, Space, SpaceBuilder, Value, Write,
};
use farside_card::Geometry;
use farside_softcard::serve::CardConfig;
use farside_svm::Command;
use harness::live::served::{
    CardProcess, Exercise, TempDir, await_status, config, place, serve, serve_if_asked,
    test_kernels,
};
use harness::live::{Child, role, seconds, within};

const LIMIT: Duration = Duration::from_secs(60);
/// Words of a page.
const PAGE: usize = 512;
const CARDS: [CardId; 2] = [CardId(0), CardId(1)];

fn builder(places: impl IntoIterator<Item = CardPlace>) -> SpaceBuilder {
    Space::builder().cards_at(places).address_space(16 << 20).kernels(test_kernels())
}

/// A child made by fork, which runs `body`, and must not outlive its test.
struct Forked(libc::pid_t);

impl Forked {
    /// `body` should do little: other threads do not exist in the child, and their locks stay
    /// locked.
    fn new(body: impl FnOnce() -> i32) -> Forked {
        // SAFETY: the child calls `body` and ends without running destructors of the parent's.
        let pid = unsafe { libc::fork() };
        assert!(pid >= 0, "fork failed");
        if pid == 0 {
            let code = body();
            // SAFETY: ends the child at once.
            unsafe { libc::_exit(code) };
        }
        Forked(pid)
    }

    /// Its exit code.
    fn await_end(self) -> i32 {
        let end = Instant::now() + Duration::from_secs(20);
        loop {
            let mut status = 0;
            // SAFETY: waits for the child of this value.
            if unsafe { libc::waitpid(self.0, &mut status, libc::WNOHANG) } == self.0 {
                assert!(libc::WIFEXITED(status), "the child was ended by a signal: {status:#x}");
                std::mem::forget(self);
                return libc::WEXITSTATUS(status);
            }
            assert!(Instant::now() < end, "the child hangs");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for Forked {
    fn drop(&mut self) {
        // SAFETY: ends and waits for a child that has not been waited for.
        unsafe {
            libc::kill(self.0, libc::SIGKILL);
            libc::waitpid(self.0, std::ptr::null_mut(), 0);
        }
    }
}

fn wrong_process<T>(result: Result<T, Error>) -> bool {
    matches!(result, Err(Error::Live(LiveError::WrongProcess { .. })))
}

#[test]
fn invariant_21_a_forked_child_is_refused_and_the_parents_card_processes_go_on() {
    const NAME: &str =
        "invariant_21_a_forked_child_is_refused_and_the_parents_card_processes_go_on";
    serve_if_asked(|config| config);
    within(LIMIT, NAME, || {
        let folder = TempDir::new();
        let cards = [0, 1].map(|card| CardProcess::start(NAME, &config(&folder, card)));
        let space = builder(cards.iter().map(CardProcess::place)).build().unwrap();
        let mut data = space.alloc::<u64>(80 * PAGE).unwrap();
        data.fill(5);
        space.migrate(&data, CARDS[0]).unwrap();
        let child = Forked::new(|| {
            let refusals = [
                wrong_process(space.alloc::<u64>(1).map(std::mem::forget)),
                wrong_process(space.migrate(&data, MemoryId::HOST)),
                wrong_process(space.kernel("farside.sum").call(Read(&data))),
                wrong_process(space.fail_card(CARDS[0])),
            ];
            refusals.iter().position(|refused| !refused).map_or(0, |at| 1 + at as i32)
        });
        let code = child.await_end();
        assert_eq!(code, 0, "call number {code} was not refused");
        let sum = space.kernel("farside.sum").on(CARDS[1]).call(Read(&data)).unwrap();
        assert_eq!(sum, 5 * data.len() as u64);
        // A child that drops what it has of the space ends nothing of its parent's.
        let (mut space, mut data) = (Some(space), Some(data));
        let child = Forked::new(|| {
            drop(data.take());
            drop(space.take());
            3
        });
        assert_eq!(child.await_end(), 3);
        let (space, mut data) = (space.unwrap(), data.unwrap());
        space.kernel("farside.increment").call(Write(&mut data)).unwrap();
        assert!(data.iter().all(|&word| word == 6));
        Exercise::new(&space, 80).run(CARDS[0], CARDS[1]).unwrap();
        space.check().unwrap();
    });
}

#[test]
fn a_forked_child_that_lives_on_does_not_keep_its_parents_cards() {
    const NAME: &str = "a_forked_child_that_lives_on_does_not_keep_its_parents_cards";
    serve_if_asked(|config| config);
    within(LIMIT, NAME, || {
        let folder = TempDir::new();
        let card = CardProcess::start(NAME, &config(&folder, 0));
        let space = builder([card.place()]).build().unwrap();
        let child = Forked::new(|| {
            std::thread::sleep(Duration::from_secs(60));
            0
        });
        drop(space);
        card.await_status(|status| status.functions.iter().all(|f| f.user.is_none()));
        drop(child);
    });
}

static WORDS: AtomicUsize = AtomicUsize::new(0);
static HANDLED: AtomicU64 = AtomicU64::new(0);
const PAGES: usize = 16;
/// The word of each page that the handler increments; the others belong to the threads.
const HANDLERS: usize = 7;
/// Threads of the program that take signals.
static THREADS: [AtomicUsize; 3] = [const { AtomicUsize::new(0) }; 3];
static QUIET: AtomicBool = AtomicBool::new(true);

extern "C" fn touch(_signal: libc::c_int) {
    let base = WORDS.load(SeqCst) as *const AtomicU64;
    if base.is_null() {
        return;
    }
    let count = HANDLED.fetch_add(1, SeqCst) as usize;
    // SAFETY: the words live until every thread that takes the signal has been joined.
    let word = unsafe { &*base.add(count % PAGES * PAGE + HANDLERS) };
    word.fetch_add(1, SeqCst);
}

fn signal_all(_command: &Command) {
    if QUIET.load(SeqCst) {
        return;
    }
    for thread in &THREADS {
        let thread = thread.load(SeqCst);
        if thread != 0 {
            // SAFETY: a thread takes its number out of the list before it ends.
            unsafe { libc::pthread_kill(thread as libc::pthread_t, libc::SIGUSR1) };
        }
    }
}

/// Runs `body` on a thread that takes signals, until told to stop. Gives how often.
fn taking_signals(index: usize, stop: &AtomicBool, mut body: impl FnMut(u64)) -> u64 {
    // SAFETY: asks for the calling thread's own number.
    THREADS[index].store(unsafe { libc::pthread_self() } as usize, SeqCst);
    let mut count = 0;
    while !stop.load(SeqCst) {
        body(count);
        count += 1;
    }
    QUIET.store(true, SeqCst);
    THREADS[index].store(0, SeqCst);
    // A probe that read the number just before must not find the thread gone.
    std::thread::sleep(Duration::from_millis(50));
    count
}

#[test]
fn invariant_23_signals_in_every_step_lose_nothing_and_block_nothing_with_cards_elsewhere() {
    within(LIMIT, "signals", || {
        // SAFETY: the handler only uses atomics; the structure is zero but for the handler.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = touch as extern "C" fn(libc::c_int) as usize;
            assert_eq!(libc::sigaction(libc::SIGUSR1, &action, std::ptr::null_mut()), 0);
        }
        let folder = TempDir::new();
        let servers = [0, 1].map(|card| serve(CardConfig { frames: 8, ..config(&folder, card) }));
        let space = builder(servers.iter().map(place)).probe(signal_all).build().unwrap();
        let words = space.alloc_atomic::<AtomicU64>(PAGES * PAGE, "signalled").unwrap();
        WORDS.store(words.as_ptr() as usize, SeqCst);
        let stop = AtomicBool::new(false);
        let (touched, launched) = std::thread::scope(|s| {
            let (words, space, stop) = (&words, &space, &stop);
            let toucher = s.spawn(move || {
                taking_signals(0, stop, |count| {
                    words[count as usize % PAGES * PAGE].fetch_add(1, SeqCst);
                })
            });
            let launcher = s.spawn(move || {
                taking_signals(1, stop, |count| {
                    let card = CARDS[count as usize % 2];
                    let args = (Shared(&words[..]), Value(1u64), Value(20u64), Value(count));
                    space.kernel("test.race").on(card).call(args).unwrap();
                })
            });
            let mover = s.spawn(move || {
                taking_signals(2, stop, |count| {
                    let part = &words[..PAGES / 2 * PAGE];
                    let _ = space.migrate(part, MemoryId((count % 3) as u8));
                })
            });
            std::thread::sleep(Duration::from_millis(20));
            QUIET.store(false, SeqCst);
            std::thread::sleep(seconds());
            stop.store(true, SeqCst);
            assert!(mover.join().unwrap() > 1);
            (toucher.join().unwrap(), launcher.join().unwrap())
        });
        let sum = |slot: usize| -> u64 {
            (0..PAGES).map(|page| words[page * PAGE + slot].load(SeqCst)).sum()
        };
        assert_eq!(sum(0), touched + 20 * launched);
        assert_eq!(sum(1), 20 * launched);
        assert_eq!(sum(HANDLERS), HANDLED.load(SeqCst));
        assert!(touched > 0 && launched > 1 && HANDLED.load(SeqCst) > 10);
        space.check().unwrap();
        WORDS.store(0, SeqCst);
    });
}

/// A bug of the runtime, once it is armed.
fn panic_at_card_map(command: &Command) {
    assert!(QUIET.load(SeqCst) || command.name() != "card-map", "a bug of the runtime");
}

#[test]
fn invariant_24_a_bug_of_the_runtime_ends_the_program_and_frees_its_cards() {
    const NAME: &str = "invariant_24_a_bug_of_the_runtime_ends_the_program_and_frees_its_cards";
    if let Some(role) = role() {
        let place = CardPlace::Socket(role.into());
        let space = builder([place]).probe(panic_at_card_map).build().unwrap();
        let mut data = space.alloc::<u64>(8 * PAGE).unwrap();
        QUIET.store(false, SeqCst);
        let _ = space.kernel("farside.increment").call(Write(&mut data));
        return;
    }
    within(LIMIT, NAME, || {
        let folder = TempDir::new();
        let server = serve(config(&folder, 0));
        let path = &server.config().folder;
        let ended = Child::new(NAME, &path.display().to_string()).run();
        ended.expect_signal(libc::SIGABRT);
        assert!(ended.text.contains("the runtime panicked"), "{}", ended.text);
        await_status(path, |status| status.functions.iter().all(|f| f.user.is_none()));
    });
}

#[test]
fn invariant_15_more_faults_than_a_cards_queue_holds_are_all_served_over_rings() {
    within(LIMIT, "queue full", || {
        // 24 processing elements, two entries: the others wait for room.
        const PES: usize = 24;
        let folder = TempDir::new();
        let geometry = Geometry { fault_entries: 2, ..Geometry::default() };
        let config = CardConfig { geometry, pes: PES as u16, frames: 8, ..config(&folder, 0) };
        let server = serve(config);
        let space = builder([place(&server)]).build().unwrap();
        let words = space.alloc_atomic::<AtomicU64>(PAGES * PAGE, "words").unwrap();
        space.scope(|s| {
            for pe in 0..PES as u64 {
                let args = (Shared(&words[..]), Value(1 + pe), Value(20u64), Value(pe));
                s.kernel("test.race").launch_call(args).unwrap();
            }
        });
        let sum = |slot: usize| -> u64 {
            (0..PAGES).map(|page| words[page * PAGE + slot].load(SeqCst)).sum()
        };
        assert_eq!(sum(0), 20 * PES as u64);
        assert!((1..=PES).all(|pe| sum(pe) == 20));
        let status = server.status().unwrap();
        let counters = &status.functions[0].user.as_ref().unwrap().counters;
        assert!(counters["fault_queue_full"] > 0, "the queue was never full: {counters:?}");
        space.check().unwrap();
    });
}
