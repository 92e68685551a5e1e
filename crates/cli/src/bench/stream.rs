//! Kernels that stream: over resident pages, and over twice what the card holds.

use std::time::Instant;

use farside::{Error, KernelContext, KernelError, Read, ReadSpan, Space, Write, WriteSpan};
use farside_linux::card_memory::{CardMemory, copy_pages};
use farside_types::{FrameNo, PAGE_SIZE};

use super::counts::Counts;
use super::{Effort, Row, Target, median, pin, timed, two_cpus};

const CARD: usize = 32 << 20;
/// Values that a kernel takes at once: 1 MiB.
const STEP: usize = (1 << 20) / 8;

pub(crate) fn run(effort: Effort) -> Result<Vec<Row>, Error> {
    let (_, server) = two_cpus();
    let _pinned = pin(server);
    let space = Space::builder().cards(1).card_memory(CARD as u64).warm(true).build()?;
    Ok(vec![
        resident(&space, effort)?,
        beyond(&space, effort, false)?,
        beyond(&space, effort, true)?,
    ])
}

fn sum(values: &[u64]) -> u64 {
    values.iter().fold(0, |sum, &value| sum.wrapping_add(value))
}

pub(super) fn sum_span(k: &mut KernelContext, span: ReadSpan<u64>) -> Result<u64, KernelError> {
    let mut total = 0u64;
    for start in (0..span.len()).step_by(STEP) {
        let part = span.slice(start..(start + STEP).min(span.len()));
        total = total.wrapping_add(k.with(part, |view| {
            view.pieces().fold(0u64, |total, piece| total.wrapping_add(sum(piece)))
        })?);
    }
    Ok(total)
}

fn resident(space: &Space, effort: Effort) -> Result<Row, Error> {
    let len = CARD / 2 / 8;
    let mut buffer = space.alloc::<u64>(len)?;
    buffer.fill(3);
    space.migrate(&buffer, space.card(0)?)?;
    let samples = 4 * effort.samples;
    let kernel = move |k: &mut KernelContext, span: ReadSpan<u64>| {
        let plain = vec![3u64; len];
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for _ in 0..samples {
            let mut total = 0;
            let start = Instant::now();
            total += sum_span(k, span)?;
            ours.push(start.elapsed().as_secs_f64());
            theirs.push(timed(|| total += plain.chunks(STEP).map(sum).sum::<u64>()));
            if total != 6 * len as u64 {
                return Err(k.fail("the sums differ"));
            }
        }
        Ok((median(ours), median(theirs)))
    };
    let before = Counts::of(space);
    let (ours, theirs) = space.kernel("resident").run(Read(&buffer), kernel)?;
    let counts = Counts::of(space).since(&before);
    let speed = |seconds: f64| (len * 8) as f64 / seconds / 1e9;
    let detail = format!("{:.1} GB/s; a plain slice {:.1} GB/s", speed(ours), speed(theirs));
    let name = "kernel streaming through `with`, resident pages";
    Ok(Row::new(name, theirs / ours, Target::AtLeast(0.9), "x slice", detail).counting(counts))
}

pub(super) fn add_one(k: &mut KernelContext, mut span: WriteSpan<u64>) -> Result<(), KernelError> {
    let len = span.len();
    for start in (0..len).step_by(STEP) {
        let part = span.slice(start..(start + STEP).min(len));
        k.with(part, |mut view| view.iter_mut().for_each(|value| *value += 1))?;
    }
    Ok(())
}

/// Streams twice the card's memory, `rounds` times in a row so that it is full from the start.
fn beyond(space: &Space, effort: Effort, write: bool) -> Result<Row, Error> {
    let len = 2 * CARD / 8;
    let mut buffer = space.alloc::<u64>(len)?;
    buffer.fill(1);
    let mut ours = Vec::new();
    let before = Counts::of(space);
    for round in 0..=effort.samples {
        let seconds = if write {
            let start = Instant::now();
            space.kernel("write").run(Write(&mut buffer), add_one)?;
            start.elapsed().as_secs_f64()
        } else {
            let start = Instant::now();
            space.kernel("read").run(Read(&buffer), sum_span)?;
            start.elapsed().as_secs_f64()
        };
        // The first round fills the card.
        if round > 0 {
            ours.push(seconds);
        }
    }
    let counts = Counts::of(space).since(&before);
    let theirs = limit(effort, write)?;
    let (ours, theirs) = (median(ours), median(theirs));
    let speed = |seconds: f64| (len * 8) as f64 / seconds / 1e9;
    let detail = format!("{:.2} GB/s; bare copies {:.2} GB/s", speed(ours), speed(theirs));
    let (name, least) = if write {
        ("streaming twice a card's memory, read and write", 0.8)
    } else {
        ("streaming twice a card's memory, read only", 0.9)
    };
    let row = Row::new(name, theirs / ours, Target::AtLeast(least), "x copies", detail);
    Ok(row.counting(counts))
}

/// The same stream by bare copies into a card-sized memory and the same work on it. When it is
/// written, what a frame held is copied back before the frame is used again, one card's length
/// later, as an eviction does.
fn limit(effort: Effort, write: bool) -> Result<Vec<f64>, Error> {
    let pages = (CARD / PAGE_SIZE) as u32;
    let host = CardMemory::new(2 * pages).map_err(farside::LiveError::from)?;
    let card = CardMemory::new(pages).map_err(farside::LiveError::from)?;
    host.warm(FrameNo(0), 2 * pages).map_err(farside::LiveError::from)?;
    card.warm(FrameNo(0), pages).map_err(farside::LiveError::from)?;
    let step = (STEP * 8 / PAGE_SIZE) as u32;
    let mut times = Vec::new();
    let mut total = 0u64;
    for _ in 0..effort.samples {
        times.push(timed(|| {
            for page in (0..2 * pages).step_by(step as usize) {
                total = total.wrapping_add(step_of(&host, &card, page, step, write));
            }
        }));
    }
    std::hint::black_box(total);
    Ok(times)
}

fn step_of(host: &CardMemory, card: &CardMemory, page: u32, count: u32, write: bool) -> u64 {
    let frame = page % card.frames();
    let before = (page + card.frames()) % host.frames();
    let (Ok(from), Ok(to), Ok(back)) = (
        host.run_ptr(FrameNo(page), count),
        card.run_ptr(FrameNo(frame), count),
        host.run_ptr(FrameNo(before), count),
    ) else {
        return 0;
    };
    let len = count as usize * PAGE_SIZE / 8;
    // SAFETY: all cover `count` pages of memories that this function alone uses; `back` and `from`
    // are a card's length apart.
    unsafe {
        if write {
            copy_pages(to.as_ptr(), back.as_ptr(), count as usize);
        }
        copy_pages(from.as_ptr(), to.as_ptr(), count as usize);
        let values = std::slice::from_raw_parts_mut(to.as_ptr().cast::<u64>(), len);
        if !write {
            return sum(values);
        }
        values.iter_mut().for_each(|value| *value += 1);
        0
    }
}
