//! A trace as a workload: each stream is a work-group that has its place.

use super::{Allocation, Trace};
use crate::workload::{
    Buffer, Cursor, Instruction, Launch, Line, Lines, Place, Workload, first_lines,
};

/// Wavefronts that take the accesses of a stream in turn.
const WAVES: u16 = 16;
/// Lines of a page of the trace.
const PAGE_LINES: u32 = 64;

/// A buffer per allocation.
pub(super) fn buffers(allocations: &[Allocation]) -> Vec<Buffer> {
    let named = |allocation: &Allocation| Buffer {
        name: format!("{:#x}", allocation.address),
        bytes: allocation.pages() * u64::from(PAGE_LINES) * crate::workload::LINE_BYTES,
    };
    allocations.iter().map(named).collect()
}

impl Trace {
    fn group_place(&self, group: u32) -> (usize, usize) {
        let units = self.compute_units.max(1);
        (group as usize / units, group as usize % units)
    }

    /// The line at the start of a page.
    fn line_of(&self, page: u32) -> Line {
        let mut left = u64::from(page);
        for (buffer, first) in self.buffers.iter().zip(first_lines(&self.buffers)) {
            let pages = buffer.bytes / (u64::from(PAGE_LINES) * crate::workload::LINE_BYTES);
            if left < pages {
                return Line(first.0 + left as u32 * PAGE_LINES);
            }
            left -= pages;
        }
        Line(0)
    }
}

impl Workload for Trace {
    fn name(&self) -> &str {
        Trace::name(self)
    }

    fn buffers(&self) -> &[Buffer] {
        &self.buffers
    }

    fn launches(&self) -> u32 {
        self.launches.len() as u32
    }

    fn launch(&self, _: u32) -> Launch {
        let groups = (self.gpus * self.compute_units) as u32;
        Launch { groups, waves: WAVES, groups_per_unit: 1, code: None }
    }

    fn next(&self, at: &mut Cursor, lines: &mut Lines) -> Instruction {
        let (gpu, unit) = self.group_place(at.group);
        let stream = self.stream(at.launch as usize, gpu, unit);
        let index = at.step / 2 * u32::from(WAVES) + u32::from(at.wave);
        let Some(access) = stream.get(index as usize) else {
            return Instruction::End;
        };
        at.step += 1;
        if at.step % 2 == 0 {
            return Instruction::Wait;
        }
        lines.push(Line(self.line_of(access.page).0 + index % PAGE_LINES));
        if access.write { Instruction::Store } else { Instruction::Load }
    }

    fn place(&self, _: u32, group: u32) -> Option<Place> {
        let (gpu, unit) = self.group_place(group);
        Some(Place { gpu: gpu as u8, unit: unit as u8 })
    }

    fn gpus(&self) -> u32 {
        Trace::gpus(self) as u32
    }
}
