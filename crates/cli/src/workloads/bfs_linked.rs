//! Breadth-first search along pointers, level by level.
//!
//! A card visits its own nodes only. It follows each node's list of edges, and hands the pointers
//! it finds to the cards whose nodes they point to: they are the next level's frontier.

use std::mem::offset_of;

use farside::{Error, KernelArgs, KernelContext, KernelError, Ptr, Read, Value, Write};
use farside_cli::graph::reference::UNREACHED;

use super::linked::{Home, LinkedGraph, Node};
use super::mail::{Boxes, Letters};
use super::segments::take;
use super::{Budget, Mail, Session};

/// The kernel: one level on one card. Takes the level, a [`Budget`], the homes of all parts' nodes,
/// its part's nodes and edges, and its mail.
pub(crate) const KERNEL: &str = "demo.bfs-pointers";

/// Searches from `source`; calls `step` after each level. Gives the levels by vertex.
///
/// # Errors
/// Whatever a launch or a migration brings.
pub(crate) fn bfs_linked(
    session: &Session<'_>,
    graph: &mut LinkedGraph,
    mail: &mut Mail<Ptr<Node>>,
    source: u32,
    step: &dyn Fn(),
) -> Result<Vec<u32>, Error> {
    let start = graph.node(source);
    mail.begin(graph.part(source), start);
    for part in 0..graph.nodes.len() {
        session.bring(&graph.nodes[part], part)?;
        session.bring(&graph.edges[part], part)?;
        session.bring(&graph.homes[part], part)?;
    }
    let mut level = 0u32;
    while !mail.is_empty() {
        let mut args = Vec::new();
        let data = graph.nodes.iter_mut().zip(&graph.edges).zip(&graph.homes);
        for (part, (round, data)) in mail.round().into_iter().zip(data).enumerate() {
            round.bring(session, part)?;
            let plan = (Value(level), session.budget().argument());
            let ((nodes, edges), homes) = data;
            args.push((plan, Read(homes), Write(nodes), Read(edges), round.lend()));
        }
        session.on_each(KERNEL, args)?;
        mail.deliver();
        level += 1;
        step();
    }
    Ok(graph.levels())
}

pub(super) fn visit(k: &mut KernelContext, args: &KernelArgs) -> Result<u64, KernelError> {
    let level: u32 = args.value(0)?;
    let budget = Budget::of(args, 1)?;
    let homes = take(k, &args.read::<Home>(2)?, budget)?;
    let mut boxes = Boxes::of(args, 5)?;
    let mut letters = boxes.letters();
    let mut visited = 0;
    for pointer in boxes.receive(k, budget)? {
        visited += u64::from(visit_node(k, pointer, level, &homes, &mut letters)?);
    }
    boxes.send(k, &letters, budget)?;
    Ok(visited)
}

/// Visits a node, unless somebody has been there.
fn visit_node(
    k: &mut KernelContext,
    pointer: Ptr<Node>,
    level: u32,
    homes: &[Home],
    letters: &mut Letters<Ptr<Node>>,
) -> Result<bool, KernelError> {
    let node = k.load(pointer)?;
    if node.level != UNREACHED {
        return Ok(false);
    }
    k.store(pointer.field::<u32>(offset_of!(Node, level)), level)?;
    let mut next = node.edges;
    while !next.is_null() && !letters.is_too_many() {
        let edge = k.load(next)?;
        let address = edge.target.addr();
        let home = homes.iter().position(|[start, end]| (*start..*end).contains(&address));
        let home = home.ok_or_else(|| k.fail("an edge leads out of the graph"))?;
        letters.push(home, edge.target);
        next = edge.next;
    }
    Ok(true)
}
