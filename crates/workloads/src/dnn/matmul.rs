//! Matrix multiplication, the kernel that convolutions are made of: `D = alpha A B + beta C`, a
//! work-group of 256 work-items for each tile of 16 by 16 of `D`.
//!
//! MGPUSim's tensor operators have two kernels for it (v3.0.0, benchmarks/dnn/gputensor/native/gemm.cl).
//! `gemm` goes in tiles: round by round the work-group copies a tile of `A` and a tile of `B` to
//! local memory, a row of 16 elements to 16 lanes, and multiplies them between barriers. `gemm_old`
//! has no tiles: each work-item loads an element of `A` and one of `B` for each product. The
//! published operators launch that one (operator.go:177).

use std::ops::Range;

use super::{FIRST_STEP, Part};
use crate::lanes::{LANES, WORDS_PER_LINE, cycles};
use crate::{Cursor, Instruction, Line, Lines};

/// Rows and columns of a tile.
const TILE: u32 = 16;
/// Rows of a tile that a wavefront loads.
const WAVE_ROWS: u32 = LANES / TILE;
/// Wavefronts of a work-group.
const WAVES: u16 = (TILE / WAVE_ROWS) as u16;
/// About 20 vector instructions find the place of a work-item in the matrices.
const PROLOGUE_CYCLES: u32 = cycles(20);
/// A round: 16 times two loads from local memory and a multiplication with addition, and about 12
/// instructions for bounds and addresses.
const ROUND_CYCLES: u32 = cycles(16 * 3 + 12);
/// Multiplications by `alpha` and `beta`, addition, and the address.
const EPILOGUE_CYCLES: u32 = cycles(8);

/// Untiled: the instructions until the loop, those of a product besides its loads (addresses, the loop, a
/// multiplication by `alpha`, a multiplication with addition), and those after it, as the listing of
/// the published `gemm.hsaco` has them (v3.0.0; `gemm_old`).
const UNTILED_PROLOGUE_CYCLES: u32 = cycles(14);
const PRODUCT_CYCLES: u32 = cycles(10);
const UNTILED_EPILOGUE_CYCLES: u32 = cycles(9);

/// Which of the two kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tiles {
    /// `gemm`.
    Local,
    /// `gemm_old`.
    None,
}

/// Where a matrix of 32-bit numbers lies, row by row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Matrix {
    /// Its first line.
    first: Line,
    /// Elements from the beginning of a stored row to that of the next.
    stride: u32,
    /// It is stored with rows and columns exchanged.
    transposed: bool,
}

/// One multiplication.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Matmul {
    /// `rows` by `depth`.
    pub(crate) a: Matrix,
    /// `depth` by `columns`.
    pub(crate) b: Matrix,
    /// What is added; as large as `d`.
    pub(crate) c: Option<Matrix>,
    /// The result, `rows` by `columns`.
    pub(crate) d: Matrix,
    /// Rows of the result.
    pub(crate) rows: u32,
    /// Columns of the result.
    pub(crate) columns: u32,
    /// What is summed over, at least 1.
    pub(crate) depth: u32,
    /// Which kernel.
    pub(crate) tiles: Tiles,
}

impl Matrix {
    /// Stored as it is.
    pub(crate) fn new(first: Line, stride: u32) -> Matrix {
        Matrix { first, stride, transposed: false }
    }

    /// Stored with rows and columns exchanged; `stride` is that of the stored rows.
    pub(crate) fn transposed(first: Line, stride: u32) -> Matrix {
        Matrix { first, stride, transposed: true }
    }

    /// The lines of a wavefront's share of the tile at (`row`, `column`) of a matrix of `size`
    /// rows and columns.
    #[inline]
    fn tile(&self, wave: u16, at: (u32, u32), size: (u32, u32), lines: &mut Lines) {
        let flip = |(a, b): (u32, u32)| if self.transposed { (b, a) } else { (a, b) };
        let ((row, column), (rows, columns)) = (flip(at), flip(size));
        let row = row + u32::from(wave) * WAVE_ROWS;
        let last_column = (column + TILE).min(columns) - 1;
        let line = |element: u64| self.first.0 + (element / u64::from(WORDS_PER_LINE)) as u32;
        for row in row..(row + WAVE_ROWS).min(rows) {
            let row = u64::from(row) * u64::from(self.stride);
            let range = line(row + u64::from(column))..=line(row + u64::from(last_column));
            range.for_each(|line| lines.push(Line(line)));
        }
    }
}

impl Matrix {
    /// The lines of these elements, each once if they lie in the order of the lanes.
    #[inline]
    fn elements(&self, rows: Range<u32>, columns: Range<u32>, lines: &mut Lines) {
        let (rows, columns) = if self.transposed { (columns, rows) } else { (rows, columns) };
        let line = |row: u32, column: u32| {
            let element = u64::from(row) * u64::from(self.stride) + u64::from(column);
            self.first.0 + (element / u64::from(WORDS_PER_LINE)) as u32
        };
        for row in rows {
            for at in line(row, columns.start)..=line(row, columns.end - 1) {
                if lines.last() != Some(&Line(at)) {
                    lines.push(Line(at));
                }
            }
        }
    }
}

impl Matmul {
    /// The rows and columns of a wavefront's work-items that are in the matrix.
    #[inline]
    fn own(&self, at: &Cursor) -> (Range<u32>, Range<u32>) {
        let [row, column, ..] = at.notes;
        let first = (row + u32::from(at.wave) * WAVE_ROWS).min(self.rows);
        (first..(first + WAVE_ROWS).min(self.rows), column..(column + TILE).min(self.columns))
    }

    /// Instruction `step` of the untiled kernel; the product is in the notes.
    #[inline]
    fn untiled(&self, at: &mut Cursor, step: u32, lines: &mut Lines) -> Instruction {
        let ((rows, columns), z) = (self.own(at), at.notes[2]);
        if rows.is_empty() {
            return Instruction::End;
        }
        match step {
            0 => {
                self.a.elements(rows, z..z + 1, lines);
                Instruction::Load
            }
            1 => {
                self.b.elements(z..z + 1, columns, lines);
                Instruction::Load
            }
            2 => Instruction::Wait,
            3 => {
                at.notes[2] += 1;
                if at.notes[2] < self.depth {
                    at.step = FIRST_STEP + 1;
                }
                Instruction::Compute(PRODUCT_CYCLES)
            }
            4 => match &self.c {
                Some(c) => {
                    c.elements(rows, columns, lines);
                    Instruction::Load
                }
                None => Instruction::Wait,
            },
            5 => Instruction::Wait,
            6 => Instruction::Compute(UNTILED_EPILOGUE_CYCLES),
            7 => {
                self.d.elements(rows, columns, lines);
                Instruction::Store
            }
            _ => Instruction::End,
        }
    }

    /// Tiles of the result in a row of tiles.
    fn tiles_across(&self) -> u32 {
        self.columns.div_ceil(TILE)
    }

    /// Instruction `step` of the round in the notes.
    #[inline]
    fn round(&self, at: &Cursor, step: u32, lines: &mut Lines) -> Instruction {
        let [row, column, depth, _] = at.notes;
        match step {
            0 => {
                self.a.tile(at.wave, (row, depth), (self.rows, self.depth), lines);
                Instruction::Load
            }
            1 => {
                self.b.tile(at.wave, (depth, column), (self.depth, self.columns), lines);
                Instruction::Load
            }
            2 => Instruction::Wait,
            3 | 5 => Instruction::Barrier,
            _ => Instruction::Compute(ROUND_CYCLES),
        }
    }

    fn result(&self, at: &Cursor, matrix: &Matrix, lines: &mut Lines) {
        let [row, column, ..] = at.notes;
        matrix.tile(at.wave, (row, column), (self.rows, self.columns), lines);
    }

    /// After the last round.
    fn epilogue(&self, at: &Cursor, step: u32, lines: &mut Lines) -> Instruction {
        match (step, &self.c) {
            (0, Some(c)) => {
                self.result(at, c, lines);
                Instruction::Load
            }
            (0 | 1, _) => Instruction::Wait,
            (2, _) => Instruction::Compute(EPILOGUE_CYCLES),
            (3, _) => {
                self.result(at, &self.d, lines);
                Instruction::Store
            }
            _ => Instruction::End,
        }
    }
}

impl Part for Matmul {
    fn groups(&self) -> u32 {
        self.tiles_across() * self.rows.div_ceil(TILE)
    }

    fn waves(&self) -> u16 {
        WAVES
    }

    fn next(&self, group: u32, at: &mut Cursor, lines: &mut Lines) -> Instruction {
        const ROUND: u32 = FIRST_STEP + 1;
        const ROUND_LAST: u32 = ROUND + 5;
        let step = at.step;
        at.step += 1;
        match step {
            FIRST_STEP => {
                let across = self.tiles_across();
                at.notes = [group / across * TILE, group % across * TILE, 0, 0];
                Instruction::Compute(match self.tiles {
                    Tiles::Local => PROLOGUE_CYCLES,
                    Tiles::None => UNTILED_PROLOGUE_CYCLES,
                })
            }
            _ if self.tiles == Tiles::None => self.untiled(at, step - FIRST_STEP - 1, lines),
            ROUND..ROUND_LAST => self.round(at, step - ROUND, lines),
            ROUND_LAST => {
                at.notes[2] += TILE;
                if at.notes[2] < self.depth {
                    at.step = ROUND;
                }
                Instruction::Barrier
            }
            _ => self.epilogue(at, step - ROUND_LAST - 1, lines),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::tests::touched;
    use super::*;

    fn multiplication(size: (u32, u32, u32), transposed: (bool, bool)) -> Matmul {
        let (rows, columns, depth) = size;
        let matrix = |index: u32, (rows, columns): (u32, u32), transposed| {
            let stride = if transposed { rows } else { columns };
            Matrix { first: Line(index << 20), stride, transposed }
        };
        Matmul {
            a: matrix(1, (rows, depth), transposed.0),
            b: matrix(2, (depth, columns), transposed.1),
            c: Some(matrix(3, (rows, columns), false)),
            d: matrix(4, (rows, columns), false),
            rows,
            columns,
            depth,
            tiles: Tiles::Local,
        }
    }

    /// What the elements' definition says, an element at a time.
    fn expected(part: &Matmul, group: u32) -> (BTreeSet<Line>, BTreeSet<Line>) {
        let across = part.columns.div_ceil(16);
        let (row0, column0) = (group / across * 16, group % across * 16);
        let line = |matrix: &Matrix, row: u32, column: u32| {
            let (row, column) = if matrix.transposed { (column, row) } else { (row, column) };
            Line(matrix.first.0 + (row * matrix.stride + column) / 16)
        };
        let (mut loads, mut stores) = (BTreeSet::new(), BTreeSet::new());
        for row in row0..(row0 + 16).min(part.rows) {
            for column in column0..(column0 + 16).min(part.columns) {
                loads.insert(line(&part.c.unwrap(), row, column));
                stores.insert(line(&part.d, row, column));
                for z in 0..part.depth {
                    loads.insert(line(&part.a, row, z));
                    loads.insert(line(&part.b, z, column));
                }
            }
        }
        (loads, stores)
    }

    #[test]
    fn without_tiles_a_group_touches_the_same_product_by_product() {
        for size in [(64, 48, 32), (20, 37, 27), (3, 5, 7), (16, 100, 1)] {
            for transposed in [(false, false), (true, false), (false, true)] {
                let tiles = Tiles::None;
                let part = Matmul { tiles, ..multiplication(size, transposed) };
                for group in 0..part.groups() {
                    let touched = touched(&part, group);
                    let loads_and_stores = (touched.loads, touched.stores);
                    assert_eq!(loads_and_stores, expected(&part, group), "{size:?} {transposed:?}");
                    assert_eq!(touched.barriers, 0);
                }
            }
        }
    }

    /// Four rows of `A` and a row of `B` for each product: ten times the lines of the tiled kernel.
    #[test]
    fn without_tiles_each_product_loads_five_lines() {
        let part = multiplication((64, 64, 64), (false, false));
        let count = |part: &Matmul| {
            let mut at = Cursor { step: FIRST_STEP, ..Cursor::default() };
            let (mut lines, mut count) = (Lines::new(), 0);
            loop {
                lines.clear();
                match part.next(0, &mut at, &mut lines) {
                    Instruction::End => return count,
                    _ => count += lines.len(),
                }
            }
        };
        assert_eq!(count(&part), 4 * (4 + 4) + 4 + 4);
        assert_eq!(count(&Matmul { tiles: Tiles::None, ..part }), 64 * (4 + 1) + 4 + 4);
    }

    #[test]
    fn every_group_touches_its_tiles_and_no_others() {
        for size in [(64, 48, 32), (20, 37, 27), (3, 5, 7), (16, 100, 1)] {
            for transposed in [(false, false), (true, false), (false, true)] {
                let part = multiplication(size, transposed);
                assert_eq!(part.groups(), size.0.div_ceil(16) * size.1.div_ceil(16));
                for group in 0..part.groups() {
                    let touched = touched(&part, group);
                    let expected = expected(&part, group);
                    assert_eq!(
                        (touched.loads, touched.stores),
                        expected,
                        "{size:?} {transposed:?}"
                    );
                    assert_eq!(touched.barriers, 4 * 2 * size.2.div_ceil(16));
                }
            }
        }
    }
}
