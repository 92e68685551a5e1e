//! Hostile peers: random bytes, damaged messages, and more rounds on request.
//!
//! `VFIO_USER_FUZZ_SECONDS=60 cargo test -p farside-vfio-user --test hostile` runs the fuzz functions
//! for a minute each on the stable toolchain.

#[path = "common/hostile.rs"]
mod hostile;

use std::time::{Duration, Instant};

use proptest::prelude::*;

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

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    fn one_of<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }
}

/// A number near an edge, or any.
fn edge(random: &mut Random) -> u64 {
    let bases = [0, 0x1000, 0x2000, 512, 0xbad_0000, 1 << 31, 1 << 32, 1 << 63, u64::MAX];
    let base = random.one_of(&bases);
    match random.below(4) {
        0 => base,
        1 => base.wrapping_sub(random.below(9)),
        2 => base.wrapping_add(random.below(9)),
        _ => random.next() >> random.below(64),
    }
}

/// A value of a field that mostly makes sense, of `width` bytes.
fn field(random: &mut Random, width: usize) -> Vec<u8> {
    let value = match random.below(10) {
        0 => edge(random),
        1..4 => random.below(64),
        _ => random.one_of(&[0, 0, 1, 2, 4, 8, 16, 32, 0x24, 0x1000]),
    };
    value.to_le_bytes()[..width].to_vec()
}

/// The widths of a command's fields.
fn fields(command: u16, reply: bool) -> &'static [usize] {
    match (command, reply) {
        (2, _) => &[4, 4, 8, 8, 8],
        (3, _) => &[4, 4, 8, 8],
        (4 | 6 | 7, _) => &[4, 4, 4, 4],
        (5, _) => &[4, 4, 4, 4, 8, 8],
        (8, _) => &[4, 4, 4, 4, 4],
        (9 | 10, _) => &[8, 4, 4],
        (11 | 12, _) => &[8, 8],
        (15, _) => &[8, 8, 4, 4, 8],
        (16, _) => &[4, 2, 2, 4],
        _ => &[],
    }
}

/// Commands of the requests that the attacked client has made, by message id.
const ASKED: [u16; 12] = [1, 4, 5, 6, 7, 2, 3, 9, 10, 13, 16, 20];

/// A message that is nearly right; of twelve, this many are replies.
fn message(random: &mut Random, replies: u64) -> Vec<u8> {
    let reply = random.below(12) < replies;
    let (id, command) = match (reply, random.below(3)) {
        (true, 0) => (0x8000 + random.below(4), random.one_of(&[11, 12, 20])),
        (true, _) => {
            let id = random.below(ASKED.len() as u64);
            (id, ASKED[id as usize])
        }
        (false, _) => {
            let kinds = if random.below(8) == 0 { 19 } else { 15 };
            (random.below(0x1_0000), 2 + random.below(kinds) as u16)
        }
    };
    let mut payload: Vec<u8> =
        fields(command, reply).iter().flat_map(|&width| field(random, width)).collect();
    let more = random.one_of(&[0, 0, 0, 0, 1, 2, 4, 8, 16, 64, 512]);
    payload.resize(payload.len() + more, 0x11);
    let size = match random.below(40) {
        0 => edge(random) as u32,
        _ => 16 + payload.len() as u32,
    };
    let flags: u32 = match random.below(20) {
        0 => random.below(64) as u32,
        1 => 0x10,
        2 => 0x21,
        _ => u32::from(reply),
    };
    let mut bytes = Vec::new();
    bytes.extend_from_slice(&(id as u16).to_le_bytes());
    bytes.extend_from_slice(&command.to_le_bytes());
    bytes.extend_from_slice(&size.to_le_bytes());
    bytes.extend_from_slice(&flags.to_le_bytes());
    bytes.extend_from_slice(&(random.below(200) as u32).to_le_bytes());
    bytes.extend(payload);
    bytes
}

/// An input of the fuzz functions: nearly right messages, cut anywhere.
fn input(seed: u64, replies: u64) -> Vec<u8> {
    let mut random = Random(seed);
    let mut stream = Vec::new();
    for _ in 0..1 + random.below(12) {
        stream.extend(message(&mut random, replies));
    }
    let mut input = vec![random.below(32) as u8 | u8::from(random.below(8) != 0)];
    while !stream.is_empty() {
        let any = random.below(256) as u8;
        let control: u8 = random.one_of(&[0x7f, 0x7f, 0x7f, 16, 32, 48, 64, 0xff, any]);
        let count = if control & 0x7f == 0x7f { 1000 } else { usize::from(control & 0x7f) };
        input.push(control);
        let rest = stream.split_off(count.min(stream.len()));
        input.extend(&stream);
        stream = rest;
    }
    input
}

fn rounds(name: &str, replies: u64, run: fn(&[u8]) -> usize) {
    let seconds = std::env::var("VFIO_USER_FUZZ_SECONDS").ok().and_then(|s| s.parse().ok());
    let end = Instant::now() + Duration::from_secs(seconds.unwrap_or(0));
    let mut seed = 0;
    let mut good = 0;
    while seed < 30_000 || Instant::now() < end {
        let input = input(seed, replies);
        match std::panic::catch_unwind(|| run(&input)) {
            Ok(count) => good += count,
            Err(_) => panic!("{name}: seed {seed} broke it with {input:02x?}"),
        }
        seed += 1;
    }
    assert!(good > 10_000, "{name}: the inputs go deep, but only {good} messages were good");
}

#[test]
fn a_hostile_client_gets_nowhere() {
    rounds("server", 1, hostile::server);
}

#[test]
fn a_hostile_server_gets_nowhere() {
    rounds("client", 6, hostile::client);
}

proptest! {
    #[test]
    fn random_bytes_are_survived(input in prop::collection::vec(any::<u8>(), 0..600)) {
        hostile::server(&input);
        hostile::client(&input);
    }
}
