//! Cards that are borrowed: two hosts on this machine, each a daemon with a folder of its own, and what
//! a lease costs against bare sockets in the same run.
//!
//! The program and the borrower's host have one processor, the lender's host and its card the other.

mod bulk;
<<<<<<< HEAD
mod cluster;
=======
mod here;
>>>>>>> main
mod hosts;
mod peers;
mod registers;
mod relay;
mod search;
mod waits;

use super::Target::AtMost;
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
<<<<<<< HEAD
    rows.extend(cluster::run(effort, &hosts.folder().join("cluster"))?);
=======
    rows.extend(here::run(effort, &hosts)?);
>>>>>>> main
    rows.extend(not_yet());
    Ok(rows)
}

/// What was promised and is not there to be measured.
<<<<<<< HEAD
fn not_yet() -> [Row; 3] {
    let local = "a card that is borrowed on its own machine goes through both ends of a lease as well: \
                 its memory is not handed to the borrower yet";
    let foreign = "the daemon starts no ends for foreign vfio-user devices yet";
    [
        Row::unmeasured("DMA, mapped BARs, same machine", AtLeast(0.97), "x not borrowed", local),
        Row::unmeasured("trapped registers, foreign device", AtMost(2.2), "x direct", foreign),
        Row::unmeasured("interrupt to the client's eventfd", AtMost(1.2), "x half a trip", foreign),
    ]
=======
fn not_yet() -> [Row; 1] {
    [Row::unmeasured(
        "100 hosts, 1,000 devices, 10,000 borrows: view converges",
        AtMost(2.0),
        "s",
        "there is no simulation of many daemons in one process yet",
    )]
>>>>>>> main
}
