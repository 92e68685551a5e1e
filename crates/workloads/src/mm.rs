//! Matrix multiplication: the AMD APP SDK's `mmmKernel_local`, one launch, C = A B of square
//! matrices of 32-bit numbers.
//!
//! A work-group of one wavefront computes a tile of 32 x 32 elements of C, four by four per lane.
//! It copies a tile of A into local memory, multiplies it with a tile of B that it reads from
//! memory, and goes on to the next tile along the row of A and the column of B.

use super::lanes::{Kernel, Memory, WORDS_PER_LINE};
use super::program::{self, Loop, Op};
use super::{Buffer, Cursor, Instruction, Launch, Line, Lines, Workload};

/// Rows and columns of a tile.
const TILE: u32 = 32;
/// Lines of a row of a tile.
const TILE_LINES: u32 = TILE / WORDS_PER_LINE;
/// Rows and columns of a lane's block.
const BLOCK: u32 = 4;
/// Of a compute unit's registers: each lane needs 65 of a SIMD unit's 256 (in steps of 4), so a
/// SIMD unit holds three wavefronts, and there are four. Local memory (4 KiB of 64) is no limit.
const GROUPS_PER_UNIT: u16 = 12;

/// Bytes of the compiled kernel and of its arguments, as the recorded runs allocate them.
const CODE_BYTES: u64 = 1688;
const ARGUMENT_BYTES: u64 = 64;

/// Accesses to data.
#[derive(Clone, Copy, Debug)]
enum Data {
    /// Row `.0` of each lane's block of the tile of A.
    A(u32),
    /// A row of the tile of B: four times the inner loop's count, plus `.0`.
    B(u32),
    /// Row `.0` of each lane's block of the tile of C.
    C(u32),
}

/// The compiled GCN3 kernel. Instructions between accesses are counted in its listing; the
/// recorded run executed 35,065 per wavefront with 32 tiles, 1,087 per tile.
const PROGRAM: &[Op<Data>] = &[
    Op::Packet,
    Op::Packet,
    Op::Arguments,
    Op::Arguments,
    Op::Arguments,
    Op::Wait,
    Op::Compute(8),
    Op::PacketByLanes,
    Op::Wait,
    Op::Compute(22),
    Op::Arguments,
    Op::Arguments,
    Op::Arguments,
    Op::Wait,
    Op::Compute(170),
    // One tile of A into local memory.
    Op::Compute(20),
    Op::Access(Data::A(0)),
    Op::Wait,
    Op::Compute(2),
    Op::Access(Data::A(1)),
    Op::Wait,
    Op::Compute(2),
    Op::Access(Data::A(2)),
    Op::Wait,
    Op::Compute(2),
    Op::Access(Data::A(3)),
    Op::Wait,
    Op::Compute(2),
    Op::Barrier,
    Op::Compute(14),
    // Four rows of a tile of B.
    Op::Compute(20),
    Op::Access(Data::B(0)),
    Op::Access(Data::B(2)),
    Op::Access(Data::B(1)),
    Op::Access(Data::B(3)),
    Op::Wait,
    Op::Compute(103),
    Op::Again(Loop::Inner, 30),
    Op::Barrier,
    Op::Again(Loop::Outer, 15),
    Op::Compute(9),
    Op::Access(Data::C(0)),
    Op::Compute(3),
    Op::Access(Data::C(1)),
    Op::Compute(2),
    Op::Access(Data::C(2)),
    Op::Compute(2),
    Op::Access(Data::C(3)),
];

/// Numbers of the buffers, in the order in which the host allocates them.
const A: usize = 0;
const B: usize = 1;
const C: usize = 2;
const KERNEL: usize = 3;

/// Which rows of A a work-group reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowsOfA {
    /// The first 32, whichever rows of C it computes: what the recorded kernel does. The result is
    /// wrong, but the pages and their sharing are those that the GRIT paper describes (half of the
    /// touched pages private, half shared).
    First,
    /// Its own, as a multiplication must.
    Own,
}

/// The multiplication. See the module.
#[derive(Clone, Debug)]
pub struct Mm {
    memory: Memory,
    kernel: Kernel,
    rows: RowsOfA,
    /// Tiles in a row or column of a matrix.
    tiles: u32,
}

impl Mm {
    /// The smallest data footprint in bytes: three matrices of one tile.
    pub const BYTES_MIN: u64 = 3 * 4 * (TILE as u64).pow(2);

    /// A multiplication whose three matrices together have about `bytes`: whole tiles.
    pub fn new(bytes: u64, rows: RowsOfA) -> Mm {
        let tiles = ((bytes / Mm::BYTES_MIN) as f64).sqrt().round().max(1.0) as u32;
        let matrix = 4 * u64::from(tiles * TILE).pow(2);
        let mut buffers = vec![("A", matrix), ("B", matrix), ("C", matrix)];
        buffers.extend(Kernel::buffers(CODE_BYTES, ARGUMENT_BYTES));
        let memory = Memory::new(&buffers);
        let kernel = Kernel::at(&memory, KERNEL);
        Mm { memory, kernel, rows, tiles }
    }

    fn access(&self, data: Data, at: &Cursor, lines: &mut Lines) -> Instruction {
        let [column, row, ..] = at.notes;
        match data {
            Data::A(of_block) => {
                let row = if self.rows == RowsOfA::Own { row } else { 0 };
                self.blocks(A, row, Loop::Outer.count(at), of_block, lines);
                Instruction::Load
            }
            Data::B(of_four) => {
                let row = Loop::Outer.count(at) * TILE + Loop::Inner.count(at) * BLOCK + of_four;
                let line = self.line(B, row, column);
                (0..TILE_LINES).for_each(|index| lines.push(Line(line + index)));
                Instruction::Load
            }
            Data::C(of_block) => {
                self.blocks(C, row, column, of_block, lines);
                Instruction::Store
            }
        }
    }

    /// Row `of_block` of the blocks of a tile: eight lanes beside each other, eight below each
    /// other, each with four elements.
    fn blocks(&self, matrix: usize, row: u32, column: u32, of_block: u32, lines: &mut Lines) {
        let mut line = self.line(matrix, row * TILE + of_block, column);
        for _ in 0..TILE / BLOCK {
            (0..TILE_LINES).for_each(|index| lines.push(Line(line + index)));
            line += BLOCK * self.tiles * TILE_LINES;
        }
    }

    /// Number of the first line that tile column `column` has in row `row` of a matrix.
    fn line(&self, matrix: usize, row: u32, column: u32) -> u32 {
        self.memory.first(matrix).0 + (row * self.tiles + column) * TILE_LINES
    }
}

impl Workload for Mm {
    fn name(&self) -> &str {
        match self.rows {
            RowsOfA::First => "mm",
            RowsOfA::Own => "mm-own-rows",
        }
    }

    fn buffers(&self) -> &[Buffer] {
        self.memory.buffers()
    }

    fn launches(&self) -> u32 {
        1
    }

    fn launch(&self, _launch: u32) -> Launch {
        Launch {
            groups: self.tiles * self.tiles,
            waves: 1,
            groups_per_unit: GROUPS_PER_UNIT,
            code: self.kernel.code(),
        }
    }

    #[inline]
    fn next(&self, at: &mut Cursor, lines: &mut Lines) -> Instruction {
        if at.step == 0 {
            // Tile column and row of C.
            at.notes[0] = at.group % self.tiles;
            at.notes[1] = at.group / self.tiles;
        }
        let times = |which| match which {
            Loop::Inner => TILE / BLOCK,
            Loop::Outer => self.tiles,
        };
        let access = |data, at: &Cursor, lines: &mut Lines| self.access(data, at, lines);
        program::next(PROGRAM, &self.kernel, at, lines, times, access)
    }
}
