//! Whole programs beside plain threads: the hash join and the k-means of `examples/`, and random accesses
//! to more than a card holds.

mod belady;
mod join;
mod kmeans;
mod random;

use farside::Error;

use super::{Effort, Row};

pub(super) fn run(effort: Effort) -> Result<Vec<Row>, Error> {
    let mut rows = join::run(effort)?;
    rows.extend(kmeans::run(effort)?);
    rows.push(random::run(effort)?);
    Ok(rows)
}
