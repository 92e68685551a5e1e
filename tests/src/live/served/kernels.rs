//! Kernels that do what a card has to survive, and some that make results exact.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use farside::{KernelArgs, KernelContext, KernelError, Kernels, Ptr, WriteView};

use crate::Prng;

/// Words of a page.
const PAGE: usize = 512;

/// The built-in kernels and those of the tests.
///
/// | name | arguments | does |
/// |---|---|---|
/// | `test.affine` | shared `u64`, values `u64` a, b | w = a w + b for the first word of each page |
/// | `test.sparse` | shared `u64`, value `u64` n | reads the first word of each page and adds 1 to every n-th, none if n is 0; gives their sum |
/// | `test.meet` | shared `u64`, value `u64` n | adds 1 to the first word, waits until it is n |
/// | `test.race` | shared `u64`, values `u64` agent, turns, seed | counts in pages at random |
/// | `test.race_runs` | shared `u64`, values `u64` agent, turns, seed | the same, by runs of words |
/// | `test.fail` | none | fails |
/// | `test.panic` | none | panics |
/// | `test.crash` | none | writes to address 0 |
/// | `test.escape` | none | tries what reaches out of a card's process; gives what went well, as bits |
/// | `test.eat` | value `u64` MiB | allocates and writes so much, and gives how much there was |
/// | `test.deaf` | value `u64` ms | computes for so long, whatever it is told |
/// | `test.hoard` | write `u64`, value `u64` ms | keeps all pages for so long, whatever it is told |
/// | `test.scribble` | write `u64`, values `u64` ms, word | the same, and fills them all the while |
///
/// # Panics
/// Never: the names are sound.
pub fn test_kernels() -> Kernels {
    let with = |kernels: Kernels, name, kernel: fn(&mut KernelContext, &KernelArgs) -> Outcome| {
        kernels.with(name, kernel).expect("the names of tests are sound and differ")
    };
    let kernels = with(Kernels::builtin(), "test.affine", affine);
    let kernels = with(kernels, "test.sparse", sparse);
    let kernels = with(kernels, "test.meet", meet);
    let kernels = with(kernels, "test.race", race);
    let kernels = with(kernels, "test.race_runs", race_runs);
    let kernels = with(kernels, "test.fail", |k, _| Err(k.fail("it was asked to")));
    let kernels = with(kernels, "test.panic", |_, _| panic!("it was asked to"));
    let kernels = with(kernels, "test.crash", crash);
    let kernels = with(kernels, "test.escape", |_, _| Ok(escape()));
    let kernels = with(kernels, "test.eat", eat);
    let kernels = with(kernels, "test.deaf", deaf);
    let kernels = with(kernels, "test.hoard", hoard);
    with(kernels, "test.scribble", scribble)
}

type Outcome = Result<u64, KernelError>;

fn affine(k: &mut KernelContext, args: &KernelArgs) -> Outcome {
    let words = args.shared::<AtomicU64>(0)?;
    let (a, b) = (args.value::<u64>(1)?, args.value::<u64>(2)?);
    for page in (0..words.len()).step_by(PAGE) {
        let value: u64 = k.load(words.ptr(page))?;
        k.store(words.ptr(page), value.wrapping_mul(a).wrapping_add(b))?;
    }
    Ok(0)
}

fn sparse(k: &mut KernelContext, args: &KernelArgs) -> Outcome {
    let words = args.shared::<AtomicU64>(0)?;
    let every = args.value::<u64>(1)? as usize;
    let mut sum = 0u64;
    for page in 0..words.len() / PAGE {
        let value: u64 = k.load(words.ptr(page * PAGE))?;
        sum = sum.wrapping_add(value);
        if every > 0 && page % every == 0 {
            k.store(words.ptr(page * PAGE), value + 1)?;
        }
    }
    Ok(sum)
}

fn meet(k: &mut KernelContext, args: &KernelArgs) -> Outcome {
    let words = args.shared::<AtomicU64>(0)?;
    let wanted = args.value::<u64>(1)?;
    k.fetch_add(words, 0, 1)?;
    while k.load::<u64>(words.ptr(0))? < wanted {
        k.checkpoint()?;
        std::thread::sleep(Duration::from_micros(100));
    }
    Ok(wanted)
}

/// Increments the first word of a page, which all agents share, and the agent's own word beside it,
/// in turns by single words and by `atomic`. Gives how often.
fn race(k: &mut KernelContext, args: &KernelArgs) -> Outcome {
    let words = args.shared::<AtomicU64>(0)?;
    let agent = args.value::<u64>(1)? as usize;
    let (turns, seed) = (args.value::<u64>(2)?, args.value::<u64>(3)?);
    let mut rng = Prng::new(seed);
    for turn in 0..turns {
        let page = rng.below((words.len() / PAGE) as u64) as usize * PAGE;
        k.fetch_add(words, page, 1)?;
        let own = words.ptr(page + agent);
        if turn % 2 == 0 {
            let value: u64 = k.load(own)?;
            k.store(own, value + 1)?;
        } else {
            k.atomic(words, page + agent, |word| {
                let value = word.load(SeqCst);
                // Long enough that somebody wants the page meanwhile.
                std::hint::black_box((0..50).sum::<u64>());
                word.store(value + 1, SeqCst);
            })?;
        }
    }
    Ok(turns)
}

/// [`race`] by runs, each over some of the pages, one behind the other. No run has a page twice: who gathers
/// and scatters a word twice counts it once.
fn race_runs(k: &mut KernelContext, args: &KernelArgs) -> Outcome {
    let words = args.shared::<AtomicU64>(0)?;
    let agent = args.value::<u64>(1)? as usize;
    let (turns, seed) = (args.value::<u64>(2)?, args.value::<u64>(3)?);
    let mut rng = Prng::new(seed);
    let pages = (words.len() / PAGE) as u64;
    let mut done = 0;
    while done < turns {
        let (first, count) = (rng.below(pages), 1 + rng.below(pages));
        let run = || (first..first + count).map(|page| (page % pages) as usize * PAGE);
        k.fetch_add_all(words, &run().map(|page| (page, 1)).collect::<Vec<_>>(), None)?;
        let own: Vec<Ptr<u64>> = run().map(|page| words.ptr(page + agent)).collect();
        let mut values = vec![0; own.len()];
        k.gather(&own, &mut values)?;
        values.iter_mut().for_each(|value| *value += 1);
        k.scatter(&own, &values)?;
        done += count;
    }
    Ok(done)
}

fn crash(_: &mut KernelContext, _: &KernelArgs) -> Outcome {
    let nowhere = std::hint::black_box(8usize) as *mut u64;
    // SAFETY: none: this ends the process, which is what it is for.
    unsafe { nowhere.write_volatile(1) };
    Ok(0)
}

/// Bits of what a kernel could do that no kernel should: open a file, make a socket, a process, code,
/// signal another process, look into one, keep its rights.
fn escape() -> u64 {
    let mut done = 0;
    let mut note = |bit: u32, worked: bool| done |= u64::from(worked) << bit;
    note(0, std::fs::File::open("/etc/passwd").is_ok());
    note(1, std::os::unix::net::UnixStream::pair().is_ok());
    note(2, std::net::UdpSocket::bind("127.0.0.1:0").is_ok());
    note(3, std::process::Command::new("/bin/true").spawn().is_ok());
    // SAFETY: each call either fails or does what the test will tell of; none touches memory that is
    // used.
    unsafe {
        note(4, libc::kill(libc::getppid(), 0) == 0);
        note(5, libc::fork() >= 0);
        note(6, libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) == 0);
        let code = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let page = libc::mmap(std::ptr::null_mut(), 4096, code, flags, -1, 0);
        note(7, page != libc::MAP_FAILED);
        note(8, libc::fcntl(2, libc::F_SETOWN, libc::getppid()) == 0);
        note(9, libc::syscall(libc::SYS_memfd_create, c"x".as_ptr(), 0) >= 0);
    }
    done
}

fn eat(_: &mut KernelContext, args: &KernelArgs) -> Outcome {
    const MIB: usize = 1 << 20;
    let wanted = args.value::<u64>(0)?;
    let mut eaten: Vec<Vec<u8>> = Vec::with_capacity(wanted as usize);
    while (eaten.len() as u64) < wanted {
        let mut piece = Vec::new();
        if piece.try_reserve_exact(MIB).is_err() {
            break;
        }
        piece.resize(MIB, 1);
        eaten.push(std::hint::black_box(piece));
    }
    Ok(eaten.len() as u64)
}

fn sleep_deaf(millis: u64) {
    let end = Instant::now() + Duration::from_millis(millis);
    while Instant::now() < end {
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn deaf(_: &mut KernelContext, args: &KernelArgs) -> Outcome {
    sleep_deaf(args.value::<u64>(0)?);
    Ok(0)
}

fn hoard(k: &mut KernelContext, args: &KernelArgs) -> Outcome {
    let words = args.write::<u64>(0)?;
    let millis = args.value::<u64>(1)?;
    k.with(words, |_: WriteView<u64>| sleep_deaf(millis))?;
    Ok(0)
}

fn scribble(k: &mut KernelContext, args: &KernelArgs) -> Outcome {
    let words = args.write::<u64>(0)?;
    let (millis, value) = (args.value::<u64>(1)?, args.value::<u64>(2)?);
    k.with(words, |mut words: WriteView<u64>| {
        let end = Instant::now() + Duration::from_millis(millis);
        while Instant::now() < end {
            words.pieces().for_each(|words| words.fill(value));
        }
    })?;
    Ok(0)
}
