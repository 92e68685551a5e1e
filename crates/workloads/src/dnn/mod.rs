//! What neural networks are made of: the kernels of their layers, and training of whole networks.
//!
//! The kernels follow the tensor operators of MGPUSim's `dnn` benchmarks: convolutions are an
//! unfolding of the image into columns and a multiplication of matrices.

pub(crate) mod im2col;
pub(crate) mod matmul;
pub(crate) mod network;
pub(crate) mod tensor;
pub(crate) mod window;

mod pieces;
mod resnet18;
mod schedule;
mod steps;
mod training;
mod vgg16;

pub use training::{Options, Training};

use std::fmt;

use super::{Cursor, Instruction, Line, Lines};

/// Steps before those of a [`Part`]: the arguments, and the wait for them.
const FIRST_STEP: u32 = 2;
/// Most work-groups of one wavefront on a compute unit: a wavefront slot each (AMD GCN3).
pub(crate) const WAVES_PER_UNIT: u16 = 40;
/// Most work-groups of several wavefronts on a compute unit (AMD GCN3: 16 barriers).
pub(crate) const GROUPS_PER_UNIT: u16 = 16;

/// A kernel with its arguments: what its wavefronts do after they have read those.
pub(crate) trait Part: fmt::Debug + Send + Sync {
    /// Work-groups.
    fn groups(&self) -> u32;

    /// Wavefronts of a work-group.
    fn waves(&self) -> u16;

    /// The next instruction of a wavefront of work-group `group`. The steps begin at
    /// [`FIRST_STEP`], the notes at 0; it may change both. A load or store without lines is one
    /// that no lane makes, and is skipped.
    fn next(&self, group: u32, at: &mut Cursor, lines: &mut Lines) -> Instruction;
}

/// The next instruction of a wavefront of work-group `group` of `part`, whose queue packet and
/// arguments are in the lines `packet` and `arguments`.
#[inline]
pub(crate) fn next_of(
    part: &(impl Part + ?Sized),
    (packet, arguments): (Line, Line),
    group: u32,
    at: &mut Cursor,
    lines: &mut Lines,
) -> Instruction {
    if at.step < FIRST_STEP {
        at.step += 1;
        if at.step == FIRST_STEP {
            return Instruction::Wait;
        }
        lines.push(packet);
        lines.push(arguments);
        return Instruction::LoadScalar;
    }
    loop {
        let instruction = part.next(group, at, lines);
        let accesses = matches!(instruction, Instruction::Load | Instruction::Store);
        if !accesses || !lines.is_empty() {
            return instruction;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// What the wavefronts of a work-group do to memory.
    #[derive(Debug, Default)]
    pub(super) struct Touched {
        pub(super) loads: BTreeSet<Line>,
        pub(super) stores: BTreeSet<Line>,
        pub(super) barriers: u32,
    }

    pub(super) fn touched(part: &impl Part, group: u32) -> Touched {
        let mut touched = Touched::default();
        for wave in 0..part.waves() {
            let mut at = Cursor { wave, ..Cursor::default() };
            loop {
                let mut lines = Lines::new();
                match next_of(part, (Line(0), Line(1)), group, &mut at, &mut lines) {
                    Instruction::Load => touched.loads.extend(lines.iter()),
                    Instruction::Store => touched.stores.extend(lines.iter()),
                    Instruction::Barrier => touched.barriers += 1,
                    Instruction::End => break,
                    _ => {}
                }
            }
        }
        touched
    }
}
