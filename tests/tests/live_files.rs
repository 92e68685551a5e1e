//! Files as shared memory: larger than what may hold them, changed by host and cards, written to the byte, failing at every step.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use farside::{
    Error, FileError, KernelContext, KernelError, LiveError, MappedFile, MemoryId, Read, Shared,
    Space, Write, WriteSpan, WriteView,
};
use harness::live::{Child, in_child, role, within};

const LIMIT: Duration = Duration::from_secs(120);
const MIB: usize = 1 << 20;
/// Words of a page.
const PAGE: usize = 512;
/// Least memory of a file.
const LEAST: u64 = 4 << 20;

/// A file that is gone with this.
struct Scratch(PathBuf);

impl Scratch {
    /// Of words that are their own number.
    fn new(name: &str, words: usize) -> Scratch {
        let path =
            std::env::temp_dir().join(format!("farside-files-{}-{name}", std::process::id()));
        let mut file = std::io::BufWriter::new(File::create(&path).unwrap());
        (0..words as u64).for_each(|word| file.write_all(&word.to_ne_bytes()).unwrap());
        file.flush().unwrap();
        Scratch(path)
    }

    fn words(&self) -> Vec<u64> {
        let bytes = std::fs::read(&self.0).unwrap();
        bytes.chunks(8).map(|word| u64::from_ne_bytes(word.try_into().unwrap())).collect()
    }
}

impl AsRef<Path> for Scratch {
    fn as_ref(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn space() -> Space {
    Space::builder().cards(2).card_memory(2 << 20).address_space(32 << 20).build().unwrap()
}

fn add_one(k: &mut KernelContext, mut data: WriteSpan<u64>) -> Result<(), KernelError> {
    let all = data.len();
    // Pieces that fit into a card.
    for start in (0..all).step_by(64 * PAGE) {
        let piece = data.slice(start..(start + 64 * PAGE).min(all));
        k.with(piece, |mut words: WriteView<u64>| words.iter_mut().for_each(|word| *word += 1))?;
    }
    Ok(())
}

fn file_error(error: &Error) -> &FileError {
    match error {
        Error::Live(LiveError::File(error)) => error,
        other => panic!("{other}"),
    }
}

#[test]
fn a_file_larger_than_all_memory_is_summed_and_changed_by_host_and_cards() {
    within(LIMIT, "larger", || {
        let words = 24 * MIB / 8;
        let scratch = Scratch::new("larger", words);
        let space = space();
        let mut data = space.map_file_in::<u64>(&scratch, LEAST).unwrap();
        let sum: u64 = data.iter().sum();
        assert_eq!(sum, words as u64 * (words as u64 - 1) / 2);
        for card in space.cards() {
            space.kernel("add").on(card).run(Write(&mut data), add_one).unwrap();
        }
        data.iter_mut().step_by(PAGE).for_each(|word| *word += 5);
        space.check().unwrap();
        data.close().unwrap();
        for (at, word) in scratch.words().into_iter().enumerate() {
            let more = if at % PAGE == 0 { 7 } else { 2 };
            assert_eq!(word, at as u64 + more, "word {at}");
        }
    });
}

#[test]
fn the_host_has_no_more_of_it_than_it_may() {
    within(LIMIT, "bound", || {
        let words = 64 * MIB / 8;
        let scratch = Scratch::new("bound", words);
        let space = space();
        let mut data = space.map_file_in::<u64>(&scratch, LEAST).unwrap();
        let before = resident();
        let mut most = 0;
        for chunk in data.chunks_mut(MIB / 8) {
            chunk.iter_mut().for_each(|word| *word ^= 1);
            most = most.max(resident().saturating_sub(before));
        }
        // What is brought at once, and one command's pages, come on top.
        assert!(most < 3 * LEAST, "{most} bytes for a file that may have {LEAST}");
        data.close().unwrap();
        assert!(scratch.words().iter().zip(0u64..).all(|(word, at)| *word == at ^ 1));
    });
}

/// Bytes of this process's own that are in memory.
fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/smaps_rollup").unwrap();
    let line = text.lines().find(|line| line.starts_with("Anonymous:")).unwrap();
    line.split_ascii_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

#[test]
fn sync_writes_what_host_and_cards_have_changed_and_nothing_else() {
    within(LIMIT, "sync", || {
        let words = MIB / 8 + 3;
        let scratch = Scratch::new("sync", words);
        let space = space();
        let mut data = space.map_file::<u64>(&scratch).unwrap();
        let half = words / 2;
        space.kernel("add").run(Write(&mut data[..half]), add_one).unwrap();
        data[words - 1] = 99;
        data.sync().unwrap();
        let expected = |at: usize| match at {
            at if at == words - 1 => 99,
            at if at < half => at as u64 + 1,
            at => at as u64,
        };
        assert!(scratch.words().iter().enumerate().all(|(at, word)| *word == expected(at)));
        assert_eq!(
            std::fs::metadata(&scratch).unwrap().len(),
            words as u64 * 8,
            "the tail of a page"
        );
        // What somebody else wrote where nothing was changed stays.
        let other = OpenOptions::new().write(true).open(&scratch).unwrap();
        data.sync().unwrap();
        drop(other);
        // It goes on.
        space.kernel("add").run(Write(&mut data), add_one).unwrap();
        drop(data);
        assert!(scratch.words().iter().enumerate().all(|(at, word)| *word == expected(at) + 1));
    });
}

#[test]
fn what_cannot_be_mapped_is_refused_with_its_path() {
    within(LIMIT, "refused", || {
        let space = space();
        let refused = |path: &Path, memory| {
            let error = space.map_file_in::<u64>(path, memory).unwrap_err();
            assert!(error.to_string().contains(path.to_str().unwrap()), "{error}");
            error
        };
        let none = std::env::temp_dir().join("farside-no-such-file");
        assert!(matches!(file_error(&refused(&none, LEAST)), FileError::Open { .. }));
        let folder = std::env::temp_dir();
        assert!(matches!(file_error(&refused(&folder, LEAST)), FileError::NotRegular { .. }));
        let zero = Path::new("/dev/zero");
        assert!(matches!(file_error(&refused(zero, LEAST)), FileError::NotRegular { .. }));
        let scratch = Scratch::new("refused", 3);
        assert!(matches!(
            file_error(&refused(&scratch.0, LEAST - 1)),
            FileError::TooLittleMemory { .. }
        ));
        let file = OpenOptions::new().write(true).open(&scratch).unwrap();
        file.set_len(23).unwrap();
        assert!(matches!(
            file_error(&refused(&scratch.0, LEAST)),
            FileError::Size { bytes: 23, .. }
        ));
        file.set_len(0).unwrap();
        assert!(matches!(
            file_error(&refused(&scratch.0, LEAST)),
            FileError::Size { bytes: 0, .. }
        ));
        file.set_len(1 << 39).unwrap();
        assert!(matches!(file_error(&refused(&scratch.0, LEAST)), FileError::TooLarge { .. }));
        file.set_len(24).unwrap();
        let first = space.map_file::<u64>(&scratch).unwrap();
        assert!(matches!(file_error(&refused(&scratch.0, LEAST)), FileError::InUse { .. }));
        drop(first);
        drop(space.map_file::<u64>(&scratch).unwrap());
        space.check().unwrap();
    });
}

#[test]
fn a_read_that_fails_ends_its_kernel_and_the_next_one_works() {
    within(LIMIT, "reads", || {
        let words = 2 * MIB / 8;
        let scratch = Scratch::new("reads", words);
        let space = space();
        let mut data = space.map_file_in::<u64>(&scratch, LEAST).unwrap();
        data.fail(1, 1 << 40);
        let error = space.kernel("add").run(Write(&mut data), add_one).unwrap_err();
        assert!(error.to_string().contains("copy"), "{error}");
        data.fail(0, 0);
        space.check().unwrap();
        // What it had reached by then is not known; all words are as often raised as their neighbours in a piece.
        space.kernel("add").run(Write(&mut data), add_one).unwrap();
        assert!(data.iter().zip(0u64..).all(|(word, at)| *word == at + 1));
        data.close().unwrap();
        assert!(scratch.words().iter().zip(0u64..).all(|(word, at)| *word == at + 1));
    });
}

#[test]
fn each_read_and_write_fails_in_turn_and_nothing_is_lost() {
    within(LIMIT, "each", || {
        let words = 6 * MIB / 8;
        let scratch = Scratch::new("each", words);
        let mut rounds = 0u64;
        let mut first = 1;
        loop {
            let space = space();
            let mut data = space.map_file_in::<u64>(&scratch, LEAST).unwrap();
            // A read for the program is tried again, and ends it by SIGBUS if that fails as well: one failure is none.
            data.fail(first, 1);
            data.iter_mut().for_each(|word| *word += 1);
            let kernel = space.kernel("add").run(Write(&mut data), add_one);
            kernel.unwrap();
            rounds += 2;
            let calls = match data.sync() {
                Ok(()) => data.fail(0, 0),
                Err(error) => {
                    assert!(matches!(
                        file_error(&error),
                        FileError::Write { .. } | FileError::Read { .. } | FileError::Settle { .. }
                    ));
                    let calls = data.fail(0, 0);
                    data.sync().unwrap();
                    calls
                }
            };
            space.check().unwrap();
            data.close().unwrap();
            let found = scratch.words();
            let wrong = found.iter().zip(0u64..).find(|&(word, at)| *word != at + rounds);
            assert_eq!(wrong, None, "with call {first} failing");
            if first > calls {
                return;
            }
            first += 1 + first / 4;
        }
    });
}

#[test]
fn a_full_disk_keeps_what_was_changed_and_it_can_be_closed_when_there_is_room() {
    within(LIMIT, "full", || {
        let words = 12 * MIB / 8;
        let scratch = Scratch::new("full", words);
        let space = space();
        let mut data = space.map_file_in::<u64>(&scratch, LEAST).unwrap();
        // Only writes fail for as long: what is read comes first.
        let sum: u64 = data.iter().sum();
        assert!(sum > 0);
        data[0] = 17;
        data.fail(1, 1 << 40);
        assert!(matches!(
            file_error(&data.sync().unwrap_err()),
            FileError::Read { .. } | FileError::Write { .. }
        ));
        let not_closed = data.close().unwrap_err();
        assert!(matches!(not_closed.error(), Error::Live(LiveError::File(_))));
        let mut data = not_closed.into_guard().unwrap();
        data.fail(0, 0);
        data[1] = 18;
        data.close().unwrap();
        let found = scratch.words();
        assert_eq!(found[..3], [17, 18, 2]);
        assert!(found.iter().zip(0u64..).skip(2).all(|(word, at)| *word == at));
    });
}

#[test]
fn a_file_that_is_cut_short_is_an_error_with_both_sizes() {
    within(LIMIT, "cut", || {
        let words = 2 * MIB / 8;
        let scratch = Scratch::new("cut", words);
        let space = space();
        let mut data = space.map_file_in::<u64>(&scratch, LEAST).unwrap();
        data[words - 1] = 5;
        let file = OpenOptions::new().write(true).open(&scratch).unwrap();
        file.set_len(MIB as u64).unwrap();
        let sum = space.kernel("farside.sum").call(Read(&data[..words / 2])).unwrap();
        assert_eq!(sum, (words as u64 / 2) * (words as u64 / 2 - 1) / 2);
        let error = data.sync().unwrap_err();
        let cut = FileError::Cut { path: scratch.0.clone(), bytes: 2 << 20, now: 1 << 20 };
        assert_eq!(file_error(&error).to_string(), cut.to_string());
        assert!(space.kernel("farside.sum").call(Read(&data[words / 2..])).is_err());
        file.set_len(2 << 20).unwrap();
        data.close().unwrap();
        let mut last = [0; 8];
        file.read_exact_at(&mut last, (words as u64 - 1) * 8).unwrap_err();
        assert_eq!(*scratch.words().last().unwrap(), 5);
    });
}

#[test]
fn threads_that_write_while_pages_leave_lose_nothing() {
    within(LIMIT, "threads", || {
        let words = 16 * MIB / 8;
        let scratch = Scratch::new("threads", words);
        let space = space();
        let mut data = space.map_file_in::<u64>(&scratch, LEAST).unwrap();
        std::thread::scope(|threads| {
            for (number, part) in data.chunks_mut(words / 4).enumerate() {
                threads.spawn(move || {
                    let mut seed = number as u64 + 1;
                    for _ in 0..20_000 {
                        seed = seed
                            .wrapping_mul(6364136223846793005)
                            .wrapping_add(1442695040888963407);
                        part[(seed >> 33) as usize % part.len()] += 1 << 40;
                    }
                });
            }
        });
        data.close().unwrap();
        let added: u64 = scratch.words().iter().map(|word| word >> 40).sum();
        assert_eq!(added, 80_000);
        assert!(scratch.words().iter().zip(0u64..).all(|(word, at)| word & ((1 << 40) - 1) == at));
    });
}

#[test]
fn it_moves_and_is_told_of_as_other_memory_and_a_space_that_closes_writes_it() {
    within(LIMIT, "moves", || {
        let scratch = Scratch::new("moves", 128 * PAGE);
        let data: MappedFile<u64>;
        {
            let space = space();
            let mut mapped = space.map_file::<u64>(&scratch).unwrap();
            mapped[0] = 4;
            let card = space.card(1).unwrap();
            assert_eq!(space.migrate(&mapped, card).unwrap(), 128);
            mapped[1] = 5;
            assert_eq!(space.migrate(&mapped, MemoryId::HOST).unwrap(), 127);
            assert!(
                space.report().to_string().contains("farside-files-"),
                "its name is the file's"
            );
            data = mapped;
        }
        drop(data);
        assert_eq!(scratch.words()[..3], [4, 5, 2]);
    });
}

#[test]
fn a_program_that_is_killed_has_in_the_file_what_sync_has_promised() {
    if let Some(path) = role() {
        let space = space();
        let mut data = space.map_file_in::<u64>(&path, LEAST).unwrap();
        for round in 1..=3 {
            let all = data.len();
            data[..all / 2].iter_mut().for_each(|word| *word += 1);
            space.kernel("add").run(Write(&mut data[all / 2..]), add_one).unwrap();
            if round == 2 {
                data.sync().unwrap();
            }
        }
        // SAFETY: ends this process.
        unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
    }
    within(LIMIT, "killed", || {
        let scratch = Scratch::new("killed", 8 * MIB / 8);
        let name = "a_program_that_is_killed_has_in_the_file_what_sync_has_promised";
        let ended = Child::new(name, scratch.0.to_str().unwrap()).run();
        assert_eq!(ended.signal, Some(libc::SIGKILL), "{}", ended.text);
        // Two rounds were promised; of the third each page is there or not.
        for (page, words) in scratch.words().chunks(PAGE).enumerate() {
            let more = words[0] - (page * PAGE) as u64;
            assert!((2..=3).contains(&more), "page {page}: {more}");
            let same =
                words.iter().zip((page * PAGE) as u64..).all(|(word, at)| *word == at + more);
            assert!(same, "page {page}");
        }
        // The lock went with it.
        drop(space().map_file::<u64>(&scratch).unwrap());
    });
}

#[test]
fn a_thread_whose_page_cannot_be_read_ends_by_sigbus_with_a_message() {
    if let Some(path) = role() {
        let space = space();
        let data = space.map_file_in::<u64>(&path, LEAST).unwrap();
        assert_eq!(data[0], 0);
        data.fail(1, 1 << 40);
        std::process::exit(data[data.len() - 1] as i32);
    }
    within(LIMIT, "sigbus", || {
        let scratch = Scratch::new("sigbus", 2 * MIB / 8);
        let name = "a_thread_whose_page_cannot_be_read_ends_by_sigbus_with_a_message";
        let ended = Child::new(name, scratch.0.to_str().unwrap()).run();
        assert_eq!((ended.code, ended.signal), (None, Some(libc::SIGBUS)), "{}", ended.text);
    });
}

#[test]
fn a_child_made_by_fork_has_none_of_it_and_harms_nothing() {
    within(LIMIT, "fork", || {
        let scratch = Scratch::new("fork", 2 * MIB / 8);
        let space = space();
        let mut data = space.map_file_in::<u64>(&scratch, LEAST).unwrap();
        data[0] = 1;
        let refused = in_child(|| {
            let wrong = |outcome: Result<(), Error>| {
                matches!(outcome, Err(Error::Live(LiveError::WrongProcess { .. })))
            };
            i32::from(!wrong(data.sync()))
        });
        assert_eq!(refused, 0);
        assert_eq!(in_child(|| data[0] as i32), -libc::SIGSEGV);
        data[1] = 2;
        data.close().unwrap();
        assert_eq!(scratch.words()[..3], [1, 2, 2]);
    });
}

#[test]
fn system_calls_and_devices_use_it_and_locked_pages_stay() {
    use std::os::unix::fs::OpenOptionsExt;
    within(LIMIT, "calls", || {
        let words = 12 * MIB / 8;
        let (scratch, other) = (Scratch::new("calls", words), Scratch::new("other", words));
        let space = space();
        let mut data = space.map_file_in::<u64>(&scratch, LEAST).unwrap();
        // SAFETY: the memory is mapped.
        assert_eq!(unsafe { libc::mlock(data.as_ptr().cast(), 8 * 4096) }, 0);
        let direct = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_DIRECT)
            .open(&other)
            .expect("a file system with O_DIRECT");
        data[9] = 77;
        for half in [0, words / 2] {
            let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut data[half..half + words / 2]);
            // Pages leave while the device writes them.
            direct.read_exact_at(bytes, half as u64 * 8).unwrap();
        }
        assert!(data.iter().zip(0u64..).all(|(word, at)| *word == at));
        data.iter_mut().for_each(|word| *word += 3);
        direct.write_all_at(bytemuck::cast_slice(&data), 0).unwrap();
        assert!(other.words().iter().zip(3u64..).all(|(word, at)| *word == at));
        // What is emptied is zero, as in memory of another kind.
        // SAFETY: whole pages of the memory, which nobody uses meanwhile.
        let emptied = unsafe {
            libc::madvise(data.as_mut_ptr().add(64 * PAGE).cast(), 4096, libc::MADV_DONTNEED)
        };
        assert_eq!(emptied, 0);
        data.sync().unwrap();
        space.check().unwrap();
        data.close().unwrap();
        let found = scratch.words();
        assert!(
            found[64 * PAGE..65 * PAGE].iter().all(|&word| word == 0 || word > 64 * PAGE as u64)
        );
        let kept = |at: u64| at / PAGE as u64 != 64;
        assert!(found.iter().zip(3u64..).all(|(word, at)| !kept(at - 3) || *word == at));
    });
}

#[test]
fn kernels_the_program_and_sync_race_and_every_addition_is_in_the_file() {
    within(LIMIT, "race", || {
        let words = 8 * MIB / 8;
        let scratch = Scratch::new("race", words);
        std::fs::write(&scratch, vec![0; words * 8]).unwrap();
        let space = space();
        let mut data = space.map_file_in::<u64>(&scratch, LEAST).unwrap();
        let (stop, promised) = (AtomicBool::new(false), AtomicU64::new(0));
        // SAFETY: atomic words of the same size, at the same places, while nobody uses the others.
        let atomics = unsafe {
            std::slice::from_raw_parts(data.as_mut_ptr().cast::<AtomicU64>(), data.len())
        };
        let rounds = std::thread::scope(|threads| {
            let host = threads.spawn(|| {
                let mut rounds = 0;
                while !stop.load(SeqCst) {
                    atomics.iter().step_by(PAGE / 2).for_each(|word| {
                        word.fetch_add(1, SeqCst);
                    });
                    rounds += 1;
                }
                rounds
            });
            for round in 0..6u64 {
                let card = space.card(round as usize % 2).unwrap();
                let kernel = space.kernel("shared").on(card);
                kernel
                    .run(Shared(atomics), |k, words| {
                        for at in (1..words.len()).step_by(PAGE / 2) {
                            k.fetch_add(words, at, 1)?;
                        }
                        Ok(())
                    })
                    .unwrap();
                data.sync().unwrap();
                promised.store(round + 1, SeqCst);
                let there = scratch.words();
                assert!(there.iter().skip(1).step_by(PAGE / 2).all(|&word| word == round + 1));
            }
            stop.store(true, SeqCst);
            host.join().unwrap()
        });
        space.check().unwrap();
        data.close().unwrap();
        let found = scratch.words();
        assert!(found.iter().step_by(PAGE / 2).all(|&word| word == rounds));
        assert!(found.iter().skip(1).step_by(PAGE / 2).all(|&word| word == 6));
    });
}

#[test]
fn every_step_fails_once_and_for_a_while_and_bytes_stay_right() {
    within(LIMIT, "steps", || {
        for name in ["host-unmap", "host-protect", "host-map", "copy"] {
            for acts in [false, true] {
                let words = 6 * MIB / 8;
                let scratch = Scratch::new("steps", words);
                let space = space();
                let mut data = space.map_file_in::<u64>(&scratch, LEAST).unwrap();
                let mut added = 0;
                for every in [7, 3, 50] {
                    let mut count = 0;
                    space.strike(Some(Box::new(move |command| {
                        count += u32::from(command.name() == name);
                        let hit = command.name() == name && count % every == 0;
                        hit.then_some(farside_live::Struck { errno: libc::ENOMEM, acts })
                    })));
                    // A kernel whose step failed once too often has added to some pieces alone: it is run on one.
                    let piece = &mut data[..64 * PAGE];
                    let kernel = space.kernel("add").run(Write(piece), add_one);
                    added += u64::from(kernel.is_ok());
                    space.strike(None);
                    data.sync().unwrap();
                    space.check().unwrap();
                }
                assert!(added > 0, "{name}");
                data.close().unwrap();
                let found = scratch.words();
                let right = |at: u64| at + if at < 64 * PAGE as u64 { added } else { 0 };
                let wrong = found.iter().zip(0u64..).find(|&(word, at)| *word != right(at));
                assert_eq!(wrong, None, "{name}, {acts}");
            }
        }
    });
}

#[test]
fn a_limit_of_files_sizes_is_an_error_and_ends_nobody() {
    if let Some(path) = role() {
        let space = space();
        let mut data = space.map_file_in::<u64>(&path, LEAST).unwrap();
        data.iter_mut().for_each(|word| *word += 1);
        let limit = |bytes| libc::rlimit { rlim_cur: bytes, rlim_max: libc::RLIM_INFINITY };
        // SAFETY: a record. The program's own limit.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &limit(4096)) }, 0);
        let error = data.sync().unwrap_err();
        assert!(matches!(file_error(&error), FileError::Write { .. }), "{error}");
        // SAFETY: as above.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &limit(libc::RLIM_INFINITY)) }, 0);
        data.close().unwrap();
        return;
    }
    within(LIMIT, "limit", || {
        let scratch = Scratch::new("limit", 2 * MIB / 8);
        let name = "a_limit_of_files_sizes_is_an_error_and_ends_nobody";
        Child::new(name, scratch.0.to_str().unwrap()).run().expect_success();
        assert!(scratch.words().iter().zip(1u64..).all(|(word, at)| *word == at));
    });
}

#[test]
fn pages_that_come_along_are_none_that_a_card_has() {
    within(LIMIT, "around", || {
        let scratch = Scratch::new("around", 128 * PAGE);
        let space = space();
        let mut data = space.map_file_in::<u64>(&scratch, LEAST).unwrap();
        // Its pages were never in the host's memory.
        space.kernel("add").run(Write(&mut data[8 * PAGE..16 * PAGE]), add_one).unwrap();
        assert_eq!(data[0], 0);
        let raised = |at: u64| at + u64::from((8..16).contains(&(at / PAGE as u64)));
        assert!(data.iter().zip(0u64..).all(|(word, at)| *word == raised(at)));
        data.close().unwrap();
        assert!(scratch.words().iter().zip(0u64..).all(|(word, at)| *word == raised(at)));
    });
}
