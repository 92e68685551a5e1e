//! A small generator of pseudo-random numbers (SplitMix64), so that seed + commit reproduce a run.

/// A stream of pseudo-random numbers.
#[derive(Clone, Debug)]
pub struct Prng(u64);

impl Prng {
    /// The stream of this seed.
    pub const fn new(seed: u64) -> Prng {
        Prng(seed ^ 0x5851_f42d_4c95_7f2d)
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number from 0 to `bound - 1`; 0 if `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        if bound == 0 { 0 } else { self.bits() % bound }
    }

    /// A number from `low` to `high`, both included.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// True `permille` times in a thousand.
    pub fn chance(&mut self, permille: u32) -> bool {
        self.below(1000) < u64::from(permille)
    }

    /// One of the items; `None` if there is none.
    pub fn pick<T: Copy>(&mut self, items: &[T]) -> Option<T> {
        items.get(self.below(items.len() as u64) as usize).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_seeds_give_equal_streams_and_others_do_not() {
        let draw = |seed| {
            let mut rng = Prng::new(seed);
            [rng.bits(), rng.bits(), rng.bits()]
        };
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
    }

    #[test]
    fn numbers_stay_in_their_bounds_and_reach_both_ends() {
        let mut rng = Prng::new(7);
        let drawn: Vec<u64> = (0..1000).map(|_| rng.between(3, 6)).collect();
        assert_eq!(drawn.iter().min(), Some(&3));
        assert_eq!(drawn.iter().max(), Some(&6));
        assert_eq!(rng.below(0), 0);
        assert!(!rng.chance(0));
        assert!(rng.chance(1000));
    }
}
