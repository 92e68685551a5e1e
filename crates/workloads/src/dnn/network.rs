//! Networks as layers over tensors. It knows shapes only: no memory, no GPU.

use super::im2col::Convolution;

/// What a layer gives, for one image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tensor {
    /// Channels.
    pub(crate) channels: u32,
    /// Rows and columns of an image.
    pub(crate) side: u32,
}

impl Tensor {
    /// Elements of so many images.
    pub(crate) fn elements(&self, images: u32) -> u64 {
        u64::from(self.channels) * u64::from(self.side) * u64::from(self.side) * u64::from(images)
    }
}

/// What a layer does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    /// Convolution, shift by a number per channel, and rectification where
    /// [`Network::rectifies`] says so. A fully connected layer is one with images of one pixel.
    Convolution {
        /// Rows and columns of a filter.
        kernel: u32,
        /// Pixels from a filter's position to the next.
        stride: u32,
        /// Pixels around an image.
        padding: u32,
    },
    /// The largest of each window of so many rows and columns.
    MaxPool(u32),
    /// The mean of each window of so many rows and columns.
    AveragePool(u32),
    /// The sum of two tensors, rectified.
    Add,
}

/// A layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Layer {
    /// What it does.
    pub(crate) operation: Operation,
    /// Tensors that it reads, by number.
    pub(crate) inputs: Vec<usize>,
    /// The tensor that it gives.
    pub(crate) output: usize,
}

/// A network: its layers in an order in which they can be computed. Tensor 0 holds the images.
#[derive(Clone, Debug)]
pub(crate) struct Network {
    pub(crate) tensors: Vec<Tensor>,
    pub(crate) layers: Vec<Layer>,
}

impl Network {
    /// A network without layers on color images of `side` rows and columns.
    pub(crate) fn new(side: u32) -> Network {
        Network { tensors: vec![Tensor { channels: 3, side }], layers: Vec::new() }
    }

    fn layer(&mut self, operation: Operation, inputs: Vec<usize>, output: Tensor) -> usize {
        self.tensors.push(output);
        let output = self.tensors.len() - 1;
        self.layers.push(Layer { operation, inputs, output });
        output
    }

    /// Adds a convolution whose output is as large as its input, but for the stride.
    pub(crate) fn convolution(
        &mut self,
        input: usize,
        filters: u32,
        kernel: u32,
        stride: u32,
    ) -> usize {
        let padding = kernel / 2;
        let side = (self.tensors[input].side + 2 * padding - kernel) / stride + 1;
        let operation = Operation::Convolution { kernel, stride, padding };
        self.layer(operation, vec![input], Tensor { channels: filters, side })
    }

    /// Adds a layer that takes the largest element of each window.
    pub(crate) fn max_pool(&mut self, input: usize, window: u32) -> usize {
        let Tensor { channels, side } = self.tensors[input];
        let output = Tensor { channels, side: side / window };
        self.layer(Operation::MaxPool(window), vec![input], output)
    }

    /// Adds a layer that takes the mean of each image.
    pub(crate) fn average_pool(&mut self, input: usize) -> usize {
        let Tensor { channels, side } = self.tensors[input];
        let output = Tensor { channels, side: 1 };
        self.layer(Operation::AveragePool(side), vec![input], output)
    }

    /// Adds a layer that adds two tensors of one shape.
    pub(crate) fn add(&mut self, a: usize, b: usize) -> usize {
        self.layer(Operation::Add, vec![a, b], self.tensors[a])
    }

    /// The sizes of a layer's convolution on so many images; `None` for other layers.
    pub(crate) fn sizes(&self, layer: &Layer, images: u32) -> Option<Convolution> {
        let Operation::Convolution { kernel, stride, padding } = layer.operation else {
            return None;
        };
        let Tensor { channels, side } = self.tensors[layer.inputs[0]];
        let filters = self.tensors[layer.output].channels;
        Some(Convolution { images, channels, side, filters, kernel, stride, padding })
    }

    /// Whether a layer rectifies its output: all do but the last, and those whose result is only
    /// added to something.
    pub(crate) fn rectifies(&self, layer: usize) -> bool {
        let output = self.layers[layer].output;
        let mut readers = self.layers.iter().filter(|other| other.inputs.contains(&output));
        readers.any(|reader| reader.operation != Operation::Add)
    }

    /// Whether a layer behind `layer` reads the tensor too.
    pub(crate) fn read_later(&self, layer: usize, tensor: usize) -> bool {
        self.layers[layer + 1..].iter().any(|layer| layer.inputs.contains(&tensor))
    }

    /// Gives each layer a GPU, in order, so that the multiplications are spread evenly.
    pub(crate) fn stages(&self, gpus: u32) -> Vec<u32> {
        let cost = |layer: &Layer| {
            self.sizes(layer, 1).map_or(0, |sizes| {
                u64::from(sizes.rows()) * u64::from(sizes.columns()) * u64::from(sizes.filters)
            })
        };
        let total: u64 = self.layers.iter().map(cost).sum();
        let mut before = 0;
        let stage = |layer: &Layer| {
            let middle = before + cost(layer) / 2;
            before += cost(layer);
            (middle * u64::from(gpus) / total.max(1)).min(u64::from(gpus) - 1) as u32
        };
        self.layers.iter().map(stage).collect()
    }
}
