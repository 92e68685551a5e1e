//! What a layer does in training: its kernels of the forward pass, of the backward pass, and of the
//! update of its weights.

use super::Part;
use super::im2col::{Convolution, Im2col, Shape};
use super::matmul::{Matmul, Matrix, Tiles};
use super::network::{Layer, Network, Operation, Tensor};
use super::pieces::{Batches, Places};
use super::tensor::{Elementwise, Source};
use super::window::{Gather, Window};
use crate::Line;

/// Wavefronts of a work-group of every kernel: they share launches.
pub(crate) const WAVES: u16 = 4;
/// Vector instructions of an operation on an element: addresses, and a few of arithmetic.
const SIMPLE: u32 = 14;
/// The same with an exponential and a division: the loss and its gradient.
const LOSS: u32 = 40;

/// Kernels that follow each other.
pub(crate) type Kernels = Vec<Box<dyn Part>>;

/// Makes the kernels of the layers of a network.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Steps<'a> {
    pub(crate) network: &'a Network,
    pub(crate) stages: &'a [u32],
    pub(crate) places: Places<'a>,
    pub(crate) batches: Batches,
}

/// An operation element by element.
fn elementwise(
    sources: Vec<Source>,
    targets: Vec<Line>,
    elements: u64,
    cost: u32,
) -> Box<dyn Part> {
    Box::new(Elementwise { sources, targets, elements, instructions: cost, waves: WAVES })
}

/// A convolution that needs no columns: they are the input itself.
fn is_plain(sizes: &Convolution) -> bool {
    sizes.kernel == 1 && sizes.stride == 1
}

impl Steps<'_> {
    fn layer(&self, index: usize) -> &Layer {
        &self.network.layers[index]
    }

    fn tensor(&self, index: usize) -> Tensor {
        self.network.tensors[index]
    }

    fn elements(&self, tensor: usize) -> u64 {
        self.tensor(tensor).elements(self.batches.images)
    }

    fn planes(&self, tensor: usize) -> u32 {
        self.tensor(tensor).channels * self.batches.images
    }

    /// The forward pass of a layer.
    pub(crate) fn forward(&self, index: usize, microbatch: u32) -> Kernels {
        let layer = self.layer(index);
        let activation = |tensor| self.places.activation(tensor, microbatch);
        let (input, output) = (activation(layer.inputs[0]), activation(layer.output));
        let pool = |window| -> Kernels {
            let Tensor { side, .. } = self.tensor(layer.output);
            let (sources, own, target) = (vec![input], Vec::new(), output);
            let (gather, planes) = (Gather::Pool { window }, self.planes(layer.output));
            vec![Box::new(Window { gather, planes, side, sources, own, target })]
        };
        match layer.operation {
            Operation::Convolution { .. } => self.convolve(index, input, output),
            Operation::MaxPool(window) | Operation::AveragePool(window) => pool(window),
            Operation::Add => {
                let sources = layer.inputs.iter().map(|input| Source::Elements(activation(*input)));
                let elements = self.elements(layer.output);
                vec![elementwise(sources.collect(), vec![output], elements, SIMPLE)]
            }
        }
    }

    fn convolve(&self, index: usize, input: Line, output: Line) -> Kernels {
        let layer = self.layer(index);
        let Some(sizes) = self.network.sizes(layer, self.batches.images) else {
            return Kernels::new();
        };
        let [weights, shifts, ..] = self.places.weights(index);
        let pixels = sizes.columns();
        let (mut kernels, columns) = self.unfold(index, &sizes, input);
        kernels.push(Box::new(Matmul {
            a: Matrix::new(weights, sizes.rows()),
            b: Matrix::new(columns, pixels),
            c: None,
            d: Matrix::new(output, pixels),
            rows: sizes.filters,
            columns: pixels,
            depth: sizes.rows(),
            tiles: Tiles::Local,
        }));
        let sources = vec![Source::Elements(output), Source::Same(shifts)];
        kernels.push(elementwise(sources, vec![output], self.elements(layer.output), SIMPLE));
        kernels
    }

    /// Unfolds the input into the GPU's columns, if that is needed; where the columns are.
    fn unfold(&self, index: usize, sizes: &Convolution, input: Line) -> (Kernels, Line) {
        if is_plain(sizes) {
            return (Kernels::new(), input);
        }
        let [columns, _] = self.places.scratch(self.stages[index]);
        let plane = sizes.side * sizes.side;
        let strides = (plane, sizes.images * plane);
        let shape = Shape::Wide;
        (vec![Box::new(Im2col { sizes: *sizes, input, strides, output: columns, shape })], columns)
    }

    /// The backward pass of a layer: from the gradient of its output to those of its weights and
    /// of its inputs.
    pub(crate) fn backward(&self, index: usize, microbatch: u32) -> Kernels {
        let layer = self.layer(index);
        let output = self.places.activation(layer.output, microbatch);
        let gradient = self.places.gradient(layer.output, microbatch);
        let elements = self.elements(layer.output);
        let of_output = vec![Source::Elements(gradient), Source::Elements(output)];
        let mut kernels = Kernels::new();
        if index + 1 == self.network.layers.len() {
            // Softmax and cross entropy.
            kernels.push(elementwise(vec![of_output[1]], vec![gradient], elements, LOSS));
        }
        match layer.operation {
            Operation::Convolution { .. } => {
                if self.network.rectifies(index) {
                    kernels.push(elementwise(of_output, vec![gradient], elements, SIMPLE));
                }
                kernels.extend(self.convolve_back(index, microbatch));
            }
            Operation::MaxPool(window) => {
                // The largest element is found again by comparison of the input with the output.
                let input = self.places.activation(layer.inputs[0], microbatch);
                let (sources, own) = (vec![gradient, output], vec![input]);
                kernels.push(self.spread(index, microbatch, window, sources, own));
            }
            Operation::AveragePool(window) => {
                kernels.push(self.spread(index, microbatch, window, vec![gradient], Vec::new()));
            }
            Operation::Add => {
                let mut sources = of_output;
                let of = |tensor: usize| self.places.gradient(tensor, microbatch);
                let later = layer.inputs.iter().filter(|t| self.network.read_later(index, **t));
                sources.extend(later.map(|tensor| Source::Elements(of(*tensor))));
                let targets = layer.inputs.iter().map(|tensor| of(*tensor)).collect();
                kernels.push(elementwise(sources, targets, elements, SIMPLE));
            }
        }
        kernels
    }

    /// The gradient of a pooling's input.
    fn spread(
        &self,
        index: usize,
        microbatch: u32,
        window: u32,
        sources: Vec<Line>,
        mut own: Vec<Line>,
    ) -> Box<dyn Part> {
        let input = self.layer(index).inputs[0];
        let target = self.places.gradient(input, microbatch);
        own.extend(self.network.read_later(index, input).then_some(target));
        Box::new(Window {
            gather: Gather::Spread { window },
            planes: self.planes(input),
            side: self.tensor(input).side,
            sources,
            own,
            target,
        })
    }

    fn convolve_back(&self, index: usize, microbatch: u32) -> Kernels {
        let layer = self.layer(index);
        let Some(sizes) = self.network.sizes(layer, self.batches.images) else {
            return Kernels::new();
        };
        let [weights, _, of_weights, of_shifts] = self.places.weights(index);
        let of_output = self.places.gradient(layer.output, microbatch);
        let input = self.places.activation(layer.inputs[0], microbatch);
        let (pixels, rows) = (sizes.columns(), sizes.rows());
        let (mut kernels, columns) = self.unfold(index, &sizes, input);
        // Added to the gradients of the microbatches before.
        kernels.push(Box::new(Matmul {
            a: Matrix::new(of_output, pixels),
            b: Matrix::transposed(columns, pixels),
            c: Some(Matrix::new(of_weights, rows)),
            d: Matrix::new(of_weights, rows),
            rows: sizes.filters,
            columns: rows,
            depth: pixels,
            tiles: Tiles::Local,
        }));
        let elements = u64::from(sizes.filters);
        let sources = vec![Source::Elements(of_output), Source::Elements(of_shifts)];
        kernels.push(elementwise(sources, vec![of_shifts], elements, SIMPLE));
        // Nobody asks for the gradient of the images.
        if layer.inputs[0] > 0 {
            kernels.extend(self.gradient_of_input(index, microbatch, &sizes, (weights, of_output)));
        }
        kernels
    }

    fn gradient_of_input(
        &self,
        index: usize,
        microbatch: u32,
        sizes: &Convolution,
        (weights, of_output): (Line, Line),
    ) -> Kernels {
        let input = self.layer(index).inputs[0];
        let (pixels, rows) = (sizes.columns(), sizes.rows());
        let of_input = self.places.gradient(input, microbatch);
        let add = self.network.read_later(index, input);
        let [_, scratch] = self.places.scratch(self.stages[index]);
        let of_columns = Matrix::new(if is_plain(sizes) { of_input } else { scratch }, pixels);
        let mut kernels: Kernels = vec![Box::new(Matmul {
            a: Matrix::transposed(weights, rows),
            b: Matrix::new(of_output, pixels),
            c: (is_plain(sizes) && add).then_some(of_columns),
            d: of_columns,
            rows,
            columns: pixels,
            depth: sizes.filters,
            tiles: Tiles::Local,
        })];
        if !is_plain(sizes) {
            kernels.push(Box::new(Window {
                gather: Gather::Fold(*sizes),
                planes: self.planes(input),
                side: sizes.side,
                sources: vec![scratch],
                own: add.then_some(of_input).into_iter().collect(),
                target: of_input,
            }));
        }
        kernels
    }

    /// Moves a layer's weights and shifts along their gradients, and clears those.
    pub(crate) fn update(&self, index: usize) -> Kernels {
        let Some(sizes) = self.network.sizes(self.layer(index), 1) else {
            return Kernels::new();
        };
        let [weights, shifts, of_weights, of_shifts] = self.places.weights(index);
        let count = u64::from(sizes.filters);
        let step = |values: Line, gradients: Line, elements: u64| {
            let sources = vec![Source::Elements(values), Source::Elements(gradients)];
            elementwise(sources, vec![values, gradients], elements, SIMPLE)
        };
        vec![
            step(weights, of_weights, count * u64::from(sizes.rows())),
            step(shifts, of_shifts, count),
        ]
    }
}
