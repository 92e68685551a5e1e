//! A heat equation: each point becomes the mean of its four neighbours. Each card has half of the rows, and
//! reads one row of the other's.

use farside::{Error, KernelContext, KernelError, Read, ReadSpan, Space, Write, WriteSpan};

use super::super::counts::Ran;
use super::Program;
use crate::workloads::contiguous;

/// Values of a row: a page.
const COLUMNS: usize = 1024;
const ROWS: usize = 512;
const STEPS: usize = 40;
/// Rows that a kernel takes at a time.
const PIECE: usize = 64;

pub(super) fn program() -> Program {
    let expected = plain();
    Program::new("stencil", 64 << 20, move |space| {
        let mut grids = [space.alloc::<f32>(ROWS * COLUMNS)?, space.alloc(ROWS * COLUMNS)?];
        grids.iter_mut().for_each(|grid| grid.copy_from_slice(&start()));
        let ran = Ran::measure(space, || {
            for _ in 0..STEPS {
                let [from, to] = &mut grids;
                step_on_cards(space, from, to)?;
                grids.swap(0, 1);
            }
            Ok::<_, Error>(())
        })?;
        ran.0.checked("stencil", grids[0][..] == expected[..])
    })
}

/// Heat at the left edge.
fn start() -> Vec<f32> {
    (0..ROWS * COLUMNS).map(|at| if at % COLUMNS == 0 { (at % 97) as f32 } else { 0.0 }).collect()
}

/// Rows `out` of the next grid; `rows` are those above to below them. Edges stay.
fn step<'a>(rows: &[f32], out: impl Iterator<Item = &'a mut f32>) {
    for (at, value) in (COLUMNS..).zip(out) {
        let inner = !matches!(at % COLUMNS, 0 | 1023);
        let around = || rows[at - COLUMNS] + rows[at + COLUMNS] + rows[at - 1] + rows[at + 1];
        *value = if inner { around() * 0.25 } else { rows[at] };
    }
}

fn plain() -> Vec<f32> {
    let (mut from, mut to) = (start(), start());
    for _ in 0..STEPS {
        step(&from, to[COLUMNS..(ROWS - 1) * COLUMNS].iter_mut());
        std::mem::swap(&mut from, &mut to);
    }
    from
}

fn step_on_cards(space: &Space, from: &[f32], to: &mut [f32]) -> Result<(), Error> {
    let (upper, lower) = to.split_at_mut(ROWS / 2 * COLUMNS);
    let lower_end = lower.len() - COLUMNS;
    let halves = [(0, &mut upper[COLUMNS..]), (ROWS / 2 - 1, &mut lower[..lower_end])];
    space.scope(|scope| {
        let with_rows = halves.into_iter().map(|(above, out)| {
            let start = above * COLUMNS;
            (&from[start..start + out.len() + 2 * COLUMNS], out)
        });
        let launch = |(card, (rows, out))| {
            scope.kernel("stencil").on(card).launch((Read(rows), Write(out)), step_in_kernel)
        };
        let jobs: Vec<_> = space.cards().zip(with_rows).map(launch).collect::<Result<_, _>>()?;
        jobs.into_iter().try_for_each(farside::Job::wait)
    })
}

fn step_in_kernel(
    k: &mut KernelContext,
    (rows, mut out): (ReadSpan<f32>, WriteSpan<f32>),
) -> Result<(), KernelError> {
    for start in (0..out.len()).step_by(PIECE * COLUMNS) {
        let end = out.len().min(start + PIECE * COLUMNS);
        let wants = (rows.slice(start..end + 2 * COLUMNS), out.slice(start..end));
        k.with(wants, |(rows, mut out)| step(&contiguous(&rows), out.iter_mut()))?;
    }
    Ok(())
}
