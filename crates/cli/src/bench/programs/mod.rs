//! Whole programs beside plain threads: the hash join and the k-means of `examples/`, and random accesses
//! to more than a card holds.

mod belady;
pub(super) mod join;
pub(super) mod kmeans;
mod random;

use super::{BenchError, Effort, Row};

pub(super) fn run(effort: Effort) -> Result<Vec<Row>, BenchError> {
    let mut rows = join::run(effort)?;
    rows.extend(kmeans::run(effort)?);
    rows.push(random::run(effort)?);
    Ok(rows)
}
