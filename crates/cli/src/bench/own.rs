//! A card's own memory, beside a plain thread's: what grows without anybody knowing its size, and what comes and goes.

use std::hint::black_box;
use std::time::Instant;

use farside::{Backing, Error, Growable, KernelContext, KernelError, Space};
use farside_linux::mapping::{Mapping, MemoryError};
use farside_types::PAGE_SIZE;

use super::{Effort, Row, Target, median, pin, two_cpus};

/// Values that a vector grows to: 64 MiB, more than any cache holds.
const GROWN: usize = 8 << 20;
/// Values that are added at once.
const ADDED: usize = 8192;
/// Values of what comes and goes: 256 KiB.
const PIECE: usize = 32 << 10;
const PIECES: usize = 200;
/// Values of a page.
const PAGE: usize = PAGE_SIZE / 8;

/// Seconds of each: the card's, and a thread's.
#[derive(Default)]
struct Samples {
    grown: [Vec<f64>; 2],
    pieces: [Vec<f64>; 2],
}

pub(crate) fn run(effort: Effort) -> Result<Vec<Row>, Error> {
    let (_, server) = two_cpus();
    let _pinned = pin(server);
    let space = Space::builder().cards(1).card_window(128 << 20).build()?;
    let kernel = move |kernel: &mut KernelContext, ()| {
        let values: Vec<u64> = (0..ADDED as u64).collect();
        let mut samples = Samples::default();
        for _ in 0..=effort.samples {
            sample(kernel, &values, &mut samples)?;
        }
        Ok(samples)
    };
    let samples = space.kernel("own").run((), kernel)?;
    let [ours, theirs] = samples.grown.map(median);
    let detail = format!("{:.0} ms; a `Vec` {:.0} ms", ours * 1e3, theirs * 1e3);
    let name = "64 MiB that a kernel adds to a vector, 64 KiB at a time";
    let grown = Row::new(name, ours / theirs, Target::AtMost(2.0), "x a Vec", detail);
    let [ours, theirs] = samples.pieces.map(|samples| median(samples) / PIECES as f64 * 1e6);
    let detail = format!("{ours:.1} µs; `mmap`, touched, `munmap` {theirs:.1} µs");
    let name = "256 KiB allocated, touched and freed by a kernel";
    let pieces = Row::new(name, ours / theirs, Target::AtMost(2.0), "x mmap", detail);
    Ok(vec![grown, pieces])
}

/// Fresh pages of the system's, touched and given back.
fn touch_plain(kernel: &KernelContext) -> Result<(), KernelError> {
    let bytes = PIECE * size_of::<u64>();
    let failed = |error: MemoryError| kernel.fail(error.to_string());
    let piece = Mapping::reserve("the bench's memory", bytes).map_err(failed)?;
    piece.allow("the bench's memory", 0, bytes).map_err(failed)?;
    for at in (0..bytes).step_by(PAGE_SIZE) {
        // SAFETY: the byte lies in the mapping, which may be written, and nobody else knows of it.
        unsafe { piece.base().add(at).write_volatile(1) };
    }
    Ok(())
}

fn sample(
    kernel: &mut KernelContext,
    values: &[u64],
    samples: &mut Samples,
) -> Result<(), KernelError> {
    let start = Instant::now();
    let mut grown = Growable::new();
    for _ in 0..GROWN / ADDED {
        grown.extend(kernel, values)?;
    }
    let grown = grown.finish(kernel)?;
    samples.grown[0].push(start.elapsed().as_secs_f64());
    drop(grown);
    let start = Instant::now();
    let mut grown = Vec::new();
    for _ in 0..GROWN / ADDED {
        grown.extend_from_slice(black_box(values));
    }
    samples.grown[1].push(start.elapsed().as_secs_f64());
    drop(black_box(grown));

    let start = Instant::now();
    for _ in 0..PIECES {
        let piece = kernel.alloc::<u64>(PIECE, Backing::Eager)?;
        (0..PIECE).step_by(PAGE).try_for_each(|at| kernel.store(piece.ptr(at), 1))?;
        kernel.free(piece)?;
    }
    samples.pieces[0].push(start.elapsed().as_secs_f64());
    let start = Instant::now();
    for _ in 0..PIECES {
        touch_plain(kernel)?;
    }
    samples.pieces[1].push(start.elapsed().as_secs_f64());
    Ok(())
}
