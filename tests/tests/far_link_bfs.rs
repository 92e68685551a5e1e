//! Breadth-first search on a card of this machine and one at the other end of a link, near and far away:
//! the same levels, and round trips that are counted.

use std::sync::Arc;
use std::time::{Duration, Instant};

use farside::{
    Advice, CardId, CardPlace, Error, KernelArgs, KernelContext, KernelError, Read, ReadView,
    Space, Value, Write, WriteView,
};
use farside_softcard::serve::{CardConfig, CardServer};
use harness::Prng;
use harness::live::served::{FarHost, TcpRelay, TempDir, config, place, serve, test_kernels};
use harness::live::within;

const UNREACHED: u64 = u64::MAX;

/// Compressed sparse rows, and where a search begins.
struct Graph {
    offsets: Vec<u64>,
    targets: Vec<u64>,
}

impl Graph {
    fn random(vertices: u64, degree: u64) -> Graph {
        let mut rng = Prng::new(17);
        let (mut offsets, mut targets) = (vec![0], Vec::new());
        for _ in 0..vertices {
            targets.extend((0..rng.below(2 * degree)).map(|_| rng.below(vertices)));
            offsets.push(targets.len() as u64);
        }
        Graph { offsets, targets }
    }

    fn vertices(&self) -> usize {
        self.offsets.len() - 1
    }

    fn levels(&self) -> Vec<u64> {
        let mut levels = vec![UNREACHED; self.vertices()];
        let (mut frontier, mut level) = (vec![0], 0);
        while !frontier.is_empty() {
            let mut next = Vec::new();
            for vertex in frontier {
                if levels[vertex] == UNREACHED {
                    levels[vertex] = level;
                    let row = self.offsets[vertex] as usize..self.offsets[vertex + 1] as usize;
                    next.extend(self.targets[row].iter().map(|&target| target as usize));
                }
            }
            (frontier, level) = (next, level + 1);
        }
        levels
    }
}

/// One level on one card: gives those of the frontier that are its own and new their level, and puts
/// their neighbours into its box. A frontier and a box begin with how many they hold.
fn visit(k: &mut KernelContext, args: &KernelArgs) -> Result<u64, KernelError> {
    let (offsets, targets) = (args.read::<u64>(0)?, args.read::<u64>(1)?);
    let (frontier, levels) = (args.read::<u64>(2)?, args.write::<u64>(3)?);
    let (out, level, first) = (args.write::<u64>(4)?, args.value::<u64>(5)?, args.value::<u64>(6)?);
    let frontier = k.with(frontier, |frontier: ReadView<u64>| {
        (1..=frontier[0] as usize).map(|at| frontier[at] as usize).collect::<Vec<_>>()
    })?;
    let request = (offsets, targets, levels, out);
    type Views<'a> = (ReadView<'a, u64>, ReadView<'a, u64>, WriteView<'a, u64>, WriteView<'a, u64>);
    k.with(request, |(offsets, targets, mut levels, mut out): Views<'_>| {
        let mut count = 0;
        for vertex in frontier {
            let own = vertex.wrapping_sub(first as usize);
            if own < levels.len() && levels[own] == UNREACHED {
                levels[own] = level;
                for edge in offsets[vertex] as usize..offsets[vertex + 1] as usize {
                    count += 1;
                    out[count] = targets[edge];
                }
            }
        }
        out[0] = count as u64;
        count as u64
    })
}

struct Outcome {
    levels: Vec<u64>,
    rounds: u64,
    trips: u64,
    time: Duration,
}

/// Searches on both cards of a space at once.
fn search(space: &Space, graph: &Graph) -> Result<Outcome, Error> {
    let (vertices, edges) = (graph.vertices(), graph.targets.len());
    let mut offsets = space.alloc::<u64>(vertices + 1)?;
    offsets.copy_from_slice(&graph.offsets);
    let mut targets = space.alloc::<u64>(edges)?;
    targets.copy_from_slice(&graph.targets);
    space.advise(&offsets, Advice::ReadMostly(true))?;
    space.advise(&targets, Advice::ReadMostly(true))?;
    let half = vertices / 2;
    let mut parts = Vec::new();
    for (card, own) in [(CardId(0), 0..half), (CardId(1), half..vertices)] {
        let mut levels = space.alloc::<u64>(own.len())?;
        levels.fill(UNREACHED);
        let (mine, theirs) = (space.alloc::<u64>(edges + 1)?, space.alloc::<u64>(edges + 1)?);
        parts.push((card, own, levels, mine, theirs));
    }
    let mut frontier = vec![0u64];
    let (begun, before) = (Instant::now(), space.report().stats.awaited_trips);
    let mut rounds = 0;
    while !frontier.is_empty() {
        let (offsets, targets) = (&offsets, &targets);
        let found: Vec<Result<Vec<u64>, Error>> = std::thread::scope(|scope| {
            let each = parts.iter_mut().map(|(card, own, levels, inbox, out)| {
                inbox[0] = frontier.len() as u64;
                inbox[1..=frontier.len()].copy_from_slice(&frontier);
                scope.spawn(move || {
                    // What is known to be needed goes ahead: a fault would wait for the way there.
                    space.prefetch(&out[..], *card)?;
                    let value = (Value(rounds), Value(own.start as u64));
                    let args = (
                        Read(&offsets[..]),
                        Read(&targets[..]),
                        Read(&inbox[..]),
                        Write(&mut levels[..]),
                        Write(&mut out[..]),
                        value.0,
                        value.1,
                    );
                    let count = space.kernel("test.visit").on(*card).call(args)? as usize;
                    Ok(out[1..=count].to_vec())
                })
            });
            let threads: Vec<_> = each.collect();
            threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
        });
        frontier = found.into_iter().collect::<Result<Vec<_>, _>>()?.concat();
        frontier.sort_unstable();
        frontier.dedup();
        frontier.truncate(edges);
        rounds += 1;
    }
    let trips = space.report().stats.awaited_trips - before;
    let levels = parts.iter().flat_map(|(_, _, levels, ..)| levels.to_vec()).collect();
    Ok(Outcome { levels, rounds, trips, time: begun.elapsed() })
}

fn with_visit(config: CardConfig) -> CardServer {
    let kernels = test_kernels().with("test.visit", visit).expect("the name is new");
    serve(CardConfig { kernels: Arc::new(kernels), frames: 8192, ..config })
}

fn space(places: [CardPlace; 2]) -> Space {
    Space::builder().cards_at(places).address_space(64 << 20).build().unwrap()
}

#[test]
fn a_search_on_a_local_card_and_one_behind_a_link_waits_once_more_a_level_at_most() {
    within(Duration::from_secs(120), "searches", || {
        let graph = Graph::random(20_000, 6);
        let wanted = graph.levels();
        let folder = TempDir::new();
        let [a, b] = [0, 1].map(|card| with_visit(config(&folder, card)));
        let local = search(&space([place(&a), place(&b)]), &graph).unwrap();
        assert!(local.levels == wanted);
        println!("local: {} rounds, {} trips, {:?}", local.rounds, local.trips, local.time);
        let host = FarHost::start(folder.join("host"), &b.config().folder);
        for delay in [0, 1, 5].map(Duration::from_millis) {
            let relay = TcpRelay::start_slow(host.folder(), delay);
            let far = search(&space([place(&a), relay.place_by_link()]), &graph).unwrap();
            assert!(far.levels == wanted, "{delay:?}");
            println!("{delay:?}: {} rounds, {} trips, {:?}", far.rounds, far.trips, far.time);
            let budget = local.trips + far.rounds;
            assert!(far.trips <= budget, "{delay:?}: {} trips of {budget}", far.trips);
        }
    });
}
