//! One kernel over a range of indices, on two cards at once: each begins with its half, and who is done
//! first helps the other. Before it the data comes by itself, after it the result goes back, and the
//! program waits once, at the end.
//!
//! ```text
//! cargo run --release -p farside --example parallel
//! ```

use std::sync::atomic::AtomicU64;

use farside::{Error, MemoryId, ReadView, Shared, Space, Split};

const BYTES: usize = 16 << 20;
const BINS: usize = 256;

fn main() -> Result<(), Error> {
    let space = Space::builder().cards(2).build()?;
    let (left, right) = (space.card(0)?, space.card(1)?);
    let mut text = space.alloc_named::<u8>(BYTES, "text")?;
    text.iter_mut()
        .zip(0u32..)
        .for_each(|(byte, i)| *byte = (i.wrapping_mul(2654435761) >> 24) as u8);
    let mut bins = space.alloc_atomic::<AtomicU64>(BINS, "bins")?;

    let shares = space.scope(|s| {
        // Both halves travel while the program goes on.
        let (low, high) = text.split_at(BYTES / 2);
        let low = space.migrate_async(low, left).start()?;
        let high = space.migrate_async(high, right).start()?;

        // A piece is 256 KiB of the text. It counts for itself and adds to the bins once.
        let count = s.for_each("histogram", 0..BYTES as u64).on([left, right]).grain(256 << 10);
        let count = count.after(&low).after(&high).launch(
            (Split(&text), Shared(&bins)),
            |k, _indices, (text, bins)| {
                let mut counts = [0u64; BINS];
                k.with(text, |text: ReadView<u8>| {
                    text.iter().for_each(|&byte| counts[usize::from(byte)] += 1);
                })?;
                for (bin, count) in counts.into_iter().enumerate() {
                    k.fetch_add(bins, bin, count)?;
                }
                Ok(())
            },
        )?;

        // The bins go back when all pieces have ended.
        let back = space.migrate_async(&bins, MemoryId::HOST).after(&count).start()?;
        println!("{} pieces are on their way", count.progress().pieces);
        back.wait()?;
        count.wait()
    })?;

    for share in &shares.cards {
        let (pieces, bytes) = (share.pieces, share.indices);
        println!(
            "{}: {pieces} pieces, {bytes} bytes; {} were the other's",
            share.card, share.stolen
        );
    }
    println!("counted {} bytes", bins.values().iter().sum::<u64>());
    Ok(())
}
