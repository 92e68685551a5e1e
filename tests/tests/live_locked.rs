//! Memory that the program has locked (`mlock`) moves like any other: whoever takes a page takes it
//! from everybody else first, also where the kernel calls that locked.

use std::time::Duration;

use farside::{Buffer, KernelContext, KernelError, Space, Write, WriteSpan, WriteView};
use harness::live::within;

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
