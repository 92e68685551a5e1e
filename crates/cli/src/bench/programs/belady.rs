//! Belady's bound: the fewest pages that must be brought to a memory that holds `frames` of them, for
//! accesses that are known beforehand. What is needed last, or never, makes room (L. A. Belady, 1966).

use std::collections::{BTreeSet, HashMap};

/// Pages that `accesses` bring to a memory that is empty at first.
pub(super) fn fetches(accesses: &[u32], frames: usize) -> u64 {
    let next = next_uses(accesses);
    // Who is there, by next use, which is different for each: those that come never again are numbered.
    let mut there = BTreeSet::new();
    let mut fetched = 0;
    for (now, &next) in next.iter().enumerate() {
        if !there.remove(&now) {
            fetched += 1;
            if there.len() == frames {
                there.pop_last();
            }
        }
        there.insert(next);
    }
    fetched
}

/// For each access, when its page is accessed again; where it is not, a time of its own after the end.
fn next_uses(accesses: &[u32]) -> Vec<usize> {
    let mut seen = HashMap::new();
    let mut next: Vec<usize> = (0..accesses.len()).map(|now| accesses.len() + now).collect();
    for (now, page) in accesses.iter().enumerate().rev() {
        if let Some(later) = seen.insert(*page, now) {
            next[now] = later;
        }
    }
    next
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The fewest by trying every victim.
    fn fewest(accesses: &[u32], there: &[u32], frames: usize) -> u64 {
        let Some((&page, rest)) = accesses.split_first() else { return 0 };
        if there.contains(&page) {
            return fewest(rest, there, frames);
        }
        let with = |kept: Vec<u32>| fewest(rest, &[kept, vec![page]].concat(), frames);
        if there.len() < frames {
            return 1 + with(there.to_vec());
        }
        let without =
            |victim: &u32| there.iter().copied().filter(|other| other != victim).collect();
        1 + there.iter().map(|victim| with(without(victim))).min().unwrap_or(0)
    }

    #[test]
    fn no_choice_of_victims_brings_fewer() {
        let mut state = 7u64;
        for _ in 0..200 {
            let accesses: Vec<u32> = (0..12)
                .map(|_| {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    (state >> 33) as u32 % 5
                })
                .collect();
            for frames in 1..=4 {
                assert_eq!(fetches(&accesses, frames), fewest(&accesses, &[], frames));
            }
        }
    }

    #[test]
    fn a_scan_again_and_again_brings_what_does_not_fit() {
        // 100 pages five times, 64 frames: all once, then little more than the 36 that do not fit, as the
        // page in use takes a frame as well.
        let accesses: Vec<u32> = (0..5).flat_map(|_| 0..100).collect();
        let fetched = fetches(&accesses, 64);
        assert!((244..=100 + 4 * 37).contains(&fetched), "{fetched}");
        assert_eq!(fetches(&accesses, 100), 100);
        assert_eq!(fetches(&accesses, 1), 500);
    }
}
