//! PageRank over compressed sparse rows, with the same bits as the plain host run.
//!
//! Every iteration has two launches per card. *Divide*: a card divides the ranks of its vertices by
//! their degrees; one card, in turn, adds up the ranks of vertices without out-neighbours, so that
//! there is one order of additions. *Gather*: a card adds up, for each of its vertices, what the
//! in-neighbours hand on, in ascending order. All cards read all shares.

use std::ops::Range;

use farside::{
    Advice, Buffer, Error, KernelArgs, KernelContext, KernelError, Read, ReadSpan, Space, Value,
    Write, WriteSpan,
};
use farside_cli::graph::Graph;
use farside_cli::graph::reference::PageRank;

use super::csr::{CsrSpans, SharedCsr};
use super::segments::{Segment, contiguous, edges_of, take_segments, within};
use super::{Budget, Mode, Session};

/// The kernel of the first half of an iteration. Takes the first row of its part, a [`Budget`],
/// whether it adds up (0 or 1), the damping, ranks, degrees, and the shares of its part. Gives the
/// bits of what every vertex gets, if it adds up.
pub(crate) const DIVIDE: &str = "demo.pagerank-divide";

/// The kernel of the second half. Takes the first row of its part, a [`Budget`], what every vertex
/// gets, the damping, its segments, offsets, targets, shares, and the ranks of its part.
pub(crate) const GATHER: &str = "demo.pagerank-gather";

/// What PageRank works on besides the in-neighbours.
#[derive(Debug)]
pub(crate) struct Ranks {
    rank: Buffer<f64>,
    share: Buffer<f64>,
    out_degree: Buffer<u64>,
}

impl Ranks {
    /// For `graph`; the edges that the ranks are passed on along.
    ///
    /// # Errors
    /// As [`Space::alloc`].
    pub(crate) fn new(space: &Space, graph: &Graph) -> Result<Ranks, Error> {
        let vertices = graph.vertex_count();
        let len = vertices as usize;
        let mut rank = space.alloc_named(len, "ranks")?;
        rank.fill(1.0 / f64::from(vertices));
        let share = space.alloc_named(len, "shares")?;
        let mut out_degree = space.alloc_named(len, "out-degrees")?;
        (0u32..).zip(out_degree.iter_mut()).for_each(|(v, degree)| *degree = graph.out_degree(v));
        Ok(Ranks { rank, share, out_degree })
    }

    fn bring(&self, session: &Session<'_>, graph: &SharedCsr) -> Result<(), Error> {
        for part in 0..graph.parts.len() {
            let rows = graph.parts.rows(part);
            session.bring(&self.rank[rows.clone()], part)?;
            session.bring(&self.share[rows.clone()], part)?;
            session.bring(&self.out_degree[rows], part)?;
        }
        Ok(())
    }
}

/// Iterates over `reverse`, the graph with its edges turned round; calls `step` after each
/// iteration. Gives the ranks by vertex.
///
/// # Errors
/// Whatever a launch or a migration brings.
pub(crate) fn pagerank(
    session: &Session<'_>,
    reverse: &SharedCsr,
    ranks: &mut Ranks,
    parameters: PageRank,
    step: &dyn Fn(),
) -> Result<Vec<f64>, Error> {
    if session.advise {
        for values in [&ranks.rank, &ranks.share] {
            session.space.advise(values, Advice::ReadMostly(true))?;
        }
        session.space.advise(&ranks.out_degree, Advice::ReadMostly(true))?;
    }
    reverse.bring(session)?;
    ranks.bring(session, reverse)?;
    for iteration in 0..parameters.iterations {
        let adder = iteration as usize % reverse.parts.len();
        let base = divide(session, reverse, ranks, adder, parameters.damping)?;
        if session.mode == Mode::Managed && session.advise {
            for card in session.space.cards() {
                session.space.prefetch(&ranks.share, card)?;
            }
        }
        gather(session, reverse, ranks, base, parameters.damping)?;
        step();
    }
    Ok(ranks.rank.to_vec())
}

/// First half of an iteration. Gives what every vertex gets whatever its neighbours.
fn divide(
    session: &Session<'_>,
    graph: &SharedCsr,
    ranks: &mut Ranks,
    adder: usize,
    damping: f64,
) -> Result<f64, Error> {
    let (rank, degree) = (&*ranks.rank, &*ranks.out_degree);
    let shares = graph.parts.split_mut(&mut ranks.share).into_iter().enumerate();
    let args = shares.map(|(part, share)| {
        let first = Value(graph.parts.rows(part).start as u64);
        let plan = (first, session.budget().argument(), Value(u32::from(part == adder)));
        (plan, Value(damping), Read(rank), Read(degree), Write(share))
    });
    let bases = session.on_each(DIVIDE, args)?;
    Ok(f64::from_bits(bases[adder]))
}

pub(super) fn divide_kernel(k: &mut KernelContext, args: &KernelArgs) -> Result<u64, KernelError> {
    args.takes(7)?;
    let (first, budget) = (args.value::<u64>(0)? as usize, Budget::of(args, 1)?);
    let (rank, degree, share) = (args.read(4)?, args.read(5)?, args.write(6)?);
    let rows = first..first.saturating_add(share.len());
    divide_part(k, (rank, degree, share), rows, budget)?;
    let adds_up = args.value::<u32>(2)? != 0;
    let base = if adds_up { add_up(k, rank, degree, args.value(3)?, budget)? } else { 0.0 };
    Ok(base.to_bits())
}

fn divide_part(
    k: &mut KernelContext,
    (rank, degree, mut share): (ReadSpan<f64>, ReadSpan<u64>, WriteSpan<f64>),
    rows: Range<usize>,
    budget: Budget,
) -> Result<(), KernelError> {
    let (rank, degree) = (rank.slice(rows.clone()), degree.slice(rows));
    for piece in budget.pieces::<f64>(share.len(), 4) {
        let ranges = (rank.slice(piece.clone()), degree.slice(piece.clone()), share.slice(piece));
        k.with(ranges, |(rank, degree, mut share)| {
            let (rank, degree) = (contiguous(&rank), contiguous(&degree));
            for ((share, rank), &degree) in share.iter_mut().zip(&*rank).zip(&*degree) {
                *share = rank / degree as f64;
            }
        })?;
    }
    Ok(())
}

/// The sum over vertices without out-neighbours needs all ranks in order: one card takes them.
fn add_up(
    k: &mut KernelContext,
    rank: ReadSpan<f64>,
    degree: ReadSpan<u64>,
    damping: f64,
    budget: Budget,
) -> Result<f64, KernelError> {
    let mut dangling = 0.0;
    for piece in budget.pieces::<f64>(rank.len(), 2) {
        k.with((rank.slice(piece.clone()), degree.slice(piece)), |(rank, degree)| {
            for (rank, &degree) in rank.iter().zip(degree.iter()) {
                if degree == 0 {
                    dangling += rank;
                }
            }
        })?;
    }
    Ok(((1.0 - damping) + damping * dangling) / rank.len() as f64)
}

/// Second half of an iteration: writes the new ranks.
fn gather(
    session: &Session<'_>,
    graph: &SharedCsr,
    ranks: &mut Ranks,
    base: f64,
    damping: f64,
) -> Result<(), Error> {
    let share = &*ranks.share;
    let parts = graph.parts.split_mut(&mut ranks.rank).into_iter().enumerate();
    let args = parts.map(|(part, rank)| {
        let first = Value(graph.parts.rows(part).start as u64);
        let plan = (first, session.budget().argument(), Value(base), Value(damping));
        let graph = (Read(graph.segments(part)), Read(&graph.offsets), Read(&graph.targets));
        (plan, graph, Read(share), Write(rank))
    });
    session.on_each(GATHER, args).map(drop)
}

pub(super) fn gather_kernel(k: &mut KernelContext, args: &KernelArgs) -> Result<u64, KernelError> {
    args.takes(9)?;
    let (first, budget) = (args.value::<u64>(0)? as usize, Budget::of(args, 1)?);
    let segments = take_segments(k, &args.read(4)?, budget)?;
    let graph = CsrSpans { offsets: args.read(5)?, targets: args.read(6)? };
    let (share, mut rank) = (args.read(7)?, args.write::<f64>(8)?);
    let mut sums = zeros(k, rank.len())?;
    for segment in &segments {
        add_shares(k, &graph, segment, share, &mut sums, first, budget)?;
    }
    write_ranks(k, &mut rank, &sums, args.value(2)?, args.value(3)?, budget)?;
    Ok(rank.len() as u64)
}

/// As many zeros as the kernel was lent ranks, if there is memory for them.
fn zeros(k: &KernelContext, len: usize) -> Result<Vec<f64>, KernelError> {
    let mut zeros = Vec::new();
    zeros.try_reserve_exact(len).map_err(|error| k.fail(error.to_string()))?;
    zeros.resize(len, 0.0);
    Ok(zeros)
}

/// Adds what the edges of a segment hand on. Shares are taken piece by piece, in ascending order,
/// and so are the edges of each row: the additions of a row keep their order.
fn add_shares(
    k: &mut KernelContext,
    graph: &CsrSpans,
    segment: &Segment,
    share: ReadSpan<f64>,
    sums: &mut [f64],
    first_row: usize,
    budget: Budget,
) -> Result<(), KernelError> {
    let Segment { rows, edges } = segment;
    let offsets = graph.offsets.slice(rows.start..rows.end + 1);
    for piece in budget.pieces::<f64>(share.len(), 2) {
        let whole = piece.len() == share.len();
        let targets = graph.targets.slice(edges.clone());
        let request = (offsets, targets, share.slice(piece.clone()));
        k.with(request, |(offsets, targets, share)| {
            let offsets = contiguous(&offsets);
            let (targets, share) = (contiguous(&targets), contiguous(&share));
            for (index, row) in rows.clone().enumerate() {
                let sources = &targets[edges_of(&offsets, index, edges)];
                // Where all shares come at once there is nothing to look for.
                let sources = if whole { sources } else { within(sources, &piece) };
                let sum = &mut sums[row - first_row];
                for &from in sources {
                    *sum += share[from as usize - piece.start];
                }
            }
        })?;
    }
    Ok(())
}

fn write_ranks(
    k: &mut KernelContext,
    rank: &mut WriteSpan<f64>,
    sums: &[f64],
    base: f64,
    damping: f64,
    budget: Budget,
) -> Result<(), KernelError> {
    for piece in budget.pieces::<f64>(sums.len(), 1) {
        let sums = &sums[piece.clone()];
        k.with(rank.slice(piece), |mut rank| {
            for (rank, sum) in rank.iter_mut().zip(sums) {
                *rank = base + damping * sum;
            }
        })?;
    }
    Ok(())
}
