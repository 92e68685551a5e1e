//! Opens a file and finds out by its content what it is.

use std::fmt;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use serde::Serialize;

use super::{
    Graph, GraphError, IndexParser, IndexSummary, Progress, parse_edge_list, parse_matrix_market,
};

/// As much of a file's beginning as is looked at, in bytes.
const HEAD_BYTES: usize = 64 * 1024;

/// First bytes of compressed files.
const COMPRESSED: [(&[u8], &str); 5] = [
    (b"\x1f\x8b", "gzip"),
    (b"\xfd7zXZ\0", "xz"),
    (b"\x04\x22\x4d\x18", "lz4"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
    (b"BZh", "bzip2"),
];

/// What a graph was read from.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Format {
    /// The text of a Debian `Packages` index.
    DebianIndex,
    /// Lines `from to [weight]`.
    EdgeList,
    /// A Matrix Market file in coordinate format.
    MatrixMarket,
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Format::DebianIndex => "Debian package index",
            Format::EdgeList => "edge list",
            Format::MatrixMarket => "Matrix Market file",
        })
    }
}

/// A graph with its origin.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// Where it was read from, for people.
    pub name: String,
    /// What that was.
    pub format: Format,
    /// The graph.
    pub graph: Graph,
    /// For a package index: what it held.
    pub index: Option<IndexSummary>,
}

/// Reads a graph from the file at `path`, in whichever of the formats it is.
///
/// `progress` is told the bytes read and the size of the file.
///
/// # Errors
/// Whatever is wrong with the file, by name and line.
pub fn load(path: &Path, progress: Progress<'_>) -> Result<Loaded, GraphError> {
    let name = path.display().to_string();
    let unreadable = |source| GraphError::Read { name: name.clone(), source };
    let file = File::open(path).map_err(unreadable)?;
    let bytes = file.metadata().map_err(unreadable)?.len();
    load_from(&name, BufReader::with_capacity(HEAD_BYTES, file), bytes, progress)
}

/// Like [`load`], from anything buffered whose first buffer holds enough to tell the format.
fn load_from(
    name: &str,
    mut reader: impl BufRead,
    bytes: u64,
    progress: Progress<'_>,
) -> Result<Loaded, GraphError> {
    let head =
        reader.fill_buf().map_err(|source| GraphError::Read { name: name.to_owned(), source })?;
    let format = detect(name, head)?;
    let mut index = None;
    let graph = match format {
        Format::MatrixMarket => parse_matrix_market(name, reader, bytes, progress)?,
        Format::EdgeList => parse_edge_list(name, reader, bytes, progress)?,
        Format::DebianIndex => {
            let mut parser = IndexParser::new();
            parser.read(name, reader, bytes, progress)?;
            let found = parser.finish(name)?;
            index = Some(found.summary);
            found.graph
        }
    };
    Ok(Loaded { name: name.to_owned(), format, graph, index })
}

/// The format of a text that begins with `head`.
fn detect(name: &str, head: &[u8]) -> Result<Format, GraphError> {
    if let Some((_, method)) = COMPRESSED.iter().find(|(magic, _)| head.starts_with(magic)) {
        return Err(GraphError::Compressed { name: name.to_owned(), method });
    }
    if head.contains(&0) {
        return Err(GraphError::NotText { name: name.to_owned() });
    }
    let head = head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(head);
    if starts_with_ignoring_case(head, b"%%MatrixMarket") {
        return Ok(Format::MatrixMarket);
    }
    let is_comment = |line: &[u8]| line.is_empty() || line[0] == b'#' || line[0] == b'%';
    let mut lines = head.split(|&byte| byte == b'\n').map(<[u8]>::trim_ascii);
    match lines.find(|line| !is_comment(line)) {
        Some(line) if starts_with_ignoring_case(line, b"Package:") => Ok(Format::DebianIndex),
        // A head of comments only: edge lists are where long comments are usual, and the parser
        // says what it expects where that was wrong.
        Some(_) | None => Ok(Format::EdgeList),
    }
}

fn starts_with_ignoring_case(text: &[u8], prefix: &[u8]) -> bool {
    text.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::graph::fuzz::TestDirectory;

    fn load_text(text: &[u8]) -> Result<Loaded, GraphError> {
        load_from("test", text, text.len() as u64, &mut |_, _| {})
    }

    #[test]
    fn the_format_is_found_by_content() {
        let cases: [(&[u8], Format); 7] = [
            (
                b"%%MatrixMarket matrix coordinate pattern general\n2 2 1\n1 2\n",
                Format::MatrixMarket,
            ),
            (
                b"%%matrixmarket MATRIX coordinate pattern general\n2 2 1\n1 2\n",
                Format::MatrixMarket,
            ),
            (b"# hello\n\nPackage: a\nDepends: b\n", Format::DebianIndex),
            (b"\xef\xbb\xbfPackage: a\nDepends: b\n", Format::DebianIndex),
            (b"# from to\n1 2\n", Format::EdgeList),
            (b"% sym\na,b\n", Format::EdgeList),
            (b"Package a\n", Format::EdgeList),
        ];
        for (text, format) in cases {
            let loaded = load_text(text).expect("each case is well formed");
            assert_eq!(loaded.format, format);
            assert_eq!((loaded.graph.vertex_count(), loaded.graph.edge_count()), (2, 1));
            assert_eq!(loaded.index.is_some(), format == Format::DebianIndex);
        }
    }

    #[test]
    fn compressed_binary_and_empty_files_are_named_as_such() {
        for (magic, method) in COMPRESSED {
            let error = load_text(magic).expect_err("compressed");
            assert!(error.to_string().contains(method), "{error}");
        }
        assert!(matches!(load_text(b"1 2\n\0\0"), Err(GraphError::NotText { .. })));
        for text in [&b""[..], b"\n \n", b"# only\n% comments\n"] {
            assert!(matches!(load_text(text), Err(GraphError::Empty { .. })), "{text:?}");
        }
    }

    #[test]
    fn a_file_is_loaded_and_a_missing_one_is_named() {
        let directory = TestDirectory::new("load");
        let path = directory.path().join("graph.txt");
        fs::write(&path, "1 2\n2 3\n").unwrap();
        let mut last = (0, 0);
        let loaded = load(&path, &mut |done, total| last = (done, total)).unwrap();
        assert_eq!((loaded.graph.edge_count(), last), (2, (8, 8)));
        let missing = directory.path().join("missing.txt");
        for path in [missing.as_path(), directory.path()] {
            let error = load(path, &mut |_, _| {}).expect_err("no such file, or a directory");
            assert!(error.to_string().contains(&path.display().to_string()), "{error}");
        }
    }
}
