//! Pointer chase: a walk on one random cycle through all vertices, where each step needs the last.

/// A small pseudo-random generator, the same on every machine.
///
/// Source: G. L. Steele Jr., D. Lea, C. H. Flood, "Fast Splittable Pseudorandom Number Generators",
/// OOPSLA 2014 (SplitMix64).
#[derive(Clone, Debug)]
pub struct SplitMix64(u64);

impl SplitMix64 {
    /// A generator that starts from `seed`.
    pub const fn new(seed: u64) -> SplitMix64 {
        SplitMix64(seed)
    }

    /// The next 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    /// A random number below `limit`, 0 if that is 0. By multiplication: the bias is below
    /// `limit / 2^64`, which nothing here can notice.
    pub fn below(&mut self, limit: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(limit)) >> 64) as u64
    }
}

/// One cycle through all of `0 .. vertices`: `next[v]` follows `v`. The same for the same seed.
///
/// Source: S. Sattolo, "An algorithm to generate a random cyclic permutation", Information
/// Processing Letters 22(6), 1986.
pub fn chase_cycle(vertices: u32, seed: u64) -> Vec<u32> {
    let mut random = SplitMix64::new(seed);
    let mut next: Vec<u32> = (0..vertices).collect();
    for last in (1..next.len()).rev() {
        // Strictly below `last`: that is what makes it one cycle.
        let other = random.below(last as u64) as usize;
        next.swap(last, other);
    }
    next
}

/// The checksum of a walk that has not begun.
pub const CHASE_CHECKSUM_START: u64 = 0x6661_7273_6964_6521;

/// The checksum of a walk after a visit to `vertex`. It depends on the order of visits.
pub const fn chase_step(checksum: u64, vertex: u32) -> u64 {
    (checksum.rotate_left(5) ^ vertex as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// The checksum of a walk of `steps` steps: `start` is visited, then what follows it, and so on,
/// `steps` visits in all. The walk ends early where `next` does not have the vertex.
pub fn chase_checksum(next: &[u32], start: u32, steps: u64) -> u64 {
    let mut checksum = CHASE_CHECKSUM_START;
    let mut vertex = start;
    for _ in 0..steps {
        let Some(&following) = next.get(vertex as usize) else {
            break;
        };
        checksum = chase_step(checksum, vertex);
        vertex = following;
    }
    checksum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_generator_is_splitmix64() {
        // First outputs for seed 1234567, as published with the generator's reference code.
        let mut random = SplitMix64::new(1_234_567);
        assert_eq!(random.next_u64(), 6_457_827_717_110_365_317);
        assert_eq!(random.next_u64(), 3_203_168_211_198_807_973);
        assert_eq!(random.below(0), 0);
        assert!((0..1000).all(|_| random.below(7) < 7));
    }

    #[test]
    fn the_walk_visits_every_vertex_once_and_returns() {
        for vertices in [1, 2, 3, 10, 1000] {
            let next = chase_cycle(vertices, u64::from(vertices));
            let mut seen = vec![false; vertices as usize];
            let mut vertex = 0;
            for _ in 0..vertices {
                assert!(!std::mem::replace(&mut seen[vertex as usize], true));
                vertex = next[vertex as usize];
            }
            assert_eq!(vertex, 0);
        }
        assert!(chase_cycle(0, 1).is_empty());
    }

    #[test]
    fn the_seed_decides() {
        assert_eq!(chase_cycle(100, 7), chase_cycle(100, 7));
        assert_ne!(chase_cycle(100, 7), chase_cycle(100, 8));
    }

    #[test]
    fn the_checksum_sees_order_length_and_every_link() {
        let next = chase_cycle(50, 3);
        let checksum = chase_checksum(&next, 0, 50);
        assert_ne!(checksum, chase_checksum(&next, 0, 49));
        assert_ne!(checksum, chase_checksum(&next, 1, 50));
        let mut changed = next.clone();
        changed.swap(10, 20);
        assert_ne!(checksum, chase_checksum(&changed, 0, 50));
        let by_hand = chase_step(chase_step(CHASE_CHECKSUM_START, 0), next[0]);
        assert_eq!(chase_checksum(&next, 0, 2), by_hand);
    }

    #[test]
    fn a_walk_out_of_the_table_ends() {
        assert_eq!(chase_checksum(&[], 0, 10), CHASE_CHECKSUM_START);
        assert_eq!(chase_checksum(&[9], 0, u64::MAX), chase_step(CHASE_CHECKSUM_START, 0));
    }
}
