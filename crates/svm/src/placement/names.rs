//! Schemes by name: `NAME` or `NAME:key=value,key=value`.

use thiserror::Error;

use super::parameters::Parameters;
use super::{
    AccessCounter, Duplication, Farside, FirstTouch, Gps, GriffinDpc, Grit, Ideal, OnTouch,
    Placement,
};

/// The scheme that `text` names: one of [`NAMES`] or [`SIMULATED`], alone or with parameters, as in
/// `grit:threshold=8,cache=off`.
///
/// # Errors
/// [`SchemeError`] names the scheme, the parameter or the value that cannot be.
pub fn by_name(text: &str) -> Result<Box<dyn Placement>, SchemeError> {
    let mut parameters = Parameters::of(text)?;
    let scheme: Box<dyn Placement> = match parameters.scheme() {
        "on-touch" => Box::new(OnTouch),
        "first-touch" => Box::new(FirstTouch),
        "access-counter" => Box::new(AccessCounter::from_parameters(&mut parameters)?),
        "duplication" => Box::new(Duplication),
        "grit" => Box::new(Grit::from_parameters(&mut parameters)?),
        "farside" => Box::new(Farside::from_parameters(&mut parameters)?),
        "ideal" => Box::new(Ideal),
        "griffin-dpc" => Box::new(GriffinDpc::from_parameters(&mut parameters)?),
        "gps" => Box::new(Gps),
        name => return Err(SchemeError::Name { name: name.to_owned() }),
    };
    parameters.finish()?;
    Ok(scheme)
}

/// Names that [`by_name`] knows, of schemes for real and for simulated machines.
pub const NAMES: [&str; 6] =
    ["on-touch", "first-touch", "access-counter", "duplication", "grit", "farside"];

/// Names that [`by_name`] knows, of schemes that only a simulated machine can do.
pub const SIMULATED: [&str; 3] = ["ideal", "griffin-dpc", "gps"];

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
    fn what_cannot_be_is_named() {
        let refused = |text| by_name(text).unwrap_err().to_string();
        assert!(refused("best").contains("\"best\""));
        assert!(refused("on-touch:threshold=4").contains("\"threshold\""));
        assert!(refused("grit:threshold=0").contains("threshold=0"));
    }
}
