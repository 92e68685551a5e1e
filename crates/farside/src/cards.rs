//! Which cards a program uses: a list of places, or a file.

use std::path::Path;

use farside_live::CardPlace;
use serde::Deserialize;

use crate::Error;

/// The environment variable that says where a program's cards are, whatever the program says: places
/// separated by commas, or the path of a TOML file.
pub const CARDS_VARIABLE: &str = "FARSIDE_CARDS";

/// A file that lists cards.
///
/// ```toml
/// [[card]]
/// at = "/run/farside/card0"
///
/// [[card]]
/// memory_bytes = 67108864   # a card in the program
/// ```
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    card: Vec<Entry>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    /// A place, as on the command line.
    at: Option<String>,
    /// Bytes of memory of a card in the program, a multiple of 4096.
    memory_bytes: Option<u64>,
}

/// The places of a list, `a,b,c`, or those of a file whose name ends in `.toml`.
///
/// # Errors
/// [`Error::Cards`] names the entry that cannot be used.
pub fn parse_cards(text: &str) -> Result<Vec<CardPlace>, Error> {
    if text.ends_with(".toml") {
        return read_file(Path::new(text));
    }
    let place = |place: &str| {
        place.trim().parse().map_err(|error: farside_live::PlaceError| cards_error(text, &error))
    };
    text.split(',').map(place).collect()
}

fn cards_error(of: &str, why: &dyn std::fmt::Display) -> Error {
    Error::Cards { list: of.to_owned(), why: why.to_string() }
}

fn read_file(path: &Path) -> Result<Vec<CardPlace>, Error> {
    let name = path.display().to_string();
    let text = std::fs::read_to_string(path).map_err(|error| cards_error(&name, &error))?;
    let file: File = toml::from_str(&text).map_err(|error| cards_error(&name, &error))?;
    let entries = file.card.iter().enumerate();
    entries
        .map(|(index, entry)| {
            let wrong = |why: &str| cards_error(&name, &format!("card {index}: {why}"));
            match (&entry.at, entry.memory_bytes) {
                (Some(at), None) => at.parse().map_err(|error| cards_error(&name, &error)),
                (None, Some(bytes)) => in_program(bytes).ok_or_else(|| {
                    wrong("memory_bytes is a multiple of 4096, at least one page, at most 8 TiB")
                }),
                _ => Err(wrong("give either `at` or `memory_bytes`")),
            }
        })
        .collect()
}

fn in_program(bytes: u64) -> Option<CardPlace> {
    let frames = u32::try_from(bytes / 4096).ok()?;
    (bytes % 4096 == 0 && frames > 0).then_some(CardPlace::InProgram { frames })
}

/// The places that the environment names by [`CARDS_VARIABLE`], if it does.
///
/// # Errors
/// As [`parse_cards`].
pub fn cards_of_environment() -> Result<Option<Vec<CardPlace>>, Error> {
    match std::env::var(CARDS_VARIABLE) {
        Ok(text) if !text.is_empty() => parse_cards(&text).map(Some),
        _ => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_and_files_name_cards() {
        let far = |path: &str| CardPlace::Socket(path.into());
        assert_eq!(parse_cards("/a/b, /c").unwrap(), [far("/a/b"), far("/c")]);
        let path = std::env::temp_dir().join(format!("farside-{}.toml", std::process::id()));
        let text = "[[card]]\nat = \"/a/b\"\n[[card]]\nmemory_bytes = 8192\n";
        std::fs::write(&path, text).unwrap();
        let read = parse_cards(path.to_str().unwrap());
        std::fs::write(&path, "[[card]]\nat = \"/a\"\nmemory_bytes = 4096\n").unwrap();
        let both = parse_cards(path.to_str().unwrap());
        std::fs::write(&path, "[[card]]\nwhere = \"/a\"\n").unwrap();
        let unknown = parse_cards(path.to_str().unwrap());
        std::fs::remove_file(&path).unwrap();
        assert_eq!(read.unwrap(), [far("/a/b"), CardPlace::InProgram { frames: 2 }]);
        assert!(both.unwrap_err().to_string().contains("card 0"));
        assert!(unknown.unwrap_err().to_string().contains("where"));
        assert!(parse_cards("nonsense").unwrap_err().to_string().contains("nonsense"));
        assert!(parse_cards("/no/such/file.toml").is_err());
    }
}
