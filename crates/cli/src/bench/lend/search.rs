//! Breadth-first search of `farside demo` on a card of this host and a borrowed one, near and far away.

use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use farside::{CardId, CardPlace, Space, Stats};
use farside_cli::graph::reference::{best_source, bfs_levels};
use farside_cli::graph::{Graph, bundled};
use farside_types::PAGE_SIZE;

use super::super::{BenchError, Effort, Row, Target, median, pin};
use super::hosts::{CARD_BYTES, Hosts, failed};
use super::peers::{PingPong, echo};
use super::registers::Hops;
use super::relay::{delayed, relay};
use crate::workloads::{Levels, Mail, Mode, Parts, Session, SharedCsr, bfs_csr, kernels};

/// How far away the lender is, one way, and what it is called.
const NAMES: [(u64, [&str; 2]); 3] = [
    (0, ["BFS, local and borrowed card, no delay", "its trips"]),
    (1, ["BFS, local and borrowed card, 1 ms each way", "its trips, 1 ms each way"]),
    (5, ["BFS, local and borrowed card, 5 ms each way", "its trips, 5 ms each way"]),
];
/// Searches for a number, at most: each takes a space of its own.
const SEARCHES_MAX: usize = 5;
/// Small messages through the relay.
const MESSAGES: usize = 40;

/// A graph, and what is to be found in it.
struct Problem {
    reverse: Graph,
    source: u32,
    levels: Vec<u32>,
}

/// The median search.
struct Found {
    seconds: f64,
    trips: f64,
    /// Bytes that were moved to or from the second card.
    bytes: f64,
}

/// The rows. `stream` is what bare rustls carries, in bytes a second.
pub(super) fn run(
    effort: Effort,
    hosts: &Hosts,
    stream: f64,
    hops: Hops,
) -> Result<Vec<Row>, BenchError> {
    let problem = Problem::bundled()?;
    let local = {
        let _pinned = pin(hosts.server_cpu());
        [hosts.serve_card("card1")?, hosts.serve_card("card2")?]
    };
    let searches = effort.samples.min(SEARCHES_MAX);
    let both = problem.search(searches, &local)?;
    let (_borrowing, borrowed) = hosts.borrow("b")?;
    let mut rows = Vec::new();
    for (millis, [name, trips]) in NAMES {
        let delay = Duration::from_millis(millis);
        let (place, round_trip) = match millis {
            0 => (borrowed.clone(), hops.all()),
            _ => {
                let folder = hosts.folder().join(format!("far{millis}"));
                let place = delayed(&borrowed, &folder, delay)?;
                (place, relayed(hosts, delay)? + hops.tcp + hops.unix)
            }
        };
        let found = problem.search(searches, &[local[0].clone(), place])?;
        let waits = 1.3 * found.trips * round_trip / 1e6;
        let bound = both.seconds + waits + found.bytes / stream;
        let detail = format!(
            "{:.1} ms; two local cards {:.1} ms, {:.0} trips of {:.2} ms, {:.1} MB",
            found.seconds * 1e3,
            both.seconds * 1e3,
            found.trips,
            round_trip / 1e3,
            found.bytes / 1e6,
        );
        rows.push(Row::new(name, found.seconds / bound, Target::AtMost(1.0), "x bound", detail));
        let detail = "waited for by the driver; the target is what two local cards need".to_owned();
        rows.push(Row::new(trips, found.trips, Target::AtMost(both.trips), "trips", detail));
    }
    Ok(rows)
}

/// What a small message needs through the relay and back, in microseconds.
fn relayed(hosts: &Hosts, delay: Duration) -> Result<f64, BenchError> {
    let [near, far] =
        ["here", "there"].map(|name| hosts.folder().join(format!("{name}{}", delay.as_millis())));
    let listener = UnixListener::bind(&far)?;
    relay(&near, far, delay)?;
    let here = UnixStream::connect(near)?;
    echo(listener.accept()?.0, hosts.server_cpu())?;
    Ok(PingPong::of(here).micros(MESSAGES)?)
}

impl Problem {
    fn bundled() -> Result<Problem, BenchError> {
        let reverse = bundled()?.graph.reverse();
        let source = best_source(&reverse).ok_or_else(|| failed("the graph is empty"))?.vertex;
        let levels = bfs_levels(&reverse, source);
        Ok(Problem { reverse, source, levels })
    }

    /// Searches so many times on two cards, each time in a new space, and checks what is found.
    fn search(&self, searches: usize, places: &[CardPlace; 2]) -> Result<Found, BenchError> {
        let (mut seconds, mut trips, mut bytes) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..searches {
            let space = Space::builder().kernels(kernels()).cards_at(places.to_vec()).build()?;
            let session = Session {
                space: &space,
                mode: Mode::Managed,
                advise: true,
                card_memory: CARD_BYTES,
            };
            let parts = Arc::new(Parts::balanced(&self.reverse, places.len()));
            let capacity = Mail::<u32>::capacity(&self.reverse, &parts);
            let csr = SharedCsr::new(&space, &self.reverse, &parts, session.budget())?;
            let mut mail = Mail::new(&space, "frontier", &capacity)?;
            let mut levels = Levels::new(&space, &parts)?;
            let before = space.report().stats;
            let begun = Instant::now();
            let found = bfs_csr(&session, &csr, &mut mail, &mut levels, self.source, &|| {})?;
            seconds.push(begun.elapsed().as_secs_f64());
            if found != self.levels {
                return Err(failed("a search found something else than a plain one"));
            }
            let after = space.report().stats;
            trips.push((after.awaited_trips - before.awaited_trips) as f64);
            bytes.push(moved(&after) - moved(&before));
        }
        Ok(Found { seconds: median(seconds), trips: median(trips), bytes: median(bytes) })
    }
}

/// Bytes that were moved to or from the second card.
fn moved(stats: &Stats) -> f64 {
    let second = CardId(1).memory();
    let of_it = |from: Option<_>, to| from.is_some_and(|from| from == second) || to == second;
    // What is filled with zeros comes from nowhere.
    let moves = stats.moves.iter().filter(|((from, to), _)| from.is_some() && of_it(*from, *to));
    moves.map(|(_, pages)| pages * PAGE_SIZE as u64).sum::<u64>() as f64
}
