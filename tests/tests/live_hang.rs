//! Kernels that hang or fault wildly: their job fails, the host and everybody else goes on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use farside::{
    CardId, Error, KernelContext, KernelError, Ptr, Shared, Space, SpaceBuilder, Write, WriteSpan,
    WriteView,
};
use harness::Prng;
use harness::live::{Child, role, seconds, within};

const LIMIT: Duration = Duration::from_secs(60);
/// Words of a page.
const PAGE: usize = 512;

fn builder() -> SpaceBuilder {
    Space::builder()
        .cards(2)
        .card_memory(4 << 20)
        .address_space(16 << 20)
        .grace(Duration::from_millis(50))
        .tune(|config| config.limits.drain = farside_types::Span::from_millis(200))
}

/// Computes until `free` is set, without a look at memory or at its own job.
fn compute_until(free: &AtomicBool) {
    while !free.load(SeqCst) {
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn add_one(k: &mut KernelContext, data: WriteSpan<u64>) -> Result<(), KernelError> {
    k.with(data, |mut data: WriteView<u64>| data.iter_mut().for_each(|word| *word += 1))
}

#[test]
fn a_kernel_that_computes_for_ever_is_given_up_and_its_card_goes_on() {
    within(LIMIT, "endless", || {
        let space = builder().build().unwrap();
        let mut data = space.alloc::<u64>(8 * PAGE).unwrap();
        let free = Arc::new(AtomicBool::new(false));
        // More often than there are processing elements of any kind but the spare ones.
        for _ in 0..4 {
            let free = Arc::clone(&free);
            let started = Instant::now();
            let error = space
                .kernel("endless")
                .time_limit(Duration::from_millis(20))
                .run(Write(&mut data), move |_, _| {
                    compute_until(&free);
                    Ok(())
                })
                .unwrap_err();
            assert!(matches!(error, Error::Kernel(KernelError::Hung { .. })), "{error}");
            assert!(started.elapsed() < Duration::from_secs(5));
            space.kernel("next").run(Write(&mut data), add_one).unwrap();
        }
        assert!(data.iter().all(|&word| word == 4));
        space.check().unwrap();
        free.store(true, SeqCst);
    });
}

#[test]
fn a_kernel_that_was_given_up_gets_no_memory_when_it_wakes() {
    within(LIMIT, "sleeper", || {
        let space = builder().build().unwrap();
        let words = space.alloc_atomic::<AtomicU64>(PAGE, "words").unwrap();
        let (free, ended) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let (gate, end) = (Arc::clone(&free), Arc::clone(&ended));
        let error = space
            .kernel("sleeper")
            .time_limit(Duration::from_millis(10))
            .run(Shared(&words), move |k, words| {
                compute_until(&gate);
                let refused = k.fetch_add(words, 0, 1u64).is_err();
                end.store(refused, SeqCst);
                Ok(())
            })
            .unwrap_err();
        assert!(matches!(error, Error::Kernel(KernelError::Hung { .. })), "{error}");
        free.store(true, SeqCst);
        while !ended.load(SeqCst) {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(words[0].load(SeqCst), 0);
    });
}

#[test]
fn pages_that_a_hung_kernel_holds_end_with_sigbus_and_no_others_do() {
    const NAME: &str = "pages_that_a_hung_kernel_holds_end_with_sigbus_and_no_others_do";
    if role().is_some() {
        hang_with_pages();
        return;
    }
    within(LIMIT, NAME, || {
        let ended = Child::new(NAME, "hang").run();
        ended.expect_signal(libc::SIGBUS);
        assert!(ended.text.contains("everything else is fine"), "{}", ended.text);
    });
}

/// Prints a line when all is as it should be; then touches a page that is held for ever.
fn hang_with_pages() {
    let space = builder().build().unwrap();
    let mut held = space.alloc_named::<u64>(4 * PAGE, "held").unwrap();
    let mut other = space.alloc::<u64>(64 * PAGE).unwrap();
    held.fill(1);
    let at = held.addr().0;
    let error = space
        .kernel("clutch")
        .time_limit(Duration::from_millis(20))
        .run(Write(&mut held), |k, held| {
            k.with(held, |mut held: WriteView<u64>| {
                held[0] = 2;
                loop {
                    std::thread::sleep(Duration::from_secs(1));
                }
            })
        })
        .map(|(): ()| ())
        .unwrap_err();
    assert!(matches!(error, Error::Kernel(KernelError::Hung { .. })), "{error}");
    // The same card, and the other one, go on.
    for card in space.cards() {
        space.kernel("next").on(card).run(Write(&mut other), add_one).unwrap();
    }
    assert!(other.iter().all(|&word| word == 2));
    // Another card that wants all of it is refused after a few drains; which of the pages are held
    // nobody knows, so none is given up for it.
    let refused = space.kernel("heir").on(CardId(1)).run(Write(&mut held), add_one).unwrap_err();
    assert!(refused.to_string().contains("card 0 does not let one of the pages go"), "{refused}");
    let suspects = space.report().suspects;
    let page = space.pages(&held[..]).unwrap();
    assert!(suspects.iter().any(|(card, range)| *card == CardId(0) && page.overlaps(*range)));
    println!("everything else is fine");
    // SAFETY: the address is a live allocation of this process.
    let word = unsafe { std::ptr::read_volatile(at as *const u64) };
    println!("a page that nobody knows the contents of was read as {word}");
}

#[test]
fn a_host_access_to_a_held_page_ends_within_the_limit_of_a_drain() {
    const NAME: &str = "a_host_access_to_a_held_page_ends_within_the_limit_of_a_drain";
    if role().is_some() {
        let space = builder().build().unwrap();
        let words = space.alloc_atomic::<AtomicU64>(PAGE, "held").unwrap();
        let inside = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&inside);
        space.scope(|s| {
            s.kernel("clutch")
                .launch(Shared(&words), move |k, words| {
                    k.atomic(words, 0, |_| {
                        flag.store(true, SeqCst);
                        loop {
                            std::thread::sleep(Duration::from_secs(1));
                        }
                    })
                    .map(|(): ()| ())
                })
                .unwrap();
            while !inside.load(SeqCst) {
                std::thread::yield_now();
            }
            println!("read as {}", words[1].load(SeqCst));
        });
        return;
    }
    within(LIMIT, NAME, || {
        let started = Instant::now();
        Child::new(NAME, "touch").run().expect_signal(libc::SIGBUS);
        assert!(started.elapsed() < Duration::from_secs(20));
    });
}

#[test]
fn kernels_that_fault_wildly_harm_nobody() {
    within(LIMIT, "wild", || {
        let space = builder().processing_elements(2).build().unwrap();
        let mut data = space.alloc::<u64>(64 * PAGE).unwrap();
        let words = space.alloc_atomic::<AtomicU64>(4 * PAGE, "near").unwrap();
        let rounds = 20u64;
        space.scope(|s| {
            let wild: Vec<_> = (0..40u64)
                .map(|seed| {
                    let base = words.as_ptr() as u64;
                    s.kernel("wild")
                        .on(CardId((seed % 2) as u8))
                        .launch(Shared(&words), move |k, _| {
                            let mut rng = Prng::new(seed + 1);
                            loop {
                                let far =
                                    if seed % 2 == 0 { rng.bits() } else { rng.bits() % (1 << 25) };
                                k.store(Ptr::<u64>::at(base.wrapping_add(far & !7)), seed)?;
                            }
                        })
                        .map(|job: farside::Job<'_, ()>| job)
                        .unwrap()
                })
                .collect();
            let calm =
                s.kernel("calm").launch(Write(&mut data), move |k, mut data: WriteSpan<u64>| {
                    for _ in 0..rounds {
                        k.with(data.slice(..), |mut data: WriteView<u64>| {
                            data.iter_mut().for_each(|word| *word += 1);
                        })?;
                    }
                    Ok(())
                });
            for job in wild {
                assert!(matches!(job.wait(), Err(Error::Kernel(KernelError::WildAddress { .. }))));
            }
            calm.unwrap().wait().unwrap();
        });
        assert!(data.iter().all(|&word| word == rounds));
        space.check().unwrap();
    });
}

#[test]
fn a_kernel_is_cancelled_while_it_waits_in_a_fault() {
    within(LIMIT, "waiting", || {
        // Nobody lets the page go before the test says so: whoever wants it waits in a fault.
        let space = builder()
            .tune(|config| config.limits.drain = farside_types::Span::from_millis(20_000))
            .build()
            .unwrap();
        let words = space.alloc_atomic::<AtomicU64>(PAGE, "held").unwrap();
        let (inside, free) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let (flag, gate) = (Arc::clone(&inside), Arc::clone(&free));
        space.scope(|s| {
            let holder = s
                .kernel("holder")
                .launch(Shared(&words), move |k, words| {
                    k.atomic(words, 0, |word| {
                        flag.store(true, SeqCst);
                        compute_until(&gate);
                        word.fetch_add(1, SeqCst);
                    })
                })
                .unwrap();
            while !inside.load(SeqCst) {
                std::thread::yield_now();
            }
            for _ in 0..3 {
                let waiter = s.kernel("waiter").on(CardId(1));
                let waiter =
                    waiter.launch(Shared(&words), |k, words| k.fetch_add(words, 0, 1u64)).unwrap();
                std::thread::sleep(Duration::from_millis(20));
                assert!(!waiter.is_done());
                waiter.cancel();
                let error = waiter.wait().unwrap_err();
                assert!(matches!(error, Error::Kernel(KernelError::Cancelled { .. })), "{error}");
            }
            free.store(true, SeqCst);
            holder.wait().unwrap();
        });
        assert_eq!(words[0].load(SeqCst), 1);
        space.check().unwrap();
    });
}

#[test]
fn a_space_is_dropped_while_a_kernel_that_was_given_up_still_computes() {
    within(LIMIT, "drop", || {
        let free = Arc::new(AtomicBool::new(false));
        let (gate, gone) = (Arc::clone(&free), Arc::new(()));
        let inner = Arc::clone(&gone);
        {
            let space = builder().build().unwrap();
            let words = space.alloc_atomic::<AtomicU64>(PAGE, "words").unwrap();
            let hung = space.kernel("stubborn").time_limit(Duration::from_millis(5));
            hung.run(Shared(&words), move |k, words| {
                k.fetch_add(words, 0, 1u64)?;
                compute_until(&gate);
                let _inner = inner;
                k.fetch_add(words, 0, 1u64)
            })
            .unwrap_err();
            assert_eq!(words[0].load(SeqCst), 1);
        }
        free.store(true, SeqCst);
        // Its thread finds the space closed and ends.
        while Arc::strong_count(&gone) > 1 {
            std::thread::sleep(Duration::from_millis(1));
        }
    });
}

#[test]
fn kernels_are_cancelled_at_any_moment_without_a_loss() {
    within(LIMIT, "cancelled", || {
        // More pages than frames: a kernel is mostly somewhere in a fault, an eviction or a copy.
        let space = builder().card_memory(16 * 4096).grace(Duration::from_secs(5)).build().unwrap();
        let words = space.alloc_atomic::<AtomicU64>(48 * PAGE, "words").unwrap();
        let counted = Arc::new(AtomicU64::new(0));
        let mut random = Prng::new(3);
        let end = Instant::now() + seconds();
        let mut ends = [0u64; 3];
        while Instant::now() < end || ends.contains(&0) {
            space.scope(|s| {
                let job = |card: u8| {
                    let counted = Arc::clone(&counted);
                    let kernel = s.kernel("short").on(CardId(card));
                    let limit = Duration::from_micros(300 + u64::from(card) * 300);
                    let kernel = if card == 1 { kernel.time_limit(limit) } else { kernel };
                    let launched = kernel.launch(Shared(&words), move |k, words| {
                        for page in 0..48 {
                            k.fetch_add(words, page * PAGE, 1u64)?;
                            counted.fetch_add(1, SeqCst);
                        }
                        Ok(())
                    });
                    launched.unwrap()
                };
                let jobs = [job(0), job(1), job(0)];
                std::thread::sleep(Duration::from_micros(random.below(1500)));
                jobs[0].cancel();
                jobs[2].cancel();
                for job in jobs {
                    let end = match job.wait() {
                        Ok(()) => 0,
                        Err(Error::Kernel(KernelError::Cancelled { .. })) => 1,
                        Err(Error::Kernel(KernelError::TimedOut { .. })) => 2,
                        Err(other) => panic!("{other}"),
                    };
                    ends[end] += 1;
                }
            });
        }
        let sum: u64 = (0..48).map(|page| words[page * PAGE].load(SeqCst)).sum();
        assert_eq!(sum, counted.load(SeqCst), "{ends:?}");
        space.check().unwrap();
    });
}
