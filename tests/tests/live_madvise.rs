//! What a program asks of the kernel for shared memory, behind the library's back: `madvise`,
//! `mprotect`, `munmap`, `mremap`. It does what it says or is refused; no other byte is lost, and
//! nothing hangs.
//!
//! Each is tried on pages of which some are on the host and some on a card, in the midst of a buffer, so
//! that the kernel splits the mapping. In children: what touches memory that was taken away ends.

use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use farside::{
    Buffer, CardId, KernelContext, KernelError, MemoryId, Shared, Space, Write, WriteSpan,
};
use harness::live::{Child, role, seconds, within};

const LIMIT: Duration = Duration::from_secs(100);
/// Words of a page.
const PAGE: usize = 512;
const PAGES: usize = 64;
/// The pages that are on a card.
const ON_CARD: std::ops::Range<usize> = 32..64;
/// The pages that something is asked for.
const ASKED: std::ops::Range<usize> = 16..48;

fn space() -> Space {
    Space::builder().cards(2).address_space(16 << 20).build().unwrap()
}

fn add_one(k: &mut KernelContext, data: WriteSpan<u64>) -> Result<(), KernelError> {
    k.with(data, |mut data| data.iter_mut().for_each(|word| *word += 1))
}

/// Words that know where they are, some on the host and some on a card.
fn buffer(space: &Space) -> Buffer<u64> {
    let mut data = space.alloc::<u64>(PAGES * PAGE).unwrap();
    data.iter_mut().enumerate().for_each(|(at, word)| *word = 1000 + at as u64);
    space.migrate(&data[ON_CARD.start * PAGE..ON_CARD.end * PAGE], CardId(0)).unwrap();
    data
}

fn asked(data: &Buffer<u64>) -> (*mut c_void, usize) {
    let start = data[ASKED.start * PAGE..].as_ptr();
    (start.cast_mut().cast(), ASKED.len() * PAGE * 8)
}

/// Uses all of it on every agent: everything is as it was, but the pages for which `lost` holds are
/// zero.
fn use_all(space: &Space, data: &mut Buffer<u64>, lost: impl Fn(usize) -> bool) {
    for card in space.cards() {
        space.kernel("add one").on(card).run(Write(&mut *data), add_one).unwrap();
    }
    space.migrate(data, MemoryId::HOST).unwrap();
    data.iter_mut().for_each(|word| *word += 1);
    space.kernel("add one").run(Write(&mut *data), add_one).unwrap();
    for (at, word) in data.iter().enumerate() {
        let before = if lost(at / PAGE) { 0 } else { 1000 + at as u64 };
        assert_eq!(*word, before + 4, "word {at}, page {}", at / PAGE);
    }
    space.check().unwrap();
}

/// Advice that changes nothing but cost.
const HARMLESS: [(&str, i32); 14] = [
    ("DONTNEED", libc::MADV_DONTNEED),
    ("FREE", libc::MADV_FREE),
    ("HUGEPAGE", libc::MADV_HUGEPAGE),
    ("COLLAPSE", 25),
    ("POPULATE_READ", libc::MADV_POPULATE_READ),
    ("POPULATE_WRITE", libc::MADV_POPULATE_WRITE),
    ("COLD", libc::MADV_COLD),
    ("PAGEOUT", libc::MADV_PAGEOUT),
    ("WILLNEED", libc::MADV_WILLNEED),
    ("SEQUENTIAL", libc::MADV_SEQUENTIAL),
    ("RANDOM", libc::MADV_RANDOM),
    ("MERGEABLE", libc::MADV_MERGEABLE),
    ("DODUMP", libc::MADV_DODUMP),
    ("DOFORK", libc::MADV_DOFORK),
];

fn advise(data: &Buffer<u64>, advice: i32) -> Result<(), i32> {
    let (start, bytes) = asked(data);
    // SAFETY: the range is the buffer's own, and the test knows what may happen to it.
    let outcome = unsafe { libc::madvise(start, bytes, advice) };
    if outcome == 0 { Ok(()) } else { Err(std::io::Error::last_os_error().raw_os_error().unwrap()) }
}

fn harmless(name: &str) {
    let (_, advice) = HARMLESS.iter().find(|(known, _)| *known == name).unwrap();
    let space = space();
    let mut data = buffer(&space);
    // Whether the kernel knows the advice for such memory is its own business.
    println!("{name}: {:?}", advise(&data, *advice));
    use_all(&space, &mut data, |_| false);
    // The split mapping is used again, also for pages that came back meanwhile.
    space.migrate(&data, CardId(1)).unwrap();
    let sum: u64 = data.iter().sum();
    let words = (PAGES * PAGE) as u64;
    assert_eq!(sum, words * 1004 + words * (words - 1) / 2);
}

#[test]
fn advice_loses_nothing() {
    const TEST: &str = "advice_loses_nothing";
    if let Some(name) = role() {
        return harmless(&name);
    }
    within(LIMIT, TEST, || {
        for (name, _) in HARMLESS {
            let ended = Child::new(TEST, name).run();
            assert_eq!((ended.code, ended.signal), (Some(0), None), "{name}: {}", ended.text);
        }
    });
}

/// The same while pages move and every agent writes to them: each word is as often incremented as it
/// was asked for.
#[test]
fn advice_in_the_midst_of_moves_and_writes_loses_nothing() {
    within(LIMIT, "advice and moves", || {
        let space = space();
        let words = space.alloc_atomic::<AtomicU64>(PAGES * PAGE, "advised").unwrap();
        let (start, bytes) = (words.as_ptr() as usize, PAGES * PAGE * 8);
        let stop = AtomicBool::new(false);
        let goes_on = || !stop.load(SeqCst);
        let (kernels, written, asked) = std::thread::scope(|s| {
            let kernels = s.spawn(|| {
                let mut count = 0;
                while goes_on() {
                    let launch = space.kernel("add").on(CardId((count % 2) as u8));
                    let body = |k: &mut KernelContext, words| {
                        (0..PAGES).try_for_each(|page| k.fetch_add(words, page * PAGE, 1).map(drop))
                    };
                    launch.run(Shared(&words), body).unwrap();
                    count += 1;
                }
                count
            });
            let writes = s.spawn(|| {
                let mut count = 0;
                while goes_on() {
                    for page in 0..PAGES {
                        words[page * PAGE].fetch_add(1, SeqCst);
                    }
                    count += 1;
                }
                count
            });
            let moves = s.spawn(|| {
                for memory in (0..3).cycle().take_while(|_| goes_on()) {
                    space.migrate(&words[..PAGES / 2 * PAGE], MemoryId(memory)).unwrap();
                }
            });
            let asks = s.spawn(|| {
                let mut count = 0;
                while goes_on() {
                    for advice in [libc::MADV_DONTNEED, libc::MADV_COLD, libc::MADV_PAGEOUT] {
                        // SAFETY: the range is the buffer's own, and the advice changes no byte.
                        let _ = unsafe { libc::madvise(start as *mut c_void, bytes, advice) };
                        count += 1;
                    }
                }
                count
            });
            std::thread::sleep(seconds());
            stop.store(true, SeqCst);
            moves.join().unwrap();
            (kernels.join().unwrap(), writes.join().unwrap(), asks.join().unwrap())
        });
        assert!(kernels > 1 && written > 1 && asked > 3, "{kernels} {written} {asked}");
        assert!((0..PAGES).all(|page| words[page * PAGE].load(SeqCst) == kernels + written));
        space.check().unwrap();
    });
}

/// `MADV_REMOVE` says that the pages read as zeros from then on. It does so for those that are on the
/// host; a page that is on a card is not there to be removed, and keeps its bytes.
#[test]
fn removed_pages_are_zero_on_the_host_and_stay_on_a_card() {
    const TEST: &str = "removed_pages_are_zero_on_the_host_and_stay_on_a_card";
    if role().is_some() {
        let space = space();
        let mut data = buffer(&space);
        advise(&data, libc::MADV_REMOVE).unwrap();
        return use_all(&space, &mut data, |page| {
            ASKED.contains(&page) && !ON_CARD.contains(&page)
        });
    }
    within(LIMIT, TEST, || Child::new(TEST, "remove").run().expect_success());
}

/// Rights that the program takes away from itself are its own; cards go on, and with the rights the
/// memory comes back.
#[test]
fn protected_pages_are_whole_when_they_may_be_used_again() {
    const TEST: &str = "protected_pages_are_whole_when_they_may_be_used_again";
    if role().is_some() {
        let space = space();
        let mut data = buffer(&space);
        let (start, bytes) = asked(&data);
        for rights in [libc::PROT_NONE, libc::PROT_READ] {
            // SAFETY: the range is the buffer's own, and nobody touches it on the host meanwhile.
            assert_eq!(unsafe { libc::mprotect(start, bytes, rights) }, 0);
            for card in space.cards() {
                space.kernel("add one").on(card).run(Write(&mut data), add_one).unwrap();
            }
            space.migrate(&data, MemoryId::HOST).unwrap();
            space.migrate(&data[..40 * PAGE], CardId(1)).unwrap();
        }
        // SAFETY: as above.
        assert_eq!(unsafe { libc::mprotect(start, bytes, libc::PROT_READ | libc::PROT_WRITE) }, 0);
        data.iter_mut().for_each(|word| *word -= 4);
        return use_all(&space, &mut data, |_| false);
    }
    within(LIMIT, TEST, || Child::new(TEST, "protect").run().expect_success());
}

/// Memory that the program has unmapped, or moved away, is gone from it. What uses it gets an error;
/// the rest of the buffer, other buffers and other mappings of the program are as they were.
#[test]
fn memory_that_is_unmapped_harms_nothing_else() {
    const TEST: &str = "memory_that_is_unmapped_harms_nothing_else";
    if let Some(how) = role() {
        let space = space();
        let mut data = buffer(&space);
        let mut other = buffer(&space);
        let (start, bytes) = asked(&data);
        // SAFETY: the range is the buffer's own, and nobody touches it on the host any more.
        unsafe {
            if how == "unmap" {
                assert_eq!(libc::munmap(start, bytes), 0);
            } else {
                let flags = libc::MREMAP_MAYMOVE;
                assert_ne!(libc::mremap(start, bytes, 2 * bytes, flags), libc::MAP_FAILED);
            }
        }
        for card in space.cards() {
            let outcome = space.kernel("add one").on(card).run(Write(&mut data), add_one);
            println!("{outcome:?}");
        }
        println!("{:?}", space.migrate(&data, MemoryId::HOST));
        let edge = &mut data[..ASKED.start * PAGE];
        space.migrate(edge, CardId(1)).unwrap();
        assert!(edge.iter().enumerate().all(|(at, word)| *word >= 1000 + at as u64));
        use_all(&space, &mut other, |_| false);
        std::mem::forget(data);
        return;
    }
    within(LIMIT, TEST, || {
        Child::new(TEST, "unmap").run().expect_success();
        Child::new(TEST, "move").run().expect_success();
    });
}
