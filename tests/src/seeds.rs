//! Which seeds random runs have: the usual ones and new ones, or what `FARSIDE_SEED` says.
//!
//! | `FARSIDE_SEED` | |
//! |---|---|
//! | not set | the usual ones, which are the same each time, and as many that are drawn each time |
//! | `n` | that seed alone: what a failure prints, to repeat it |
//! | `n..` | as many as usual, from `n` on: other runs than the usual ones |
//!
//! The usual ones say that nothing has got worse. They have long been passed, so only new ones find what
//! nobody has found yet: whoever runs the tests looks at worlds that no one has looked at.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::ops::Range;

/// The seeds of a campaign that usually has these, none of them drawn.
///
/// # Panics
/// If `FARSIDE_SEED` is neither.
pub fn seeds(usual: Range<u64>) -> Range<u64> {
    given(usual.clone()).unwrap_or(usual)
}

/// The seeds of a campaign that usually has these, and as many new ones.
///
/// # Panics
/// If `FARSIDE_SEED` is neither.
pub(crate) fn seeds_and_new_ones(usual: Range<u64>) -> Vec<Range<u64>> {
    match given(usual.clone()) {
        Some(only) => vec![only],
        None => {
            let new = draw(&usual);
            vec![usual, new]
        }
    }
}

/// What `FARSIDE_SEED` says in place of the usual seeds, if it is set.
fn given(usual: Range<u64>) -> Option<Range<u64>> {
    let text = std::env::var("FARSIDE_SEED").ok()?;
    let chosen = choose(&text, usual);
    Some(chosen.unwrap_or_else(|| panic!("FARSIDE_SEED is {text:?}; give it `n` or `n..`")))
}

/// As many seeds as usual, others each time. They are short enough to be typed.
fn draw(usual: &Range<u64>) -> Range<u64> {
    // The only randomness in the standard library: the keys of its hash tables.
    let first = RandomState::new().hash_one(usual.start) >> 32;
    first..first + (usual.end - usual.start)
}

fn choose(text: &str, usual: Range<u64>) -> Option<Range<u64>> {
    match text.strip_suffix("..") {
        Some(first) => {
            let first: u64 = first.parse().ok()?;
            Some(first..first.checked_add(usual.end - usual.start)?)
        }
        None => {
            let only: u64 = text.parse().ok()?;
            Some(only..only.checked_add(1)?)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{choose, draw};

    #[test]
    fn a_seed_alone_or_as_many_as_usual_from_one_on() {
        assert_eq!(choose("7", 100..118), Some(7..8));
        assert_eq!(choose("7..", 100..118), Some(7..25));
        for nonsense in ["", "..", "x", "-1", "7..9", &u64::MAX.to_string()] {
            assert_eq!(choose(nonsense, 0..18), None, "{nonsense}");
        }
    }
    #[test]
    fn as_many_as_usual_are_drawn_and_others_each_time() {
        let drawn: Vec<_> = (0..8).map(|_| draw(&(100..118))).collect();
        assert!(drawn.iter().all(|seeds| seeds.end - seeds.start == 18), "{drawn:?}");
        assert!(drawn.iter().any(|seeds| *seeds != drawn[0]), "{drawn:?}");
    }
}
