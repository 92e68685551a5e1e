//! Text of bounded length that others wrote: reasons, names of persons.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// A line of text for people, at most [`Text::BYTES_MAX`] bytes: more is cut off, control characters
/// become `?`, so that it can go into a log.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub struct Text(Arc<str>);

impl Text {
    /// The longest text.
    pub const BYTES_MAX: usize = 256;

    /// The text itself.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&str> for Text {
    fn from(text: &str) -> Self {
        let mut kept = String::new();
        for letter in text.chars().map(|letter| if letter.is_control() { '?' } else { letter }) {
            if kept.len() + letter.len_utf8() > Self::BYTES_MAX {
                break;
            }
            kept.push(letter);
        }
        Self(kept.into())
    }
}

impl From<String> for Text {
    fn from(text: String) -> Self {
        Self::from(text.as_str())
    }
}

impl From<Text> for String {
    fn from(text: Text) -> Self {
        text.0.as_ref().to_owned()
    }
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_others_is_short_and_one_line() {
        let text = Text::from("é".repeat(200).as_str());
        assert_eq!(text.as_str().len(), Text::BYTES_MAX);
        assert_eq!(Text::from("a\nb\u{1b}[0m").as_str(), "a?b?[0m");
    }
}
