//! Graphs as sparse matrices in the Matrix Market exchange format, coordinate variant.
//!
//! Source: R. F. Boisvert, R. Pozo, K. A. Remington, "The Matrix Market Exchange Formats: Initial
//! Design", NISTIR 5935, 1996.

use std::io::BufRead;

use super::lines::LineReader;
use super::{Graph, GraphError, Progress, VertexNames};

/// A header may promise this many vertices whatever its entries, and this many more per entry;
/// beyond, a few bytes of text would cost gigabytes of memory.
const VERTICES_FREE: u64 = 1 << 20;
const VERTICES_PER_ENTRY_MAX: u64 = 64;

/// Entries for which memory is set aside on the word of a header.
const ENTRIES_TRUSTED_MAX: u64 = 1 << 20;

const BANNER: &str = "`%%MatrixMarket matrix coordinate real|integer|pattern general|symmetric`";

/// What an entry has beside its row and column.
#[derive(Clone, Copy)]
enum Field {
    Real,
    Integer,
    Pattern,
}

/// What the first two parts of the file say.
struct Header {
    field: Field,
    symmetric: bool,
    vertices: u32,
    entries: u64,
}

/// Reads a square matrix in coordinate format: an entry in row `i`, column `j` is an edge from `i`
/// to `j`, and for a symmetric matrix one from `j` to `i` as well.
///
/// An entry is an edge whatever its value. Vertices are called as in the file, from 1. `name` is
/// for errors, `bytes_total` for `progress`.
///
/// # Errors
/// [`GraphError::Line`] at the first line that does not follow the format,
/// [`GraphError::TooManyVertices`], [`GraphError::Sparse`].
pub fn parse_matrix_market(
    name: &str,
    reader: impl BufRead,
    bytes_total: u64,
    progress: Progress<'_>,
) -> Result<Graph, GraphError> {
    let mut lines = LineReader::new(name, reader, bytes_total, progress);
    let mut line = Vec::new();
    let header = header(&mut lines, &mut line)?;
    let mut edges = Vec::with_capacity(header.entries.min(ENTRIES_TRUSTED_MAX) as usize);
    let mut read = 0;
    while lines.read_strict(&mut line)? {
        if skipped(&line) {
            continue;
        }
        if read == header.entries {
            let expected = format!("the end after {read} entries, as the header says");
            return Err(lines.error(expected, line.trim_ascii()));
        }
        read += 1;
        let (row, column) = entry(&lines, &line, &header)?;
        edges.push((row, column));
        if header.symmetric {
            // On the diagonal this is the same edge again, which counts once.
            edges.push((column, row));
        }
    }
    if read < header.entries {
        let expected = format!("{} entries, as the header says", header.entries);
        return Err(lines.error_described(expected, format!("the end after {read}")));
    }
    Graph::from_edges(VertexNames::Counted { first: 1, count: header.vertices }, &edges)
}

fn skipped(line: &[u8]) -> bool {
    let content = line.trim_ascii();
    content.is_empty() || content[0] == b'%'
}

fn header<R: BufRead>(
    lines: &mut LineReader<'_, R>,
    line: &mut Vec<u8>,
) -> Result<Header, GraphError> {
    if !lines.read_strict(line)? {
        return Err(GraphError::Empty { name: lines.name() });
    }
    let (field, symmetric) = banner(lines, line)?;
    loop {
        if !lines.read_strict(line)? {
            return Err(lines.error_described(SIZES, "the end of the file"));
        }
        if !skipped(line) {
            break;
        }
    }
    let (vertices, entries) = sizes(lines, line)?;
    Ok(Header { field, symmetric, vertices, entries })
}

fn banner<R: BufRead>(lines: &LineReader<'_, R>, line: &[u8]) -> Result<(Field, bool), GraphError> {
    let unexpected = |expected: String, found: &[u8]| Err(lines.error(expected, found));
    let text = line.to_ascii_lowercase();
    let mut words = words(&text);
    for word in ["%%matrixmarket", "matrix", "coordinate"] {
        let found = words.next().unwrap_or_default();
        if found != word.as_bytes() {
            return unexpected(format!("`{word}`, as in {BANNER}"), found);
        }
    }
    let field = match words.next().unwrap_or_default() {
        b"real" | b"double" => Field::Real,
        b"integer" => Field::Integer,
        b"pattern" => Field::Pattern,
        found => return unexpected("`real`, `integer` or `pattern`".to_owned(), found),
    };
    let symmetric = match words.next().unwrap_or_default() {
        b"general" => false,
        b"symmetric" => true,
        found => return unexpected("`general` or `symmetric`".to_owned(), found),
    };
    match words.next() {
        None => Ok((field, symmetric)),
        Some(found) => unexpected("the end of the line".to_owned(), found),
    }
}

const SIZES: &str = "`rows columns entries`";

/// Vertices and entries.
fn sizes<R: BufRead>(lines: &LineReader<'_, R>, line: &[u8]) -> Result<(u32, u64), GraphError> {
    let mut words = words(line);
    let mut number = || {
        let found = words.next().unwrap_or_default();
        parse::<u64>(found).ok_or_else(|| lines.error(format!("a number, as in {SIZES}"), found))
    };
    let (rows, columns, entries) = (number()?, number()?, number()?);
    if let Some(found) = words.next() {
        return Err(lines.error("the end of the line", found));
    }
    if rows != columns {
        let found = format!("{rows} rows and {columns} columns");
        return Err(lines.error_described("a square matrix", found));
    }
    if rows == 0 {
        return Err(GraphError::Empty { name: lines.name() });
    }
    // The largest `u32` is the most vertices there may be.
    let too_many = |_| GraphError::TooManyVertices { name: lines.name() };
    let vertices: u32 = rows.try_into().map_err(too_many)?;
    let plausible = entries.saturating_mul(VERTICES_PER_ENTRY_MAX).saturating_add(VERTICES_FREE);
    if rows > plausible {
        return Err(GraphError::Sparse { name: lines.name(), vertices: rows, entries });
    }
    Ok((vertices, entries))
}

/// The edge in a line, counted from 0.
fn entry<R: BufRead>(
    lines: &LineReader<'_, R>,
    line: &[u8],
    header: &Header,
) -> Result<(u32, u32), GraphError> {
    let mut words = words(line);
    let mut index = |what: &str| {
        let found = words.next().unwrap_or_default();
        match parse::<u32>(found) {
            Some(index @ 1..) if index <= header.vertices => Ok(index - 1),
            _ => Err(lines.error(format!("a {what} from 1 to {}", header.vertices), found)),
        }
    };
    let edge = (index("row")?, index("column")?);
    let value_ok = |value: &[u8]| match header.field {
        Field::Real => parse::<f64>(value).is_some(),
        // As many digits as there may be: the value is not used.
        Field::Integer => {
            let digits = value.strip_prefix(b"-").or(value.strip_prefix(b"+")).unwrap_or(value);
            !digits.is_empty() && digits.iter().all(u8::is_ascii_digit)
        }
        Field::Pattern => true,
    };
    let expected = match header.field {
        Field::Real => "a number as the value",
        Field::Integer => "an integer as the value",
        Field::Pattern => "",
    };
    if !expected.is_empty() {
        let found = words.next().unwrap_or_default();
        if !value_ok(found) {
            return Err(lines.error(expected, found));
        }
    }
    match words.next() {
        None => Ok(edge),
        Some(found) => Err(lines.error("the end of the line", found)),
    }
}

fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty())
}

fn parse<T: std::str::FromStr>(word: &[u8]) -> Option<T> {
    std::str::from_utf8(word).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::fuzz::{Dice, damage};

    const GENERAL: &str = "%%MatrixMarket matrix coordinate real general\n";

    fn parse_text(text: &[u8]) -> Result<Graph, GraphError> {
        parse_matrix_market("m.mtx", text, text.len() as u64, &mut |_, _| {})
    }

    fn message(text: impl AsRef<[u8]>) -> String {
        parse_text(text.as_ref()).expect_err("the text is malformed").to_string()
    }

    #[test]
    fn general_real_and_integer() {
        let text = format!("{GENERAL}% a comment\n\n3 3 3\n1 2 0.5\n% another\n3 1 -1e-3\n2 2 0\n");
        let graph = parse_text(text.as_bytes()).unwrap();
        assert_eq!(graph.offsets(), [0, 1, 2, 3]);
        assert_eq!(graph.targets(), [1, 1, 0]);
        assert_eq!(graph.name(0).as_deref(), Some("1"));
        let text = b"%%MatrixMarket matrix coordinate integer general\n2 2 1\n2 1 -7\n";
        assert_eq!(parse_text(text).unwrap().targets(), [0]);
    }

    #[test]
    fn a_symmetric_entry_is_two_edges_and_a_diagonal_one_is_one() {
        let text = b"%%MatrixMarket matrix coordinate pattern symmetric\r\n3 3 2\r\n2 1\r\n3 3\r\n";
        let graph = parse_text(text).unwrap();
        assert_eq!(graph.offsets(), [0, 1, 2, 3]);
        assert_eq!(graph.targets(), [1, 0, 2]);
    }

    #[test]
    fn wrong_headers_are_named() {
        let banner = |words: &str| format!("%%MatrixMarket {words}\n1 1 0\n");
        let cases = [
            (String::new(), "m.mtx holds no graph"),
            ("1 1 1\n".into(), "m.mtx, line 1: expected `%%matrixmarket`"),
            (banner("vector coordinate real general"), "expected `matrix`"),
            (banner("matrix array real general"), "expected `coordinate`"),
            (banner("matrix coordinate complex general"), "found \"complex\""),
            (banner("matrix coordinate real hermitian"), "found \"hermitian\""),
            (banner("matrix coordinate real"), "found the end of the line"),
            (banner("matrix coordinate real general x"), "found \"x\""),
            (GENERAL.into(), "found the end of the file"),
            (format!("{GENERAL}3 3\n"), "line 2: expected a number"),
            (format!("{GENERAL}3 3 -1\n"), "found \"-1\""),
            (format!("{GENERAL}3 3 1 1\n"), "expected the end of the line"),
            (format!("{GENERAL}3 4 1\n"), "found 3 rows and 4 columns"),
            (format!("{GENERAL}0 0 0\n"), "holds no graph"),
            (format!("{GENERAL}99999999999999999999 1 1\n"), "found \"99999999999999999999\""),
            (format!("{GENERAL}4294967296 4294967296 1\n"), "more than 4294967295 vertices"),
            (format!("{GENERAL}4294967295 4294967295 1\n"), "promises 4294967295 vertices"),
        ];
        for (text, expected) in cases {
            let message = message(text);
            assert!(message.contains(expected), "{message}");
        }
    }

    #[test]
    fn wrong_entries_are_named() {
        let cases = [
            ("2 2 1\n0 1 1\n", "line 3: expected a row from 1 to 2, found \"0\""),
            ("2 2 1\n1 3 1\n", "expected a column from 1 to 2, found \"3\""),
            ("2 2 1\n-1 1 1\n", "found \"-1\""),
            ("2 2 1\n99999999999 1 1\n", "found \"99999999999\""),
            ("2 2 1\n1\n", "expected a column from 1 to 2, found the end of the line"),
            ("2 2 1\n1 1\n", "expected a number as the value"),
            ("2 2 1\n1 1 x\n", "found \"x\""),
            ("2 2 1\n1 1 1 1\n", "expected the end of the line"),
            ("2 2 2\n1 1 1\n", "expected 2 entries, as the header says, found the end after 1"),
            ("2 2 1\n1 1 1\n1 2 1\n", "line 4: expected the end after 1 entries"),
            ("2 2 18446744073709551615\n1 1 1\n", "found the end after 1"),
        ];
        for (rest, expected) in cases {
            let message = message(format!("{GENERAL}{rest}"));
            assert!(message.contains(expected), "{message}");
        }
        let bytes = [GENERAL.as_bytes(), b"2 2 1\n1 \xff\xff 1\n"].concat();
        assert!(message(bytes).contains("line 3: expected a column"));
        let integer = "%%MatrixMarket matrix coordinate integer general\n1 1 1\n1 1 1.5\n";
        assert!(message(integer).contains("expected an integer as the value"));
    }

    #[test]
    fn truncated_files_are_errors_at_every_length_that_cuts_an_entry() {
        let text = format!("{GENERAL}3 3 2\n1 2 1\n2 3 1\n");
        for length in 0..text.len() - 2 {
            assert!(parse_text(&text.as_bytes()[..length]).is_err(), "cut at {length}");
        }
    }

    #[test]
    fn damaged_text_never_panics() {
        let good = format!("{GENERAL}% c\n3 3 3\n1 2 0.5\n3 1 -1e-3\n2 2 0\n");
        for seed in 0..5_000 {
            // A graph or an error; both are fine.
            let _ = parse_text(&damage(good.as_bytes(), &mut Dice::new(seed)));
        }
    }
}
