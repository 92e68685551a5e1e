//! What can be wrong with a scheme from a library.

use farside_svm::placement::SchemeError;
use thiserror::Error;

use crate::abi::ABI_VERSION;
use crate::watch::LIMIT_VARIABLE;

/// Why a scheme of a library cannot be had.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PluginError {
    /// The text names no library.
    #[error(
        "{text:?} names no shared library: its name ends in .so, and parameters follow a colon"
    )]
    NoLibrary {
        /// The text.
        text: String,
    },
    /// Something behind it changes a simulated machine, and there is none.
    #[error(
        "{modifiers} changes a simulated machine, and there is none here (`farside sim` has one)"
    )]
    Modifiers {
        /// What is behind it.
        modifiers: String,
    },
    /// The library cannot be used.
    #[error("cannot load the placement scheme {path}: {why}")]
    Library {
        /// Its file.
        path: String,
        /// What is wrong with it.
        why: LibraryError,
    },
    /// A parameter that it does not have, or a value that cannot be.
    #[error(transparent)]
    Parameter(#[from] SchemeError),
    /// It does not want to be with these parameters.
    #[error("the placement scheme {scheme} refuses its parameters{given}: {why}")]
    Refused {
        /// Its name.
        scheme: String,
        /// The parameters that were given, in brackets.
        given: String,
        /// What it says.
        why: String,
    },
    /// The environment variable for the time that a call may take.
    #[error("{LIMIT_VARIABLE} is {value:?}; it is a whole number of seconds from 1 to 3600")]
    Limit {
        /// Its value.
        value: String,
    },
}

/// What is wrong with a library.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum LibraryError {
    /// Its file cannot be read.
    #[error("{0}")]
    File(String),
    /// It is something else.
    #[error("it is no shared library (ELF); build it by `cc -shared -fPIC`")]
    NotElf,
    /// It is one of another machine.
    #[error(
        "it is for another machine ({theirs}), this one is {}; build it here",
        std::env::consts::ARCH
    )]
    Machine {
        /// Which.
        theirs: String,
    },
    /// The loader does not want it.
    #[error("{0}; build it anew, and with all that it needs (`ldd` says what is not found)")]
    Open(String),
    /// It exports no scheme.
    #[error(
        "it exports no farside_scheme_export; write FARSIDE_EXPORT_SCHEME(...) of farside-scheme.h"
    )]
    NoSymbol,
    /// It was written for another version of the interface.
    #[error(
        "{}; this program speaks version {ABI_VERSION}: compile it with this program's \
         farside-scheme.h (`farside new scheme` writes it)",
        version(*given)
    )]
    Version {
        /// The version that it says; `None` if it only refuses this one.
        given: Option<u32>,
    },
    /// Its table is shorter than version 1 is.
    #[error(
        "its table says that it has {size} bytes, {least} are needed; set .size to sizeof(farside_scheme)"
    )]
    Size {
        /// Its size.
        size: u32,
        /// The least.
        least: u32,
    },
    /// Something in its table cannot be.
    #[error("in its table {what}")]
    Table {
        /// What.
        what: String,
    },
}

fn version(given: Option<u32>) -> String {
    match given {
        Some(version) => format!("it is written for version {version} of farside-scheme.h"),
        None => format!("it does not know version {ABI_VERSION} of farside-scheme.h"),
    }
}
