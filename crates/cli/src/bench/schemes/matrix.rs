//! A matrix product: each card has half of the rows of the left matrix and of the product, and both read all
//! of the right one.

use farside::{Error, KernelContext, KernelError, Read, ReadSpan, Write, WriteSpan};

use super::super::counts::Ran;
use super::Program;
use crate::workloads::contiguous;

const SIZE: usize = 768;
/// Rows that a kernel takes at a time.
const PIECE: usize = 64;

pub(super) fn program() -> Program {
    let left: Vec<f32> = (0..SIZE * SIZE).map(|at| (at % 13) as f32).collect();
    let right: Vec<f32> = (0..SIZE * SIZE).map(|at| (at % 7) as f32 - 3.0).collect();
    let mut expected = vec![0.0; SIZE * SIZE];
    multiply(&left, &right, &mut expected);
    Program::new("matrix product", 64 << 20, move |space| {
        let (mut a, mut b) = (space.alloc::<f32>(SIZE * SIZE)?, space.alloc::<f32>(SIZE * SIZE)?);
        let mut product = space.alloc::<f32>(SIZE * SIZE)?;
        a.copy_from_slice(&left);
        b.copy_from_slice(&right);
        let ran = Ran::measure(space, || {
            let half = SIZE * SIZE / 2;
            let halves = a.chunks(half).zip(product.chunks_mut(half));
            space.scope(|scope| {
                let launch = |(card, (a, product))| {
                    let args = (Read(a), Read(&b), Write(product));
                    scope.kernel("multiply").on(card).launch(args, multiply_in_kernel)
                };
                let jobs = space.cards().zip(halves).map(launch);
                let jobs: Vec<_> = jobs.collect::<Result<_, _>>()?;
                jobs.into_iter().try_for_each(farside::Job::wait)?;
                Ok::<_, Error>(())
            })
        })?;
        ran.0.checked("matrix product", product[..] == expected[..])
    })
}

/// Rows of the product: those of `left` with all of `right`.
fn multiply(left: &[f32], right: &[f32], product: &mut [f32]) {
    for (row, out) in left.chunks_exact(SIZE).zip(product.chunks_exact_mut(SIZE)) {
        out.fill(0.0);
        for (factor, line) in row.iter().zip(right.chunks_exact(SIZE)) {
            out.iter_mut().zip(line).for_each(|(sum, value)| *sum += factor * value);
        }
    }
}

fn multiply_in_kernel(
    k: &mut KernelContext,
    (left, right, mut product): (ReadSpan<f32>, ReadSpan<f32>, WriteSpan<f32>),
) -> Result<(), KernelError> {
    let mut rows = vec![0.0; PIECE * SIZE];
    for start in (0..left.len()).step_by(PIECE * SIZE) {
        let piece = start..left.len().min(start + PIECE * SIZE);
        let rows = &mut rows[..piece.len()];
        let wants = (left.slice(piece.clone()), right, product.slice(piece));
        k.with(wants, |(left, right, mut product)| {
            multiply(&contiguous(&left), &contiguous(&right), rows);
            product.iter_mut().zip(rows).for_each(|(out, value)| *out = *value);
        })?;
    }
    Ok(())
}
