//! What a program may do to memory while it is adopted, and what may fail: nothing is lost, nothing hangs, and
//! what is another's stays untouched.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use farside::{
    AdoptError, Adopted, CardId, Error, KernelContext, KernelError, LiveError, MemoryId, PageState,
    Read, ReadSpan, ReadView, Shared, Space, Write, WriteSpan, WriteView,
};
use harness::live::mapped::Mapped;
use harness::live::nth_call::{NthCall, OF_THE_ARENA, PAGING_CALLS};
use harness::live::{Child, in_child, must_be_caught, role, within};

const LIMIT: Duration = Duration::from_secs(120);
/// Words of a page.
const PAGE: usize = 512;

fn space(cards: usize) -> Space {
    Space::builder().cards(cards).card_memory(8 << 20).address_space(64 << 20).build().unwrap()
}

fn add_one(k: &mut KernelContext, data: WriteSpan<u64>) -> Result<(), KernelError> {
    k.with(data, |mut data: WriteView<u64>| data.iter_mut().for_each(|word| *word += 1))
}

fn number(words: &mut [u64]) {
    words.iter_mut().zip(1..).for_each(|(word, n)| *word = n);
}

#[track_caller]
fn is_numbered(words: &[u64], more: u64) {
    let wrong = words.iter().zip(1..).position(|(&word, n)| word != n + more);
    if let Some(at) = wrong {
        panic!("word {at} is {}", words[at]);
    }
}

#[test]
fn a_child_has_right_values_and_the_parent_goes_on() {
    within(LIMIT, "fork", || {
        let space = space(1);
        let memory = Mapped::new(16, 4096);
        // SAFETY: nobody else has the words.
        let words = unsafe { memory.words() };
        number(words);
        let mut data = space.adopt(words, "mine").unwrap();
        for round in 0..20 {
            space.kernel("add").run(Write(&mut data), add_one).unwrap();
            let more = round + 1;
            let code = in_child(|| {
                let right = data.iter().zip(1..).all(|(&word, n)| word == n + more);
                let refused = matches!(
                    space.adopt(&mut [1u64; 4], ""),
                    Err(Error::Live(LiveError::WrongProcess { .. }))
                );
                data[5] = 77;
                i32::from(!right) + 2 * i32::from(!refused)
            });
            assert_eq!(code, 0, "round {round}");
            is_numbered(&data, more);
        }
        space.check().unwrap();
        data.release().unwrap();
    });
}

#[test]
fn a_program_forks_while_kernels_use_its_memory() {
    within(LIMIT, "fork while running", || {
        let space = space(2);
        let memory = Mapped::new(8, 4096);
        // SAFETY: they are used as atomic words from here on.
        let data = space.adopt(unsafe { memory.words() }, "mine").unwrap();
        // SAFETY: as above; the guard outlives them.
        let words =
            unsafe { std::slice::from_raw_parts(data.as_ptr().cast::<AtomicU64>(), data.len()) };
        let stop = AtomicBool::new(false);
        std::thread::scope(|threads| {
            let added = threads.spawn(|| {
                let mut added = 0;
                while !stop.load(SeqCst) {
                    for card in space.cards() {
                        let count =
                            |k: &mut KernelContext, words: farside::AtomicSpan<AtomicU64>| {
                                (0..words.len())
                                    .step_by(PAGE)
                                    .try_for_each(|at| k.fetch_add(words, at, 1).map(drop))
                            };
                        space.kernel("count").on(card).run(Shared(words), count).unwrap();
                        added += 1;
                    }
                }
                added
            });
            let mut last = 0;
            for _ in 0..30 {
                let code = in_child(|| {
                    let seen: Vec<u64> =
                        words.iter().step_by(PAGE).map(|word| word.load(SeqCst)).collect();
                    let apart = seen.iter().max().unwrap() - seen.iter().min().unwrap();
                    // A kernel goes from page to page, so neighbours are one apart at most; zeros would be seen.
                    i32::from(apart > 1) + 2 * i32::from(seen[0] < last)
                });
                assert_eq!(code, 0);
                last = words[0].load(SeqCst);
                std::thread::sleep(Duration::from_millis(3));
            }
            stop.store(true, SeqCst);
            let added = added.join().unwrap();
            assert!(words.iter().step_by(PAGE).all(|word| word.load(SeqCst) == added));
        });
    });
}

#[test]
fn what_is_unmapped_leaves_and_the_rest_comes_home() {
    within(LIMIT, "munmap", || {
        let space = space(1);
        for away in [false, true] {
            let memory = Mapped::new(12, 4096);
            // SAFETY: nobody else has the words.
            let words = unsafe { memory.words() };
            number(words);
            let data = space.adopt(words, "mine").unwrap();
            if away {
                space.migrate(&data, space.card(0).unwrap()).unwrap();
            }
            // SAFETY: the pages are this test's, which does not use them any more.
            assert_eq!(unsafe { libc::munmap(memory.page(4).cast(), 4 * 4096) }, 0);
            let stranger = at(memory.page(4), 4);
            stranger.fill(9);
            let left = data.iter().enumerate().filter(|(at, _)| !(4 * PAGE..8 * PAGE).contains(at));
            assert!(left.clone().all(|(at, &word)| word == at as u64 + 1), "away: {away}");
            // The driver lets go of it soon, by itself.
            let end = Instant::now() + Duration::from_secs(10);
            while space.locate(&data[..1]).is_ok() {
                assert!(Instant::now() < end, "it stays");
                std::thread::yield_now();
            }
            let gone = Error::from(data.release().map(|_| "given back").unwrap_err());
            let expected =
                matches!(gone, Error::Live(LiveError::Adopt(AdoptError::NotAdopted { .. })));
            assert!(expected, "{gone}");
            assert!(stranger.iter().all(|&word| word == 9), "another's memory was touched");
            space.check().unwrap();
        }
    });
}

/// Maps fresh memory at an address where there is none; nothing if somebody else was faster.
fn at<'a>(addr: *mut u8, pages: usize) -> &'a mut [u64] {
    const NOREPLACE: libc::c_int = 0x10_0000;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | NOREPLACE;
    let rights = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: nothing is replaced.
    let there = unsafe { libc::mmap(addr.cast(), pages * 4096, rights, flags, -1, 0) };
    if there != addr.cast() {
        println!("somebody else is at {addr:?}: {}", std::io::Error::last_os_error());
        return &mut [];
    }
    // SAFETY: just mapped, and this test's alone.
    unsafe { std::slice::from_raw_parts_mut(addr.cast(), pages * PAGE) }
}

#[test]
fn addresses_that_are_used_again_at_once_are_never_taken_for_the_former_ones() {
    within(LIMIT, "reuse", || {
        let space = space(2);
        let mut lost = 0;
        for round in 0..200u64 {
            let memory = Mapped::new(8, 4096);
            // SAFETY: kernels use them as words, this thread after they were given back.
            let words = unsafe { memory.words() };
            let data = space.adopt(words, "mine").unwrap();
            // SAFETY: as above; they are made before the memory goes, and not used after it by this thread.
            let shared = unsafe {
                std::slice::from_raw_parts(data.as_ptr().cast::<AtomicU64>(), data.len())
            };
            space
                .scope(|s| {
                    let jobs: Vec<_> = space
                        .cards()
                        .map(|card| {
                            s.kernel("add").on(card).launch(Shared(shared), |k, words| {
                                for turn in 0..2000 {
                                    k.fetch_add(words, turn * 37 % words.len(), 1)?;
                                }
                                Ok(())
                            })
                        })
                        .collect::<Result<_, _>>()?;
                    std::thread::sleep(Duration::from_micros(round % 17 * 20));
                    // SAFETY: the pages are this test's; kernels that still use them fail.
                    assert_eq!(unsafe { libc::munmap(memory.start().cast(), 8 * 4096) }, 0);
                    let stranger = at(memory.start(), 8);
                    stranger.fill(round);
                    for job in jobs {
                        lost += u64::from(job.wait().is_err());
                    }
                    assert!(stranger.iter().all(|&word| word == round), "round {round}");
                    Ok::<_, Error>(())
                })
                .unwrap();
            let _ = data.release();
        }
        println!("{lost} kernels lost their memory");
        space.check().unwrap();
    });
}

#[test]
fn what_is_moved_by_mremap_comes_home_at_its_new_place() {
    within(LIMIT, "mremap", || {
        let space = space(1);
        for (away, pages) in [(false, 12), (true, 12), (true, 5)] {
            let memory = Mapped::new(12, 4096);
            // SAFETY: nobody else has the words.
            let words = unsafe { memory.words() };
            number(words);
            let data = space.adopt(words, "mine").unwrap();
            if away {
                space.migrate(&data, space.card(0).unwrap()).unwrap();
            }
            let place = Mapped::new(20, 4096);
            let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
            let (from, to) = (memory.page(2), place.page(3));
            // SAFETY: the pages are this test's, which uses them at their new place.
            let now =
                unsafe { libc::mremap(from.cast(), pages.min(10) * 4096, pages * 4096, flags, to) };
            assert_eq!(now, to.cast());
            let stranger = at(memory.page(2), pages.min(10));
            stranger.fill(9);
            // SAFETY: the pages are there now.
            let moved = unsafe { std::slice::from_raw_parts_mut(to.cast::<u64>(), pages * PAGE) };
            let had = pages.min(10) * PAGE;
            is_numbered(&moved[..had], 2 * PAGE as u64);
            assert!(moved[had..].iter().all(|&word| word == 0), "what was added is fresh");
            is_numbered(&data[..2 * PAGE], 0);
            moved.fill(5);
            let gone = Error::from(data.release().map(|_| "given back").unwrap_err());
            assert!(gone.to_string().contains("moved or unmapped"), "{gone}");
            assert!(moved.iter().all(|&word| word == 5));
            assert!(stranger.iter().all(|&word| word == 9));
            space.check().unwrap();
        }
    });
}

#[test]
fn what_is_emptied_is_zero_for_the_program_and_for_the_next_kernel() {
    within(LIMIT, "madvise", || {
        let space = space(1);
        for (from, round) in (0..40).zip(0..) {
            let memory = Mapped::new(12, 4096);
            // SAFETY: nobody else has the words.
            let words = unsafe { memory.words() };
            number(words);
            let mut data = space.adopt(words, "mine").unwrap();
            if round % 4 != 0 {
                space.migrate(&data[..(from % 12 + 1) * PAGE], space.card(0).unwrap()).unwrap();
            }
            if round % 3 == 0 {
                space.kernel("farside.sum").call(Read(&data)).unwrap();
            }
            // SAFETY: the pages are this test's, which wants them empty.
            let done =
                unsafe { libc::madvise(memory.page(3).cast(), 4 * 4096, libc::MADV_DONTNEED) };
            assert_eq!(done, 0);
            let is_empty = |at: usize| (3 * PAGE..7 * PAGE).contains(&at);
            let right: u64 =
                (0..12 * PAGE).filter(|&at| !is_empty(at)).map(|at| at as u64 + 1).sum();
            if round % 2 == 0 {
                let sum = space.kernel("farside.sum").call(Read(&data)).unwrap();
                assert_eq!(sum, right, "round {round}, as a kernel sees it");
            }
            assert_eq!(data.iter().sum::<u64>(), right, "round {round}");
            data[4 * PAGE] = 3;
            let sum = space.kernel("farside.sum").call(Read(&data)).unwrap();
            assert_eq!(sum, right + 3, "round {round}, after a write");
            data.release().unwrap();
        }
    });
}

#[test]
fn what_is_written_after_it_was_freed_is_kept() {
    within(LIMIT, "MADV_FREE", || {
        let space = space(1);
        for away in [false, true] {
            let memory = Mapped::new(8, 4096);
            // SAFETY: nobody else has the words.
            let words = unsafe { memory.words() };
            number(words);
            let mut data = space.adopt(words, "mine").unwrap();
            if away {
                space.migrate(&data, space.card(0).unwrap()).unwrap();
            }
            // SAFETY: the pages are this test's, which does not want what is in them.
            let done = unsafe { libc::madvise(memory.page(2).cast(), 4 * 4096, libc::MADV_FREE) };
            assert_eq!(done, 0);
            // Some are written before a kernel comes, one is not.
            data[2 * PAGE..5 * PAGE].fill(7);
            space.kernel("add").run(Write(&mut data), add_one).unwrap();
            assert!(data[2 * PAGE..5 * PAGE].iter().all(|&word| word == 8), "away: {away}");
            let left = |at: usize| data[at] == at as u64 + 2;
            assert!((0..2 * PAGE).chain(6 * PAGE..8 * PAGE).all(left), "away: {away}");
            // Whichever of the two it was when the kernel came, the program sees what the kernel saw.
            let freed = (5 * PAGE..6 * PAGE).all(|at| data[at] == 1 || left(at));
            assert!(freed, "away: {away}");
            data.release().unwrap();
        }
    });
}

#[test]
fn what_takes_the_place_of_adopted_memory_is_adopted_at_once_and_the_former_handle_leaves_it_alone()
{
    within(LIMIT, "adopt again", || {
        let space = space(1);
        for round in 0..200 {
            let memory = Mapped::new(8, 4096);
            // SAFETY: nobody else has the words.
            let words = unsafe { memory.words() };
            number(words);
            let old = space.adopt(words, "old").unwrap();
            if round % 2 == 0 {
                space.migrate(&old, space.card(0).unwrap()).unwrap();
            }
            // SAFETY: the pages are this test's, which does not use them any more.
            assert_eq!(unsafe { libc::munmap(memory.start().cast(), 8 * 4096) }, 0);
            let fresh = at(memory.start(), 8);
            if fresh.is_empty() {
                continue;
            }
            number(fresh);
            let mut new = space.adopt(fresh, "new").unwrap();
            space.kernel("add").run(Write(&mut new), add_one).unwrap();
            let gone = Error::from(old.release().map(|_| "given back").unwrap_err());
            let expected =
                matches!(gone, Error::Live(LiveError::Adopt(AdoptError::NotAdopted { .. })));
            assert!(expected, "{gone}");
            assert!(space.locate(&new).is_ok(), "round {round}: the former handle gave it back");
            space.kernel("add").run(Write(&mut new), add_one).unwrap();
            is_numbered(&new, 2);
            new.release().unwrap();
        }
        space.check().unwrap();
    });
}

#[test]
fn what_was_moved_is_adopted_at_its_new_place_at_once() {
    within(LIMIT, "adopt what moved", || {
        let space = space(1);
        for round in 0..100 {
            let memory = Mapped::new(12, 4096);
            // SAFETY: nobody else has the words.
            let words = unsafe { memory.words() };
            number(words);
            let old = space.adopt(words, "old").unwrap();
            if round % 2 == 0 {
                space.migrate(&old, space.card(0).unwrap()).unwrap();
            }
            let place = Mapped::new(12, 4096);
            let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
            let (from, to, bytes) = (memory.start(), place.start(), 12 * 4096);
            // SAFETY: the pages are this test's, which uses them at their new place.
            let now = unsafe { libc::mremap(from.cast(), bytes, bytes, flags, to) };
            assert_eq!(now, to.cast());
            at(memory.start(), 12);
            // SAFETY: the words are there now, and nobody else has them.
            let mut new = space.adopt(unsafe { place.words() }, "new").unwrap();
            space.kernel("add").run(Write(&mut new), add_one).unwrap();
            is_numbered(&new, 1);
            assert!(old.release().is_err());
            space.kernel("add").run(Write(&mut new), add_one).unwrap();
            is_numbered(&new, 2);
            new.release().unwrap();
        }
        space.check().unwrap();
    });
}

#[test]
fn neighbours_come_and_go_at_once() {
    within(LIMIT, "neighbours", || {
        let space = space(2);
        let memory = Mapped::new(4, 4096);
        // SAFETY: nobody else has the words.
        let words = unsafe { memory.words() };
        // The middle of the second page is where one ends and the other begins.
        let (left, right) = words.split_at_mut(PAGE + PAGE / 2);
        std::thread::scope(|threads| {
            for (half, card) in [left, right].into_iter().zip(space.cards()) {
                let space = &space;
                threads.spawn(move || {
                    for round in 1..=500 {
                        let mut data = space.adopt(half, "half").unwrap();
                        space.kernel("add").on(card).run(Write(&mut data), add_one).unwrap();
                        data.release().unwrap();
                        assert!(half.iter().all(|&word| word == round), "round {round}");
                    }
                });
            }
        });
        space.check().unwrap();
    });
}

#[test]
fn all_of_a_range_is_found_though_its_edges_do_not_move() {
    within(LIMIT, "locate", || {
        let space = space(1);
        let memory = Mapped::new(6, 4096);
        // SAFETY: nobody else has the words.
        let words = unsafe { memory.words() };
        let data = space.adopt(&mut words[3..6 * PAGE - 5], "mine").unwrap();
        space.migrate(&data, space.card(0).unwrap()).unwrap();
        let pages: u64 = space.locate(&data).unwrap().iter().map(|part| part.range.count).sum();
        assert_eq!(pages, 6);
        let moved: u64 = space.history(&data).unwrap().iter().map(|moved| moved.range.count).sum();
        assert_eq!(moved, 4);
    });
}

#[test]
fn rights_that_are_taken_away_are_the_programs_and_come_back() {
    within(LIMIT, "mprotect", || {
        let space = space(1);
        let card = space.card(0).unwrap();
        let memory = Mapped::new(8, 4096);
        // SAFETY: nobody else has the words.
        let words = unsafe { memory.words() };
        number(words);
        let mut data = space.adopt(words, "mine").unwrap();
        let protect = |rights| {
            // SAFETY: the pages are this test's, which does not write them meanwhile.
            assert_eq!(unsafe { libc::mprotect(memory.page(2).cast(), 2 * 4096, rights) }, 0);
        };
        space.migrate(&data, card).unwrap();
        protect(libc::PROT_READ);
        is_numbered(&data, 0);
        // What may only be read is not taken away: whoever wants it is told so.
        let refused = space.kernel("add").run(Write(&mut data[2 * PAGE..]), add_one);
        assert!(refused.is_err(), "{refused:?}");
        protect(libc::PROT_READ | libc::PROT_WRITE);
        is_numbered(&data, 0);
        space.kernel("add").run(Write(&mut data), add_one).unwrap();
        is_numbered(&data, 1);
        space.check().unwrap();
    });
}

#[test]
fn pages_that_were_never_touched_are_zero_for_kernels() {
    within(LIMIT, "holes", || {
        let space = space(1);
        let memory = Mapped::new(1000, 4096);
        // SAFETY: nobody else has the words.
        let words = unsafe { memory.words() };
        words[77 * PAGE] = 5;
        let mut data = space.adopt(words, "mine").unwrap();
        assert_eq!(space.kernel("farside.sum").call(Read(&data)).unwrap(), 5);
        let chunk = 200 * PAGE;
        for part in data.chunks_mut(chunk) {
            space.kernel("add").run(Write(part), add_one).unwrap();
        }
        assert!(data.iter().zip(0..).all(|(&word, at)| word == 1 + 5 * u64::from(at == 77 * PAGE)));
        let fresh = Mapped::new(300, 4096);
        // SAFETY: nobody else has the words.
        let mut fresh = space.adopt(unsafe { fresh.words() }, "fresh").unwrap();
        fresh[12 * PAGE] = 1;
        assert_eq!(fresh.iter().sum::<u64>(), 1);
        assert_eq!(space.migrate(&fresh, space.card(0).unwrap()).unwrap(), 300);
        assert_eq!(fresh.iter().sum::<u64>(), 1);
    });
}

#[test]
fn huge_pages_go_and_come_back() {
    within(LIMIT, "huge", || {
        let space = space(1);
        let memory = Mapped::new(1024, 2 << 20);
        // SAFETY: the pages are this test's.
        let advised = unsafe { libc::madvise(memory.start().cast(), 4 << 20, libc::MADV_HUGEPAGE) };
        assert_eq!(advised, 0);
        // SAFETY: nobody else has the words.
        let words = unsafe { memory.words() };
        number(words);
        let mut data = space.adopt(words, "mine").unwrap();
        for round in 1..4 {
            let (first, second) = data.split_at_mut(700 * PAGE);
            space.kernel("add").run(Write(first), add_one).unwrap();
            space.kernel("add").run(Write(second), add_one).unwrap();
            is_numbered(&data, round);
        }
        assert_eq!(space.migrate(&data, space.card(0).unwrap()).unwrap(), 1024);
        is_numbered(&data, 3);
        space.check().unwrap();
    });
}

/// A file for O_DIRECT, with numbered words.
fn direct_file(pages: usize) -> std::fs::File {
    use std::os::unix::fs::OpenOptionsExt;
    let path =
        std::env::current_exe().unwrap().with_extension(format!("direct-{}", std::process::id()));
    let words: Vec<u8> = (1..=(pages * PAGE) as u64).flat_map(u64::to_ne_bytes).collect();
    std::fs::write(&path, words).unwrap();
    let file =
        std::fs::OpenOptions::new().read(true).write(true).custom_flags(libc::O_DIRECT).open(&path);
    let _ = std::fs::remove_file(path);
    file.expect("a file system with O_DIRECT")
}

#[test]
fn devices_read_and_write_it_wherever_it_is() {
    use std::os::unix::fs::FileExt;
    within(LIMIT, "O_DIRECT", || {
        let space = space(1);
        let card = space.card(0).unwrap();
        let file = direct_file(64);
        let memory = Mapped::new(64, 4096);
        // SAFETY: nobody else has the words.
        let mut data = space.adopt(unsafe { memory.words() }, "mine").unwrap();
        let stop = AtomicBool::new(false);
        for round in 0..10 {
            space.migrate(&data, card).unwrap();
            data.fill(0);
            space.migrate(&data[..32 * PAGE], card).unwrap();
            stop.store(false, SeqCst);
            std::thread::scope(|threads| {
                let (space, stop, seen) = (&space, &stop, &data[..]);
                // SAFETY: the same words, which nobody writes but the device.
                let bytes = unsafe { std::slice::from_raw_parts_mut(memory.start(), 64 * 4096) };
                let mover = threads.spawn(move || {
                    let mut moved = 0;
                    while !stop.load(SeqCst) {
                        moved += space.prefetch(seen, card).unwrap_or(0);
                    }
                    moved
                });
                for _ in 0..5 {
                    file.read_exact_at(bytes, 0).unwrap();
                }
                stop.store(true, SeqCst);
                mover.join().unwrap();
            });
            is_numbered(&data, 0);
            space.kernel("add").run(Write(&mut data), add_one).unwrap();
            // SAFETY: the same words, which nobody writes.
            let bytes = unsafe { std::slice::from_raw_parts(memory.start(), 64 * 4096) };
            file.write_all_at(bytes, 0).unwrap();
            let mut other = Mapped::new(64, 4096);
            // SAFETY: nobody else has the words.
            let check = unsafe { std::slice::from_raw_parts_mut(other.start(), 64 * 4096) };
            file.read_exact_at(check, 0).unwrap();
            // SAFETY: as above.
            is_numbered(unsafe { other.words() }, 1);
            other = Mapped::new(1, 4096);
            drop(other);
            let words: Vec<u64> = (1..=(64 * PAGE) as u64).collect();
            data.copy_from_slice(&words);
            // SAFETY: as above.
            let bytes = unsafe { std::slice::from_raw_parts(memory.start(), 64 * 4096) };
            file.write_all_at(bytes, 0).unwrap();
            assert!(round < 10);
        }
        space.check().unwrap();
    });
}

/// Buffers registered with an io_uring: pinned until it is closed.
struct Ring(std::os::fd::OwnedFd);

impl Ring {
    fn with_buffer(start: *mut u8, bytes: usize) -> Ring {
        use std::os::fd::{AsRawFd, FromRawFd};
        let mut parameters = [0u8; 120];
        // SAFETY: io_uring_setup fills the parameters, whose size is that of the structure.
        let fd = unsafe { libc::syscall(libc::SYS_io_uring_setup, 4, parameters.as_mut_ptr()) };
        assert!(fd >= 0, "no io_uring: {}", std::io::Error::last_os_error());
        // SAFETY: just made, and nobody else's.
        let ring = Ring(unsafe { std::os::fd::OwnedFd::from_raw_fd(fd as i32) });
        let buffer = libc::iovec { iov_base: start.cast(), iov_len: bytes };
        // SAFETY: IORING_REGISTER_BUFFERS takes one iovec.
        let done = unsafe {
            libc::syscall(libc::SYS_io_uring_register, ring.0.as_raw_fd(), 0, &raw const buffer, 1)
        };
        assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
        ring
    }
}

#[test]
fn what_a_device_has_pinned_stays_and_is_counted() {
    within(LIMIT, "pinned", || {
        let space = space(1);
        let card = space.card(0).unwrap();
        let memory = Mapped::new(8, 4096);
        // SAFETY: nobody else has the words.
        let words = unsafe { memory.words() };
        number(words);
        let mut data = space.adopt(words, "mine").unwrap();
        space.migrate(&data, card).unwrap();
        // The kernel brings them home, and pins them.
        let ring = Ring::with_buffer(memory.page(2), 2 * 4096);
        let refused = space.kernel("add").run(Write(&mut data[2 * PAGE..4 * PAGE]), add_one);
        let text = refused.unwrap_err().to_string();
        assert!(text.contains("has it pinned"), "{text}");
        is_numbered(&data, 0);
        assert!(space.report().pinned_by_devices > 0);
        // All others move.
        space.kernel("add").run(Write(&mut data[4 * PAGE..]), add_one).unwrap();
        is_numbered(&data[..4 * PAGE], 0);
        drop(ring);
        let end = Instant::now() + Duration::from_secs(10);
        while space.kernel("add").run(Write(&mut data[..4 * PAGE]), add_one).is_err() {
            assert!(Instant::now() < end, "it stays pinned");
        }
        is_numbered(&data, 1);
        space.check().unwrap();
    });
}

#[test]
fn locked_memory_stays_with_an_error_until_it_is_unlocked() {
    within(LIMIT, "mlock", || {
        let space = space(1);
        let memory = Mapped::new(8, 4096);
        // SAFETY: nobody else has the words.
        let words = unsafe { memory.words() };
        number(words);
        let mut data = space.adopt(words, "mine").unwrap();
        space.migrate(&data, space.card(0).unwrap()).unwrap();
        // SAFETY: nothing changes by it.
        assert_eq!(unsafe { libc::mlock(memory.page(1).cast(), 2 * 4096) }, 0);
        is_numbered(&data, 0);
        let refused = space.kernel("add").run(Write(&mut data[PAGE..3 * PAGE]), add_one);
        assert!(refused.is_err(), "{refused:?}");
        is_numbered(&data, 0);
        // SAFETY: as above.
        assert_eq!(unsafe { libc::munlock(memory.page(1).cast(), 2 * 4096) }, 0);
        space.kernel("add").run(Write(&mut data), add_one).unwrap();
        is_numbered(&data, 1);
    });
}

#[test]
fn memory_is_whole_when_it_is_given_back_under_a_kernel() {
    within(LIMIT, "under a kernel", || {
        let space = space(2);
        for round in 0..30u64 {
            let memory = Mapped::new(16, 4096);
            // SAFETY: they are used as atomic words.
            let data = space.adopt(unsafe { memory.words() }, "mine").unwrap();
            // SAFETY: the mapping outlives them.
            let words = unsafe {
                std::slice::from_raw_parts(data.as_ptr().cast::<AtomicU64>(), data.len())
            };
            let added = Arc::new(AtomicU64::new(0));
            space
                .scope(|s| {
                    let jobs: Vec<_> = space
                        .cards()
                        .map(|card| {
                            let added = Arc::clone(&added);
                            s.kernel("add").on(card).launch(Shared(words), move |k, words| {
                                for at in (0..words.len()).step_by(PAGE).cycle() {
                                    k.fetch_add(words, at, 1)?;
                                    added.fetch_add(1, SeqCst);
                                }
                                Ok(())
                            })
                        })
                        .collect::<Result<_, _>>()?;
                    std::thread::sleep(Duration::from_micros(300 + round * 50));
                    drop(data);
                    for job in jobs {
                        let error = job.wait().unwrap_err();
                        let text = error.to_string();
                        let gone = text.contains("freed") || text.contains("no allocation");
                        assert!(gone, "{text}");
                    }
                    Ok::<_, Error>(())
                })
                .unwrap();
            let sum: u64 = words.iter().map(|word| word.load(SeqCst)).sum();
            assert_eq!(sum, added.load(SeqCst), "round {round}");
        }
        space.check().unwrap();
    });
}

#[test]
fn what_is_lost_with_a_card_is_told_and_the_rest_is_whole() {
    within(LIMIT, "lost", || {
        let space = space(2);
        let memory = Mapped::new(8, 4096);
        // SAFETY: nobody else has the words.
        let words = unsafe { memory.words() };
        number(words);
        let mut data = space.adopt(words, "mine").unwrap();
        space.kernel("add").on(CardId(0)).run(Write(&mut data[..2 * PAGE]), add_one).unwrap();
        space
            .kernel("add")
            .on(CardId(1))
            .run(Write(&mut data[2 * PAGE..4 * PAGE]), add_one)
            .unwrap();
        space.fail_card(CardId(0)).unwrap();
        let parts = space.locate(&data).unwrap();
        assert!(parts.iter().any(|part| part.state == PageState::Lost), "{parts:?}");
        let lost = Error::from(data.release().map(|_| "given back").unwrap_err());
        let told = matches!(lost, Error::Live(LiveError::Adopt(AdoptError::Lost { pages: 2, .. })));
        assert!(told, "{lost}");
        // SAFETY: the guard is gone.
        let words = unsafe { memory.words() };
        assert!(words[..2 * PAGE].iter().all(|&word| word == 0));
        let right = |range: std::ops::Range<usize>, more: u64| {
            range.clone().all(|at| words[at] == at as u64 + 1 + more)
        };
        assert!(right(2 * PAGE..4 * PAGE, 1) && right(4 * PAGE..8 * PAGE, 0));
        words[0] = 1;
        space.check().unwrap();
    });
}

#[test]
fn reading_what_is_lost_ends_with_sigbus() {
    const TEST: &str = "reading_what_is_lost_ends_with_sigbus";
    if role().is_some() {
        let space = space(2);
        let mut words = vec![1u64; 8 * PAGE];
        let mut data = space.adopt(&mut words, "mine").unwrap();
        space.kernel("add").on(CardId(0)).run(Write(&mut data), add_one).unwrap();
        space.fail_card(CardId(0)).unwrap();
        println!("it read {}", std::hint::black_box(data[3 * PAGE]));
        return;
    }
    within(LIMIT, TEST, || {
        let ended = Child::new(TEST, "reads").run();
        assert_eq!(ended.signal, Some(libc::SIGBUS), "{}", ended.text);
        assert!(!ended.text.contains("it read"), "{}", ended.text);
    });
}

#[test]
fn a_space_that_closes_leaves_memory_that_nobody_gave_back_at_home() {
    within(LIMIT, "close", || {
        let memory = Mapped::new(8, 4096);
        {
            let space = space(1);
            // SAFETY: nobody else has the words.
            let words = unsafe { memory.words() };
            number(words);
            let mut data = space.adopt(words, "mine").unwrap();
            space.kernel("add").run(Write(&mut data), add_one).unwrap();
            space.migrate(&data, space.card(0).unwrap()).unwrap();
            // The guard's own hold of the space is given up, and nothing else.
            forget_but_close(data);
        }
        // SAFETY: the space is gone.
        let words = unsafe { memory.words() };
        is_numbered(words, 1);
        words.fill(3);
    });
}

/// Leaves memory adopted, as a program does that ends its space first.
fn forget_but_close(data: Adopted<'_, u64>) {
    let space = data.space().clone();
    std::mem::forget(data);
    // SAFETY: the guard that was forgotten had one more of these, which nobody drops otherwise.
    unsafe {
        let again = std::ptr::read(&space);
        drop(again);
    }
    drop(space);
}

#[test]
fn memory_that_comes_and_goes_leaves_nothing_behind() {
    within(LIMIT, "leaks", || {
        let space = space(1);
        let count = || {
            let lines = std::fs::read_to_string("/proc/self/maps").unwrap().lines().count();
            let files = std::fs::read_dir("/proc/self/fd").unwrap().count();
            let threads = std::fs::read_dir("/proc/self/task").unwrap().count();
            (lines, files, threads)
        };
        let mut memory = vec![1u64; 100 * PAGE];
        let mut turn = || {
            let mut data = space.adopt(&mut memory[3..], "mine").unwrap();
            space.kernel("add").run(Write(&mut data), add_one).unwrap();
        };
        (0..20).for_each(|_| turn());
        let before = count();
        (0..300).for_each(|_| turn());
        let after = count();
        assert!(
            after.0 <= before.0 + 6 && (after.1, after.2) == (before.1, before.2),
            "{before:?} {after:?}"
        );
    });
}

#[test]
fn control_copying_instead_of_moving_loses_writes() {
    must_be_caught("control_copying_instead_of_moving_loses_writes", || {
        let space = Space::builder()
            .cards(2)
            .card_memory(1 << 20)
            .address_space(16 << 20)
            .placement("on-touch")
            .build()
            .unwrap();
        let memory = Mapped::new(12, 4096);
        // SAFETY: they are used as atomic words.
        let data = space.adopt(unsafe { memory.words() }, "mine").unwrap();
        space.copy_adopted_first();
        // SAFETY: the mapping outlives them.
        let words =
            unsafe { std::slice::from_raw_parts(data.as_ptr().cast::<AtomicU64>(), data.len()) };
        let stop = AtomicBool::new(false);
        let (on_host, on_card) = std::thread::scope(|threads| {
            let host = threads.spawn(|| {
                let mut added = 0u64;
                while !stop.load(SeqCst) {
                    for page in words.chunks(PAGE) {
                        page[1].fetch_add(1, SeqCst);
                        added += 1;
                    }
                }
                added
            });
            let end = Instant::now() + Duration::from_secs(5);
            let mut added = 0u64;
            while Instant::now() < end {
                let count = |k: &mut KernelContext, words: farside::AtomicSpan<AtomicU64>| {
                    (0..words.len())
                        .step_by(PAGE)
                        .try_for_each(|at| k.fetch_add(words, at, 1).map(drop))
                };
                if space.kernel("count").run(Shared(words), count).is_ok() {
                    added += 12;
                }
            }
            stop.store(true, SeqCst);
            (host.join().unwrap(), added)
        });
        let sum: u64 = words.iter().map(|word| word.load(SeqCst)).sum();
        if sum == on_host + on_card {
            Ok(())
        } else {
            Err(format!("{sum} of {}", on_host + on_card))
        }
    });
}

/// One round of all that is done with adopted memory; gives what the words must be.
fn work(space: &Space, data: &mut Adopted<'_, u64>, mut count: u64) -> u64 {
    let all = |data: &[u64], count: u64, when: &str| {
        let wrong = data.iter().position(|&word| word != count);
        assert_eq!(wrong.map(|at| (at, data[at])), None, "{when}: not {count}");
    };
    for card in [CardId(0), CardId(1)] {
        if space.kernel("add").on(card).run(Write(&mut *data), add_one).is_ok() {
            count += 1;
        }
        all(data, count, "after a kernel");
        data.iter_mut().for_each(|word| *word += 1);
        count += 1;
        let _ = space.migrate(data, card);
        let _ = space.advise(data, farside::Advice::ReadMostly(true));
        let read =
            |k: &mut KernelContext, data: ReadSpan<u64>| k.with(data, |v: ReadView<u64>| v[0]);
        if let Ok(seen) = space.kernel("read").on(card).run(Read(&data[..]), read) {
            assert_eq!(seen, count, "as a card sees it");
        }
        all(data, count, "beside a copy");
        data.iter_mut().for_each(|word| *word += 1);
        count += 1;
        let _ = space.advise(data, farside::Advice::ReadMostly(false));
        let _ = space.migrate(data, MemoryId::HOST);
    }
    all(data, count, "at the end");
    count
}

fn whichever_call(calls: &NthCall) {
    const ERRNOS: [i32; 6] =
        [libc::ENOMEM, libc::EINVAL, libc::EEXIST, libc::ENOENT, libc::EBUSY, libc::EAGAIN];
    const NTH_MAX: u64 = 24;
    let open =
        || Space::builder().cards(2).card_memory(1 << 20).address_space(16 << 20).build().unwrap();
    let memory = Mapped::new(4, 4096);
    // SAFETY: one guard after the other has the words.
    let words = || unsafe { memory.words() };
    let before = calls.seen();
    {
        let space = open();
        words().fill(1);
        let mut data = space.adopt(words(), "mine").unwrap();
        assert_eq!(work(&space, &mut data, 1), 7);
        data.release().unwrap();
    }
    let after = calls.seen();
    let mut failed = [0; PAGING_CALLS.len()];
    for (kind, call) in PAGING_CALLS.iter().enumerate() {
        for nth in 1..=(after[kind] - before[kind]).min(NTH_MAX) {
            for errno in ERRNOS {
                eprintln!("{} number {nth} fails with {errno}", call.name);
                let space = open();
                words().fill(1);
                calls.fail(kind, nth, errno);
                let mut count = 1;
                match space.adopt(words(), "mine") {
                    Ok(mut data) => {
                        count = work(&space, &mut data, 1);
                        // Given back with an error it is still adopted, and works.
                        if let Err(error) = data.release() {
                            eprintln!("not given back: {error}");
                        }
                    }
                    Err(error) => eprintln!("not adopted: {error}"),
                }
                failed[kind] += u64::from(calls.end());
                assert!(words().iter().all(|&word| word == count), "given back");
                space.check().unwrap();
                if let Ok(mut data) = space.adopt(words(), "mine") {
                    assert_eq!(work(&space, &mut data, count), count + 6, "all works again");
                    data.release().unwrap();
                }
                drop(space);
                assert!(words().iter().all(|&word| word == count || word == count + 6));
            }
        }
        println!(
            "{}: {} calls, {} times one failed",
            call.name,
            after[kind] - before[kind],
            failed[kind]
        );
    }
    assert!(failed[OF_THE_ARENA..].iter().all(|&times| times > 0), "{failed:?}");
}

#[test]
fn whichever_call_fails_nothing_is_lost_and_nothing_hangs() {
    const TEST: &str = "whichever_call_fails_nothing_is_lost_and_nothing_hangs";
    if role().is_some() {
        return whichever_call(&NthCall::install());
    }
    within(LIMIT, TEST, || Child::new(TEST, "fails").run().expect_success());
}
