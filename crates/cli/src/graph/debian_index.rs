//! The package index that apt keeps on this machine: where it lies, and how to read it.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;

use super::{DebianGraph, GraphError, IndexParser, Progress};

/// Where apt keeps the package indexes of its sources.
pub const APT_LISTS: &str = "/var/lib/apt/lists";

/// Decompresses whatever apt writes; part of Debian's package apt.
const APT_HELPER: &str = "/usr/lib/apt/apt-helper";

/// Ends of an index file's name, with about how many bytes of text a hundred bytes of file hold
/// (for progress only: the real size is not known before the end).
const SUFFIXES: [(&str, u64); 7] = [
    ("_Packages", 100),
    ("_Packages.lz4", 265),
    ("_Packages.gz", 420),
    ("_Packages.zst", 480),
    ("_Packages.bz2", 520),
    ("_Packages.xz", 570),
    ("_Packages.lzma", 570),
];

/// Most bytes of the helper's standard error that are kept.
const MESSAGE_BYTES_MAX: u64 = 500;

const READ_BUFFER_BYTES: usize = 256 * 1024;

/// The dependency graph of this machine's own distribution, all of apt's indexes merged.
///
/// `progress` counts bytes of the files; it is an estimate where they are compressed.
///
/// # Errors
/// [`GraphError::NoIndex`] where there is none, and what reading it brings.
pub fn system_index(progress: Progress<'_>) -> Result<DebianGraph, GraphError> {
    index_in(Path::new(APT_LISTS), progress)
}

/// Like [`system_index`], with the indexes in `directory`.
///
/// # Errors
/// As [`system_index`].
pub fn index_in(directory: &Path, progress: Progress<'_>) -> Result<DebianGraph, GraphError> {
    let files = index_files(directory)?;
    let bytes_of = |file: &PathBuf| file.metadata().map_or(0, |metadata| metadata.len());
    let sizes: Vec<u64> = files.iter().map(bytes_of).collect();
    let total: u64 = sizes.iter().sum();
    let mut parser = IndexParser::new();
    let mut before = 0;
    for (file, &size) in files.iter().zip(&sizes) {
        let percent = expansion(file).unwrap_or(100);
        let mut estimate =
            |text: u64, _| progress(before + (text.saturating_mul(100) / percent).min(size), total);
        read_file(&mut parser, file, size, percent, &mut estimate)?;
        before += size;
        progress(before, total);
    }
    parser.finish(&directory.display().to_string())
}

/// The index files in `directory`, by name.
///
/// # Errors
/// [`GraphError::NoIndex`] if there is none or no such directory, [`GraphError::Read`] if it cannot
/// be read.
pub fn index_files(directory: &Path) -> Result<Vec<PathBuf>, GraphError> {
    let none = || GraphError::NoIndex { directory: directory.to_owned() };
    let unreadable = |source| GraphError::Read { name: directory.display().to_string(), source };
    if !directory.is_dir() {
        return Err(none());
    }
    let mut files = Vec::new();
    for entry in directory.read_dir().map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        if expansion(&path).is_some() && path.is_file() {
            files.push(path);
        }
    }
    if files.is_empty() {
        return Err(none());
    }
    files.sort_unstable();
    Ok(files)
}

/// Bytes of text per hundred bytes of file, about; `None` if it is no index file by its name.
fn expansion(path: &Path) -> Option<u64> {
    let name = path.file_name()?.to_str()?;
    SUFFIXES.iter().find(|(suffix, _)| name.ends_with(suffix)).map(|&(_, percent)| percent)
}

fn read_file(
    parser: &mut IndexParser,
    file: &Path,
    size: u64,
    percent: u64,
    progress: Progress<'_>,
) -> Result<(), GraphError> {
    let name = file.display().to_string();
    let compressed = percent != 100;
    if compressed {
        return read_through_helper(parser, file, &name, progress);
    }
    let opened =
        File::open(file).map_err(|source| GraphError::Read { name: name.clone(), source })?;
    let reader = BufReader::with_capacity(READ_BUFFER_BYTES, opened);
    parser.read(&name, reader, size, progress)
}

fn read_through_helper(
    parser: &mut IndexParser,
    file: &Path,
    name: &str,
    progress: Progress<'_>,
) -> Result<(), GraphError> {
    let child = Command::new(APT_HELPER)
        .arg("cat-file")
        .arg(file)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|source| GraphError::HelperStart {
            program: APT_HELPER,
            file: file.to_owned(),
            source,
        })?;
    let mut helper = Helper(child);
    // Read beside the text, so that a talkative helper cannot block on a full pipe.
    let errors = helper.0.stderr.take().map(|pipe| thread::spawn(move || message_of(pipe)));
    if let Some(text) = helper.0.stdout.take() {
        let reader = BufReader::with_capacity(READ_BUFFER_BYTES, text);
        parser.read(name, reader, 0, progress)?;
    }
    let status =
        helper.0.wait().map_err(|source| GraphError::Read { name: name.to_owned(), source })?;
    if status.success() {
        return Ok(());
    }
    let message = errors.and_then(|thread| thread.join().ok()).unwrap_or_default();
    Err(GraphError::HelperFailed {
        program: APT_HELPER,
        file: file.to_owned(),
        status,
        message: message.trim().replace('\n', "; "),
    })
}

/// The beginning of what comes out of `pipe`; all of it is read.
fn message_of(mut pipe: impl Read) -> String {
    let mut message = Vec::new();
    // What cannot be read is missing from a message, no more.
    let _ = pipe.by_ref().take(MESSAGE_BYTES_MAX).read_to_end(&mut message);
    let _ = std::io::copy(&mut pipe, &mut std::io::sink());
    String::from_utf8_lossy(&message).into_owned()
}

/// A running helper; ended and collected when nobody wants its text any more.
struct Helper(Child);

impl Drop for Helper {
    fn drop(&mut self) {
        // Both fail harmlessly where it has ended and been waited for.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::graph::fuzz::TestDirectory;

    #[test]
    fn no_directory_and_no_index_are_said_clearly() {
        let directory = TestDirectory::new("no-index");
        fs::write(directory.path().join("other_InRelease"), "x").unwrap();
        for path in [directory.path().to_owned(), directory.path().join("nothing")] {
            let error = index_in(&path, &mut |_, _| {}).expect_err("there is no index");
            assert!(matches!(error, GraphError::NoIndex { .. }));
            assert!(error.to_string().contains("apt-get update"), "{error}");
        }
    }

    #[test]
    fn plain_index_files_are_merged() {
        let directory = TestDirectory::new("plain-index");
        let write = |name: &str, text: &str| fs::write(directory.path().join(name), text).unwrap();
        write("one_Packages", "Package: a\nDepends: b\n");
        write("two_Packages", "Package: b\n");
        write("one_Sources", "Package: source\n");
        let mut last = (0, 0);
        let found = index_in(directory.path(), &mut |done, total| last = (done, total)).unwrap();
        assert_eq!((found.graph.vertex_count(), found.graph.edge_count()), (2, 1));
        assert_eq!(found.summary.missing, 0);
        assert!(last.0 > 0 && last.0 == last.1, "{last:?}");
    }

    #[test]
    fn a_broken_compressed_index_is_an_error_that_names_it() {
        let directory = TestDirectory::new("broken-index");
        fs::write(directory.path().join("bad_Packages.lz4"), b"this is not lz4").unwrap();
        let error = index_in(directory.path(), &mut |_, _| {}).expect_err("it is broken");
        assert!(error.to_string().contains("bad_Packages.lz4"), "{error}");
    }

    /// Where this machine has an index, it is read whole; where it has none, that is said.
    #[test]
    fn the_index_of_this_machine_is_read() {
        match system_index(&mut |_, _| {}) {
            Ok(found) => {
                assert!(found.summary.packages > 0);
                assert!(u64::from(found.graph.vertex_count()) >= found.summary.packages);
            }
            Err(error) => assert!(matches!(error, GraphError::NoIndex { .. }), "{error}"),
        }
    }
}
