//! Names with gaps: `*` stands for any characters, also none, `?` for one.

use super::{Word, Wrong};

/// Bytes of a pattern, at most.
const BYTES_MAX: usize = 128;
/// Patterns in a list, at most.
const PATTERNS_MAX: usize = 64;

/// One of which a name has to be; an empty list is any.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Patterns(Vec<String>);

impl Patterns {
    /// As they are written.
    pub(super) fn parse(written: &[Word]) -> Result<Patterns, Wrong> {
        if let Some(more) = written.get(PATTERNS_MAX) {
            return Err(Wrong::at(more, format!("at most {PATTERNS_MAX} patterns are in a list")));
        }
        let pattern = |word: &Word| {
            let text = word.get_ref();
            let allowed = |c: char| c.is_ascii_alphanumeric() || "._-@$*?".contains(c);
            if (1..=BYTES_MAX).contains(&text.len()) && text.chars().all(allowed) {
                return Ok(text.clone());
            }
            let why = format!(
                "`{text}` is no pattern of a name: letters, digits and . _ - @ $ with `*` for any \
                 characters and `?` for one"
            );
            Err(Wrong::at(word, why))
        };
        written.iter().map(pattern).collect::<Result<_, _>>().map(Patterns)
    }

    pub(super) fn match_name(&self, name: &str) -> bool {
        self.0.is_empty()
            || self.0.iter().any(|pattern| is_like(pattern.as_bytes(), name.as_bytes()))
    }

    /// As it is written.
    pub(super) fn text(&self) -> String {
        if self.0.is_empty() { "*".to_owned() } else { self.0.join(" ") }
    }
}

/// Whether a name is like a pattern, in at most as many steps as both have bytes, multiplied.
fn is_like(pattern: &[u8], name: &[u8]) -> bool {
    let (mut at, mut of) = (0, 0);
    // The last gap, and how far the name went when it was reached: more of the name may be in it.
    let mut gap: Option<(usize, usize)> = None;
    while of < name.len() {
        match pattern.get(at) {
            Some(b'*') => {
                gap = Some((at, of));
                at += 1;
            }
            Some(&byte) if byte == b'?' || byte == name[of] => {
                at += 1;
                of += 1;
            }
            _ => match &mut gap {
                Some((star, from)) => {
                    *from += 1;
                    (at, of) = (*star + 1, *from);
                }
                None => return false,
            },
        }
    }
    pattern[at..].iter().all(|&byte| byte == b'*')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The same by its meaning.
    fn means(pattern: &[u8], name: &[u8]) -> bool {
        match pattern.split_first() {
            None => name.is_empty(),
            Some((b'*', rest)) => (0..=name.len()).any(|from| means(rest, &name[from..])),
            Some((&byte, rest)) => name
                .split_first()
                .is_some_and(|(&first, left)| (byte == b'?' || byte == first) && means(rest, left)),
        }
    }

    proptest! {
        #[test]
        fn a_pattern_matches_what_it_means(pattern in "[ab*?]{0,8}", name in "[ab]{0,8}") {
            let (pattern, name) = (pattern.as_bytes(), name.as_bytes());
            prop_assert_eq!(is_like(pattern, name), means(pattern, name));
        }
    }

    #[test]
    fn a_pattern_full_of_gaps_takes_no_time() {
        let (pattern, name) = ("*a".repeat(64), "a".repeat(63) + "b");
        assert!(!is_like(pattern.as_bytes(), name.as_bytes()));
    }
}
