//! Who the default scheme is compared with, run by run: the best of the others.
//!
//! Several others are often alike, and then the one with the least median is the one that was lucky in these
//! very runs: to be compared with it would cost the default some percent of nothing. So who the best is for half of
//! the runs is decided by the other half.

use super::median;

/// In each run: who was the best other by the runs of the other half, and what ours is of it. All have as many
/// runs; there is one other at least.
pub(super) fn ratios(ours: &[f64], others: &[&[f64]]) -> Vec<(usize, f64)> {
    let best = [0, 1].map(|half| best_without(half, others));
    let ratio = |(run, ours): (usize, &f64)| {
        let rival = best[run % 2];
        (rival, ours / others[rival][run])
    };
    ours.iter().enumerate().map(ratio).collect()
}

/// Whose median is the least in the runs that are not of `half`; in all of them if there is but one.
fn best_without(half: usize, others: &[&[f64]]) -> usize {
    let median_of = |runs: &[f64]| {
        let of_other_half = runs.iter().enumerate().filter(|(run, _)| run % 2 != half);
        let chosen: Vec<f64> = of_other_half.map(|(_, &value)| value).collect();
        median(if chosen.is_empty() { runs.to_vec() } else { chosen })
    };
    let medians: Vec<f64> = others.iter().map(|runs| median_of(runs)).collect();
    (0..others.len()).min_by(|&a, &b| medians[a].total_cmp(&medians[b])).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_half_is_compared_with_the_best_of_the_other() {
        let (even_best, odd_best) = ([1.0, 4.0, 1.0, 4.0], [4.0, 1.0, 4.0, 1.0]);
        let ratios = ratios(&[2.0; 4], &[&even_best, &odd_best]);
        // Who was lucky in the even runs is compared in the odd ones, where it was not.
        assert_eq!(ratios, [(1, 0.5), (0, 0.5), (1, 0.5), (0, 0.5)]);
    }

    #[test]
    fn who_is_better_in_both_halves_is_compared_in_both() {
        let ratios = ratios(&[3.0; 3], &[&[9.0; 3], &[2.0; 3]]);
        assert_eq!(ratios, [(1, 1.5); 3]);
    }

    #[test]
    fn one_run_is_compared_with_the_best_of_it() {
        assert_eq!(ratios(&[3.0], &[&[2.0], &[6.0]]), [(0, 1.5)]);
    }
}
