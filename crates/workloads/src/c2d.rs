//! C2D: the forward pass of a convolutional layer, as MGPUSim's `conv2d` benchmark runs it.
//!
//! Five launches: the images are unfolded into columns; the bias is repeated for every pixel and
//! then transposed; the filters are multiplied with the columns and the bias is added; channels
//! and images of the product are exchanged. What a launch writes the next ones read, and mostly
//! another GPU does so, because every launch cuts its work differently.
//!
//! One forward pass writes nothing that was read before. Several one after the other do where a batch finds the
//! buffers of the one before, as with an allocator that hands freed memory out again.

use super::dnn::im2col::{Convolution, Im2col, Shape};
use super::dnn::matmul::{Matmul, Matrix, Tiles};
use super::dnn::tensor::{Axes, Elementwise, Exchange, Source};
use super::dnn::{GROUPS_PER_UNIT, Part, WAVES_PER_UNIT, next_of};
use super::lanes::{Kernel, Memory};
use super::{Buffer, Cursor, Instruction, LINE_BYTES, Launch, Line, Lines, Workload};

/// Rows and columns of an image, those of CIFAR.
const SIDE: u32 = 32;
/// Channels of the input, and filters. A line holds one number of each.
const CHANNELS: u32 = 16;
/// Rows and columns of a filter, MGPUSim's default.
const KERNEL: u32 = 3;
/// Kernels of a forward pass, each launched once.
const KERNELS: u32 = 5;
/// Batches of [`Convolution2d::batches`]: the fewest of which one finds what another has left.
const BATCHES: u32 = 2;
/// Bytes of the code of all kernels. Theirs are not published; the recorded `mm` and `st` kernels,
/// of a like size, have 1688 and 4932.
const CODE_BYTES: u64 = KERNELS as u64 * KERNEL_BYTES;
const KERNEL_BYTES: u64 = 1_024;

/// The layer.
#[derive(Clone, Debug)]
pub struct Convolution2d {
    memory: Memory,
    kernel: Kernel,
    /// Forward passes.
    batches: u32,
    unfold: Im2col,
    repeat: Elementwise,
    transpose: Exchange,
    multiply: Matmul,
    exchange: Exchange,
}

/// Numbers of the buffers.
const INPUT: usize = 0;
const WEIGHTS: usize = 1;
const BIAS: usize = 2;
const COLUMNS: usize = 3;
const BIAS_ROWS: usize = 4;
const BIAS_MATRIX: usize = 5;
const PRODUCT: usize = 6;
const OUTPUT: usize = 7;
const OUT_INDEX: usize = 8;
const IN_INDEX: usize = 9;
const SIZES: usize = 10;
const CODE: usize = 11;

/// Bytes of all large buffers for one image.
const IMAGE_BYTES: u64 = {
    let pixels = SIDE as u64 * SIDE as u64;
    let (channels, taps) = (CHANNELS as u64, (KERNEL * KERNEL) as u64);
    // The input, its columns, four times the size of the output, and two tables of four axes.
    pixels * 4 * channels * (1 + taps + 4 + 2 * 4)
};

impl Convolution2d {
    /// The smallest data footprint: one image.
    pub const BYTES_MIN: u64 = IMAGE_BYTES;

    /// A layer of 16 filters of 3 by 3 on as many images of 32 by 32 pixels and 16 channels as
    /// fit best into `bytes`, intermediate results included.
    pub fn new(bytes: u64) -> Convolution2d {
        Convolution2d::with(bytes, Tiles::Local, 1)
    }

    /// The same for two batches of images, one after the other in the same buffers.
    pub fn batches(bytes: u64) -> Convolution2d {
        Convolution2d::with(bytes, Tiles::Local, BATCHES)
    }

    /// The same with the multiplication that has no tiles.
    pub fn untiled(bytes: u64) -> Convolution2d {
        Convolution2d::with(bytes, Tiles::None, 1)
    }

    fn with(bytes: u64, tiles: Tiles, batches: u32) -> Convolution2d {
        let images = ((bytes + IMAGE_BYTES / 2) / IMAGE_BYTES).max(1) as u32;
        let sizes = Convolution {
            images,
            channels: CHANNELS,
            side: SIDE,
            filters: CHANNELS,
            kernel: KERNEL,
            stride: 1,
            padding: 1,
        };
        let memory = Convolution2d::memory(&sizes, batches);
        let [input, columns, rows, matrix, product, output, sizes_line] =
            [INPUT, COLUMNS, BIAS_ROWS, BIAS_MATRIX, PRODUCT, OUTPUT, SIZES]
                .map(|index| memory.first(index));
        let pixels = sizes.columns();
        let tables = (memory.first(OUT_INDEX), memory.first(IN_INDEX));
        let exchange =
            |axes, input, output| Exchange { axes, input, output, sizes: sizes_line, tables };
        let plane = SIDE * SIDE;
        Convolution2d {
            unfold: Im2col {
                sizes,
                input,
                strides: (CHANNELS * plane, plane),
                output: columns,
                shape: Shape::Square,
            },
            repeat: Elementwise {
                sources: vec![Source::Same(memory.first(BIAS))],
                targets: vec![rows],
                elements: u64::from(CHANNELS) * u64::from(pixels),
                instructions: REPEAT_INSTRUCTIONS,
                waves: 1,
            },
            transpose: exchange(Axes::Matrix { rows: pixels, columns: CHANNELS }, rows, matrix),
            multiply: Matmul {
                a: Matrix::new(memory.first(WEIGHTS), sizes.rows()),
                b: Matrix::new(columns, pixels),
                c: Some(Matrix::new(matrix, pixels)),
                d: Matrix::new(product, pixels),
                rows: CHANNELS,
                columns: pixels,
                depth: sizes.rows(),
                tiles,
            },
            exchange: exchange(
                Axes::Slowest { first: CHANNELS, second: images, plane },
                product,
                output,
            ),
            kernel: Kernel::at(&memory, CODE),
            memory,
            batches,
        }
    }

    fn memory(sizes: &Convolution, batches: u32) -> Memory {
        let pixels = u64::from(sizes.columns());
        let (channels, rows) = (u64::from(CHANNELS), u64::from(sizes.rows()));
        let image = pixels * channels * 4;
        let mut buffers = vec![
            ("input", image),
            ("weights", rows * channels * 4),
            ("bias", channels * 4),
            ("columns", pixels * rows * 4),
            ("bias rows", image),
            ("bias matrix", image),
            ("product", image),
            ("output", image),
            // Entries for the four axes of each element. MGPUSim allocates them for each exchange
            // and frees them after it; here the second one finds those of the first.
            ("out index", image * 4),
            ("in index", image * 4),
            ("sizes", LINE_BYTES),
        ];
        let launches = u64::from(KERNELS * batches);
        buffers.extend(Kernel::buffers(CODE_BYTES, launches * 2 * LINE_BYTES));
        Memory::new(&buffers)
    }

    /// Packet and arguments of a launch; the arguments of the longest kernel take two lines.
    fn scalars(&self, launch: u32) -> (Line, Line) {
        (self.kernel.packet, Line(self.kernel.arguments.0 + 2 * launch))
    }

    fn code(&self, launch: u32) -> Option<(Line, u32)> {
        let lines = (KERNEL_BYTES / LINE_BYTES) as u32;
        let kernel = launch % KERNELS;
        self.kernel.code().map(|(first, _)| (Line(first.0 + kernel * lines), lines))
    }
}

/// A division of integers for the place in the bias, and the addresses.
const REPEAT_INSTRUCTIONS: u32 = 30;

impl Workload for Convolution2d {
    fn name(&self) -> &str {
        match (self.multiply.tiles, self.batches) {
            (Tiles::None, _) => "c2d-untiled",
            (Tiles::Local, 1) => "c2d",
            (Tiles::Local, _) => "c2d-batches",
        }
    }

    fn buffers(&self) -> &[Buffer] {
        self.memory.buffers()
    }

    fn launches(&self) -> u32 {
        KERNELS * self.batches
    }

    fn launch(&self, launch: u32) -> Launch {
        let (groups, waves) = match launch % KERNELS {
            0 => (self.unfold.groups(), self.unfold.waves()),
            1 => (self.repeat.groups(), self.repeat.waves()),
            2 => (self.transpose.groups(), self.transpose.waves()),
            3 => (self.multiply.groups(), self.multiply.waves()),
            _ => (self.exchange.groups(), self.exchange.waves()),
        };
        let groups_per_unit = if waves == 1 { WAVES_PER_UNIT } else { GROUPS_PER_UNIT };
        Launch { groups, waves, groups_per_unit, code: self.code(launch) }
    }

    fn next(&self, at: &mut Cursor, lines: &mut Lines) -> Instruction {
        let (scalars, group) = (self.scalars(at.launch), at.group);
        match at.launch % KERNELS {
            0 => next_of(&self.unfold, scalars, group, at, lines),
            1 => next_of(&self.repeat, scalars, group, at, lines),
            2 => next_of(&self.transpose, scalars, group, at, lines),
            3 => next_of(&self.multiply, scalars, group, at, lines),
            _ => next_of(&self.exchange, scalars, group, at, lines),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_is_that_of_table_2_within_an_image() {
        let layer = Convolution2d::new(94 << 20);
        let bytes: u64 = layer.buffers().iter().map(|buffer| buffer.bytes).sum();
        assert!(bytes.abs_diff(94 << 20) < IMAGE_BYTES, "{bytes}");
        assert_eq!(layer.launch(0).groups, layer.unfold.sizes.columns() / 8 * 144 / 8);
        assert_eq!(layer.launch(3).groups, layer.unfold.sizes.columns() / 16);
    }

    /// Calls `each` with the launch, what is done, and the buffer, for every line.
    fn walk(layer: &Convolution2d, mut each: impl FnMut(u32, Instruction, usize)) {
        let starts: Vec<Line> = (0..=CODE).map(|index| layer.memory.first(index)).collect();
        let buffer_of = |line: Line| starts.partition_point(|start| *start <= line) - 1;
        for launch in 0..layer.launches() {
            let Launch { groups, waves, .. } = layer.launch(launch);
            for (group, wave) in (0..groups).flat_map(|group| (0..waves).map(move |w| (group, w))) {
                let mut at = Cursor { launch, group, wave, ..Cursor::default() };
                loop {
                    let mut lines = Lines::new();
                    let instruction = layer.next(&mut at, &mut lines);
                    lines.iter().for_each(|line| each(launch, instruction, buffer_of(*line)));
                    if instruction == Instruction::End {
                        break;
                    }
                }
            }
        }
    }

    #[test]
    fn what_a_launch_writes_a_later_one_reads() {
        let mut written = [false; CODE + 1];
        for input in [INPUT, WEIGHTS, BIAS, SIZES] {
            written[input] = true;
        }
        let layer = Convolution2d::new(IMAGE_BYTES * 2);
        walk(&layer, |launch, instruction, buffer| match instruction {
            Instruction::Load => assert!(written[buffer], "{launch} {buffer}"),
            Instruction::Store => written[buffer] = true,
            _ => assert!(buffer >= CODE),
        });
        assert!(written[..CODE].iter().all(|written| *written));
    }

    #[test]
    fn the_second_batch_writes_what_the_first_has_read() {
        let written_again = |layer: &Convolution2d| {
            let (mut read_in, mut again) = ([None; CODE + 1], [false; CODE + 1]);
            walk(layer, |launch, instruction, buffer| match instruction {
                Instruction::Load => read_in[buffer] = Some(launch),
                Instruction::Store => again[buffer] |= read_in[buffer].is_some_and(|l| l < launch),
                _ => {}
            });
            (0..CODE).filter(|&buffer| again[buffer]).collect::<Vec<_>>()
        };
        // Of one batch only the tables, which both exchanges of axes have.
        let tables = [OUT_INDEX, IN_INDEX];
        assert_eq!(written_again(&Convolution2d::new(IMAGE_BYTES)), tables);
        let all = [COLUMNS, BIAS_ROWS, BIAS_MATRIX, PRODUCT, OUT_INDEX, IN_INDEX];
        assert_eq!(written_again(&Convolution2d::batches(IMAGE_BYTES)), all);
    }
}
