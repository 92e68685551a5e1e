//! Nobody who serves a fault calls the program's allocator, in whatever thread: whoever waits for the page may
//! be inside it. Counted in the whole process, while faults of one kind are served and nothing else goes on.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use farside::{
    AtomicSpan, Buffer, CardId, KernelContext, KernelError, Shared, Space, SpaceBuilder, Value,
};
use farside_softcard::serve::CardConfig;
use harness::live::served::{CardProcess, TempDir, config, serve_if_asked, test_kernels};
use harness::live::within;

struct Counting;

static WATCHED: AtomicBool = AtomicBool::new(false);
static CALLS: AtomicU64 = AtomicU64::new(0);

fn note() {
    if WATCHED.load(SeqCst) {
        CALLS.fetch_add(1, SeqCst);
    }
}

// SAFETY: everything is passed on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note();
        // SAFETY: the caller's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        note();
        // SAFETY: the caller's.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        note();
        // SAFETY: the caller's.
        unsafe { System.realloc(memory, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const LIMIT: Duration = Duration::from_secs(60);
/// Words of a page.
const PAGE: usize = 512;
/// Pages of the memory that is faulted on, in each half.
const PAGES: usize = 1024;

/// Calls of the allocator in the process while `work` is done.
fn calls(work: impl FnOnce()) -> u64 {
    // Threads that have just begun allocate for themselves.
    std::thread::sleep(Duration::from_millis(100));
    CALLS.store(0, SeqCst);
    WATCHED.store(true, SeqCst);
    work();
    WATCHED.store(false, SeqCst);
    CALLS.load(SeqCst)
}

fn builder() -> SpaceBuilder {
    Space::builder().address_space(64 << 20)
}

/// Page numbers that jump about.
fn scattered(pages: usize) -> impl Iterator<Item = usize> {
    (0..pages).map(move |at| at * 997 % pages)
}

/// The host reads or changes a word of each page.
fn touch(data: &mut [u64], write: bool) {
    let pages = data.len() / PAGE;
    for page in scattered(pages) {
        let word = &raw mut data[page * PAGE + 3];
        // SAFETY: a word of `data`, which is borrowed.
        unsafe {
            let value = word.read_volatile();
            if write {
                word.write_volatile(value + 1);
            }
        }
    }
}

fn faults_of_the_host_on_pages_of_a_card() {
    let space = builder().cards(1).build().unwrap();
    let mut data = space.alloc::<u64>(PAGES * PAGE).unwrap();
    touch(&mut data, true);
    for write in [false, true] {
        space.migrate(&data, CardId(0)).unwrap();
        let before = space.report().stats.host_faults;
        let calls = calls(|| touch(&mut data, write));
        assert!(space.report().stats.host_faults - before >= PAGES as u64 / 16);
        assert_eq!(calls, 0);
    }
}

fn the_first_touch_of_pages() {
    let space = builder().cards(1).build().unwrap();
    let mut data = space.alloc::<u64>(PAGES * PAGE).unwrap();
    assert_eq!(calls(|| touch(&mut data, true)), 0);
}

/// Runs `body` in a kernel on card 0 over `words`, and counts meanwhile.
fn in_kernel<F>(space: &Space, words: &Buffer<AtomicU64>, body: F) -> u64
where
    F: Fn(&mut KernelContext, AtomicSpan<AtomicU64>) -> Result<(), KernelError> + Send + 'static,
{
    let body = move |k: &mut KernelContext, words: AtomicSpan<AtomicU64>| {
        // What a kernel needs for itself, it gets with its first word.
        k.fetch_add(words, 0, 1u64)?;
        let mut result = Ok(());
        let calls = calls(|| result = body(k, words));
        result.map(|()| calls)
    };
    space.kernel("faults").on(CardId(0)).run(Shared(words), body).unwrap()
}

fn words(space: &Space) -> Buffer<AtomicU64> {
    let words = space.alloc_atomic::<AtomicU64>(PAGES * PAGE, "words").unwrap();
    words.iter().step_by(PAGE).for_each(|word| word.store(1, SeqCst));
    words
}

/// A word of each page, scattered.
fn add(k: &mut KernelContext, words: AtomicSpan<AtomicU64>) -> Result<(), KernelError> {
    scattered(PAGES).try_for_each(|page| k.fetch_add(words, page * PAGE + 3, 1u64).map(drop))
}

fn faults_of_a_card_in_the_program_from_the_first_on() {
    let space = builder().cards(1).build().unwrap();
    let words = words(&space);
    let counted = in_kernel(&space, &words, add);
    assert_eq!(counted, 0);
    assert!(space.report().stats.card_faults >= PAGES as u64 / 512);
}

fn faults_and_evictions_of_a_full_card() {
    let space = builder().cards(1).card_memory(1 << 20).build().unwrap();
    let words = words(&space);
    let counted = in_kernel(&space, &words, |k, words| (0..3).try_for_each(|_| add(k, words)));
    assert_eq!(counted, 0);
    assert!(space.report().stats.evictions >= PAGES as u64);
}

fn a_page_that_a_card_and_the_host_take_from_each_other() {
    let space = builder().cards(1).build().unwrap();
    let words = words(&space);
    let (own, done) = (&words, &AtomicBool::new(false));
    let counted = std::thread::scope(|scope| {
        let host = scope.spawn(move || {
            while !done.load(SeqCst) {
                scattered(PAGES).for_each(|page| _ = own[page * PAGE + 3].fetch_add(1, SeqCst));
            }
        });
        let counted = in_kernel(&space, own, |k, words| (0..5).try_for_each(|_| add(k, words)));
        done.store(true, SeqCst);
        host.join().unwrap();
        counted
    });
    assert_eq!(counted, 0);
    assert!(space.report().stats.host_faults > 16);
}

/// Faults on both sides of a card of another process, whose commands and answers travel by rings. The launch
/// of a kernel allocates, however many pages it faults on.
fn faults_of_a_card_in_a_process_of_its_own() {
    let folder = TempDir::new();
    let config = CardConfig { frames: 2 * PAGES as u32, ..config(&folder, 0) };
    let card = CardProcess::start("serves_a_card", &config);
    let tune = |config: &mut farside_svm::Config| {
        config.prefetch.host_fault_around = 1;
        config.prefetch.density_percent = 100;
    };
    let space = builder().cards_at([card.place()]).kernels(test_kernels()).tune(tune).build();
    let space = space.unwrap();
    let words = words(&space);
    let one = Value(1u64);
    let pass = |pages: usize| {
        let some = &words[..pages * PAGE];
        let card = calls(|| {
            space.kernel("test.affine").call((Shared(some), one, one)).unwrap();
        });
        // One after the other: a window of pages comes with a fault.
        let host =
            calls(|| some.iter().step_by(PAGE).for_each(|word| _ = word.fetch_add(1, SeqCst)));
        (card, host)
    };
    let clean = || {
        let before = space.report().stats;
        let (few, many) = (pass(16), pass(PAGES));
        let after = space.report().stats;
        assert!(after.card_faults - before.card_faults > PAGES as u64 / 2);
        assert!(after.host_faults - before.host_faults > PAGES as u64 / 2);
        (few.1, many.1) == (0, 0) && few.0 == many.0
    };
    // A card that is slow to answer has more chains under way than there were before, which are kept.
    assert!((0..20).any(|_| clean()), "every pass allocates");
}

/// The card's process of the test above.
#[test]
fn serves_a_card() {
    serve_if_asked(|config| config);
}

fn control_an_allocation_is_counted() {
    let space = builder().cards(1).build().unwrap();
    let words = words(&space);
    let counted = in_kernel(&space, &words, |k, words| {
        std::hint::black_box(Box::new(7));
        add(k, words)
    });
    assert_eq!(counted, 2, "made, and given back");
}

/// One test, so that no other thread of the test's frame allocates meanwhile.
#[test]
fn nobody_who_serves_a_fault_calls_the_allocator() {
    within(LIMIT, "allocations", || {
        the_first_touch_of_pages();
        faults_of_the_host_on_pages_of_a_card();
        faults_of_a_card_in_the_program_from_the_first_on();
        faults_and_evictions_of_a_full_card();
        a_page_that_a_card_and_the_host_take_from_each_other();
        faults_of_a_card_in_a_process_of_its_own();
        control_an_allocation_is_counted();
    });
}
