//! Schemes by name: `NAME` or `NAME:key=value,key=value`.

use thiserror::Error;

use super::parameters::{Parameter, Parameters};
use super::{
    AccessCounter, Duplication, Farside, FirstTouch, Gps, GriffinDpc, Grit, Ideal, OnTouch,
    Placement,
};

/// How a scheme is made of its parameters.
type Make = fn(&mut Parameters<'_>) -> Result<Box<dyn Placement>, SchemeError>;

/// A scheme that can be had by name.
struct Known {
    name: &'static str,
    about: &'static str,
    make: Make,
}

const REAL: [Known; 6] = [
    Known {
        name: "on-touch",
        about: "a page moves to whoever touches it",
        make: |_| Ok(Box::new(OnTouch)),
    },
    Known {
        name: "first-touch",
        about: "a page moves to who touches it first and stays; others map it remotely",
        make: |_| Ok(Box::new(FirstTouch)),
    },
    Known {
        name: "access-counter",
        about: "a page of another card is mapped remotely and moves after many accesses",
        make: |parameters| Ok(Box::new(AccessCounter::from_parameters(parameters)?)),
    },
    Known {
        name: "duplication",
        about: "readers get copies; a write takes the other copies away",
        make: |_| Ok(Box::new(Duplication)),
    },
    Known {
        name: "grit",
        about: "each page has one of these schemes, by its faults and those around it (GRIT)",
        make: |parameters| Ok(Box::new(Grit::from_parameters(parameters)?)),
    },
    Known {
        name: "farside",
        about: "learns from faults what allocations and ranges need, and moves them whole",
        make: |parameters| Ok(Box::new(Farside::from_parameters(parameters)?)),
    },
];

const ONLY_SIMULATED: [Known; 3] = [
    Known {
        name: "ideal",
        about: "every card that asks gets a copy",
        make: |_| Ok(Box::new(Ideal)),
    },
    Known {
        name: "griffin-dpc",
        about: "first touch, then pages are classified by sampled accesses and follow their owner",
        make: |parameters| Ok(Box::new(GriffinDpc::from_parameters(parameters)?)),
    },
    Known {
        name: "gps",
        about: "every card that accesses a page gets a replica",
        make: |_| Ok(Box::new(Gps)),
    },
];

/// The scheme that `text` names: one of [`NAMES`] or [`SIMULATED`], alone or with parameters, as in
/// `grit:threshold=8,cache=off`.
///
/// # Errors
/// [`SchemeError`] names the scheme, the parameter or the value that cannot be.
pub fn by_name(text: &str) -> Result<Box<dyn Placement>, SchemeError> {
    let mut parameters = Parameters::of(text)?;
    let name = parameters.scheme();
    let known = REAL.iter().chain(&ONLY_SIMULATED).find(|known| known.name == name);
    let known = known.ok_or_else(|| SchemeError::Name { name: name.to_owned() })?;
    let scheme = (known.make)(&mut parameters)?;
    parameters.finish()?;
    Ok(scheme)
}

/// Names that [`by_name`] knows, of schemes for real and for simulated machines.
pub const NAMES: [&str; REAL.len()] = names(&REAL);

/// Names that [`by_name`] knows, of schemes that only a simulated machine can do.
pub const SIMULATED: [&str; ONLY_SIMULATED.len()] = names(&ONLY_SIMULATED);

const fn names<const N: usize>(schemes: &[Known; N]) -> [&'static str; N] {
    let mut names = [""; N];
    let mut at = 0;
    while at < N {
        names[at] = schemes[at].name;
        at += 1;
    }
    names
}

/// A scheme that [`by_name`] knows, as a list shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SchemeInfo {
    /// Its name.
    pub name: &'static str,
    /// What it does, in a line.
    pub about: &'static str,
    /// Only a simulated machine can do it: one of [`SIMULATED`].
    pub only_simulated: bool,
    /// What follows its name, if anything.
    pub parameters: Vec<Parameter>,
}

/// Every scheme that [`by_name`] knows, in the order of [`NAMES`] and [`SIMULATED`], with its
/// parameters.
pub fn all() -> Vec<SchemeInfo> {
    let real = REAL.iter().map(|known| known.info(false));
    real.chain(ONLY_SIMULATED.iter().map(|known| known.info(true))).collect()
}

impl Known {
    fn info(&self, only_simulated: bool) -> SchemeInfo {
        // A scheme says what its parameters are by asking for them.
        let mut parameters = Parameters::none(self.name);
        // Without any value none can be refused.
        let _ = (self.make)(&mut parameters);
        let parameters = parameters.into_known();
        SchemeInfo { name: self.name, about: self.about, only_simulated, parameters }
    }
}

/// Why a scheme is refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SchemeError {
    /// There is no such scheme.
    #[error(
        "there is no placement scheme named {name:?}; schemes are: {}, and in simulated time: {}",
        NAMES.join(", "),
        SIMULATED.join(", ")
    )]
    Name {
        /// The name given.
        name: String,
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
        for name in NAMES.iter().chain(&SIMULATED) {
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
    fn the_list_has_every_name_and_says_what_only_a_simulated_machine_can_do() {
        let of = |simulated| {
            let those = move |info: &SchemeInfo| info.only_simulated == simulated;
            all().into_iter().filter(those).map(|info| info.name).collect::<Vec<_>>()
        };
        assert_eq!(of(false), NAMES);
        assert_eq!(of(true), SIMULATED);
        let grit = all().into_iter().find(|info| info.name == "grit").unwrap();
        let keys: Vec<_> = grit.parameters.iter().map(|parameter| parameter.key).collect();
        assert_eq!(keys, ["threshold", "cache", "neighbours"]);
    }

    #[test]
    fn what_cannot_be_is_named() {
        let refused = |text| by_name(text).unwrap_err().to_string();
        assert!(refused("best").contains("\"best\""));
        assert!(refused("on-touch:threshold=4").contains("\"threshold\""));
        assert!(refused("grit:threshold=0").contains("threshold=0"));
    }
}
