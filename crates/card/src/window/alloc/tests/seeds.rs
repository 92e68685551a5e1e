//! Inputs that a number stands for.

use super::random::Input;

/// So many steps.
pub(super) fn inputs(seed: u64, steps: usize) -> Vec<Input> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 24) as u32
    };
    (0..steps).map(|_| next().to_le_bytes()).collect()
}
