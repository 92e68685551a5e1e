//! Signals whose handlers touch shared memory, during every step of every kind of move.
//!
//! The probe is called before each step of a migration; it sends a signal to the threads of the
//! program at that very moment. If a handler could run on a thread that carries a step out, it
//! would wait for itself: the test would hang.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use farside::{CardId, KernelContext, MemoryId, Shared, Space};
use farside_live::Probe;
use farside_svm::Command;
use harness::live::{must_be_caught, seconds, within};

const LIMIT: Duration = Duration::from_secs(60);
/// Words of a page.
const PAGE: usize = 512;
const PAGES: usize = 16;

/// The word that the handler increments on each page; the others belong to the threads.
const HANDLERS: usize = 7;

static WORDS: AtomicUsize = AtomicUsize::new(0);
static HANDLED: AtomicU64 = AtomicU64::new(0);
static SENT: AtomicU64 = AtomicU64::new(0);
static QUIET: AtomicBool = AtomicBool::new(true);
/// Threads of the program that take signals.
static THREADS: [AtomicUsize; 3] = [const { AtomicUsize::new(0) }; 3];
/// Steps seen, by name.
static STEPS: [(&str, AtomicU64); 7] = [
    ("host-unmap", AtomicU64::new(0)),
    ("host-map", AtomicU64::new(0)),
    ("copy", AtomicU64::new(0)),
    ("fill", AtomicU64::new(0)),
    ("card-unmap", AtomicU64::new(0)),
    ("card-map", AtomicU64::new(0)),
    ("card-resume", AtomicU64::new(0)),
];

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

fn strike(command: &Command) {
    if let Some((_, seen)) = STEPS.iter().find(|(name, _)| *name == command.name()) {
        seen.fetch_add(1, SeqCst);
    }
    if QUIET.load(SeqCst) {
        return;
    }
    for thread in &THREADS {
        let thread = thread.load(SeqCst);
        if thread != 0 {
            // SAFETY: a thread takes its number out of the list before it ends.
            unsafe { libc::pthread_kill(thread as libc::pthread_t, libc::SIGUSR1) };
            SENT.fetch_add(1, SeqCst);
        }
    }
}

fn install(signal: libc::c_int, flags: libc::c_int) {
    // SAFETY: the handler only uses atomics; the structure is zero but for handler and flags.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = touch as extern "C" fn(libc::c_int) as usize;
        action.sa_flags = flags;
        assert_eq!(libc::sigaction(signal, &action, std::ptr::null_mut()), 0);
    }
}

/// Runs `body` on a thread that takes signals, until told to stop.
fn taking_signals(index: usize, stop: &AtomicBool, mut body: impl FnMut()) {
    // SAFETY: asks for the calling thread's own number.
    THREADS[index].store(unsafe { libc::pthread_self() } as usize, SeqCst);
    while !stop.load(SeqCst) {
        body();
    }
    QUIET.store(true, SeqCst);
    THREADS[index].store(0, SeqCst);
    // A probe that read the number just before must not find the thread gone.
    std::thread::sleep(Duration::from_millis(50));
}

#[test]
fn invariant_23_signals_in_every_step_of_every_move_lose_nothing_and_block_nothing() {
    within(LIMIT, "signals", || {
        install(libc::SIGUSR1, 0);
        install(libc::SIGALRM, libc::SA_RESTART);
        let probe: Probe = strike;
        let space = Space::builder()
            .cards(2)
            .card_memory(8 * 4096)
            .address_space(16 << 20)
            .probe(probe)
            .build()
            .unwrap();
        let words = space.alloc_atomic::<AtomicU64>(PAGES * PAGE, "signalled").unwrap();
        WORDS.store(words.as_ptr() as usize, SeqCst);
        let timer = |micros| {
            let every = libc::timeval { tv_sec: 0, tv_usec: micros };
            let value = libc::itimerval { it_interval: every, it_value: every };
            // SAFETY: the structure is valid; nothing else uses the process's real timer.
            unsafe { libc::setitimer(libc::ITIMER_REAL, &value, std::ptr::null_mut()) }
        };
        let stop = AtomicBool::new(false);
        let (mut touched, mut launched, mut moved) = (0u64, 0u64, 0u64);
        std::thread::scope(|s| {
            // One touches pages, one runs kernels, one moves pages: all three are interrupted.
            let (words, space, stop) = (&words, &space, &stop);
            let toucher = s.spawn(move || {
                let mut count = 0u64;
                taking_signals(0, stop, || {
                    words[count as usize % PAGES * PAGE].fetch_add(1, SeqCst);
                    count += 1;
                });
                count
            });
            let launcher = s.spawn(move || {
                let mut count = 0u64;
                taking_signals(1, stop, || {
                    let body = |k: &mut KernelContext, words| {
                        (0..PAGES).try_for_each(|p| k.fetch_add(words, p * PAGE + 1, 1).map(drop))
                    };
                    let card = CardId((count % 2) as u8);
                    space.kernel("signalled").on(card).run(Shared(words), body).unwrap();
                    count += 1;
                });
                count
            });
            let mover = s.spawn(move || {
                let mut count = 0u64;
                taking_signals(2, stop, || {
                    let part = &words[..PAGES / 2 * PAGE];
                    let _ = space.migrate(part, MemoryId((count % 3) as u8));
                    let _ = space.locate(part);
                    count += 1;
                });
                count
            });
            std::thread::sleep(Duration::from_millis(20));
            QUIET.store(false, SeqCst);
            timer(900);
            std::thread::sleep(seconds());
            timer(0);
            stop.store(true, SeqCst);
            touched = toucher.join().unwrap();
            launched = launcher.join().unwrap();
            moved = mover.join().unwrap();
        });
        std::thread::sleep(Duration::from_millis(20));
        let sum = |slot: usize| -> u64 {
            (0..PAGES).map(|page| words[page * PAGE + slot].load(SeqCst)).sum()
        };
        assert_eq!(sum(0), touched);
        assert_eq!(sum(1), launched * PAGES as u64);
        assert_eq!(sum(HANDLERS), HANDLED.load(SeqCst));
        assert!(touched > 0 && launched > 1 && moved > 1, "{touched} {launched} {moved}");
        let (sent, handled) = (SENT.load(SeqCst), HANDLED.load(SeqCst));
        assert!(sent > 100 && handled > 10, "{sent} signals sent, {handled} taken");
        for (name, seen) in &STEPS {
            assert!(*name == "fill" || seen.load(SeqCst) > 0, "no signal met the step {name}");
        }
        space.check().unwrap();
        WORDS.store(0, SeqCst);
    });
}

/// Does on the thread that carries a step out what a handler must not do there.
fn touch_here(command: &Command) {
    if !QUIET.load(SeqCst) && command.name() == "host-map" {
        touch(libc::SIGUSR1);
    }
}

#[test]
fn control_a_handler_on_a_thread_that_carries_a_step_out_waits_for_itself() {
    let name = "control_a_handler_on_a_thread_that_carries_a_step_out_waits_for_itself";
    must_be_caught(name, || {
        std::thread::spawn(|| {
            std::thread::sleep(Duration::from_secs(2));
            println!("CAUGHT: it hangs");
            std::process::exit(0);
        });
        let builder = Space::builder().cards(1).address_space(16 << 20).probe(touch_here);
        let space = builder.build().map_err(|error| error.to_string())?;
        let words = space.alloc_atomic::<AtomicU64>(PAGES * PAGE, "signalled").unwrap();
        WORDS.store(words.as_ptr() as usize, SeqCst);
        space.migrate(&words, CardId(0)).unwrap();
        QUIET.store(false, SeqCst);
        words[0].fetch_add(1, SeqCst);
        Ok(())
    });
}
