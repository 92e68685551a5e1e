//! A graph in shared memory as compressed sparse rows.

use std::sync::Arc;

use farside::{Buffer, Error, KernelContext, KernelError, ReadSpan, Space};
use farside_cli::graph::Graph;

use super::segments::{
    Segment, SegmentWords, contiguous, edges_of, segments, share, share_segments,
};
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
    /// What each card is told about its part.
    plans: Vec<Plan>,
}

/// What a card is told about its part, on pages of its own.
#[derive(Debug)]
struct Plan {
    bounds: Buffer<u32>,
    segments: Buffer<SegmentWords>,
    /// Segments there are.
    count: usize,
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
        let offsets = share(space, "CSR offsets", graph.offsets())?;
        let targets = share(space, "CSR targets", graph.targets())?;
        let (rows_max, edges_max) = (budget.values::<u64>(4), budget.values::<u32>(4));
        let plan = |part| {
            let cut = segments(graph.offsets(), parts.rows(part), rows_max, edges_max);
            Ok(Plan {
                bounds: share(space, &format!("bounds, for card{part}"), parts.bounds())?,
                segments: share_segments(space, &format!("segments {part}"), &cut)?,
                count: cut.len(),
            })
        };
        let plans = (0..parts.len()).map(plan).collect::<Result<Vec<_>, Error>>()?;
        Ok(SharedCsr { offsets, targets, parts: Arc::clone(parts), plans })
    }

    /// The bounds of all parts, for the card of a part.
    pub(crate) fn bounds(&self, part: usize) -> &[u32] {
        &self.plans[part].bounds
    }

    /// What a card works on at once.
    pub(crate) fn segments(&self, part: usize) -> &[SegmentWords] {
        let plan = &self.plans[part];
        &plan.segments[..plan.count]
    }

    /// User managed: moves each card's rows to it, and what it is told about them.
    ///
    /// # Errors
    /// As [`Space::migrate`].
    pub(crate) fn bring(&self, session: &Session<'_>) -> Result<(), Error> {
        for part in 0..self.parts.len() {
            let rows = self.parts.rows(part);
            let edges = self.offsets[rows.start] as usize..self.offsets[rows.end] as usize;
            session.bring(&self.offsets[rows], part)?;
            session.bring(&self.targets[edges], part)?;
            session.bring(self.bounds(part), part)?;
            session.bring(self.segments(part), part)?;
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
