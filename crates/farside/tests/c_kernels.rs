//! Kernels in C: compiled, loaded and called as a user does it; and libraries that are refused.

#[path = "c_kernels/columns.rs"]
mod columns;
#[path = "c_kernels/memories.rs"]
mod memories;
#[path = "c_kernels/own.rs"]
mod own;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use farside::{
    CallArgs, CardId, Error, KernelError, Kernels, KernelsError, LibraryError, Ptr, Read, Shared,
    Space, Value, Write,
};

const LIMIT: Duration = Duration::from_secs(60);
/// More words than one piece of `farside_for_each` has.
const MANY: usize = 3 * 256 * 1024 + 77;

/// A folder of its own, gone at the end.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Folder {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let name =
            format!("farside-c-kernels-{}-{}", std::process::id(), NEXT.fetch_add(1, SeqCst));
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).expect("a folder can be made among temporary files");
        Folder(path)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn run(command: &mut Command) {
    let output = command.output().expect("the compiler that links Rust programs is there");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.is_empty(), "{command:?}: {said}");
}

/// Compiles a file as the example's README says, and without a warning.
fn compile(source: &Path, library: &Path) {
    let mut command = Command::new("cc");
    command.args(["-std=c11", "-O2", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-shared"]);
    command.args(["-fPIC", "-fvisibility=hidden", "-I"]).arg(repository().join("include"));
    run(command.arg("-o").arg(library).arg(source));
}

/// A library of a text in C.
fn library(folder: &Folder, name: &str, text: &str) -> PathBuf {
    let source = folder.file(&format!("{name}.c"));
    std::fs::write(&source, format!("#include \"farside-kernel.h\"\n{text}")).unwrap();
    let library = folder.file(&format!("{name}.so"));
    compile(&source, &library);
    library
}

fn space_with(source: &Path) -> Space {
    let folder = Folder::new();
    let library = folder.file("kernels.so");
    compile(source, &library);
    let builder = Space::builder().cards(2).card_memory(8 << 20).address_space(64 << 20);
    // SAFETY: these sources keep the header's rules, or break those that the runtime checks.
    unsafe { builder.kernel_library(&library) }.build().unwrap()
}

fn example() -> Space {
    space_with(&repository().join("examples/c-kernels/kernels.c"))
}

fn services() -> Space {
    space_with(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c/services.c"))
}

fn call(space: &Space, name: &str, args: impl CallArgs) -> Result<u64, Error> {
    space.kernel(name).on(CardId(1)).time_limit(LIMIT).call(args)
}

/// What a kernel says that failed by itself.
fn failed(outcome: Result<u64, Error>) -> String {
    match outcome {
        Err(Error::Kernel(KernelError::Failed { message, .. })) => message,
        other => panic!("expected a kernel that fails by itself, got {other:?}"),
    }
}

/// What is said against a request of a kernel.
fn refused(outcome: Result<u64, Error>) -> String {
    match outcome {
        Err(Error::Kernel(KernelError::BadRequest { why, .. })) => why,
        other => panic!("expected a refused request, got {other:?}"),
    }
}

#[test]
fn the_example_adds_vectors() {
    let space = example();
    let len = 400_001;
    let mut x = space.alloc::<f32>(len).unwrap();
    let mut y = space.alloc::<f32>(len).unwrap();
    let mut z = space.alloc::<f32>(len + 5).unwrap();
    x.iter_mut().enumerate().for_each(|(i, x)| *x = (i % 1000) as f32);
    y.iter_mut().enumerate().for_each(|(i, y)| *y = (i % 77) as f32);
    // The ranges lie differently in their pages.
    let args = (Read(&x[..]), Read(&y[..]), Write(&mut z[5..]));
    assert_eq!(call(&space, "example.add", args).unwrap(), len as u64);
    assert!(z[..5].iter().all(|&z| z == 0.0));
    for i in 0..len {
        assert_eq!(z[5 + i], x[i] + y[i], "value {i}");
    }
    let why = refused(call(&space, "example.add", (Read(&x), Read(&y[1..]), Write(&mut z))));
    assert!(why.contains("range 1") && why.contains("range 0 has 400001 elements"), "{why}");
    let message = failed(call(&space, "example.add", (Read(&x), Read(&y))));
    assert_eq!(message, "takes (read f32 x, read f32 y, write f32 z)");
}

#[test]
fn the_example_counts_words_on_two_cards_at_once() {
    let space = example();
    let text = "one two  three\nfour\tfive \n\n six".repeat(90_000);
    let mut bytes = space.alloc::<u8>(2 * text.len()).unwrap();
    bytes[..text.len()].copy_from_slice(text.as_bytes());
    bytes[text.len()..].copy_from_slice(text.as_bytes());
    let counts = space.alloc_atomic::<AtomicU64>(3, "counts").unwrap();
    let (left, right) = bytes.split_at(text.len());
    let words = text.split_ascii_whitespace().count() as u64;
    space.scope(|scope| {
        let start = |card, half| {
            let kernel = scope.kernel("example.count").on(CardId(card)).time_limit(LIMIT);
            kernel.launch_call((Read(half), Shared(&counts))).unwrap()
        };
        for job in [start(0, left), start(1, right)] {
            assert_eq!(job.wait().unwrap(), words);
        }
    });
    let counted: Vec<u64> = counts.iter().map(|count| count.load(SeqCst)).collect();
    let lines = text.matches('\n').count() as u64;
    assert_eq!(counted, [2 * lines, 2 * words, 2 * text.len() as u64]);
}

#[test]
fn the_example_walks_a_list() {
    const NODES: usize = 3000;
    let space = example();
    let mut nodes = space.alloc::<[u64; 2]>(NODES).unwrap();
    let place = |position: usize| position * 777 % (NODES + 1);
    // 777 and one more than the length have no common divisor; place 0 is left out.
    let addr = |nodes: &[[u64; 2]], position| Ptr::to(&nodes[place(position) - 1]).addr();
    for position in 1..=NODES {
        let next = if position < NODES { addr(&nodes, position + 1) } else { 0 };
        nodes[place(position) - 1] = [position as u64, next];
    }
    let first = addr(&nodes, 1);
    let walk =
        |nodes: &[[u64; 2]], first| call(&space, "example.walk", (Read(nodes), Value(first)));
    assert_eq!(walk(&nodes, first).unwrap(), (NODES * (NODES + 1) / 2) as u64);
    assert_eq!(walk(&nodes, 0u64).unwrap(), 0);
    nodes[place(NODES) - 1][1] = first;
    assert_eq!(failed(walk(&nodes, first)), "the list leads back to itself");
    nodes[place(NODES / 2) - 1][1] = 0xdead_0000;
    match walk(&nodes, first) {
        Err(Error::Kernel(KernelError::WildAddress { addr, kernel, .. })) => {
            assert_eq!((addr.0, &*kernel), (0xdead_0000, "example.walk"));
        }
        other => panic!("that address was not given: {other:?}"),
    }
}

#[test]
fn words_of_every_width_are_loaded_and_stored() {
    let space = services();
    let mut data = space.alloc::<u64>(600).unwrap();
    data[0] = 0x8877_6655_4433_2211;
    let at = data.addr().0;
    let load = |data: &[u64], addr: u64, bytes: u32| {
        call(&space, "t.load", (Read(data), Value(addr), Value(bytes)))
    };
    for (bytes, wanted) in [(1, 0x11), (2, 0x2211), (4, 0x4433_2211), (8, data[0])] {
        assert_eq!(load(&data, at, bytes).unwrap(), wanted, "{bytes} bytes");
    }
    assert_eq!(load(&data, at + 3, 2).unwrap(), 0x5544);
    for bytes in [0, 3, 16, u32::MAX] {
        let why = refused(load(&data, at, bytes));
        assert_eq!(why, format!("farside_load of {bytes} bytes; words have 1, 2, 4 or 8 bytes"));
    }
    assert!(refused(load(&data, at + 4092, 8)).contains("crosses a page"));
    for (bytes, wanted) in [(1, 0x11u64 << 56 | 0xff), (2, 0xffff), (4, 0xffff_ffff), (8, u64::MAX)]
    {
        data[1] = if bytes == 1 { 0x11 << 56 } else { 0 };
        let args = (Write(&mut data), Value(at + 8), Value(bytes as u32), Value(u64::MAX));
        assert_eq!(call(&space, "t.store", args).unwrap(), 4);
        assert_eq!(data[1], wanted, "{bytes} bytes");
    }
    let args = (Write(&mut data), Value(at), Value(5u32), Value(1u64));
    assert!(refused(call(&space, "t.store", args)).contains("farside_store of 5 bytes"));
    let outside = load(&data[..4], at + 32, 8);
    assert!(matches!(outside, Err(Error::Kernel(KernelError::WildAddress { .. }))), "{outside:?}");
    let args = (Read(&data[..]), Value(at), Value(8u32), Value(1u64));
    let stored = call(&space, "t.store", args);
    assert!(matches!(stored, Err(Error::Kernel(KernelError::WildAddress { .. }))), "{stored:?}");
    assert!(refused(call(&space, "t.null_value", Read(&data))).contains("NULL"));
}

#[test]
fn atomic_operations_change_a_word_and_tell_what_it_was() {
    let space = services();
    let words = space.alloc_atomic::<AtomicU64>(2, "words").unwrap();
    let halves = space.alloc_atomic::<AtomicU32>(2, "halves").unwrap();
    let (at, half) = (words.addr().0, halves.addr().0);
    words[0].store(5, SeqCst);
    halves[1].store(u32::MAX, SeqCst);
    let add = (Shared(&words), Value(at), Value(8u32), Value(u64::MAX));
    assert_eq!(call(&space, "t.fetch_add", add).unwrap(), 5);
    assert_eq!(words[0].load(SeqCst), 4);
    let add = (Shared(&halves), Value(half + 4), Value(4u32), Value(2u64));
    assert_eq!(call(&space, "t.fetch_add", add).unwrap(), u64::from(u32::MAX));
    assert_eq!((halves[0].load(SeqCst), halves[1].load(SeqCst)), (0, 1));
    for (expected, was, then) in [(9u64, 4, 4), (4, 4, 7)] {
        let swap = (Shared(&words), Value(at), Value(8u32), Value(expected), Value(7u64));
        assert_eq!(call(&space, "t.compare_exchange", swap).unwrap(), was);
        assert_eq!(words[0].load(SeqCst), then);
    }
    let swap = (Shared(&halves), Value(half + 4), Value(4u32), Value(1u64), Value(8u64));
    assert_eq!(call(&space, "t.compare_exchange", swap).unwrap(), 1);
    assert_eq!(halves[1].load(SeqCst), 8);

    let add = |addr: u64, bytes: u32| {
        refused(call(
            &space,
            "t.fetch_add",
            (Shared(&words), Value(addr), Value(bytes), Value(1u64)),
        ))
    };
    assert!(add(at + 4, 8).contains("not aligned"));
    assert!(add(at + 2, 4).contains("not aligned"));
    assert!(add(at, 2).contains("farside_fetch_add of 2 bytes; words have 4 or 8 bytes"));
    let swap = (Shared(&words), Value(at + 1), Value(8u32), Value(0u64), Value(0u64));
    assert!(refused(call(&space, "t.compare_exchange", swap)).contains("not aligned"));
}

#[test]
fn runs_of_words_are_gathered_and_scattered() {
    let space = services();
    let mut data = space.alloc::<u64>(600).unwrap();
    data.iter_mut().enumerate().for_each(|(at, word)| *word = at as u64 * 3);
    let run = |count: u64, step: u64, bytes: u32| (Value(count), Value(step), Value(bytes));
    let gather = |data: &[u64], (count, step, bytes)| {
        call(&space, "t.gather", (Read(data), count, step, bytes))
    };
    // The last words of the first run are on another page.
    for (count, step, bytes) in [(100, 48, 8), (100, 8, 4), (100, 8, 2), (80, 8, 1)] {
        let words = (0..count).map(|index| index * step / 8 * 3);
        assert_eq!(gather(&data, run(count, step, bytes)).unwrap(), words.sum::<u64>(), "{bytes}");
    }
    assert_eq!(gather(&data, run(0, 8, 8)).unwrap(), 0);
    let why = refused(gather(&data, run(3, 8, 5)));
    assert_eq!(why, "farside_gather of 5 bytes; words have 1, 2, 4 or 8 bytes");
    let wild = gather(&data[..50], run(51, 8, 8)).unwrap_err().to_string();
    assert!(wild.contains("(word 50 of the 51 of a gather; those before it are done)"), "{wild}");
    let args = (Write(&mut data), Value(128u64), Value(8u64), Value(8u32));
    call(&space, "t.scatter", args).unwrap();
    let written = |at| if at < 128 { at + 1 } else { at * 3 };
    assert!((0..600).all(|at| data[at] == written(at as u64)));
    let args = (Write(&mut data), Value(1u64), Value(8u64), Value(16u32));
    assert!(refused(call(&space, "t.scatter", args)).contains("farside_scatter of 16 bytes"));
}

#[test]
fn runs_of_words_are_changed_atomically() {
    let space = services();
    let words = space.alloc_atomic::<AtomicU64>(600, "words").unwrap();
    let halves = space.alloc_atomic::<AtomicU32>(600, "halves").unwrap();
    let run = |step: u64, bytes: u32| (Value(100u64), Value(step), Value(bytes));
    for (turn, asks) in [(0, 1u32), (1, 1), (2, 0)] {
        let (count, step, bytes) = run(40, 8);
        let args = (Shared(&words), count, step, bytes, Value(asks));
        let was = call(&space, "t.fetch_add_all", args).unwrap();
        assert_eq!(was, if asks == 1 { turn * 5050 } else { 0 });
    }
    assert!((0..100).all(|at| words[at * 5].load(SeqCst) == 3 * (at as u64 + 1)));
    // One word, again and again: each counts.
    let (count, step, bytes) = run(0, 4);
    let args = (Shared(&halves), count, step, bytes, Value(0u32));
    call(&space, "t.fetch_add_all", args).unwrap();
    assert_eq!(halves[0].load(SeqCst), 5050);
    let exchange = |step: u64, expected: u64| {
        let (count, step, bytes) = run(step, 4);
        let args = (Shared(&halves), count, step, bytes, Value(expected));
        call(&space, "t.compare_exchange_all", args)
    };
    assert_eq!(exchange(4, 0).unwrap(), 99);
    assert_eq!(exchange(0, 5050).unwrap(), 1);
    assert_eq!(halves[0].load(SeqCst), 1);
    assert!((1..100).all(|at| halves[at].load(SeqCst) == at as u32 + 1));

    let (count, step, bytes) = run(6, 4);
    let args = (Shared(&halves), count, step, bytes, Value(0u32));
    let why = refused(call(&space, "t.fetch_add_all", args));
    assert!(why.contains("not aligned") && why.contains("word 1 of the 100"), "{why}");
    assert_eq!(halves[0].load(SeqCst), 2, "the word before it");
    let (count, step, bytes) = run(8, 2);
    let args = (Shared(&words), count, step, bytes, Value(0u32));
    assert!(refused(call(&space, "t.fetch_add_all", args)).contains("words have 4 or 8 bytes"));
    for array in 0..5u32 {
        let args = |words: u64| (Shared(&halves), Value(words), Value(array));
        let why = refused(call(&space, "t.null_array", args(1)));
        assert!(why.contains("NULL for an array"), "{array}: {why}");
        assert_eq!(call(&space, "t.null_array", args(0)).unwrap(), 0, "{array}: no words");
    }
}

#[test]
fn ranges_are_streamed_in_order_and_in_lock_step() {
    let space = services();
    let (mut from, mut to) = (space.alloc::<u64>(MANY).unwrap(), space.alloc::<u64>(MANY).unwrap());
    from.iter_mut().enumerate().for_each(|(i, word)| *word = (i * i) as u64);
    let sum = |words: &[u64]| words.iter().sum::<u64>();
    assert_eq!(call(&space, "t.stream", Read(&from)).unwrap(), sum(&from));
    let part = 11..MANY - 100;
    let args = (Read(&from[part.clone()]), Write(&mut to[..part.len()]));
    assert_eq!(call(&space, "t.stream", args).unwrap(), sum(&from[part.clone()]));
    assert!(to.iter().zip(&from[part.clone()]).all(|(to, from)| *to == from + 1));
    assert!(to[part.len()..].iter().all(|&word| word == 0));
    assert_eq!(call(&space, "t.stream", Read(&from[..0])).unwrap(), 0);
    let args = (Read(&from), Value(1000u64), Value(5000u64));
    assert_eq!(call(&space, "t.part", args).unwrap(), sum(&from[1000..6000]));
    let args = (Read(&from[..5]), Value(1u64), Value(5000u64));
    let outside = call(&space, "t.part", args);
    assert!(matches!(outside, Err(Error::Kernel(KernelError::WildAddress { .. }))), "{outside:?}");
    space.check().unwrap();
}

#[test]
fn ranges_that_cannot_be_had_are_refused() {
    let space = services();
    let mut data = space.alloc::<u64>(64).unwrap();
    let words = space.alloc_atomic::<AtomicU64>(64, "words").unwrap();
    let (read, write) = (1u32, 2u32);
    assert_eq!(call(&space, "t.ask", (Read(&data), Value(read), Value(8u32))).unwrap(), 0);
    for ranges in [0u32, 9, u32::MAX] {
        let why = refused(call(&space, "t.ask", (Read(&data), Value(read), Value(ranges))));
        assert!(why.contains("takes 1 to 8 ranges"), "{why}");
    }
    let why = refused(call(&space, "t.ask", (Write(&mut data), Value(write), Value(2u32))));
    assert!(why.contains("overlaps"), "{why}");
    let why = refused(call(&space, "t.ask", (Read(&data), Value(7u32), Value(1u32))));
    assert!(why.contains("neither FARSIDE_READ nor FARSIDE_WRITE"), "{why}");
    let stored = call(&space, "t.ask", (Read(&data), Value(write), Value(1u32)));
    assert!(matches!(stored, Err(Error::Kernel(KernelError::WildAddress { .. }))), "{stored:?}");
    for access in [read, write] {
        let why = refused(call(&space, "t.ask", (Shared(&words), Value(access), Value(1u32))));
        assert!(why.contains("lent as shared words"), "{why}");
    }
    assert!(refused(call(&space, "t.null_body", Read(&data))).contains("NULL for the body"));
}

#[test]
fn errors_stay_and_end_the_job() {
    let space = services();
    let data = space.alloc::<u64>(MANY).unwrap();
    let why = refused(call(&space, "t.nested", Read(&data)));
    assert!(why.contains("from the body of farside_for_each"), "{why}");
    let message = failed(call(&space, "t.stop", Read(&data)));
    assert_eq!(message, "it returned -7 and gave no reason by farside_fail");
    assert_eq!(failed(call(&space, "t.fail_in_body", Read(&data))), "from the body");
    assert_eq!(failed(call(&space, "t.ignore", ())), "the first");
    assert_eq!(failed(call(&space, "t.null_message", ())), "it gave NULL for a message");
    let long = failed(call(&space, "t.long_message", ()));
    assert_eq!(long, format!("\u{fffd}{}", "x".repeat(4095)));
    assert!(failed(call(&space, "t.code", ())).contains("it returned 42"));
    let limit = Duration::from_millis(20);
    let late = space.kernel("t.spin").time_limit(limit).call(());
    assert!(matches!(late, Err(Error::Kernel(KernelError::TimedOut { .. }))), "{late:?}");
    // The card goes on.
    assert_eq!(call(&space, "t.card", ()).unwrap(), 1);
    assert_eq!(space.kernel("t.card").time_limit(LIMIT).call(()).unwrap(), 0);
}

#[test]
fn arguments_come_in_order_with_their_kinds_and_sizes() {
    let space = services();
    let (bytes, mut words) = (space.alloc::<u8>(1).unwrap(), space.alloc::<u64>(1).unwrap());
    let shared = space.alloc_atomic::<AtomicU32>(1, "shared").unwrap();
    let args = (Value(1u16), Read(&bytes), Write(&mut words), Shared(&shared));
    assert_eq!(call(&space, "t.given", args).unwrap(), 2_11_28_34);
    assert_eq!(call(&space, "t.given", ()).unwrap(), 0);
}

/// What is wrong with a library.
fn refusal(kernels: Kernels, path: &Path) -> LibraryError {
    // SAFETY: libraries of these tests do nothing when they are loaded.
    match unsafe { kernels.load_library(path) } {
        Err(error @ KernelsError::Library { .. }) => {
            let told = error.to_string();
            assert!(told.contains(&path.display().to_string()), "{told}");
            let KernelsError::Library { why, .. } = error else { unreachable!("seen above") };
            why
        }
        other => panic!("{} is not refused: {other:?}", path.display()),
    }
}

/// A library that exports a table, written out.
fn table(folder: &Folder, name: &str, version: &str, count: &str, entries: &str) -> LibraryError {
    let text = format!(
        "static int32_t f(farside_context *c, const farside_argument *a, uint32_t n, uint64_t *r)\n\
         {{ (void)c, (void)a, (void)n, (void)r; return 0; }}\n\
         static const farside_kernel kernels[] = {{ {{ \"good\", f }}, {entries} }};\n\
         static const farside_kernel_library library = {{ {version}, {count}, kernels }};\n\
         const farside_kernel_library *farside_kernels(uint32_t v) {{ (void)v; return &library; }}\n"
    );
    refusal(Kernels::builtin(), &library(folder, name, &text))
}

#[test]
fn libraries_that_are_not_written_to_the_header_are_refused() {
    let folder = Folder::new();
    let known = Kernels::builtin;
    let missing = refusal(known(), &folder.file("missing.so"));
    assert!(matches!(missing, LibraryError::File(_)), "{missing}");
    let text = folder.file("text.so");
    std::fs::write(&text, "this is no library").unwrap();
    let no_library = refusal(known(), &text);
    assert!(matches!(no_library, LibraryError::Open(_)), "{no_library}");
    assert!(matches!(refusal(known(), &folder.0), LibraryError::Open(_)));

    let empty = library(&folder, "empty", "int unrelated;");
    assert_eq!(refusal(known(), &empty), LibraryError::NoSymbol);
    let null = "const farside_kernel_library *farside_kernels(uint32_t v)\n\
                { return v == 0 ? (void *)1 : NULL; }\n";
    let null = library(&folder, "null", null);
    assert_eq!(refusal(known(), &null), LibraryError::Version { given: None });
    let version = |given| LibraryError::Version { given: Some(given) };
    assert_eq!(table(&folder, "newer", "2", "1", ""), version(2));
    assert_eq!(table(&folder, "older", "0", "1", ""), version(0));
    assert!(version(2).to_string().contains("version 2 of farside-kernel.h; this runtime speaks"));

    let no_table = "static const farside_kernel_library library = { 1, 3, NULL };\n\
                    const farside_kernel_library *farside_kernels(uint32_t v)\n\
                    { (void)v; return &library; }\n";
    let no_table = library(&folder, "no_table", no_table);
    assert_eq!(refusal(known(), &no_table), LibraryError::NoKernels);
    assert_eq!(table(&folder, "none", "1", "0", ""), LibraryError::NoKernels);
    let many = LibraryError::TooMany { count: 1025, most: 1024 };
    assert_eq!(table(&folder, "many", "1", "1025", ""), many);
    let name = |name: &str, entry: &str| match table(&folder, name, "1", "2", entry) {
        LibraryError::Name { index: 1, why } => why,
        other => panic!("{entry} is refused otherwise: {other}"),
    };
    assert_eq!(name("null_name", "{ NULL, f }"), "it is NULL");
    assert!(name("empty_name", "{ \"\", f }").contains("empty name"));
    let too_long = format!("{{ \"{}\", f }}", "x".repeat(256));
    assert_eq!(name("long_name", &too_long), "it has more than 255 bytes");
    assert_eq!(name("bad_name", "{ \"\\xff\", f }"), "it is not UTF-8");
    assert!(name("twice", "{ \"good\", f }").contains("a kernel `good` already"));
    assert!(name("taken", "{ \"farside.sum\", f }").contains("a kernel `farside.sum` already"));
    let no_function = LibraryError::NoFunction { name: "bad".into() };
    assert_eq!(table(&folder, "no_function", "1", "2", "{ \"bad\", NULL }"), no_function);
}

#[test]
fn a_library_that_is_refused_is_an_error_of_the_space() {
    let nowhere = Path::new("/nowhere/at all.so");
    // SAFETY: nothing is loaded.
    let refused = unsafe { Space::builder().kernel_library(nowhere) }.build().unwrap_err();
    let told = refused.to_string();
    assert!(told.starts_with("cannot load the kernels of /nowhere/at all.so: "), "{told}");
}

#[test]
fn the_header_is_good_in_cpp_too() {
    let folder = Folder::new();
    let source = folder.file("kernels.cpp");
    let text = "#include \"farside-kernel.h\"\n\
        static int32_t f(farside_context *ctx, const farside_argument *, uint32_t, uint64_t *r)\n\
        { *r = farside_card(ctx); return farside_checkpoint(ctx); }\n\
        static const farside_kernel kernels[] = { { \"cpp.card\", f } };\n\
        FARSIDE_EXPORT_KERNELS(kernels)\n";
    std::fs::write(&source, text).unwrap();
    let library = folder.file("kernels.so");
    let mut command = Command::new("c++");
    command.args(["-std=c++11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-shared", "-fPIC"]);
    command.arg("-I").arg(repository().join("include")).arg("-o").arg(&library).arg(&source);
    if let Err(error) = command.output() {
        println!("not run: there is no C++ compiler ({error})");
        return;
    }
    run(&mut command);
    // SAFETY: the library keeps the header's rules.
    let kernels = unsafe { Kernels::none().load_library(&library) }.unwrap();
    let space = Space::builder().cards(2).kernels(kernels).build().unwrap();
    assert_eq!(call(&space, "cpp.card", ()).unwrap(), 1);
}
