//! Breadth-first search: SHOC's `BFS_kernel_warp`, one launch per level.
//!
//! In every launch, each half of a wavefront looks at 32 vertices one after the other; where a
//! vertex is of the current level, its 32 lanes read its neighbours, look up their levels and
//! write those that have none. A neighbour found by several vertices in one launch is written by
//! one of them only: the one that the search on the host takes.

mod graph;

use std::ops::Range;

use graph::{Graph, List, Order};

use super::lanes::{Coalescer, Kernel, Memory, WORDS_PER_LINE, consecutive, cycles};
use super::{Buffer, Cursor, Instruction, Launch, Line, Lines, Workload};

/// Lanes that look at a vertex together, and vertices that they look at one after the other.
const HALF: u32 = 32;
const CHUNK: u32 = 32;
/// Vertices and work-items of a work-group.
const GROUP_ITEMS: u32 = 1024;
/// Wavefronts of a work-group.
const WAVES: u32 = 16;
/// Of a compute unit: 40 wavefront slots.
const GROUPS_PER_UNIT: u16 = 2;
/// Communities of the shared variant: one or more for each of 2 to 16 GPUs.
const COMMUNITIES: u32 = 16;
/// Edges of the chain (samples/bfs/main.go:17).
const CHAIN_EDGES: u32 = 3;

/// Bytes of the compiled kernel and of its arguments, as the recorded runs allocate them.
const CODE_BYTES: u64 = 648;
const ARGUMENT_BYTES: u64 = 96;

/// Numbers of the buffers, in the order in which the host allocates them.
const LEVELS: usize = 0;
const OFFSETS: usize = 1;
const EDGES: usize = 2;
const FLAG: usize = 3;
const KERNEL: usize = 4;

/// Which graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// The benchmark's own: edges between random vertices, lists of neighbours in the order of
    /// the vertices. The levels, few pages, are shared and get most accesses.
    Levels,
    /// Edges within communities that lie together, lists of neighbours dealt out to the
    /// communities in turn. The lists, most of the pages, are shared and get few accesses, as the
    /// GRIT paper describes its BFS (section III, Figure 4).
    Edges,
    /// The published benchmark's own: its generator makes as many edges as its `degree` says, 3 unless it is told, in
    /// all and not for each vertex, a chain from vertex 0 (MGPUSim v3.0.0, benchmarks/shoc/bfs/graph.go:21). Four
    /// launches look at all levels, and nothing else is used. Its 8 bytes a vertex are the 32 MB of the GRIT
    /// paper's Table II with 4 Mi vertices.
    Chain,
}

/// The search. See the module.
#[derive(Clone, Debug)]
pub struct Bfs {
    memory: Memory,
    kernel: Kernel,
    graph: Graph,
    sharing: Sharing,
    groups: u32,
}

/// Steps of a wavefront. Before `SCAN`: the prologue. Every load is followed by a wait.
mod step {
    /// A vertex of each half.
    pub(super) const SCAN: u32 = 10;
    pub(super) const SCAN_LOAD: u32 = 11;
    pub(super) const SCAN_WAIT: u32 = 12;
    /// Where the neighbours of those of the current level are.
    pub(super) const LIST: u32 = 13;
    pub(super) const LIST_LOAD: u32 = 14;
    pub(super) const LIST_WAIT: u32 = 15;
    /// Up to 32 neighbours of each.
    pub(super) const EDGES: u32 = 16;
    pub(super) const EDGES_LOAD: u32 = 17;
    /// Their levels.
    pub(super) const LEVELS: u32 = 19;
    pub(super) const LEVELS_LOAD: u32 = 20;
    pub(super) const LEVELS_WAIT: u32 = 21;
    /// Those that have none yet get one, and the host is told that there are such.
    pub(super) const FOUND: u32 = 22;
    pub(super) const FLAG: u32 = 23;
    /// Goes on with the next neighbours or the next vertex.
    pub(super) const AGAIN: u32 = 24;
}

/// A cursor's notes: which vertex of the chunk, from which neighbour on, and for each half which vertices of its
/// chunk are of the current level, a bit each.
const VERTEX: usize = 0;
const NEIGHBOUR: usize = 1;
const CURRENT: [usize; 2] = [2, 3];

impl Bfs {
    /// The smallest data footprint in bytes of the benchmark's graph: one work-group.
    pub const BYTES_MIN: u64 = GROUP_ITEMS as u64 * Sharing::Levels.vertex_bytes();

    /// The smallest data footprint in bytes of the other graph: a work-group for each community.
    pub const SHARED_BYTES_MIN: u64 =
        (GROUP_ITEMS * COMMUNITIES) as u64 * Sharing::Edges.vertex_bytes();

    /// The smallest data footprint in bytes of the chain: a work-group.
    pub const CHAIN_BYTES_MIN: u64 = GROUP_ITEMS as u64 * Sharing::Chain.vertex_bytes();

    /// The largest: the graph is kept in memory, and its vertices have numbers of 31 bits.
    pub const BYTES_MAX: u64 = 8 << 30;

    /// A search of a graph whose levels and edges have about `bytes`: whole work-groups. The graph
    /// itself is kept, so it takes about as much memory here.
    pub fn new(bytes: u64, sharing: Sharing) -> Bfs {
        let vertex_bytes = sharing.vertex_bytes();
        let least = if sharing == Sharing::Edges { COMMUNITIES } else { 1 };
        let groups = (bytes / (u64::from(GROUP_ITEMS) * vertex_bytes)).max(u64::from(least)) as u32;
        let graph = sharing.graph(groups);
        let vertices = u64::from(groups) * u64::from(GROUP_ITEMS);
        let offsets = match sharing {
            Sharing::Levels | Sharing::Chain => 4 * (vertices + 1),
            Sharing::Edges => 8 * vertices,
        };
        let edges = 4 * graph.edge_count();
        let mut buffers =
            vec![("levels", 4 * vertices), ("offsets", offsets), ("edges", edges), ("flag", 4)];
        buffers.extend(Kernel::buffers(CODE_BYTES, ARGUMENT_BYTES));
        let memory = Memory::new(&buffers);
        let kernel = Kernel::at(&memory, KERNEL);
        Bfs { memory, kernel, graph, sharing, groups }
    }

    fn prologue(&self, step: u32, lines: &mut Lines) -> Instruction {
        match step {
            0 | 1 | 6..=8 => lines.push(self.kernel.arguments),
            3 => lines.push(self.kernel.packet),
            2 | 4 | 9 => return Instruction::Wait,
            _ => return Instruction::Compute(cycles(60)),
        }
        Instruction::LoadScalar
    }

    /// The vertices that the halves of the wavefront look at.
    #[inline]
    fn vertices(at: &Cursor) -> [u32; 2] {
        let half = at.group * (GROUP_ITEMS / HALF) + 2 * u32::from(at.wave);
        [half, half + 1].map(|half| half * CHUNK + at.notes[VERTEX])
    }

    /// Notes which vertices of the chunks are of the current level: looked up once, since a wavefront that comes
    /// back to its vertices finds their levels in no cache.
    fn note_current(&self, at: &mut Cursor) {
        for (first, note) in Bfs::vertices(at).into_iter().zip(CURRENT) {
            at.notes[note] = self.graph.of_level(first..first + CHUNK, at.launch);
        }
    }

    /// Those of them that are of the current level.
    #[inline]
    fn current(at: &Cursor) -> impl Iterator<Item = u32> {
        let bits = CURRENT.map(|note| at.notes[note] >> at.notes[VERTEX] & 1 == 1);
        Bfs::vertices(at).into_iter().zip(bits).filter_map(|(vertex, is)| is.then_some(vertex))
    }

    /// For each half that is not done: where its next neighbours are.
    #[inline]
    fn pending(&self, at: &Cursor) -> impl Iterator<Item = List> {
        let done = at.notes[NEIGHBOUR];
        Bfs::current(at).filter_map(move |vertex| {
            let List { first, count } = self.graph.list(vertex);
            let left = count.checked_sub(done).filter(|&left| left > 0)?;
            Some(List { first: first + done, count: left.min(HALF) })
        })
    }

    /// Those neighbours, each with whether it gets its level from here.
    #[inline]
    fn neighbours(&self, at: &Cursor) -> impl Iterator<Item = (u32, bool)> {
        self.pending(at).flat_map(|list| self.graph.neighbours(list))
    }

    /// Adds the lines of the levels of some vertices.
    #[inline]
    fn levels(&self, vertices: impl Iterator<Item = u32>, lines: &mut Lines) {
        let (first, mut lanes) = (self.memory.first(LEVELS), Coalescer::default());
        for vertex in vertices {
            lanes.lane(lines, Line(first.0 + vertex / WORDS_PER_LINE));
        }
    }

    /// Adds the lines of where the lists of the current vertices begin and end.
    fn offsets(&self, at: &Cursor, lines: &mut Lines) {
        let first = self.memory.first(OFFSETS);
        let word = |vertex| match self.sharing {
            Sharing::Levels | Sharing::Chain => vertex,
            Sharing::Edges => 2 * vertex,
        };
        Bfs::current(at).for_each(|vertex| consecutive(lines, first, word(vertex), 2));
    }

    /// Where the wavefront goes on after step `step`.
    fn after(&self, step: u32, at: &mut Cursor) -> u32 {
        let goes_on = match step {
            step::SCAN_WAIT => Bfs::current(at).next().is_some(),
            step::LIST_WAIT => self.pending(at).next().is_some(),
            step::LEVELS_WAIT => {
                if self.neighbours(at).any(|(_, found)| found) {
                    return step::FOUND;
                }
                return step::AGAIN;
            }
            _ => return step + 1,
        };
        if goes_on {
            return step + 1;
        }
        at.notes[VERTEX] += 1;
        step::SCAN
    }
}

impl Workload for Bfs {
    fn name(&self) -> &str {
        match self.sharing {
            Sharing::Levels => "bfs",
            Sharing::Edges => "bfs-shared",
            Sharing::Chain => "bfs-chain",
        }
    }

    fn buffers(&self) -> &[Buffer] {
        self.memory.buffers()
    }

    fn launches(&self) -> u32 {
        // In the last one nobody finds anything, which tells the host to stop.
        self.graph.depth() + 1
    }

    fn launch(&self, _launch: u32) -> Launch {
        Launch {
            groups: self.groups,
            waves: WAVES as u16,
            groups_per_unit: GROUPS_PER_UNIT,
            code: self.kernel.code(),
        }
    }

    fn next(&self, at: &mut Cursor, lines: &mut Lines) -> Instruction {
        if at.step == step::AGAIN {
            at.notes[NEIGHBOUR] += HALF;
            at.step = step::EDGES;
            if self.pending(at).next().is_none() {
                at.notes[NEIGHBOUR] = 0;
                at.notes[VERTEX] += 1;
                at.step = step::SCAN;
            }
        }
        let step = at.step;
        if step < step::SCAN {
            at.step += 1;
            return self.prologue(step, lines);
        }
        if at.notes[VERTEX] == CHUNK {
            return Instruction::End;
        }
        if step == step::SCAN && at.notes[VERTEX] == 0 {
            self.note_current(at);
        }
        if step == step::SCAN_LOAD {
            // Most instructions are this one. The halves are two lines apart.
            at.step = step::SCAN_WAIT;
            let first = self.memory.first(LEVELS);
            let line = |vertex| Line(first.0 + vertex / WORDS_PER_LINE);
            Bfs::vertices(at).into_iter().for_each(|vertex| lines.push(line(vertex)));
            return Instruction::Load;
        }
        at.step = self.after(step, at);
        let instructions = match step {
            step::SCAN => 14,
            step::LIST => 9,
            step::EDGES => 8,
            step::LEVELS => 14,
            step::LIST_LOAD => {
                self.offsets(at, lines);
                return Instruction::Load;
            }
            step::EDGES_LOAD => {
                let first = self.memory.first(EDGES);
                self.pending(at).for_each(|list| consecutive(lines, first, list.first, list.count));
                return Instruction::Load;
            }
            step::LEVELS_LOAD => {
                self.levels(self.neighbours(at).map(|(vertex, _)| vertex), lines);
                return Instruction::Load;
            }
            step::FOUND => {
                let found = self.neighbours(at).filter(|&(_, found)| found);
                self.levels(found.map(|(vertex, _)| vertex), lines);
                return Instruction::Store;
            }
            step::FLAG => {
                lines.push(self.memory.first(FLAG));
                return Instruction::Store;
            }
            _ => return Instruction::Wait,
        };
        Instruction::Compute(cycles(instructions))
    }
}

impl Sharing {
    /// Mean neighbours of a vertex; of the chain there are next to none.
    const fn degree(self) -> u32 {
        match self {
            Sharing::Levels => 4,
            Sharing::Edges => 16,
            Sharing::Chain => 0,
        }
    }

    /// Bytes of data per vertex: its level, where its list is, its neighbours.
    const fn vertex_bytes(self) -> u64 {
        let offsets = match self {
            Sharing::Levels | Sharing::Chain => 4,
            Sharing::Edges => 8,
        };
        4 + offsets + 4 * self.degree() as u64
    }

    /// The graph for so many work-groups.
    fn graph(self, groups: u32) -> Graph {
        let (communities, order) = match self {
            Sharing::Levels => (1, Order::Vertices),
            Sharing::Edges => (COMMUNITIES, Order::Communities),
            Sharing::Chain => return Graph::chain(groups * GROUP_ITEMS, CHAIN_EDGES),
        };
        let start = |index| (groups * index / communities) * GROUP_ITEMS;
        let range = |index| -> Range<u32> { start(index)..start(index + 1) };
        let communities: Vec<Range<u32>> = (0..communities).map(range).collect();
        Graph::random(&communities, self.degree(), order)
    }
}
