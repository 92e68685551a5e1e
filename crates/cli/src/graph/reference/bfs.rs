//! Breadth-first search.

use crate::graph::Graph;

/// The level of a vertex that the search does not reach.
pub const UNREACHED: u32 = u32::MAX;

/// Vertices of high degree that are tried as a source.
const CANDIDATES: usize = 64;

/// No further candidate is tried once this many edges have been followed, so that a large graph does
/// not make the choice slower than the search.
const EDGES_FOLLOWED_MAX: u64 = 1 << 27;

/// The number of edges on a shortest path from `source` to each vertex, [`UNREACHED`] where there
/// is none. If `source` is not a vertex, nothing is reached.
pub fn bfs_levels(graph: &Graph, source: u32) -> Vec<u32> {
    let mut levels = vec![UNREACHED; graph.vertex_count() as usize];
    let Some(start) = levels.get_mut(source as usize) else {
        return levels;
    };
    *start = 0;
    let mut frontier = vec![source];
    let mut level = 0;
    while !frontier.is_empty() {
        level += 1;
        let mut next = Vec::new();
        for &vertex in &frontier {
            for &neighbour in graph.neighbours(vertex) {
                let found = &mut levels[neighbour as usize];
                if *found == UNREACHED {
                    *found = level;
                    next.push(neighbour);
                }
            }
        }
        frontier = next;
    }
    levels
}

/// A vertex to start a search from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BfsSource {
    /// The vertex.
    pub vertex: u32,
    /// How many vertices a search from it reaches, itself included.
    pub reached: u32,
}

/// Of the 64 vertices with most out-neighbours the one that reaches most, the lowest one of several;
/// `None` for an empty graph. On large graphs fewer than 64 may be tried.
pub fn best_source(graph: &Graph) -> Option<BfsSource> {
    let mut order: Vec<u32> = (0..graph.vertex_count()).collect();
    let key = |&vertex: &u32| (std::cmp::Reverse(graph.out_degree(vertex)), vertex);
    if order.len() > CANDIDATES {
        order.select_nth_unstable_by_key(CANDIDATES, key);
        order.truncate(CANDIDATES);
    }
    order.sort_unstable_by_key(key);
    let mut best: Option<BfsSource> = None;
    let mut edges_followed = 0;
    for vertex in order {
        let levels = bfs_levels(graph, vertex);
        let mut reached = 0;
        for (other, _) in (0u32..).zip(&levels).filter(|(_, level)| **level != UNREACHED) {
            reached += 1;
            edges_followed += graph.out_degree(other);
        }
        let better = best.is_none_or(|best| {
            reached > best.reached || (reached == best.reached && vertex < best.vertex)
        });
        if better {
            best = Some(BfsSource { vertex, reached });
        }
        if reached == graph.vertex_count() || edges_followed > EDGES_FOLLOWED_MAX {
            break;
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::VertexNames;
    use crate::graph::fuzz::Dice;

    fn graph(count: u32, edges: &[(u32, u32)]) -> Graph {
        Graph::from_edges(VertexNames::Counted { first: 0, count }, edges).unwrap()
    }

    #[test]
    fn levels_count_edges_on_a_shortest_path() {
        let graph = graph(6, &[(0, 1), (1, 2), (0, 2), (2, 3), (3, 0), (4, 0)]);
        assert_eq!(bfs_levels(&graph, 0), [0, 1, 1, 2, UNREACHED, UNREACHED]);
        assert_eq!(bfs_levels(&graph, 5)[5], 0);
        assert_eq!(bfs_levels(&graph, 6), [UNREACHED; 6]);
    }

    #[test]
    fn every_level_is_one_more_than_the_least_of_its_predecessors() {
        for seed in 0..100 {
            let mut dice = Dice::new(seed);
            let edges: Vec<(u32, u32)> =
                (0..60).map(|_| (dice.below(30) as u32, dice.below(30) as u32)).collect();
            let graph = graph(30, &edges);
            let levels = bfs_levels(&graph, 3);
            let reverse = graph.reverse();
            for vertex in (0..30).filter(|&v| v != 3) {
                let before = reverse.neighbours(vertex).iter().map(|&u| levels[u as usize]).min();
                let expected = before.unwrap_or(UNREACHED).saturating_add(1);
                assert_eq!(levels[vertex as usize], expected, "seed {seed}, vertex {vertex}");
            }
        }
    }

    #[test]
    fn the_best_source_reaches_most_not_just_its_neighbours() {
        // Vertex 0 has more neighbours; vertex 5 starts a long path.
        let graph = graph(11, &[(0, 1), (0, 2), (0, 3), (5, 6), (6, 7), (7, 8), (8, 9), (9, 10)]);
        assert_eq!(best_source(&graph), Some(BfsSource { vertex: 5, reached: 6 }));
    }

    #[test]
    fn the_lowest_of_equal_sources_is_taken_and_an_empty_graph_has_none() {
        let cycle = graph(3, &[(0, 1), (1, 2), (2, 0)]);
        assert_eq!(best_source(&cycle), Some(BfsSource { vertex: 0, reached: 3 }));
        assert_eq!(best_source(&graph(0, &[])), None);
        let star: Vec<(u32, u32)> = (1..200).map(|to| (100, to)).collect();
        assert_eq!(best_source(&graph(200, &star)), Some(BfsSource { vertex: 100, reached: 199 }));
    }
}
