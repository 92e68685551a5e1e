//! A hash join on two cards, as one would write it down: random access to one table by all.
//!
//! Two million orders go into an open hash table of 32 MiB, whose words the cards change by runs of
//! compare-and-exchange; then ten million lines look theirs up, gathered by runs. Each card does half of
//! the rows. Beside it the same on one plain thread, without Farside.
//!
//! ```text
//! cargo run --release -p farside --example join
//! ```

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use farside::{
    AtomicSpan, Error, KernelContext, KernelError, Read, ReadSpan, ReadView, Shared, Space,
};

const ORDERS: u64 = 2 << 20; // 16 MiB
const LINES: u64 = 10 << 20; // 80 MiB
const SLOTS: usize = 4 << 20; // 32 MiB
/// Rows that a kernel takes at a time.
const PIECE: usize = 4096;

/// A row is a key and a value, 32 bits each. No row is 0, which is an empty slot of the table.
fn row(key: u64, value: u64) -> u64 {
    key << 32 | value | 1
}

fn key(row: u64) -> u64 {
    row >> 32
}

fn slot(row: u64) -> usize {
    // Fibonacci hashing: keys that follow one another lie far apart.
    (key(row).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 42) as usize
}

/// Calls `each` with a few rows at a time until all had their turn: `with` keeps their pages from others.
fn for_each_piece(
    k: &mut KernelContext,
    rows: ReadSpan<u64>,
    mut each: impl FnMut(&mut KernelContext, &[u64]) -> Result<(), KernelError>,
) -> Result<(), KernelError> {
    let mut piece = Vec::with_capacity(PIECE);
    for start in (0..rows.len()).step_by(PIECE) {
        let part = rows.slice(start..rows.len().min(start + PIECE));
        k.with(part, |part: ReadView<u64>| piece.extend(part.iter().copied()))?;
        each(k, &piece)?;
        piece.clear();
    }
    Ok(())
}

fn build(
    k: &mut KernelContext,
    (orders, table): (ReadSpan<u64>, AtomicSpan<AtomicU64>),
) -> Result<(), KernelError> {
    let mut outcomes = vec![Ok(0); PIECE];
    for_each_piece(k, orders, |k, rows| {
        // All at once; those whose slot was taken try the next one, all at once again.
        let mut tries: Vec<_> = rows.iter().map(|&row| (slot(row), 0, row)).collect();
        while !tries.is_empty() {
            k.compare_exchange_all(table, &tries, &mut outcomes[..tries.len()])?;
            let taken = tries.iter().zip(&outcomes).filter(|(_, outcome)| outcome.is_err());
            tries = taken.map(|(&(at, _, row), _)| ((at + 1) % SLOTS, 0, row)).collect();
        }
        Ok(())
    })
}

/// Gives the sum of the values of all pairs that belong together.
fn probe(
    k: &mut KernelContext,
    (lines, table): (ReadSpan<u64>, AtomicSpan<AtomicU64>),
) -> Result<u64, KernelError> {
    let (mut sum, mut found) = (0u64, vec![0; PIECE]);
    for_each_piece(k, lines, |k, rows| {
        let mut searches: Vec<_> = rows.iter().map(|&row| (slot(row), row)).collect();
        while !searches.is_empty() {
            let at: Vec<_> = searches.iter().map(|&(at, _)| table.ptr(at)).collect();
            k.gather(&at, &mut found[..at.len()])?;
            let mut next = Vec::new();
            for (&(at, row), &order) in searches.iter().zip(&found) {
                if order != 0 && key(order) != key(row) {
                    next.push(((at + 1) % SLOTS, row));
                } else if order != 0 {
                    sum = sum.wrapping_add(order ^ row);
                }
            }
            searches = next;
        }
        Ok(())
    })?;
    Ok(sum)
}

/// The same in plain Rust.
fn plain(orders: &[u64], lines: &[u64]) -> (u64, [Duration; 2]) {
    let table: Vec<AtomicU64> = (0..SLOTS).map(|_| AtomicU64::new(0)).collect();
    table.iter().for_each(|word| word.store(0, Ordering::Relaxed));
    let started = Instant::now();
    for &row in orders {
        let mut at = slot(row);
        while table[at].compare_exchange(0, row, Ordering::AcqRel, Ordering::Acquire).is_err() {
            at = (at + 1) % SLOTS;
        }
    }
    let built = started.elapsed();
    let mut sum = 0u64;
    for &row in lines {
        let mut at = slot(row);
        loop {
            let found = table[at].load(Ordering::Acquire);
            if found == 0 || key(found) == key(row) {
                sum = sum.wrapping_add(if found == 0 { 0 } else { found ^ row });
                break;
            }
            at = (at + 1) % SLOTS;
        }
    }
    (sum, [built, started.elapsed() - built])
}

fn main() -> Result<(), Error> {
    let mut builder = Space::builder().cards(2).card_memory(64 << 20);
    if let Some(scheme) = std::env::args().nth(1) {
        builder = builder.placement(&scheme);
    }
    let space = builder.build()?;
    let mut orders = space.alloc_named::<u64>(ORDERS as usize, "orders")?;
    let mut lines = space.alloc_named::<u64>(LINES as usize, "lines")?;
    let table = space.alloc_atomic::<AtomicU64>(SLOTS, "table")?;
    (0..).zip(orders.iter_mut()).for_each(|(at, order)| *order = row(at, at % 1000));
    // Every third line has no order.
    let line = |at: u64| row(at * 7_919 % (ORDERS * 3 / 2), at % 100);
    (0..).zip(lines.iter_mut()).for_each(|(at, slot)| *slot = line(at));
    let (expected, plain_took) = plain(&orders, &lines);

    // Half of the rows for each card; all share the table.
    let started = Instant::now();
    space.scope(|scope| {
        for (card, orders) in space.cards().zip(orders.chunks(orders.len() / 2)) {
            scope.kernel("build").on(card).launch((Read(orders), Shared(&table)), build)?;
        }
        Ok::<_, Error>(())
    })?;
    let built = started.elapsed();
    let sum = space.scope(|scope| {
        let halves = space.cards().zip(lines.chunks(lines.len() / 2));
        let jobs: Vec<_> = halves
            .map(|(card, lines)| {
                scope.kernel("probe").on(card).launch((Read(lines), Shared(&table)), probe)
            })
            .collect::<Result<_, _>>()?;
        jobs.into_iter().try_fold(0u64, |sum, job| Ok::<_, Error>(sum.wrapping_add(job.wait()?)))
    })?;
    let took = [built, started.elapsed() - built];
    assert_eq!(sum, expected);

    for (part, (took, plain)) in ["build", "probe"].iter().zip(took.iter().zip(&plain_took)) {
        println!(
            "{part}: {:.3} s; one plain thread: {:.3} s",
            took.as_secs_f64(),
            plain.as_secs_f64()
        );
    }
    let total = |took: &[Duration]| took.iter().sum::<Duration>().as_secs_f64();
    println!("together {:.1} times one plain thread\n", total(&took) / total(&plain_took));
    println!("{}", space.report());
    Ok(())
}
