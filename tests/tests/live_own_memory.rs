//! A card's own memory (docs/programming.md): what kernels and the program allocate on one card, beside plain vectors.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use farside::{
    AllocOptions, Backing, CardBuffer, ColumnBuilder, Error, Growable, KernelContext, KernelError,
    LiveError, Read, Space, TextBuilder, WindowError, Write, WriteSpan,
};

const OWN: u64 = 16 << 20;
const PAGE: usize = 4096;

fn space(cards: usize) -> Space {
    let builder = Space::builder().cards(cards).card_memory(4 << 20).card_window(OWN);
    builder.processing_elements(2).address_space(16 << 20).build().unwrap()
}

fn free(space: &Space) -> u64 {
    space.own_memory_free(space.card(0).unwrap()).unwrap()
}

/// A kernel of the first card.
fn run<T: Send + 'static>(
    space: &Space,
    kernel: impl FnOnce(&mut KernelContext) -> Result<T, KernelError> + Send + 'static,
) -> Result<T, Error> {
    space.kernel("kernel").run((), move |context, ()| kernel(context))
}

fn fill(
    kernel: &mut KernelContext,
    span: &mut WriteSpan<u64>,
    salt: u64,
) -> Result<(), KernelError> {
    for begin in (0..span.len()).step_by(4096) {
        let part = span.slice(begin..span.len().min(begin + 4096));
        kernel.with(part, |mut values| {
            (begin as u64..).zip(values.iter_mut()).for_each(|(n, value)| *value = n * salt);
        })?;
    }
    Ok(())
}

fn is_filled(kernel: &mut KernelContext, span: &WriteSpan<u64>, len: usize, salt: u64) -> bool {
    (0..len).all(|n| kernel.load(span.ptr(n)).unwrap() == n as u64 * salt)
}

#[test]
fn a_kernel_allocates_grows_and_frees() {
    let space = space(1);
    let before = free(&space);
    let whole = run(&space, |kernel| {
        let mut span = kernel.alloc::<u64>(1000, Backing::Lazy)?;
        fill(kernel, &mut span, 3)?;
        let mut other = kernel.alloc::<u64>(5000, Backing::Eager)?;
        fill(kernel, &mut other, 7)?;
        let first = span.start();
        // Behind it lies the other one: it moves.
        kernel.realloc(&mut span, 200_000)?;
        let mut kept = span.start() != first && is_filled(kernel, &span, 1000, 3);
        kept &= is_filled(kernel, &other, 5000, 7);
        kept &= (1000..200_000).step_by(511).all(|n| kernel.load(span.ptr(n)).unwrap() == 0);
        kernel.realloc(&mut span, 700)?;
        kept &= is_filled(kernel, &span, 700, 3);
        // What was lost is not there when it grows again.
        kernel.realloc(&mut span, 2000)?;
        kept &= (1024..2000).all(|n| kernel.load(span.ptr(n)).unwrap() == 0);
        kernel.free(other)?;
        Ok(kept && is_filled(kernel, &span, 700, 3))
    });
    assert!(whole.unwrap());
    assert_eq!(free(&space), before, "all that the kernel had is free again");
}

#[test]
fn what_is_freed_is_zero_for_the_next() {
    let space = space(1);
    for round in 0..6u64 {
        let zero = run(&space, move |kernel| {
            // All of the memory, a piece at a time, in another order each time.
            let mut zero = true;
            let mut spans = Vec::new();
            for _ in 0..7 {
                let backing = if round % 2 == 0 { Backing::Lazy } else { Backing::Eager };
                let mut span = kernel.alloc::<u64>((2 << 20) / 8, backing)?;
                zero &= (0..span.len()).step_by(64).all(|n| kernel.load(span.ptr(n)).unwrap() == 0);
                fill(kernel, &mut span, round + 1)?;
                spans.push(span);
            }
            spans.rotate_left(round as usize);
            for span in spans {
                kernel.free(span)?;
            }
            Ok(zero)
        });
        assert!(zero.unwrap(), "round {round}");
    }
}

fn refused(result: Result<impl std::fmt::Debug, Error>) -> WindowError {
    match result.unwrap_err() {
        Error::Kernel(KernelError::Window { error, .. }) | Error::Window(error) => error,
        other => panic!("{other}"),
    }
}

#[test]
fn bad_requests_are_refused_and_change_nothing() {
    let space = space(1);
    let before = free(&space);
    let card = space.card(0).unwrap();
    let too_much =
        refused(run(&space, |kernel| kernel.alloc::<u64>(usize::MAX / 8, Backing::Lazy).map(drop)));
    assert!(too_much.to_string().contains("ask for less"), "{too_much}");
    for len in [usize::MAX, usize::MAX / 2 + 1] {
        refused(run(&space, move |kernel| kernel.alloc::<u64>(len, Backing::Eager).map(drop)));
        refused(space.alloc_on::<u64>(card, len, Backing::Lazy));
    }
    let zero = refused(run(&space, |kernel| kernel.alloc::<u64>(0, Backing::Lazy).map(drop)));
    assert!(zero.to_string().contains("at least one byte"), "{zero}");
    let frames = refused(run(&space, |kernel| {
        kernel.alloc::<u8>(OWN as usize + PAGE, Backing::Eager).map(drop)
    }));
    assert!(frames.to_string().contains("card_window"), "{frames}");
    let twice = refused(run(&space, |kernel| {
        let mut span = kernel.alloc::<u8>(1, Backing::Lazy)?;
        let again = span.slice(..);
        kernel.free(span)?;
        kernel.free(again)
    }));
    assert!(matches!(twice, WindowError::NotOwn { .. }), "{twice}");
    let inside = refused(run(&space, |kernel| {
        let mut span = kernel.alloc::<u8>(3 * PAGE, Backing::Lazy)?;
        kernel.free(span.slice(PAGE..2 * PAGE))
    }));
    assert!(matches!(inside, WindowError::NotOwn { .. }), "{inside}");
    let mut others = run(&space, |kernel| kernel.alloc::<u8>(1, Backing::Lazy)).unwrap();
    let again = others.slice(..);
    refused(run(&space, move |kernel| kernel.free(again)));
    refused(run(&space, move |kernel| kernel.realloc(&mut others, 100)));
    assert_eq!(free(&space), before);
}

#[test]
fn what_a_kernel_does_not_have_any_more_is_wild() {
    let space = space(1);
    let freed = run(&space, |kernel| {
        let span = kernel.alloc::<u64>(10, Backing::Eager)?;
        let word = span.ptr(3);
        kernel.store(word, 1)?;
        kernel.free(span)?;
        kernel.load(word)
    });
    assert!(matches!(freed, Err(Error::Kernel(KernelError::WildAddress { .. }))), "{freed:?}");
    let stale = run(&space, |kernel| {
        let mut span = kernel.alloc::<u64>(10, Backing::Eager)?;
        let _ahead = kernel.alloc::<u64>(10, Backing::Eager)?;
        let word = span.ptr(3);
        kernel.realloc(&mut span, 100_000)?;
        kernel.store(word, 1)
    });
    assert!(matches!(stale, Err(Error::Kernel(KernelError::WildAddress { .. }))), "{stale:?}");
    let beyond = run(&space, |kernel| {
        let mut span = kernel.alloc::<u64>(10, Backing::Eager)?;
        let word = span.ptr(7);
        kernel.realloc(&mut span, 5)?;
        kernel.load(word)
    });
    assert!(beyond.is_err());
}

#[test]
fn a_touch_that_finds_no_memory_ends_its_kernel_only() {
    let space = space(1);
    let before = free(&space);
    let full = run(&space, |kernel| {
        let span = kernel.alloc::<u64>(2 * OWN as usize / 8, Backing::Lazy)?;
        for n in (0..span.len()).step_by(PAGE / 8) {
            kernel.store(span.ptr(n), 1)?;
        }
        Ok(())
    });
    let Err(Error::Kernel(KernelError::Fault { reason, .. })) = full else { panic!("{full:?}") };
    assert_eq!(reason, farside_types::CancelReason::WindowFull);
    assert_eq!(free(&space), before);
    run(&space, |kernel| kernel.alloc::<u64>(OWN as usize / 8, Backing::Eager).map(drop)).unwrap();
}

#[test]
fn a_growing_vector_is_returned_and_read_by_everybody() {
    let space = space(2);
    let before = free(&space);
    let odd: CardBuffer<u32> = run(&space, |kernel| {
        let mut odd = Growable::new();
        for n in (0..300_000u32).filter(|n| n % 2 == 1) {
            odd.push(kernel, n)?;
        }
        odd.finish(kernel)
    })
    .unwrap();
    let expected: Vec<u32> = (0..300_000).filter(|n| n % 2 == 1).collect();
    assert_eq!(odd.to_vec().unwrap(), expected);
    assert_eq!(odd.host().unwrap(), expected);
    assert_eq!(odd.host().unwrap().as_ptr() as u64, odd.addr().0, "the same address everywhere");
    // No more than its values take.
    assert_eq!(before - free(&space), (150_000 * 4u64).next_multiple_of(PAGE as u64));
    for card in space.cards() {
        let values = odd.host().unwrap();
        let sum = space.kernel("farside.sum_of").on(card).run(Read(values), |kernel, values| {
            let mut sum = 0u64;
            for begin in (0..values.len()).step_by(10_000) {
                let part = values.slice(begin..(begin + 10_000).min(values.len()));
                sum += kernel.with(part, |part| part.iter().map(|&n| u64::from(n)).sum::<u64>())?;
            }
            Ok(sum)
        });
        assert_eq!(sum.unwrap(), expected.iter().map(|&n| u64::from(n)).sum::<u64>());
    }
    drop(odd);
    assert_eq!(free(&space), before);
    // It outlives its space.
    let buffer = space.alloc_on::<u8>(space.card(1).unwrap(), 10, Backing::Lazy).unwrap();
    drop(space);
    assert_eq!(buffer.to_vec().unwrap(), [0; 10]);
    drop(buffer);
}

/// Bytes that are free in the first of the own memories of a kernel's card.
fn free_in(kernel: &KernelContext) -> Result<u64, KernelError> {
    Ok(kernel.own_memories()?[0].bytes_free)
}

#[test]
fn a_growing_vector_gets_memory_page_by_page_or_at_once() {
    let space = space(1);
    let before = free(&space);
    let taken = run(&space, |kernel| {
        let taken_by = |kernel: &mut KernelContext, options: AllocOptions| {
            let (before, mut vector) = (free_in(kernel)?, Growable::with_options(options));
            vector.push(kernel, 7u64)?;
            let reserved = before - free_in(kernel)?;
            let finished = vector.finish(kernel)?;
            Ok((reserved, before - free_in(kernel)?, finished.len()))
        };
        Ok([taken_by(kernel, Backing::Lazy.into())?, taken_by(kernel, Backing::Eager.into())?])
    });
    let page = PAGE as u64;
    assert_eq!(taken.unwrap(), [(page, page, 1), (64 << 10, page, 1)]);
    assert_eq!(free(&space), before);
}

#[test]
fn a_vector_with_memory_at_once_fills_all_there_is_and_refuses_before_it_writes() {
    let space = space(1);
    let before = free(&space);
    let (len, refused, values) = run(&space, |kernel| {
        let mut vector = Growable::with_options(Backing::Eager);
        let part: Vec<u64> = (0..1000).collect();
        let refused = loop {
            if let Err(error) = vector.extend(kernel, &part) {
                break error;
            }
        };
        let len = vector.len();
        Ok((len, refused, vector.finish(kernel)?))
    })
    .unwrap();
    let KernelError::Window { error: WindowError::Refused { .. }, .. } = refused else {
        panic!("{refused}")
    };
    // All but what one part takes, and not half of it.
    assert!(len as u64 * 8 > OWN - 8000, "{len}");
    assert!(len % 1000 == 0, "{len}: no part was written in part");
    let right = |(n, value): (usize, &u64)| *value == n as u64 % 1000;
    assert!(values.host().unwrap().iter().enumerate().all(right));
    drop(values);
    assert_eq!(free(&space), before);
}

#[test]
fn columns_get_memory_at_once_too() {
    let space = space(1);
    let taken = run(&space, |kernel| {
        let before = free_in(kernel)?;
        let mut numbers = ColumnBuilder::<u64>::with_options(Backing::Eager);
        numbers.extend_nullable(kernel, &[Some(1), None])?;
        numbers.extend(kernel, &[0; 8])?;
        let of_numbers = before - free_in(kernel)?;
        let mut texts = TextBuilder::with_options(Backing::Eager);
        texts.extend(kernel, &["a", "b"])?;
        let of_texts = before - of_numbers - free_in(kernel)?;
        let (numbers, texts) = (numbers.finish(kernel)?, texts.finish(kernel)?);
        Ok((of_numbers, of_texts, before - free_in(kernel)?, numbers.len + texts.len))
    });
    // Values and validity, texts and where they begin: 64 KiB each, and in the end a page each.
    assert_eq!(taken.unwrap(), (128 << 10, 128 << 10, 4 * PAGE as u64, 12));
}

#[test]
fn what_may_only_be_read_does_not_grow() {
    let space = space(1);
    let before = free(&space);
    let error =
        run(&space, |kernel| Growable::with_options(Backing::Lazy.read_only()).push(kernel, 1u64));
    let error = error.unwrap_err().to_string();
    assert!(error.contains("read_only()"), "{error}");
    assert_eq!(free(&space), before);
}

#[test]
fn host_and_cards_write_in_turns() {
    let space = space(2);
    let cards: Vec<_> = space.cards().collect();
    let mut buffer = space.alloc_on::<u64>(cards[1], 20_000, Backing::Lazy).unwrap();
    for round in 0..20 {
        buffer.host_mut().unwrap().iter_mut().for_each(|value| *value += 1);
        let values = buffer.host_mut().unwrap();
        let kernel = space.kernel("add").on(cards[round % 2]);
        let add = |kernel: &mut KernelContext, span: WriteSpan<u64>| {
            for n in 0..span.len() {
                let value = kernel.load(span.ptr(n))?;
                kernel.store(span.ptr(n), value + 10)?;
            }
            Ok(())
        };
        kernel.run(Write(values), add).unwrap();
    }
    assert!(buffer.host().unwrap().iter().all(|&value| value == 220));
    assert_eq!(buffer.to_vec().unwrap(), vec![220; 20_000]);
}

#[test]
fn without_a_window_all_is_refused_and_says_how_to_get_one() {
    let space = Space::builder().cards(1).address_space(4 << 20).build().unwrap();
    let card = space.card(0).unwrap();
    let none = refused(run(&space, |kernel| kernel.alloc::<u8>(1, Backing::Lazy).map(drop)));
    assert!(none.to_string().contains("card_window"), "{none}");
    refused(space.alloc_on::<u8>(card, 1, Backing::Lazy));
    assert!(space.own_memory_free(card).is_err());
    let empty = run(&space, |kernel| Growable::<u8>::new().finish(kernel)).unwrap();
    assert!(
        empty.is_empty() && empty.host().unwrap().is_empty() && empty.to_vec().unwrap().is_empty()
    );
    let odd = Space::builder().card_window(4097).build();
    assert!(odd.unwrap_err().to_string().contains("multiple of 4096"));
}

#[test]
fn another_card_that_does_not_reach_the_memory_is_told_so() {
    let builder = Space::builder().cards(2).card_window(OWN).peer_to_peer(false);
    let space = builder.address_space(4 << 20).build().unwrap();
    let cards: Vec<_> = space.cards().collect();
    let mut buffer = space.alloc_on::<u64>(cards[0], 10, Backing::Eager).unwrap();
    let launch = |card| space.kernel("write").on(card);
    let store = |kernel: &mut KernelContext, span: WriteSpan<u64>| kernel.store(span.ptr(0), 5);
    let elsewhere = launch(cards[1]).run(Write(buffer.host_mut().unwrap()), store);
    assert!(matches!(elsewhere, Err(Error::Live(LiveError::WindowElsewhere { .. }))));
    launch(cards[0]).run(Write(buffer.host_mut().unwrap()), store).unwrap();
    assert_eq!(buffer.host().unwrap()[0], 5);
}

#[test]
fn the_memory_of_a_card_that_dies_is_gone_and_nobody_waits() {
    let space = space(2);
    let cards: Vec<_> = space.cards().collect();
    let mut buffer = space.alloc_on::<u64>(cards[0], 100_000, Backing::Eager).unwrap();
    let began = Arc::new(AtomicBool::new(false));
    let (seen, started) = (Arc::clone(&began), Instant::now());
    space.scope(|s| {
        let values = buffer.host_mut().unwrap();
        let other = s.kernel("other").on(cards[1]).launch(Write(values), move |kernel, span| {
            loop {
                for n in 0..span.len() {
                    kernel.store(span.ptr(n), 1)?;
                }
                seen.store(true, Ordering::SeqCst);
            }
            #[expect(unreachable_code, reason = "it ends by a fault")]
            Ok(())
        });
        let own = s.kernel("own").on(cards[0]).launch((), |kernel, ()| {
            loop {
                let span = kernel.alloc::<u64>(1000, Backing::Eager)?;
                kernel.store(span.ptr(0), 1)?;
                kernel.free(span)?;
            }
            #[expect(unreachable_code, reason = "it ends with its card")]
            Ok(())
        });
        while !began.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        space.fail_card(cards[0]).unwrap();
        let lost = other.unwrap().wait();
        let Err(Error::Kernel(KernelError::Fault { reason, .. })) = lost else {
            panic!("{lost:?}")
        };
        assert_eq!(reason, farside_types::CancelReason::Lost);
        assert!(own.unwrap().wait().is_err());
    });
    assert!(started.elapsed() < Duration::from_secs(20));
    assert!(matches!(buffer.to_vec(), Err(WindowError::Gone { .. })));
    assert!(matches!(buffer.host(), Err(WindowError::Gone { .. })));
    let again = refused(space.alloc_on::<u64>(cards[0], 1, Backing::Lazy));
    assert!(matches!(again, WindowError::Gone { .. }), "{again}");
    // The other card's is as it was.
    space.alloc_on::<u64>(cards[1], 100, Backing::Eager).unwrap();
}

#[test]
fn many_kernels_and_the_program_allocate_at_once() {
    let space = space(2);
    let before = free(&space);
    let card = space.card(0).unwrap();
    let total = AtomicU64::new(0);
    space.scope(|s| {
        let kernels: Vec<_> = (0..8u64)
            .map(|salt| {
                let churn = move |kernel: &mut KernelContext, ()| {
                    let mut kept: Vec<(WriteSpan<u64>, u64)> = Vec::new();
                    let mut random = salt + 1;
                    for round in 0..60 {
                        random = random
                            .wrapping_mul(6364136223846793005)
                            .wrapping_add(1442695040888963407);
                        let len = 1 + (random >> 33) as usize % 20_000;
                        let mark = salt * 1000 + round + 1;
                        if kept.len() > 3 {
                            let (span, mark) = kept.swap_remove((random >> 20) as usize % 4);
                            if !is_filled(kernel, &span, span.len().min(50), mark) {
                                return Err(kernel.fail("another's values"));
                            }
                            kernel.free(span)?;
                        }
                        let mut span = kernel.alloc::<u64>(len, Backing::Lazy)?;
                        fill(kernel, &mut span, mark)?;
                        kept.push((span, mark));
                        if round % 5 == 4 {
                            let (mut span, mark) = kept.swap_remove(0);
                            let len = span.len();
                            kernel.realloc(&mut span, len + 10_000)?;
                            if !is_filled(kernel, &span, len.min(50), mark) {
                                return Err(kernel.fail("values lost by a move"));
                            }
                            kernel.free(span)?;
                        }
                    }
                    Ok(())
                };
                s.kernel("churn").launch((), churn).unwrap()
            })
            .collect();
        for round in 0..100u64 {
            let mut buffer = space.alloc_on::<u64>(card, 3000, Backing::Eager).unwrap();
            assert!(buffer.host().unwrap().iter().all(|&value| value == 0), "round {round}");
            buffer.host_mut().unwrap().fill(round);
            total.fetch_add(buffer.to_vec().unwrap().iter().sum::<u64>(), Ordering::SeqCst);
        }
        for kernel in kernels {
            kernel.wait().unwrap();
        }
    });
    assert_eq!(total.into_inner(), 3000 * (0..100).sum::<u64>());
    assert_eq!(free(&space), before);
}

#[test]
fn a_kernel_that_never_lets_go_ends_allocation_and_nothing_hangs() {
    let builder = Space::builder().cards(1).card_window(OWN).address_space(4 << 20);
    let space = builder.grace(Duration::from_millis(20)).build().unwrap();
    let card = space.card(0).unwrap();
    let mut buffer = space.alloc_on::<u64>(card, 10, Backing::Eager).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    let hangs = move |kernel: &mut KernelContext, span: WriteSpan<u64>| {
        kernel.with(span, |_| {
            while !stopped.load(Ordering::SeqCst) {
                std::thread::sleep(Duration::from_millis(1));
            }
        })
    };
    let launch = space.kernel("hangs").time_limit(Duration::from_millis(20));
    let hung = launch.run(Write(buffer.host_mut().unwrap()), hangs);
    assert!(matches!(hung, Err(Error::Kernel(KernelError::Hung { .. }))), "{hung:?}");
    let started = Instant::now();
    drop(buffer);
    assert!(started.elapsed() < Duration::from_secs(10));
    let held = refused(space.alloc_on::<u64>(card, 1, Backing::Lazy));
    assert!(matches!(held, WindowError::Held { .. }), "{held}");
    stop.store(true, Ordering::SeqCst);
}

#[test]
fn one_card_has_more_than_four_gigabytes() {
    let builder = Space::builder().cards(1).card_window(6 << 30).address_space(4 << 20);
    let space = builder.build().unwrap();
    let card = space.card(0).unwrap();
    let len = (5usize << 30) / 8;
    let mut buffer = space.alloc_on::<u64>(card, len, Backing::Eager).unwrap();
    let words = [0, 1, len / 2, (4 << 30) / 8 - 1, (4 << 30) / 8, len - 1];
    let values = Write(buffer.host_mut().unwrap());
    let store = move |kernel: &mut KernelContext, span: WriteSpan<u64>| {
        words.iter().try_for_each(|&at| kernel.store(span.ptr(at), at as u64 + 1))
    };
    space.kernel("store").run(values, store).unwrap();
    let seen = buffer.host().unwrap();
    assert!(words.iter().all(|&at| seen[at] == at as u64 + 1));
    assert_eq!(seen[2], 0);
}
