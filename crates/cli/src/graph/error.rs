//! What can go wrong between a file and a graph.

use std::io;
use std::path::PathBuf;
use std::process::ExitStatus;

use thiserror::Error;

use super::VERTICES_MAX;

/// Most characters of the input that an error message repeats.
const EXCERPT_CHARS_MAX: usize = 40;

/// Why no graph came out of an input. Every message names the input and what to do next.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum GraphError {
    /// The operating system refused to open or read the input.
    #[error("cannot read {name}: {source}")]
    Read {
        /// The input, as the user named it.
        name: String,
        /// What the operating system said.
        source: io::Error,
    },

    /// A line is not what the format asks for.
    #[error("{name}, line {line}: expected {expected}, found {found}")]
    Line {
        /// The input, as the user named it.
        name: String,
        /// The line, counted from 1.
        line: u64,
        /// What the format asks for at this place.
        expected: String,
        /// The beginning of what is there instead, quoted, or a description of it.
        found: String,
    },

    /// The input holds no vertex at all.
    #[error(
        "{name} holds no graph: expected a Debian `Packages` index, a Matrix Market file, \
         or lines `from to [weight]`"
    )]
    Empty {
        /// The input, as the user named it.
        name: String,
    },

    /// The input is compressed.
    #[error("{name} is compressed with {method}: decompress it first, then give the plain file")]
    Compressed {
        /// The input, as the user named it.
        name: String,
        /// The compression, by its usual name.
        method: &'static str,
    },

    /// The input is not text.
    #[error(
        "{name} is not text: expected a Debian `Packages` index, a Matrix Market file, \
         or lines `from to [weight]`"
    )]
    NotText {
        /// The input, as the user named it.
        name: String,
    },

    /// More vertices than a 32-bit vertex number can count.
    #[error(
        "{name} has more than {VERTICES_MAX} vertices, the most a graph may have: \
         give a part of it"
    )]
    TooManyVertices {
        /// The input, as the user named it.
        name: String,
    },

    /// A Matrix Market header promises far more vertices than its entries could use.
    #[error(
        "{name} promises {vertices} vertices but only {entries} entries: almost all vertices would \
         be isolated; number the used ones from 1 without gaps"
    )]
    Sparse {
        /// The input, as the user named it.
        name: String,
        /// Vertices that the header promises.
        vertices: u64,
        /// Entries that the header promises.
        entries: u64,
    },

    /// An edge names a vertex that the graph does not have.
    #[error("edge {from} -> {to} leaves the graph, which has {vertices} vertices")]
    NoSuchVertex {
        /// Where the edge starts.
        from: u32,
        /// Where the edge ends.
        to: u32,
        /// Vertices of the graph.
        vertices: u64,
    },

    /// This machine keeps no package index.
    #[error(
        "there is no package index under {directory}: run `apt-get update` as root on a Debian \
         system, or give a graph with --input"
    )]
    NoIndex {
        /// Where the index was looked for.
        directory: PathBuf,
    },

    /// The program that decompresses the package index could not be started.
    #[error("cannot run {program} to read {file}: {source}; it is part of Debian's package apt")]
    HelperStart {
        /// The program.
        program: &'static str,
        /// The index file that it was to read.
        file: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },

    /// The program that decompresses the package index failed.
    #[error("{program} could not read {file} ({status}): {message}; `apt-get update` renews it")]
    HelperFailed {
        /// The program.
        program: &'static str,
        /// The index file that it was to read.
        file: PathBuf,
        /// How it ended.
        status: ExitStatus,
        /// What it wrote to its standard error, shortened.
        message: String,
    },
}

/// The beginning of `bytes`, quoted and made printable, for an error message.
pub(super) fn excerpt(bytes: &[u8]) -> String {
    if bytes.is_empty() {
        return "the end of the line".to_owned();
    }
    // A character is at most four bytes long: no need to look at more of a long line.
    let head = &bytes[..bytes.len().min(4 * EXCERPT_CHARS_MAX + 4)];
    let text = String::from_utf8_lossy(head);
    let mut shown: String = text.chars().take(EXCERPT_CHARS_MAX).collect();
    if shown.len() < text.len() || head.len() < bytes.len() {
        shown.push('…');
    }
    format!("{shown:?}")
}

#[cfg(test)]
mod tests {
    use super::excerpt;

    #[test]
    fn an_excerpt_is_short_and_printable() {
        assert_eq!(excerpt(b"abc"), "\"abc\"");
        assert_eq!(excerpt(b""), "the end of the line");
        assert_eq!(excerpt(b"a\x1b[2J"), "\"a\\u{1b}[2J\"");
        assert_eq!(excerpt(&[0xff]), "\"\u{fffd}\"");
        let long = excerpt(&[b'x'; 100_000]);
        assert!(long.ends_with("…\"") && long.chars().count() < 50, "{long}");
    }
}
