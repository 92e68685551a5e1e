//! `--cards`: which cards a command runs on.

use farside::{CardPlace, SpaceBuilder, cards_of_environment, parse_cards};

use super::Failure;

/// Memory of each card in the program, unless somebody says otherwise.
const MEMORY_DEFAULT: u64 = 64 << 20;

/// Cards in this program, or elsewhere.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum WhichCards {
    /// So many in the program.
    InProgram(usize),
    /// Those at these places.
    At(Vec<CardPlace>),
}

/// Reads what is given on the command line: a number, a list of places, or a file of them.
pub(crate) fn parse_which(text: &str) -> Result<WhichCards, String> {
    if text.bytes().all(|byte| byte.is_ascii_digit()) {
        return text.parse().map(WhichCards::InProgram).map_err(|_| EXPECTED.to_owned());
    }
    parse_cards(text).map(WhichCards::At).map_err(|error| error.to_string())
}

const EXPECTED: &str = "expected a number, 1 to 16, or the places of cards";

impl WhichCards {
    /// These, or those that the environment names, which has the last word.
    pub(crate) fn resolve(&self) -> Result<WhichCards, Failure> {
        let named = cards_of_environment()?;
        Ok(named.map_or_else(|| self.clone(), WhichCards::At))
    }

    /// Where each of them is, for people; nothing if all are in the program.
    pub(crate) fn places(&self) -> Vec<String> {
        match self {
            WhichCards::InProgram(_) => Vec::new(),
            WhichCards::At(places) => places.iter().map(CardPlace::to_string).collect(),
        }
    }

    /// Opens a space on them. `memory` is that of each card in the program; cards elsewhere have
    /// what they have.
    pub(crate) fn apply(
        &self,
        builder: SpaceBuilder,
        memory: Option<u64>,
    ) -> Result<SpaceBuilder, Failure> {
        match (self, memory) {
            (WhichCards::InProgram(cards), memory) => {
                Ok(builder.cards(*cards).card_memory(memory.unwrap_or(MEMORY_DEFAULT)))
            }
            (WhichCards::At(places), None) => Ok(builder.cards_at(places.iter().cloned())),
            (WhichCards::At(_), Some(_)) => Err(Failure::Usage(
                "--card-memory is for cards in this program; give `farside card serve` --memory, \
                 or write program:BYTES into the list"
                    .to_owned(),
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_places_and_files_are_told_apart() {
        assert_eq!(parse_which("4"), Ok(WhichCards::InProgram(4)));
        let socket = |path: &str| CardPlace::Socket(path.into());
        let two = WhichCards::At(vec![socket("/a/b"), socket("./c")]);
        assert_eq!(parse_which("/a/b,./c"), Ok(two.clone()));
        assert_eq!(two.places(), ["/a/b", "./c"]);
        assert!(WhichCards::InProgram(2).places().is_empty());
        assert!(parse_which("99999999999999999999").unwrap_err().contains("1 to 16"));
        assert!(parse_which("card0").unwrap_err().contains("farside card serve"));
        assert!(parse_which("/no/such/file.list").unwrap_err().contains("/no/such/file.list"));
    }
}
