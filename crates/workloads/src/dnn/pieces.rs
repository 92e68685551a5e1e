//! Where the tensors of a network lie.
//!
//! Every GPU has four buffers: weights and their gradients, what its layers give, the gradients of
//! that, and scratch memory. Tensors are pieces of them that begin at pages of their own, as the
//! pools of a framework hand them out.

use farside_types::PAGE_SIZE;

use super::network::Network;
use crate::lanes::{Memory, WORDS_PER_LINE};
use crate::{LINE_BYTES, Line};

/// Lines of a page.
const PAGE_LINES: u64 = PAGE_SIZE as u64 / LINE_BYTES;
/// Names of a GPU's buffers.
const NAMES: [&str; POOLS] = ["weights", "activations", "gradients", "scratch"];
const POOLS: usize = 4;
const WEIGHTS: usize = 0;
const ACTIVATIONS: usize = 1;
const GRADIENTS: usize = 2;
const SCRATCH: usize = 3;

/// A piece of a buffer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Piece {
    buffer: usize,
    /// Lines from the beginning of the buffer.
    line: u64,
    /// Lines from a microbatch to the next.
    stride: u64,
}

/// How a network is trained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Batches {
    /// Images of a microbatch.
    pub(crate) images: u32,
    /// Microbatches between two updates of the weights.
    pub(crate) microbatches: u32,
}

/// The pieces of a network's memory, before the buffers have their places.
#[derive(Clone, Debug)]
pub(crate) struct Pieces {
    /// Lines of each buffer; [`POOLS`] for each GPU.
    lines: Vec<u64>,
    /// By tensor.
    activations: Vec<Piece>,
    gradients: Vec<Piece>,
    /// By layer: weights and shifts, and their gradients.
    weights: Vec<[Piece; 4]>,
    /// By GPU: columns, and gradients of columns.
    scratch: Vec<[Piece; 2]>,
}

impl Pieces {
    /// The pieces of a network whose layers are on the GPUs `stages`, of `gpus`.
    pub(crate) fn new(network: &Network, stages: &[u32], gpus: u32, batches: Batches) -> Pieces {
        let mut pieces = Pieces {
            lines: vec![0; gpus as usize * POOLS],
            activations: Vec::new(),
            gradients: Vec::new(),
            weights: Vec::new(),
            scratch: Vec::new(),
        };
        pieces.tensors(network, stages, batches);
        for (layer, &gpu) in network.layers.iter().zip(stages) {
            let sizes = network.sizes(layer, 1);
            let (weights, shifts) = sizes.map_or((0, 0), |sizes| {
                (u64::from(sizes.rows()) * u64::from(sizes.filters), u64::from(sizes.filters))
            });
            let kinds = [weights, shifts, weights, shifts];
            let kinds = kinds.map(|elements| pieces.take(gpu, WEIGHTS, elements, 1));
            pieces.weights.push(kinds);
        }
        for gpu in 0..gpus {
            let mine = network.layers.iter().zip(stages).filter(|(_, stage)| **stage == gpu);
            let columns = mine
                .filter_map(|(layer, _)| network.sizes(layer, batches.images))
                .map(|sizes| u64::from(sizes.rows()) * u64::from(sizes.columns()))
                .max()
                .unwrap_or(0);
            let both = [columns; 2].map(|elements| pieces.take(gpu, SCRATCH, elements, 1));
            pieces.scratch.push(both);
        }
        pieces
    }

    /// A tensor is on the GPU of the layer that gives it; the images are on that of the first.
    fn tensors(&mut self, network: &Network, stages: &[u32], batches: Batches) {
        let Batches { images, microbatches } = batches;
        for (index, tensor) in network.tensors.iter().enumerate() {
            let gpu = stages[index.saturating_sub(1)];
            let elements = tensor.elements(images);
            let activation = self.take(gpu, ACTIVATIONS, elements, microbatches);
            self.activations.push(activation);
            let gradient = self.take(gpu, GRADIENTS, elements, microbatches);
            self.gradients.push(gradient);
        }
    }

    /// `count` times `elements` of a GPU's buffer.
    fn take(&mut self, gpu: u32, pool: usize, elements: u64, count: u32) -> Piece {
        let buffer = gpu as usize * POOLS + pool;
        let stride = elements.div_ceil(u64::from(WORDS_PER_LINE)).next_multiple_of(PAGE_LINES);
        let line = self.lines[buffer];
        self.lines[buffer] += stride * u64::from(count);
        Piece { buffer, line, stride }
    }

    /// Name and bytes of each buffer.
    pub(crate) fn buffers(&self) -> Vec<(String, u64)> {
        let name = |index: usize| format!("{} of GPU {}", NAMES[index % POOLS], index / POOLS);
        let lines = self.lines.iter().enumerate();
        // A GPU without layers has no tensors, and a buffer has at least a byte.
        lines.map(|(index, lines)| (name(index), (lines * LINE_BYTES).max(1))).collect()
    }

    /// Bytes of all buffers.
    pub(crate) fn bytes(&self) -> u64 {
        self.lines.iter().sum::<u64>() * LINE_BYTES
    }

    /// The places, once the buffers have theirs.
    pub(crate) fn placed<'a>(&'a self, memory: &'a Memory) -> Places<'a> {
        Places { pieces: self, memory }
    }
}

/// The places of the tensors.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Places<'a> {
    pieces: &'a Pieces,
    memory: &'a Memory,
}

impl Places<'_> {
    fn line(&self, piece: Piece, microbatch: u32) -> Line {
        let offset = piece.line + piece.stride * u64::from(microbatch);
        Line(self.memory.first(piece.buffer).0 + offset as u32)
    }

    /// A tensor of a microbatch.
    pub(crate) fn activation(&self, tensor: usize, microbatch: u32) -> Line {
        self.line(self.pieces.activations[tensor], microbatch)
    }

    /// The gradient of a tensor of a microbatch.
    pub(crate) fn gradient(&self, tensor: usize, microbatch: u32) -> Line {
        self.line(self.pieces.gradients[tensor], microbatch)
    }

    /// A layer's weights, shifts, and the gradients of both.
    pub(crate) fn weights(&self, layer: usize) -> [Line; 4] {
        self.pieces.weights[layer].map(|piece| self.line(piece, 0))
    }

    /// A GPU's columns and their gradients.
    pub(crate) fn scratch(&self, gpu: u32) -> [Line; 2] {
        self.pieces.scratch[gpu as usize].map(|piece| self.line(piece, 0))
    }
}
