//! SC: the simple (non-separable) convolution of AMD's APP SDK, as MGPUSim runs it.
//!
//! A work-item for each element of the padded image, 64 in a work-group. Each multiplies the 3 by
//! 3 elements at and after its own with the mask, which it reads through the scalar cache, and
//! stores one element. Work-items behind the image end at once.

use super::lanes::{Kernel, LANES, Memory, WORDS_PER_LINE, cycles};
use super::{Buffer, Cursor, Instruction, Launch, Line, Lines, Workload};

/// Work-items of a work-group: one wavefront (MGPUSim's host code).
const GROUP_ITEMS: u32 = LANES;
/// Rows and columns of the mask, MGPUSim's default.
const MASK: u32 = 3;
/// Elements of a padded row that are not of the image.
const PADDING: u32 = MASK - 1;
/// Bytes of the kernel's code (MGPUSim's disassembly).
const CODE_BYTES: u64 = 512;
/// Bytes of its arguments.
const ARGUMENT_BYTES: u64 = 64;
/// 27 vector instructions find row and column, five of them multiplications at a quarter of the
/// rate (MGPUSim's disassembly, as the following).
const ADDRESS_CYCLES: u32 = cycles(42);
/// 14 vector instructions before the loop.
const PROLOGUE_CYCLES: u32 = cycles(14);
/// 17 vector instructions for an element of the mask.
const TAP_CYCLES: u32 = cycles(17);
/// 8 vector instructions before the store.
const EPILOGUE_CYCLES: u32 = cycles(8);
/// Most work-groups of a compute unit: one for each wavefront slot (AMD GCN3).
const GROUPS_PER_UNIT: u16 = 40;
/// Numbers of the buffers.
const INPUT: usize = 0;
const OUTPUT: usize = 1;
const MASKS: usize = 2;
/// Steps before the loop, and of one round of it.
const LOOP: (u32, u32) = (6, 4);

/// Simple convolution.
#[derive(Clone, Debug)]
pub struct SimpleConvolution {
    memory: Memory,
    kernel: Kernel,
    /// Elements of a row of the padded image, which is a square.
    padded: u32,
}

impl SimpleConvolution {
    /// The smallest data footprint.
    pub const BYTES_MIN: u64 = 1 << 14;

    /// Convolves a square image. Image and result, both padded, have about `bytes` together: the
    /// side is rounded to a multiple of 8, so that the work-groups are whole.
    pub fn new(bytes: u64) -> SimpleConvolution {
        let side = ((bytes.max(SimpleConvolution::BYTES_MIN) / 8) as f64).sqrt();
        let padded = (side / 8.0).round() as u32 * 8;
        let image = u64::from(padded) * u64::from(padded) * 4;
        let mask = u64::from(MASK * MASK) * 4;
        let mut buffers = vec![("input", image), ("output", image), ("mask", mask)];
        buffers.extend(Kernel::buffers(CODE_BYTES, ARGUMENT_BYTES));
        let memory = Memory::new(&buffers).with_constants(&["mask"]);
        let kernel = Kernel::at(&memory, 3);
        SimpleConvolution { memory, kernel, padded }
    }

    /// Elements of a row, and rows, of the image without padding.
    fn side(&self) -> u32 {
        self.padded - PADDING
    }

    /// First and last work-item of a group that have an element of the image.
    #[inline]
    fn items(&self, group: u32) -> Option<(u64, u64)> {
        let first = u64::from(group) * u64::from(GROUP_ITEMS);
        let end = u64::from(self.side()) * u64::from(self.side());
        (first < end).then(|| (first, (first + u64::from(GROUP_ITEMS)).min(end) - 1))
    }

    /// Notes how much further the first and the last lane read than they write: each row of the
    /// image is `PADDING` elements longer in the padded one.
    fn begin(&self, at: &mut Cursor) {
        if let Some((first, last)) = self.items(at.group) {
            let padding = |item: u64| (item / u64::from(self.side())) as u32 * PADDING;
            (at.notes[0], at.notes[1]) = (padding(first), padding(last));
        }
    }

    /// The lines of the elements `first..=last` of a buffer.
    #[inline]
    fn lines(&self, buffer: usize, first: u64, last: u64, lines: &mut Lines) {
        let line = |element: u64| {
            self.memory.first(buffer).0 + (element / u64::from(WORDS_PER_LINE)) as u32
        };
        (line(first)..=line(last)).for_each(|line| lines.push(Line(line)));
    }

    /// The lines that the lanes read for an element of the mask. Between the lanes' elements there
    /// is at most a gap of the padding, so no line is left out.
    fn tap(&self, at: &Cursor, tap: u32, lines: &mut Lines) {
        let (first, last) = self.items(at.group).unwrap_or_default();
        let offset = tap / MASK * self.padded + tap % MASK;
        let element = |item: u64, note: u32| item + u64::from(note + offset);
        self.lines(INPUT, element(first, at.notes[0]), element(last, at.notes[1]), lines);
    }

    fn in_loop(&self, at: &Cursor, step: u32, lines: &mut Lines) -> Instruction {
        let tap = step / LOOP.1;
        match step % LOOP.1 {
            0 => {
                self.tap(at, tap, lines);
                Instruction::Load
            }
            1 => {
                lines.push(self.memory.first(MASKS));
                Instruction::LoadScalar
            }
            2 => Instruction::Wait,
            _ => Instruction::Compute(TAP_CYCLES),
        }
    }

    fn store(&self, group: u32, lines: &mut Lines) -> Instruction {
        let (first, last) = self.items(group).unwrap_or_default();
        self.lines(OUTPUT, first, last, lines);
        Instruction::Store
    }
}

impl Workload for SimpleConvolution {
    fn name(&self) -> &str {
        "sc"
    }

    fn buffers(&self) -> &[Buffer] {
        self.memory.buffers()
    }

    fn launches(&self) -> u32 {
        1
    }

    fn launch(&self, _launch: u32) -> Launch {
        let groups = self.padded / 8 * (self.padded / 8);
        let code = self.kernel.code();
        Launch { groups, waves: 1, groups_per_unit: GROUPS_PER_UNIT, code }
    }

    fn next(&self, at: &mut Cursor, lines: &mut Lines) -> Instruction {
        const LOOP_END: u32 = LOOP.0 + MASK * MASK * LOOP.1;
        let step = at.step;
        at.step += 1;
        match step {
            0 => {
                self.begin(at);
                lines.push(self.kernel.packet);
                lines.push(self.kernel.arguments);
                Instruction::LoadScalar
            }
            1 | 4 => Instruction::Wait,
            2 => Instruction::Compute(ADDRESS_CYCLES),
            3 if self.items(at.group).is_none() => Instruction::End,
            3 => {
                lines.push(self.kernel.arguments);
                Instruction::LoadScalar
            }
            5 => Instruction::Compute(PROLOGUE_CYCLES),
            LOOP_END => Instruction::Compute(EPILOGUE_CYCLES),
            _ if step < LOOP_END => self.in_loop(at, step - LOOP.0, lines),
            _ if step == LOOP_END + 1 => self.store(at.group, lines),
            _ => Instruction::End,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lines of a group's loads, by the kernel's own formula, a lane at a time.
    fn loads_by_lanes(side: u32, group: u32) -> Vec<Vec<u32>> {
        let lanes = (group * 64..group * 64 + 64).filter(|item| *item < side * side);
        let lanes: Vec<u32> = lanes.collect();
        let tap = |row: u32, column: u32| {
            let element = |item: &u32| {
                let (x, y) = (item % side, item / side);
                ((y + row) * (side + 2) + x + column) / 16
            };
            let mut lines: Vec<u32> = lanes.iter().map(element).collect();
            lines.dedup();
            lines
        };
        let taps = (0..9).map(|index| tap(index / 3, index % 3));
        taps.filter(|lines| !lines.is_empty()).collect()
    }

    fn loads(workload: &SimpleConvolution, group: u32) -> (Vec<Vec<u32>>, Vec<u32>) {
        let mut at = Cursor { group, ..Cursor::default() };
        let (mut loads, mut stores) = (Vec::new(), Vec::new());
        loop {
            let mut lines = Lines::new();
            let instruction = workload.next(&mut at, &mut lines);
            let lines = lines.iter();
            match instruction {
                Instruction::Load => loads.push(lines.map(|line| line.0).collect()),
                Instruction::Store => {
                    stores.extend(lines.map(|line| line.0 - workload.memory.first(OUTPUT).0))
                }
                Instruction::End => return (loads, stores),
                _ => {}
            }
        }
    }

    #[test]
    fn a_wavefront_touches_what_its_lanes_touch() {
        let workload = SimpleConvolution::new(8 * 104 * 104);
        assert_eq!(workload.padded, 104);
        let groups = workload.launch(0).groups;
        assert_eq!(groups, 169);
        for group in 0..groups {
            let (loaded, stored) = loads(&workload, group);
            assert_eq!(loaded, loads_by_lanes(102, group));
            let lanes = (group * 64..group * 64 + 64).filter(|item| *item < 102 * 102);
            let mut lines: Vec<u32> = lanes.map(|item| item / 16).collect();
            lines.dedup();
            assert_eq!(stored, lines);
        }
    }

    #[test]
    fn the_footprint_is_that_of_table_2() {
        let workload = SimpleConvolution::new(131 << 20);
        assert_eq!(workload.padded, 4_144);
        assert_eq!(workload.buffers()[0].bytes + workload.buffers()[1].bytes, 8 * 4_144 * 4_144);
    }
}
