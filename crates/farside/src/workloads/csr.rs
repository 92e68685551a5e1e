//! A graph in shared memory as compressed sparse rows.

use std::sync::Arc;

use farside::graph::Graph;
use farside::{Buffer, Error, KernelContext, KernelError, ReadSpan, Space};

use super::segments::{Segment, contiguous, edges_of, segments};
use super::{Budget, Parts, Session};

/// Rows and targets in shared memory, and how they are cut.
#[derive(Debug)]
pub(crate) struct SharedCsr {
    /// As [`Graph::offsets`].
    pub(crate) offsets: Buffer<u64>,
    /// As [`Graph::targets`]; one value more where the graph has no edge.
    pub(crate) targets: Buffer<u32>,
    /// Which card works on which rows.
    pub(crate) parts: Arc<Parts>,
    /// By part: what is worked on at once.
    pub(crate) segments: Vec<Arc<[Segment]>>,
}

/// The graph as a kernel sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CsrSpans {
    pub(crate) offsets: ReadSpan<u64>,
    pub(crate) targets: ReadSpan<u32>,
}

impl SharedCsr {
    /// Copies a graph into shared memory.
    ///
    /// # Errors
    /// As [`Space::alloc`].
    pub(crate) fn new(
        space: &Space,
        graph: &Graph,
        parts: &Arc<Parts>,
        budget: Budget,
    ) -> Result<SharedCsr, Error> {
        let mut offsets = space.alloc_named(graph.offsets().len(), "CSR offsets")?;
        offsets.copy_from_slice(graph.offsets());
        let mut targets = space.alloc_named(graph.targets().len().max(1), "CSR targets")?;
        targets[..graph.targets().len()].copy_from_slice(graph.targets());
        let (rows_max, edges_max) = (budget.values::<u64>(4), budget.values::<u32>(4));
        let cut = |part| segments(graph.offsets(), parts.rows(part), rows_max, edges_max).into();
        let segments = (0..parts.len()).map(cut).collect();
        Ok(SharedCsr { offsets, targets, parts: Arc::clone(parts), segments })
    }

    /// User managed: moves each card's rows to it.
    ///
    /// # Errors
    /// As [`Space::migrate`].
    pub(crate) fn bring(&self, session: &Session<'_>) -> Result<(), Error> {
        for part in 0..self.parts.len() {
            let rows = self.parts.rows(part);
            let edges = self.offsets[rows.start] as usize..self.offsets[rows.end] as usize;
            session.bring(&self.offsets[rows], part)?;
            session.bring(&self.targets[edges], part)?;
        }
        Ok(())
    }
}

impl CsrSpans {
    /// In a kernel: calls `visit` with each row of a segment and its targets, as slices.
    pub(crate) fn rows(
        &self,
        k: &mut KernelContext,
        segment: &Segment,
        mut visit: impl FnMut(usize, &[u32]),
    ) -> Result<(), KernelError> {
        let Segment { rows, edges } = segment;
        let offsets = self.offsets.slice(rows.start..rows.end + 1);
        let targets = self.targets.slice(edges.clone());
        k.with((offsets, targets), |(offsets, targets)| {
            let (offsets, targets) = (contiguous(&offsets), contiguous(&targets));
            for (index, row) in rows.clone().enumerate() {
                visit(row, &targets[edges_of(&offsets, index, edges)]);
            }
        })
    }
}
