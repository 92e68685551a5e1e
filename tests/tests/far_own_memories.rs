//! Several memories of a card's own: an allocation says which of them it wants, whether kernels may write it, and when its pages
//! get memory. The same of a card in the program and of one in another process.

use std::sync::Arc;
use std::time::Duration;

use farside::{
    AllocOptions, Backing, CardColumn, CardId, CardPlace, ColumnBuilder, Error, Growable,
    KernelArgs, KernelContext, KernelError, Kernels, Made, MadeColumn, MemoryKind, OwnMemoryId,
    OwnPart, Read, Space, SpaceBuilder, TextBuilder, Value, WindowError, Write, WriteSpan,
};
use farside_card::interface::register::{self, memory};
use farside_softcard::WindowMemory;
use farside_softcard::serve::{CardConfig, socket_name};
use farside_types::CancelReason;
use harness::live::hostile::{Fate, HostileCard, Lies};
use harness::live::served::{TempDir, config, place, serve};
use harness::live::within;

const LIMIT: Duration = Duration::from_secs(60);
/// Words of a page.
const PAGE: usize = 512;
/// The memories of each card, and their pages.
const MEMORIES: [(MemoryKind, usize); 3] =
    [(MemoryKind::Ddr, 256), (MemoryKind::Hbm, 64), (MemoryKind::BlockRam, 16)];
const DDR: OwnMemoryId = OwnMemoryId(0);
const HBM: OwnMemoryId = OwnMemoryId(1);

type Outcome = Result<u64, KernelError>;

/// | name | arguments | does |
/// |---|---|---|
/// | `mem.fill` | write `u64`, value | fills it |
/// | `mem.use` | value memory, value pages | allocates, grows and frees there; gives the pages that it saw taken |
/// | `mem.grow` | value memory, value words, write `Made` | hands over the numbers from 0 on |
/// | `mem.column` | value memory, value rows, write words of `MadeColumn[2]` | hands over numbers and texts, each second one null |
/// | `mem.touch` | value memory, value pages | touches so many lazy pages there; gives how many it could, if any |
/// | `mem.write` | value memory | writes to what it has allocated to be read only |
fn kernels() -> Kernels {
    let with = |kernels: Kernels, name, kernel: fn(&mut KernelContext, &KernelArgs) -> Outcome| {
        kernels.with(name, kernel).expect("the names are sound and differ")
    };
    let kernels = with(Kernels::builtin(), "mem.fill", fill);
    let kernels = with(kernels, "mem.use", use_memory);
    let kernels = with(kernels, "mem.grow", grow);
    let kernels = with(kernels, "mem.column", column);
    let kernels = with(kernels, "mem.touch", touch);
    with(kernels, "mem.write", write_read_only)
}

fn memory_of(args: &KernelArgs) -> Result<OwnMemoryId, KernelError> {
    Ok(OwnMemoryId(args.value::<u64>(0)? as u8))
}

fn fill(kernel: &mut KernelContext, args: &KernelArgs) -> Outcome {
    let (mut words, value) = (args.write::<u64>(0)?, args.value::<u64>(1)?);
    for first in (0..words.len()).step_by(PAGE) {
        let part = words.slice(first..words.len().min(first + PAGE));
        kernel.with(part, |mut part| part.iter_mut().for_each(|word| *word = value))?;
    }
    Ok(0)
}

fn pages_free(kernel: &KernelContext, memory: OwnMemoryId) -> Result<u64, KernelError> {
    let all = kernel.own_memories()?;
    Ok(all.iter().find(|it| it.id == memory).map_or(0, |it| it.bytes_free / 4096))
}

fn use_memory(kernel: &mut KernelContext, args: &KernelArgs) -> Outcome {
    let (memory, pages) = (memory_of(args)?, args.value::<u64>(1)? as usize);
    let before = pages_free(kernel, memory)?;
    let mut span = kernel.alloc::<u64>(pages * PAGE, Backing::Eager.in_memory(memory))?;
    kernel.realloc(&mut span, 2 * pages * PAGE)?;
    for first in (0..span.len()).step_by(PAGE) {
        kernel.store(span.ptr(first), 1)?;
    }
    let taken = before - pages_free(kernel, memory)?;
    kernel.free(span)?;
    Ok(taken)
}

fn grow(kernel: &mut KernelContext, args: &KernelArgs) -> Outcome {
    let (memory, words) = (memory_of(args)?, args.value::<u64>(1)?);
    let mut made = Growable::in_memory(memory);
    for first in (0..words).step_by(1000) {
        let part: Vec<u64> = (first..words.min(first + 1000)).collect();
        made.extend(kernel, &part)?;
    }
    let made = made.hand_over(kernel)?;
    let out: WriteSpan<Made> = args.write(2)?;
    kernel.with(out, |mut out| out[0] = made)?;
    Ok(0)
}

fn column(kernel: &mut KernelContext, args: &KernelArgs) -> Outcome {
    let (memory, rows) = (memory_of(args)?, args.value::<u64>(1)?);
    let (mut numbers, mut texts) =
        (ColumnBuilder::<u64>::in_memory(memory), TextBuilder::in_memory(memory));
    for row in 0..rows {
        numbers.extend_nullable(kernel, &[(row % 2 == 0).then_some(row)])?;
        texts.extend_nullable(kernel, &[(row % 2 == 0).then_some("a text")])?;
    }
    let made = [numbers.hand_over(kernel)?, texts.hand_over(kernel)?];
    let out: WriteSpan<u64> = args.write(2)?;
    kernel.with(out, |mut out| {
        let words: &[u64] = bytemuck::cast_slice(&made);
        out.iter_mut().zip(words).for_each(|(out, word)| *out = *word);
    })?;
    Ok(0)
}

fn touch(kernel: &mut KernelContext, args: &KernelArgs) -> Outcome {
    let (memory, pages) = (memory_of(args)?, args.value::<u64>(1)? as usize);
    let span = kernel.alloc::<u64>(pages * PAGE, Backing::Lazy.in_memory(memory))?;
    for page in 0..pages {
        match kernel.store(span.ptr(page * PAGE), 1) {
            Ok(()) => {}
            Err(KernelError::Fault { reason: CancelReason::WindowFull, .. }) if page > 0 => {
                return Ok(page as u64);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(pages as u64)
}

fn write_read_only(kernel: &mut KernelContext, args: &KernelArgs) -> Outcome {
    let options = Backing::Lazy.in_memory(memory_of(args)?).read_only();
    let span = kernel.alloc::<u64>(PAGE, options)?;
    // To read it is allowed, also where that is its first touch, and leaves nobody the right to write.
    assert_eq!(kernel.load(span.ptr(1))?, 0);
    kernel.store(span.ptr(2), 1)?;
    Ok(0)
}

fn with_memories(config: CardConfig) -> CardConfig {
    let window = MEMORIES.map(|(kind, frames)| WindowMemory { kind, frames: frames as u32 });
    CardConfig { window: window.to_vec(), kernels: Arc::new(kernels()), ..config }
}

fn builder(places: impl IntoIterator<Item = CardPlace>) -> SpaceBuilder {
    let memories = MEMORIES.map(|(kind, pages)| (kind, pages as u64 * 4096));
    let builder = Space::builder().cards_at(places).address_space(64 << 20);
    builder.card_window_memories(memories).kernels(kernels())
}

/// A space with a card in the program, which is the first, and one that is served.
fn with_both(test: impl Fn(&Space, CardId) + Send + 'static) {
    within(LIMIT, "own memories", move || {
        let folder = TempDir::new();
        let server = serve(with_memories(config(&folder, 0)));
        let space = builder([CardPlace::InProgram { frames: 1024 }, place(&server)]);
        let space = space.build().unwrap();
        for card in space.cards() {
            let before = free(&space, card);
            assert_eq!(before, MEMORIES.map(|(_, pages)| pages), "{card}");
            test(&space, card);
            assert_eq!(free(&space, card), before, "all comes back to {card} where it was");
        }
        space.check().unwrap();
    });
}

/// Free pages of each memory.
fn free(space: &Space, card: CardId) -> [usize; 3] {
    let memories = space.own_memories(card).unwrap();
    let free: u64 = memories.iter().map(|memory| memory.bytes_free).sum();
    assert_eq!(space.own_memory_free(card).unwrap(), free);
    let pages: Vec<_> = memories.iter().map(|it| it.bytes_free as usize / 4096).collect();
    pages.try_into().unwrap()
}

/// The same less some of one memory.
fn less(before: [usize; 3], memory: OwnMemoryId, pages: usize) -> [usize; 3] {
    let mut less = before;
    less[usize::from(memory.0)] -= pages;
    less
}

fn each_memory() -> impl Iterator<Item = (OwnMemoryId, usize)> {
    (0..).map(OwnMemoryId).zip(MEMORIES.map(|(_, pages)| pages))
}

fn window_error<T: std::fmt::Debug>(outcome: Result<T, Error>) -> WindowError {
    match outcome {
        Err(Error::Window(error)) => error,
        other => panic!("not an error of a window: {other:?}"),
    }
}

#[test]
fn allocations_are_in_the_memory_that_they_chose() {
    with_both(|space, card| {
        let names: Vec<_> =
            space.own_memories(card).unwrap().into_iter().map(|it| it.name).collect();
        assert_eq!(names, ["ddr0", "hbm0", "bram0"]);
        for (memory, pages) in each_memory() {
            let before = free(space, card);
            // Eager: all of it at once. Each memory full, with what is its own: nothing lies on anything else.
            let options = Backing::Eager.in_memory(memory);
            let mut eager = space.alloc_on::<u64>(card, pages / 2 * PAGE, options).unwrap();
            assert_eq!(free(space, card), less(before, memory, pages / 2));
            // Lazy: a page when a kernel touches it, or the program.
            let options = Backing::Lazy.in_memory(memory);
            let mut lazy = space.alloc_on::<u64>(card, pages / 2 * PAGE, options).unwrap();
            assert_eq!(free(space, card), less(before, memory, pages / 2), "nothing is touched");
            lazy.fill_from(&[1; 2 * PAGE]).unwrap();
            assert_eq!(free(space, card), less(before, memory, pages / 2 + 2));
            let value = u64::from(memory.0) + 7;
            for words in [eager.host_mut().unwrap(), lazy.host_mut().unwrap()] {
                let args = (Write(words), Value(value));
                space.kernel("mem.fill").on(card).call(args).unwrap();
            }
            assert_eq!(free(space, card), less(before, memory, pages));
            drop((eager, lazy));
            assert_eq!(free(space, card), before);
        }
    });
}

/// All memories are full at once, and what is in one of them is nothing of another's.
#[test]
fn full_memories_lie_apart() {
    with_both(|space, card| {
        let mut all: Vec<_> = each_memory()
            .map(|(memory, pages)| {
                let options = Backing::Eager.in_memory(memory);
                space.alloc_on::<u64>(card, pages * PAGE, options).unwrap()
            })
            .collect();
        assert_eq!(free(space, card), [0; 3]);
        for (value, words) in all.iter_mut().enumerate() {
            let args = (Write(words.host_mut().unwrap()), Value(value as u64 + 1));
            space.kernel("mem.fill").on(card).call(args).unwrap();
        }
        for (value, words) in all.iter().enumerate() {
            assert!(words.host().unwrap().iter().all(|&word| word == value as u64 + 1), "{value}");
        }
        drop(all);
        // What was freed is zero, whichever memory it was in.
        for (memory, pages) in each_memory() {
            let options = Backing::Eager.in_memory(memory);
            let words = space.alloc_on::<u64>(card, pages * PAGE, options).unwrap();
            assert!(words.host().unwrap().iter().all(|&word| word == 0), "{memory}");
        }
    });
}

#[test]
fn a_memory_that_is_full_is_an_error_while_others_have_room() {
    with_both(|space, card| {
        let hbm = Backing::Eager.in_memory(HBM);
        let full = space.alloc_on::<u64>(card, 64 * PAGE, hbm).unwrap();
        let refused = window_error(space.alloc_on::<u64>(card, 1, hbm)).to_string();
        for part in [
            &card.to_string(),
            "give 8 bytes",
            "0 bytes of hbm0 are free",
            "1048576 bytes of ddr0",
            "choose another memory",
        ] {
            assert!(refused.contains(part), "{part}: {refused}");
        }
        let others = space.alloc_on::<u64>(card, PAGE, Backing::Eager.in_memory(DDR)).unwrap();
        assert_eq!(others.len(), PAGE);
        // A kernel is told so too, and one that touches its lazy pages there ends, or gets as many as there are.
        let one = || (Value(1u64), Value(1u64));
        let told = space.kernel("mem.use").on(card).call(one()).unwrap_err().to_string();
        assert!(told.contains("0 bytes of hbm0 are free"), "{told}");
        let told = space.kernel("mem.touch").on(card).call(one()).unwrap_err().to_string();
        assert!(told.contains("own memory for it has no free page left"), "{told}");
        drop(full);
        let touched = space.kernel("mem.touch").on(card).call((Value(1u64), Value(100u64)));
        assert_eq!(touched.unwrap(), 64, "as many as there are");
        assert_eq!(free(space, card), less(MEMORIES.map(|(_, pages)| pages), DDR, 1));
    });
}

/// The number behind the last is that of the tables' memory, which is nobody's to allocate in.
#[test]
fn a_memory_that_there_is_not_is_an_error() {
    with_both(|space, card| {
        for number in [3, 4, 15, 16, 255] {
            for backing in [Backing::Lazy, Backing::Eager] {
                let options = backing.in_memory(OwnMemoryId(number));
                let none = window_error(space.alloc_on::<u64>(card, 1, options)).to_string();
                let there = "0 (ddr0), 1 (hbm0), 2 (bram0)";
                assert!(none.contains(&card.to_string()) && none.contains(there), "{none}");
            }
            let args = (Value(u64::from(number)), Value(1u64));
            let told = space.kernel("mem.use").on(card).call(args).unwrap_err().to_string();
            assert!(told.contains("0 (ddr0), 1 (hbm0), 2 (bram0)"), "{told}");
        }
        assert_eq!(space.own_memory(card, "hbm").unwrap(), HBM);
        assert_eq!(space.own_memory(card, "ddr0").unwrap(), DDR);
        let none = window_error(space.own_memory(card, "host0")).to_string();
        assert!(none.contains("`host0`; it has ddr0, hbm0, bram0"), "{none}");
    });
}

#[test]
fn kernels_allocate_grow_and_build_columns_in_the_memory_that_they_chose() {
    with_both(|space, card| {
        for (memory, pages) in each_memory() {
            let number = || Value(u64::from(memory.0));
            let quarter = pages / 4;
            let args = (number(), Value(quarter as u64));
            let taken = space.kernel("mem.use").on(card).call(args).unwrap();
            assert_eq!(taken, 2 * quarter as u64, "what it grew by is of the same memory");
            let before = free(space, card);
            let mut made = space.alloc::<Made>(1).unwrap();
            let words = (quarter * PAGE) as u64;
            let args = (number(), Value(words), Write(&mut made));
            space.kernel("mem.grow").on(card).call(args).unwrap();
            let grown = space.take_over::<u64>(card, made[0]).unwrap();
            assert_eq!(free(space, card), less(before, memory, quarter));
            assert!((0..words).eq(grown.host().unwrap().iter().copied()));
            drop(grown);
            let mut made = space.alloc::<u64>(14).unwrap();
            let args = (number(), Value(1000u64), Write(&mut made));
            space.kernel("mem.column").on(card).call(args).unwrap();
            let made: &[MadeColumn] = bytemuck::cast_slice(&made);
            let numbers: CardColumn<u64> = space.take_over_column(card, made[0]).unwrap();
            let texts: CardColumn<str> = space.take_over_column(card, made[1]).unwrap();
            // 8000 bytes and 125; 3000, 4004 and 125.
            assert_eq!(free(space, card), less(before, memory, 6));
            assert_eq!(numbers.values().unwrap()[998], 998);
            assert_eq!(texts.into_arrow("").unwrap().0.null_count(), 500);
            drop(numbers);
            assert_eq!(free(space, card), before);
        }
    });
}

#[test]
fn what_may_only_be_read_is_filled_by_the_program_and_written_by_no_kernel() {
    with_both(|space, card| {
        for backing in [Backing::Lazy, Backing::Eager] {
            let options = AllocOptions::from(backing).in_memory(HBM).read_only();
            let mut table = space.alloc_on::<u64>(card, 2 * PAGE, options).unwrap();
            let values: Vec<u64> = (0..2 * PAGE as u64).collect();
            table.fill_from(&values).unwrap();
            table.fill_from(&[5, 6]).unwrap();
            let sum = values.iter().sum::<u64>() + 10;
            assert_eq!(table.host().unwrap()[..3], [5, 6, 2]);
            assert_eq!(table.to_vec().unwrap().iter().sum::<u64>(), sum);
            // Its own card reads it, and the other.
            for reader in space.cards() {
                let read = Read(table.host().unwrap());
                assert_eq!(space.kernel("farside.sum").on(reader).call(read).unwrap(), sum);
            }
            let refused = window_error(table.host_mut().map_err(Error::from));
            assert!(matches!(refused, WindowError::ReadOnly { .. }), "{refused}");
            let told = refused.to_string();
            assert!(told.contains(&card.to_string()) && told.contains("fill_from"), "{told}");
            let more = vec![1; 2 * PAGE + 1];
            let refused = window_error(table.fill_from(&more).map_err(Error::from));
            assert!(matches!(refused, WindowError::NoRoom { .. }), "{refused}");
            assert_eq!(table.host().unwrap()[0], 5, "nothing of it was written");
        }
        for number in 0..3u64 {
            let error = space.kernel("mem.write").on(card).call(Value(number)).unwrap_err();
            let is_fault = matches!(
                error,
                Error::Kernel(KernelError::Fault { reason: CancelReason::ReadOnly, .. })
            );
            assert!(is_fault, "{error:?}");
        }
    });
}

#[test]
fn where_something_is_can_be_asked_and_nothing_of_it_moves() {
    with_both(|space, card| {
        let told = |addr, pages: usize| {
            let parts = space.own_parts(addr, (pages * 4096) as u64).unwrap();
            assert!(parts.iter().all(|part| part.card == card));
            let name = |part: &OwnPart| part.memory.as_ref().map(|memory| memory.name.clone());
            parts.iter().map(|part| (part.range.count, name(part))).collect::<Vec<_>>()
        };
        let options = Backing::Lazy.in_memory(HBM);
        let mut words = space.alloc_on::<u64>(card, 10 * PAGE, options).unwrap();
        assert_eq!(told(words.addr(), 10), [(10, None)]);
        words.fill_from(&[1; 3 * PAGE]).unwrap();
        assert_eq!(told(words.addr(), 10), [(3, Some("hbm0".to_owned())), (7, None)]);
        let other = space.alloc_on::<u64>(card, PAGE, Backing::Eager).unwrap();
        assert_eq!(told(other.addr(), 1), [(1, Some("ddr0".to_owned()))]);
        let stays = |error: Error| {
            let is_it = matches!(error, Error::StaysOnCard { card: of, .. } if of == card);
            assert!(is_it && error.to_string().contains("stays where it is"), "{error}");
        };
        stays(space.why(words.addr()).unwrap_err());
        stays(space.locate(words.host().unwrap()).unwrap_err());
        stays(space.migrate(words.host().unwrap(), card).unwrap_err());
        // What is not allocated, or no card's own.
        let freed = words.addr();
        drop(words);
        let error = window_error(space.own_parts(freed, 1));
        assert!(error.to_string().contains(&card.to_string()), "{error}");
        let shared = space.alloc::<u64>(1).unwrap();
        assert!(space.own_parts(shared.addr(), 8).unwrap().is_empty());
    });
}

#[test]
fn the_status_of_a_served_card_tells_of_each_memory() {
    within(LIMIT, "status", || {
        let folder = TempDir::new();
        let server = serve(with_memories(config(&folder, 0)));
        let space = builder([place(&server)]).build().unwrap();
        let card = space.card(0).unwrap();
        let options = Backing::Eager.in_memory(HBM);
        let words = space.alloc_on::<u64>(card, 10 * PAGE, options).unwrap();
        let status = server.status().unwrap();
        let all = space.own_memories(card).unwrap();
        let users = status.functions.iter().filter_map(|function| function.user.as_ref());
        let told: Vec<_> = users.map(|user| &user.own_memories).collect();
        assert_eq!(told, [&all]);
        assert_eq!(all[1].bytes_free, 54 * 4096);
        drop(words);
        assert_eq!(status.own_memories, space.own_memories(card).unwrap());
    });
}

/// A card that says this of registers.
fn liar(says: &'static [(u64, u64)]) -> Lies {
    let answers = move |answer: &mut harness::live::hostile::Answer<'_>| {
        for &(offset, value) in says {
            if answer.is_register(offset) {
                let bytes = answer.message.payload.len() - 16;
                answer.patch(16, &value.to_ne_bytes()[..bytes]);
            }
        }
        Fate::Pass
    };
    Lies { answers: Box::new(answers), rings: None }
}

const FRAMES: u64 = register::MEMORY_FRAMES;
const MOST: u64 = u32::MAX as u64;
const TOO_FREE: &[(u64, u64)] = &[(memory(1) + register::MEMORY_FRAMES_FREE, MOST)];

#[test]
fn memories_that_make_no_sense_are_refused_when_the_space_is_opened() {
    const CASES: [(&[(u64, u64)], &str); 9] = [
        (&[(register::WINDOW_MEMORIES, 0)], "has 0 memories; there can be 1 to 16"),
        (&[(register::WINDOW_MEMORIES, 17)], "has 17 memories; there can be 1 to 16"),
        (&[(register::WINDOW_MEMORIES, MOST)], "there can be 1 to 16"),
        // Those that there are not read as ones.
        (&[(register::WINDOW_MEMORIES, 4)], "in its 4 memories; that cannot be"),
        (
            &[(register::WINDOW_MEMORIES, 2)],
            "336 frames from 0x1000 on behind 0x1000 others, and 320 in its 2",
        ),
        (&[(memory(1) + FRAMES, 65)], "and 337 in its 3 memories"),
        (
            &[(memory(1) + FRAMES, 0), (memory(0) + FRAMES, 320)],
            "memory 1 of its own window has no frame",
        ),
        (&[(memory(0) + FRAMES, MOST), (register::WINDOW_FRAMES, MOST + 80)], "that cannot be"),
        (&[(register::VERSION, 0x1_0003)], "does not tell how large each is"),
    ];
    within(LIMIT, "senseless memories", || {
        let folder = TempDir::new();
        let real = serve(with_memories(config(&folder, 0)));
        let socket = real.config().folder.join(socket_name(0));
        for (number, (says, why)) in CASES.into_iter().enumerate() {
            let path = folder.join(&format!("liar{number}.sock"));
            let liar = HostileCard::start(path, socket.clone(), move || liar(says));
            let error = builder([liar.place()]).build().unwrap_err().to_string();
            assert!(error.contains("card 0") && error.contains(why), "{number}: {error}");
        }
        // More free than there is, is all of it.
        let liar = HostileCard::start(folder.join("liar.sock"), socket, move || liar(TOO_FREE));
        let space = builder([liar.place()]).build().unwrap();
        assert_eq!(free(&space, CardId(0)), MEMORIES.map(|(_, pages)| pages));
    });
}

#[test]
fn memories_that_no_card_can_have_are_no_space() {
    let build = |memories: &[(MemoryKind, u64)]| {
        let builder = Space::builder().cards(1).card_window_memories(memories.to_vec());
        builder.build().unwrap_err().to_string()
    };
    for (memories, why) in [
        (&[(MemoryKind::Ddr, 4096), (MemoryKind::Hbm, 0)][..], "hbm0 has no page"),
        (&[(MemoryKind::Ddr, 4097)], "ddr has 4097 bytes, which are no whole pages"),
        (&[(MemoryKind::Ddr, 4096); 16], "1 to 15 memories of its own, not 16"),
        (&[(MemoryKind::Ddr, 3 << 40), (MemoryKind::Ddr, 2 << 40)], "at most 4 TiB"),
        (&[(MemoryKind::Ddr, !4095)], "at most 4 TiB"),
    ] {
        let error = build(memories);
        assert!(error.contains(why), "{error}");
    }
}
