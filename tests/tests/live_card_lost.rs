//! A card that is gone: what was only there is lost and says so, everything else goes on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use farside::{
    Advice, Buffer, CardId, Error, KernelContext, KernelError, PageState, Read, ReadView, Shared,
    Space, Write, WriteSpan, WriteView,
};
use farside_svm::Mutation;
use harness::live::{Child, must_be_caught, role, within};

const LIMIT: Duration = Duration::from_secs(60);
/// Words of a page.
const PAGE: usize = 512;

fn space() -> Space {
    Space::builder()
        .cards(2)
        .card_memory(4 << 20)
        .address_space(16 << 20)
        .grace(Duration::from_millis(50))
        .build()
        .unwrap()
}

fn add_one(k: &mut KernelContext, data: WriteSpan<u64>) -> Result<(), KernelError> {
    k.with(data, |mut data: WriteView<u64>| data.iter_mut().for_each(|word| *word += 1))
}

#[test]
fn invariant_26_clean_pages_survive_and_dirty_ones_are_lost_by_name() {
    within(LIMIT, "lost", || {
        let space = space();
        let (a, b) = (space.card(0).unwrap(), space.card(1).unwrap());
        let mut clean = space.alloc::<u64>(8 * PAGE).unwrap();
        let mut host = space.alloc::<u64>(8 * PAGE).unwrap();
        let mut dirty = space.alloc::<u64>(8 * PAGE).unwrap();
        let mut elsewhere = space.alloc::<u64>(8 * PAGE).unwrap();
        clean.fill(1);
        host.fill(2);
        dirty.fill(3);
        elsewhere.fill(4);
        space.advise(&clean, Advice::ReadMostly(true)).unwrap();
        space
            .kernel("reader")
            .on(a)
            .run(Read(&clean), |k, data| {
                k.with(data, |data: ReadView<u64>| assert!(data.iter().all(|&word| word == 1)))
            })
            .unwrap();
        space.kernel("writer").on(a).run(Write(&mut dirty), add_one).unwrap();
        space.kernel("writer").on(b).run(Write(&mut elsewhere), add_one).unwrap();
        space.fail_card(a).unwrap();

        assert!(clean.iter().all(|&word| word == 1));
        assert!(host.iter().all(|&word| word == 2));
        assert!(elsewhere.iter().all(|&word| word == 5));
        let at = space.locate(&dirty).unwrap();
        assert!(at.iter().all(|part| part.state == PageState::Lost), "{at:?}");
        let refused = space.kernel("heir").on(b).run(Write(&mut dirty), add_one).unwrap_err();
        assert!(refused.to_string().contains("on a card that is gone"), "{refused}");
        assert!(space.migrate(&dirty, farside::MemoryId::HOST).is_err());
        assert!(space.report().to_string().contains("lost: 8 pages"), "{}", space.report());

        let refused = space.kernel("late").on(a).run((), |_, ()| Ok(())).unwrap_err();
        assert!(matches!(refused, Error::Kernel(KernelError::Dropped { .. })), "{refused}");
        assert!(space.migrate(&host, a).is_err());
        space.kernel("fine").on(b).run(Write(&mut host), add_one).unwrap();
        assert!(host.iter().all(|&word| word == 3));
        // Memory that is allocated again at the same place is new: zero, and not poisoned.
        drop(dirty);
        let again = space.alloc::<u64>(8 * PAGE).unwrap();
        assert!(again.iter().all(|&word| word == 0));
        space.check().unwrap();
        // Once more changes nothing.
        space.fail_card(a).unwrap();
        assert!(space.fail_card(CardId(9)).is_err());
    });
}

#[test]
fn invariant_26_a_lost_page_ends_with_sigbus_and_never_reads_as_zeros() {
    const NAME: &str = "invariant_26_a_lost_page_ends_with_sigbus_and_never_reads_as_zeros";
    if role().is_some() {
        let data = lose_a_page(&space());
        println!("the lost page read as {}", data[5]);
        return;
    }
    within(LIMIT, NAME, || {
        let ended = Child::new(NAME, "touch").run();
        ended.expect_signal(libc::SIGBUS);
        assert!(!ended.text.contains("read as"), "{}", ended.text);
    });
}

fn lose_a_page(space: &Space) -> Buffer<u64> {
    let mut data = space.alloc::<u64>(2 * PAGE).unwrap();
    data.fill(7);
    space.kernel("writer").run(Write(&mut data), add_one).unwrap();
    space.fail_card(CardId(0)).unwrap();
    data
}

/// What another card sees of a lost page; an error is the right answer.
fn heir_sees(space: &Space) -> Result<(), String> {
    let data = lose_a_page(space);
    let heir = space.kernel("heir").on(CardId(1));
    match heir.run(Read(&data), |k, data| k.load(data.ptr(5))) {
        Err(Error::Kernel(KernelError::Fault { .. })) => Ok(()),
        other => Err(format!("a lost page was read as {other:?}")),
    }
}

#[test]
fn invariant_26_another_card_never_reads_a_lost_page_as_zeros() {
    within(LIMIT, "heir", || heir_sees(&space()).unwrap());
}

#[test]
fn control_showing_lost_pages_as_zeros_is_noticed() {
    must_be_caught("control_showing_lost_pages_as_zeros_is_noticed", || {
        let space = space();
        space.mutate(Mutation::LostReadsAsZero).map_err(|error| error.to_string())?;
        heir_sees(&space)
    });
}

#[test]
fn kernels_that_run_or_wait_on_the_card_fail_with_a_clear_error() {
    within(LIMIT, "running", || {
        let space = space();
        let words = space.alloc_atomic::<AtomicU64>(64 * PAGE, "words").unwrap();
        let free = Arc::new(AtomicBool::new(false));
        let gate = Arc::clone(&free);
        let stream = space.stream();
        space.scope(|s| {
            let busy = s
                .kernel("busy")
                .stream(stream)
                .launch(Shared(&words), |k, words| -> Result<(), KernelError> {
                    for page in (0..64).cycle() {
                        k.fetch_add(words, page * PAGE, 1u64)?;
                    }
                    Ok(())
                })
                .unwrap();
            let queued = s.kernel("queued").stream(stream).launch((), |_, ()| Ok(())).unwrap();
            let behind = s
                .kernel("endless")
                .launch((), move |_, ()| {
                    while !gate.load(SeqCst) {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                    Ok(())
                })
                .unwrap();
            let other = s
                .kernel("other card")
                .on(CardId(1))
                .launch((), |_, ()| {
                    std::thread::sleep(Duration::from_millis(50));
                    Ok(5)
                })
                .unwrap();
            std::thread::sleep(Duration::from_millis(20));
            space.fail_card(CardId(0)).unwrap();
            for job in [busy, queued, behind] {
                let error = job.wait().unwrap_err();
                assert!(error.to_string().contains("is gone"), "{error}");
            }
            assert_eq!(other.wait().unwrap(), 5);
        });
        free.store(true, SeqCst);
        space.check().unwrap();
    });
}

#[test]
fn a_kernel_that_computes_on_a_lost_card_for_ever_is_given_up() {
    within(LIMIT, "endless", || {
        let space = space();
        let free = Arc::new(AtomicBool::new(false));
        let (gate, started) = (Arc::clone(&free), Arc::new(AtomicBool::new(false)));
        let begun = Arc::clone(&started);
        space.scope(|s| {
            let endless = s
                .kernel("endless")
                .launch((), move |_, ()| {
                    begun.store(true, SeqCst);
                    while !gate.load(SeqCst) {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                    Ok(())
                })
                .unwrap();
            while !started.load(SeqCst) {
                std::thread::yield_now();
            }
            space.fail_card(CardId(0)).unwrap();
            let error = endless.wait().unwrap_err();
            assert!(matches!(error, Error::Kernel(KernelError::Hung { .. })), "{error}");
        });
        free.store(true, SeqCst);
    });
}

#[test]
fn a_card_fails_again_and_again_in_the_middle_of_moves() {
    within(LIMIT, "storm", || {
        for round in 0..15u64 {
            let space = space();
            let words = space.alloc_atomic::<AtomicU64>(128 * PAGE, "moving").unwrap();
            let other = space.alloc_atomic::<AtomicU64>(16 * PAGE, "at home").unwrap();
            let stop = AtomicBool::new(false);
            std::thread::scope(|s| {
                // Requests only: a lost page must not be touched here.
                s.spawn(|| {
                    for memory in (0..3).cycle().take_while(|_| !stop.load(SeqCst)) {
                        let _ = space.migrate(&words, farside::MemoryId(memory));
                    }
                });
                let survivor = s.spawn(|| {
                    let mut count = 0;
                    while !stop.load(SeqCst) {
                        let body = |k: &mut KernelContext, words| {
                            (0..16).try_for_each(|p| k.fetch_add(words, p * PAGE, 1u64).map(drop))
                        };
                        space.kernel("survivor").on(CardId(1)).run(Shared(&other), body).unwrap();
                        other[0].fetch_add(1, SeqCst);
                        count += 1;
                    }
                    count
                });
                s.spawn(|| {
                    let body = |k: &mut KernelContext, words| -> Result<(), KernelError> {
                        for page in (0..128).cycle() {
                            k.fetch_add(words, page * PAGE, 1u64)?;
                        }
                        Ok(())
                    };
                    space.kernel("victim").run(Shared(&words), body).unwrap_err();
                });
                std::thread::sleep(Duration::from_micros(500 + 700 * round));
                space.fail_card(CardId(0)).unwrap();
                std::thread::sleep(Duration::from_millis(5));
                stop.store(true, SeqCst);
                let count = survivor.join().unwrap();
                assert_eq!(other[0].load(SeqCst), 2 * count);
                assert_eq!(other[PAGE].load(SeqCst), count);
            });
            space.check().unwrap();
        }
    });
}
