//! Each call by which pages are moved fails once: the first of its kind, the second, and so on to the
//! last. Bytes stay right or the program is told, nothing hangs, and afterwards everything works
//! (invariants 39 and 40).

use std::time::Duration;

use farside::{
    Advice, Buffer, CardId, KernelContext, KernelError, MemoryId, ReadSpan, ReadView, Space, Write,
    WriteSpan, WriteView,
};
use farside_svm::Mutation;
use harness::live::nth_call::{NthCall, OF_ALL_PAGES, OF_THE_ARENA, PAGING_CALLS};
use harness::live::{Child, must_be_caught, role, within};

const LIMIT: Duration = Duration::from_secs(120);
/// Words of a page.
const PAGE: usize = 512;
const PAGES: usize = 4;
/// Calls of a kind of which each fails in a run of its own.
const NTH_MAX: u64 = 48;
/// There is no memory; the request makes no sense; what is asked for has been done already, which is not
/// true.
const ERRNOS: [i32; 3] = [libc::ENOMEM, libc::EINVAL, libc::EEXIST];

fn open() -> Result<Space, farside::Error> {
    Space::builder().cards(2).card_memory(1 << 20).address_space(16 << 20).build()
}

/// A space whose allocations are in large pages.
fn open_large() -> Result<Space, farside::Error> {
    let builder = Space::builder().cards(2).card_memory(3 << 20).address_space(16 << 20);
    builder.large_pages(true).build()
}

fn add_one(k: &mut KernelContext, data: WriteSpan<u64>) -> Result<(), KernelError> {
    k.with(data, |mut data: WriteView<u64>| data.iter_mut().for_each(|word| *word += 1))
}

/// Every word of the buffer, which must all be the same.
#[track_caller]
fn value(data: &Buffer<u64>) -> u64 {
    let first = data[0];
    assert!(data.iter().all(|&word| word == first), "the words differ");
    first
}

/// Pages go everywhere in every way. What fails may fail, and is not counted; gives what the words must
/// be.
fn work(space: &Space, data: &mut Buffer<u64>, mut count: u64) -> u64 {
    for card in [CardId(0), CardId(1)] {
        if space.kernel("add").on(card).run(Write(&mut *data), add_one).is_ok() {
            count += 1;
        }
        assert_eq!(value(data), count, "after a kernel");
        data.iter_mut().for_each(|word| *word += 1);
        count += 1;
        let _ = space.migrate(data, card);
        // Copies of its own for each reader, and then a writer again.
        let _ = space.advise(data, Advice::ReadMostly(true));
        let read =
            |k: &mut KernelContext, data: ReadSpan<u64>| k.with(data, |v: ReadView<u64>| v[0]);
        if let Ok(seen) = space.kernel("read").on(card).run(farside::Read(&data[..]), read) {
            assert_eq!(seen, count, "as a card sees it");
        }
        assert_eq!(value(data), count, "beside a copy");
        data.iter_mut().for_each(|word| *word += 1);
        count += 1;
        let _ = space.advise(data, Advice::ReadMostly(false));
        let _ = space.migrate(data, MemoryId::HOST);
    }
    // Memory that comes and goes.
    if let Ok(mut other) = space.alloc::<u64>(data.len()) {
        assert_eq!(value(&other), 0, "new memory is zero");
        let _ = space.kernel("add").run(Write(&mut other), add_one);
        other.fill(7);
    }
    assert_eq!(value(data), count);
    count
}

/// Once more, with nothing that fails.
fn all_works(space: &Space, data: &mut Buffer<u64>, count: u64) {
    let after = work(space, data, count);
    assert_eq!(after, count + 6, "not everything works again");
    space.check().unwrap();
}

/// Counts the calls of a run in which nothing fails.
fn count(calls: &NthCall, run: impl FnOnce()) -> [u64; PAGING_CALLS.len()] {
    let before = calls.seen();
    run();
    let after = calls.seen();
    std::array::from_fn(|kind| after[kind] - before[kind])
}

fn fill(space: &Space, pages: usize) -> Buffer<u64> {
    let mut data = space.alloc::<u64>(pages * PAGE).unwrap();
    data.fill(1);
    data
}

/// The number of a kind of calls.
fn kind_of(name: &str) -> usize {
    PAGING_CALLS.iter().position(|call| call.name == name).expect("there is such a kind")
}

/// Gives how often a call of each kind failed.
fn one_after_the_other(
    calls: &NthCall,
    open: fn() -> Result<Space, farside::Error>,
    pages: usize,
    kinds: std::ops::Range<usize>,
) -> [u64; PAGING_CALLS.len()] {
    let counts = count(calls, || {
        let space = open().unwrap();
        let mut data = fill(&space, pages);
        assert_eq!(work(&space, &mut data, 1), 7);
    });
    let mut failed = [0; PAGING_CALLS.len()];
    for (kind, call) in PAGING_CALLS.iter().enumerate().filter(|(kind, _)| kinds.contains(kind)) {
        for nth in 1..=counts[kind].min(NTH_MAX) {
            for errno in ERRNOS {
                eprintln!("{} number {nth} fails with {errno}", call.name);
                let space = open().unwrap();
                let mut data = fill(&space, pages);
                calls.fail(kind, nth, errno);
                let count = work(&space, &mut data, 1);
                failed[kind] += u64::from(calls.end());
                all_works(&space, &mut data, count);
            }
        }
        println!("{}: {} calls, {} times one failed", call.name, counts[kind], failed[kind]);
    }
    failed
}

fn by_small_pages(calls: &NthCall) {
    let failed = one_after_the_other(calls, open, PAGES, 0..OF_ALL_PAGES);
    // Poison takes a page that is lost, which ends a program.
    let poison = kind_of("UFFDIO_POISON");
    assert!((0..OF_ALL_PAGES).all(|kind| failed[kind] > 0 || kind == poison), "{failed:?}");
}

/// Two blocks, of which the second is not all used.
fn by_large_pages(calls: &NthCall) {
    let failed = one_after_the_other(calls, open_large, 516, 0..OF_THE_ARENA);
    let of_large = OF_ALL_PAGES..OF_THE_ARENA;
    assert!(of_large.into_iter().all(|kind| failed[kind] > 0), "{failed:?}");
}

fn while_a_space_opens(calls: &NthCall) {
    let counts = count(calls, || drop(open().unwrap()));
    let mut failed = 0;
    for (kind, call) in PAGING_CALLS.iter().enumerate() {
        for nth in 1..=counts[kind].min(NTH_MAX) {
            for errno in ERRNOS {
                eprintln!("{} number {nth} fails with {errno} while a space opens", call.name);
                calls.fail(kind, nth, errno);
                let opened = open();
                failed += u64::from(calls.end());
                match opened {
                    Ok(space) => {
                        let mut data = fill(&space, PAGES);
                        all_works(&space, &mut data, 1);
                    }
                    Err(error) => assert!(error.to_string().contains("os error"), "{error}"),
                }
            }
        }
    }
    assert!(failed > 0, "{counts:?}");
}

/// A page is lost with its card, the call that poisons it fails at first, and a thread reads it.
fn read_a_lost_page(calls: &NthCall, errno: i32) {
    let space = open().unwrap();
    let mut data = fill(&space, PAGES);
    space.kernel("add").on(CardId(0)).run(Write(&mut data), add_one).unwrap();
    calls.fail(kind_of("UFFDIO_POISON"), 1, errno);
    space.fail_card(CardId(0)).unwrap();
    println!("it read {}", std::hint::black_box(data[0]));
}

fn in_a_child(test: &'static str, body: fn(&NthCall)) {
    if role().is_some() {
        return body(&NthCall::install());
    }
    within(LIMIT, test, || Child::new(test, "fails").run().expect_success());
}

#[test]
fn whichever_call_fails_nothing_is_lost_and_nothing_hangs() {
    in_a_child("whichever_call_fails_nothing_is_lost_and_nothing_hangs", by_small_pages);
}

#[test]
fn whichever_call_fails_nothing_is_lost_and_nothing_hangs_in_large_pages() {
    const TEST: &str = "whichever_call_fails_nothing_is_lost_and_nothing_hangs_in_large_pages";
    in_a_child(TEST, by_large_pages);
}

/// Memory that the kernel does not watch any more is not given to anybody: what a card writes there would not
/// be seen.
fn allocate_what_is_not_watched(calls: &NthCall) {
    for errno in ERRNOS {
        let builder = Space::builder().cards(2).card_memory(3 << 20).address_space(16 << 20);
        let space = builder.build().unwrap();
        calls.fail(kind_of("UFFDIO_REGISTER"), 1, errno);
        let refused = space.alloc_large::<u64>(512 * PAGE, "large").map(drop);
        assert!(calls.end());
        assert!(refused.unwrap_err().to_string().contains("os error"));
        for _ in 0..3 {
            let mut data = fill(&space, 512);
            space.kernel("add").on(CardId(0)).run(Write(&mut data), add_one).unwrap();
            assert_eq!(value(&data), 2, "what the card has written");
        }
        space.check().unwrap();
    }
}

#[test]
fn memory_that_is_not_watched_any_more_is_given_to_nobody() {
    in_a_child(
        "memory_that_is_not_watched_any_more_is_given_to_nobody",
        allocate_what_is_not_watched,
    );
}

#[test]
fn whichever_call_fails_while_a_space_opens_it_opens_or_says_why() {
    const TEST: &str = "whichever_call_fails_while_a_space_opens_it_opens_or_says_why";
    in_a_child(TEST, while_a_space_opens);
}

#[test]
fn a_lost_page_whose_poison_fails_at_first_is_never_read() {
    const TEST: &str = "a_lost_page_whose_poison_fails_at_first_is_never_read";
    if let Some(errno) = role() {
        return read_a_lost_page(&NthCall::install(), errno.parse().unwrap());
    }
    within(LIMIT, TEST, || {
        for errno in ERRNOS {
            let ended = Child::new(TEST, &errno.to_string()).run();
            ended.expect_signal(libc::SIGBUS);
            assert!(!ended.text.contains("it read"), "{}", ended.text);
        }
    });
}

/// Negative control: a host that leaves a page's directory though the call that unmaps it failed.
#[test]
fn control_an_unmap_that_failed_and_is_believed_is_noticed() {
    const TEST: &str = "control_an_unmap_that_failed_and_is_believed_is_noticed";
    must_be_caught(TEST, || {
        let calls = NthCall::install();
        for nth in 1..=NTH_MAX {
            let space = open().unwrap();
            space.mutate(Mutation::LeaveUnconfirmed).unwrap();
            let mut data = fill(&space, PAGES);
            calls.fail(kind_of("madvise(DONTNEED)"), nth, libc::ENOMEM);
            let count = work(&space, &mut data, 1);
            calls.end();
            space.check()?;
            all_works(&space, &mut data, count);
        }
        Ok(())
    });
}
