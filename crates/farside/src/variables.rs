//! The environment variables of Farside, and those that look like them and are none.

use std::sync::Once;

use crate::{CARDS_VARIABLE, EVENTS_VARIABLE, RECORD_VARIABLE, SCHEME_LIMIT_VARIABLE};

/// What the names of all of them begin with.
const PREFIX: &str = "FARSIDE_";

/// Those that programs know, then those of scripts and tests, which a program that one of them
/// starts sees as well.
pub const VARIABLES: &[&str] = &[
    CARDS_VARIABLE,
    EVENTS_VARIABLE,
    RECORD_VARIABLE,
    "FARSIDE_BIN",
    "FARSIDE_C_LIBRARY",
    "FARSIDE_DEVICES",
    "FARSIDE_LEND_HOME",
    "FARSIDE_LIVE_ROLE",
    "FARSIDE_LOG",
    "FARSIDE_NO_INSTALL",
    "FARSIDE_PYTHON_LIBRARY",
    "FARSIDE_PYTHON_VENV",
    "FARSIDE_QEMU_CACHE",
    "FARSIDE_QEMU_LOGS",
    "FARSIDE_RAY_VENV",
    "FARSIDE_RTL_CYCLES",
    "FARSIDE_RTL_NETLIST",
    "FARSIDE_RTL_NETLISTS",
    "FARSIDE_RTL_POINTS",
    "FARSIDE_RTL_TOOLS",
    SCHEME_LIMIT_VARIABLE,
    "FARSIDE_SECONDS",
    "FARSIDE_SEED",
    "FARSIDE_STEPS",
    "FARSIDE_TEST_CHILD",
    "FARSIDE_WRITE_OUTCOMES",
    "FARSIDE_WRITE_STATISTICS",
];

/// A variable that nothing knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownVariable {
    /// Its name.
    pub name: String,
    /// The variable that may be meant.
    pub nearest: Option<&'static str>,
}

impl std::fmt::Display for UnknownVariable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "nothing knows the environment variable {}", self.name)?;
        self.nearest.map_or(Ok(()), |nearest| write!(f, "; did you mean {nearest}?"))
    }
}

/// The variables of the environment that begin with `FARSIDE_` and that nothing knows: set to no
/// effect, perhaps by a slip of the finger.
#[must_use]
pub fn unknown_variables() -> Vec<UnknownVariable> {
    let names = std::env::vars_os().map(|(name, _)| name.to_string_lossy().into_owned());
    unknown(names)
}

fn unknown(names: impl Iterator<Item = String>) -> Vec<UnknownVariable> {
    let ours = names.filter(|name| name.starts_with(PREFIX));
    let unknown = ours.filter(|name| !VARIABLES.contains(&name.as_str()));
    // What all names have in common makes none of them nearer than another.
    let own = |name: &'static str| name.strip_prefix(PREFIX).unwrap_or(name);
    let nearest = |name: String| {
        let found = nearest(&name[PREFIX.len()..], VARIABLES.iter().copied().map(own));
        let nearest = VARIABLES.iter().copied().find(|&known| Some(own(known)) == found);
        UnknownVariable { name, nearest }
    };
    let mut unknown: Vec<_> = unknown.map(nearest).collect();
    unknown.sort_by(|a, b| a.name.cmp(&b.name));
    unknown
}

/// Says once in a process which variables nothing knows: as a warning of `tracing`, or on standard
/// error if nobody listens to that.
pub fn warn_of_unknown_variables() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        for variable in unknown_variables() {
            if tracing::dispatcher::has_been_set() {
                tracing::warn!("{variable}");
            } else {
                eprintln!("farside: {variable}");
            }
        }
    });
}

/// Of the names that are known the one that may be meant, if there is one.
#[must_use]
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    /// A slip or two, where what is given is long enough to have so many.
    const SLIPS_MAX: usize = 2;
    let most = SLIPS_MAX.min(name.chars().count() / 2);
    let slips = |known: &&str| strsim::damerau_levenshtein(name, known);
    known.into_iter().filter(|known| slips(known) <= most).min_by_key(slips)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_of_the_finger_is_named_with_what_may_be_meant() {
        let names = ["FARSIDE_CARD", "FARSIDE_CARDS", "PATH", "FARSIDE_ZOO", "FARSIDE_RECROD"];
        let found = unknown(names.into_iter().map(String::from));
        let found: Vec<_> = found.iter().map(|it| (it.name.as_str(), it.nearest)).collect();
        let (cards, record) = (Some("FARSIDE_CARDS"), Some("FARSIDE_RECORD"));
        let wanted = [("FARSIDE_CARD", cards), ("FARSIDE_RECROD", record), ("FARSIDE_ZOO", None)];
        assert_eq!(found, wanted);
    }

    /// The names in the file or in the files of the folder, at any depth.
    fn names_in(path: &std::path::Path, found: &mut Vec<String>) {
        if path.is_dir() {
            for entry in std::fs::read_dir(path).expect("can be read") {
                names_in(&entry.expect("can be read").path(), found);
            }
        } else if let Ok(text) = std::fs::read_to_string(path) {
            let is_of_a_name = |c: char| c.is_ascii_uppercase() || c == '_';
            let words =
                text.split(|c| !is_of_a_name(c)).filter_map(|word| word.strip_prefix(PREFIX));
            found.extend(words.filter(|own| !own.is_empty()).map(|own| format!("{PREFIX}{own}")));
        }
    }

    #[test]
    fn every_variable_of_the_scripts_is_known() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let mut found = Vec::new();
        names_in(&root.join("scripts"), &mut found);
        names_in(&root.join("Makefile"), &mut found);
        assert!(found.iter().any(|name| name == "FARSIDE_BIN"), "the scripts were not read");
        // A macro of farside.h.
        found.retain(|name| name != "FARSIDE_ABI");
        assert_eq!(unknown(found.into_iter()), []);
    }

    #[test]
    fn the_nearest_name_is_near() {
        let known = ["grit", "on-touch", "mm"];
        assert_eq!(nearest("girt", known), Some("grit"));
        assert_eq!(nearest("ontouch", known), Some("on-touch"));
        assert_eq!(nearest("x", known), None);
        assert_eq!(nearest("duplication", known), None);
    }
}
