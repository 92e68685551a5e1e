//! A child made by fork has no access to the space, and is told so; the parent's goes on.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use farside::{Backing, CardId, Error, LiveError, MemoryId, Read, ReadView, Shared, Space};
use harness::live::{in_child, within};

const LIMIT: Duration = Duration::from_secs(60);
/// Words of a page.
const PAGE: usize = 512;

fn wrong_process<T>(result: Result<T, Error>) -> bool {
    matches!(result, Err(Error::Live(LiveError::WrongProcess { .. })))
}

#[test]
fn invariant_21_the_child_is_refused_and_the_parent_sees_right_values() {
    within(LIMIT, "fork", || {
        let space = Space::builder().cards(1).address_space(16 << 20).build().unwrap();
        let card = space.card(0).unwrap();
        let mut data = space.alloc::<u64>(8 * PAGE).unwrap();
        data.iter_mut().enumerate().for_each(|(i, word)| *word = i as u64);
        space.migrate(&data, card).unwrap();
        let code = in_child(|| {
            let refusals = [
                wrong_process(space.alloc::<u64>(1).map(std::mem::forget)),
                wrong_process(space.migrate(&data, MemoryId::HOST)),
                wrong_process(space.locate(&data)),
                wrong_process(space.history(&data)),
                wrong_process(space.trim()),
                wrong_process(space.fail_card(card)),
                wrong_process(space.kernel("child").run((), |_, ()| Ok(()))),
                wrong_process(
                    space.scope(|s| s.kernel("child").launch((), |_, ()| Ok(())).map(drop)),
                ),
                space.check().is_err(),
                space.report().stats.chains == 0,
            ];
            refusals.iter().position(|refused| !refused).map_or(0, |at| 1 + at as i32)
        });
        assert_eq!(code, 0, "call number {code} was not refused");
        assert!(data.iter().enumerate().all(|(i, &word)| word == i as u64));
        space.migrate(&data, card).unwrap();
        let sum = space
            .kernel("after")
            .run(Read(&data), |k, data| {
                k.with(data, |data: ReadView<u64>| data.iter().sum::<u64>())
            })
            .unwrap();
        let n = data.len() as u64;
        assert_eq!(sum, n * (n - 1) / 2);
    });
}

#[test]
fn the_childs_access_to_shared_memory_ends_it_and_reads_nothing() {
    within(LIMIT, "touch", || {
        let space = Space::builder().cards(1).address_space(16 << 20).build().unwrap();
        let mut data = space.alloc::<u64>(PAGE).unwrap();
        data.fill(5);
        let at = data.as_ptr();
        // SAFETY: the address is an allocation of the parent's; that the child has no access is
        // what is tested.
        let code = in_child(|| i32::from(unsafe { std::ptr::read_volatile(at) } != 77));
        assert_eq!(code, -libc::SIGSEGV);
        assert!(data.iter().all(|&word| word == 5));
    });
}

#[test]
fn a_child_that_drops_its_copies_of_space_and_buffers_ends() {
    within(LIMIT, "drop", || {
        let space = Space::builder().cards(2).address_space(16 << 20).build().unwrap();
        let data = space.alloc_atomic::<AtomicU64>(PAGE, "words").unwrap();
        let (mut space, mut data) = (Some(space), Some(data));
        let code = in_child(|| {
            drop(data.take());
            drop(space.take());
            3
        });
        assert_eq!(code, 3);
        let data = data.unwrap();
        assert_eq!(data[0].fetch_add(1, SeqCst), 0, "the parent's buffer was not freed");
    });
}

#[test]
fn forks_in_the_middle_of_moves_and_kernels_never_block() {
    within(LIMIT, "storm", || {
        let space = Space::builder().cards(2).address_space(16 << 20).build().unwrap();
        let words = space.alloc_atomic::<AtomicU64>(32 * PAGE, "words").unwrap();
        let stop = AtomicBool::new(false);
        std::thread::scope(|s| {
            let kernels = s.spawn(|| {
                let mut count = 0;
                while !stop.load(SeqCst) {
                    let card = CardId((count % 2) as u8);
                    let launch = space.kernel("busy").on(card);
                    launch
                        .run(Shared(&words), |k, words| {
                            (0..32).try_for_each(|p| k.fetch_add(words, p * PAGE, 1u64).map(drop))
                        })
                        .unwrap();
                    count += 1;
                }
                count
            });
            let mover = s.spawn(|| {
                for memory in (0..3).cycle().take_while(|_| !stop.load(SeqCst)) {
                    space.migrate(&words, MemoryId(memory)).unwrap();
                }
            });
            for _ in 0..40 {
                // One of the runtime's locks is often held at this moment.
                let code = in_child(|| {
                    let refused = wrong_process(space.locate(&words))
                        && wrong_process(space.migrate(&words, MemoryId::HOST));
                    i32::from(!refused)
                });
                assert_eq!(code, 0);
            }
            stop.store(true, SeqCst);
            mover.join().unwrap();
            let count: u64 = kernels.join().unwrap();
            assert!((0..32).all(|page| words[page * PAGE].load(SeqCst) == count));
        });
        space.check().unwrap();
    });
}

#[test]
fn the_child_has_no_way_to_a_cards_own_memory() {
    within(LIMIT, "fork, a card's own memory", || {
        let builder = Space::builder().cards(1).card_window(1 << 20).address_space(4 << 20);
        let space = builder.build().unwrap();
        let card = space.card(0).unwrap();
        let mut own = space.alloc_on::<u64>(card, 2 * PAGE, Backing::Eager).unwrap();
        own.host_mut().unwrap().fill(3);
        let free = space.own_memory_free(card).unwrap();
        let dropped = space.alloc_on::<u64>(card, PAGE, Backing::Eager).unwrap();
        let code = in_child(|| {
            drop(dropped);
            let refusals = [
                space.alloc_on::<u64>(card, 1, Backing::Lazy).is_err(),
                space.own_memory_free(card).is_err(),
                own.to_vec().is_err(),
                own.host().is_err(),
            ];
            i32::from(refusals.contains(&false))
        });
        assert_eq!(code, 0);
        assert_eq!(space.own_memory_free(card).unwrap(), free, "the parent has dropped it as well");
        let values = own.host().unwrap();
        // SAFETY: a value of the slice; in the child it is not mapped.
        let code = in_child(|| unsafe { std::ptr::from_ref(&values[0]).read_volatile() } as i32);
        assert_eq!(code, -libc::SIGSEGV);
        assert!(values.iter().all(|&value| value == 3));
    });
}

/// A file of a test's own.
fn scratch(name: &str) -> std::path::PathBuf {
    std::env::temp_dir().join(format!("farside-fork-{}-{name}.parquet", std::process::id()))
}

/// Drops what the child has of the space, as a program does at its end.
fn ends(space: &Space) -> i32 {
    // SAFETY: the child ends without using it again.
    drop(unsafe { std::ptr::read(space) });
    0
}

fn work(space: &Space) {
    let mut data = space.alloc::<u64>(4 * PAGE).unwrap();
    data.fill(1);
    let card = space.card(0).unwrap();
    let sum = space
        .kernel("sum")
        .on(card)
        .run(Read(&data), |k, data| k.with(data, |data: ReadView<u64>| data.iter().sum::<u64>()));
    assert_eq!(sum.unwrap(), data.len() as u64);
}

#[test]
fn a_child_leaves_its_parents_event_log_alone() {
    within(LIMIT, "event log", || {
        let path = scratch("events");
        let space = Space::builder().cards(1).address_space(16 << 20).events(&path);
        let space = space.build().unwrap();
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            // The log's lock is nearly always held.
            scope.spawn(|| {
                while !over.load(SeqCst) {
                    assert!(space.events_so_far().unwrap().is_some());
                }
            });
            for _ in 0..10 {
                work(&space);
                let asks = in_child(|| {
                    let nothing = space.events_so_far().unwrap().is_none()
                        && space.event_log().is_none()
                        && space.end_events().unwrap().events == 0;
                    i32::from(!nothing)
                });
                assert_eq!((asks, in_child(|| ends(&space))), (0, 0));
            }
            over.store(true, SeqCst);
        });
        let written = space.end_events().unwrap();
        let reader = farside_events::Reader::open(&path).unwrap();
        let mut kernels = 0;
        let counts = |batch: farside_events::Batch<'_>| {
            let begun = |event: &&farside_events::Event| event.kind == farside_events::Kind::Launch;
            kernels += batch.events.iter().filter(begun).count();
        };
        reader.for_each(counts).unwrap();
        assert_eq!((reader.cut(), reader.events(), written.dropped), (None, written.events, 0));
        assert_eq!(kernels, 10);
        std::fs::remove_file(&path).unwrap();
    });
}

#[test]
fn a_log_that_somebody_else_writes_is_its_parents_too() {
    within(LIMIT, "log", || {
        let path = scratch("log");
        let about = farside_events::About {
            program: "fork".to_owned(),
            machine: "none".to_owned(),
            scheme: "none".to_owned(),
            page_bytes: 4096,
            memories: farside_events::About::memories("card", [None]),
        };
        let log = farside_events::EventLog::create(&path, &about, || ()).unwrap();
        // Its thread answers nobody in the child, and its file is not to be touched there.
        assert_eq!(in_child(|| i32::from(log.write_so_far().is_err())), 0);
        let mut log = Some(log);
        let written = in_child(|| log.take().unwrap().finish().map_or(-1, |it| it.events as i32));
        assert_eq!(written, 0);
        assert_eq!(in_child(|| log.take().map_or(1, |_| 0)), 0, "dropped");
        log.unwrap().finish().unwrap();
        assert_eq!(farside_events::Reader::open(&path).unwrap().cut(), None);
        std::fs::remove_file(&path).unwrap();
    });
}

#[test]
fn a_child_leaves_its_parents_recording_alone() {
    within(LIMIT, "recording", || {
        let recorded = |forks: bool| {
            let path = scratch(if forks { "forks" } else { "plain" });
            let space = Space::builder().cards(1).address_space(16 << 20).record(&path);
            let space = space.build().unwrap();
            work(&space);
            assert!(!forks || in_child(|| ends(&space)) == 0);
            work(&space);
            space.end_recording().unwrap();
            let trace = farside_workloads::Trace::open(&path).unwrap();
            std::fs::remove_file(&path).unwrap();
            trace.accesses()
        };
        assert_eq!(recorded(true), recorded(false));
    });
}
