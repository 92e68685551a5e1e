//! Rounds of a fuzz function on the stable toolchain: inputs drawn at random, and more on request.
//!
//! With `FUZZ_SECONDS=60` each runs for a minute.

use std::time::{Duration, Instant};

/// A small generator, so that the same seed gives the same input everywhere (SplitMix64).
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn bytes(&mut self, most: u64) -> Vec<u8> {
        let count = self.next() % most;
        (0..count).map(|_| self.next() as u8).collect()
    }
}

/// Runs at least so many rounds, of which there has to be as much that made sense.
pub(crate) fn rounds(
    name: &str,
    least: u64,
    input: impl Fn(&mut Random) -> Vec<u8>,
    run: impl Fn(&[u8]) -> usize + std::panic::RefUnwindSafe,
) {
    let seconds = std::env::var("FUZZ_SECONDS").ok().and_then(|text| text.parse().ok());
    let end = Instant::now() + Duration::from_secs(seconds.unwrap_or(0));
    let (mut seed, mut good) = (0, 0);
    while seed < least || Instant::now() < end {
        let input = input(&mut Random::new(seed));
        match std::panic::catch_unwind(|| run(&input)) {
            Ok(count) => good += count,
            Err(_) => panic!("{name}: seed {seed} broke it with {input:02x?}"),
        }
        seed += 1;
    }
    let wanted = least as usize;
    assert!(good > wanted, "{name}: the inputs should go deep, and only {good} made sense");
}
