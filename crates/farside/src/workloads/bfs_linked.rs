//! Breadth-first search along pointers, level by level.
//!
//! A card visits its own nodes only. It follows each node's list of edges, and hands the pointers
//! it finds to the cards whose nodes they point to: they are the next level's frontier.

use std::mem::offset_of;
use std::ops::Range;
use std::sync::Arc;

use farside::graph::reference::UNREACHED;
use farside::{Error, KernelContext, KernelError, Ptr, Read, ReadSpan, Write, WriteSpan};

use super::linked::{Edge, LinkedGraph, Node};
use super::mail::{bring, lend, receive, send};
use super::{Budget, Mail, Session};

type Letters = Ptr<Node>;
type Spans = ((Vec<ReadSpan<Letters>>, Vec<WriteSpan<Letters>>), WriteSpan<Node>, ReadSpan<Edge>);

/// Searches from `source`; calls `step` after each level. Gives the levels by vertex.
///
/// # Errors
/// Whatever a launch or a migration brings.
pub(crate) fn bfs_linked(
    session: &Session<'_>,
    graph: &mut LinkedGraph,
    mail: &mut Mail<Letters>,
    source: u32,
    step: &dyn Fn(),
) -> Result<Vec<u32>, Error> {
    let budget = session.budget();
    let start = graph.node(source);
    let home = graph.homes.iter().position(|home| home.contains(&start.addr())).unwrap_or(0);
    mail.begin(home, start);
    for part in 0..graph.nodes.len() {
        session.bring(&graph.nodes[part], part)?;
        session.bring(&graph.edges[part], part)?;
    }
    let mut level = 0;
    while !mail.is_empty() {
        let round = mail.round();
        bring(session, &round.0)?;
        let (inboxes, outboxes) = round;
        let data = graph.nodes.iter_mut().zip(&graph.edges);
        let args = inboxes.into_iter().zip(outboxes).zip(data);
        let args = args.map(|((inbox, outbox), (nodes, edges))| {
            (lend(inbox, outbox), Write(nodes), Read(edges))
        });
        let homes = &graph.homes;
        let written = session.on_each("bfs along pointers", args.enumerate().collect(), |_| {
            let homes = Arc::clone(homes);
            move |k: &mut KernelContext, spans| visit(k, spans, &homes, level, budget)
        })?;
        mail.deliver(written);
        level += 1;
        step();
    }
    Ok(graph.levels())
}

/// One level on one card.
fn visit(
    k: &mut KernelContext,
    ((inbox, mut outbox), _nodes, _edges): Spans,
    homes: &[Range<u64>],
    level: u32,
    budget: Budget,
) -> Result<Vec<usize>, KernelError> {
    let mut letters = vec![Vec::new(); homes.len()];
    for pointer in receive(k, &inbox, budget)? {
        let node = k.load(pointer)?;
        if node.level != UNREACHED {
            continue;
        }
        k.store(pointer.field::<u32>(offset_of!(Node, level)), level)?;
        let mut next = node.edges;
        while !next.is_null() {
            let edge = k.load(next)?;
            let address = edge.target.addr();
            let home = homes.iter().position(|home| home.contains(&address));
            letters[home.ok_or_else(|| k.fail("an edge leads out of the graph"))?]
                .push(edge.target);
            next = edge.next;
        }
    }
    send(k, &mut outbox, &letters, budget)
}
