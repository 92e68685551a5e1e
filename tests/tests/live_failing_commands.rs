//! Calls of the kernel that fail, live: each of the host's commands is struck with an error number,
//! once, again, or for ever, whether it has done its work or not. Bytes stay right, whoever asked is
//! told, and a thread that waits for what it cannot have ends (invariants 39 and 40).

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::{Duration, Instant};

use farside::{
    Buffer, CardId, Error, KernelContext, KernelError, MemoryId, Space, SpaceBuilder, Write,
    WriteSpan, WriteView,
};
use farside_live::Struck;
use farside_svm::Mutation;
use harness::live::{Child, must_be_caught, role, within};

const LIMIT: Duration = Duration::from_secs(60);
/// Words of a page.
const PAGE: usize = 512;
const PAGES: usize = 6;
/// How long something may take that has a bound.
const PATIENCE: Duration = Duration::from_secs(10);

fn builder() -> SpaceBuilder {
    Space::builder().cards(2).card_memory(1 << 20).address_space(16 << 20)
}

fn space() -> Space {
    builder().build().unwrap()
}

fn add_one(k: &mut KernelContext, data: WriteSpan<u64>) -> Result<(), KernelError> {
    k.with(data, |mut data: WriteView<u64>| data.iter_mut().for_each(|word| *word += 1))
}

/// Strikes the next `times` commands of this name. Gives how many are left.
fn strike(space: &Space, name: &'static str, times: u32, how: Struck) -> Arc<AtomicU32> {
    let left = Arc::new(AtomicU32::new(times));
    let count = Arc::clone(&left);
    space.strike(Some(Box::new(move |command| {
        let meant = command.name() == name;
        let struck = meant && count.fetch_update(SeqCst, SeqCst, |n| n.checked_sub(1)).is_ok();
        struck.then_some(how)
    })));
    left
}

fn refused(errno: i32) -> Struck {
    Struck { errno, acts: false }
}

/// Every word of the buffer, which must all be the same.
#[track_caller]
fn value(data: &Buffer<u64>) -> u64 {
    let first = data[0];
    assert!(data.iter().all(|&word| word == first), "the words differ");
    first
}

/// Moves, kernels and the host's own accesses. Each kernel adds one if it ends well, and nothing if
/// not. Gives what the words must be.
fn work(space: &Space, data: &mut Buffer<u64>, mut count: u64) -> u64 {
    for card in [CardId(0), CardId(1)] {
        if space.kernel("add").on(card).run(Write(data), add_one).is_ok() {
            count += 1;
        }
        // A request may fail, and then nothing has moved.
        let _ = space.migrate(data, card);
        let _ = space.migrate(data, MemoryId::HOST);
    }
    count
}

#[test]
fn every_call_that_fails_once_again_or_often_loses_nothing() {
    within(LIMIT, "every call", || {
        for name in ["host-unmap", "host-protect", "host-map", "host-release", "copy", "fill"] {
            for (times, acts) in [(1, false), (1, true), (2, false), (2, true)] {
                let space = space();
                let mut data = space.alloc::<u64>(PAGES * PAGE).unwrap();
                data.fill(1);
                let left = strike(&space, name, times, Struck { errno: libc::ENOMEM, acts });
                let count = work(&space, &mut data, 1);
                assert_eq!(value(&data), count, "{name}, {times} times, acts: {acts}");
                data.iter_mut().for_each(|word| *word += 1);
                let count = work(&space, &mut data, count + 1);
                assert_eq!(value(&data), count, "{name}, {times} times, acts: {acts}");
                space.check().unwrap();
                let always = ["host-unmap", "host-map", "copy"];
                assert!(left.load(SeqCst) == 0 || !always.contains(&name), "{name} never came");
                space.strike(None);
                let before = value(&data);
                assert_eq!(work(&space, &mut data, before), before + 2, "{name} works again");
                assert_eq!(value(&data), before + 2);
                space.check().unwrap();
            }
        }
    });
}

#[test]
fn a_page_that_the_kernel_never_unmaps_stays_with_the_host_and_the_kernel_is_told() {
    within(LIMIT, "never unmapped", || {
        let space = space();
        let mut data = space.alloc::<u64>(PAGES * PAGE).unwrap();
        data.fill(7);
        strike(&space, "host-unmap", u32::MAX, refused(libc::EINVAL));
        let started = Instant::now();
        let error = space.kernel("add").run(Write(&mut data), add_one).unwrap_err();
        assert!(matches!(error, Error::Kernel(KernelError::Fault { .. })), "{error}");
        let error = space.migrate(&data, CardId(0)).unwrap_err().to_string();
        assert!(error.contains("Invalid argument"), "the error number is lost: {error}");
        assert!(started.elapsed() < PATIENCE);
        assert_eq!(value(&data), 7);
        data.fill(8);
        space.check().unwrap();
        space.strike(None);
        space.kernel("add").run(Write(&mut data), add_one).unwrap();
        assert_eq!(value(&data), 9);
        space.check().unwrap();
    });
}

#[test]
fn control_an_agent_that_leaves_without_a_confirmed_unmap_loses_data() {
    const NAME: &str = "control_an_agent_that_leaves_without_a_confirmed_unmap_loses_data";
    must_be_caught(NAME, || {
        let space = space();
        space.mutate(Mutation::LeaveUnconfirmed).unwrap();
        let mut data = space.alloc::<u64>(PAGES * PAGE).unwrap();
        data.fill(1);
        strike(&space, "host-unmap", 1, refused(libc::EINVAL));
        space.kernel("add").run(Write(&mut data), add_one).map_err(|error| error.to_string())?;
        if value(&data) == 2 { Ok(()) } else { Err("a card's writes were lost".to_owned()) }
    });
}

#[test]
fn control_a_directory_that_disagrees_with_what_is_mapped_is_noticed() {
    const NAME: &str = "control_a_directory_that_disagrees_with_what_is_mapped_is_noticed";
    must_be_caught(NAME, || {
        let space = space();
        space.mutate(Mutation::LeaveUnconfirmed).unwrap();
        let mut data = space.alloc::<u64>(PAGES * PAGE).unwrap();
        data.fill(1);
        strike(&space, "host-unmap", u32::MAX, refused(libc::EINVAL));
        let _ = space.kernel("add").run(Write(&mut data), add_one);
        space.check()
    });
}

#[test]
fn memory_that_the_kernel_does_not_take_back_is_freed_within_a_bound() {
    within(LIMIT, "not released", || {
        let space = space();
        let mut data = space.alloc::<u64>(PAGES * PAGE).unwrap();
        data.fill(1);
        strike(&space, "host-release", u32::MAX, refused(libc::ENOMEM));
        let started = Instant::now();
        drop(data);
        assert!(started.elapsed() < PATIENCE);
        // Everything else goes on, and nobody gets the old bytes.
        let mut other = space.alloc::<u64>(PAGES * PAGE).unwrap();
        assert_eq!(value(&other), 0);
        space.kernel("add").run(Write(&mut other), add_one).unwrap();
        assert_eq!(value(&other), 1);
        space.check().unwrap();
    });
}

/// A page is lost with its card, and a thread reads it.
fn read_a_lost_page(times: u32) -> ! {
    let space = builder().build().unwrap();
    let mut data = space.alloc::<u64>(PAGE).unwrap();
    space.kernel("add").on(CardId(0)).run(Write(&mut data), add_one).unwrap();
    strike(&space, "host-poison", times, refused(libc::ENOMEM));
    space.fail_card(CardId(0)).unwrap();
    println!("about to read");
    println!("it read {}", std::hint::black_box(data[0]));
    std::process::exit(0);
}

#[test]
fn a_thread_whose_page_could_not_be_poisoned_at_first_ends_with_sigbus_all_the_same() {
    const NAME: &str =
        "a_thread_whose_page_could_not_be_poisoned_at_first_ends_with_sigbus_all_the_same";
    if role().is_some() {
        read_a_lost_page(2);
    }
    within(LIMIT, NAME, || {
        let ended = Child::new(NAME, "poison").run();
        ended.expect_signal(libc::SIGBUS);
        assert!(!ended.text.contains("it read"), "{}", ended.text);
    });
}

#[test]
fn a_thread_whose_page_cannot_be_poisoned_ends_its_program_and_says_why() {
    const NAME: &str = "a_thread_whose_page_cannot_be_poisoned_ends_its_program_and_says_why";
    if role().is_some() {
        read_a_lost_page(u32::MAX);
    }
    within(LIMIT, NAME, || {
        let ended = Child::new(NAME, "poison").run();
        ended.expect_signal(libc::SIGABRT);
        assert!(ended.text.contains("Cannot allocate memory"), "{}", ended.text);
        assert!(!ended.text.contains("it read"), "{}", ended.text);
    });
}

#[test]
fn a_card_that_fails_what_a_card_cannot_fail_is_taken_out_of_service() {
    within(LIMIT, "broken card", || {
        for name in ["card-resume", "card-map"] {
            let space = space();
            let mut data = space.alloc::<u64>(PAGES * PAGE).unwrap();
            data.fill(1);
            strike(&space, name, u32::MAX, refused(libc::EIO));
            let started = Instant::now();
            let error = space.kernel("add").on(CardId(0)).run(Write(&mut data), add_one);
            assert!(error.is_err(), "{name}");
            assert!(started.elapsed() < PATIENCE, "{name}");
            space.strike(None);
            // The other card goes on.
            let mut other = space.alloc::<u64>(PAGES * PAGE).unwrap();
            space.kernel("add").on(CardId(1)).run(Write(&mut other), add_one).unwrap();
            assert_eq!(value(&other), 1);
        }
    });
}
