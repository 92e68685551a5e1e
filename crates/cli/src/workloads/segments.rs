//! How much a kernel takes at once, and a part of the rows cut into such pieces.

use std::borrow::Cow;
use std::ops::Range;

use bytemuck::Pod;
use farside::{
    Buffer, Error, KernelArgs, KernelContext, KernelError, PAGE_SIZE, ReadSpan, ReadView, Space,
    Value,
};

/// Most pages that one `with` of a workload takes.
const PAGES_MAX: u64 = 1024;

/// Bytes that a kernel takes at once: a share of the card's memory, so that several kernels and
/// what they need next fit beside each other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    bytes: usize,
}

impl Budget {
    /// For cards with this much memory, in bytes.
    pub(crate) fn for_card_memory(bytes: u64) -> Budget {
        let pages = (bytes / PAGE_SIZE as u64 / 4).clamp(8, PAGES_MAX);
        Budget { bytes: pages as usize * PAGE_SIZE }
    }

    /// As an argument of a kernel.
    pub(crate) fn argument(self) -> Value<u64> {
        Value(self.bytes as u64)
    }

    /// Argument `index` of a kernel.
    pub(crate) fn of(args: &KernelArgs, index: usize) -> Result<Budget, KernelError> {
        let bytes = args.value::<u64>(index)?;
        // A page at least; more than the largest is refused by the card.
        Ok(Budget { bytes: usize::try_from(bytes).unwrap_or(usize::MAX).max(PAGE_SIZE) })
    }

    /// How many values fit into one part of `parts` of it.
    pub(crate) fn values<T>(self, parts: usize) -> usize {
        (self.bytes / parts / size_of::<T>()).max(1)
    }

    /// `0 .. len` in pieces of as many values of `T` as fit into one part of `parts`.
    pub(crate) fn pieces<T>(self, len: usize, parts: usize) -> impl Iterator<Item = Range<usize>> {
        let step = self.values::<T>(parts);
        (0..len).step_by(step).map(move |start| start..(start + step).min(len))
    }
}

/// Rows and edges that are worked on at once. A row whose edges are too many is cut into several
/// segments of that row alone.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Segment {
    /// Rows, in numbers of the whole graph.
    pub(crate) rows: Range<usize>,
    /// Edges, likewise; where the row is cut, a part of the row's edges.
    pub(crate) edges: Range<usize>,
}

/// A segment in shared memory: first row, row behind the last, first edge, edge behind the last.
pub(crate) type SegmentWords = [u64; 4];

impl Segment {
    fn to_words(&self) -> SegmentWords {
        let Segment { rows, edges } = self;
        [rows.start, rows.end, edges.start, edges.end].map(|bound| bound as u64)
    }

    fn from_words(words: SegmentWords) -> Segment {
        let [row, rows_end, edge, edges_end] = words.map(|bound| bound as usize);
        Segment { rows: row..rows_end, edges: edge..edges_end }
    }
}

/// Segments in shared memory, where a kernel finds them.
///
/// # Errors
/// As [`Space::alloc`].
pub(crate) fn share_segments(
    space: &Space,
    name: &str,
    segments: &[Segment],
) -> Result<Buffer<SegmentWords>, Error> {
    let words: Vec<SegmentWords> = segments.iter().map(Segment::to_words).collect();
    share(space, name, &words)
}

/// A copy in shared memory. Where there is nothing there is one value of zeros.
///
/// # Errors
/// As [`Space::alloc`].
pub(crate) fn share<T: Pod>(space: &Space, name: &str, values: &[T]) -> Result<Buffer<T>, Error> {
    let mut buffer = space.alloc_named(values.len().max(1), name)?;
    buffer[..values.len()].copy_from_slice(values);
    Ok(buffer)
}

/// In a kernel: the segments of shared memory.
pub(crate) fn take_segments(
    k: &mut KernelContext,
    segments: &ReadSpan<SegmentWords>,
    budget: Budget,
) -> Result<Vec<Segment>, KernelError> {
    Ok(take(k, segments, budget)?.into_iter().map(Segment::from_words).collect())
}

/// In a kernel: a copy of shared memory.
pub(crate) fn take<T: Pod>(
    k: &mut KernelContext,
    span: &ReadSpan<T>,
    budget: Budget,
) -> Result<Vec<T>, KernelError> {
    // It grows with what is there, not with what somebody says there is.
    let mut values = Vec::new();
    for piece in budget.pieces::<T>(span.len(), 1) {
        k.with(span.slice(piece), |view| values.extend_from_slice(&contiguous(&view)))?;
    }
    Ok(values)
}

/// Cuts rows into segments of at most `rows_max` rows and `edges_max` edges, in order.
pub(crate) fn segments(
    offsets: &[u64],
    rows: Range<usize>,
    rows_max: usize,
    edges_max: usize,
) -> Vec<Segment> {
    let mut segments = Vec::new();
    let mut row = rows.start;
    let mut edge = offsets[row] as usize;
    while row < rows.end {
        let fits = |end: &usize| offsets[*end] as usize - edge <= edges_max;
        let last = rows.end.min(row + rows_max);
        let end = (row + 1..=last).take_while(fits).last();
        let (next, until) = match end {
            Some(end) => (end, offsets[end] as usize),
            None => (row, edge + edges_max),
        };
        segments.push(Segment { rows: row..next.max(row + 1), edges: edge..until });
        (row, edge) = (next, until);
    }
    segments
}

/// The edges of the `index`th row of a segment, within the segment's edges. `offsets` are those of
/// the segment's rows and of the row behind them.
pub(crate) fn edges_of(offsets: &[u64], index: usize, segment: &Range<usize>) -> Range<usize> {
    let from = (offsets[index] as usize).max(segment.start) - segment.start;
    let to = (offsets[index + 1] as usize).min(segment.end) - segment.start;
    from..to
}

/// Those of ascending `vertices` that lie in `range`.
pub(crate) fn within<'a>(vertices: &'a [u32], range: &Range<usize>) -> &'a [u32] {
    let from = vertices.partition_point(|&vertex| (vertex as usize) < range.start);
    let to = vertices.partition_point(|&vertex| (vertex as usize) < range.end);
    &vertices[from..to]
}

/// A view as one slice: as it is where its frames are contiguous, put together where they are not.
pub(crate) fn contiguous<'a, T: Pod>(view: &'a ReadView<'_, T>) -> Cow<'a, [T]> {
    match view.as_slice() {
        Some(slice) => Cow::Borrowed(slice),
        None => Cow::Owned(view.pieces().flatten().copied().collect()),
    }
}
