//! The demo's programs on a random graph: breadth-first search and PageRank over compressed rows, and a
//! walk along pointers that the cards take in turns. Nothing is advised.

use std::sync::Arc;

use farside::{Error, Space};
use farside_cli::graph::reference::{
    PageRank, SplitMix64, bfs_levels, chase_checksum, chase_cycle, pagerank as plain_pagerank,
};
use farside_cli::graph::{Graph, VertexNames};

use super::super::BenchError;
use super::super::counts::Ran;
use super::Program;
use crate::workloads::{
    Chase, Levels, LinkedGraph, Mail, Mode, Parts, Ranks, Session, SharedCsr, bfs_csr, chase,
    pagerank,
};

const VERTICES: u32 = 1 << 16;
const EDGES: usize = 8 << 16;
/// Nodes of the walk, 32 bytes each: more than a processor's caches hold. What fits there is brought there
/// by each move from card to card, as software cards have the same processor.
const NODES: u32 = 1 << 18;
const SEED: u64 = 2026;
const CARD: u64 = 64 << 20;
const ITERATIONS: PageRank = PageRank { iterations: 10, damping: 0.85 };

/// A graph, its reverse, and how it is cut.
pub(super) struct Problem {
    graph: Graph,
    reverse: Graph,
    parts: Arc<Parts>,
    levels: Vec<u32>,
}

impl Problem {
    pub(super) fn new() -> Result<Problem, BenchError> {
        let mut random = SplitMix64::new(SEED);
        let mut vertex = || random.below(VERTICES.into()) as u32;
        let edges: Vec<_> = (0..EDGES).map(|_| (vertex(), vertex())).collect();
        let names = VertexNames::Counted { first: 0, count: VERTICES };
        let graph = Graph::from_edges(names, &edges)?;
        let reverse = graph.reverse();
        let parts = Arc::new(Parts::balanced(&reverse, super::CARDS));
        let levels = bfs_levels(&reverse, 0);
        Ok(Problem { graph, reverse, parts, levels })
    }

    pub(super) fn search(&self, space: &Space) -> Result<Ran, BenchError> {
        let session = session(space)?;
        let csr = SharedCsr::new(space, &self.reverse, &self.parts, session.budget())?;
        let mut mail =
            Mail::new(space, "frontier", &Mail::<u32>::capacity(&self.reverse, &self.parts))?;
        let mut levels = Levels::new(space, &self.parts)?;
        let search = || bfs_csr(&session, &csr, &mut mail, &mut levels, 0, &|| {});
        let (ran, found) = Ran::measure(space, search)?;
        ran.checked("BFS", found == self.levels)
    }

    fn rank(&self, space: &Space, expected: &[f64]) -> Result<Ran, BenchError> {
        let session = session(space)?;
        let csr = SharedCsr::new(space, &self.reverse, &self.parts, session.budget())?;
        let mut ranks = Ranks::new(space, &self.graph)?;
        let rank = || pagerank(&session, &csr, &mut ranks, ITERATIONS, &|| {});
        let (ran, found) = Ran::measure(space, rank)?;
        ran.checked("PageRank", found == expected)
    }
}

/// Nodes of which each points to the next of one random cycle, and nothing else.
struct Cycle {
    nodes: Graph,
    parts: Parts,
    next: Vec<u32>,
    plan: Chase,
    checksum: u64,
}

impl Cycle {
    fn new() -> Result<Cycle, BenchError> {
        let nodes = Graph::from_edges(VertexNames::Counted { first: 0, count: NODES }, &[])?;
        let parts = Parts::balanced(&nodes, super::CARDS);
        let (next, plan) = (chase_cycle(NODES, SEED), Chase::once_around(NODES));
        let checksum = chase_checksum(&next, plan.start, plan.steps);
        Ok(Cycle { nodes, parts, next, plan, checksum })
    }

    fn walk(&self, space: &Space) -> Result<Ran, BenchError> {
        let session = session(space)?;
        let linked = LinkedGraph::new(space, &self.nodes, &self.parts, &self.next, SEED)?;
        let (ran, found) = Ran::measure(space, || chase(&session, &linked, self.plan, &|| {}))?;
        ran.checked("chase", found == self.checksum)
    }
}

pub(super) fn programs() -> Result<Vec<Program>, BenchError> {
    let problem = Arc::new(Problem::new()?);
    let ranks = plain_pagerank(&problem.graph, ITERATIONS);
    let cycle = Cycle::new()?;
    let [search, rank] = [0; 2].map(|_| Arc::clone(&problem));
    Ok(vec![
        Program::new("BFS", CARD, move |space| search.search(space)),
        Program::new("PageRank", CARD, move |space| rank.rank(space, &ranks)),
        Program::new("chase", CARD, move |space| cycle.walk(space)),
    ])
}

fn session(space: &Space) -> Result<Session<'_>, Error> {
    let card_memory = space.card_memory(space.card(0)?)?;
    Ok(Session { space, mode: Mode::OnDemand, advise: false, card_memory })
}
