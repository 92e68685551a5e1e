//! Single words of shared memory in kernels, beside plain words on a thread.

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use farside::{AtomicSpan, Error, KernelContext, KernelError, Ptr, Shared, Space};
use farside_types::PAGE_SIZE;

use super::counts::Counts;
use super::{Effort, Row, Target, median, pin, timed, two_cpus};

/// 32 MiB of words: more than any TLB covers.
const TABLE: usize = 4 << 20;
/// Words that every cache holds.
const SMALL: usize = 1024;
/// Words of a page.
const PAGE: usize = PAGE_SIZE / 8;
const OPERATIONS: usize = 1 << 20;
/// Words of a run.
const RUN: usize = 256;

pub(crate) fn run(effort: Effort) -> Result<Vec<Row>, Error> {
    let mut rows = on_one_card(effort)?;
    rows.extend(same_words(effort)?);
    Ok(rows)
}

/// Marsaglia's xorshift: what both sides draw their words with.
fn random(state: &mut u64) -> usize {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    (*state >> 20) as usize % TABLE
}

const SEED: u64 = 88_172_645_463_325_252;

/// Nanoseconds of an operation.
fn each(seconds: f64) -> f64 {
    seconds * 1e9 / OPERATIONS as f64
}

/// What is measured in a kernel and, by the same code, in plain memory.
#[derive(Default)]
struct Samples {
    cached: Vec<f64>,
    loads: Vec<f64>,
    adds: Vec<f64>,
    gathers: Vec<f64>,
    add_runs: Vec<f64>,
    pages: Vec<f64>,
}

/// Medians in nanoseconds.
struct Medians {
    cached: f64,
    loads: f64,
    adds: f64,
    gathers: f64,
    add_runs: f64,
    pages: f64,
}

impl Samples {
    fn medians(self) -> Medians {
        let of = |samples| each(median(samples));
        Medians {
            cached: of(self.cached),
            loads: of(self.loads),
            adds: of(self.adds),
            gathers: of(self.gathers),
            add_runs: of(self.add_runs),
            pages: of(self.pages),
        }
    }
}

/// Words as a kernel has them, and as a thread has.
trait Words {
    type Error;
    fn load(&mut self, index: usize) -> Result<u64, Self::Error>;
    fn add(&mut self, index: usize) -> Result<u64, Self::Error>;
    /// The sum of the words of a run.
    fn gather(&mut self, run: &[usize]) -> Result<u64, Self::Error>;
    fn add_run(&mut self, run: &[usize]) -> Result<(), Self::Error>;
}

struct InKernel<'a>(&'a mut KernelContext, AtomicSpan<AtomicU64>);

impl Words for InKernel<'_> {
    type Error = KernelError;

    #[inline(always)]
    fn load(&mut self, index: usize) -> Result<u64, KernelError> {
        self.0.load(self.1.ptr(index))
    }

    #[inline(always)]
    fn add(&mut self, index: usize) -> Result<u64, KernelError> {
        self.0.fetch_add(self.1, index, 1)
    }

    fn gather(&mut self, run: &[usize]) -> Result<u64, KernelError> {
        let (mut at, mut found) = ([Ptr::NULL; RUN], [0; RUN]);
        at.iter_mut().zip(run).for_each(|(at, &index)| *at = self.1.ptr(index));
        self.0.gather(&at[..run.len()], &mut found[..run.len()])?;
        Ok(found.iter().fold(0, |sum, &word| sum.wrapping_add(word)))
    }

    fn add_run(&mut self, run: &[usize]) -> Result<(), KernelError> {
        let mut adds = [(0, 1); RUN];
        adds.iter_mut().zip(run).for_each(|(add, &index)| add.0 = index);
        self.0.fetch_add_all(self.1, &adds[..run.len()], None)
    }
}

struct Plain<'a>(&'a [AtomicU64]);

impl Words for Plain<'_> {
    type Error = KernelError;

    #[inline(always)]
    fn load(&mut self, index: usize) -> Result<u64, KernelError> {
        Ok(self.0[index].load(Ordering::Acquire))
    }

    #[inline(always)]
    fn add(&mut self, index: usize) -> Result<u64, KernelError> {
        Ok(self.0[index].fetch_add(1, Ordering::AcqRel))
    }

    fn gather(&mut self, run: &[usize]) -> Result<u64, KernelError> {
        let words = run.iter().map(|&index| self.0[index].load(Ordering::Acquire));
        Ok(words.fold(0, u64::wrapping_add))
    }

    fn add_run(&mut self, run: &[usize]) -> Result<(), KernelError> {
        for &index in run {
            self.0[index].fetch_add(1, Ordering::AcqRel);
        }
        Ok(())
    }
}

/// Measures all of it once more. The words are 0 before the first time, and each load's address depends on
/// what the one before has found where a cached word is measured: a load's latency.
fn sample<W: Words>(words: &mut W, samples: &mut Samples) -> Result<(), W::Error> {
    let mut found = 0u64;
    let start = Instant::now();
    for index in 0..OPERATIONS {
        let hidden = black_box(found) as usize & 1;
        found = words.load((index + hidden) % SMALL + TABLE)?;
    }
    samples.cached.push(start.elapsed().as_secs_f64());
    let mut state = SEED;
    let start = Instant::now();
    for _ in 0..OPERATIONS {
        found = found.wrapping_add(words.load(random(&mut state))?);
    }
    samples.loads.push(start.elapsed().as_secs_f64());
    let start = Instant::now();
    for _ in 0..OPERATIONS {
        found = found.wrapping_add(words.add(random(&mut state))?);
    }
    samples.adds.push(start.elapsed().as_secs_f64());
    let draw = |run: &mut [usize], state: &mut u64| run.fill_with(|| random(state));
    let mut run = [0; RUN];
    let start = Instant::now();
    for _ in 0..OPERATIONS / RUN {
        draw(&mut run, &mut state);
        found = found.wrapping_add(words.gather(&run)?);
    }
    samples.gathers.push(start.elapsed().as_secs_f64());
    let start = Instant::now();
    for _ in 0..OPERATIONS / RUN {
        draw(&mut run, &mut state);
        words.add_run(&run)?;
    }
    samples.add_runs.push(start.elapsed().as_secs_f64());
    // A different page each time: no TLB knows it any more when its turn comes again.
    let start = Instant::now();
    for index in 0..OPERATIONS {
        found = found.wrapping_add(words.load(index * PAGE % TABLE + index % PAGE)?);
    }
    samples.pages.push(start.elapsed().as_secs_f64());
    black_box(found);
    Ok(())
}

fn on_one_card(effort: Effort) -> Result<Vec<Row>, Error> {
    let (_, server) = two_cpus();
    let _pinned = pin(server);
    let space = Space::builder().cards(1).card_memory(64 << 20).warm(true).build()?;
    // The cached words are in pages of their own, which nobody writes.
    let table = space.alloc_atomic::<AtomicU64>(TABLE + SMALL, "table")?;
    space.migrate(&table, space.card(0)?)?;
    let before = Counts::of(&space);
    let samples = effort.samples;
    let kernel = move |k: &mut KernelContext, table: AtomicSpan<AtomicU64>| {
        let plain: Vec<AtomicU64> = (0..TABLE + SMALL).map(|_| AtomicU64::new(0)).collect();
        let (mut ours, mut theirs) = (Samples::default(), Samples::default());
        for _ in 0..=samples {
            sample(&mut InKernel(k, table), &mut ours)?;
            sample(&mut Plain(&plain), &mut theirs)?;
        }
        Ok((ours.medians(), theirs.medians()))
    };
    let (ours, theirs) = space.kernel("words").run(Shared(&table), kernel)?;
    let counts = Counts::of(&space).since(&before);
    let row_of = |name: &'static str, most: f64, ours: f64, theirs: f64| {
        let detail = format!("{ours:.1} ns; plain {theirs:.1} ns");
        Row::new(name, ours / theirs, Target::AtMost(most), "x plain", detail)
    };
    let row = |name, ours, theirs| row_of(name, 4.0, ours, theirs);
    let row_of_runs = |name, ours, theirs| row_of(name, 2.5, ours, theirs);
    let misses = format!("{:.1} ns; a random load {:.1} ns", ours.pages, theirs.loads);
    Ok(vec![
        row("a word in a kernel, cached, one after the other", ours.cached, theirs.cached),
        row("random loads from a table of 32 MiB on one card", ours.loads, theirs.loads),
        row("random atomic adds to it", ours.adds, theirs.adds),
        row_of_runs("random loads from it, gathered by runs of 256", ours.gathers, theirs.gathers),
        row_of_runs("random atomic adds to it, by runs of 256", ours.add_runs, theirs.add_runs),
        Row::new(
            "a word of a page that no TLB knows",
            ours.pages / theirs.loads,
            Target::AtMost(4.0),
            "x load",
            misses,
        ),
        Row::new(
            "calls of the driver for all of these",
            counts.get("card_faults") as f64,
            Target::AtMost(0.0),
            "faults",
            format!("{} words", 6 * OPERATIONS * (samples + 1)),
        )
        .counting(counts),
    ])
}

/// Two cards, or two threads, add to the same words.
fn same_words(effort: Effort) -> Result<Vec<Row>, Error> {
    const WORDS: usize = 4 * PAGE;
    let space = Space::builder().cards(2).card_memory(16 << 20).warm(true).build()?;
    let words = space.alloc_atomic::<AtomicU64>(WORDS, "words")?;
    let plain: Vec<AtomicU64> = (0..WORDS).map(|_| AtomicU64::new(0)).collect();
    let add = |k: &mut KernelContext, words: AtomicSpan<AtomicU64>| {
        for index in 0..OPERATIONS {
            k.fetch_add(words, index * 7 % WORDS, 1)?;
        }
        Ok(())
    };
    let add_plain = || {
        for index in 0..OPERATIONS {
            plain[index * 7 % WORDS].fetch_add(1, Ordering::AcqRel);
        }
    };
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..=effort.samples {
        let start = Instant::now();
        space.scope(|scope| {
            for card in space.cards() {
                scope.kernel("add").on(card).launch(Shared(&words), add)?;
            }
            Ok::<_, Error>(())
        })?;
        ours.push(start.elapsed().as_secs_f64());
        theirs.push(timed(|| {
            std::thread::scope(|scope| {
                scope.spawn(add_plain);
                scope.spawn(add_plain);
            });
        }));
    }
    let counts = Counts::of(&space);
    let moves = counts.pages_moved();
    let pages = WORDS / PAGE;
    let (ours, theirs) = (median(ours), median(theirs));
    let detail = format!("{:.1} ns an add; plain {:.1} ns", each(ours) / 2.0, each(theirs) / 2.0);
    Ok(vec![
        Row::new(
            "two cards that add to the same words for ever",
            theirs / ours,
            Target::AtLeast(0.5),
            "x two threads",
            detail,
        ),
        Row::new(
            "moves of a page of theirs, all told",
            moves as f64 / pages as f64,
            Target::AtMost(4.0),
            "moves",
            format!("{moves} moves of {pages} pages in {} launches", 2 * (effort.samples + 1)),
        )
        .counting(counts),
    ])
}
