//! Which cards a program uses: a list of places, or a file of them.

use std::path::Path;

use farside_live::CardPlace;
use farside_types::PAGE_SIZE;

use crate::Error;

/// The environment variable that says where a program's cards are, whatever the program says: places
/// separated by commas, or the path of a file whose name ends in `.list`.
pub const CARDS_VARIABLE: &str = "FARSIDE_CARDS";

/// What a card in the program is called in a list, with its bytes of memory: `program:67108864`.
const IN_PROGRAM: &str = "program:";

/// The places of a list, `a,b,c`, or those of a file whose name ends in `.list`: one a line, where
/// empty lines and those that begin with `#` say nothing.
///
/// A place is what [`CardPlace`] reads, or `program:BYTES`, a card in the program.
///
/// # Errors
/// [`Error::Cards`] names the entry that cannot be used.
pub fn parse_cards(text: &str) -> Result<Vec<CardPlace>, Error> {
    if text.ends_with(".list") {
        return read_file(Path::new(text));
    }
    let place = |text: &str| place(text).map_err(|why| cards_error(text, &why));
    text.split(',').map(str::trim).map(place).collect()
}

fn cards_error(of: &str, why: &dyn std::fmt::Display) -> Error {
    Error::Cards { list: of.to_owned(), why: why.to_string() }
}

fn read_file(path: &Path) -> Result<Vec<CardPlace>, Error> {
    let name = path.display().to_string();
    let text = std::fs::read_to_string(path).map_err(|error| cards_error(&name, &error))?;
    let lines = text.lines().map(str::trim).enumerate();
    let places = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    let place = |(index, line): (usize, &str)| {
        let at = |why| cards_error(&name, &format!("line {}: {why}", index + 1));
        place(line).map_err(at)
    };
    places.map(place).collect()
}

fn place(text: &str) -> Result<CardPlace, String> {
    let Some(bytes) = text.strip_prefix(IN_PROGRAM) else {
        return text.parse().map_err(|error: farside_live::PlaceError| error.to_string());
    };
    bytes.parse().ok().and_then(in_program).ok_or_else(|| {
        format!(
            "`{text}` names no card: its bytes of memory are a multiple of {PAGE_SIZE}, at least \
             one page, at most 8 TiB"
        )
    })
}

fn in_program(bytes: u64) -> Option<CardPlace> {
    let page = PAGE_SIZE as u64;
    let frames = u32::try_from(bytes / page).ok()?;
    (bytes % page == 0 && frames > 0).then_some(CardPlace::InProgram { frames })
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

    fn far(path: &str) -> CardPlace {
        CardPlace::Socket(path.into())
    }

    fn refused(text: &str) -> String {
        parse_cards(text).unwrap_err().to_string()
    }

    #[test]
    fn lists_name_cards() {
        assert_eq!(parse_cards("/a/b, /c").unwrap(), [far("/a/b"), far("/c")]);
        let mixed = parse_cards("program:8192,/a").unwrap();
        assert_eq!(mixed, [CardPlace::InProgram { frames: 2 }, far("/a")]);
        assert!(refused("nonsense").contains("nonsense"));
        for bytes in ["", "0", "4095", "-4096", "99999999999999999999"] {
            assert!(refused(&format!("program:{bytes}")).contains("multiple of 4096"), "{bytes}");
        }
    }

    #[test]
    fn files_name_cards() {
        let path = std::env::temp_dir().join(format!("farside-{}.list", std::process::id()));
        let of = |text: &str| {
            std::fs::write(&path, text).unwrap();
            parse_cards(path.to_str().unwrap())
        };
        let read = of("# two\n/a/b\n\n  program:8192  \n");
        let wrong = of("/a/b\nhere\n");
        std::fs::remove_file(&path).unwrap();
        assert_eq!(read.unwrap(), [far("/a/b"), CardPlace::InProgram { frames: 2 }]);
        assert!(wrong.unwrap_err().to_string().contains("line 2: `here`"));
        assert!(refused("/no/such/file.list").contains("/no/such/file.list"));
    }
}
