//! `Space::why` on cards: one program for each kind of decision. Cards take turns by words that are pinned to
//! the host, so nothing depends on who is faster.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use farside::{
    Advice, AtomicSpan, Buffer, CardId, Error, Evidence, Judge, KernelContext, MemoryId, PAGE_SIZE,
    Read, ReadView, Shared, Space, Verdict, VirtAddr, Write, WriteView, placement,
};

const WORDS: usize = PAGE_SIZE / 8;

fn space() -> Space {
    Space::builder().cards(2).card_memory(4 << 20).address_space(16 << 20).build().unwrap()
}

fn read_all(space: &Space, card: u8, buffer: &Buffer<u64>) {
    let launch = space.kernel("read").on(CardId(card));
    let sum = |k: &mut KernelContext, span| k.with(span, |v: ReadView<u64>| v.iter().sum::<u64>());
    launch.run(Read(buffer), sum).unwrap();
}

fn write_all(space: &Space, card: u8, buffer: &mut Buffer<u64>) {
    let launch = space.kernel("write").on(CardId(card));
    let add = |k: &mut KernelContext, span| {
        k.with(span, |mut view: WriteView<u64>| view.iter_mut().for_each(|word| *word += 1))
    };
    launch.run(Write(buffer), add).unwrap();
}

#[test]
fn a_space_has_the_default_scheme_and_says_so() {
    let space = space();
    let buffer = space.alloc_named::<u64>(8 * WORDS, "buffer").unwrap();
    let why = space.why(buffer.addr()).unwrap();
    assert_eq!(why.scheme, placement::DEFAULT);
    assert_eq!((why.owner, why.came), (None, None), "nobody has touched it");
    assert!(why.to_string().contains("page 0 of buffer, which has 8: never written"), "{why}");
}

#[test]
fn what_cards_read_is_copied() {
    let space = space();
    let mut buffer = space.alloc_named::<u64>(64 * WORDS, "read").unwrap();
    buffer.fill(1);
    read_all(&space, 0, &buffer);
    read_all(&space, 1, &buffer);
    let why = space.why(VirtAddr(buffer.addr().0 + 5 * PAGE_SIZE as u64 + 3)).unwrap();
    assert_eq!((why.verdict, why.by), (Verdict::Copies, Judge::Scheme));
    assert!(why.copies.contains(CardId(0).memory()) && why.copies.contains(CardId(1).memory()));
    let Some(Evidence::Group(group)) = why.evidence.first() else { panic!("{why:?}") };
    assert!(!group.written && group.had.len() == 2, "{group:?}");
    let came = why.came.unwrap();
    assert!(came.range.count > 1, "it came with its range: {came:?}");
}

#[test]
fn an_allocation_whose_readers_write_moves() {
    let space = space();
    let mut buffers = space.alloc_named::<u64>(256 * WORDS, "read, then written").unwrap();
    buffers.fill(1);
    // The first half is read and written, group by group.
    let (half, rest) = buffers.split_at_mut(128 * WORDS);
    for piece in half.chunks_mut(16 * WORDS) {
        let both = |k: &mut KernelContext, mut span: farside::WriteSpan<u64>| {
            let first = k.with(span.read(), |view: ReadView<u64>| view[0])?;
            k.with(span.slice(..), |mut view: WriteView<u64>| view[0] = first + 1)
        };
        space.kernel("both").on(CardId(0)).run(Write(piece), both).unwrap();
    }
    let why = space.why(VirtAddr(rest.as_ptr() as u64)).unwrap();
    assert_eq!((why.verdict, why.by), (Verdict::Moves, Judge::Scheme), "{why}");
    assert!(matches!(why.evidence.first(), Some(Evidence::Object(_))), "{why:?}");
}

/// Adds to the word by turns with the other card.
fn by_turns(
    k: &mut KernelContext,
    (words, turn): (AtomicSpan<AtomicU64>, AtomicSpan<AtomicU64>),
    own: u64,
) -> Result<(), farside::KernelError> {
    for round in 0..8u64 {
        while k.fetch_add(turn, 0, 0u64)? != 2 * round + own {
            k.checkpoint()?;
            std::thread::yield_now();
        }
        k.fetch_add(words, 0, 1u64)?;
        k.fetch_add(turn, 0, 1u64)?;
    }
    Ok(())
}

#[test]
fn what_running_cards_fight_over_stays_and_says_who_settled_it() {
    // The default scheme may settle it by itself, if the cards are quick.
    let builder = Space::builder().cards(2).card_memory(4 << 20).address_space(16 << 20);
    let space = builder.placement("on-touch").build().unwrap();
    let words = space.alloc_atomic::<AtomicU64>(WORDS, "apple of discord").unwrap();
    let turn = space.alloc_atomic::<AtomicU64>(WORDS, "turn").unwrap();
    turn[0].store(0, SeqCst);
    space.pin(&turn, MemoryId::HOST).unwrap();
    space.scope(|scope| {
        for own in [0, 1] {
            let launch = scope.kernel("by turns").on(CardId(own as u8));
            let args = (Shared(&words), Shared(&turn));
            launch.launch(args, move |k, spans| by_turns(k, spans, own)).unwrap();
        }
    });
    let why = space.why(words.addr()).unwrap();
    assert_eq!((why.verdict, why.by), (Verdict::Stays, Judge::Driver), "{why}");
    let Some(Evidence::Contested(contested)) = why.evidence.first() else { panic!("{why:?}") };
    assert_eq!(contested.agents.len(), 2);
    assert!(contested.taken_back >= 2, "{contested:?}");
    assert!(why.to_string().contains("card 0 and card 1 took"), "{why}");
    assert_eq!(words[0].load(SeqCst), 16);
}

#[test]
fn the_programs_word_is_named() {
    let space = space();
    let mut table = space.alloc_named::<u64>(4 * WORDS, "table").unwrap();
    write_all(&space, 0, &mut table);
    space.advise(&table, Advice::ReadMostly(true)).unwrap();
    let why = space.why(table.addr()).unwrap();
    assert_eq!((why.verdict, why.by), (Verdict::Copies, Judge::Program));
    space.pin(&table, MemoryId::HOST).unwrap();
    let why = space.why(table.addr()).unwrap();
    assert_eq!(why.evidence, [Evidence::Pinned { at: MemoryId::HOST }]);
    assert_eq!((why.verdict, why.owner), (Verdict::Stays, Some(MemoryId::HOST)));
}

#[test]
fn an_answer_survives_serialisation() {
    let space = space();
    let mut buffer = space.alloc_named::<u64>(4 * WORDS, "buffer").unwrap();
    write_all(&space, 1, &mut buffer);
    let why = space.why(buffer.addr()).unwrap();
    let text = serde_json::to_string(&why).unwrap();
    assert_eq!(serde_json::from_str::<farside::Why>(&text).unwrap(), why);
}

#[test]
fn an_address_without_an_allocation_is_an_error_that_names_the_nearest() {
    let space = space();
    let outside = 7u64;
    let refused = space.why(VirtAddr(&raw const outside as u64)).unwrap_err();
    assert!(refused.to_string().contains("(nothing is allocated)"), "{refused}");
    let buffer = space.alloc_named::<u64>(WORDS, "only one").unwrap();
    let behind = VirtAddr(buffer.addr().0 + PAGE_SIZE as u64);
    let refused = space.why(behind).unwrap_err();
    assert!(matches!(refused, Error::NotAllocated { addr, .. } if addr == behind));
    let text = refused.to_string();
    assert!(text.contains(&behind.to_string()) && text.contains("`only one`"), "{text}");
    drop(buffer);
    assert!(space.why(VirtAddr(behind.0 - 1)).is_err(), "it was freed");
}
