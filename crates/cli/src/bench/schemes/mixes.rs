//! Programs that share the cards: at the same time, and one after the other.

use farside::Space;

use super::super::BenchError;
use super::super::counts::Ran;
use super::super::programs::{join, kmeans};
use super::Program;
use super::graph::Problem;
use super::streams::{is_sum, stream, values};

pub(super) fn programs() -> Result<Vec<Program>, BenchError> {
    let rows = join::Problem::new(1 << 18, 5 << 18, 1 << 19);
    let points = kmeans::Problem::new(25 << 20 >> 6);
    let graph = Problem::new()?;
    Ok(vec![
        Program::new("join beside stream", 16 << 20, move |space| beside(space, &rows)),
        Program::new("k-means, then BFS", 8 << 20, move |space| {
            let first = points.on_and_checked(space)?;
            Ok(first.then(graph.search(space)?))
        }),
    ])
}

/// Both at the same time, on all cards.
fn beside(space: &Space, rows: &join::Problem) -> Result<Ran, BenchError> {
    let mut values = values(space)?;
    let len = values.len();
    let shared = rows.share(space)?;
    let (ran, (joined, sum)) = Ran::measure(space, || {
        std::thread::scope(|scope| {
            let streaming = scope.spawn(|| stream(space, &mut values));
            let joined = shared.on_cards(space)?;
            let sum = streaming.join().map_err(|_| BenchError::Failed("a thread".into()))??;
            Ok::<_, BenchError>((joined, sum))
        })
    })?;
    ran.checked("join beside stream", joined == rows.plain().1 && is_sum(sum, len))
}
