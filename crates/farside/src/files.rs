//! Files that the environment asks a program for: one for each space that it opens.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// The file that a variable names: of the first space as it is, of further ones with their numbers. `opened` counts
/// those that have asked.
pub(crate) fn of_environment(variable: &str, opened: &AtomicU32) -> Option<PathBuf> {
    let path = PathBuf::from(std::env::var_os(variable).filter(|path| !path.is_empty())?);
    Some(match opened.fetch_add(1, Ordering::Relaxed) {
        0 => path,
        before => numbered(&path, before + 1),
    })
}

fn numbered(path: &Path, number: u32) -> PathBuf {
    match path.extension() {
        Some(extension) => path.with_extension(format!("{number}.{}", extension.to_string_lossy())),
        None => path.with_extension(number.to_string()),
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
}
