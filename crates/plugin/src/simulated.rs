//! Schemes of simulated machines, built in or of a library: one that is ready for a run, and what came of it.
//!
//! A library's code runs in a process that was started for that run only ([`resolve`], [`by_name`]); who starts it looks
//! at the file first ([`check_outside`]).

use farside_sim::{SimError, Spec, scheme};
use farside_svm::PlacementScheme;

use crate::{Complaints, PluginError, Told, check_file, load, split};

/// A scheme, ready for one run.
#[derive(Debug)]
pub struct Made {
    /// The scheme.
    pub placement: Box<dyn PlacementScheme>,
    /// What its library answers that makes no sense; none of one that is built in.
    pub complaints: Option<Complaints>,
}

/// Why there is no such scheme.
#[derive(Debug, thiserror::Error)]
pub enum SchemeFailure {
    /// One that is built in.
    #[error(transparent)]
    BuiltIn(#[from] SimError),
    /// One of a library.
    #[error(transparent)]
    Library(#[from] PluginError),
    /// The run is over, and is none of this scheme.
    #[error(
        "{first}; there were {count} such answers, and with the default in their place this is no \
         result of the scheme: correct it"
    )]
    Nonsense {
        /// The first answer that made no sense.
        first: String,
        /// How many there were.
        count: u64,
    },
}

impl Made {
    /// What is wrong with a run of it that is over.
    ///
    /// # Errors
    /// [`SchemeFailure::Nonsense`].
    pub fn check(complaints: Option<&Complaints>) -> Result<(), SchemeFailure> {
        let wrong = complaints.and_then(|it| Some((it.first()?, it.count())));
        wrong.map_or(Ok(()), |(first, count)| Err(SchemeFailure::Nonsense { first, count }))
    }
}

/// A scheme, built in or of a library, whose code runs in this process.
///
/// # Errors
/// [`SchemeFailure`].
pub fn by_name(name: &str) -> Result<Made, SchemeFailure> {
    if split(name).is_none() {
        let placement = scheme::by_name(name).map_err(SimError::from)?;
        return Ok(Made { placement, complaints: None });
    }
    // SAFETY: this process was started for one run of the library, by somebody who named it; what it breaks
    // is that run.
    let made = unsafe { load(name, Told::Caller)? };
    let complaints = Some(made.complaints());
    Ok(Made { placement: Box::new(made), complaints })
}

/// The same, and the machine with what the modifiers behind the name change of it.
///
/// # Errors
/// [`SchemeFailure`].
pub fn resolve(name: &str, machine: &Spec) -> Result<(Made, Spec), SchemeFailure> {
    let Some(file) = split(name) else {
        let (placement, machine) = scheme::resolve(name, machine)?;
        return Ok((Made { placement, complaints: None }, machine));
    };
    let machine = scheme::modified(file.modifiers, machine)?;
    let alone = &name[..name.len() - file.modifiers.len()];
    Ok((by_name(alone)?, machine))
}

/// Whether a scheme can be on a machine, as far as can be told without running a library's code.
///
/// # Errors
/// What is wrong.
pub fn check_outside(name: &str, machine: &Spec) -> Result<(), String> {
    let Some(file) = split(name) else {
        return scheme::resolve(name, machine).map(drop).map_err(|error| error.to_string());
    };
    check_file(&file.path).map_err(|error| error.to_string())?;
    scheme::modified(file.modifiers, machine).map(drop).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_be_told_from_outside_is() {
        let machine = Spec::default();
        let refused = |name: &str| check_outside(name, &machine).unwrap_err();
        assert!(refused("/none/a.so").contains("/none/a.so"));
        assert!(refused("girt").contains("girt"));
        let text = std::env::temp_dir().join(format!("farside-text-{}.so", std::process::id()));
        std::fs::write(&text, "a text").unwrap();
        assert!(refused(&text.display().to_string()).contains("no shared library"));
        std::fs::remove_file(text).unwrap();
    }
}
