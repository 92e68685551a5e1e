//! Breadth-first search over compressed sparse rows, level by level.
//!
//! A card keeps the levels of its own vertices. It takes the rows of its part of the frontier by
//! `with`, and hands the neighbours it finds to the cards whose vertices they are.

use farside::{
    Buffer, Error, KernelArgs, KernelContext, KernelError, Read, Space, Value, Write, WriteSpan,
};
use farside_cli::graph::reference::UNREACHED;

use super::csr::{CsrSpans, SharedCsr};
use super::mail::Boxes;
use super::parts::owner;
use super::segments::{take, take_segments, within};
use super::{Budget, Mail, Parts, Session};

/// The kernel: one level on one card. Takes the level, the card's part, a [`Budget`], the bounds of
/// all parts, the card's segments, offsets, targets, the levels of its part, and its mail.
pub(crate) const KERNEL: &str = "demo.bfs-csr";

/// The levels of the vertices, by part: no page of them belongs to two cards.
#[derive(Debug)]
pub(crate) struct Levels(Vec<Buffer<u32>>);

impl Levels {
    /// Room for the levels of all parts.
    ///
    /// # Errors
    /// As [`Space::alloc`].
    pub(crate) fn new(space: &Space, parts: &Parts) -> Result<Levels, Error> {
        let of = |part: usize| {
            space.alloc_named(parts.rows(part).len().max(1), &format!("levels {part}"))
        };
        (0..parts.len()).map(of).collect::<Result<_, _>>().map(Levels)
    }

    /// By vertex.
    fn to_vec(&self, parts: &Parts) -> Vec<u32> {
        let parts = self.0.iter().enumerate().map(|(part, own)| &own[..parts.rows(part).len()]);
        parts.collect::<Vec<_>>().concat()
    }
}

/// Searches from `source`; calls `step` after each level. Gives the levels by vertex.
///
/// # Errors
/// Whatever a launch or a migration brings.
pub(crate) fn bfs_csr(
    session: &Session<'_>,
    graph: &SharedCsr,
    mail: &mut Mail<u32>,
    levels: &mut Levels,
    source: u32,
    step: &dyn Fn(),
) -> Result<Vec<u32>, Error> {
    levels.0.iter_mut().for_each(|own| own.fill(UNREACHED));
    mail.begin(graph.parts.owner(source), source);
    graph.bring(session)?;
    for (part, own) in levels.0.iter().enumerate() {
        session.bring(own, part)?;
    }
    let mut level = 0u32;
    while !mail.is_empty() {
        let mut args = Vec::new();
        for (part, (round, own)) in mail.round().into_iter().zip(&mut levels.0).enumerate() {
            let own = &mut own[..graph.parts.rows(part).len()];
            round.bring(session, part)?;
            let plan = (Value(level), Value(part as u32), session.budget().argument());
            let cut = (Read(graph.bounds(part)), Read(graph.segments(part)));
            let graph = (Read(&graph.offsets), Read(&graph.targets));
            args.push((plan, cut, graph, Write(own), round.lend()));
        }
        session.on_each(KERNEL, args)?;
        mail.deliver();
        level += 1;
        step();
    }
    Ok(levels.to_vec(&graph.parts))
}

/// What a card knows of the work.
struct Plan {
    level: u32,
    part: usize,
    bounds: Vec<u32>,
    budget: Budget,
}

pub(super) fn visit(k: &mut KernelContext, args: &KernelArgs) -> Result<u64, KernelError> {
    let budget = Budget::of(args, 2)?;
    let bounds = take(k, &args.read(3)?, budget)?;
    let plan = Plan { level: args.value(0)?, part: args.value::<u32>(1)? as usize, bounds, budget };
    let segments = take_segments(k, &args.read(4)?, budget)?;
    let graph = CsrSpans { offsets: args.read(5)?, targets: args.read(6)? };
    let mut boxes = Boxes::of(args, 8)?;

    let mut frontier = boxes.receive(k, budget)?;
    frontier.sort_unstable();
    frontier.dedup();
    let frontier = claim(k, &mut args.write(7)?, &frontier, &plan)?;
    let mut letters = boxes.letters();
    for segment in &segments {
        let mut rows = within(&frontier, &segment.rows).iter().peekable();
        if rows.peek().is_none() {
            continue;
        }
        graph.rows(k, segment, |row, targets| {
            if rows.next_if(|&&wanted| wanted as usize == row).is_some() {
                for &target in targets {
                    letters.push(owner(&plan.bounds, target), target);
                }
            }
        })?;
    }
    boxes.send(k, &letters, budget)?;
    Ok(frontier.len() as u64)
}

/// Writes the level of those of `frontier` that had none, and gives them.
fn claim(
    k: &mut KernelContext,
    levels: &mut WriteSpan<u32>,
    frontier: &[u32],
    plan: &Plan,
) -> Result<Vec<u32>, KernelError> {
    let first = plan.bounds.get(plan.part).ok_or_else(|| k.fail("there is no such part"))?;
    let first = *first as usize;
    let mut claimed = Vec::with_capacity(frontier.len());
    for piece in plan.budget.pieces::<u32>(levels.len(), 1) {
        let wanted = within(frontier, &(first + piece.start..first + piece.end));
        if wanted.is_empty() {
            continue;
        }
        k.with(levels.slice(piece.clone()), |mut view| {
            for &vertex in wanted {
                let level = &mut view[vertex as usize - first - piece.start];
                if *level == UNREACHED {
                    *level = plan.level;
                    claimed.push(vertex);
                }
            }
        })?;
    }
    Ok(claimed)
}
