//! Files that the environment asks a program for: one for each space that it opens, and none for two processes.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// Who has asked for files. It has no lock, which a child made by fork might find held.
pub(crate) struct Asked {
    /// The process that asked first; 0 before.
    first: AtomicU32,
    /// The process that asked last, and how often it has.
    last: AtomicU64,
}

impl Asked {
    pub(crate) const fn nobody() -> Asked {
        Asked { first: AtomicU32::new(0), last: AtomicU64::new(0) }
    }

    /// Process `me` asks. Gives whether it is a child made by fork of the first, and how often it has asked before.
    fn asks(&self, me: u32) -> (bool, u32) {
        let first =
            self.first.compare_exchange(0, me, Relaxed, Relaxed).map_or_else(|it| it, |_| me);
        let next = |last: u64| {
            let of_me = (last >> 32) as u32 == me;
            Some(if of_me { last + 1 } else { u64::from(me) << 32 | 1 })
        };
        let last = self.last.fetch_update(Relaxed, Relaxed, next).unwrap_or_else(|last| last);
        let before = if (last >> 32) as u32 == me { last as u32 } else { 0 };
        (first != me, before)
    }
}

/// The file that a variable names: of the first space as it is, of further ones with their numbers. A child made by fork has the
/// number of its process in the names of its files, and so has a process that finds a file taken.
pub(crate) fn of_environment(
    variable: &str,
    asked: &Asked,
    is_taken: impl Fn(&Path) -> bool,
) -> Option<PathBuf> {
    let path = PathBuf::from(std::env::var_os(variable).filter(|path| !path.is_empty())?);
    Some(of_process(&path, std::process::id(), asked, is_taken))
}

fn of_process(path: &Path, me: u32, asked: &Asked, is_taken: impl Fn(&Path) -> bool) -> PathBuf {
    let (forked, before) = asked.asks(me);
    let number = |path: &Path| match before {
        0 => path.to_owned(),
        before => numbered(path, before + 1),
    };
    let plain = number(path);
    if forked || is_taken(&plain) { number(&numbered(path, me)) } else { plain }
}

fn numbered(path: &Path, number: u32) -> PathBuf {
    match path.extension() {
        Some(extension) => path.with_extension(format!("{number}.{}", extension.to_string_lossy())),
        None => path.with_extension(number.to_string()),
    }
}

/// Says what is missing in a file that a space wrote, where no call is left that could return it. A program that listens
/// to `tracing` hears it there, another one on standard error.
#[cfg(any(feature = "events", feature = "record"))]
pub(crate) fn say_incomplete(error: &crate::Error) {
    tracing::error!(%error, "a file of a space is not complete");
    if !tracing::dispatcher::has_been_set() {
        eprintln!("farside: {error}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn further_files_are_numbered() {
        assert_eq!(numbered(Path::new("a/b.parquet"), 2), Path::new("a/b.2.parquet"));
        assert_eq!(numbered(Path::new("a/b"), 3), Path::new("a/b.3"));
    }

    #[test]
    fn a_child_made_by_fork_and_who_finds_a_file_taken_have_names_of_their_own() {
        let asked = Asked::nobody();
        let name = |me, taken| {
            let path = of_process(Path::new("a/b.parquet"), me, &asked, |_| taken);
            path.file_name().unwrap().to_string_lossy().into_owned()
        };
        assert_eq!([name(7, false), name(7, false)], ["b.parquet", "b.2.parquet"]);
        assert_eq!([name(9, false), name(9, false)], ["b.9.parquet", "b.9.2.parquet"]);
        assert_eq!(name(8, true), "b.8.parquet");
        assert_eq!(name(7, true), "b.7.parquet", "its number of spaces begins anew behind a child");
    }
}
