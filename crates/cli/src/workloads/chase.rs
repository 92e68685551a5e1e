//! Pointer chase: one walk through all nodes in a random order, which the cards do in turns.
//!
//! Where the walk stands lies in shared memory too: a card reads where the last one left off.

use bytemuck::{Pod, Zeroable};
use farside::{Error, KernelArgs, KernelContext, KernelError, Ptr, Read, Value, Write};
use farside_cli::graph::reference::{CHASE_CHECKSUM_START, chase_step};

use super::Session;
use super::linked::{LinkedGraph, Node};

/// The kernel: one stretch of the walk. Takes the steps, where the walk stands, and the nodes.
pub(crate) const KERNEL: &str = "demo.chase";

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

/// Where the walk stands.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
struct Stand {
    at: Ptr<Node>,
    checksum: u64,
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
    let mut stand = session.space.alloc_named::<Stand>(1, "where the walk stands")?;
    stand[0] = Stand { at: graph.node(plan.start), checksum: CHASE_CHECKSUM_START };
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
        session.bring(&stand, card)?;
        let nodes: Vec<_> = graph.nodes.iter().map(|nodes| Read(nodes)).collect();
        let launch = session.space.kernel(KERNEL).on(session.card(card)?);
        launch.call((Value(steps), Write(&mut stand), nodes))?;
        left -= steps;
        step();
    }
    Ok(stand[0].checksum)
}

pub(super) fn follow(k: &mut KernelContext, args: &KernelArgs) -> Result<u64, KernelError> {
    let steps: u64 = args.value(0)?;
    let mut stand = args.write::<Stand>(1)?;
    let Stand { mut at, mut checksum } = k.with(stand.slice(..1), |stand| stand[0])?;
    for _ in 0..steps {
        let node = k.load(at)?;
        checksum = chase_step(checksum, node.vertex);
        at = node.chase;
    }
    k.with(stand.slice(..1), |mut stand| stand[0] = Stand { at, checksum })?;
    Ok(steps)
}
