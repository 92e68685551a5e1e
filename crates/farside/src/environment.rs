//! Environment variables: which there are, and what to say of those that there are not.

use std::sync::Once;

use crate::{CARDS_VARIABLE, RECORD_VARIABLE};

/// What names of our variables begin with.
const PREFIX: &str = "FARSIDE_";

/// The variables that the library, the command and the project's own tests and scripts read.
const KNOWN: [&str; 16] = [
    CARDS_VARIABLE,
    RECORD_VARIABLE,
    "FARSIDE_BIN",
    "FARSIDE_EXPORT_KERNELS",
    "FARSIDE_KEEP_FIGURES",
    "FARSIDE_LIVE_ROLE",
    "FARSIDE_LOG",
    "FARSIDE_NO_INSTALL",
    "FARSIDE_QEMU_CACHE",
    "FARSIDE_QEMU_LOGS",
    "FARSIDE_RAY_VENV",
    "FARSIDE_SECONDS",
    "FARSIDE_SEED",
    "FARSIDE_STEPS",
    "FARSIDE_TEST_CHILD",
    "FARSIDE_WRITE_OUTCOMES",
];

/// How alike a name has to be to one that there is, from 0 to 1, for that to be suggested.
const ALIKE: f64 = 0.85;

/// Says once for the process, on its standard error, which variables look like ours and are not: what
/// they were to change stays as it is.
pub(crate) fn warn_of_unknown() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        for (name, _) in std::env::vars_os() {
            if let Some(text) = name.to_str().and_then(complaint) {
                eprintln!("farside: {text}");
            }
        }
    });
}

/// What is wrong with a variable of this name, if it looks like ours.
fn complaint(name: &str) -> Option<String> {
    if !name.starts_with(PREFIX) || KNOWN.contains(&name) {
        return None;
    }
    let alike = |known: &&str| strsim::jaro_winkler(&name[PREFIX.len()..], &known[PREFIX.len()..]);
    let nearest = KNOWN.iter().max_by(|a, b| alike(a).total_cmp(&alike(b)));
    let suggestion = match nearest.filter(|known| alike(known) >= ALIKE) {
        Some(known) => format!("did you mean {known}?"),
        None => format!("programs read {CARDS_VARIABLE} and {RECORD_VARIABLE}"),
    };
    Some(format!("the environment variable {name} is not known and changes nothing; {suggestion}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_nearly_known_is_told_from_one_that_is_not() {
        assert_eq!(complaint("PATH"), None);
        assert_eq!(complaint("FARSIDE_CARDS"), None);
        let near = complaint("FARSIDE_CARD").unwrap();
        assert!(near.contains("FARSIDE_CARD is") && near.contains("FARSIDE_CARDS?"), "{near}");
        let far = complaint("FARSIDE_ZZZ").unwrap();
        assert!(!far.contains("mean") && far.contains("FARSIDE_CARDS"), "{far}");
        assert!(complaint("FARSIDE_").is_some());
    }
}
