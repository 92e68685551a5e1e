//! Two-dimensional stencil of nine points: SHOC's `Stencil2D`, one launch per iteration; the two
//! grids swap their roles after each.
//!
//! A work-group of one wavefront updates a tile of 16 rows and 64 columns. It copies the tile and
//! a halo of one element into local memory, row by row, then the two columns of the halo, and
//! writes its rows. Rows of a tile are far from each other in memory, so a page belongs to the
//! tiles of several columns.

use super::lanes::{Kernel, LANES, Memory, WORDS_PER_LINE};
use super::program::{self, Loop, Op};
use super::{Buffer, Cursor, Instruction, Launch, Line, Lines, Workload};

/// Rows and columns of a tile.
const TILE_ROWS: u32 = 16;
const TILE_COLUMNS: u32 = LANES;
/// Lines from one tile to the next in a row.
const TILE_LINES: u32 = TILE_COLUMNS / WORDS_PER_LINE;
/// Elements on both sides of the grid together.
const HALO: u32 = 2;
/// Rows have a multiple of so many elements.
const PAD: u32 = 16;
/// Of a compute unit's registers: each lane needs more than 64 of a SIMD unit's 256, so a SIMD
/// unit holds three wavefronts, and there are four. Local memory (4,752 bytes of 64 KiB) would
/// allow 13.
const GROUPS_PER_UNIT: u16 = 12;

/// Bytes of the compiled kernel and of its arguments, as the recorded runs allocate them.
const CODE_BYTES: u64 = 4932;
const ARGUMENT_BYTES: u64 = 88;

/// Accesses to data.
#[derive(Clone, Copy, Debug)]
enum Data {
    /// A row of the tile with its halo, without the outermost columns.
    Row,
    /// The column right of the tile, in a row: the last lane alone.
    Right,
    /// The column left of the tile, in a row: the first lane alone.
    Left,
    /// Both in the last row; the two branches meet there.
    Both,
    /// A row of the result.
    Result,
}

/// The compiled GCN3 kernel, loops unrolled. Instructions between accesses are counted in its
/// listing; the recorded run executed 963 per wavefront.
const PROGRAM: &[Op<Data>] = &[
    Op::PacketByLanes,
    Op::Arguments,
    Op::Arguments,
    Op::Arguments,
    Op::Packet,
    Op::Wait,
    Op::Compute(80),
    // 18 rows, each into local memory as soon as it is there.
    Op::Compute(10),
    Op::Access(Data::Row),
    Op::Wait,
    Op::Again(Loop::Outer, 7),
    // The halo's columns: 17 rows of the right one, of the left one, then the last row.
    Op::Compute(7),
    Op::Access(Data::Right),
    Op::Wait,
    Op::Again(Loop::Outer, 11),
    Op::Compute(7),
    Op::Access(Data::Left),
    Op::Wait,
    Op::Again(Loop::Outer, 15),
    Op::Compute(7),
    Op::Access(Data::Both),
    Op::Wait,
    Op::Barrier,
    // 16 rows of the result.
    Op::Compute(20),
    Op::Access(Data::Result),
    Op::Again(Loop::Inner, 23),
];

/// The first operation of the rows, for the number of times that the loops run.
const ROWS_END: u32 = 11;

/// Number of the kernel's first buffer; the two grids come before it.
const KERNEL: usize = 2;

/// The stencil. See the module.
#[derive(Clone, Debug)]
pub struct St {
    memory: Memory,
    kernel: Kernel,
    iterations: u32,
    /// Rows of tiles, and columns.
    tiles: (u32, u32),
    /// Lines of a row of the grid.
    row_lines: u32,
}

impl St {
    /// Iterations that the benchmark does unless it is told otherwise.
    pub const ITERATIONS: u32 = 5;

    /// The smallest data footprint in bytes: two grids of 64 x 64.
    pub const BYTES_MIN: u64 = St::grid_bytes(TILE_COLUMNS) * 2;

    /// Bytes of a grid with `size` rows and columns inside its halo.
    const fn grid_bytes(size: u32) -> u64 {
        let columns = (size + HALO).next_multiple_of(PAD) as u64;
        4 * (size + HALO) as u64 * columns
    }

    /// A stencil over square grids whose two copies have about `bytes` together: whole tiles.
    pub fn new(bytes: u64, iterations: u32) -> St {
        // The halo and the padding add 9 rows and columns in the mean.
        let side = ((bytes / 8) as f64).sqrt() - f64::from(HALO + PAD) / 2.0;
        let columns = (side / f64::from(TILE_COLUMNS)).round().max(1.0) as u32;
        let size = columns * TILE_COLUMNS;
        let grid = St::grid_bytes(size);
        let mut buffers = vec![("even", grid), ("odd", grid)];
        buffers.extend(Kernel::buffers(CODE_BYTES, ARGUMENT_BYTES));
        let memory = Memory::new(&buffers);
        let kernel = Kernel::at(&memory, KERNEL);
        let row_lines = (size + HALO).next_multiple_of(PAD) / WORDS_PER_LINE;
        St { memory, kernel, iterations, tiles: (size / TILE_ROWS, columns), row_lines }
    }

    fn access(&self, data: Data, at: &Cursor, lines: &mut Lines) -> Instruction {
        let [row_tile, column_tile, row, result_row] = at.notes;
        let from = (at.launch % 2) as usize;
        // The halo is part of the grid: the tile with its halo begins where the tile would
        // without one.
        let line = |grid, row| {
            let row = row_tile * TILE_ROWS + row;
            self.memory.first(grid).0 + row * self.row_lines + column_tile * TILE_LINES
        };
        // The tile's columns begin one element after a line's beginning, and end in the next.
        let columns = |first: u32| (first..=first + TILE_LINES).map(Line);
        match data {
            Data::Row => columns(line(from, row)).for_each(|line| lines.push(line)),
            Data::Right => lines.push(Line(line(from, row) + TILE_LINES)),
            Data::Left => lines.push(Line(line(from, row))),
            Data::Both => {
                let first = line(from, TILE_ROWS + 1);
                lines.push(Line(first));
                lines.push(Line(first + TILE_LINES));
            }
            Data::Result => {
                columns(line(1 - from, result_row + 1)).for_each(|line| lines.push(line));
                return Instruction::Store;
            }
        }
        Instruction::Load
    }
}

impl Workload for St {
    fn name(&self) -> &str {
        "st"
    }

    fn buffers(&self) -> &[Buffer] {
        self.memory.buffers()
    }

    fn launches(&self) -> u32 {
        self.iterations
    }

    fn launch(&self, _launch: u32) -> Launch {
        Launch {
            groups: self.tiles.0 * self.tiles.1,
            waves: 1,
            groups_per_unit: GROUPS_PER_UNIT,
            code: self.kernel.code(),
        }
    }

    #[inline]
    fn next(&self, at: &mut Cursor, lines: &mut Lines) -> Instruction {
        if at.step == 0 {
            // Work-groups are numbered down the columns of tiles.
            at.notes[0] = at.group % self.tiles.0;
            at.notes[1] = at.group / self.tiles.0;
        }
        let step = at.step;
        let times = |which| match which {
            Loop::Inner => TILE_ROWS,
            Loop::Outer if step < ROWS_END => TILE_ROWS + 2,
            Loop::Outer => TILE_ROWS + 1,
        };
        let access = |data, at: &Cursor, lines: &mut Lines| self.access(data, at, lines);
        program::next(PROGRAM, &self.kernel, at, lines, times, access)
    }
}
