//! Adopted memory where two things meet: emptied and pinned, emptied by a thread that does not run, two spaces side
//! by side, a fork beside locks, memory that could not be given back.

use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use farside::{
    AdoptError, CardId, Error, KernelContext, KernelError, LiveError, Read, ReadSpan, ReadView,
    Shared, Space, Write, WriteSpan, WriteView,
};
use harness::live::mapped::Mapped;
use harness::live::nth_call::{NthCall, PAGING_CALLS};
use harness::live::{Child, in_child, role, within};

const LIMIT: Duration = Duration::from_secs(60);
/// Words of a page.
const PAGE: usize = 512;

fn space(cards: usize) -> Space {
    lock_around_forks();
    Space::builder().cards(cards).card_memory(8 << 20).address_space(64 << 20).build().unwrap()
}

fn add_one(k: &mut KernelContext, data: WriteSpan<u64>) -> Result<(), KernelError> {
    k.with(data, |mut data: WriteView<u64>| data.iter_mut().for_each(|word| *word += 1))
}

fn first_word(k: &mut KernelContext, data: ReadSpan<u64>) -> Result<u64, KernelError> {
    k.with(data, |data: ReadView<u64>| data[0])
}

/// The kernel's `madvise(MADV_DONTNEED)` of pages that the caller wants empty.
fn empty(addr: usize, pages: usize) {
    // SAFETY: the pages are a test's own, and its references to them are of words that may change.
    let done = unsafe { libc::madvise(addr as *mut _, pages * 4096, libc::MADV_DONTNEED) };
    assert_eq!(done, 0);
}

#[test]
fn what_is_emptied_is_zero_for_the_next_kernel_also_where_it_is_pinned_at_a_card() {
    within(LIMIT, "emptied and pinned", || {
        let space = space(2);
        let card = space.card(0).unwrap();
        // All of it is pinned, or a part that ends in the middle of what is emptied.
        for pinned in [12, 5] {
            let memory = Mapped::new(12, 4096);
            // SAFETY: nobody else has the words.
            let words = unsafe { memory.words() };
            words.fill(7);
            let mut data = space.adopt(words, "mine").unwrap();
            space.migrate(&data, card).unwrap();
            space.pin(&data[..pinned * PAGE], card).unwrap();
            for round in 1..=3 {
                space.kernel("add").on(card).run(Write(&mut data), add_one).unwrap();
                empty(memory.page(3) as usize, 4);
                space.kernel("add").on(card).run(Write(&mut data), add_one).unwrap();
                space.kernel("add").on(card).run(Write(&mut data), add_one).unwrap();
                for (at, &word) in data.iter().enumerate() {
                    let right = if (3..7).contains(&(at / PAGE)) { 2 } else { 7 + 3 * round };
                    assert_eq!(word, right, "word {at}, round {round}, {pinned} pages pinned");
                }
            }
            // The pin is what it was.
            space.kernel("add").on(card).run(Write(&mut data), add_one).unwrap();
            let parts = space.locate(&data[..pinned * PAGE]).unwrap();
            assert!(parts.iter().all(|part| part.copies.contains(card.memory())), "{parts:?}");
            space.unpin(&data[..pinned * PAGE]).unwrap();
            data.release().unwrap();
        }
        space.check().unwrap();
    });
}

#[test]
fn a_space_that_gives_memory_back_leaves_the_next_page_of_another_space_protected() {
    within(LIMIT, "two spaces", || {
        let (left, right) = (space(1), space(1));
        let memory = Mapped::new(8, 4096);
        // SAFETY: nobody else has the words.
        let words = unsafe { memory.words() };
        words.fill(1);
        let (one, two) = words.split_at_mut(4 * PAGE);
        let mut two = right.adopt(two, "two").unwrap();
        for round in 1..=20 {
            let mut mine = left.adopt(one, "one").unwrap();
            left.kernel("add").run(Write(&mut mine), add_one).unwrap();
            right.advise(&two, farside::Advice::ReadMostly(true)).unwrap();
            // The card has a copy, and so has the host, which is told before it writes.
            let seen = right.kernel("read").run(Read(&two[..]), first_word).unwrap();
            assert_eq!((seen, two[0]), (round, round));
            mine.release().unwrap();
            two[0] += 1;
            let seen = right.kernel("read").run(Read(&two[..]), first_word).unwrap();
            assert_eq!(seen, round + 1, "what the host has written since");
        }
        two.release().unwrap();
        left.check().unwrap();
        right.check().unwrap();
    });
}

/// A lock of the program's, which it holds while it forks, as an allocator does.
static LOCK: AtomicBool = AtomicBool::new(false);

extern "C" fn take() {
    while LOCK.swap(true, SeqCst) {
        std::thread::sleep(Duration::from_micros(50));
    }
}

extern "C" fn give() {
    LOCK.store(false, SeqCst);
}

/// Registered before anything is adopted, so that it is taken after the pages were brought home.
fn lock_around_forks() {
    static ONCE: Once = Once::new();
    // SAFETY: the functions are of this program, and use nothing but an atomic.
    ONCE.call_once(|| unsafe {
        assert_eq!(libc::pthread_atfork(Some(take), Some(give), Some(give)), 0);
    });
}

/// What a thread does to adopted memory under a lock that is taken around forks, while the program forks.
fn beside_forks(what: &str, touch: impl Fn(&[AtomicU64]) + Sync) {
    within(LIMIT, what, || {
        let space = space(1);
        let memory = Mapped::new(64, 4096);
        // SAFETY: they are used as atomic words from here on.
        let data = space.adopt(unsafe { memory.words() }, "mine").unwrap();
        // SAFETY: as above; the guard outlives them.
        let words =
            unsafe { std::slice::from_raw_parts(data.as_ptr().cast::<AtomicU64>(), data.len()) };
        let stop = AtomicBool::new(false);
        std::thread::scope(|threads| {
            threads.spawn(|| {
                let mut at = 0;
                while !stop.load(SeqCst) {
                    take();
                    std::thread::sleep(Duration::from_millis(2));
                    touch(&words[at % 64 * PAGE..][..PAGE]);
                    at += 1;
                    give();
                    std::thread::sleep(Duration::from_micros(100));
                }
            });
            // A card takes all of it again and again.
            let taken = threads.spawn(|| {
                let mut taken = 0u64;
                while !stop.load(SeqCst) {
                    let count = |k: &mut KernelContext, words: farside::AtomicSpan<AtomicU64>| {
                        (1..words.len())
                            .step_by(PAGE)
                            .try_for_each(|at| k.fetch_add(words, at, 1).map(drop))
                    };
                    space.kernel("count").run(Shared(words), count).unwrap();
                    taken += 1;
                }
                taken
            });
            for _ in 0..40 {
                assert_eq!(in_child(|| 0), 0);
            }
            stop.store(true, SeqCst);
            assert!(taken.join().unwrap() > 0);
        });
        space.check().unwrap();
    });
}

#[test]
fn a_program_forks_while_a_thread_writes_adopted_memory_under_a_lock_of_the_fork() {
    beside_forks("write under a lock", |page| {
        page[0].fetch_add(1, SeqCst);
    });
}

#[test]
fn a_program_forks_while_a_thread_empties_adopted_memory_under_a_lock_of_the_fork() {
    beside_forks("madvise under a lock", |page| empty(page.as_ptr() as usize, 1));
}

fn used_though_not_home(calls: &NthCall) {
    let the_move = PAGING_CALLS.iter().position(|call| call.name == "UFFDIO_MOVE").unwrap();
    let the_copy = PAGING_CALLS.iter().position(|call| call.name == "UFFDIO_COPY").unwrap();
    for kind in [the_move, the_copy] {
        let space = space(2);
        let memory = Mapped::new(8, 4096);
        // SAFETY: nobody else has the words.
        let words = unsafe { memory.words() };
        words[..6 * PAGE].fill(1);
        let mut data = space.adopt(words, "mine").unwrap();
        space.kernel("add").on(CardId(0)).run(Write(&mut data[..4 * PAGE]), add_one).unwrap();
        space.fail_card(CardId(0)).unwrap();
        // Lost pages are made anew when the memory is given back.
        calls.fail(kind, 1, libc::ENOMEM);
        let error = data.release().map(|_| "given back").unwrap_err();
        assert!(calls.end(), "{} did not fail", PAGING_CALLS[kind].name);
        let not_home =
            matches!(error.error(), Error::Live(LiveError::Adopt(AdoptError::NotHome { .. })));
        assert!(not_home, "{}: {error}", PAGING_CALLS[kind].name);
        let data = error.into_guard().expect("it can be tried again");
        // What was not lost can be used, also the pages that were never touched: nobody waits for ever.
        let sum: u64 = data[4 * PAGE..].iter().sum();
        assert_eq!(sum, 2 * PAGE as u64);
        let again = data.release().map(|_| "given back").unwrap_err();
        let lost = Error::from(again);
        assert!(
            matches!(lost, Error::Live(LiveError::Adopt(AdoptError::Lost { pages: 4, .. }))),
            "{lost}"
        );
        // SAFETY: the guard is gone.
        let words = unsafe { memory.words() };
        assert!(words[..4 * PAGE].iter().all(|&word| word == 0));
        println!("it was tried again");
        space.check().unwrap();
    }
}

#[test]
fn what_could_not_be_given_back_can_be_used_and_given_back_again() {
    const TEST: &str = "what_could_not_be_given_back_can_be_used_and_given_back_again";
    if role().is_some() {
        return used_though_not_home(&NthCall::install());
    }
    within(LIMIT, TEST, || {
        let ended = Child::new(TEST, "not home").run();
        ended.expect_success();
        assert!(ended.text.contains("it was tried again"), "{}", ended.text);
    });
}

#[test]
fn what_a_starved_thread_empties_is_zero() {
    within(LIMIT, "starved", || {
        /// Emptying takes as long as it takes a kernel to ask for the last of them.
        const PAGES: usize = 2048;
        let space = space(1);
        let stop = AtomicBool::new(false);
        let mut late = 0;
        std::thread::scope(|threads| {
            let _stop = StopAtEnd(&stop);
            threads.spawn(|| {
                pin_to_first_processor();
                while !stop.load(SeqCst) {
                    std::hint::spin_loop();
                }
            });
            for round in 0..8 {
                let memory = Mapped::new(PAGES, 4096);
                // SAFETY: nobody else has the words.
                let words = unsafe { memory.words() };
                words.fill(9);
                let data = space.adopt(words, "mine").unwrap();
                let (start, begins) = (memory.start() as usize, AtomicBool::new(false));
                std::thread::scope(|inner| {
                    let emptied = inner.spawn(|| {
                        pin_to_first_processor();
                        run_last();
                        use_up_a_slice();
                        begins.store(true, SeqCst);
                        empty(start, PAGES);
                    });
                    while !begins.load(SeqCst) {
                        std::thread::yield_now();
                    }
                    // The driver has heard of it, and the thread has not run since.
                    std::thread::sleep(Duration::from_millis(5));
                    let begun = Instant::now();
                    let seen = space
                        .kernel("read")
                        .run(Read(&data[data.len() - PAGE..]), first_word)
                        .unwrap();
                    assert!(matches!(seen, 0 | 9), "{seen:?}");
                    late += u32::from(begun.elapsed() > Duration::from_millis(60));
                    emptied.join().unwrap();
                });
                let seen =
                    space.kernel("read").run(Read(&data[data.len() - PAGE..]), first_word).unwrap();
                assert_eq!(seen, 0, "round {round}, as a kernel sees it");
                assert!(data.iter().all(|&word| word == 0), "round {round}");
                data.release().unwrap();
            }
            println!("{late} kernels waited for long");
        });
        space.check().unwrap();
    });
}

/// Stops the thread beside a test also if that fails.
struct StopAtEnd<'a>(&'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

fn pin_to_first_processor() {
    // SAFETY: an empty set is all zeros; the calls read what they are given.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(0, &mut set);
        assert_eq!(libc::sched_setaffinity(0, size_of_val(&set), &set), 0);
    }
}

/// Whoever has had more than its share is the last to run again.
fn use_up_a_slice() {
    let used = || {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the call fills the structure.
        unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
        Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
    };
    let before = used();
    while used() < before + Duration::from_millis(4) {}
}

/// This thread runs when nobody else wants to.
fn run_last() {
    let priority = libc::sched_param { sched_priority: 0 };
    // SAFETY: the call reads what it is given.
    assert_eq!(unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &priority) }, 0);
}
