//! A graph in shared memory as nodes and edges that point to each other.
//!
//! What a program with ordinary data structures has: every node points to a list of its edges, every
//! edge to a node and to the next edge of the list. The nodes of a card's part, and their edges,
//! lie in memory in a random order, not in that of the vertices.

use std::ops::Range;

use bytemuck::{Pod, Zeroable};
use farside::{Buffer, Error, Ptr, Space};
use farside_cli::graph::Graph;
use farside_cli::graph::reference::{SplitMix64, UNREACHED};

use super::Parts;
use super::segments::share;

/// A vertex.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct Node {
    /// Its first edge; null if it has none.
    pub(crate) edges: Ptr<Edge>,
    /// The node that follows it on the pointer chase.
    pub(crate) chase: Ptr<Node>,
    /// Its number in the graph.
    pub(crate) vertex: u32,
    /// What breadth-first search found; [`UNREACHED`] before.
    pub(crate) level: u32,
    /// Makes nodes 32 bytes, so that none lies across two pages.
    pub(crate) unused: u64,
}

/// An edge.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct Edge {
    /// Where it leads.
    pub(crate) target: Ptr<Node>,
    /// The next edge of the same node; null at the end.
    pub(crate) next: Ptr<Edge>,
}

/// Where the nodes of a part are: the first address, and the one behind the last.
pub(crate) type Home = [u64; 2];

/// Nodes and edges, by part.
#[derive(Debug)]
pub(crate) struct LinkedGraph {
    pub(crate) nodes: Vec<Buffer<Node>>,
    pub(crate) edges: Vec<Buffer<Edge>>,
    /// Where each vertex's node is: part and place.
    places: Vec<(u32, u32)>,
    /// For each card a copy, on pages of its own: the homes of all parts' nodes.
    pub(crate) homes: Vec<Buffer<Home>>,
}

impl LinkedGraph {
    /// Builds the structure; `chase[v]` follows `v`. `seed` decides the order in memory.
    ///
    /// # Errors
    /// As [`Space::alloc`].
    pub(crate) fn new(
        space: &Space,
        graph: &Graph,
        parts: &Parts,
        chase: &[u32],
        seed: u64,
    ) -> Result<LinkedGraph, Error> {
        let mut random = SplitMix64::new(seed);
        let mut linked = LinkedGraph {
            nodes: Vec::new(),
            edges: Vec::new(),
            places: Vec::with_capacity(chase.len()),
            homes: Vec::new(),
        };
        for part in 0..parts.len() {
            let rows = parts.rows(part);
            let nodes = space.alloc_named(rows.len().max(1), &format!("nodes {part}"))?;
            linked.nodes.push(nodes);
            let places = shuffled(rows.len(), &mut random);
            linked.places.extend(places.into_iter().map(|place| (part as u32, place)));
        }
        let home = |nodes: &Buffer<Node>| {
            let start = nodes.addr().0;
            [start, start + size_of_val(&**nodes) as u64]
        };
        let homes: Vec<Home> = linked.nodes.iter().map(home).collect();
        for part in 0..parts.len() {
            linked.homes.push(share(space, &format!("homes, for card{part}"), &homes)?);
        }
        for part in 0..parts.len() {
            linked.link(space, graph, part, parts.rows(part), chase, &mut random)?;
        }
        Ok(linked)
    }

    /// Fills in the nodes of a part and their edges.
    fn link(
        &mut self,
        space: &Space,
        graph: &Graph,
        part: usize,
        rows: Range<usize>,
        chase: &[u32],
        random: &mut SplitMix64,
    ) -> Result<(), Error> {
        let count = (graph.offsets()[rows.end] - graph.offsets()[rows.start]) as usize;
        let mut edges = space.alloc_named::<Edge>(count.max(1), &format!("edges {part}"))?;
        let mut places = shuffled(count, random).into_iter();
        for row in rows {
            let mut first = Ptr::NULL;
            // From the last to the first, so that the list has them in order.
            for &target in graph.neighbours(row as u32).iter().rev() {
                let place = places.next().expect("there is a place for each edge") as usize;
                edges[place] = Edge { target: self.node(target), next: first };
                first = Ptr::to(&edges[place]);
            }
            let (vertex, next) = (row as u32, self.node(chase[row]));
            let node = Node { edges: first, chase: next, vertex, level: UNREACHED, unused: 0 };
            self.nodes[part][self.places[row].1 as usize] = node;
        }
        self.edges.push(edges);
        Ok(())
    }

    /// The node of a vertex.
    pub(crate) fn node(&self, vertex: u32) -> Ptr<Node> {
        let (part, place) = self.places[vertex as usize];
        let size = size_of::<Node>() as u64;
        Ptr::at(self.nodes[part as usize].addr().0 + u64::from(place) * size)
    }

    /// The part of a vertex.
    pub(crate) fn part(&self, vertex: u32) -> usize {
        self.places[vertex as usize].0 as usize
    }

    /// The levels that a search left in the nodes, by vertex. Read by the host: pages come back.
    pub(crate) fn levels(&self) -> Vec<u32> {
        let level = |&(part, place): &(u32, u32)| self.nodes[part as usize][place as usize].level;
        self.places.iter().map(level).collect()
    }
}

/// `0 .. count` in a random order (Fisher and Yates).
fn shuffled(count: usize, random: &mut SplitMix64) -> Vec<u32> {
    let mut order: Vec<u32> = (0..count as u32).collect();
    for last in (1..count).rev() {
        order.swap(last, random.below(last as u64 + 1) as usize);
    }
    order
}
