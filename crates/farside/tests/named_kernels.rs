//! Kernels by name: each built-in one, the typed call, and what is refused. Every call has a time
//! limit, so nothing here waits for ever.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use farside::{
    CallArgs, CardId, Error, KernelArgs, KernelContext, KernelError, Kernels, KernelsError,
    LiveError, MemoryId, Read, ReadView, Shared, Space, SpaceBuilder, Value, Write,
};

const LIMIT: Duration = Duration::from_secs(60);
/// Words of a page.
const PAGE: usize = 512;
/// More words than one `with` of a built-in kernel takes.
const MANY: usize = 3 * 256 * 1024 + 77;

fn builder() -> SpaceBuilder {
    Space::builder().cards(2).card_memory(8 << 20).address_space(64 << 20)
}

fn space() -> Space {
    builder().build().unwrap()
}

fn call(space: &Space, name: &str, args: impl CallArgs) -> Result<u64, Error> {
    space.kernel(name).on(CardId(1)).time_limit(LIMIT).call(args)
}

/// What a kernel says against its arguments.
fn bad_request(outcome: Result<u64, Error>, kernel: &str) -> String {
    match outcome {
        Err(Error::Kernel(KernelError::BadRequest { kernel: name, why })) => {
            assert_eq!(&*name, kernel);
            why
        }
        other => panic!("expected a refused request of {kernel}, got {other:?}"),
    }
}

#[test]
fn nop_does_nothing() {
    let space = space();
    assert_eq!(call(&space, "farside.nop", ()).unwrap(), 0);
    let why = bad_request(call(&space, "farside.nop", Value(1u8)), "farside.nop");
    assert_eq!(why, "it takes 0 arguments and was given 1");
}

#[test]
fn increment_adds_one_to_words_of_its_own_and_to_shared_ones() {
    let space = space();
    let mut own = space.alloc::<u64>(MANY).unwrap();
    own.iter_mut().enumerate().for_each(|(i, word)| *word = i as u64);
    own[9] = u64::MAX;
    // Neither end at a page's.
    let inner = 3..MANY - 5;
    let done = call(&space, "farside.increment", Write(&mut own[inner.clone()])).unwrap();
    assert_eq!(done, inner.len() as u64);
    for (i, &word) in own.iter().enumerate() {
        let wanted = match i {
            9 => 0,
            i => i as u64 + u64::from(inner.contains(&i)),
        };
        assert_eq!(word, wanted, "word {i}");
    }
    let shared = space.alloc_atomic::<AtomicU64>(PAGE + 1, "shared").unwrap();
    assert_eq!(call(&space, "farside.increment", Shared(&shared)).unwrap(), PAGE as u64 + 1);
    assert!(shared.iter().all(|word| word.load(SeqCst) == 1));
    let why = bad_request(call(&space, "farside.increment", Read(&own)), "farside.increment");
    assert!(
        why.contains("is memory to read") && why.contains("wanted is memory to write"),
        "{why}"
    );
}

#[test]
fn increments_of_two_cards_at_the_same_time_all_count() {
    let space = space();
    let words = space.alloc_atomic::<AtomicU64>(2 * PAGE, "shared").unwrap();
    space.scope(|scope| {
        let jobs: Vec<_> = (0..10)
            .map(|i| {
                let kernel = scope.kernel("farside.increment").on(CardId(i % 2));
                kernel.time_limit(LIMIT).launch_call(Shared(&words)).unwrap()
            })
            .collect();
        for job in jobs {
            assert_eq!(job.wait().unwrap(), 2 * PAGE as u64);
        }
    });
    assert!(words.iter().all(|word| word.load(SeqCst) == 10));
    space.check().unwrap();
}

#[test]
fn fill_copy_and_sum_handle_more_than_one_piece() {
    let space = space();
    let (mut from, mut to) = (space.alloc::<u64>(MANY).unwrap(), space.alloc::<u64>(MANY).unwrap());
    let value = u64::MAX - 2;
    let filled = call(&space, "farside.fill", (Write(&mut from[1..]), Value(value))).unwrap();
    assert_eq!(filled, MANY as u64 - 1);
    assert!(from[0] == 0 && from[1..].iter().all(|&word| word == value));
    from.iter_mut().enumerate().for_each(|(i, word)| *word = word.wrapping_add(i as u64));
    // The ranges lie differently in their pages.
    let copied = call(&space, "farside.copy", (Read(&from[..MANY - 3]), Write(&mut to[3..])));
    assert_eq!(copied.unwrap(), MANY as u64 - 3);
    assert!(to[..3].iter().all(|&word| word == 0) && to[3..] == from[..MANY - 3]);
    let wanted = from.iter().fold(0u64, |sum, word| sum.wrapping_add(*word));
    assert_eq!(call(&space, "farside.sum", Read(&from)).unwrap(), wanted);
    assert_eq!(call(&space, "farside.sum", Read(&from[..0])).unwrap(), 0);

    let why = bad_request(
        call(&space, "farside.copy", (Read(&from[..4]), Write(&mut to[..5]))),
        "farside.copy",
    );
    assert_eq!(why, "4 words cannot be copied to 5 words");
    let why =
        bad_request(call(&space, "farside.fill", (Write(&mut to), Value(1u32))), "farside.fill");
    assert!(why.contains("argument 1") && why.contains("wanted is a value of 8 bytes"), "{why}");
    // Words are filled with bits, whatever number they are.
    call(&space, "farside.fill", (Write(&mut to), Value(2.5f64))).unwrap();
    assert!(to.iter().all(|&word| word == 2.5f64.to_bits()));
    let why = bad_request(call(&space, "farside.sum", Value(0u64)), "farside.sum");
    assert!(why.contains("argument 0 (from 0 on) is a value of 8 bytes"), "{why}");
}

#[test]
fn touch_adds_one_to_the_first_element_in_each_page() {
    let space = space();
    let mut words = space.alloc::<u64>(5 * PAGE).unwrap();
    // From the middle of the first page to the first word of the fifth.
    let part = 100..4 * PAGE + 1;
    assert_eq!(call(&space, "farside.touch", Write(&mut words[part])).unwrap(), 5);
    for (i, &word) in words.iter().enumerate() {
        let touched = i == 100 || (i % PAGE == 0 && i > 0 && i <= 4 * PAGE);
        assert_eq!(word, u64::from(touched), "word {i}");
    }
    let mut bytes = space.alloc::<u8>(3 * 4096).unwrap();
    bytes.fill(255);
    assert_eq!(call(&space, "farside.touch", Write(&mut bytes)).unwrap(), 3);
    for (i, &byte) in bytes.iter().enumerate() {
        assert_eq!(byte, if i % 4096 == 0 { 0 } else { 255 }, "byte {i}");
    }
    let mut halves = space.alloc::<u32>(4).unwrap();
    let why = bad_request(call(&space, "farside.touch", Write(&mut halves)), "farside.touch");
    assert!(why.contains("elements of 4 bytes"), "{why}");
}

#[test]
fn spin_runs_until_it_is_told_to_stop() {
    let space = space();
    space.scope(|scope| {
        let job = scope.kernel("farside.spin").time_limit(LIMIT).launch_call(()).unwrap();
        let job = job.wait_for(Duration::from_millis(20)).expect_err("it runs on");
        job.cancel();
        let ended = job.wait();
        assert!(matches!(ended, Err(Error::Kernel(KernelError::Cancelled { .. }))), "{ended:?}");
    });
    let limit = Duration::from_millis(20);
    let ended = space.kernel("farside.spin").time_limit(limit).call(());
    assert!(matches!(ended, Err(Error::Kernel(KernelError::TimedOut { .. }))), "{ended:?}");
}

#[test]
fn hold_keeps_its_page_until_it_is_told_to_let_go() {
    let space = space();
    let mut words = space.alloc::<u64>(2 * PAGE).unwrap();
    // Pinned on the host, the card reaches it over the bus, so both sides see the word.
    space.pin(&words, MemoryId::HOST).unwrap();
    let first = words.as_mut_ptr();
    space.scope(|scope| {
        let kernel = scope.kernel("farside.hold").time_limit(LIMIT);
        let job = kernel.launch_call(Write(&mut words)).unwrap();
        // SAFETY: the memory lives as long as the scope; the kernel uses this word by atomic
        // operations only, so that somebody else can tell it to end.
        let word = unsafe { AtomicU64::from_ptr(first) };
        let end = Instant::now() + LIMIT;
        while word.load(SeqCst) != 1 && !job.is_done() {
            assert!(Instant::now() < end, "it does not begin");
            std::thread::sleep(Duration::from_millis(1));
        }
        word.store(2, SeqCst);
        assert_eq!(job.wait().unwrap(), 0);
    });
    assert_eq!((words[0], words[1]), (2, 0));
    // Nobody tells it.
    let ended = call(&space, "farside.hold", Write(&mut words));
    match ended {
        Err(Error::Kernel(KernelError::Failed { message, .. })) => {
            assert!(message.contains("nobody set the word"), "{message}");
        }
        other => panic!("it cannot end well: {other:?}"),
    }
    let why = bad_request(call(&space, "farside.hold", Write(&mut words[..0])), "farside.hold");
    assert!(why.contains("no word"), "{why}");
    space.unpin(&words).unwrap();
}

#[test]
fn saxpy_is_a_times_x_plus_y() {
    let space = space();
    let len = 300_001;
    let (mut x, mut y) = (space.alloc::<f32>(len).unwrap(), space.alloc::<f32>(len).unwrap());
    x.iter_mut().enumerate().for_each(|(i, x)| *x = (i % 1000) as f32);
    y.iter_mut().enumerate().for_each(|(i, y)| *y = (i % 7) as f32);
    let args = (Value(0.5f32), Read(&x), Write(&mut y));
    assert_eq!(call(&space, "farside.saxpy", args).unwrap(), len as u64);
    for (i, &y) in y.iter().enumerate() {
        assert_eq!(y, 0.5 * (i % 1000) as f32 + (i % 7) as f32, "value {i}");
    }
    let args = (Value(0.5f32), Read(&x[1..]), Write(&mut y));
    let why = bad_request(call(&space, "farside.saxpy", args), "farside.saxpy");
    assert!(why.contains("x has 300000 values and y has 300001"), "{why}");
    let args = (Value(0.5f64), Read(&x), Write(&mut y));
    let why = bad_request(call(&space, "farside.saxpy", args), "farside.saxpy");
    assert!(why.contains("argument 0") && why.contains("a value of 8 bytes"), "{why}");
    // As many bytes, but another number: its bits would be a float that nobody has asked for.
    let before = y.to_vec();
    let why = bad_request(
        call(&space, "farside.saxpy", (Value(2i32), Read(&x), Write(&mut y))),
        "farside.saxpy",
    );
    assert!(
        why.contains("a value of 4 bytes, an integer; wanted is a value of 4 bytes, a float"),
        "{why}"
    );
    assert!(y[..] == before);
}

#[test]
fn chase_follows_pointers_as_far_as_it_is_told() {
    const NODES: usize = 3000;
    let space = space();
    let mut nodes = space.alloc::<u64>(NODES).unwrap();
    let place = |position: usize| position * 777 % NODES;
    // 777 and the length have the divisor 3: a ring of a third of the nodes.
    let ring = NODES / 3;
    let start = nodes.addr().0;
    let at = |index: usize| start + 8 * index as u64;
    for position in 0..ring {
        nodes[place(position)] = at(place((position + 1) % ring));
    }
    let chase = |nodes: &[u64], first: u64, steps: u64| {
        call(&space, "farside.chase", (Read(nodes), Value(first), Value(steps)))
    };
    for steps in [0, 1, 2, ring, ring + 3] {
        let wanted = at(place(steps % ring));
        assert_eq!(chase(&nodes, start, steps as u64).unwrap(), wanted, "{steps} steps");
    }
    // A list with an end.
    nodes[place(5)] = 0;
    assert_eq!(chase(&nodes, start, u64::MAX).unwrap(), at(place(5)));
    // A pointer to somewhere else.
    nodes[place(5)] = 0x10;
    match chase(&nodes, start, 7) {
        Err(Error::Kernel(KernelError::WildAddress { addr, .. })) => assert_eq!(addr.0, 0x10),
        other => panic!("nothing is at 0x10: {other:?}"),
    }
    let wild = call(&space, "farside.chase", (Value(0u8), Value(start), Value(1u64)));
    assert!(bad_request(wild, "farside.chase").contains("not memory to read"));
}

#[test]
fn histogram_counts_what_two_cards_read() {
    let space = space();
    let mut bytes = space.alloc::<u8>((3 << 20) + 11).unwrap();
    bytes.iter_mut().enumerate().for_each(|(i, byte)| *byte = (i * i % 251) as u8);
    let bins = space.alloc_atomic::<AtomicU64>(256, "bins").unwrap();
    let mut wanted = [0u64; 256];
    bytes.iter().for_each(|&byte| wanted[usize::from(byte)] += 1);
    let (left, right) = bytes.split_at(1_000_001);
    space.scope(|scope| {
        for (card, half) in [(0, left), (1, right)] {
            let kernel = scope.kernel("farside.histogram").on(CardId(card)).time_limit(LIMIT);
            kernel.launch_call((Read(half), Shared(&bins))).unwrap();
        }
    });
    let counted: Vec<u64> = bins.iter().map(|bin| bin.load(SeqCst)).collect();
    assert_eq!(counted, wanted);
    let why = bad_request(
        call(&space, "farside.histogram", (Read(left), Shared(&bins[1..]))),
        "farside.histogram",
    );
    assert!(why.contains("255 bins"), "{why}");
}

/// Reads a vector of ranges and a value between them.
fn gather(k: &mut KernelContext, args: &KernelArgs) -> Result<u64, KernelError> {
    let mut sum = 0;
    for index in 0..args.len() - 1 {
        let part = args.read::<u32>(index)?;
        sum +=
            k.with(part, |part: ReadView<u32>| part.iter().map(|&x| u64::from(x)).sum::<u64>())?;
    }
    Ok(sum * u64::from(args.value::<u16>(args.len() - 1)?))
}

#[test]
fn kernels_of_the_program_are_called_by_name_too() {
    let kernels = Kernels::builtin().with("my.gather", gather).unwrap();
    let kernels = kernels
        .with("my.panic", |_, args| panic!("with {} arguments", args.len()))
        .unwrap()
        .with("my.name", |k, args| {
            assert_eq!(k.name(), &**args.kernel());
            Ok(u64::from(k.card().0))
        })
        .unwrap();
    let space = builder().kernels(kernels).build().unwrap();
    let mut data = space.alloc::<u32>(4000).unwrap();
    data.fill(2);
    let parts: Vec<_> = data.chunks(300).map(Read).collect();
    assert_eq!(call(&space, "my.gather", (parts, Value(3u16))).unwrap(), 24_000);
    assert_eq!(call(&space, "my.name", ()).unwrap(), 1);
    match call(&space, "my.panic", ()) {
        Err(Error::Kernel(KernelError::Panicked { message, .. })) => {
            assert!(message.contains("with 0 arguments"), "{message}");
        }
        other => panic!("it panics: {other:?}"),
    }
    assert_eq!(call(&space, "farside.nop", ()).unwrap(), 0);
}

#[test]
fn a_name_that_there_is_not_is_refused_with_a_hint() {
    let space = space();
    match call(&space, "farside.some", ()) {
        Err(Error::Kernels(error @ KernelsError::Unknown { .. })) => {
            let told = error.to_string();
            assert_eq!(told, "there is no kernel `farside.some`; did you mean `farside.sum`?");
        }
        other => panic!("there is no such kernel: {other:?}"),
    }
    let none = builder().kernels(Kernels::none()).build().unwrap();
    let told = call(&none, "farside.sum", ()).unwrap_err().to_string();
    assert!(told.ends_with("the table is empty"), "{told}");
}

#[test]
fn what_a_kernel_cannot_be_lent_is_refused_before_it_runs() {
    let space = space();
    let mine = vec![1u64; 8];
    match call(&space, "farside.sum", Read(&mine)) {
        Err(Error::Live(LiveError::NotShared { addr })) => assert_eq!(addr.0, mine.as_ptr() as u64),
        other => panic!("that memory is not shared: {other:?}"),
    }
    let why = bad_request(call(&space, "farside.nop", vec![Value(0u8); 65]), "farside.nop");
    assert!(why.contains("given 65 arguments"), "{why}");
    // Words that are not aligned to their size might lie in two pages.
    let data = space.alloc::<u32>(64).unwrap();
    let misaligned: &[[u32; 2]] = bytemuck::cast_slice(&data[1..63]);
    let why = bad_request(call(&space, "farside.sum", Read(misaligned)), "farside.sum");
    assert!(why.contains("a multiple of 8"), "{why}");
    let small = space.alloc_atomic::<AtomicU32>(4, "small").unwrap();
    let why = bad_request(call(&space, "farside.increment", Shared(&small)), "farside.increment");
    assert!(why.contains("elements of 4 bytes"), "{why}");
    match space.kernel("farside.nop").on(CardId(2)).call(()) {
        Err(Error::Live(LiveError::NoSuchCard { .. })) => {}
        other => panic!("there is no such card: {other:?}"),
    }
    assert_eq!(call(&space, "farside.sum", Read(&space.alloc::<u64>(9).unwrap())).unwrap(), 0);
}
