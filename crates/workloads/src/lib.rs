//! Programs for simulated machines: what the wavefronts of a program do, instruction by
//! instruction.
//!
//! A [`Workload`] is a description, not a recording: it says how many launches, work-groups and
//! wavefronts there are, and gives each wavefront's next instruction when it is asked. Nothing is
//! stored per access, so any footprint fits. It knows neither time nor GPUs.
//!
//! | what | where |
//! |---|---|
//! | generated programs by name | [`catalog`]; a module each |
//! | programs that are written by hand, for tests | [`Script`] |
//! | recorded traces, bundled ones, the formats they have | [`Trace`]; `docs/workloads.md` |
//! | recording, and converting from one format to another | [`TraceWriter`], [`convert`] |
//! | all accesses, one after the other in a fixed order | [`order`] |
//! | what a program is like: sharing, reads and writes | [`profile`] |
//!
//! Recorded traces know where each work-group ran, and say so by [`Workload::place`].
//!
//! This crate owns the formats and the programs. It knows neither the driver nor a machine: who
//! records a program needs no simulator.
#![forbid(unsafe_code)]

pub mod bfs;
pub mod bs;
pub mod c2d;
pub mod catalog;
pub mod dnn;
pub mod fir;
pub mod gemm;
pub mod lanes;
pub mod mm;
pub mod order;
pub mod profile;
pub mod program;
pub mod sc;
mod script;
pub mod st;
mod trace;

use std::fmt;

pub use script::{Group, Script, Step};
use serde::{Deserialize, Serialize};
pub use trace::{
    Access, Allocation, Converted, Trace, TraceAllocation, TraceDescription, TraceError, TraceRow,
    TraceWriteError, TraceWriter, convert, is_for_standard_output, trace_files,
};

/// Bytes of a line: what the coalescer makes of the accesses of a wavefront's lanes.
pub const LINE_BYTES: u64 = 64;
/// Lines of a 2 MiB block. Every buffer begins at a block of its own.
pub const BLOCK_LINES: u32 = 1 << 15;
/// Most lines of one instruction: one for each of the 64 lanes.
pub const LINES_MAX: usize = 64;

/// A line of the workload's memory, counted from the start of its first buffer. Buffers begin at
/// multiples of [`BLOCK_LINES`], in the order of [`Workload::buffers`]: see [`first_lines`].
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Line(pub u32);

/// Memory that the program allocates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Buffer {
    /// What it holds, for reports.
    pub name: String,
    /// Its size in bytes, at least 1.
    pub bytes: u64,
    /// What it is for.
    pub kind: BufferKind,
}

/// What a buffer is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum BufferKind {
    /// Data in the shared address space.
    #[default]
    Data,
    /// A little data in the shared address space that kernels only read, most wavefronts all of it:
    /// what a programmer may as well declare constant. `gpu.constants` says whether a GPU has a
    /// copy of its own.
    Constant,
    /// Every GPU has a copy of its own, which never moves: code, arguments and queue packets, which
    /// are put into a GPU's memory with each launch. Not part of the shared address space.
    Launch,
}

/// The first line of each buffer.
pub fn first_lines(buffers: &[Buffer]) -> Vec<Line> {
    let mut block = 0;
    let blocks = |buffer: &Buffer| buffer.bytes.div_ceil(u64::from(BLOCK_LINES) * LINE_BYTES);
    let first = |buffer| {
        let line = Line(block * BLOCK_LINES);
        block += blocks(buffer) as u32;
        line
    };
    buffers.iter().map(first).collect()
}

/// A kernel launch. The next one begins when the last work-group of this one has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Launch {
    /// Work-groups, dispatched in order.
    pub groups: u32,
    /// Wavefronts of each work-group, at least 1.
    pub waves: u16,
    /// Most work-groups that fit into a compute unit at a time because of registers and local
    /// memory; wavefront slots may allow fewer.
    pub groups_per_unit: u16,
    /// The kernel's code, which the instruction cache fetches: first line and number of lines.
    pub code: Option<(Line, u32)>,
}

/// Where a wavefront stands. The machine makes one when it starts a wavefront; from then on only
/// [`Workload::next`] changes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cursor {
    /// Which launch, from 0.
    pub launch: u32,
    /// Which work-group of the launch, from 0.
    pub group: u32,
    /// Which wavefront of the work-group, from 0.
    pub wave: u16,
    /// How far it is; 0 at the beginning.
    pub step: u32,
    /// The workload's own notes; 0 at the beginning.
    pub notes: [u32; 4],
}

/// What a wavefront does next. Instructions of a wavefront are issued in order; loads and stores
/// do not make it wait, [`Instruction::Wait`] does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Instruction {
    /// Loads the lines through the vector cache.
    Load,
    /// Stores to the lines.
    Store,
    /// Loads the lines through the scalar cache.
    LoadScalar,
    /// Occupies the wavefront for so many cycles.
    Compute(u32),
    /// Waits until all loads of this wavefront have been answered.
    Wait,
    /// Waits until every wavefront of the work-group stands here or has ended. Loads are not waited for.
    Barrier,
    /// The wavefront has ended. Its stores are still carried out before the work-group ends.
    End,
}

/// The lines of one instruction: distinct, in the order of the lanes.
#[derive(Clone, Debug)]
pub struct Lines {
    lines: [Line; LINES_MAX],
    count: usize,
}

/// A compute unit of a certain GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The GPU, from 0.
    pub gpu: u8,
    /// Its compute unit, from 0.
    pub unit: u8,
}

/// A program for the simulated GPUs. Deterministic: the same cursor gives the same instruction.
pub trait Workload: fmt::Debug + Send + Sync {
    /// Its name, as the command line spells it.
    fn name(&self) -> &str;

    /// Its memory, in the order of allocation. The CPU has written all of it before the first launch.
    fn buffers(&self) -> &[Buffer];

    /// How many launches there are.
    fn launches(&self) -> u32;

    /// Launch number `launch`, less than [`Workload::launches`].
    fn launch(&self, launch: u32) -> Launch;

    /// The next instruction of a wavefront; moves the cursor on. `lines` is empty, and filled with
    /// what the instruction accesses. After [`Instruction::End`] it is not called again.
    fn next(&self, at: &mut Cursor, lines: &mut Lines) -> Instruction;

    /// Where a work-group must run; `None`: wherever the dispatcher puts it. Either all groups of
    /// a launch have a place or none.
    fn place(&self, launch: u32, group: u32) -> Option<Place> {
        let _ = (launch, group);
        None
    }

    /// GPUs that [`Workload::place`] names; 0 if it names none.
    fn gpus(&self) -> u32 {
        0
    }
}

impl Lines {
    /// None.
    pub const fn new() -> Lines {
        Lines { lines: [Line(0); LINES_MAX], count: 0 }
    }

    /// Adds a line unless it is the one added last. Lanes that share a line otherwise must be
    /// coalesced by the caller.
    pub fn push(&mut self, line: Line) {
        if self.count > 0 && self.lines[self.count - 1] == line {
            return;
        }
        assert!(self.count < LINES_MAX, "an instruction has at most {LINES_MAX} lines");
        self.lines[self.count] = line;
        self.count += 1;
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        self.count = 0;
    }
}

impl Default for Lines {
    fn default() -> Lines {
        Lines::new()
    }
}

impl std::ops::Deref for Lines {
    type Target = [Line];

    fn deref(&self) -> &[Line] {
        &self.lines[..self.count]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_buffer_begins_at_a_block_of_its_own() {
        let buffer = |bytes| Buffer { name: String::new(), bytes, kind: BufferKind::Data };
        let lines = first_lines(&[buffer(1), buffer((2 << 20) + 1), buffer(64)]);
        assert_eq!(lines, [Line(0), Line(BLOCK_LINES), Line(3 * BLOCK_LINES)]);
    }

    #[test]
    fn neighbouring_lanes_of_a_line_count_once() {
        let mut lines = Lines::new();
        [3, 3, 4, 3].into_iter().for_each(|line| lines.push(Line(line)));
        assert_eq!(*lines, [Line(3), Line(4), Line(3)]);
        lines.clear();
        assert!(lines.is_empty());
    }
}
