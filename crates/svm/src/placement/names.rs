//! Schemes by name: `NAME` or `NAME:key=value,key=value`.

use thiserror::Error;

use super::{AccessCounter, Duplication, FirstTouch, OnTouch, Placement};

/// The scheme that `text` names: one of [`NAMES`], alone or with parameters, as in
/// `NAME:key=value,key=value`.
///
/// # Errors
/// [`SchemeError`] names the scheme, the parameter or the value that cannot be.
pub fn by_name(text: &str) -> Result<Box<dyn Placement>, SchemeError> {
    let (name, parameters) = text.split_once(':').unwrap_or((text, ""));
    let scheme: Box<dyn Placement> = match name {
        "on-touch" => Box::new(OnTouch),
        "first-touch" => Box::new(FirstTouch),
        "access-counter" => Box::new(AccessCounter),
        "duplication" => Box::new(Duplication),
        _ => return Err(SchemeError::Name { name: name.to_owned() }),
    };
    match parameters {
        "" => Ok(scheme),
        _ => Err(SchemeError::Key {
            scheme: name.to_owned(),
            key: parameters.to_owned(),
            known: String::new(),
        }),
    }
}

/// Names that [`by_name`] knows, of schemes that can be used on real and on simulated machines.
pub const NAMES: [&str; 4] = ["on-touch", "first-touch", "access-counter", "duplication"];

/// Why a scheme is refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SchemeError {
    /// There is no such scheme.
    #[error("there is no placement scheme named {name:?}; schemes are: {}", NAMES.join(", "))]
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
