//! Each card adds one to all values of its half, which is twice what it holds, and sums them up.

use farside::{Buffer, Error, Read, Space, Write};

use super::super::BenchError;
use super::super::counts::Ran;
use super::super::stream::{add_one, sum_span};
use super::{CARDS, Program};

pub(super) const CARD: u64 = 8 << 20;
const PASSES: u64 = 3;

pub(super) fn program() -> Program {
    Program::new("stream", CARD, |space| {
        let mut values = values(space)?;
        let (ran, sum) = Ran::measure(space, || stream(space, &mut values))?;
        ran.checked("stream", is_sum(sum, values.len()))
    })
}

/// Twice what the cards hold, all ones.
pub(super) fn values(space: &Space) -> Result<Buffer<u64>, BenchError> {
    let mut values = space.alloc_named::<u64>(2 * CARDS * CARD as usize / 8, "values")?;
    values.fill(1);
    Ok(values)
}

/// Gives the sum of all passes.
pub(super) fn stream(space: &Space, values: &mut [u64]) -> Result<u64, Error> {
    let half = values.len() / CARDS;
    let mut sum = 0;
    for _ in 0..PASSES {
        space.scope(|scope| {
            let halves = space.cards().zip(values.chunks_mut(half));
            let launch = |(card, half)| scope.kernel("add").on(card).launch(Write(half), add_one);
            let jobs: Vec<_> = halves.map(launch).collect::<Result<_, _>>()?;
            jobs.into_iter().try_for_each(farside::Job::wait)
        })?;
        sum += space.scope(|scope| {
            let halves = space.cards().zip(values.chunks(half));
            let launch = |(card, half)| scope.kernel("sum").on(card).launch(Read(half), sum_span);
            let jobs: Vec<_> = halves.map(launch).collect::<Result<_, _>>()?;
            jobs.into_iter().try_fold(0, |sum, job| Ok::<_, Error>(sum + job.wait()?))
        })?;
    }
    Ok(sum)
}

/// Whether that is the sum of all passes over `len` values.
pub(super) fn is_sum(sum: u64, len: usize) -> bool {
    sum == (2..2 + PASSES).sum::<u64>() * len as u64
}
