//! Kernels in C that allocate in their card's own memory.

use farside::{CardBuffer, Made, WindowError, Write};
use farside_types::PAGE_SIZE;

use super::*;

pub(super) const OWN: u64 = 8 << 20;
const NO_MEMORY: u64 = 2;
const NO_ADDRESSES: u64 = 3;
const NO_OWN_MEMORY: u64 = 4;
const LAZY: u32 = 0;
const EAGER: u32 = 1;

pub(super) fn own_of(bytes: u64) -> Space {
    let folder = Folder::new();
    let library = folder.file("own.so");
    compile(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c/own.c"), &library);
    let builder = Space::builder().cards(2).address_space(64 << 20).card_window(bytes);
    // SAFETY: the source keeps the header's rules, or breaks those that the runtime checks.
    unsafe { builder.kernel_library(&library) }.build().unwrap()
}

pub(super) fn free(space: &Space) -> u64 {
    space.own_memory_free(CardId(1)).unwrap()
}

fn window_error(outcome: Result<u64, Error>) -> WindowError {
    match outcome {
        Err(Error::Kernel(KernelError::Window { error, .. })) => error,
        other => panic!("expected an error of a window, got {other:?}"),
    }
}

#[test]
fn a_kernel_in_c_allocates_grows_and_frees() {
    let space = own_of(OWN);
    for words in [1, 1000, 77_777u64] {
        let sum = call(&space, "o.use", Value(words)).unwrap();
        assert_eq!(sum, 3 * (words * (words - 1) / 2), "{words}");
        assert_eq!(free(&space), OWN);
    }
}

#[test]
fn vectors_that_a_kernel_in_c_grows_are_the_programs() {
    let space = own_of(OWN);
    for count in [400_001u64, 2, 1, 0] {
        let mut made = space.alloc::<Made>(2).unwrap();
        let args = (Write(&mut made), Value(count));
        let sum = call(&space, "o.grow", args).unwrap();
        assert_eq!(sum, (0..count).filter(|n| n % 2 == 1).sum::<u64>());
        let evens: CardBuffer<u32> = space.take_over(CardId(1), made[0]).unwrap();
        let odds: CardBuffer<u64> = space.take_over(CardId(1), made[1]).unwrap();
        assert_eq!((evens.len(), odds.len()), (count.div_ceil(2) as usize, count as usize / 2));
        let evens_are = (0u32..).step_by(2).zip(evens.host().unwrap()).all(|(n, &even)| n == even);
        let odds_are = (1u64..).step_by(2).zip(odds.host().unwrap()).all(|(n, &odd)| n == odd);
        assert!(evens_are && odds_are, "{count}");
        let again = space.take_over::<u32>(CardId(1), made[0]);
        assert!(again.is_err() || evens.is_empty(), "{again:?}");
    }
    // Memory for no more than what was added, page by page.
    let mut made = space.alloc::<Made>(2).unwrap();
    call(&space, "o.grow", (Write(&mut made), Value(400_000u64))).unwrap();
    let pages = |bytes: u64| bytes.next_multiple_of(PAGE_SIZE as u64);
    assert_eq!(OWN - free(&space), pages(200_000 * 4) + pages(200_000 * 8));
}

#[test]
fn what_a_card_lacks_is_a_status_and_the_kernel_goes_on() {
    let space = own_of(OWN);
    let attempt = |bytes: u64, backing: u32| {
        call(&space, "o.try_alloc", (Value(bytes), Value(backing))).unwrap()
    };
    assert_eq!(attempt(OWN, EAGER), 0);
    assert_eq!(attempt(OWN + 1, EAGER), NO_MEMORY);
    assert_eq!(attempt(2 * OWN, LAZY), 0);
    assert_eq!(attempt(1 << 60, LAZY), NO_ADDRESSES);
    let none = own_of(0);
    let status = call(&none, "o.try_alloc", (Value(1u64), Value(EAGER))).unwrap();
    assert_eq!(status, NO_OWN_MEMORY);
    // One that ends with the status ends with what the card lacks.
    let must = |space: &Space, bytes: u64, backing: u32| {
        window_error(call(space, "o.must_alloc", (Value(bytes), Value(backing))))
    };
    let full = must(&space, OWN + 1, EAGER).to_string();
    assert!(
        full.contains("give 8388609 bytes") && full.contains("8388608 bytes are free"),
        "{full}"
    );
    assert!(matches!(must(&none, 1, LAZY), WindowError::NoWindow { .. }));
    // A vector keeps what it has.
    let words = call(&space, "o.fill_up", ()).unwrap();
    assert_eq!(words * 8, OWN);
    assert_eq!(free(&space), OWN);
}

#[test]
fn misuse_by_a_kernel_in_c_ends_its_job_and_nothing_else() {
    let space = own_of(OWN);
    for which in 0..17u64 {
        let outcome = call(&space, "o.misuse", Value(which));
        let told = match which {
            2 | 4 | 5 | 6 | 15 => window_error(outcome).to_string(),
            16 => {
                let wild = matches!(outcome, Err(Error::Kernel(KernelError::WildAddress { .. })));
                assert!(wild, "{outcome:?}");
                continue;
            }
            _ => refused(outcome),
        };
        let wanted = match which {
            0 | 3 | 7 | 8 | 14 => "NULL",
            1 => "FARSIDE_LAZY or FARSIDE_EAGER, not 2",
            2 => "at least one byte",
            4 | 5 | 6 | 15 => "not allocated by this kernel",
            13 => "more than there can be",
            _ => "no growable vector",
        };
        assert!(told.contains(wanted), "{which}: {told}");
    }
    // What the last one has finished is the program's; all else is free again.
    assert_eq!(free(&space), OWN - PAGE_SIZE as u64);
    assert_eq!(call(&space, "o.misuse", Value(99u64)).unwrap(), 0);
}
