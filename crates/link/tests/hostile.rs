//! Hostile peers of a link: steps drawn at random, nearly right and wrong, and more rounds on request.
//!
//! `FUZZ_SECONDS=60 cargo test -p farside-link --test hostile` runs each fuzz function for a minute on
//! the stable toolchain; `crates/lend/fuzz` has them as targets for a fuzzer.

#[path = "common/hostile.rs"]
mod hostile;

#[path = "common/rounds.rs"]
mod rounds;

use rounds::{Random, rounds};

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
