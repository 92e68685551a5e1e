//! Real threads and kernels write to the same pages while these move about; nothing is lost.
//!
//! The negative controls run the same race with one protecting step of the driver left out and
//! require that the loss is seen.

use std::io::{Read as _, Seek, Write as _};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use farside::{
    Advice, AtomicSpan, CardId, KernelContext, Read, ReadView, Shared, Space, Write, WriteView,
};
use farside_svm::Mutation;
use harness::live::{Race, must_be_caught, seconds, within};

const LIMIT: Duration = Duration::from_secs(60);
/// Words of a page.
const PAGE: usize = 512;

/// A race on cards in the program, each with room for half of the pages.
fn on_cards(cards: usize, scheme: &str, pages: usize) -> Race {
    let builder = Space::builder().cards(cards).card_memory(pages as u64 / 2 * 4096);
    Race::new(builder, scheme, pages)
}

fn race(cards: usize, scheme: &str) {
    within(LIMIT, scheme, || {
        let race = on_cards(cards, scheme, 48);
        let counts = race.run(seconds()).unwrap();
        assert!(counts.iter().all(|&count| count > 0), "somebody starved: {counts:?}");
        let stats = race.space().report().stats;
        assert!(stats.migrations > 100 && stats.evictions > 0, "the pages did not move: {stats:?}");
        race.space().check().unwrap();
    });
}

#[test]
fn invariants_1_2_3_nothing_is_lost_between_the_host_and_one_card() {
    race(1, "on-touch");
}

#[test]
fn invariants_1_2_3_nothing_is_lost_between_the_host_and_two_cards() {
    race(2, "on-touch");
}

#[test]
fn invariants_1_2_3_nothing_is_lost_between_the_host_and_three_cards() {
    race(3, "on-touch");
}

#[test]
fn invariant_6_nothing_is_lost_while_pages_are_duplicated() {
    race(2, "duplication");
}

#[test]
fn nothing_is_lost_while_pages_are_mapped_over_the_bus() {
    race(2, "access-counter");
}

#[test]
fn nothing_is_lost_under_first_touch() {
    race(3, "first-touch");
}

#[test]
fn nothing_is_lost_by_runs_of_words() {
    within(LIMIT, "runs", || {
        for scheme in ["on-touch", "access-counter"] {
            let race = on_cards(2, scheme, 48).by_runs();
            let counts = race.run(seconds()).unwrap();
            assert!(counts.iter().all(|&count| count > 0), "somebody starved: {counts:?}");
            assert!(race.space().report().stats.migrations > 100, "the pages did not move");
            race.space().check().unwrap();
        }
    });
}

/// Runs the race in a child with a rule broken.
fn control(test: &str, mutation: Mutation) {
    must_be_caught(test, || {
        (0..20).try_for_each(|_| {
            let race = on_cards(2, "on-touch", 12);
            race.space().mutate(mutation).map_err(|error| error.to_string())?;
            race.run(Duration::from_millis(400)).map(drop)
        })
    });
}

#[test]
fn control_copying_before_the_cpu_is_stopped_loses_writes() {
    control("control_copying_before_the_cpu_is_stopped_loses_writes", Mutation::CopyBeforeUnmap);
}

#[test]
fn control_not_waiting_for_a_cards_accesses_loses_writes() {
    control("control_not_waiting_for_a_cards_accesses_loses_writes", Mutation::SkipDrain);
}

#[test]
fn control_mapping_before_the_copy_is_done_loses_writes() {
    control("control_mapping_before_the_copy_is_done_loses_writes", Mutation::MapBeforeCopy);
}

#[test]
fn readers_of_duplicated_pages_see_values_grow() {
    within(LIMIT, "monotonic", || {
        let space = Space::builder().cards(2).address_space(16 << 20).build().unwrap();
        let words = space.alloc_atomic::<AtomicU64>(4 * PAGE, "growing").unwrap();
        space.advise(&words, Advice::ReadMostly(true)).unwrap();
        let stop = AtomicBool::new(false);
        std::thread::scope(|s| {
            let reader = |card: CardId| {
                let mut last = 0;
                while !stop.load(SeqCst) {
                    let body = move |k: &mut KernelContext, words: AtomicSpan<AtomicU64>| {
                        let mut seen = last;
                        for _ in 0..500 {
                            // The writer writes the second word first: whoever sees the first has
                            // to see the second as well.
                            let first: u64 = k.load(words.ptr(0))?;
                            let second: u64 = k.load(words.ptr(3 * PAGE))?;
                            if first < seen || second < first {
                                let text = format!("{first} and {second} after {seen}");
                                return Err(k.fail(text));
                            }
                            seen = first;
                        }
                        Ok(seen)
                    };
                    last = space.kernel("reader").on(card).run(Shared(&words), body).unwrap();
                }
                last
            };
            let on_cards: Vec<_> =
                space.cards().map(|card| s.spawn(move || reader(card))).collect();
            let on_host = s.spawn(|| {
                let mut seen = 0;
                while !stop.load(SeqCst) {
                    let (first, second) = (words[0].load(SeqCst), words[3 * PAGE].load(SeqCst));
                    assert!(first >= seen && second >= first, "{first}, {second} after {seen}");
                    seen = first;
                }
            });
            let end = std::time::Instant::now() + seconds();
            let mut value = 0;
            while std::time::Instant::now() < end {
                value += 1;
                words[3 * PAGE].store(value, SeqCst);
                words[0].store(value, SeqCst);
                std::thread::sleep(Duration::from_micros(300));
            }
            stop.store(true, SeqCst);
            on_host.join().unwrap();
            assert!(on_cards.into_iter().any(|card| card.join().unwrap() > 0));
        });
        let stats = space.report().stats;
        assert!(stats.duplications > 0 && stats.collapses > 0, "{stats:?}");
        space.check().unwrap();
    });
}

#[test]
fn invariant_27_system_calls_read_and_write_buffers_that_are_on_a_card() {
    within(LIMIT, "system calls", || {
        let space = Space::builder().cards(1).address_space(16 << 20).build().unwrap();
        let card = space.card(0).unwrap();
        let mut data = space.alloc::<u8>(64 * 4096).unwrap();
        data.iter_mut().enumerate().for_each(|(i, byte)| *byte = (i % 251) as u8);
        let mut file = tempfile();
        space.migrate(&data, card).unwrap();
        let written = file.write_all(&data);
        if !farside_linux::uffd::Support::probe().unwrap().opened_by.serves_system_calls() {
            let refused = written.unwrap_err();
            assert_eq!(refused.raw_os_error(), Some(libc::EFAULT), "user mode only: as documented");
            return;
        }
        written.unwrap();
        assert_eq!(file.metadata().unwrap().len(), 64 * 4096);
        space
            .kernel("clear")
            .run(Write(&mut data), |k, data| {
                k.with(data, |mut data: WriteView<u8>| data.iter_mut().for_each(|byte| *byte = 0))
            })
            .unwrap();
        file.rewind().unwrap();
        file.read_exact(&mut data).unwrap();
        assert!(data.iter().enumerate().all(|(i, &byte)| byte == (i % 251) as u8));
        space.migrate(&data[4096..20 * 4096], card).unwrap();
        let copy = data.to_vec();
        assert_eq!(copy, &data[..]);
        space.migrate(&data, card).unwrap();
        data.copy_from_slice(&copy);
        data.copy_within(100..9000, 50_000);
        let sum = space
            .kernel("sum")
            .run(Read(&data), |k, data| {
                k.with(data, |data: ReadView<u8>| data.iter().map(|&b| u64::from(b)).sum::<u64>())
            })
            .unwrap();
        assert_eq!(sum, data.iter().map(|&b| u64::from(b)).sum::<u64>());
    });
}

/// A file without a name.
fn tempfile() -> std::fs::File {
    let fd = rustix::fs::memfd_create("live-races", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    fd.into()
}
