//! What work in tables is compared with: a load that misses every cache.

use std::hint::black_box;

use super::{Effort, median, timed};

/// 256 MiB: more than the caches of a processor.
const LINES: usize = 4 << 20;
/// Words of a cache line.
const LINE: usize = 8;
/// Loads per sample.
const LOADS: usize = 1 << 19;

/// Seconds of one load, where each says where the next one is.
pub(crate) fn seconds(effort: Effort) -> f64 {
    let table = cycle();
    let mut at = 0;
    let mut sample = || timed(|| at = (0..LOADS).fold(at, |at, _| table[at * LINE] as usize));
    let samples = (0..effort.samples).map(|_| sample()).collect();
    black_box(at);
    median(samples) / LOADS as f64
}

/// The first word of each line names the next line; all lines are in one random cycle (Sattolo).
fn cycle() -> Vec<u64> {
    let mut order: Vec<u32> = (0..LINES as u32).collect();
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for last in (1..LINES).rev() {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        order.swap(last, (state >> 33) as usize % last);
    }
    let mut table = vec![0; LINES * LINE];
    for (line, next) in order.into_iter().enumerate() {
        table[line * LINE] = u64::from(next);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cycle_comes_to_every_line() {
        let table = cycle();
        let (mut at, mut steps) = (0, 0);
        loop {
            at = table[at * LINE] as usize;
            steps += 1;
            if at == 0 {
                break;
            }
        }
        assert_eq!(steps, LINES);
    }
}
