//! Placement schemes of one's own, from shared libraries, beside those that are built in.
//!
//! A library's code runs in processes that are started for one run only ([`resolve`], [`by_name`] of `farside-plugin`). Who
//! starts them looks at the file, and asks another process whether the library is sound ([`check`]).

use std::path::{Path, PathBuf};

pub use farside_plugin::simulated::{Made, SchemeFailure, by_name, check_outside, resolve};
use farside_plugin::split;

use crate::sweep::{Failed, run_child};

/// What a command says of arguments that cannot be.
const USAGE: i32 = 2;

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
}
