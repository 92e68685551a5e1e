//! Matrix multiplication in tiles of 16 by 16, the kernel that convolutions are made of.
//!
//! It is the `gemm` of MGPUSim's tensor operators: `D = alpha A B + beta C`, a work-group of 256
//! work-items for each tile of `D`. Round by round the work-group copies a tile of `A` and a tile
//! of `B` to local memory, a row of 16 elements to 16 lanes, and multiplies them between barriers.

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

impl Matmul {
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
                Instruction::Compute(PROLOGUE_CYCLES)
            }
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
