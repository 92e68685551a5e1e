//! Placement schemes of one's own, from shared libraries, beside those that are built in.
//!
//! A library's code runs in processes that are started for one run only ([`resolve`], [`by_name`]). Who starts
//! them looks at the file, and asks another process whether the library is sound ([`check`]).

use std::path::{Path, PathBuf};

use farside_plugin::{Complaints, PluginError, Told, split};
use farside_sim::{SimError, Spec, scheme};
use farside_svm::PlacementScheme;

use crate::sweep::{Failed, run_child};

/// What a command says of arguments that cannot be.
const USAGE: i32 = 2;

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

/// The library that a scheme's name is of, and what is behind its path; none of a scheme that is built in.
pub fn library(name: &str) -> Option<(PathBuf, &str)> {
    let file = split(name)?;
    let behind = &name[file.path.as_os_str().len()..];
    Some((file.path, behind))
}

/// The name with its library's path from this folder, unless it is absolute.
pub fn found_from(folder: &Path, name: &str) -> String {
    library(name).map_or_else(
        || name.to_owned(),
        |(path, behind)| format!("{}{behind}", folder.join(path).display()),
    )
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
    let made = unsafe { farside_plugin::load(name, Told::Caller)? };
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
    farside_plugin::check_file(&file.path).map_err(|error| error.to_string())?;
    scheme::modified(file.modifiers, machine).map(drop).map_err(|error| error.to_string())
}

/// Has a process of its own, of the command `binary`, open the library that `name` names, with its parameters. One that
/// crashes there is not refused: its runs will tell.
///
/// # Errors
/// What the process says of a library or parameters that cannot be.
pub fn check(binary: &Path, name: &str) -> Result<(), String> {
    let alone = &name[..name.len() - split(name).map_or(0, |file| file.modifiers.len())];
    match run_child(binary, &["schemes".to_owned(), alone.to_owned()], |_| ()) {
        Err(Failed { why, code: Some(USAGE) }) => Err(why),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_is_found_from_the_folder_of_whoever_names_it() {
        let folder = Path::new("/grids");
        assert_eq!(found_from(folder, "grit:threshold=2"), "grit:threshold=2");
        assert_eq!(found_from(folder, "./a.so:b=1+acud"), "/grids/./a.so:b=1+acud");
        assert_eq!(found_from(folder, "/x/a.so"), "/x/a.so");
    }

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
