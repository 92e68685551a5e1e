//! Kernels at streaming speed, in order, with a time limit, and cancelled.
//!
//! `with` takes ranges as slices: pages are found once, then the loop is a plain loop. The data is
//! twice as large as the card's memory, so pages move out again while others come.
//!
//! ```text
//! cargo run --release -p farside --example stream
//! ```

use std::time::{Duration, Instant};

use farside::{Error, KernelContext, KernelError, Read, ReadView, Space, Write, WriteView};

const VALUES: usize = 4 << 20; // 32 MiB of f64
const PIECE: usize = 64 << 10; // 512 KiB at a time

fn main() -> Result<(), Error> {
    let space = Space::builder().cards(1).card_memory(16 << 20).build()?;
    let card = space.card(0)?;
    let mut data = space.alloc_named::<f64>(VALUES, "data")?;
    data.fill(1.5);

    // Two launches of one stream: the second sees all that the first wrote.
    let stream = space.stream();
    let started = Instant::now();
    let double = space.kernel("double").on(card).stream(stream);
    double.time_limit(Duration::from_secs(60)).run(Write(&mut data), |k, mut data| {
        for start in (0..VALUES).step_by(PIECE) {
            k.with(data.slice(start..start + PIECE), |mut piece: WriteView<f64>| {
                piece.iter_mut().for_each(|x| *x *= 2.0);
            })?;
        }
        Ok(())
    })?;
    let sum = space.kernel("sum").on(card).stream(stream).run(Read(&data), |k, data| {
        let mut sum = 0.0;
        for start in (0..VALUES).step_by(PIECE) {
            sum += k.with(data.slice(start..start + PIECE), |piece: ReadView<f64>| {
                piece.iter().sum::<f64>()
            })?;
        }
        Ok(sum)
    })?;
    assert_eq!(sum, 3.0 * VALUES as f64);
    let mib = (3 * VALUES * size_of::<f64>()) as f64 / f64::from(1 << 20);
    let seconds = started.elapsed().as_secs_f64();
    println!("{mib:.0} MiB read or written in {seconds:.3} s through 16 MiB of card memory");

    // A kernel that never ends runs into its time limit.
    let endless = |k: &mut KernelContext, ()| -> Result<(), KernelError> {
        loop {
            k.checkpoint()?;
        }
    };
    let limit = Duration::from_millis(20);
    match space.kernel("endless").on(card).time_limit(limit).run((), endless) {
        Err(Error::Kernel(error @ KernelError::TimedOut { .. })) => println!("{error}"),
        other => panic!("expected a time-out, got {other:?}"),
    }

    // Or it is cancelled: a handle waits, asks, and tells it to stop.
    space.scope(|scope| {
        let job = scope.kernel("endless too").on(card).launch((), endless)?;
        let job = match job.wait_for(Duration::from_millis(20)) {
            Err(still_running) => still_running,
            Ok(result) => return result,
        };
        job.cancel();
        match job.wait() {
            Err(Error::Kernel(error @ KernelError::Cancelled { .. })) => println!("{error}"),
            other => panic!("expected a cancelled kernel, got {other:?}"),
        }
        Ok(())
    })?;
    println!("\n{}", space.report());
    Ok(())
}
