//! Cards that are borrowed: two hosts on this machine, each a daemon with a folder of its own, and what
//! a lease costs against bare sockets in the same run.
//!
//! The program and the borrower's host have one processor, the lender's host and its card the other.

mod bulk;
mod cluster;
mod direct;
mod here;
mod hosts;
mod memory;
mod peers;
mod registers;
mod relay;
mod search;
mod waits;

use super::{BenchError, Effort, Row, pin, two_cpus};
use hosts::Hosts;

pub(super) fn run(effort: Effort) -> Result<Vec<Row>, BenchError> {
    let (program, _) = two_cpus();
    let hosts = Hosts::start()?;
    let _pinned = pin(program);
    let (mut rows, stream) = bulk::run(effort, &hosts)?;
    let (registers, hops) = registers::run(effort, &hosts, stream)?;
    rows.extend(registers);
    rows.extend(search::run(effort, &hosts, stream, hops)?);
    rows.extend(waits::run(effort, &hosts)?);
    rows.extend(memory::run(effort, &hosts)?);
    rows.extend(cluster::run(effort, &hosts.folder().join("cluster"))?);
    rows.extend(here::run(effort, &hosts)?);
    rows.extend(direct::run(effort, &hosts)?);
    Ok(rows)
}
