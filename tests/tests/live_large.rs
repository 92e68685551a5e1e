//! Allocations in large pages, beside others, as a program uses them.

use std::time::Duration;

use farside::{CardId, KernelContext, KernelError, Read, ReadSpan, Space, Write, WriteSpan};
use harness::live::{Race, seconds, within};

const LIMIT: Duration = Duration::from_secs(120);
/// Words of a block of 2 MiB.
const BLOCK: usize = 1 << 18;

fn space(card_memory: u64) -> Space {
    Space::builder().cards(2).card_memory(card_memory).address_space(128 << 20).build().unwrap()
}

/// Adds one to every word, a part at a time.
fn add_one(k: &mut KernelContext, mut data: WriteSpan<u64>) -> Result<(), KernelError> {
    for at in (0..data.len()).step_by(4096) {
        let part = data.slice(at..(at + 4096).min(data.len()));
        k.with(part, |mut part: farside::WriteView<u64>| {
            part.iter_mut().for_each(|word| *word += 1)
        })?;
    }
    Ok(())
}

#[test]
fn a_block_costs_the_host_one_fault_and_a_card_one() {
    within(LIMIT, "faults", || {
        let space = space(64 << 20);
        let mut data = space.alloc_large::<u64>(4 * BLOCK + 512, "large").unwrap();
        let before = space.report().stats;
        data.iter_mut().zip(0..).for_each(|(word, index)| *word = index);
        let written = space.report();
        assert_eq!(written.stats.host_faults - before.host_faults, 5, "four blocks and a page");
        assert_eq!(written.large_pages.wanted, 4);
        let sum = |k: &mut KernelContext, data: ReadSpan<u64>| {
            (0..data.len()).step_by(4096).try_fold(0, |sum, at| {
                let part = data.slice(at..(at + 4096).min(data.len()));
                k.with(part, |part: farside::ReadView<u64>| sum + part.iter().sum::<u64>())
            })
        };
        let total = space.kernel("sum").on(CardId(0)).run(Read(&data[..]), sum).unwrap();
        let words = 4 * BLOCK as u64 + 512;
        assert_eq!(total, words * (words - 1) / 2);
        let read = space.report().stats;
        assert_eq!(read.chains - written.stats.chains, 5);
        space.check().unwrap();
    });
}

#[test]
fn both_kinds_in_one_space_hold_their_bytes_where_neither_fits() {
    within(LIMIT, "both kinds", || {
        let space = space(6 << 20);
        let mut large = space.alloc_large::<u64>(5 * BLOCK, "large").unwrap();
        let mut small = space.alloc_named::<u64>(5 * BLOCK, "small").unwrap();
        for round in 1..=3 {
            for card in [CardId(0), CardId(1)] {
                space.kernel("large").on(card).run(Write(&mut large), add_one).unwrap();
                space.kernel("small").on(card).run(Write(&mut small), add_one).unwrap();
            }
            for data in [&mut large, &mut small] {
                // Some of it on the host, some not.
                data.iter_mut().step_by(40_000).for_each(|word| *word += 100);
                let wrong = data.iter().enumerate().find(|&(index, word)| {
                    let touched = if index % 40_000 == 0 { 100 * round } else { 0 };
                    *word != 2 * round + touched
                });
                assert_eq!(wrong, None, "round {round}");
            }
        }
        assert!(space.report().stats.evictions > 0);
        space.check().unwrap();
    });
}

#[test]
fn what_was_freed_is_zero_when_it_comes_again_as_either_kind() {
    within(LIMIT, "freed", || {
        let space = space(16 << 20);
        let mut at = None;
        for large in [true, false, true, true, false] {
            let mut data = if large {
                space.alloc_large::<u64>(3 * BLOCK, "").unwrap()
            } else {
                space.alloc::<u64>(3 * BLOCK).unwrap()
            };
            assert_eq!(*at.get_or_insert(data.as_ptr() as usize), data.as_ptr() as usize);
            assert!(data.iter().all(|&word| word == 0), "large: {large}");
            data.fill(7);
            space.kernel("add").run(Write(&mut data[BLOCK / 2..2 * BLOCK]), add_one).unwrap();
        }
        space.check().unwrap();
    });
}

#[test]
fn parts_of_blocks_can_be_moved_pinned_and_trimmed() {
    within(LIMIT, "parts", || {
        let space = space(16 << 20);
        let mut data = space.alloc_large::<u64>(2 * BLOCK, "large").unwrap();
        data.iter_mut().zip(0..).for_each(|(word, index)| *word = index);
        space.migrate(&data[1000..90_000], CardId(0)).unwrap();
        space.pin(&data[BLOCK + 512..BLOCK + 1024], CardId(1)).unwrap();
        space.trim().unwrap();
        assert!(data.iter().zip(0..).all(|(&word, index)| word == index));
        space.unpin(&data[BLOCK + 512..BLOCK + 1024]).unwrap();
        space.kernel("add").run(Write(&mut data), add_one).unwrap();
        space.trim().unwrap();
        assert!(data.iter().zip(1..).all(|(&word, index)| word == index));
        space.check().unwrap();
    });
}

/// Invariants 1 to 3 where blocks are opened, taken apart and put together again.
#[test]
fn nothing_is_lost_in_a_race_in_large_pages() {
    within(LIMIT, "race", || {
        // Two blocks; a card has room for one and a half.
        let builder = Space::builder().cards(2).card_memory(3 << 20).large_pages(true);
        let race = Race::new(builder, "on-touch", 1024);
        let counts = race.run(seconds()).unwrap();
        assert!(counts.iter().all(|&count| count > 0), "somebody starved: {counts:?}");
        let report = race.space().report();
        assert!(report.stats.migrations > 100, "the pages did not move: {:?}", report.stats);
        race.space().check().unwrap();
    });
}
