//! Breadth-first search over compressed sparse rows, level by level.
//!
//! A card keeps the levels of its own vertices. It takes the rows of its part of the frontier by
//! `with`, and hands the neighbours it finds to the cards whose vertices they are.

use std::sync::Arc;

use farside::graph::reference::UNREACHED;
use farside::{Buffer, Error, KernelContext, KernelError, Read, ReadSpan, Write, WriteSpan};

use super::csr::{CsrSpans, SharedCsr};
use super::mail::{bring, lend, receive, send};
use super::segments::{Segment, within};
use super::{Budget, Mail, Parts, Session};

type Spans =
    ((Vec<ReadSpan<u32>>, Vec<WriteSpan<u32>>), WriteSpan<u32>, ReadSpan<u64>, ReadSpan<u32>);

/// What a card knows of the work.
#[derive(Clone)]
struct Plan {
    parts: Arc<Parts>,
    segments: Arc<[Segment]>,
    part: usize,
    level: u32,
    budget: Budget,
}

/// Searches from `source`, with `levels` for the levels; calls `step` after each. Gives the levels
/// by vertex.
///
/// # Errors
/// Whatever a launch or a migration brings.
pub(crate) fn bfs_csr(
    session: &Session<'_>,
    graph: &SharedCsr,
    mail: &mut Mail<u32>,
    levels: &mut Buffer<u32>,
    source: u32,
    step: &dyn Fn(),
) -> Result<Vec<u32>, Error> {
    let budget = session.budget();
    levels.fill(UNREACHED);
    mail.begin(graph.parts.owner(source), source);
    graph.bring(session)?;
    for (part, levels) in graph.parts.split(levels).into_iter().enumerate() {
        session.bring(levels, part)?;
    }
    let mut level = 0;
    while !mail.is_empty() {
        let round = mail.round();
        bring(session, &round.0)?;
        let (inboxes, outboxes) = round;
        let parts = graph.parts.split_mut(levels);
        let args = inboxes.into_iter().zip(outboxes).zip(parts).map(|((inbox, outbox), levels)| {
            let graph = (Read(&graph.offsets), Read(&graph.targets));
            (lend(inbox, outbox), Write(levels), graph.0, graph.1)
        });
        let written = session.on_each("bfs over CSR", args.enumerate().collect(), |part| {
            let (parts, segments) = (Arc::clone(&graph.parts), Arc::clone(&graph.segments[part]));
            let plan = Plan { parts, segments, part, level, budget };
            move |k: &mut KernelContext, spans| visit(k, spans, &plan)
        })?;
        mail.deliver(written);
        level += 1;
        step();
    }
    Ok(levels.to_vec())
}

/// One level on one card.
fn visit(
    k: &mut KernelContext,
    ((inbox, mut outbox), mut levels, offsets, targets): Spans,
    plan: &Plan,
) -> Result<Vec<usize>, KernelError> {
    let mut frontier = receive(k, &inbox, plan.budget)?;
    frontier.sort_unstable();
    frontier.dedup();
    let frontier = claim(k, &mut levels, &frontier, plan)?;
    let graph = CsrSpans { offsets, targets };
    let mut letters = vec![Vec::new(); plan.parts.len()];
    for segment in plan.segments.iter() {
        let mut rows = within(&frontier, &segment.rows).iter().peekable();
        if rows.peek().is_none() {
            continue;
        }
        graph.rows(k, segment, |row, targets| {
            if rows.next_if(|&&wanted| wanted as usize == row).is_some() {
                for &target in targets {
                    letters[plan.parts.owner(target)].push(target);
                }
            }
        })?;
    }
    send(k, &mut outbox, &letters, plan.budget)
}

/// Writes the level of those of `frontier` that had none, and gives them.
fn claim(
    k: &mut KernelContext,
    levels: &mut WriteSpan<u32>,
    frontier: &[u32],
    plan: &Plan,
) -> Result<Vec<u32>, KernelError> {
    let first = plan.parts.rows(plan.part).start;
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
