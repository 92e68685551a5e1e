//! Pointer chase: one walk through all nodes in a random order, which the cards do in turns.

use farside::graph::reference::{CHASE_CHECKSUM_START, chase_step};
use farside::{Error, KernelContext, KernelError, Ptr, Read, ReadSpan};

use super::Session;
use super::linked::{LinkedGraph, Node};

/// How the walk goes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chase {
    /// The vertex that is visited first.
    pub(crate) start: u32,
    /// Visits in all.
    pub(crate) steps: u64,
    /// Visits before a card hands the pointer to the next card.
    pub(crate) stretch: u64,
}

impl Chase {
    /// One round through `vertices` nodes, in sixteen stretches.
    pub(crate) fn once_around(vertices: u32) -> Chase {
        let steps = u64::from(vertices);
        Chase { start: 0, steps, stretch: steps.div_ceil(16).max(1) }
    }

    /// How many stretches there are.
    pub(crate) fn stretches(self) -> u64 {
        self.steps.div_ceil(self.stretch)
    }
}

/// Walks; calls `step` after each stretch. Gives the checksum of the walk.
///
/// # Errors
/// Whatever a launch or a migration brings.
pub(crate) fn chase(
    session: &Session<'_>,
    graph: &LinkedGraph,
    plan: Chase,
    step: &dyn Fn(),
) -> Result<u64, Error> {
    let cards = graph.nodes.len();
    let mut at = graph.node(plan.start);
    let mut checksum = CHASE_CHECKSUM_START;
    let mut left = plan.steps;
    for stretch in 0.. {
        let steps = left.min(plan.stretch);
        if steps == 0 {
            break;
        }
        let card = stretch % cards;
        for nodes in &graph.nodes {
            session.bring(nodes, card)?;
        }
        let nodes: Vec<_> = graph.nodes.iter().map(|nodes| Read(nodes)).collect();
        let launch = session.space.kernel("pointer chase").on(session.card(card)?);
        (at, checksum) =
            launch.run(nodes, move |k, nodes| follow(k, &nodes, at, steps, checksum))?;
        left -= steps;
        step();
    }
    Ok(checksum)
}

/// One stretch. Gives the pointer to hand on, and the checksum so far.
fn follow(
    k: &mut KernelContext,
    _nodes: &[ReadSpan<Node>],
    mut at: Ptr<Node>,
    steps: u64,
    mut checksum: u64,
) -> Result<(Ptr<Node>, u64), KernelError> {
    for _ in 0..steps {
        let node = k.load(at)?;
        checksum = chase_step(checksum, node.vertex);
        at = node.chase;
    }
    Ok((at, checksum))
}
