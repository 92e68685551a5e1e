//! Memory that the program has locked (`mlock`) moves like any other: whoever takes a page takes it
//! from everybody else first, also where the kernel calls that locked.

use std::time::Duration;

use farside::{Buffer, KernelContext, KernelError, Space, Write, WriteSpan, WriteView};
use harness::live::{Child, role, within};

const LIMIT: Duration = Duration::from_secs(60);
/// Words of a page.
const PAGE: usize = 512;
const PAGES: usize = 8;

fn space() -> Space {
    Space::builder().cards(2).card_memory(4 << 20).address_space(16 << 20).build().unwrap()
}

fn add_one(k: &mut KernelContext, data: WriteSpan<u64>) -> Result<(), KernelError> {
    k.with(data, |mut data: WriteView<u64>| data.iter_mut().for_each(|word| *word += 1))
}

/// Locks a part of a buffer in memory, or unlocks it.
fn lock(data: &[u64], locked: bool) {
    let (start, bytes) = (data.as_ptr().cast(), size_of_val(data));
    // SAFETY: neither call touches what is in the memory, which is alive.
    let failed =
        unsafe { if locked { libc::mlock(start, bytes) } else { libc::munlock(start, bytes) } };
    assert_eq!(failed, 0, "{}", std::io::Error::last_os_error());
}

/// Host and cards write in turn, and each must see what the others wrote.
fn take_turns(space: &Space, data: &mut Buffer<u64>, mut count: u64) -> u64 {
    for card in space.cards() {
        for _ in 0..3 {
            space.kernel("add").on(card).run(Write(data), add_one).unwrap();
            count += 1;
            assert!(data.iter().all(|&word| word == count), "a card's writes were lost");
            data.iter_mut().for_each(|word| *word += 1);
            count += 1;
        }
    }
    space.check().unwrap();
    count
}

#[test]
fn locked_pages_move_and_nothing_is_lost() {
    within(LIMIT, "locked", || {
        let space = space();
        let mut data = space.alloc::<u64>(PAGES * PAGE).unwrap();
        data.fill(1);
        lock(&data, true);
        let count = take_turns(&space, &mut data, 1);
        lock(&data, false);
        take_turns(&space, &mut data, count);
    });
}

#[test]
fn a_range_of_which_a_part_is_locked_moves_as_a_whole() {
    within(LIMIT, "partly locked", || {
        let space = space();
        let mut data = space.alloc::<u64>(PAGES * PAGE).unwrap();
        data.fill(1);
        lock(&data[2 * PAGE..5 * PAGE], true);
        take_turns(&space, &mut data, 1);
    });
}

#[test]
fn what_a_card_has_may_be_locked_too() {
    within(LIMIT, "locked on a card", || {
        let space = space();
        let mut data = space.alloc::<u64>(PAGES * PAGE).unwrap();
        data.fill(1);
        space.migrate(&data, space.card(0).unwrap()).unwrap();
        // The kernel brings every page back for it.
        lock(&data, true);
        take_turns(&space, &mut data, 1);
    });
}

/// Everything that is mapped from now on is locked, and there, at once.
#[test]
fn memory_that_is_locked_before_it_exists_moves_and_nothing_is_lost() {
    const TEST: &str = "memory_that_is_locked_before_it_exists_moves_and_nothing_is_lost";
    if let Some(flags) = role() {
        // SAFETY: it changes how later mappings are made, and nothing else.
        let failed = unsafe { libc::mlockall(flags.parse().unwrap()) };
        assert_eq!(failed, 0, "{}", std::io::Error::last_os_error());
        let space = space();
        let mut data = space.alloc::<u64>(PAGES * PAGE).unwrap();
        assert!(data.iter().all(|&word| word == 0), "new memory is zero");
        data.fill(1);
        take_turns(&space, &mut data, 1);
        // Untouched by the host before a card writes it.
        let mut other = space.alloc::<u64>(PAGES * PAGE).unwrap();
        take_turns(&space, &mut other, 0);
        drop(other);
        // What others had there before is not seen.
        let other = space.alloc::<u64>(PAGES * PAGE).unwrap();
        assert!(other.iter().all(|&word| word == 0), "former contents are seen");
        space.check().unwrap();
        return;
    }
    within(LIMIT, TEST, || {
        for flags in [libc::MCL_FUTURE, libc::MCL_FUTURE | libc::MCL_CURRENT] {
            Child::new(TEST, &flags.to_string()).run().expect_success();
        }
    });
}
