//! Placement schemes from shared libraries: a scheme of one's own, in C or in any language that can
//! export a C function, written to `include/farside-scheme.h`.
//!
//! [`load`] opens a library by a text such as `./libmine.so:after=3` and makes a
//! [`PlacementScheme`](farside_svm::PlacementScheme) of it. What it answers is checked before the driver sees it
//! ([`Complaints`]), and a thread ends the process when a call does not return. What a crash takes
//! with it is the caller's business: `farside sim` and its like run such a scheme in a process of its own.

use std::path::Path;

mod abi;
mod answer;
mod elf;
mod error;
mod library;
mod name;
mod notes;
mod saved;
mod scheme;
#[cfg(feature = "simulated")]
pub mod simulated;
mod watch;

pub use abi::ABI_VERSION;
pub use error::{LibraryError, PluginError};
pub use library::{Library, Parameter};
pub use name::{SchemeFile, split};
pub use scheme::LibraryScheme;
pub use watch::{Complaints, LIMIT_VARIABLE, Told};

/// Whether a file is a shared library of this machine, as far as its first bytes tell: none of its code runs.
///
/// # Errors
/// [`PluginError::Library`] says what it is instead.
pub fn check_file(path: &Path) -> Result<(), PluginError> {
    elf::check(path).map_err(|why| PluginError::Library { path: path.display().to_string(), why })
}

/// The scheme that a text such as `./libmine.so:after=3` names.
///
/// # Errors
/// [`PluginError`]: a file that is no library of this machine or is written to another version of the interface, a
/// parameter that it does not have or that cannot be so, or a scheme that refuses its parameters.
///
/// # Safety
/// The library's code runs in this process, now and whenever the scheme is asked: it keeps the rules of
/// the header.
pub unsafe fn load(text: &str, told: Told) -> Result<LibraryScheme, PluginError> {
    let file = split(text).ok_or_else(|| PluginError::NoLibrary { text: text.to_owned() })?;
    if !file.modifiers.is_empty() {
        return Err(PluginError::Modifiers { modifiers: file.modifiers.to_owned() });
    }
    // SAFETY: passed on to the caller.
    unsafe { Library::open(&file.path)?.make(file.parameters, told) }
}
