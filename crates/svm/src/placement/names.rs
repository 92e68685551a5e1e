//! Schemes by name: `NAME` or `NAME:key=value,key=value`.

use std::fmt;

use thiserror::Error;

use super::parameters::{Parameter, Parameters};
use super::{AccessCounter, Duplication, Farside, FirstTouch, Grit, OnTouch, PlacementScheme};

/// A scheme that can be had by its name. Whoever has schemes of their own makes a list of these and
/// gives it to [`find`].
#[derive(Clone, Copy)]
pub struct NamedScheme {
    /// Its name, without `:`, `,`, `=` or `+`.
    pub name: &'static str,
    /// What it does, in a line.
    pub about: &'static str,
    /// Makes it of its parameters. It asks for all that it has, so that a list can show them.
    pub make: fn(&mut Parameters<'_>) -> Result<Box<dyn PlacementScheme>, SchemeError>,
}

/// The schemes that every machine can do.
pub const SCHEMES: [NamedScheme; 6] = [
    NamedScheme {
        name: "on-touch",
        about: "a page moves to whoever touches it",
        make: |_| Ok(Box::new(OnTouch)),
    },
    NamedScheme {
        name: "first-touch",
        about: "a page moves to who touches it first and stays; others map it remotely",
        make: |_| Ok(Box::new(FirstTouch)),
    },
    NamedScheme {
        name: "access-counter",
        about: "a page of another card is mapped remotely and moves after many accesses",
        make: |parameters| Ok(Box::new(AccessCounter::from_parameters(parameters)?)),
    },
    NamedScheme {
        name: "duplication",
        about: "readers get copies; a write takes the other copies away",
        make: |_| Ok(Box::new(Duplication)),
    },
    NamedScheme {
        name: "grit",
        about: "each page has one of these schemes, by its faults and those around it (GRIT)",
        make: |parameters| Ok(Box::new(Grit::from_parameters(parameters)?)),
    },
    NamedScheme {
        name: "farside",
        about: "learns from faults what allocations and ranges need, and moves them whole",
        make: |parameters| Ok(Box::new(Farside::from_parameters(parameters)?)),
    },
];

/// The scheme that a program's space has unless it asks for another.
pub const DEFAULT: &str = "farside";

/// Names of [`SCHEMES`].
pub const NAMES: [&str; SCHEMES.len()] = {
    let mut names = [""; SCHEMES.len()];
    let mut at = 0;
    while at < names.len() {
        names[at] = SCHEMES[at].name;
        at += 1;
    }
    names
};

/// Names of schemes that need a simulated machine, or are yardsticks of one (`farside_sim::scheme`). Kept
/// here so that [`by_name`] can say why it has no such scheme.
pub const ONLY_SIMULATED: [&str; 5] = ["griffin-dpc", "copy-move-map", "griffin", "gps", "ideal"];

/// The scheme of [`SCHEMES`] that `text` names, alone or with parameters, as in
/// `grit:threshold=8,cache=off`.
///
/// # Errors
/// [`SchemeError`] names the scheme, the parameter or the value that cannot be.
pub fn by_name(text: &str) -> Result<Box<dyn PlacementScheme>, SchemeError> {
    let name = text.split(':').next().unwrap_or(text);
    // What follows a `+` changes the simulated machine.
    if ONLY_SIMULATED.contains(&name) || text.contains('+') {
        let schemes = NAMES.join(", ");
        return Err(SchemeError::OnlySimulated { name: text.to_owned(), schemes });
    }
    find(text, &SCHEMES)
}

/// The scheme of this list that `text` names, with its parameters.
///
/// # Errors
/// [`SchemeError`] names the scheme, the parameter or the value that cannot be.
pub fn find<'a>(
    text: &str,
    schemes: impl IntoIterator<Item = &'a NamedScheme, IntoIter: Clone>,
) -> Result<Box<dyn PlacementScheme>, SchemeError> {
    let mut parameters = Parameters::of(text)?;
    let name = parameters.scheme();
    let mut schemes = schemes.into_iter();
    let known = schemes.clone();
    let Some(named) = schemes.find(|named| named.name == name) else {
        let known: Vec<&str> = known.map(|named| named.name).collect();
        return Err(SchemeError::Name { name: name.to_owned(), schemes: known.join(", ") });
    };
    let scheme = (named.make)(&mut parameters)?;
    parameters.finish()?;
    Ok(scheme)
}

/// A scheme as a list shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SchemeInfo {
    /// Its name.
    pub name: &'static str,
    /// What it does, in a line.
    pub about: &'static str,
    /// What follows its name, if anything.
    pub parameters: Vec<Parameter>,
}

/// Every scheme of [`SCHEMES`] with its parameters.
pub fn all() -> Vec<SchemeInfo> {
    SCHEMES.iter().map(NamedScheme::info).collect()
}

impl NamedScheme {
    /// What a list shows of it.
    pub fn info(&self) -> SchemeInfo {
        // A scheme says what its parameters are by asking for them.
        let mut parameters = Parameters::none(self.name);
        // Without any value none can be refused.
        let _ = (self.make)(&mut parameters);
        let parameters = parameters.into_known();
        SchemeInfo { name: self.name, about: self.about, parameters }
    }
}

impl fmt::Debug for NamedScheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NamedScheme").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Why a scheme is refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SchemeError {
    /// There is no such scheme.
    #[error(
        "there is no placement scheme named {name:?}; schemes are: {schemes}; a library of your own \
         is named by its path, which ends in .so"
    )]
    Name {
        /// The name given.
        name: String,
        /// Those that there are.
        schemes: String,
    },
    /// The scheme, or what is put behind its name, is of a simulated machine.
    #[error(
        "{name} runs in simulated time only (`farside sim --scheme {name}`); a live program can \
         have: {schemes}"
    )]
    OnlySimulated {
        /// The name given.
        name: String,
        /// Those that a live program can have.
        schemes: String,
    },
    /// The scheme has no such parameter.
    #[error("the placement scheme {scheme} has no parameter {key:?}; it has: {known}")]
    Key {
        /// The scheme.
        scheme: String,
        /// The parameter given.
        key: String,
        /// Those that it has.
        known: String,
    },
    /// The parameter cannot have this value.
    #[error("the placement scheme {scheme} cannot have {key}={value}: {why}")]
    Value {
        /// The scheme.
        scheme: String,
        /// The parameter.
        key: String,
        /// The value given.
        value: String,
        /// What it can be.
        why: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_makes_its_scheme() {
        for name in &NAMES {
            assert_eq!(by_name(name).unwrap().name(), *name);
        }
    }

    #[test]
    fn a_scheme_takes_every_parameter_that_it_is_said_to_have() {
        for scheme in all() {
            assert!(!scheme.about.is_empty(), "{}", scheme.name);
            for parameter in &scheme.parameters {
                let given = |value: &str| format!("{}:{}={value}", scheme.name, parameter.key);
                assert!(!parameter.about.is_empty(), "{}", parameter.key);
                let default = given(&parameter.kind.default_value());
                assert!(by_name(&default).is_ok(), "{default}");
                let refused = by_name(&given("red")).unwrap_err().to_string();
                assert!(refused.contains(&parameter.kind.to_string()), "{refused}");
            }
        }
    }

    #[test]
    fn the_list_has_every_name() {
        assert_eq!(all().iter().map(|info| info.name).collect::<Vec<_>>(), NAMES);
        let grit = all().into_iter().find(|info| info.name == "grit").unwrap();
        let keys: Vec<_> = grit.parameters.iter().map(|parameter| parameter.key).collect();
        assert_eq!(keys, ["threshold", "cache", "neighbours"]);
    }

    #[test]
    fn what_only_a_simulated_machine_can_do_is_refused_and_says_where_it_runs() {
        for name in ONLY_SIMULATED.into_iter().chain(["gps:copies=2", "grit+acud"]) {
            let refused = by_name(name).unwrap_err().to_string();
            assert!(refused.contains(&format!("farside sim --scheme {name}")), "{refused}");
            assert!(refused.contains("on-touch, first-touch"), "{refused}");
        }
    }

    #[test]
    fn a_list_of_ones_own_is_searched_in_the_same_way() {
        let make: NamedScheme = NamedScheme {
            name: "stay",
            about: "a page stays",
            make: |parameters| {
                parameters.number("times", 1, 1..=9, "how often")?;
                Ok(Box::new(FirstTouch))
            },
        };
        let ours = || SCHEMES.iter().chain([&make]);
        assert_eq!(find("stay:times=9", ours()).unwrap().name(), "first-touch");
        assert_eq!(find("grit", ours()).unwrap().name(), "grit");
        let refused = find("go", ours()).unwrap_err().to_string();
        assert!(refused.contains("farside, stay; a library of your own"), "{refused}");
        assert!(find("stay:times=10", ours()).unwrap_err().to_string().contains("from 1 to 9"));
        assert_eq!(make.info().parameters[0].key, "times");
    }

    #[test]
    fn what_cannot_be_is_named() {
        let refused = |text| by_name(text).unwrap_err().to_string();
        assert!(refused("best").contains("\"best\""));
        assert!(refused("on-touch:threshold=4").contains("\"threshold\""));
        assert!(refused("grit:threshold=0").contains("threshold=0"));
    }
}
