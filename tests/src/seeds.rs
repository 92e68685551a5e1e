//! Which seeds random runs have: the usual ones, or what `FARSIDE_SEED` says.
//!
//! | `FARSIDE_SEED` | |
//! |---|---|
//! | `n` | that seed alone: what a failure prints, to repeat it |
//! | `n..` | as many as usual, from `n` on: other runs than the usual ones |

use std::ops::Range;

/// The seeds of a campaign that usually has these.
///
/// # Panics
/// If `FARSIDE_SEED` is neither.
pub fn seeds(usual: Range<u64>) -> Range<u64> {
    match std::env::var("FARSIDE_SEED") {
        Ok(text) => {
            let chosen = choose(&text, usual);
            chosen.unwrap_or_else(|| panic!("FARSIDE_SEED is {text:?}; give it `n` or `n..`"))
        }
        Err(_) => usual,
    }
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
    use super::choose;

    #[test]
    fn a_seed_alone_or_as_many_as_usual_from_one_on() {
        assert_eq!(choose("7", 100..118), Some(7..8));
        assert_eq!(choose("7..", 100..118), Some(7..25));
        for nonsense in ["", "..", "x", "-1", "7..9", &u64::MAX.to_string()] {
            assert_eq!(choose(nonsense, 0..18), None, "{nonsense}");
        }
    }
}
