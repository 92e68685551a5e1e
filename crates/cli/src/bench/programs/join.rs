//! The hash join of `examples/join.rs`, with its numbers: two cards build one table and look rows up in it.

use std::sync::atomic::{AtomicU64, Ordering};

use farside::{
    AtomicSpan, Buffer, Error, KernelContext, KernelError, PAGE_SIZE, Read, ReadSpan, ReadView,
    Shared, Space,
};

use super::super::counts::{Counts, Ran};
use super::super::{BenchError, Effort, Row, Target, median, timed};

/// Rows that a kernel takes at a time.
const PIECE: usize = 4096;

fn key(row: u64) -> u64 {
    row >> 32
}

/// Where a row is looked for first, in a table of at most 2^22 slots.
fn hash(row: u64) -> usize {
    (key(row).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 42) as usize
}

/// The table as a kernel and as a plain thread have it.
trait Table {
    type Error;
    /// Slots, a power of two.
    fn slots(&self) -> usize;
    /// Puts a row into an empty slot; `false`: it is not empty.
    fn put(&mut self, at: usize, row: u64) -> Result<bool, Self::Error>;
    fn get(&mut self, at: usize) -> Result<u64, Self::Error>;
}

struct InKernel<'a>(&'a mut KernelContext, AtomicSpan<AtomicU64>);

impl Table for InKernel<'_> {
    type Error = KernelError;

    fn slots(&self) -> usize {
        self.1.len()
    }

    #[inline(always)]
    fn put(&mut self, at: usize, row: u64) -> Result<bool, KernelError> {
        Ok(self.0.compare_exchange(self.1, at, 0, row)?.is_ok())
    }

    #[inline(always)]
    fn get(&mut self, at: usize) -> Result<u64, KernelError> {
        self.0.load(self.1.ptr(at))
    }
}

struct Plain<'a>(&'a [AtomicU64]);

impl Table for Plain<'_> {
    type Error = std::convert::Infallible;

    fn slots(&self) -> usize {
        self.0.len()
    }

    #[inline(always)]
    fn put(&mut self, at: usize, row: u64) -> Result<bool, Self::Error> {
        let put = self.0[at].compare_exchange(0, row, Ordering::AcqRel, Ordering::Acquire);
        Ok(put.is_ok())
    }

    #[inline(always)]
    fn get(&mut self, at: usize) -> Result<u64, Self::Error> {
        Ok(self.0[at].load(Ordering::Acquire))
    }
}

#[inline(always)]
fn build<T: Table>(table: &mut T, rows: &[u64]) -> Result<(), T::Error> {
    let mask = table.slots() - 1;
    for &row in rows {
        let mut at = hash(row) & mask;
        while !table.put(at, row)? {
            at = (at + 1) & mask;
        }
    }
    Ok(())
}

/// Gives the sum over the pairs that belong together.
#[inline(always)]
fn probe<T: Table>(table: &mut T, rows: &[u64]) -> Result<u64, T::Error> {
    let mask = table.slots() - 1;
    let mut sum = 0u64;
    for &row in rows {
        let mut at = hash(row) & mask;
        let mut found = table.get(at)?;
        while found != 0 && key(found) != key(row) {
            at = (at + 1) & mask;
            found = table.get(at)?;
        }
        sum = sum.wrapping_add(if found == 0 { 0 } else { found ^ row });
    }
    Ok(sum)
}

/// Calls `each` for pieces of the rows, of which few are held at a time.
fn for_pieces(
    k: &mut KernelContext,
    rows: ReadSpan<u64>,
    mut each: impl FnMut(&mut KernelContext, &[u64]) -> Result<(), KernelError>,
) -> Result<(), KernelError> {
    let mut piece = Vec::with_capacity(PIECE);
    for start in (0..rows.len()).step_by(PIECE) {
        let part = rows.slice(start..rows.len().min(start + PIECE));
        piece.clear();
        k.with(part, |part: ReadView<u64>| piece.extend(part.iter().copied()))?;
        each(k, &piece)?;
    }
    Ok(())
}

type Args = (ReadSpan<u64>, AtomicSpan<AtomicU64>);

fn build_on_card(k: &mut KernelContext, (rows, table): Args) -> Result<u64, KernelError> {
    for_pieces(k, rows, |k, piece| build(&mut InKernel(k, table), piece))?;
    Ok(0)
}

fn probe_on_card(k: &mut KernelContext, (rows, table): Args) -> Result<u64, KernelError> {
    let mut sum = 0u64;
    for_pieces(k, rows, |k, piece| {
        sum = sum.wrapping_add(probe(&mut InKernel(k, table), piece)?);
        Ok(())
    })?;
    Ok(sum)
}

/// Each card does its half of the rows.
fn on_cards(
    space: &Space,
    rows: &[u64],
    table: &[AtomicU64],
    kernel: fn(&mut KernelContext, Args) -> Result<u64, KernelError>,
) -> Result<u64, Error> {
    space.scope(|scope| {
        let launch = |(card, rows)| {
            scope.kernel("join").on(card).launch((Read(rows), Shared(table)), kernel)
        };
        let halves = space.cards().zip(rows.chunks(rows.len() / 2));
        let jobs: Vec<_> = halves.map(launch).collect::<Result<_, _>>()?;
        jobs.into_iter().try_fold(0u64, |sum, job| Ok::<_, Error>(sum.wrapping_add(job.wait()?)))
    })
}

/// Orders, and lines of which two thirds belong to one of them.
pub(in crate::bench) struct Problem {
    orders: Vec<u64>,
    lines: Vec<u64>,
    slots: usize,
}

/// Orders, lines and an empty table in shared memory.
pub(in crate::bench) struct SharedProblem {
    orders: Buffer<u64>,
    lines: Buffer<u64>,
    table: Buffer<AtomicU64>,
}

impl Problem {
    /// `slots` is a power of two, more than the orders and at most 2^22.
    pub(in crate::bench) fn new(orders: u64, lines: u64, slots: usize) -> Problem {
        let row = |key: u64, value: u64| key << 32 | value | 1;
        // Every third line has no order.
        let line = |at: u64| row(at * 7_919 % (orders * 3 / 2), at % 100);
        Problem {
            orders: (0..orders).map(|at| row(at, at % 1000)).collect(),
            lines: (0..lines).map(line).collect(),
            slots,
        }
    }

    /// Bytes of orders, lines and table.
    fn bytes(&self) -> u64 {
        8 * (self.orders.len() + self.lines.len() + self.slots) as u64
    }

    pub(in crate::bench) fn share(&self, space: &Space) -> Result<SharedProblem, Error> {
        let mut orders = space.alloc_named::<u64>(self.orders.len(), "orders")?;
        let mut lines = space.alloc_named::<u64>(self.lines.len(), "lines")?;
        let table = space.alloc_atomic::<AtomicU64>(self.slots, "table")?;
        orders.copy_from_slice(&self.orders);
        lines.copy_from_slice(&self.lines);
        Ok(SharedProblem { orders, lines, table })
    }

    /// One run on cards, and the sum.
    fn on(&self, space: &Space) -> Result<(Ran, u64), Error> {
        let shared = self.share(space)?;
        Ran::measure(space, || shared.on_cards(space))
    }

    /// One run on cards that gave the right sum.
    pub(in crate::bench) fn on_and_checked(&self, space: &Space) -> Result<Ran, BenchError> {
        let (ran, sum) = self.on(space)?;
        ran.checked("join", sum == self.plain().1)
    }

    /// The same on one plain thread: seconds and the sum.
    pub(in crate::bench) fn plain(&self) -> (f64, u64) {
        // Written, so that the first touch of its pages is not measured.
        let table: Vec<AtomicU64> = (0..self.slots).map(|_| AtomicU64::new(0)).collect();
        table.iter().for_each(|word| word.store(0, Ordering::Relaxed));
        let mut sum = 0;
        let seconds = timed(|| {
            let Ok(()) = build(&mut Plain(&table), &self.orders);
            let Ok(found) = probe(&mut Plain(&table), &self.lines);
            sum = found;
        });
        (seconds, sum)
    }
}

impl SharedProblem {
    /// Builds and probes. Gives the sum.
    pub(in crate::bench) fn on_cards(&self, space: &Space) -> Result<u64, Error> {
        on_cards(space, &self.orders, &self.table, build_on_card)?;
        on_cards(space, &self.lines, &self.table, probe_on_card)
    }
}

pub(super) fn run(effort: Effort) -> Result<Vec<Row>, BenchError> {
    let problem = Problem::new(2 << 20, 10 << 20, 4 << 20);
    let (mut times, mut plain_times, mut moved) = (Vec::new(), Vec::new(), Vec::new());
    let mut counts = Counts::default();
    for _ in 0..effort.samples {
        let space = Space::builder().cards(2).card_memory(64 << 20).warm(true).build()?;
        let (ran, sum) = problem.on(&space)?;
        let (plain_seconds, expected) = problem.plain();
        if sum != expected {
            return Err(BenchError::Failed(format!("the join gave {sum}, not {expected}")));
        }
        times.push(ran.seconds);
        plain_times.push(plain_seconds);
        moved.push((ran.counts.pages_moved() * PAGE_SIZE as u64) as f64);
        counts = ran.counts;
    }
    let most = moved.iter().copied().fold(0.0, f64::max);
    let (ours, theirs, moved) = (median(times), median(plain_times), median(moved));
    let mib = |bytes: f64| bytes / f64::from(1 << 20);
    let time = format!("build and probe {ours:.3} s; one plain thread {theirs:.3} s");
    let bytes = format!(
        "{:.0} MiB between memories, at most {:.0}; orders, lines and table have {:.0}",
        mib(moved),
        mib(most),
        mib(problem.bytes() as f64)
    );
    let ratio = ours / theirs;
    Ok(vec![
        Row::new("hash join, two cards", ratio, Target::AtMost(6.0), "x plain thread", time)
            .counting(counts.clone()),
        Row::new(
            "hash join, bytes moved",
            moved / problem.bytes() as f64,
            Target::AtMost(3.0),
            "x the data",
            bytes,
        )
        .counting(counts),
    ])
}
