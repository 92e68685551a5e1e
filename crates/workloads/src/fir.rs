//! Finite impulse response filter: Hetero-Mark's `FIR`, one launch.
//!
//! Each work-item computes one output from 16 neighbouring inputs, so a wavefront reads the same
//! lines again and again, and only the pages at the borders between work-groups are shared.

use super::lanes::{Kernel, LANES, Memory, WORDS_PER_LINE, consecutive};
use super::program::{self, Loop, Op};
use super::{Buffer, Cursor, Instruction, Launch, Line, Lines, Workload};

/// Taps of the filter.
const TAPS: u32 = 16;
/// Work-items of a work-group.
const GROUP_ITEMS: u32 = 256;
/// Wavefronts of a work-group.
const WAVES: u32 = GROUP_ITEMS / LANES;
/// Lines of a wavefront's inputs or outputs.
const WAVE_LINES: u32 = LANES / WORDS_PER_LINE;
/// 40 wavefront slots of a compute unit; registers and local memory are no limit.
const GROUPS_PER_UNIT: u16 = 10;

/// Bytes of the compiled kernel and of its arguments, as the recorded runs allocate them.
const CODE_BYTES: u64 = 228;
const ARGUMENT_BYTES: u64 = 96;

/// Accesses to data.
#[derive(Clone, Copy, Debug)]
enum Data {
    /// The inputs of a tap; before the first input, the history.
    Input,
    /// The coefficient of a tap.
    Filter,
    /// The outputs.
    Output,
}

/// The compiled GCN3 kernel. The recorded run executed 391 instructions per wavefront.
const PROGRAM: &[Op<Data>] = &[
    Op::Arguments,
    Op::Arguments,
    Op::Arguments,
    Op::Packet,
    Op::Wait,
    Op::Compute(14),
    // One tap.
    Op::Compute(20),
    Op::Access(Data::Input),
    Op::Access(Data::Filter),
    Op::Wait,
    Op::Again(Loop::Inner, 6),
    Op::Compute(4),
    Op::Access(Data::Output),
];

/// Numbers of the buffers, in the order in which the host allocates them.
const HISTORY: usize = 0;
const INPUT: usize = 1;
const OUTPUT: usize = 2;
const FILTER: usize = 3;
const KERNEL: usize = 4;

/// The filter. See the module.
#[derive(Clone, Debug)]
pub struct Fir {
    memory: Memory,
    kernel: Kernel,
    groups: u32,
}

impl Fir {
    /// The smallest data footprint in bytes: one work-group.
    pub const BYTES_MIN: u64 = 2 * 4 * GROUP_ITEMS as u64;

    /// A filter whose input and output together have about `bytes`: whole work-groups.
    pub fn new(bytes: u64) -> Fir {
        let groups = (bytes / Fir::BYTES_MIN).max(1) as u32;
        let signal = 4 * u64::from(groups) * u64::from(GROUP_ITEMS);
        let taps = 4 * u64::from(TAPS);
        let mut buffers =
            vec![("history", taps), ("input", signal), ("output", signal), ("filter", taps)];
        buffers.extend(Kernel::buffers(CODE_BYTES, ARGUMENT_BYTES));
        let memory = Memory::new(&buffers).with_constants(&["filter"]);
        let kernel = Kernel::at(&memory, KERNEL);
        Fir { memory, kernel, groups }
    }

    fn access(&self, data: Data, at: &Cursor, lines: &mut Lines) -> Instruction {
        let first = at.group * (WAVES * WAVE_LINES) + u32::from(at.wave) * WAVE_LINES;
        match data {
            Data::Input => {
                let input = Line(self.memory.first(INPUT).0 + first);
                let tap = Loop::Inner.count(at);
                if tap == 0 {
                    consecutive(lines, input, 0, LANES);
                } else if first == 0 {
                    // The first lanes look back beyond the input.
                    lines.push(self.memory.first(HISTORY));
                    consecutive(lines, input, 0, LANES - tap);
                } else {
                    let before = Line(input.0 - 1);
                    consecutive(lines, before, WORDS_PER_LINE - tap, LANES);
                }
                Instruction::Load
            }
            Data::Filter => {
                lines.push(self.memory.first(FILTER));
                Instruction::LoadScalar
            }
            Data::Output => {
                let output = Line(self.memory.first(OUTPUT).0 + first);
                consecutive(lines, output, 0, LANES);
                Instruction::Store
            }
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
        Launch {
            groups: self.groups,
            waves: WAVES as u16,
            groups_per_unit: GROUPS_PER_UNIT,
            code: self.kernel.code(),
        }
    }

    #[inline]
    fn next(&self, at: &mut Cursor, lines: &mut Lines) -> Instruction {
        let access = |data, at: &Cursor, lines: &mut Lines| self.access(data, at, lines);
        program::next(PROGRAM, &self.kernel, at, lines, |_| TAPS, access)
    }
}
