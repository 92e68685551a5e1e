//! Words of kernels beside what is done to their pages. Those of the card are moved beside runs, which lose
//! none. Those that a client shares take no lock either, and go where its windows lead at that moment,
//! and nowhere else.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use farside_card::{BusError, Card, Drained, Location, MappedRun};
use farside_linux::lock::lock;
use farside_linux::shared::SharedMemory;
use farside_types::{
    Asid, CommandId, FrameNo, JobId, MemoryId, PAGE_SIZE, PageNo, PageRange, PeId, Rights,
};
use farside_vfio_user::{DmaMap, DmaUnmap};

use super::leased_function::{OWN, frames};
use super::staging::Wire;
use super::stray;
use super::tests::Fixture;
use crate::job::{Granted, Job, Lent};
use crate::kernel::KernelContext;
use crate::span::{AtomicSpan, Ptr};

const PAGE: u64 = PAGE_SIZE as u64;
/// A page on the bus.
const BUS_PAGE: u32 = 1 << 22;
const BUS: u64 = BUS_PAGE as u64 * PAGE;
/// Where kernels see it.
const ADDR: u64 = 0x7000_0000;
const WORDS: usize = PAGE_SIZE / 8;
const WINDOW: DmaUnmap = DmaUnmap::Range { address: BUS, size: PAGE };

/// A function whose card has the page mapped.
fn fixture() -> Fixture {
    let fixture = Fixture::new();
    stray::watch(fixture.leased.windows.bus()).unwrap();
    let location = Location::new(MemoryId::HOST, FrameNo(BUS_PAGE));
    let run = MappedRun { page: PageNo(ADDR / PAGE), count: 1, location };
    let mut model = lock(&fixture.leased.card.model);
    model.map(Asid(0), std::iter::once(run), Rights::ReadWrite).unwrap();
    drop(model);
    fixture
}

/// A kernel that may touch the words of some pages.
fn kernel(fixture: &Fixture) -> KernelContext {
    // SAFETY: these tests touch the pages by whole words only, or move them as a driver does.
    let grant = unsafe { Granted::new(ADDR, 16 * PAGE, Lent::Shared { word: 8 }) };
    let body = Box::new(|_: &mut KernelContext| Ok(()));
    let job = Job::new(JobId(1), (OWN, Asid(0)), "words".into(), vec![grant], None, body);
    let leased = Arc::clone(&fixture.leased);
    KernelContext::new(Arc::clone(&leased.card), leased, job, PeId(0))
}

fn word(index: usize) -> Ptr<u64> {
    Ptr::at(ADDR).offset(index)
}

fn memory() -> SharedMemory {
    SharedMemory::new(PAGE).unwrap()
}

fn bytes_of(memory: &SharedMemory) -> Vec<u8> {
    let mut bytes = vec![0; PAGE_SIZE];
    memory.read(0, &mut bytes).unwrap();
    bytes
}

#[test]
fn words_in_shared_memory_ask_the_card_for_a_few_of_them_only_and_all_are_counted() {
    const TURNS: u64 = 20;
    let (fixture, memory) = (fixture(), memory());
    fixture.share(BUS, &memory, 0, PAGE, true);
    let mut k = kernel(&fixture);
    let at: Vec<Ptr<u64>> = (0..WORDS).map(word).collect();
    let mut values = vec![0u64; WORDS];
    for turn in 0..TURNS {
        let put: Vec<u64> = (0..WORDS as u64).map(|index| turn * 1000 + index).collect();
        k.scatter(&at, &put).unwrap();
        k.gather(&at, &mut values).unwrap();
        assert_eq!(values, put);
        assert_eq!(k.load(word(7)).unwrap(), put[7]);
        let seen: Vec<u8> = put.iter().flat_map(|word| word.to_ne_bytes()).collect();
        assert_eq!(bytes_of(&memory), seen, "what the client sees");
    }
    let accesses = TURNS * (2 * WORDS as u64 + 1);
    let stats = lock(&fixture.leased.card.model).stats();
    let asked = stats.l1_hits + stats.l2_hits + stats.flexible_hits + stats.misses;
    assert!(asked < accesses / 8, "{asked} of {accesses} asked the card");
    let uncounted = accesses - stats.remote_accesses;
    assert!(uncounted <= 31, "{uncounted} of {accesses} were not counted");
}

/// A kernel stores to the page all the while, which the client takes away and shares again as another
/// memory, by turns. Gives how many words landed in one that had been taken away.
fn words_after_unmap(rounds: usize, unmap: impl Fn(&Fixture)) -> usize {
    let (fixture, stop) = (fixture(), AtomicBool::new(false));
    let memories = [memory(), memory()];
    let first = |memory: &SharedMemory| memory.load(0).unwrap();
    std::thread::scope(|s| {
        s.spawn(|| {
            let mut k = kernel(&fixture);
            let at: Vec<Ptr<u64>> = (0..WORDS).map(word).collect();
            for turn in 1u64.. {
                if stop.load(Ordering::SeqCst) {
                    return;
                }
                k.store(word(0), turn).unwrap();
                k.scatter(&at, &vec![turn; WORDS]).unwrap();
            }
        });
        let mut landed = 0;
        for round in 0..rounds {
            let memory = &memories[round % 2];
            let before = first(memory);
            fixture.share(BUS, memory, 0, PAGE, true);
            while first(memory) == before {
                std::thread::yield_now();
            }
            unmap(&fixture);
            let left = bytes_of(memory);
            // Time for stores that are still on their way.
            std::thread::sleep(std::time::Duration::from_millis(2));
            landed += usize::from(bytes_of(memory) != left);
        }
        stop.store(true, Ordering::SeqCst);
        landed
    })
}

#[test]
fn no_word_lands_in_memory_whose_window_was_taken_away() {
    assert_eq!(words_after_unmap(150, |fixture| fixture.leased.windows.unmap(WINDOW)), 0);
}

#[test]
fn control_a_window_that_is_only_forgotten_is_written_to() {
    // A store has to be under way just then: beside other work it takes some turns.
    let caught = || words_after_unmap(20, |fixture| fixture.leased.windows.forget_only(BUS)) > 0;
    assert!((0..100).any(|_| caught()));
}

/// Pages that are moved, of the card's own memory; one frame more is free.
const MOVED: u32 = 8;

/// Moves pages beside a kernel that adds to them by runs, until a word is lost, or so often. `take_away`
/// makes entries invalid, and waits for the words of before. Gives whether one was lost.
fn moves_lose_words(moves: u32, take_away: impl Fn(&mut Card, PageRange)) -> bool {
    let (fixture, stop) = (Fixture::new(), AtomicBool::new(false));
    let leased = &fixture.leased;
    let page_at = |page: u32| PageNo(ADDR / PAGE + u64::from(page));
    let run = |page, frame| {
        let location = Location::new(OWN.memory(), FrameNo(frame));
        std::iter::once(MappedRun { page: page_at(page), count: 1, location })
    };
    for page in 0..MOVED {
        lock(&leased.card.model).map(Asid(0), run(page, page), Rights::ReadWrite).unwrap();
    }
    let frame = |frame| frames(leased, frame, 1).unwrap().as_ptr();
    let mut at: Vec<u32> = (0..MOVED).collect();
    let mut free = MOVED;
    let runs = std::thread::scope(|s| {
        let adds = s.spawn(|| {
            let mut k = kernel(&fixture);
            let words = AtomicSpan::<AtomicU64>::raw(ADDR, MOVED as usize * WORDS);
            // Two words of each page: half a batch.
            let run: Vec<(usize, u64)> =
                (0..2 * MOVED as usize).map(|at| (at * WORDS / 2, 1)).collect();
            let mut runs = 0u64;
            while !stop.load(Ordering::SeqCst) {
                k.fetch_add_all(words, &run, None).unwrap();
                runs += 1;
            }
            runs
        });
        for turn in 0..moves {
            let page = turn % MOVED;
            let mut model = lock(&leased.card.model);
            let range = PageRange::page(page_at(page));
            take_away(&mut model, range);
            // SAFETY: the frames are the function's. Nobody uses the free one; whoever uses the other
            // does so by whole words, and any mixture of them is what this looks for.
            unsafe {
                frame(free).copy_from_nonoverlapping(frame(at[page as usize]), PAGE_SIZE);
                frame(at[page as usize]).write_bytes(0x55, PAGE_SIZE);
            }
            // Whatever was left out: TLBs, and drains.
            assert_eq!(model.unmap(CommandId(1), Asid(0), std::iter::once(range)), Drained::Now);
            model.map(Asid(0), run(page, free), Rights::ReadWrite).unwrap();
            std::mem::swap(&mut free, &mut at[page as usize]);
        }
        stop.store(true, Ordering::SeqCst);
        adds.join().unwrap()
    });
    let count = |index: usize| {
        let page = frame(at[index / 2]).wrapping_add(index % 2 * PAGE_SIZE / 2);
        // SAFETY: as above; the kernel has ended.
        unsafe { page.cast::<u64>().read() }
    };
    (0..2 * MOVED as usize).any(|index| count(index) != runs)
}

#[test]
fn no_word_of_a_run_is_lost_while_its_pages_are_moved() {
    let unmap = |card: &mut Card, range| {
        assert_eq!(card.unmap(CommandId(1), Asid(0), std::iter::once(range)), Drained::Now);
    };
    assert!(!moves_lose_words(100_000, unmap));
}

#[test]
fn control_pages_that_are_moved_without_waiting_for_runs_lose_words() {
    let clear = |card: &mut Card, range| {
        card.tables_mut().unwrap().unmap(Asid(0), range, |_, _| {});
    };
    // A run has to be under way just then: on a machine with one processor it takes some turns.
    assert!((0..200).any(|_| moves_lose_words(20_000, clear)));
}

/// A client's page that is reached by messages.
struct Page(Mutex<Vec<u8>>);

impl Wire for Page {
    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), BusError> {
        let start = (address - BUS) as usize;
        into.copy_from_slice(&lock(&self.0)[start..start + into.len()]);
        Ok(())
    }

    fn write(&self, address: u64, from: &[u8]) -> Result<(), BusError> {
        let start = (address - BUS) as usize;
        lock(&self.0)[start..start + from.len()].copy_from_slice(from);
        Ok(())
    }
}

/// A kernel has words of a page under way by pointers; then the client shares another page there, by
/// messages. Gives what the kernel finds in it; what it stores is to come to the client.
fn found_by_messages(map: impl Fn(&Fixture, DmaMap)) -> (u64, u64) {
    let (fixture, memory) = (fixture(), memory());
    fixture.share(BUS, &memory, 0, PAGE, true);
    let mut k = kernel(&fixture);
    // Few enough that none of them has to ask.
    for index in 0..8 {
        k.store(word(index), 1).unwrap();
    }
    fixture.leased.windows.unmap(WINDOW);
    let page = Arc::new(Page(Mutex::new(2u64.to_ne_bytes().repeat(WORDS))));
    fixture.leased.staging.connect(page.clone());
    let (readable, writable) = (true, true);
    map(&fixture, DmaMap { address: BUS, size: PAGE, readable, writable, fd: None, offset: 0 });
    let mut found = [0; 1];
    k.gather(&[word(5)], &mut found).unwrap();
    k.store(word(6), 3).unwrap();
    fixture.leased.with(|_, _, _| ());
    let stored = lock(&page.0)[6 * 8..7 * 8].try_into().unwrap();
    (found[0], u64::from_ne_bytes(stored))
}

#[test]
fn words_of_a_page_that_is_reached_by_messages_from_now_on_are_brought_by_them() {
    assert_eq!(found_by_messages(|fixture, map| fixture.leased.map(map).unwrap()), (2, 3));
}

#[test]
fn control_words_that_are_not_disturbed_miss_a_page_that_comes_by_messages() {
    let missed = found_by_messages(|fixture, map| fixture.leased.windows.map(map).unwrap());
    assert_eq!(missed, (0, 2), "they found what is nobody's");
}
