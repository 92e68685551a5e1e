//! Which card works on which vertices.

use std::ops::Range;

use farside_cli::graph::Graph;

/// Bounds are multiples of this many vertices where the graph is large enough, so that no page of
/// 4-byte or wider values belongs to two cards.
const ALIGNMENT: u32 = 1024;

/// The vertices of a graph, cut into one run per card.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Parts {
    /// One more than there are parts, ascending, from 0 to the number of vertices.
    bounds: Vec<u32>,
}

impl Parts {
    /// Cuts `graph` so that all parts have about as many edges and vertices together.
    pub(crate) fn balanced(graph: &Graph, parts: usize) -> Parts {
        let vertices = graph.vertex_count();
        let work_before = |vertex: u32| graph.offsets()[vertex as usize] + u64::from(vertex);
        let total = work_before(vertices);
        let fits = u64::from(vertices) >= 2 * u64::from(ALIGNMENT) * parts as u64;
        let alignment = if fits { ALIGNMENT } else { 1 };
        let mut bounds = vec![0];
        for part in 1..parts as u64 {
            let target = (u128::from(total) * u128::from(part) / parts as u128) as u64;
            let (mut low, mut high) = (0, vertices);
            while low < high {
                let middle = low + (high - low) / 2;
                if work_before(middle) < target { low = middle + 1 } else { high = middle }
            }
            let rounded = low.saturating_add(alignment / 2) / alignment * alignment;
            let before = bounds[bounds.len() - 1];
            bounds.push(rounded.clamp(before, vertices));
        }
        bounds.push(vertices);
        Parts { bounds }
    }

    /// How many parts there are.
    pub(crate) fn len(&self) -> usize {
        self.bounds.len() - 1
    }

    /// The vertices of a part.
    pub(crate) fn rows(&self, part: usize) -> Range<usize> {
        self.bounds[part] as usize..self.bounds[part + 1] as usize
    }

    /// The part that a vertex belongs to.
    pub(crate) fn owner(&self, vertex: u32) -> usize {
        owner(&self.bounds, vertex)
    }

    /// Where the parts begin, and where the last one ends: what a kernel is told of them.
    pub(crate) fn bounds(&self) -> &[u32] {
        &self.bounds
    }

    /// Cuts a slice with one value per vertex.
    pub(crate) fn split_mut<'a, T>(&self, mut values: &'a mut [T]) -> Vec<&'a mut [T]> {
        let cut = |part| {
            let (here, rest) = std::mem::take(&mut values).split_at_mut(self.rows(part).len());
            values = rest;
            here
        };
        (0..self.len()).map(cut).collect()
    }
}

/// The part of a vertex, of those that `bounds` are the bounds of.
pub(crate) fn owner(bounds: &[u32], vertex: u32) -> usize {
    // Empty parts have their bounds in common with the next one: the last of them owns it.
    let behind = bounds.partition_point(|&bound| bound <= vertex);
    behind.saturating_sub(1).min(bounds.len().saturating_sub(2))
}
