//! The workloads on small graphs with awkward shapes, against the plain host run.

use std::cell::Cell;
use std::sync::Arc;

use farside::Space;
use farside_cli::graph::reference::{
    PageRank, SplitMix64, bfs_levels, chase_checksum, chase_cycle, pagerank as host_pagerank,
};
use farside_cli::graph::{Graph, VertexNames};

use super::segments::{edges_of, segments};
use super::*;

fn graph(vertices: u32, edges: &[(u32, u32)]) -> Graph {
    let names = VertexNames::Counted { first: 0, count: vertices };
    Graph::from_edges(names, edges).expect("edges are inside")
}

fn random_graph(vertices: u32, edges: usize, seed: u64) -> Graph {
    let mut random = SplitMix64::new(seed);
    let mut vertex = || random.below(u64::from(vertices)) as u32;
    let edges: Vec<_> = (0..edges).map(|_| (vertex(), vertex())).collect();
    graph(vertices, &edges)
}

/// Runs everything in both modes and compares.
fn check(graph: &Graph, cards: usize, card_memory: u64, source: u32) {
    for mode in [Mode::OnDemand, Mode::Managed] {
        for advise in [false, true] {
            let space =
                Space::builder().cards(cards).card_memory(card_memory).kernels(kernels()).build();
            let space = space.expect("this machine can run Farside");
            let session = Session { space: &space, mode, advise, card_memory };
            check_in(&session, graph, cards, source);
            space.check().expect("the driver's tables agree");
        }
    }
}

fn check_in(session: &Session<'_>, graph: &Graph, cards: usize, source: u32) {
    let reverse = graph.reverse();
    let parts = Arc::new(Parts::balanced(&reverse, cards));
    let next = chase_cycle(graph.vertex_count(), 5);
    let steps = Cell::new(0);
    let step = || steps.set(steps.get() + 1);
    let levels = bfs_levels(&reverse, source);
    let capacity = Mail::<u32>::capacity(&reverse, &parts);

    let mut linked = LinkedGraph::new(session.space, &reverse, &parts, &next, 9).unwrap();
    let mut mail = Mail::new(session.space, "pointers", &capacity).unwrap();
    let found = bfs_linked(session, &mut linked, &mut mail, source, &step).unwrap();
    assert_eq!(Difference::of_levels(graph, &found, &levels), None);
    assert!(steps.get() > 0, "progress is told");

    let csr = SharedCsr::new(session.space, &reverse, &parts, session.budget()).unwrap();
    let mut mail = Mail::new(session.space, "vertices", &capacity).unwrap();
    let mut memory = Levels::new(session.space, &parts).unwrap();
    let found = bfs_csr(session, &csr, &mut mail, &mut memory, source, &step).unwrap();
    assert_eq!(Difference::of_levels(graph, &found, &levels), None);

    let mut ranks = Ranks::new(session.space, graph).unwrap();
    let parameters = PageRank { iterations: 3, ..PageRank::default() };
    let found = pagerank(session, &csr, &mut ranks, parameters, &step).unwrap();
    assert_eq!(Difference::of_ranks(graph, &found, &host_pagerank(graph, parameters)), None);

    let plan = Chase::once_around(graph.vertex_count());
    let found = chase(session, &linked, plan, &step).unwrap();
    assert_eq!(found, chase_checksum(&next, plan.start, plan.steps));
}

const MIB: u64 = 1 << 20;

#[test]
fn a_graph_of_one_vertex() {
    check(&graph(1, &[]), 2, MIB, 0);
    check(&graph(1, &[(0, 0)]), 3, MIB, 0);
}

#[test]
fn fewer_vertices_than_cards_and_pages_that_cards_share() {
    check(&graph(3, &[(0, 1), (1, 2), (2, 0), (2, 2)]), 4, MIB, 1);
    check(&random_graph(100, 300, 1), 3, MIB, 0);
}

#[test]
fn a_graph_that_does_not_fit_into_the_cards() {
    // 40,000 edges take 640 KiB as a linked structure, and a card has 256 KiB.
    check(&random_graph(6_000, 40_000, 2), 2, MIB / 4, 17);
}

#[test]
fn a_vertex_with_more_edges_than_a_kernel_takes_at_once() {
    let mut edges: Vec<(u32, u32)> = (0..9_000).map(|vertex| (vertex, 7)).collect();
    edges.extend((0..8_999).map(|vertex| (vertex, vertex + 1)));
    check(&graph(9_000, &edges), 2, MIB / 4, 7);
}

#[test]
fn a_long_path_has_a_level_per_vertex() {
    let edges: Vec<(u32, u32)> = (0..200).map(|vertex| (vertex + 1, vertex)).collect();
    check(&graph(201, &edges), 2, MIB, 0);
}

#[test]
fn parts_hold_every_vertex_once_and_balance_the_edges() {
    for (vertices, edges, count) in [(1, 0, 1), (5, 3, 16), (10_000, 50_000, 3), (40_000, 9, 4)] {
        let graph = random_graph(vertices, edges, 3);
        let parts = Parts::balanced(&graph, count);
        assert_eq!(parts.len(), count);
        let rows: Vec<usize> = (0..count).flat_map(|part| parts.rows(part)).collect();
        assert_eq!(rows, (0..vertices as usize).collect::<Vec<_>>());
        assert!((0..vertices).all(|v| parts.rows(parts.owner(v)).contains(&(v as usize))));
        let largest = (0..count).map(|part| parts.rows(part).len()).max();
        assert!(largest <= Some(vertices as usize / count * 3 / 2 + 2), "{parts:?}");
    }
}

#[test]
fn segments_hold_every_edge_once_in_order_and_keep_the_limits() {
    let mut edges: Vec<(u32, u32)> = (0..50).map(|to| (20, to)).collect();
    edges.extend((0..30).map(|vertex| (vertex, vertex + 1)));
    let graph = graph(60, &edges);
    let cut = segments(graph.offsets(), 5..60, 7, 8);
    let mut seen: Vec<(usize, u32)> = Vec::new();
    for segment in &cut {
        assert!(segment.rows.len() <= 7 && segment.edges.len() <= 8, "{segment:?}");
        let offsets = &graph.offsets()[segment.rows.start..=segment.rows.end];
        let targets = &graph.targets()[segment.edges.clone()];
        for (index, row) in segment.rows.clone().enumerate() {
            let range = edges_of(offsets, index, &segment.edges);
            seen.extend(targets[range].iter().map(|&to| (row, to)));
        }
    }
    let all: Vec<(usize, u32)> =
        (5..60).flat_map(|v| graph.neighbours(v).iter().map(move |&to| (v as usize, to))).collect();
    assert_eq!(seen, all);
    assert!(cut.windows(2).all(|pair| pair[0].edges.end == pair[1].edges.start));
}

#[test]
fn a_difference_names_the_first_vertex() {
    let graph = graph(4, &[]);
    let levels = Difference::of_levels(&graph, &[0, 1, 2, 3], &[0, 1, u32::MAX, 4]).unwrap();
    assert_eq!(
        levels.to_string(),
        "vertex `2` has level 2 on the cards and not reached on the host (2 vertices differ)"
    );
    let ranks = Difference::of_ranks(&graph, &[0.0; 4], &[0.0, -0.0, 0.0, 0.0]).unwrap();
    assert!(ranks.to_string().contains("vertex `1`"), "bits count: {ranks}");
    assert_eq!(Difference::of_ranks(&graph, &[f64::NAN; 4], &[f64::NAN; 4]), None);
    assert!(Difference::of_levels(&graph, &[0], &[]).is_some());
    assert!(Difference::of_checksums(1, 2).is_some() && Difference::of_checksums(2, 2).is_none());
}
