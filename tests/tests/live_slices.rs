//! What a kernel may make of memory follows from how that memory was lent to its launch, whatever
//! addresses and types the kernel comes by: a slice only of what was lent as a slice, and of shared
//! words nothing but whole words, atomically. So no safe program makes a slice of memory that
//! another changes.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use farside::{
    AtomicSpan, Error, KernelError, LiveError, Ptr, Read, ReadSpan, Shared, Space, Write,
    WriteSpan, WriteView,
};
use harness::live::within;

const LIMIT: Duration = Duration::from_secs(30);
/// Words of a page.
const PAGE: usize = 512;

fn space() -> Space {
    Space::builder().cards(1).address_space(16 << 20).build().unwrap()
}

/// Why a kernel's request was refused.
#[track_caller]
fn why<T: std::fmt::Debug>(outcome: Result<T, Error>) -> String {
    match outcome {
        Err(Error::Kernel(KernelError::BadRequest { why, .. })) => why,
        other => panic!("not a request that cannot be served: {other:?}"),
    }
}

#[test]
fn no_kernel_makes_a_slice_of_shared_words() {
    within(LIMIT, "slices of shared words", || {
        let space = space();
        let mut words = space.alloc_atomic::<AtomicU64>(PAGE, "words").unwrap();
        // Names of the same memory, made in safe code while nobody else had it.
        let (read, write) = (ReadSpan::of(words.values()), WriteSpan::of(words.values()));
        let outcome =
            space.kernel("smuggle").run(Shared(&words), move |k, _| k.with(read, |view| view[0]));
        let refused = why(outcome);
        assert!(refused.contains("shared words of 8 bytes"), "{refused}");
        let launch = space.kernel("smuggle");
        let outcome = launch
            .run(Shared(&words), move |k, _| k.with(write, |mut view: WriteView<u64>| view[0] = 1));
        assert!(why(outcome).contains("a slice of it"));
        assert_eq!(words[0].load(SeqCst), 0);
    });
}

#[test]
fn shared_words_are_loaded_and_stored_whole() {
    within(LIMIT, "values of shared words", || {
        let space = space();
        let words = space.alloc_atomic::<AtomicU64>(PAGE, "words").unwrap();
        let at = words.addr().0;
        let load = |at| space.kernel("half").run(Shared(&words), move |k, _| k.load::<u32>(at));
        assert!(why(load(Ptr::at(at))).contains("not made of whole words"));
        let run = |at| space.kernel("odd").run(Shared(&words), move |k, _| k.load::<u64>(at));
        assert!(why(run(Ptr::at(at + 4))).contains("whole words"));
        // Several words are several loads: no tearing within one, and no data race.
        let both = space.kernel("both").run(Shared(&words), move |k, words| {
            k.store(Ptr::at(at), [1u64, 2])?;
            let two = k.load::<[u64; 2]>(Ptr::at(at))?;
            Ok((two, k.fetch_add(words, 1, 5)?))
        });
        assert_eq!(both.unwrap(), ([1, 2], 2));
        assert_eq!(words[1].load(SeqCst), 7);
        // A word of another size is another word.
        let halves = space.alloc_atomic::<AtomicU32>(PAGE, "halves").unwrap();
        let other = AtomicSpan::of(&words[..]);
        let outcome =
            space.kernel("other").run(Shared(&halves), move |k, _| k.fetch_add(other, 0, 1));
        assert!(matches!(outcome, Err(Error::Kernel(KernelError::WildAddress { .. }))));
    });
}

#[test]
fn compare_exchange_answers_as_rusts() {
    within(LIMIT, "compare_exchange", || {
        let space = space();
        let words = space.alloc_atomic::<AtomicU64>(1, "word").unwrap();
        let outcome = space.kernel("swap").run(Shared(&words), |k, words| {
            Ok((k.compare_exchange(words, 0, 0, 7)?, k.compare_exchange(words, 0, 0, 9)?))
        });
        assert_eq!(outcome.unwrap(), (Ok(0), Err(7)));
        assert_eq!(words[0].load(SeqCst), 7);
    });
}

#[test]
fn atomic_memory_can_be_lent_as_slices_afterwards() {
    within(LIMIT, "values", || {
        let space = space();
        let mut words = space.alloc_atomic::<AtomicU64>(PAGE, "words").unwrap();
        words[3].store(5, SeqCst);
        let sum = |words: &[u64]| space.kernel("farside.sum").call(Read(words)).unwrap();
        assert_eq!(sum(words.values()), 5);
        space.kernel("farside.increment").call(Write(words.values())).unwrap();
        assert_eq!(words[3].load(SeqCst), 6);
        // Nobody else has memory that is lent to be written, so atomic operations on it are sound.
        let span = AtomicSpan::of(&words[..]);
        let was = space
            .kernel("atomics")
            .run(Write(words.values()), move |k, _| k.fetch_add(span, 3, 1))
            .unwrap();
        assert_eq!((was, words[3].load(SeqCst)), (6, 7));
    });
}

#[test]
fn memory_that_is_lent_twice_is_refused() {
    within(LIMIT, "lent twice", || {
        let space = space();
        let mut data = space.alloc::<u64>(4 * PAGE).unwrap();
        let start = data.as_mut_ptr();
        // SAFETY: the slices are names of memory here, of which nothing is read or written.
        let slice = |from, len| unsafe { std::slice::from_raw_parts(start.add(from), len) };
        // SAFETY: as above.
        let slice_mut = |from, len| unsafe { std::slice::from_raw_parts_mut(start.add(from), len) };
        let refused = |outcome: Result<(), Error>| match outcome {
            Err(Error::Live(LiveError::LentTwice { addr, .. })) => addr.0 - start as u64,
            other => panic!("not refused: {other:?}"),
        };
        let kernel = || space.kernel("twice");
        let both = kernel().run((Read(slice(0, 512)), Write(slice_mut(511, 9))), |_, _| Ok(()));
        assert_eq!(refused(both), 511 * 8);
        let twice = vec![Write(slice_mut(600, 100)), Write(slice_mut(0, 700))];
        assert_eq!(refused(kernel().run(twice, |_, _| Ok(()))), 600 * 8);
        let call = kernel_call(&space, slice(0, 8), slice_mut(7, 8));
        assert_eq!(refused(call), 7 * 8);
        // To read the same memory twice is sound, and so is to lend neighbours.
        kernel().run((Read(slice(0, 512)), Read(slice(5, 600))), |_, _| Ok(())).unwrap();
        kernel().run((Read(slice(0, 512)), Write(slice_mut(512, 9))), |_, _| Ok(())).unwrap();
    });
}

fn kernel_call(space: &Space, from: &[u64], to: &mut [u64]) -> Result<(), Error> {
    space.kernel("farside.copy").call((Read(from), Write(to))).map(drop)
}

#[test]
fn ranges_of_one_with_do_not_overlap_if_one_is_written() {
    within(LIMIT, "overlap in one with", || {
        let space = space();
        let mut data = space.alloc::<u64>(4 * PAGE).unwrap();
        let outcome = space.kernel("overlap").run(Write(&mut data), |k, mut data| {
            let (a, b) = (data.slice(..600), data.slice(599..700));
            k.with((a, b), |_| ())
        });
        assert!(why(outcome).contains("overlaps"));
        let outcome = space.kernel("overlap").run(Write(&mut data), |k, mut data| {
            let (a, b) = (data.slice(..600), data.read());
            k.with((a, b), |_| ())
        });
        assert!(why(outcome).contains("overlaps"));
    });
}

#[test]
fn an_empty_slice_is_no_wild_address() {
    within(LIMIT, "empty slices", || {
        let space = space();
        let mut data = space.alloc::<u64>(2 * PAGE).unwrap();
        let all = space.kernel("empty").run(Write(&mut data), |k, mut data| {
            let len = k.with(data.slice(7..7), |view| view.len())?;
            let (none, some) = (data.slice(..0), data.slice(PAGE..));
            k.with((none, some), |(none, mut some)| {
                some[0] = 9;
                len + none.len() + some.len()
            })
        });
        assert_eq!(all.unwrap(), PAGE);
        assert_eq!(data[PAGE], 9);
        let none = space.kernel("none").run(Read(&data[..0]), |k, none| {
            k.with(none, |view| {
                (view.len(), view.iter().count(), view.as_slice().map(<[u64]>::len))
            })
        });
        assert_eq!(none.unwrap(), (0, 0, Some(0)));
        let beside =
            space.kernel("beside").run((Read(&data[..0]), Read(&data[PAGE..])), |k, args| {
                k.with(args, |(none, some)| (none.len(), some[0]))
            });
        assert_eq!(beside.unwrap(), (0, 9));
    });
}
