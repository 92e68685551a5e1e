//! PageRank, by power iteration.
//!
//! Source: L. Page, S. Brin, R. Motwani, T. Winograd, "The PageRank Citation Ranking: Bringing Order
//! to the Web", Stanford InfoLab, 1999; the rank of vertices without out-neighbours is spread evenly.

use crate::graph::Graph;

/// How PageRank is computed.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct PageRank {
    /// Part of a vertex's rank that its neighbours get, from 0 to 1.
    pub damping: f64,
    /// How many times ranks are passed on.
    pub iterations: u32,
}

impl Default for PageRank {
    /// Damping 0.85 and 20 iterations.
    fn default() -> PageRank {
        PageRank { damping: 0.85, iterations: 20 }
    }
}

/// The rank of each vertex; they add up to 1.
///
/// To get the same bits elsewhere, compute in IEEE 754 double precision, for `n` vertices that all
/// start with `1 / n`, in each iteration:
///
/// 1. `base` as [`pagerank_base`] does;
/// 2. `share[u] = rank[u] / out_degree[u]` for each `u` with out-neighbours;
/// 3. `sum[v] = 0.0 + share[u1] + share[u2] + …` over the in-neighbours of `v` ascending;
/// 4. `rank[v] = base + damping * sum[v]`, without fused multiply-add.
pub fn pagerank(graph: &Graph, parameters: PageRank) -> Vec<f64> {
    let reverse = graph.reverse();
    let vertices = graph.vertex_count();
    let out_degrees: Vec<u64> = (0..vertices).map(|vertex| graph.out_degree(vertex)).collect();
    let mut rank = vec![1.0 / f64::from(vertices); vertices as usize];
    let mut share = vec![0.0; vertices as usize];
    for _ in 0..parameters.iterations {
        let base = pagerank_base(&rank, &out_degrees, parameters.damping);
        for ((share, rank), &degree) in share.iter_mut().zip(&rank).zip(&out_degrees) {
            *share = rank / degree as f64;
        }
        for (vertex, rank) in (0u32..).zip(&mut rank) {
            let mut sum = 0.0;
            for &from in reverse.neighbours(vertex) {
                sum += share[from as usize];
            }
            *rank = base + parameters.damping * sum;
        }
    }
    rank
}

/// What every vertex gets in one iteration whatever its neighbours:
/// `((1 - damping) + damping * dangling) / n`, where `dangling` is the sum of the ranks of vertices
/// without out-neighbours, added up in ascending order. `out_degrees` belongs to the same vertices.
pub fn pagerank_base(rank: &[f64], out_degrees: &[u64], damping: f64) -> f64 {
    let mut dangling = 0.0;
    for (rank, &degree) in rank.iter().zip(out_degrees) {
        if degree == 0 {
            dangling += rank;
        }
    }
    ((1.0 - damping) + damping * dangling) / rank.len() as f64
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
    fn ranks_on_a_cycle_are_equal() {
        let ranks = pagerank(&graph(4, &[(0, 1), (1, 2), (2, 3), (3, 0)]), PageRank::default());
        assert!(ranks.iter().all(|rank| (rank - 0.25).abs() < 1e-15), "{ranks:?}");
    }

    #[test]
    fn a_small_graph_by_hand() {
        // 0 -> 1, and 1 is dangling. One iteration: base = (0.15 + 0.85 * 0.5) / 2.
        let one = PageRank { damping: 0.85, iterations: 1 };
        let ranks = pagerank(&graph(2, &[(0, 1)]), one);
        let base = ((1.0 - 0.85) + 0.85 * 0.5) / 2.0;
        assert_eq!(ranks, [base, base + 0.85 * 0.5]);
    }

    #[test]
    fn ranks_add_up_to_one_with_dangling_vertices_too() {
        for seed in 0..50 {
            let mut dice = Dice::new(seed);
            let edges: Vec<(u32, u32)> =
                (0..80).map(|_| (dice.below(50) as u32, dice.below(50) as u32)).collect();
            let ranks = pagerank(&graph(50, &edges), PageRank::default());
            let sum: f64 = ranks.iter().sum();
            assert!((sum - 1.0).abs() < 1e-12, "seed {seed}: {sum}");
        }
    }

    #[test]
    fn no_vertex_and_no_iteration() {
        assert!(pagerank(&graph(0, &[]), PageRank::default()).is_empty());
        let none = PageRank { iterations: 0, ..PageRank::default() };
        assert_eq!(pagerank(&graph(2, &[(0, 1)]), none), [0.5, 0.5]);
    }
}
