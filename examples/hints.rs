//! Where memory lives, why it is there, and how to have a say in it.
//!
//! ```text
//! cargo run --release -p farside --example hints
//! ```

use farside::{Advice, Error, MemoryId, Read, ReadView, Space, Write, WriteView};

fn main() -> Result<(), Error> {
    let space = Space::builder().cards(2).build()?;
    let (a, b) = (space.card(0)?, space.card(1)?);
    let mut table = space.alloc_named::<u64>(64 << 10, "table")?;
    let mut log = space.alloc_named::<u64>(8 << 10, "log")?;
    (0u64..).zip(table.iter_mut()).for_each(|(i, x)| *x = i * i);

    // User managed: all at once, before anybody asks.
    let moved = space.migrate(&table, a)?;
    println!("migrated {moved} pages of the table to {a}");

    // Mostly read: every card that reads it gets a copy.
    space.advise(&table, Advice::ReadMostly(true))?;
    for card in [a, b] {
        let sum = space.kernel("sum").on(card).run(Read(&table), |k, table| {
            k.with(table, |table: ReadView<u64>| table.iter().sum::<u64>())
        })?;
        println!("{card} sums it up to {sum}");
    }
    for part in space.locate(&table)? {
        let copies: Vec<String> = part.copies.iter().map(|memory| memory.to_string()).collect();
        println!("{} of the table: {:?}, copies on {}", part.range, part.state, copies.join(", "));
    }

    // Pinned: it stays on the host, and the card reaches it over the bus.
    space.pin(&log, MemoryId::HOST)?;
    space.kernel("note").on(b).run(Write(&mut log), |k, log| {
        k.with(log, |mut log: WriteView<u64>| log.iter_mut().for_each(|x| *x = 7))
    })?;
    for part in space.locate(&log)? {
        let place = part.owner.map_or_else(|| "nowhere".to_owned(), |memory| memory.to_string());
        println!("{} of the log: {:?}, on {place}", part.range, part.state);
    }
    println!("\n{}\n", space.why(log.addr())?);
    space.unpin(&log)?;
    assert!(log.iter().all(|&x| x == 7));

    println!("\nhow the table moved:");
    for moved in space.history(&table)? {
        let from = moved.from.map_or_else(|| "zeros".to_owned(), |memory| memory.to_string());
        println!("  {}: {from} → {} ({})", moved.range, moved.to, moved.reason);
    }
    println!("\n{}", space.report());
    Ok(())
}
