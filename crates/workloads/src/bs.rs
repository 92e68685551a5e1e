//! BS: bitonic sort of AMD's APP SDK, as MGPUSim runs it.
//!
//! One launch for each pass of each stage, 256 work-items in a work-group, a work-item for each
//! pair of elements. Pass `p` of stage `s` compares elements that are `2^(s-p)` apart: a
//! wavefront loads the left and the right elements of its 64 pairs and stores both back.

use super::lanes::{Kernel, LANES, Memory, WORDS_PER_LINE, cycles};
use super::{Buffer, Cursor, Instruction, LINE_BYTES, Launch, Line, Lines, Workload};

/// Work-items of a work-group (MGPUSim's host code).
const GROUP_ITEMS: u32 = 256;
/// Bytes of the kernel's code (MGPUSim's disassembly).
const CODE_BYTES: u64 = 252;
/// 22 vector instructions before the loads, one of them a multiplication at a quarter of the rate
/// (MGPUSim's disassembly).
const ADDRESS_CYCLES: u32 = cycles(25);
/// 5 vector instructions between the loads and the stores.
const COMPARE_CYCLES: u32 = cycles(5);
/// Most work-groups of a compute unit (AMD GCN3: 16 barriers).
const GROUPS_PER_UNIT: u16 = 16;

/// Bitonic sort.
#[derive(Clone, Debug)]
pub struct BitonicSort {
    memory: Memory,
    kernel: Kernel,
    /// The binary logarithm of the distance of a pair, for each launch.
    distances: Vec<u8>,
    groups: u32,
}

impl BitonicSort {
    /// The smallest data footprint: one work-group.
    pub const BYTES_MIN: u64 = 2_048;

    /// Sorts a power of two of 32-bit elements: the one whose size is nearest to `bytes`, by ratio.
    pub fn new(bytes: u64) -> BitonicSort {
        let below = (bytes.max(BitonicSort::BYTES_MIN) / 4).ilog2();
        // Above the square root of 2 times a power, the next one is nearer.
        let (size, power) = (u128::from(bytes / 4), 1_u128 << below);
        let stages = if size * size > 2 * power * power { below + 1 } else { below };
        let elements = 1_u64 << stages;
        let distances: Vec<u8> = (0..stages as u8).flat_map(|stage| (0..=stage).rev()).collect();
        // MGPUSim's host code makes a copy of the arguments for each launch.
        let arguments = distances.len() as u64 * LINE_BYTES;
        let mut buffers = vec![("data", elements * 4)];
        buffers.extend(Kernel::buffers(CODE_BYTES, arguments));
        let memory = Memory::new(&buffers);
        let kernel = Kernel::at(&memory, 1);
        let groups = (elements / 2 / u64::from(GROUP_ITEMS)) as u32;
        BitonicSort { memory, kernel, distances, groups }
    }

    /// The lines of the left (`side` 0) or right (`side` 1) elements of a wavefront's pairs.
    #[inline]
    fn pairs(&self, at: &Cursor, side: u64, lines: &mut Lines) {
        let distance = self.distances[at.launch as usize];
        let data = self.memory.first(0).0;
        let item =
            u64::from(at.group) * u64::from(GROUP_ITEMS) + u64::from(u32::from(at.wave) * LANES);
        let left = |item: u64| {
            let block = (item >> distance) << (distance + 1);
            block | (item & ((1 << distance) - 1))
        };
        let line = |element: u64| Line(data + (element / u64::from(WORDS_PER_LINE)) as u32);
        if (1 << distance) < WORDS_PER_LINE {
            // Left and right lie in the same lines: 128 neighbouring elements.
            let first = line(left(item)).0;
            (first..first + 2 * LANES / WORDS_PER_LINE).for_each(|line| lines.push(Line(line)));
            return;
        }
        for chunk in 0..u64::from(LANES / WORDS_PER_LINE) {
            let left = left(item + chunk * u64::from(WORDS_PER_LINE));
            lines.push(line(left + (side << distance)));
        }
    }
}

impl Workload for BitonicSort {
    fn name(&self) -> &str {
        "bs"
    }

    fn buffers(&self) -> &[Buffer] {
        self.memory.buffers()
    }

    fn launches(&self) -> u32 {
        self.distances.len() as u32
    }

    fn launch(&self, _launch: u32) -> Launch {
        Launch {
            groups: self.groups,
            waves: (GROUP_ITEMS / LANES) as u16,
            groups_per_unit: GROUPS_PER_UNIT,
            code: self.kernel.code(),
        }
    }

    fn next(&self, at: &mut Cursor, lines: &mut Lines) -> Instruction {
        let step = at.step;
        at.step += 1;
        match step {
            0 => {
                lines.push(self.kernel.packet);
                lines.push(Line(self.kernel.arguments.0 + at.launch));
                Instruction::LoadScalar
            }
            1 | 5 => Instruction::Wait,
            2 => Instruction::Compute(ADDRESS_CYCLES),
            3 | 4 => {
                self.pairs(at, u64::from(step - 3), lines);
                Instruction::Load
            }
            6 => Instruction::Compute(COMPARE_CYCLES),
            7 | 8 => {
                self.pairs(at, u64::from(step - 7), lines);
                Instruction::Store
            }
            _ => Instruction::End,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines_of(sort: &BitonicSort, launch: u32, group: u32, step: u32) -> Vec<u32> {
        let mut at = Cursor { launch, group, step, ..Cursor::default() };
        let mut lines = Lines::new();
        sort.next(&mut at, &mut lines);
        lines.iter().map(|line| line.0).collect()
    }

    /// The lines by the kernel's own formula, a lane at a time.
    fn lines_by_lanes(distance: u32, group: u32, side: u32) -> Vec<u32> {
        let mut lines: Vec<u32> = (group * 256..group * 256 + 64)
            .map(|item| {
                let left = item % (1 << distance) + (item >> distance) * (2 << distance);
                (left + side * (1 << distance)) / 16
            })
            .collect();
        lines.sort_unstable();
        lines.dedup();
        lines
    }

    #[test]
    fn the_nearest_power_of_two_is_sorted_in_one_launch_per_pass() {
        let sort = BitonicSort::new(30 << 20);
        assert_eq!(sort.buffers()[0].bytes, 32 << 20);
        assert_eq!(sort.launches(), 23 * 24 / 2);
        assert_eq!(sort.launch(0).groups, 1 << 14);
        assert_eq!(BitonicSort::new(4096).buffers()[0].bytes, 4096);
        assert_eq!(BitonicSort::new(5000).buffers()[0].bytes, 4096);
        assert_eq!(BitonicSort::new(6000).buffers()[0].bytes, 8192);
    }

    #[test]
    fn a_wavefront_touches_what_its_lanes_touch() {
        let sort = BitonicSort::new(1 << 20);
        for (launch, &distance) in sort.distances.iter().enumerate() {
            for (step, side) in [(3, 0), (4, 1), (7, 0), (8, 1)] {
                let group = 7 * launch as u32 % 512;
                let lines = lines_of(&sort, launch as u32, group, step);
                assert_eq!(lines, lines_by_lanes(u32::from(distance), group, side));
            }
        }
    }
}
