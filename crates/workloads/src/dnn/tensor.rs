//! Operations on tensors, an element for each work-item: element by element, and exchange of axes.

use super::{FIRST_STEP, Part};
use crate::lanes::{LANES, WORDS_PER_LINE, cycles};
use crate::{Cursor, Instruction, Line, Lines};

/// Lines of the elements of a wavefront.
const WAVE_LINES: u32 = LANES / WORDS_PER_LINE;

/// What an operation reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// The element of the work-item, of a tensor that begins at this line.
    Elements(Line),
    /// A few numbers in this line, whichever the work-item.
    Same(Line),
}

/// An operation element by element: loads of all sources, arithmetic, stores to all targets.
#[derive(Clone, Debug)]
pub(crate) struct Elementwise {
    /// What is read, in this order.
    pub(crate) sources: Vec<Source>,
    /// Where results go.
    pub(crate) targets: Vec<Line>,
    /// Elements.
    pub(crate) elements: u64,
    /// Vector instructions of the arithmetic.
    pub(crate) instructions: u32,
    /// Wavefronts of a work-group.
    pub(crate) waves: u16,
}

/// The first line of a wavefront's elements, relative to that of the tensor.
fn wave_line(group: u32, waves: u16, wave: u16) -> u32 {
    (group * u32::from(waves) + u32::from(wave)) * WAVE_LINES
}

impl Elementwise {
    /// The lines of the wavefront that begins at line `from` of the tensor at `first`.
    fn lines(&self, first: Line, from: u32, lines: &mut Lines) {
        let end = self.elements.div_ceil(u64::from(WORDS_PER_LINE)) as u32;
        let range = from..(from + WAVE_LINES).min(end);
        range.for_each(|line| lines.push(Line(first.0 + line)));
    }
}

impl Part for Elementwise {
    fn groups(&self) -> u32 {
        self.elements.div_ceil(u64::from(LANES) * u64::from(self.waves)) as u32
    }

    fn waves(&self) -> u16 {
        self.waves
    }

    fn next(&self, group: u32, at: &mut Cursor, lines: &mut Lines) -> Instruction {
        let step = (at.step - FIRST_STEP) as usize;
        at.step += 1;
        let from = wave_line(group, self.waves, at.wave);
        let loads = self.sources.len();
        if let Some(source) = self.sources.get(step) {
            match *source {
                Source::Elements(first) => self.lines(first, from, lines),
                Source::Same(line) => lines.push(line),
            }
            return Instruction::Load;
        }
        match step - loads {
            0 => Instruction::Wait,
            1 => Instruction::Compute(cycles(self.instructions)),
            store => match self.targets.get(store - 2) {
                Some(first) => {
                    self.lines(*first, from, lines);
                    Instruction::Store
                }
                None => Instruction::End,
            },
        }
    }
}

/// Which axes are exchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Axes {
    /// A matrix of so many rows and columns becomes one of as many columns and rows.
    Matrix {
        /// Rows of the input.
        rows: u32,
        /// Columns of the input.
        columns: u32,
    },
    /// The two slowest axes of four; the two fastest together have `plane` elements.
    Slowest {
        /// Length of the input's slowest axis.
        first: u32,
        /// Length of its second axis.
        second: u32,
        /// Elements of the other two.
        plane: u32,
    },
}

/// Exchange of axes, as MGPUSim's `transpose_tensor` does it: every work-item computes the position
/// of its element axis by axis in two tables in memory, its own rows of `out_index` and `in_index`.
/// The elements of the result are a multiple of 64, and so are the columns of the result or the
/// elements of a plane.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Exchange {
    /// The axes.
    pub(crate) axes: Axes,
    /// What is read.
    pub(crate) input: Line,
    /// Where the result goes.
    pub(crate) output: Line,
    /// The lengths and the order of the axes: one line.
    pub(crate) sizes: Line,
    /// The tables: positions in the result, and in the input.
    pub(crate) tables: (Line, Line),
}

/// A division of integers and its remainder.
const DIVISION_CYCLES: u32 = cycles(25);
/// Multiplication with addition of an axis, and its addresses.
const AXIS_CYCLES: u32 = cycles(8);
/// Steps of an axis in each of the three loops.
const LOOP_STEPS: u32 = 4;

impl Exchange {
    /// Number of axes.
    fn axes(&self) -> u32 {
        match self.axes {
            Axes::Matrix { .. } => 2,
            Axes::Slowest { .. } => 4,
        }
    }

    fn elements(&self) -> u64 {
        let product = |factors: &[u32]| factors.iter().map(|factor| u64::from(*factor)).product();
        match self.axes {
            Axes::Matrix { rows, columns } => product(&[rows, columns]),
            Axes::Slowest { first, second, plane } => product(&[first, second, plane]),
        }
    }

    /// The lines of an axis in a table: the lanes' entries are as far apart as there are axes.
    fn table(&self, first: Line, group: u32, lines: &mut Lines) {
        let count = WAVE_LINES * self.axes();
        let from = first.0 + group * count;
        (from..from + count).for_each(|line| lines.push(Line(line)));
    }

    /// The lines of the input's elements that the wavefront moves.
    fn moved(&self, group: u32, lines: &mut Lines) {
        let item = u64::from(group) * u64::from(LANES);
        match self.axes {
            Axes::Matrix { rows, columns } => {
                let (row, column) = (item % u64::from(rows), item / u64::from(rows));
                let element = |lane| (row + lane) * u64::from(columns) + column;
                let line = |lane| (element(lane) / u64::from(WORDS_PER_LINE)) as u32;
                let lanes = 0..u64::from(LANES);
                lanes.for_each(|lane| lines.push(Line(self.input.0 + line(lane))));
            }
            Axes::Slowest { first, second, plane } => {
                let (plane_of, inside) = (item / u64::from(plane), item % u64::from(plane));
                let (out, within) = (plane_of / u64::from(first), plane_of % u64::from(first));
                let from = (within * u64::from(second) + out) * u64::from(plane) + inside;
                let from = self.input.0 + (from / u64::from(WORDS_PER_LINE)) as u32;
                (from..from + WAVE_LINES).for_each(|line| lines.push(Line(line)));
            }
        }
    }

    /// Step `step` of an axis in loop number `which`.
    fn axis(&self, which: u32, step: u32, group: u32, lines: &mut Lines) -> Instruction {
        let (out_index, in_index) = self.tables;
        match (which, step) {
            (_, 0) => {
                lines.push(self.sizes);
                Instruction::Load
            }
            // Where the element is on this axis of the result.
            (0, 1) => Instruction::Wait,
            (0, 2) => Instruction::Compute(DIVISION_CYCLES),
            (0, _) => {
                self.table(out_index, group, lines);
                Instruction::Store
            }
            // The same on the axis of the input.
            (1, 1) => {
                self.table(out_index, group, lines);
                Instruction::Load
            }
            (1, 3) => {
                self.table(in_index, group, lines);
                Instruction::Store
            }
            (_, 2) => Instruction::Wait,
            // Its place in the input.
            (_, 1) => {
                self.table(in_index, group, lines);
                Instruction::Load
            }
            (_, _) => Instruction::Compute(AXIS_CYCLES),
        }
    }
}

impl Part for Exchange {
    fn groups(&self) -> u32 {
        (self.elements() / u64::from(LANES)) as u32
    }

    fn waves(&self) -> u16 {
        1
    }

    fn next(&self, group: u32, at: &mut Cursor, lines: &mut Lines) -> Instruction {
        let step = at.step - FIRST_STEP;
        at.step += 1;
        let loop_steps = self.axes() * LOOP_STEPS;
        if step < 3 * loop_steps {
            return self.axis(step / loop_steps, step % LOOP_STEPS, group, lines);
        }
        match step - 3 * loop_steps {
            0 => {
                self.moved(group, lines);
                Instruction::Load
            }
            1 => Instruction::Wait,
            2 => {
                let from = self.output.0 + group * WAVE_LINES;
                (from..from + WAVE_LINES).for_each(|line| lines.push(Line(line)));
                Instruction::Store
            }
            _ => Instruction::End,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::tests::touched;
    use super::*;

    #[test]
    fn every_element_of_an_operation_is_read_and_written_once() {
        let part = Elementwise {
            sources: vec![Source::Elements(Line(1_000)), Source::Same(Line(9))],
            targets: vec![Line(2_000), Line(3_000)],
            elements: 16 * 21 + 1,
            instructions: 5,
            waves: 4,
        };
        assert_eq!(part.groups(), 2);
        let groups = [touched(&part, 0), touched(&part, 1)];
        let all = |from: u32| (from..from + 22).map(Line);
        let loads: BTreeSet<Line> = groups.iter().flat_map(|group| group.loads.clone()).collect();
        assert_eq!(loads, all(1_000).chain([Line(9)]).collect());
        let stores: BTreeSet<Line> = groups.iter().flat_map(|group| group.stores.clone()).collect();
        assert_eq!(stores, all(2_000).chain(all(3_000)).collect());
    }

    #[test]
    fn an_exchange_moves_the_elements_that_the_definition_says() {
        let (input, output, sizes) = (Line(1 << 20), Line(2 << 20), Line(5));
        let tables = (Line(3 << 20), Line(4 << 20));
        let position = |axes, item: u32| match axes {
            Axes::Matrix { rows, columns } => item % rows * columns + item / rows,
            Axes::Slowest { first, second, plane } => {
                let (out, within) = (item / plane / first, item / plane % first);
                (within * second + out) * plane + item % plane
            }
        };
        for axes in [
            Axes::Matrix { rows: 192, columns: 16 },
            Axes::Slowest { first: 3, second: 5, plane: 128 },
        ] {
            let part = Exchange { axes, input, output, sizes, tables };
            for group in 0..part.groups() {
                let items = group * 64..group * 64 + 64;
                let moved = items.clone().map(|item| Line(input.0 + position(axes, item) / 16));
                let lanes = |first: Line, axes: u32| {
                    let last = (items.end * axes - 1) / 16;
                    (items.start * axes / 16..=last).map(move |line| Line(first.0 + line))
                };
                let (out_index, in_index) =
                    (lanes(tables.0, part.axes()), lanes(tables.1, part.axes()));
                let touched = touched(&part, group);
                let loads = moved.chain(out_index.clone()).chain(in_index.clone());
                assert_eq!(touched.loads, loads.chain([sizes]).collect::<BTreeSet<_>>());
                let stores = lanes(output, 1).chain(out_index).chain(in_index);
                assert_eq!(touched.stores, stores.collect::<BTreeSet<_>>());
            }
        }
    }
}
