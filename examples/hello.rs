//! Two cards work on one buffer, one after the other. No copy is written down anywhere.
//!
//! ```text
//! cargo run --release -p farside --example hello
//! ```

use farside::{Error, KernelContext, Space, Write, WriteView};

fn main() -> Result<(), Error> {
    let space = Space::builder().cards(2).build()?;
    let mut data = space.alloc_named::<u32>(1 << 20, "data")?;
    data.fill(1);
    for card in space.cards() {
        space.kernel("double").on(card).run(Write(&mut data), |k: &mut KernelContext, data| {
            k.with(data, |mut data: WriteView<u32>| data.iter_mut().for_each(|x| *x *= 2))
        })?;
    }
    assert!(data.iter().all(|&x| x == 4));
    println!("4 MiB went from the host to card 0, on to card 1, and back:\n\n{}", space.report());
    Ok(())
}
