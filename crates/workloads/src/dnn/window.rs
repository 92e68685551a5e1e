//! Kernels in which a work-item gathers the elements of a window: pooling, and the folding of
//! columns back into an image, which is what the gradient of [`super::im2col`] is.
//!
//! Tensors are stored channel by channel, the images of a channel one after the other.

use super::im2col::Convolution;
use super::{FIRST_STEP, Part};
use crate::lanes::{Coalescer, LANES, WORDS_PER_LINE, cycles};
use crate::{Cursor, Instruction, Line, Lines};

/// Wavefronts of a work-group.
const WAVES: u16 = 4;
/// Three divisions of integers, about 20 vector instructions each, and the addresses.
const PROLOGUE_CYCLES: u32 = cycles(70);
/// Comparisons with the borders, the address, and the operation.
const TAP_CYCLES: u32 = cycles(12);
/// Steps of an element of the window.
const TAP_STEPS: u32 = 3;

/// What a work-item gathers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gather {
    /// An element of the output from `window` by `window` elements of the input, at most 16 by
    /// 16, that no other window has.
    Pool {
        /// Rows and columns of the window.
        window: u32,
    },
    /// An element of the input's gradient from the one of the output whose window has it.
    Spread {
        /// Rows and columns of the window.
        window: u32,
    },
    /// An element of the input's gradient from all columns that it was unfolded to.
    Fold(Convolution),
}

/// One gathering.
#[derive(Clone, Debug)]
pub(crate) struct Window {
    /// What is gathered.
    pub(crate) gather: Gather,
    /// Images of all channels in the result.
    pub(crate) planes: u32,
    /// Rows and columns of an image of the result.
    pub(crate) side: u32,
    /// What is gathered from; each has an element for each that is gathered.
    pub(crate) sources: Vec<Line>,
    /// Tensors of the result's shape of which a work-item reads its own element.
    pub(crate) own: Vec<Line>,
    /// Where the result goes.
    pub(crate) target: Line,
}

/// An element of the result.
#[derive(Clone, Copy)]
struct Element {
    plane: u32,
    y: u32,
    x: u32,
}

impl Window {
    fn elements(&self) -> u64 {
        u64::from(self.planes) * u64::from(self.side) * u64::from(self.side)
    }

    fn first_item(group: u32, wave: u16) -> u64 {
        (u64::from(group) * u64::from(WAVES) + u64::from(wave)) * u64::from(LANES)
    }

    /// Elements of the window.
    fn taps(&self) -> u32 {
        match self.gather {
            Gather::Pool { window } => window * window,
            Gather::Spread { .. } => 1,
            Gather::Fold(sizes) => sizes.kernel * sizes.kernel,
        }
    }

    /// The first and the last element of a source that `count` neighbours in a row, from `item` on,
    /// read for an element of their windows. No two neighbours are more than a line apart, so no
    /// line between them is left out.
    #[inline]
    fn sources(&self, item: Element, count: u32, tap: u32) -> Option<(u64, u64)> {
        let Element { plane, y, x } = item;
        let row = |plane: u32, side: u32, y: u32| {
            (u64::from(plane) * u64::from(side) + u64::from(y)) * u64::from(side)
        };
        let last = x + count - 1;
        let (row, first, last) = match self.gather {
            Gather::Pool { window } => {
                let row = row(plane, self.side * window, y * window + tap / window);
                (row, x * window + tap % window, last * window + tap % window)
            }
            Gather::Spread { window } => {
                (row(plane, self.side / window, y / window), x / window, last / window)
            }
            Gather::Fold(sizes) => {
                let Convolution { images, kernel, stride, padding, .. } = sizes;
                let out = sizes.out_side();
                let from = (y + padding).checked_sub(tap / kernel)?;
                if from % stride != 0 || from / stride >= out {
                    return None;
                }
                let end = (last + padding).checked_sub(tap % kernel)? / stride;
                let begin = (x + padding).saturating_sub(tap % kernel).div_ceil(stride);
                let (channel, image) = (plane / images, plane % images);
                let unfolded = u64::from(channel * kernel * kernel + tap);
                let unfolded = unfolded * u64::from(sizes.columns());
                (unfolded + row(image, out, from / stride), begin, end.min(out - 1))
            }
        };
        (first <= last).then(|| (row + u64::from(first), row + u64::from(last)))
    }

    /// What the lanes of a wavefront read of `source` for an element of the window.
    fn gather(&self, at: &Cursor, group: u32, tap: u32, source: Line, lines: &mut Lines) {
        let first = Window::first_item(group, at.wave);
        let mut left = u64::from(LANES).min(self.elements().saturating_sub(first)) as u32;
        let [plane, y, x, _] = at.notes;
        let mut item = Element { plane, y, x };
        let mut coalescer = Coalescer::default();
        let line = |element: u64| source.0 + (element / u64::from(WORDS_PER_LINE)) as u32;
        while left > 0 {
            let count = left.min(self.side - item.x);
            if let Some((first, last)) = self.sources(item, count, tap) {
                (line(first)..=line(last)).for_each(|line| coalescer.lane(lines, Line(line)));
            }
            left -= count;
            (item.x, item.y) = (0, item.y + 1);
            if item.y == self.side {
                (item.y, item.plane) = (0, item.plane + 1);
            }
        }
    }

    /// The lines of the wavefront's own elements.
    fn own(&self, at: &Cursor, group: u32, target: Line, lines: &mut Lines) {
        let first = Window::first_item(group, at.wave);
        let end = (first + u64::from(LANES)).min(self.elements());
        let line = |element: u64| target.0 + (element / u64::from(WORDS_PER_LINE)) as u32;
        if first < end {
            (line(first)..=line(end - 1)).for_each(|line| lines.push(Line(line)));
        }
    }

    fn begin(&self, at: &mut Cursor, group: u32) {
        let item = Window::first_item(group, at.wave);
        let side = u64::from(self.side);
        let (row, x) = (item / side, item % side);
        at.notes = [(row / side) as u32, (row % side) as u32, x as u32, 0];
    }
}

impl Part for Window {
    fn groups(&self) -> u32 {
        self.elements().div_ceil(u64::from(LANES) * u64::from(WAVES)) as u32
    }

    fn waves(&self) -> u16 {
        WAVES
    }

    fn next(&self, group: u32, at: &mut Cursor, lines: &mut Lines) -> Instruction {
        let step = at.step - FIRST_STEP;
        at.step += 1;
        let Some(step) = step.checked_sub(1) else {
            self.begin(at, group);
            return Instruction::Compute(PROLOGUE_CYCLES);
        };
        let sources = self.sources.len() as u32;
        let gathers = sources * self.taps();
        if step < gathers * TAP_STEPS {
            let gather = step / TAP_STEPS;
            return match step % TAP_STEPS {
                0 => {
                    let source = self.sources[(gather % sources) as usize];
                    self.gather(at, group, gather / sources, source, lines);
                    Instruction::Load
                }
                1 => Instruction::Wait,
                _ => Instruction::Compute(TAP_CYCLES),
            };
        }
        let step = (step - gathers * TAP_STEPS) as usize;
        if let Some(own) = self.own.get(step) {
            self.own(at, group, *own, lines);
            return Instruction::Load;
        }
        match step - self.own.len() {
            0 => Instruction::Wait,
            1 => {
                self.own(at, group, self.target, lines);
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

    const SOURCE: Line = Line(1 << 20);
    const TARGET: Line = Line(2 << 20);

    fn window(gather: Gather, planes: u32, side: u32) -> Window {
        let (sources, own, target) = (vec![SOURCE], vec![TARGET], TARGET);
        Window { gather, planes, side, sources, own, target }
    }

    fn all(part: &Window) -> (BTreeSet<Line>, BTreeSet<Line>) {
        let groups: Vec<_> = (0..part.groups()).map(|group| touched(part, group)).collect();
        let loads = groups.iter().flat_map(|group| group.loads.clone());
        let (own, loads): (BTreeSet<Line>, BTreeSet<Line>) = loads.partition(|l| *l >= TARGET);
        assert_eq!(own, groups.iter().flat_map(|group| group.stores.clone()).collect());
        (loads, groups.iter().flat_map(|group| group.stores.clone()).collect())
    }

    fn lines(first: Line, elements: u32) -> BTreeSet<Line> {
        (first.0..first.0 + elements.div_ceil(16)).map(Line).collect()
    }

    #[test]
    fn pooling_reads_the_whole_input_and_writes_the_whole_output() {
        let part = window(Gather::Pool { window: 2 }, 6, 8);
        assert_eq!(all(&part), (lines(SOURCE, 6 * 16 * 16), lines(TARGET, 6 * 8 * 8)));
        let part = window(Gather::Spread { window: 2 }, 6, 16);
        assert_eq!(all(&part), (lines(SOURCE, 6 * 8 * 8), lines(TARGET, 6 * 16 * 16)));
    }

    #[test]
    fn folding_reads_every_column_that_meets_the_image() {
        for (kernel, stride, padding) in [(3, 1, 1), (3, 2, 1), (1, 2, 0)] {
            let (images, channels, side) = (3, 5, 8);
            let filters = 1;
            let sizes = Convolution { images, channels, side, filters, kernel, stride, padding };
            let part = window(Gather::Fold(sizes), images * channels, side);
            let (out, columns) = (sizes.out_side(), sizes.columns());
            let mut loads = BTreeSet::new();
            for row in 0..sizes.rows() {
                for column in 0..columns {
                    let (pixel, tap) = (column % (out * out), row % (kernel * kernel));
                    let y = pixel / out * stride + tap / kernel;
                    let x = pixel % out * stride + tap % kernel;
                    let inside = |at: u32| at >= padding && at < side + padding;
                    if inside(y) && inside(x) {
                        loads.insert(Line(SOURCE.0 + (row * columns + column) / 16));
                    }
                }
            }
            assert_eq!(all(&part), (loads, lines(TARGET, images * channels * side * side)));
        }
    }
}
