//! The graph itself, in compressed sparse rows.

use std::borrow::Cow;

use super::{GraphError, VertexNames};

/// Most vertices of a graph. One number of 32 bits is kept free: it means "not reached".
pub const VERTICES_MAX: u32 = u32::MAX;

/// A directed graph in compressed sparse rows (CSR).
///
/// The out-neighbours of vertex `v` are `targets[offsets[v] .. offsets[v + 1]]`, ascending and
/// without repetition. Edges from a vertex to itself are kept.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Graph {
    names: VertexNames,
    offsets: Vec<u64>,
    targets: Vec<u32>,
}

impl Graph {
    /// Builds a graph from its edges `(from, to)`, in any order; repeated edges count once.
    ///
    /// A counting sort by `from`, then each row is sorted: time about linear in the edges.
    ///
    /// # Errors
    /// [`GraphError::NoSuchVertex`] if an edge names a vertex without a name.
    pub fn from_edges(names: VertexNames, edges: &[(u32, u32)]) -> Result<Graph, GraphError> {
        let vertices = names.len();
        let outside = |vertex: u32| vertex as usize >= vertices;
        if let Some(&(from, to)) = edges.iter().find(|edge| outside(edge.0) || outside(edge.1)) {
            let vertices = vertices as u64;
            return Err(GraphError::NoSuchVertex { from, to, vertices });
        }
        let (mut offsets, mut targets) = counting_sort(vertices, edges.iter().copied());
        sort_rows(&mut offsets, &mut targets);
        Ok(Graph { names, offsets, targets })
    }

    /// The same vertices with every edge turned round.
    pub fn reverse(&self) -> Graph {
        let turned = (0..self.vertex_count())
            .flat_map(|from| self.neighbours(from).iter().map(move |&to| (to, from)));
        // Sources are visited in ascending order and the sort is stable: rows come out ascending.
        let (offsets, targets) = counting_sort(self.names.len(), turned);
        Graph { names: self.names.clone(), offsets, targets }
    }

    /// How many vertices there are; they are numbered from 0.
    pub fn vertex_count(&self) -> u32 {
        u32::try_from(self.names.len()).unwrap_or(VERTICES_MAX)
    }

    /// How many edges there are.
    pub fn edge_count(&self) -> u64 {
        self.targets.len() as u64
    }

    /// Where each vertex's row starts in [`targets`](Self::targets), and at last the number of edges:
    /// one more entry than there are vertices.
    pub fn offsets(&self) -> &[u64] {
        &self.offsets
    }

    /// The rows, one after the other.
    pub fn targets(&self) -> &[u32] {
        &self.targets
    }

    /// The out-neighbours of `vertex`, ascending.
    ///
    /// # Panics
    /// If there is no such vertex.
    pub fn neighbours(&self, vertex: u32) -> &[u32] {
        let row = vertex as usize;
        &self.targets[self.offsets[row] as usize..self.offsets[row + 1] as usize]
    }

    /// How many edges leave `vertex`.
    ///
    /// # Panics
    /// If there is no such vertex.
    pub fn out_degree(&self, vertex: u32) -> u64 {
        let row = vertex as usize;
        self.offsets[row + 1] - self.offsets[row]
    }

    /// What the vertices are called.
    pub fn names(&self) -> &VertexNames {
        &self.names
    }

    /// What `vertex` is called; `None` if there is no such vertex.
    pub fn name(&self, vertex: u32) -> Option<Cow<'_, str>> {
        self.names.get(vertex)
    }
}

/// Stable counting sort of edges by their first vertex. Every edge must be inside the graph.
fn counting_sort(
    vertices: usize,
    edges: impl Iterator<Item = (u32, u32)> + Clone,
) -> (Vec<u64>, Vec<u32>) {
    let mut offsets = vec![0u64; vertices + 1];
    for (from, _) in edges.clone() {
        offsets[from as usize + 1] += 1;
    }
    for row in 0..vertices {
        offsets[row + 1] += offsets[row];
    }
    let mut targets = vec![0u32; offsets[vertices] as usize];
    // While rows fill, an offset is where its row's next edge goes: at the end, where the row ends.
    for (from, to) in edges {
        let next = &mut offsets[from as usize];
        targets[*next as usize] = to;
        *next += 1;
    }
    // The end of one row is the start of the next.
    offsets.copy_within(0..vertices, 1);
    offsets[0] = 0;
    (offsets, targets)
}

/// Sorts each row and removes repetitions, closing the gaps.
fn sort_rows(offsets: &mut [u64], targets: &mut Vec<u32>) {
    let mut kept = 0;
    let mut start = 0;
    for end in &mut offsets[1..] {
        let row = start..*end as usize;
        start = row.end;
        targets[row.clone()].sort_unstable();
        let first_kept = kept;
        for index in row {
            let target = targets[index];
            if kept == first_kept || targets[kept - 1] != target {
                targets[kept] = target;
                kept += 1;
            }
        }
        *end = kept as u64;
    }
    targets.truncate(kept);
    targets.shrink_to_fit();
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::graph::fuzz::Dice;

    fn counted(count: u32) -> VertexNames {
        VertexNames::Counted { first: 0, count }
    }

    #[test]
    fn rows_are_ascending_and_repeated_edges_count_once() {
        let edges = [(2, 0), (0, 2), (0, 1), (0, 2), (2, 2), (2, 0)];
        let graph = Graph::from_edges(counted(4), &edges).expect("edges are inside");
        assert_eq!(graph.offsets(), [0, 2, 2, 4, 4]);
        assert_eq!(graph.targets(), [1, 2, 0, 2]);
        assert_eq!(graph.neighbours(2), [0, 2]);
        assert_eq!((graph.vertex_count(), graph.edge_count(), graph.out_degree(0)), (4, 4, 2));
    }

    #[test]
    fn a_graph_may_be_empty() {
        let graph = Graph::from_edges(counted(0), &[]).expect("nothing is inside nothing");
        assert_eq!(graph.offsets(), [0]);
        assert_eq!(graph.reverse(), graph);
    }

    #[test]
    fn an_edge_out_of_the_graph_is_refused() {
        for edge in [(3, 0), (0, 3), (u32::MAX, u32::MAX)] {
            let error = Graph::from_edges(counted(3), &[(0, 1), edge]).expect_err("3 vertices");
            assert!(error.to_string().contains("has 3 vertices"), "{error}");
        }
    }

    #[test]
    fn random_graphs_hold_exactly_their_edges_and_turn_round_twice_to_themselves() {
        for seed in 0..200 {
            let mut dice = Dice::new(seed);
            let vertices = 1 + dice.below(20) as u32;
            let edges: Vec<(u32, u32)> = (0..dice.below(100))
                .map(|_| {
                    (dice.below(u64::from(vertices)) as u32, dice.below(u64::from(vertices)) as u32)
                })
                .collect();
            let graph = Graph::from_edges(counted(vertices), &edges).expect("edges are inside");
            let held: Vec<(u32, u32)> = (0..vertices)
                .flat_map(|v| graph.neighbours(v).iter().map(move |&to| (v, to)))
                .collect();
            let expected: Vec<(u32, u32)> =
                edges.iter().copied().collect::<BTreeSet<_>>().into_iter().collect();
            assert_eq!(held, expected, "seed {seed}");
            let reverse = graph.reverse();
            for &(from, to) in &edges {
                assert!(reverse.neighbours(to).binary_search(&from).is_ok(), "seed {seed}");
            }
            assert_eq!(reverse.reverse(), graph, "seed {seed}");
        }
    }
}
