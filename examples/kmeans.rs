//! k-means over more points than the cards have memory for: five passes over 200 MiB, two cards of
//! 64 MiB. Each card does half of the points, again and again; what fits may stay on it.
//!
//! ```text
//! cargo run --release -p farside --example kmeans
//! ```

use std::time::Instant;

use farside::{
    Error, KernelContext, KernelError, Read, ReadSpan, ReadView, Space, Write, WriteSpan, WriteView,
};

const DIMENSIONS: usize = 16;
const POINTS: usize = 200 << 20 >> 6; // 200 MiB
const CENTRES: usize = 8;
const PASSES: usize = 5;
/// Points that a kernel takes at a time: 256 KiB.
const PIECE: usize = 4096;

type Centres = [[f32; DIMENSIONS]; CENTRES];

/// What the points of each centre sum up to, and how many they are.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
struct Sums {
    of: [[f64; DIMENSIONS]; CENTRES],
    points: [u64; CENTRES],
}

impl Sums {
    /// Finds the centre of a point, counts the point there, and gives its number.
    fn assign(&mut self, centres: &Centres, point: &[f32]) -> u32 {
        let distance = |centre: &[f32; DIMENSIONS]| -> f32 {
            centre.iter().zip(point).map(|(a, b)| (a - b) * (a - b)).sum()
        };
        let mut nearest = (f32::INFINITY, 0);
        for (number, centre) in centres.iter().enumerate() {
            let found = distance(centre);
            if found < nearest.0 {
                nearest = (found, number);
            }
        }
        let number = nearest.1;
        self.of[number].iter_mut().zip(point).for_each(|(sum, x)| *sum += f64::from(*x));
        self.points[number] += 1;
        number as u32
    }

    fn add(&mut self, other: &Sums) {
        for (sum, more) in self.of.iter_mut().flatten().zip(other.of.iter().flatten()) {
            *sum += more;
        }
        self.points.iter_mut().zip(&other.points).for_each(|(sum, more)| *sum += more);
    }

    /// The middle of each centre's points; a centre without points stays where it is.
    fn centres(&self, before: &Centres) -> Centres {
        let mut centres = *before;
        for (number, centre) in centres.iter_mut().enumerate().filter(|(n, _)| self.points[*n] > 0)
        {
            let points = self.points[number] as f64;
            centre.iter_mut().zip(&self.of[number]).for_each(|(x, sum)| *x = (sum / points) as f32);
        }
        centres
    }
}

/// One pass over some points on a card.
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

/// Points around as many middles as there are centres, the same in every run.
fn fill(points: &mut [f32]) {
    let mut state = 1u64;
    for (number, point) in points.chunks_exact_mut(DIMENSIONS).enumerate() {
        for (dimension, x) in point.iter_mut().enumerate() {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let noise = (state >> 40) as f32 / (1u64 << 24) as f32;
            *x = (number * 7 % CENTRES * (dimension + 1) % 5) as f32 + noise;
        }
    }
}

fn main() -> Result<(), Error> {
    let mut builder = Space::builder().cards(2).card_memory(64 << 20);
    if let Some(scheme) = std::env::args().nth(1) {
        builder = builder.placement(&scheme);
    }
    let space = builder.build()?;
    let mut points = space.alloc_named::<f32>(POINTS * DIMENSIONS, "points")?;
    let mut labels = space.alloc_named::<u32>(POINTS, "labels")?;
    fill(&mut points);
    let mut first = Centres::default();
    first.iter_mut().zip(points.chunks_exact(DIMENSIONS)).for_each(|(c, p)| c.copy_from_slice(p));

    let started = Instant::now();
    let mut centres = first;
    for _ in 0..PASSES {
        let halves = points.chunks(POINTS * DIMENSIONS / 2).zip(labels.chunks_mut(POINTS / 2));
        let sums = space.scope(|scope| {
            let jobs: Vec<_> = space
                .cards()
                .zip(halves)
                .map(|(card, (points, labels))| {
                    let args = (Read(points), Write(labels));
                    scope
                        .kernel("pass")
                        .on(card)
                        .launch(args, move |k, args| pass(k, args, &centres))
                })
                .collect::<Result<_, _>>()?;
            jobs.into_iter().try_fold(Sums::default(), |mut all, job| {
                all.add(&job.wait()?);
                Ok::<_, Error>(all)
            })
        })?;
        centres = sums.centres(&centres);
    }
    let took = started.elapsed().as_secs_f64();
    let report = space.report();

    // The same in plain Rust, the halves added up in the same order, so that the numbers are the same.
    let started = Instant::now();
    let mut expected = first;
    for _ in 0..PASSES {
        let mut all = Sums::default();
        for half in points.chunks(POINTS * DIMENSIONS / 2) {
            let mut sums = Sums::default();
            for point in half.chunks_exact(DIMENSIONS) {
                sums.assign(&expected, point);
            }
            all.add(&sums);
        }
        expected = all.centres(&expected);
    }
    let plain = started.elapsed().as_secs_f64();
    assert_eq!(centres, expected);
    println!(
        "{PASSES} passes: {took:.2} s; one plain thread, all in its memory: {plain:.2} s\n\n{report}"
    );
    Ok(())
}
