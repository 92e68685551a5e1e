//! Hostile peers of a link: steps drawn at random, nearly right and wrong, and more rounds on request.
//!
//! `FUZZ_SECONDS=60 cargo test -p farside-link --test hostile` runs each fuzz function for a minute on
//! the stable toolchain; `crates/lend/fuzz` has them as targets for a fuzzer.

#[path = "common/hostile.rs"]
mod hostile;

use std::time::{Duration, Instant};

/// A small generator, so that the same seed gives the same input everywhere (SplitMix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn bytes(&mut self, most: u64) -> Vec<u8> {
        let count = self.next() % most;
        (0..count).map(|_| self.next() as u8).collect()
    }
}

fn rounds(name: &str, least: u64, input: fn(&mut Random) -> Vec<u8>, run: fn(&[u8]) -> usize) {
    let seconds = std::env::var("FUZZ_SECONDS").ok().and_then(|text| text.parse().ok());
    let end = Instant::now() + Duration::from_secs(seconds.unwrap_or(0));
    let (mut seed, mut good) = (0, 0);
    while seed < least || Instant::now() < end {
        let input = input(&mut Random(seed));
        match std::panic::catch_unwind(|| run(&input)) {
            Ok(count) => good += count,
            Err(_) => panic!("{name}: seed {seed} broke it with {input:02x?}"),
        }
        seed += 1;
    }
    let wanted = least as usize;
    assert!(good > wanted, "{name}: the inputs go deep, but only {good} frames were good");
}

#[test]
fn a_hostile_peer_of_an_end_gets_nowhere() {
    rounds("endpoint", 3000, |random| random.bytes(600), hostile::endpoint);
}

/// Descriptions that are nearly right: counts that fit, and flags that mostly do.
fn nearly_described(random: &mut Random) -> Vec<u8> {
    let (regions, irqs) = (random.next() % 66, random.next() % 18);
    let mut bytes = ((random.next() % 5) as u32).to_le_bytes().to_vec();
    bytes.extend((regions as u16).to_le_bytes());
    bytes.extend((irqs as u16).to_le_bytes());
    bytes.extend(random.next().to_le_bytes());
    let flags = |random: &mut Random, most: u64| {
        let all = if random.next() % 200 == 0 { most + 1 } else { most };
        ((random.next() % all) as u32).to_le_bytes()
    };
    for _ in 0..regions {
        bytes.extend(random.next().to_le_bytes());
        bytes.extend(flags(random, 4));
    }
    for _ in 0..irqs {
        bytes.extend((random.next() as u32).to_le_bytes());
        bytes.extend(flags(random, 8));
    }
    if random.next() % 8 == 0 {
        bytes.truncate((random.next() % 64) as usize);
    }
    bytes
}

#[test]
fn bytes_are_a_description_or_none() {
    let twice = |input: &[u8]| 4 * hostile::description(input);
    rounds("description", 3000, nearly_described, twice);
}

#[test]
fn what_waits_for_a_peer_that_never_reads_is_bounded() {
    hostile::deaf(20_000);
}
