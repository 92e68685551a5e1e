//! The k-means of `examples/kmeans.rs`, with its numbers: five passes over 200 MiB of points, of which two
//! cards hold 128 MiB.

use farside::{
    Error, KernelContext, KernelError, PAGE_SIZE, Read, ReadSpan, ReadView, Space, Write,
    WriteSpan, WriteView,
};
use farside_linux::card_memory::{CardMemory, copy_pages};
use farside_types::FrameNo;

use super::super::counts::{Counts, Ran};
use super::super::{BenchError, Effort, Row, Target, median, timed};
use super::belady;

const DIMENSIONS: usize = 16;
const POINTS: usize = 200 << 20 >> 6;
const CENTRES: usize = 8;
const PASSES: usize = 5;
/// Points that a kernel takes at a time.
const PIECE: usize = 4096;
const CARDS: usize = 2;
const CARD_MEMORY: u64 = 64 << 20;

type Centres = [[f32; DIMENSIONS]; CENTRES];

/// What the points of each centre sum up to, and how many they are.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
struct Sums {
    of: [[f64; DIMENSIONS]; CENTRES],
    points: [u64; CENTRES],
}

impl Sums {
    /// Adds a point to its nearest centre and gives that one's number.
    fn assign(&mut self, centres: &Centres, point: &[f32]) -> u32 {
        let mut nearest = (f32::INFINITY, 0);
        for (number, centre) in centres.iter().enumerate() {
            let distance = centre.iter().zip(point).map(|(a, b)| (a - b) * (a - b)).sum();
            if distance < nearest.0 {
                nearest = (distance, number);
            }
        }
        let number = nearest.1;
        self.of[number].iter_mut().zip(point).for_each(|(sum, x)| *sum += f64::from(*x));
        self.points[number] += 1;
        number as u32
    }

    fn add(mut self, other: &Sums) -> Sums {
        for (sum, more) in self.of.iter_mut().flatten().zip(other.of.iter().flatten()) {
            *sum += more;
        }
        self.points.iter_mut().zip(&other.points).for_each(|(sum, more)| *sum += more);
        self
    }

    /// The middles; a centre without points stays where it is.
    fn centres(&self, before: &Centres) -> Centres {
        let mut centres = *before;
        let filled = centres.iter_mut().enumerate().filter(|(number, _)| self.points[*number] > 0);
        for (number, centre) in filled {
            let points = self.points[number] as f64;
            centre.iter_mut().zip(&self.of[number]).for_each(|(x, sum)| *x = (sum / points) as f32);
        }
        centres
    }
}

fn pass(
    k: &mut KernelContext,
    (points, mut labels): (ReadSpan<f32>, WriteSpan<u32>),
    centres: &Centres,
) -> Result<Sums, KernelError> {
    let mut sums = Sums::default();
    for start in (0..labels.len()).step_by(PIECE) {
        let end = labels.len().min(start + PIECE);
        let wants = (points.slice(start * DIMENSIONS..end * DIMENSIONS), labels.slice(start..end));
        k.with(wants, |(points, mut labels): (ReadView<f32>, WriteView<u32>)| {
            let points = points.pieces().flat_map(|piece| piece.chunks_exact(DIMENSIONS));
            for (label, point) in labels.iter_mut().zip(points) {
                *label = sums.assign(centres, point);
            }
        })?;
    }
    Ok(sums)
}

fn on_cards(
    space: &Space,
    points: &[f32],
    labels: &mut [u32],
    first: &Centres,
) -> Result<Centres, Error> {
    let mut centres = *first;
    for _ in 0..PASSES {
        let of_each = points.len() / CARDS;
        let parts = points.chunks(of_each).zip(labels.chunks_mut(of_each / DIMENSIONS));
        let sums = space.scope(|scope| {
            let launch = |(card, (points, labels))| {
                let args = (Read(points), Write(labels));
                scope.kernel("pass").on(card).launch(args, move |k, args| pass(k, args, &centres))
            };
            let jobs: Vec<_> = space.cards().zip(parts).map(launch).collect::<Result<_, _>>()?;
            jobs.into_iter()
                .try_fold(Sums::default(), |all, job| Ok::<_, Error>(all.add(&job.wait()?)))
        })?;
        centres = sums.centres(&centres);
    }
    Ok(centres)
}

/// The same on one plain thread, the halves added up in the same order.
fn plain(points: &[f32], labels: &mut [u32], first: &Centres) -> Centres {
    let mut centres = *first;
    for _ in 0..PASSES {
        let of_each = points.len() / CARDS;
        let parts = points.chunks(of_each).zip(labels.chunks_mut(of_each / DIMENSIONS));
        let sums = parts.fold(Sums::default(), |all, (points, labels)| {
            let mut sums = Sums::default();
            for (label, point) in labels.iter_mut().zip(points.chunks_exact(DIMENSIONS)) {
                *label = sums.assign(&centres, point);
            }
            all.add(&sums)
        });
        centres = sums.centres(&centres);
    }
    centres
}

/// So many points around as many middles as there are centres.
fn points(count: usize) -> Vec<f32> {
    let mut state = 1u64;
    let mut points = vec![0.0; count * DIMENSIONS];
    for (number, point) in points.chunks_exact_mut(DIMENSIONS).enumerate() {
        for (dimension, x) in point.iter_mut().enumerate() {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let noise = (state >> 40) as f32 / (1u64 << 24) as f32;
            *x = (number * 7 % CENTRES * (dimension + 1) % 5) as f32 + noise;
        }
    }
    points
}

/// Pages of points that must be brought to all cards, if nothing else had to be there.
fn bound() -> u64 {
    let pages = (POINTS * DIMENSIONS * 4 / CARDS / PAGE_SIZE) as u32;
    let accesses: Vec<u32> = (0..PASSES).flat_map(|_| 0..pages).collect();
    CARDS as u64 * belady::fetches(&accesses, CARD_MEMORY as usize / PAGE_SIZE)
}

/// Points, and the centres to begin with.
pub(in crate::bench) struct Problem {
    points: Vec<f32>,
    first: Centres,
}

impl Problem {
    pub(in crate::bench) fn new(count: usize) -> Problem {
        let points = points(count);
        let mut first = Centres::default();
        let some = points.chunks_exact(DIMENSIONS);
        first.iter_mut().zip(some).for_each(|(centre, point)| centre.copy_from_slice(point));
        Problem { points, first }
    }

    /// One run on cards, the pages of points that were moved, and the centres.
    fn on(&self, space: &Space) -> Result<(Ran, u64, Centres), Error> {
        let mut points = space.alloc_named::<f32>(self.points.len(), "points")?;
        let mut labels = space.alloc_named::<u32>(self.points.len() / DIMENSIONS, "labels")?;
        points.copy_from_slice(&self.points);
        let moved = || {
            let busiest = space.report().busiest;
            let points = busiest.iter().find(|busy| &*busy.object.name == "points");
            points.map_or(0, |busy| busy.object.pages_moved)
        };
        let before = moved();
        let run = || on_cards(space, &points, &mut labels, &self.first);
        let (ran, centres) = Ran::measure(space, run)?;
        Ok((ran, moved() - before, centres))
    }

    /// One run on cards that found the right centres.
    pub(in crate::bench) fn on_and_checked(&self, space: &Space) -> Result<Ran, BenchError> {
        let (ran, _, centres) = self.on(space)?;
        let mut labels = vec![0; self.points.len() / DIMENSIONS];
        ran.checked("k-means", centres == plain(&self.points, &mut labels, &self.first))
    }
}

/// Seconds to copy so many pages, as much at a time as a card holds, between warm memories.
fn copied(pages: u64, from: &CardMemory, to: &CardMemory) -> f64 {
    timed(|| {
        let mut left = pages;
        while left > 0 {
            let count = left.min(u64::from(to.frames()));
            // SAFETY: both memories have that many frames, and nobody else uses them.
            unsafe { copy_pages(from.base(), to.base(), count as usize) };
            left -= count;
        }
    })
}

fn warm_memory() -> Result<CardMemory, Error> {
    let frames = (CARD_MEMORY / PAGE_SIZE as u64) as u32;
    let memory = CardMemory::new(frames).map_err(farside::LiveError::from)?;
    memory.warm(FrameNo(0), frames).map_err(farside::LiveError::from)?;
    Ok(memory)
}

pub(super) fn run(effort: Effort) -> Result<Vec<Row>, BenchError> {
    let (problem, mut labels) = (Problem::new(POINTS), vec![0; POINTS]);
    let (bound, memories) = (bound(), (warm_memory()?, warm_memory()?));
    let (mut times, mut pages) = (Vec::new(), Vec::new());
    let (mut plain_times, mut copies) = (Vec::new(), Vec::new());
    let mut counts = Counts::default();
    for _ in 0..effort.samples {
        let space = Space::builder().cards(CARDS).card_memory(CARD_MEMORY).warm(true).build()?;
        let (ran, points_moved, centres) = problem.on(&space)?;
        let mut expected = problem.first;
        let Problem { points, first } = &problem;
        plain_times.push(timed(|| expected = plain(points, &mut labels, first)));
        if centres != expected {
            return Err(BenchError::Failed("k-means on cards found other centres".to_owned()));
        }
        copies.push(copied(bound, &memories.0, &memories.1));
        times.push(ran.seconds);
        pages.push(points_moved as f64);
        counts = ran.counts;
    }
    let (ours, pages) = (median(times), median(pages));
    let (plain, copy) = (median(plain_times), median(copies));
    let mib = |pages: f64| pages * PAGE_SIZE as f64 / f64::from(1 << 20);
    let bytes = format!(
        "{:.0} MiB of points moved; Belady's bound {:.0} MiB, labels left out of both",
        mib(pages),
        mib(bound as f64)
    );
    let time = format!(
        "{ours:.3} s; to copy the bound's bytes {copy:.3} s + one plain thread {plain:.3} s"
    );
    Ok(vec![
        Row::new(
            "k-means, five passes, bytes moved",
            pages / bound as f64,
            Target::AtMost(1.07),
            "x Belady",
            bytes,
        )
        .counting(counts.clone()),
        Row::new(
            "k-means, five passes, two cards",
            ours / (copy + plain),
            Target::AtMost(1.5),
            "x copy + plain",
            time,
        )
        .counting(counts),
    ])
}
