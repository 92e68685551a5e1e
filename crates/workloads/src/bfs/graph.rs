//! Graphs and their breadth-first search on the host.
//!
//! A random one is that of the recorded benchmark: a random spanning tree and random further edges up to a
//! mean degree. A chain is that of the published one. A [`Graph`] also knows along which edge the search first reaches each vertex, so
//! that the generated kernel needs no memory of what other wavefronts have written.

use std::ops::Range;

/// Bit of a word of the edge list: the search first reaches the neighbour along this edge.
const FINDS: u32 = 1 << 31;
/// The level of a vertex that has not been reached.
const NONE: u16 = u16::MAX;

/// A vertex's neighbours: `count` words of the edge list from word `first`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct List {
    pub first: u32,
    pub count: u32,
}

/// A graph with the levels of a search from vertex 0.
#[derive(Clone, Debug)]
pub(super) struct Graph {
    lists: Vec<List>,
    /// Neighbours, with [`FINDS`].
    edges: Vec<u32>,
    /// By vertex: its distance from vertex 0.
    levels: Vec<u16>,
    /// The greatest of them.
    depth: u32,
}

/// In which order the lists of neighbours lie in the edge list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// That of the vertices.
    Vertices,
    /// A vertex of each community in turn.
    Communities,
}

impl Graph {
    /// A graph of communities, each a range of vertices with random edges inside it and a mean
    /// degree of `degree`; vertex 0 is joined to the first vertex of every other community.
    pub(super) fn random(communities: &[Range<u32>], degree: u32, order: Order) -> Graph {
        let vertices = communities.last().map_or(0, |last| last.end) as usize;
        let mut random = Random(42);
        let mut pairs = Vec::with_capacity(vertices * degree as usize / 2 + 1);
        for community in communities {
            if community.start != 0 {
                pairs.push((0, community.start));
            }
            join(community, degree, &mut random, &mut pairs);
        }
        let lists = place(&pairs, vertices, communities, order);
        let mut edges = fill(&pairs, &lists);
        let levels = search(&lists, &mut edges);
        let depth = u32::from(levels.iter().copied().max().unwrap_or(0));
        Graph { lists, edges, levels, depth }
    }

    /// A directed graph with edges from each of the first `edges` vertices to the next one, and no others.
    pub(super) fn chain(vertices: u32, edges: u32) -> Graph {
        let edges = edges.min(vertices - 1);
        let mut lists = vec![List { first: edges, count: 0 }; vertices as usize];
        let mut levels = vec![NONE; vertices as usize];
        levels[0] = 0;
        for vertex in 0..edges {
            lists[vertex as usize] = List { first: vertex, count: 1 };
            levels[vertex as usize + 1] = vertex as u16 + 1;
        }
        let found = (1..=edges).map(|vertex| vertex | FINDS).collect();
        Graph { lists, edges: found, levels, depth: edges }
    }

    /// Words of the edge list.
    pub(super) fn edge_count(&self) -> u64 {
        self.edges.len() as u64
    }

    /// The greatest distance from vertex 0.
    pub(super) fn depth(&self) -> u32 {
        self.depth
    }

    /// Which of up to 32 vertices have this distance from vertex 0, a bit each.
    #[inline]
    pub(super) fn of_level(&self, vertices: Range<u32>, level: u32) -> u32 {
        let levels = &self.levels[vertices.start as usize..vertices.end as usize];
        let bit = |(at, &own): (u32, &u16)| u32::from(u32::from(own) == level) << at;
        (0..).zip(levels).map(bit).fold(0, |all, bit| all | bit)
    }

    /// Where the neighbours of `vertex` are.
    #[inline]
    pub(super) fn list(&self, vertex: u32) -> List {
        self.lists[vertex as usize]
    }

    /// The neighbours of a list, each with whether the search first reaches it from there.
    #[inline]
    pub(super) fn neighbours(&self, list: List) -> impl Iterator<Item = (u32, bool)> {
        let words = &self.edges[list.first as usize..][..list.count as usize];
        words.iter().map(|word| (word & !FINDS, word & FINDS != 0))
    }
}

/// Joins the vertices of a community: a tree in which each vertex hangs from a random earlier one,
/// then random edges.
fn join(community: &Range<u32>, degree: u32, random: &mut Random, pairs: &mut Vec<(u32, u32)>) {
    let (start, size) = (community.start, community.end - community.start);
    pairs.extend((1..size).map(|vertex| (start + random.below(vertex), start + vertex)));
    let wanted = size * degree / 2;
    let mut joined = size - 1;
    while joined < wanted {
        let (from, to) = (random.below(size), random.below(size));
        if from != to {
            pairs.push((start + from, start + to));
            joined += 1;
        }
    }
}

/// Where the list of each vertex lies.
fn place(
    pairs: &[(u32, u32)],
    vertices: usize,
    communities: &[Range<u32>],
    order: Order,
) -> Vec<List> {
    let mut lists = vec![List::default(); vertices];
    for &(from, to) in pairs {
        lists[from as usize].count += 1;
        lists[to as usize].count += 1;
    }
    let mut first = 0;
    let mut put = |vertex: u32| {
        let list = &mut lists[vertex as usize];
        list.first = first;
        first += list.count;
    };
    match order {
        Order::Vertices => (0..vertices as u32).for_each(put),
        Order::Communities => {
            let longest = communities.iter().map(ExactSizeIterator::len).max().unwrap_or(0) as u32;
            for index in 0..longest {
                let vertices = communities.iter().map(|range| range.start + index);
                let inside =
                    vertices.zip(communities).filter(|(vertex, range)| range.contains(vertex));
                inside.for_each(|(vertex, _)| put(vertex));
            }
        }
    }
    lists
}

/// The edge list: each edge in the lists of both ends, in the order of the edges.
fn fill(pairs: &[(u32, u32)], lists: &[List]) -> Vec<u32> {
    let mut next: Vec<u32> = lists.iter().map(|list| list.first).collect();
    let mut edges = vec![0; 2 * pairs.len()];
    let mut put = |at: u32, neighbour| {
        let word = &mut next[at as usize];
        edges[*word as usize] = neighbour;
        *word += 1;
    };
    for &(from, to) in pairs {
        put(from, to);
        put(to, from);
    }
    edges
}

/// Levels of a search from vertex 0; marks the edges along which it reaches a vertex first.
fn search(lists: &[List], edges: &mut [u32]) -> Vec<u16> {
    let mut levels = vec![NONE; lists.len()];
    levels[0] = 0;
    let mut found = vec![0];
    let mut from = 0;
    while let Some(&vertex) = found.get(from) {
        from += 1;
        let List { first, count } = lists[vertex as usize];
        for word in &mut edges[first as usize..][..count as usize] {
            let neighbour = *word;
            if levels[neighbour as usize] == NONE {
                levels[neighbour as usize] = levels[vertex as usize] + 1;
                found.push(neighbour);
                *word |= FINDS;
            }
        }
    }
    levels
}

/// SplitMix64 (Steele, Lea and Flood, *Fast splittable pseudorandom number generators*, 2014).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number less than `bound`.
    fn below(&mut self, bound: u32) -> u32 {
        (((self.next() >> 32) * u64::from(bound)) >> 32) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_vertex_is_found_once_and_has_a_neighbour_one_level_nearer() {
        for order in [Order::Vertices, Order::Communities] {
            let graph = Graph::random(&[0..300, 300..1000], 6, order);
            assert_eq!(graph.edge_count(), 2 * (3 * 1000 + 1));
            for vertex in 1..1000 {
                let neighbours = graph.neighbours(graph.list(vertex));
                let nearest = neighbours.map(|(other, _)| graph.levels[other as usize]).min();
                assert_eq!(nearest, Some(graph.levels[vertex as usize] - 1), "{order:?} {vertex}");
            }
            let all = (0..1000).flat_map(|vertex| graph.neighbours(graph.list(vertex)));
            let mut found: Vec<u32> = all.filter(|found| found.1).map(|found| found.0).collect();
            found.sort_unstable();
            assert!(found.into_iter().eq(1..1000), "each is reached along one edge");
            assert!((3..20).contains(&graph.depth()), "{}", graph.depth());
        }
    }

    #[test]
    fn edges_stay_in_their_community_but_for_those_of_vertex_0() {
        let communities = [0..300, 300..1000];
        let graph = Graph::random(&communities, 6, Order::Communities);
        let community = |vertex| communities.iter().position(|range| range.contains(&vertex));
        for vertex in 1..1000 {
            let neighbours = graph.neighbours(graph.list(vertex));
            let across = neighbours
                .map(|(other, _)| other)
                .filter(|&other| community(other) != community(vertex))
                .collect::<Vec<_>>();
            assert_eq!(across, if vertex == 300 { vec![0] } else { vec![] });
        }
    }

    #[test]
    fn a_chain_has_a_vertex_a_level_and_leaves_the_others_where_they_are() {
        let graph = Graph::chain(1000, 3);
        assert_eq!((graph.edge_count(), graph.depth()), (3, 3));
        let found = |vertex| graph.neighbours(graph.list(vertex)).collect::<Vec<_>>();
        assert_eq!([0, 2, 3, 999].map(found), [vec![(1, true)], vec![(3, true)], vec![], vec![]]);
        assert_eq!(
            (0..5).map(|level| graph.of_level(0..32, level)).collect::<Vec<_>>(),
            [1, 2, 4, 8, 0]
        );
        assert_eq!(Graph::chain(2, 3).edge_count(), 1, "no more edges than there are vertices for");
    }

    #[test]
    fn lists_follow_each_other_in_their_order() {
        let graph = Graph::random(&[0..3, 3..5], 2, Order::Communities);
        let mut order: Vec<u32> = (0..5).collect();
        order.sort_by_key(|&vertex| graph.list(vertex).first);
        assert_eq!(order, [0, 3, 1, 4, 2]);
    }
}
