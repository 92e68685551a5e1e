//! A register of a borrowed card, while nothing else happens and while much data is on its way.

use std::time::Instant;

use farside::CardId;
use farside_card::interface::{DmaAddr, Extent, register};
use farside_linux::shared::SharedMemory;
use farside_live::ring_card::{DmaPiece, MoveOrder, Transport, connect};
use farside_types::PAGE_SIZE;

use super::super::{BenchError, Effort, Row, Target, median, two_cpus};
use super::hosts::{Hosts, LIMIT, failed};
use super::peers::{tcp_ping_pong, unix_ping_pong};

/// Bytes that are on their way meanwhile.
const BYTES: u64 = 64 << 20;
/// Where they come from, for the card.
const BUS: u64 = 1 << 32;
/// Reads for each sample.
const READS: usize = 200;

/// What the hops of a path cost bare, in microseconds there and back.
#[derive(Clone, Copy)]
pub(super) struct Hops {
    pub(super) tcp: f64,
    pub(super) unix: f64,
}

impl Hops {
    fn measure(rounds: usize, hosts: &Hosts) -> Result<Hops, BenchError> {
        let tcp = tcp_ping_pong(hosts.server_cpu())?.micros(rounds)?;
        // Both ends of a UNIX hop of a lease have one processor.
        Ok(Hops { tcp, unix: unix_ping_pong(two_cpus().0)?.micros(rounds)? })
    }

    /// All that a register read takes: from the program to the borrower's end, to the lender's, and to
    /// the card.
    pub(super) fn all(self) -> f64 {
        self.tcp + 2.0 * self.unix
    }
}

/// The rows, and the bare hops. `stream` is what bare rustls carries, in bytes a second.
pub(super) fn run(
    effort: Effort,
    hosts: &Hosts,
    stream: f64,
) -> Result<(Vec<Row>, Hops), BenchError> {
    let (_borrowing, place) = hosts.borrow("b")?;
    let (card, _) = connect(CardId(0), &place, LIMIT)?;
    let rounds = effort.samples * READS;
    let mut quiet = Vec::with_capacity(rounds);
    for _ in 0..rounds {
        quiet.push(read(card.as_ref())?);
    }
    let hops = Hops::measure(rounds, hosts)?;
    let (quiet, busy) = (median(quiet), median(while_much_is_sent(effort, card.as_ref())?));
    let bare = hops.all();
    let detail = format!(
        "{quiet:.1} µs; one TCP and two UNIX ping-pongs {:.1} + 2 · {:.1} µs",
        hops.tcp, hops.unix
    );
    let share = (1 << 20) as f64 / stream * 1e6;
    let bound = 1.2 * bare + share;
    let busy_detail = format!(
        "bound: 1.2 times the bare hops and {share:.0} µs for 1 MiB by bare rustls; {:.0} µs are \
         allowed, {busy:.0} µs are taken",
        bound
    );
    let rows = vec![
        Row::new(
            "register of a borrowed card",
            quiet / bare,
            Target::AtMost(1.2),
            "x hops",
            detail,
        ),
        Row::new(
            "the same while 64 MiB are on their way",
            busy / bound,
            Target::AtMost(1.0),
            "x bound",
            busy_detail,
        ),
    ];
    Ok((rows, hops))
}

/// Microseconds of one read.
fn read(card: &dyn Transport) -> Result<f64, BenchError> {
    let begun = Instant::now();
    let mut value = [0; 4];
    card.read(register::FRAMES, &mut value)?;
    Ok(begun.elapsed().as_secs_f64() * 1e6)
}

/// Reads that were begun while bytes were sent to the card.
fn while_much_is_sent(effort: Effort, card: &dyn Transport) -> Result<Vec<f64>, BenchError> {
    let fail = |error: &dyn std::fmt::Display| failed(&format!("memory to send: {error}"));
    let memory = SharedMemory::new(BYTES).map_err(|error| fail(&error))?;
    for at in (0..BYTES).step_by(PAGE_SIZE) {
        memory.write(at, &[1]).ok_or_else(|| fail(&"it is too short"))?;
    }
    let (address, file) = (memory.base(), memory.file());
    card.map(&DmaPiece { bus: BUS, bytes: BYTES, address, file, offset: 0 })?;
    let mover = card.mover().ok_or_else(|| failed("the card moves pages by itself"))?;
    let (count, from) = ((BYTES / PAGE_SIZE as u64) as u32, (BUS / PAGE_SIZE as u64) as u32);
    let extent = Extent { page: 0, count, src: DmaAddr::Bus(from), dst: DmaAddr::Own(0) };
    let mut samples = Vec::new();
    for tag in 0..effort.samples as u64 {
        mover.start(MoveOrder { tag, fills: false, extents: vec![extent] });
        while !mover.has_moved() {
            samples.push(read(card)?);
        }
        if mover.moved().iter().any(|moved| moved.pages.is_none()) {
            return Err(failed("pages that were sent to the card did not arrive"));
        }
    }
    Ok(samples)
}
