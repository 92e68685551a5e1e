//! Unfolding of images into columns, so that a convolution becomes a multiplication of matrices.
//!
//! A row of the result for each channel and element of the filter, a column for each pixel of each
//! output image: the element of the input that meets there. Work-items that meet the padding store
//! a zero and load nothing.

use super::{FIRST_STEP, Part};
use crate::lanes::{Coalescer, LANES, WORDS_PER_LINE, cycles};
use crate::{Cursor, Instruction, Line, Lines};

/// Six divisions of integers, about 20 vector instructions each, and as many for the rest
/// (MGPUSim's `im2col_2d`).
const ADDRESS_CYCLES: u32 = cycles(140);

/// The sizes of a convolution with square images, filters, strides and paddings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Convolution {
    /// Images.
    pub(crate) images: u32,
    /// Channels of the input.
    pub(crate) channels: u32,
    /// Rows and columns of an input image.
    pub(crate) side: u32,
    /// Channels of the output.
    pub(crate) filters: u32,
    /// Rows and columns of a filter.
    pub(crate) kernel: u32,
    /// Pixels from a filter's position to the next.
    pub(crate) stride: u32,
    /// Pixels around an image.
    pub(crate) padding: u32,
}

impl Convolution {
    /// Rows and columns of an output image.
    pub(crate) fn out_side(&self) -> u32 {
        (self.side + 2 * self.padding - self.kernel) / self.stride + 1
    }

    /// Columns of the unfolded images: pixels of all output images.
    pub(crate) fn columns(&self) -> u32 {
        self.images * self.out_side() * self.out_side()
    }

    /// Rows of the unfolded images.
    pub(crate) fn rows(&self) -> u32 {
        self.channels * self.kernel * self.kernel
    }
}

/// How the work-items of a work-group lie over the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// One wavefront, 8 columns of 8 rows (MGPUSim's host code).
    Square,
    /// Four wavefronts, 64 columns of a row each.
    Wide,
}

/// One unfolding.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Im2col {
    /// The convolution.
    pub(crate) sizes: Convolution,
    /// The images.
    pub(crate) input: Line,
    /// Elements from an image to the next, and from a channel to the next.
    pub(crate) strides: (u32, u32),
    /// The result.
    pub(crate) output: Line,
    /// The work-groups.
    pub(crate) shape: Shape,
}

/// A pixel of an output image.
#[derive(Clone, Copy)]
struct Pixel {
    image: u32,
    y: u32,
    x: u32,
}

impl Im2col {
    /// Columns and rows of a wavefront.
    fn extent(&self) -> (u32, u32) {
        match self.shape {
            Shape::Square => (8, 8),
            Shape::Wide => (LANES, 1),
        }
    }

    fn across(&self) -> u32 {
        self.sizes.columns().div_ceil(self.extent().0)
    }

    /// Rows of a work-group.
    fn group_rows(&self) -> u32 {
        self.extent().1 * u32::from(self.waves())
    }

    /// Notes the wavefront's first column, first row, and the pixel of the first column.
    fn begin(&self, group: u32, at: &mut Cursor) {
        let (width, height) = self.extent();
        let side = self.sizes.out_side();
        let column = group % self.across() * width;
        let row = group / self.across() * self.group_rows() + u32::from(at.wave) * height;
        let (image, pixel) = (column / (side * side), column % (side * side));
        at.notes = [column, row, image, ((pixel / side) << 16) | (pixel % side)];
    }

    /// The wavefront's rows.
    fn rows(&self, at: &Cursor) -> std::ops::Range<u32> {
        at.notes[1]..(at.notes[1] + self.extent().1).min(self.sizes.rows())
    }

    /// The wavefront's number of columns.
    fn width(&self, at: &Cursor) -> u32 {
        self.extent().0.min(self.sizes.columns() - at.notes[0])
    }

    #[inline]
    fn load(&self, at: &Cursor, lines: &mut Lines) {
        let kernel = self.sizes.kernel;
        let mut lanes = Coalescer::default();
        let mut row = at.notes[1];
        let (mut channel, mut tap) = (row / (kernel * kernel), row % (kernel * kernel));
        let (mut y, mut x) = (tap / kernel, tap % kernel);
        let end = self.rows(at).end;
        while row < end {
            self.load_row(at, channel, (y, x), &mut lanes, lines);
            (row, tap, x) = (row + 1, tap + 1, x + 1);
            if x == kernel {
                (x, y) = (0, y + 1);
            }
            if tap == kernel * kernel {
                (tap, y, channel) = (0, 0, channel + 1);
            }
        }
    }

    /// What the lanes of a row load, a row of an image at a time.
    #[inline]
    fn load_row(
        &self,
        at: &Cursor,
        channel: u32,
        tap: (u32, u32),
        lanes: &mut Coalescer,
        lines: &mut Lines,
    ) {
        let side = self.sizes.out_side();
        let mut pixel = Pixel { image: at.notes[2], y: at.notes[3] >> 16, x: at.notes[3] & 0xffff };
        let mut left = self.width(at);
        while left > 0 {
            let count = left.min(side - pixel.x);
            self.load_run(pixel, count, channel, tap, lanes, lines);
            left -= count;
            (pixel.x, pixel.y) = (0, pixel.y + 1);
            if pixel.y == side {
                (pixel.y, pixel.image) = (0, pixel.image + 1);
            }
        }
    }

    /// `count` pixels of an output row from `pixel` on.
    #[inline]
    fn load_run(
        &self,
        pixel: Pixel,
        count: u32,
        channel: u32,
        tap: (u32, u32),
        lanes: &mut Coalescer,
        lines: &mut Lines,
    ) {
        let Convolution { side, stride, padding, .. } = self.sizes;
        let y = pixel.y * stride + tap.0;
        if y < padding || y >= side + padding {
            return;
        }
        // Positions in the padded row; lanes on the padding load nothing.
        let (mut first, mut last) =
            (pixel.x * stride + tap.1, (pixel.x + count - 1) * stride + tap.1);
        while first < padding {
            first += stride;
        }
        while last >= side + padding && last >= stride {
            last -= stride;
        }
        if first > last || last >= side + padding {
            return;
        }
        let row = u64::from(pixel.image) * u64::from(self.strides.0)
            + u64::from(channel) * u64::from(self.strides.1)
            + u64::from((y - padding) * side);
        let line = |x: u32| (row + u64::from(x - padding)) / u64::from(WORDS_PER_LINE);
        for line in line(first)..=line(last) {
            lanes.lane(lines, Line(self.input.0 + line as u32));
        }
    }

    fn store(&self, at: &Cursor, lines: &mut Lines) {
        let width = u64::from(self.width(at));
        for row in self.rows(at) {
            let first = u64::from(row) * u64::from(self.sizes.columns()) + u64::from(at.notes[0]);
            let line = |element: u64| (element / u64::from(WORDS_PER_LINE)) as u32;
            let range = line(first)..=line(first + width - 1);
            range.for_each(|line| lines.push(Line(self.output.0 + line)));
        }
    }
}

impl Part for Im2col {
    fn groups(&self) -> u32 {
        self.across() * self.sizes.rows().div_ceil(self.group_rows())
    }

    fn waves(&self) -> u16 {
        match self.shape {
            Shape::Square => 1,
            Shape::Wide => 4,
        }
    }

    fn next(&self, group: u32, at: &mut Cursor, lines: &mut Lines) -> Instruction {
        let step = at.step - FIRST_STEP;
        at.step += 1;
        match step {
            0 => {
                self.begin(group, at);
                Instruction::Compute(ADDRESS_CYCLES)
            }
            1 => {
                self.load(at, lines);
                Instruction::Load
            }
            2 => Instruction::Wait,
            3 => {
                self.store(at, lines);
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

    /// The lines of a group by the definition, an element at a time.
    fn expected(part: &Im2col, group: u32) -> (BTreeSet<Line>, BTreeSet<Line>) {
        let sizes = part.sizes;
        let (out, columns, kernel) = (sizes.out_side(), sizes.columns(), sizes.kernel);
        let (width, height) = if part.shape == Shape::Square { (8, 8) } else { (64, 4) };
        let across = columns.div_ceil(width);
        let (column0, row0) = (group % across * width, group / across * height);
        let (mut loads, mut stores) = (BTreeSet::new(), BTreeSet::new());
        for row in row0..(row0 + height).min(sizes.rows()) {
            for column in column0..(column0 + width).min(columns) {
                stores.insert(Line(part.output.0 + (row * columns + column) / 16));
                let (image, pixel) = (column / (out * out), column % (out * out));
                let (channel, tap) = (row / (kernel * kernel), row % (kernel * kernel));
                let y = (pixel / out * sizes.stride + tap / kernel).checked_sub(sizes.padding);
                let x = (pixel % out * sizes.stride + tap % kernel).checked_sub(sizes.padding);
                let (Some(y), Some(x)) = (y, x) else { continue };
                if y < sizes.side && x < sizes.side {
                    let plane = image * part.strides.0 + channel * part.strides.1;
                    loads.insert(Line(part.input.0 + (plane + y * sizes.side + x) / 16));
                }
            }
        }
        (loads, stores)
    }

    #[test]
    fn every_group_loads_and_stores_what_the_definition_says() {
        let cases = [
            // images, channels, side, kernel, stride, padding
            (3, 4, 32, 3, 1, 1),
            (5, 3, 4, 3, 1, 1),
            (7, 2, 2, 3, 1, 1),
            (2, 5, 32, 3, 2, 1),
            (3, 8, 16, 1, 2, 0),
            (9, 2, 1, 3, 1, 1),
            (2, 3, 33, 7, 2, 3),
        ];
        for (images, channels, side, kernel, stride, padding) in cases {
            let sizes = Convolution { images, channels, side, filters: 1, kernel, stride, padding };
            for (shape, strides) in [
                (Shape::Square, (channels * side * side, side * side)),
                (Shape::Wide, (side * side, images * side * side)),
            ] {
                let (input, output) = (Line(1 << 20), Line(2 << 20));
                let part = Im2col { sizes, input, strides, output, shape };
                for group in 0..part.groups() {
                    let touched = touched(&part, group);
                    let expected = expected(&part, group);
                    assert_eq!((touched.loads, touched.stores), expected, "{part:?} {group}");
                }
            }
        }
    }
}
