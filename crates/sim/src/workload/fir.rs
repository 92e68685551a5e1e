//! Finite impulse response filter: Hetero-Mark's `FIR`, one launch.
//!
//! Each work-item computes one output from 16 neighbouring inputs, so a wavefront reads the same
//! lines again and again, and only the pages at the borders between work-groups are shared.

use super::lanes::{Kernel, LANES, Memory, consecutive, cycles};
use super::{Buffer, Cursor, Instruction, Launch, Lines, Workload};

/// Taps of the filter.
const TAPS: u32 = 16;
/// Work-items of a work-group.
const GROUP_ITEMS: u32 = 256;
/// Wavefronts of a work-group.
const WAVES: u32 = GROUP_ITEMS / LANES;

/// Bytes of the compiled kernel and of its arguments, as the recorded runs allocate them.
const CODE_BYTES: u64 = 228;
const ARGUMENT_BYTES: u64 = 96;

/// Instructions of the compiled GCN3 kernel: before the loop, in an iteration before its loads,
/// after the loop before the store.
const PROLOGUE: u32 = 14;
const ITERATION: u32 = 21;
const EPILOGUE: u32 = 4;

/// Steps of a wavefront: the arguments and the packet, wait, prologue; four per tap; then the end.
const FIRST_TAP: u32 = 6;
const AFTER_TAPS: u32 = FIRST_TAP + 4 * TAPS;

/// The filter. See the module.
#[derive(Clone, Debug)]
pub struct Fir {
    memory: Memory,
    kernel: Kernel,
    groups: u32,
}

/// Numbers of the buffers.
const FILTER: usize = 0;
const INPUT: usize = 1;
const OUTPUT: usize = 2;
const HISTORY: usize = 3;
const KERNEL: usize = 4;

impl Fir {
    /// The smallest data footprint in bytes: one work-group.
    pub const BYTES_MIN: u64 = 2 * 4 * GROUP_ITEMS as u64;

    /// A filter whose input and output together have about `bytes`, at least
    /// [`Fir::BYTES_MIN`]: whole work-groups.
    pub fn new(bytes: u64) -> Fir {
        let groups = (bytes / Fir::BYTES_MIN).max(1) as u32;
        let signal = 4 * u64::from(groups) * u64::from(GROUP_ITEMS);
        let taps = 4 * u64::from(TAPS);
        let mut buffers =
            vec![("filter", taps), ("input", signal), ("output", signal), ("history", taps)];
        buffers.extend(Kernel::buffers(CODE_BYTES, ARGUMENT_BYTES));
        let memory = Memory::new(&buffers);
        let kernel = Kernel::at(&memory, KERNEL);
        Fir { memory, kernel, groups }
    }

    /// Before the loop.
    fn prologue(&self, step: u32, lines: &mut Lines) -> Instruction {
        match step {
            0 => lines.push(self.kernel.packet),
            // Four pointers and the number of taps; the offset of the grid.
            1..=3 => lines.push(self.kernel.arguments),
            4 => return Instruction::Wait,
            _ => return Instruction::Compute(cycles(PROLOGUE)),
        }
        Instruction::LoadScalar
    }

    /// Tap number `tap` of the wavefront whose first work-item is `item`.
    fn tap(&self, tap: u32, part: u32, item: u32, lines: &mut Lines) -> Instruction {
        match part {
            0 => Instruction::Compute(cycles(ITERATION)),
            1 => {
                let input = self.memory.first(INPUT);
                if item < tap {
                    // The first lanes look back beyond the input.
                    lines.push(self.memory.first(HISTORY));
                    consecutive(lines, input, 0, LANES - tap);
                } else {
                    consecutive(lines, input, item - tap, LANES);
                }
                Instruction::Load
            }
            2 => {
                lines.push(self.memory.first(FILTER));
                Instruction::LoadScalar
            }
            _ => Instruction::Wait,
        }
    }
}

impl Workload for Fir {
    fn name(&self) -> &str {
        "fir"
    }

    fn buffers(&self) -> &[Buffer] {
        self.memory.buffers()
    }

    fn launches(&self) -> u32 {
        1
    }

    fn launch(&self, _launch: u32) -> Launch {
        // Few registers and no local memory: the wavefront slots are the limit.
        Launch {
            groups: self.groups,
            waves: WAVES as u16,
            groups_per_unit: u16::MAX,
            code: self.kernel.code(),
        }
    }

    #[inline]
    fn next(&self, at: &mut Cursor, lines: &mut Lines) -> Instruction {
        let step = at.step;
        at.step += 1;
        if step < FIRST_TAP {
            return self.prologue(step, lines);
        }
        let item = at.group * GROUP_ITEMS + u32::from(at.wave) * LANES;
        if step < AFTER_TAPS {
            let (tap, part) = ((step - FIRST_TAP) / 4, step % 4);
            return self.tap(tap, (part + 4 - FIRST_TAP % 4) % 4, item, lines);
        }
        match step - AFTER_TAPS {
            0 => Instruction::Compute(cycles(EPILOGUE)),
            1 => {
                consecutive(lines, self.memory.first(OUTPUT), item, LANES);
                Instruction::Store
            }
            _ => Instruction::End,
        }
    }
}
