//! Graphs as lines of text, one edge a line, as SNAP, KONECT and most tools write them.

use std::collections::HashMap;
use std::io::BufRead;

use super::lines::LineReader;
use super::names::{Full, Interner};
use super::{Graph, GraphError, Progress, VERTICES_MAX, VertexNames};

/// First lines that name their columns, in lower case.
const HEADERS: [(&str, &str); 5] = [
    ("source", "target"),
    ("from", "to"),
    ("src", "dst"),
    ("fromnodeid", "tonodeid"),
    ("node1", "node2"),
];

/// Reads lines `from to [weight [time]]`, separated by white space or commas.
///
/// `#` and `%` start comment lines. A vertex is a number from 0 to 2^64 - 1, by its value and with
/// gaps allowed, or a name. Weight and time must be numbers and are not used. If all vertices are
/// numbers they keep their order, otherwise they come in the order of first appearance. Names of
/// columns in the first line (`source,target`) are skipped. `name` is for errors, `bytes_total`
/// for `progress`.
///
/// # Errors
/// [`GraphError::Line`] at the first line that is not an edge, [`GraphError::Empty`] if there is none.
pub fn parse_edge_list(
    name: &str,
    reader: impl BufRead,
    bytes_total: u64,
    progress: Progress<'_>,
) -> Result<Graph, GraphError> {
    let mut lines = LineReader::new(name, reader, bytes_total, progress);
    let mut line = Vec::new();
    let mut vertices = Vertices::new();
    let mut edges = Vec::new();
    let mut first = true;
    while lines.read_strict(&mut line)? {
        let content = line.trim_ascii();
        if content.is_empty() || content[0] == b'#' || content[0] == b'%' {
            continue;
        }
        let text = std::str::from_utf8(content)
            .map_err(|error| lines.error("text in UTF-8", &content[error.valid_up_to()..]))?;
        if std::mem::take(&mut first) && is_header(text) {
            continue;
        }
        edges.push(edge(text, &mut vertices).map_err(|problem| match problem {
            Problem::Full => GraphError::TooManyVertices { name: name.to_owned() },
            Problem::Unexpected { expected, found } => lines.error(expected, found.as_bytes()),
        })?);
    }
    if edges.is_empty() {
        return Err(GraphError::Empty { name: lines.name() });
    }
    vertices.into_graph(edges)
}

/// Why a line is not an edge.
enum Problem<'a> {
    Full,
    Unexpected { expected: &'static str, found: &'a str },
}

impl From<Full> for Problem<'_> {
    fn from(Full: Full) -> Self {
        Problem::Full
    }
}

fn is_header(text: &str) -> bool {
    let mut columns = columns(text);
    let (Some(first), Some(second)) = (columns.next(), columns.next()) else {
        return false;
    };
    HEADERS
        .iter()
        .any(|header| first.eq_ignore_ascii_case(header.0) && second.eq_ignore_ascii_case(header.1))
}

fn columns(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| c.is_whitespace() || c == ',').filter(|column| !column.is_empty())
}

fn edge<'a>(text: &'a str, vertices: &mut Vertices) -> Result<(u32, u32), Problem<'a>> {
    let mut columns = columns(text);
    let mut endpoint = |expected| {
        let found = columns.next().ok_or(Problem::Unexpected { expected, found: text })?;
        vertices.number(found)
    };
    let from = endpoint("an edge `from to [weight]`")?;
    let to = endpoint("a second vertex, as in `from to [weight]`")?;
    for expected in ["a number as weight", "a number as time"] {
        match columns.next() {
            Some(found) if found.parse::<f64>().is_err() => {
                return Err(Problem::Unexpected { expected, found });
            }
            _ => {}
        }
    }
    match columns.next() {
        None => Ok((from, to)),
        Some(found) => Err(Problem::Unexpected { expected: "no more than four columns", found }),
    }
}

/// The vertices seen so far, numbered in the order of first appearance.
struct Vertices {
    by_value: HashMap<u64, u32>,
    by_name: Interner,
    /// The vertex of each name in `by_name`.
    names_seen: Vec<u32>,
    /// Vertices of both kinds.
    count: u32,
}

impl Vertices {
    fn new() -> Vertices {
        Vertices {
            by_value: HashMap::new(),
            by_name: Interner::new(),
            names_seen: Vec::new(),
            count: 0,
        }
    }

    fn number<'a>(&mut self, text: &'a str) -> Result<u32, Problem<'a>> {
        let digits = text.strip_prefix('-').unwrap_or(text);
        if !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) {
            let expected = "a vertex number from 0 to 18446744073709551615";
            // A sign is refused here, too.
            let value: u64 =
                text.parse().map_err(|_| Problem::Unexpected { expected, found: text })?;
            if let Some(&number) = self.by_value.get(&value) {
                return Ok(number);
            }
            let number = self.next()?;
            self.by_value.insert(value, number);
            return Ok(number);
        }
        let index = self.by_name.number(text)? as usize;
        if index == self.names_seen.len() {
            let number = self.next()?;
            self.names_seen.push(number);
        }
        Ok(self.names_seen[index])
    }

    fn next(&mut self) -> Result<u32, Full> {
        let number = self.count;
        if number == VERTICES_MAX {
            return Err(Full);
        }
        self.count += 1;
        Ok(number)
    }

    fn into_graph(self, edges: Vec<(u32, u32)>) -> Result<Graph, GraphError> {
        if self.names_seen.is_empty() {
            self.into_numbered_graph(edges)
        } else {
            Graph::from_edges(self.into_listed_names(), &edges)
        }
    }

    fn into_listed_names(self) -> VertexNames {
        let mut listed = vec![String::new(); self.count as usize];
        for (value, number) in self.by_value {
            listed[number as usize] = value.to_string();
        }
        for (name, number) in self.by_name.into_names().into_iter().zip(self.names_seen) {
            listed[number as usize] = name;
        }
        VertexNames::Listed(listed)
    }

    /// All vertices are numbers: they are renumbered in the order of their values.
    fn into_numbered_graph(self, mut edges: Vec<(u32, u32)>) -> Result<Graph, GraphError> {
        let mut order: Vec<(u64, u32)> = self.by_value.into_iter().collect();
        order.sort_unstable();
        let mut vertex_of = vec![0; order.len()];
        for (vertex, &(_, number)) in (0u32..).zip(&order) {
            vertex_of[number as usize] = vertex;
        }
        for (from, to) in &mut edges {
            *from = vertex_of[*from as usize];
            *to = vertex_of[*to as usize];
        }
        let (first, last) = (order.first().map_or(0, |o| o.0), order.last().map_or(0, |o| o.0));
        let names = if last - first == u64::from(self.count) - 1 {
            VertexNames::Counted { first, count: self.count }
        } else {
            VertexNames::Numbers(order.into_iter().map(|(value, _)| value).collect())
        };
        Graph::from_edges(names, &edges)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::fuzz::{Dice, damage};

    fn parse(text: &[u8]) -> Result<Graph, GraphError> {
        parse_edge_list("list.txt", text, text.len() as u64, &mut |_, _| {})
    }

    fn edges(text: &str) -> Vec<String> {
        let graph = parse(text.as_bytes()).expect("the text is well formed");
        (0..graph.vertex_count())
            .flat_map(|v| graph.neighbours(v).iter().map(move |&to| (v, to)))
            .map(|(v, to)| format!("{}>{}", graph.name(v).unwrap(), graph.name(to).unwrap()))
            .collect()
    }

    fn message(text: &[u8]) -> String {
        parse(text).expect_err("the text is not an edge list").to_string()
    }

    #[test]
    fn separators_comments_weights_and_times() {
        let text = "# c\n% c\n\n1 2\n2\t3 0.5\r\n3,1,1e3\n 1 , 3 -1 1700000000 \n1 2\n";
        assert_eq!(edges(text), ["1>2", "1>3", "2>3", "3>1"]);
    }

    #[test]
    fn numbers_keep_their_order_and_may_have_gaps() {
        let graph = parse(b"18446744073709551615 7\n7 0\n").unwrap();
        assert_eq!(graph.names(), &VertexNames::Numbers(vec![0, 7, u64::MAX]));
        let dense = parse(b"12 10\n011 10\n").unwrap();
        assert_eq!(dense.names(), &VertexNames::Counted { first: 10, count: 3 });
        assert_eq!(dense.neighbours(1), [0]);
    }

    #[test]
    fn names_and_numbers_may_be_mixed_and_equal_numbers_are_one_vertex() {
        assert_eq!(
            edges("2048 libc6\nlibc6 02048\nünï 2048\n"),
            ["2048>libc6", "libc6>2048", "ünï>2048"]
        );
    }

    #[test]
    fn names_of_columns_are_skipped() {
        assert_eq!(edges("Source,Target,Weight\n1,2,3\n"), ["1>2"]);
        assert_eq!(edges("# x\nFromNodeId\tToNodeId\n1\t2\n"), ["1>2"]);
        assert_eq!(edges("1 2\nfrom to\n"), ["1>2", "from>to"]);
    }

    #[test]
    fn malformed_lines_are_named() {
        let cases: [(&[u8], &str); 9] = [
            (b"1 2\n3\n", "list.txt, line 2: expected a second vertex"),
            (b"1 -2\n", "line 1: expected a vertex number from 0"),
            (b"-0 2\n", "found \"-0\""),
            (b"1 18446744073709551616\n", "found \"18446744073709551616\""),
            (b"1 2 heavy\n", "expected a number as weight, found \"heavy\""),
            (b"1 2 1 soon\n", "expected a number as time, found \"soon\""),
            (b"1 2 3 4 5\n", "no more than four columns, found \"5\""),
            (b"\n1 2\n\xff\xfe 3\n", "line 3: expected text in UTF-8"),
            (b",\n", "line 1: expected an edge"),
        ];
        for (text, expected) in cases {
            let message = message(text);
            assert!(message.contains(expected), "{message}");
        }
        let long = [b"1 2\n".to_vec(), vec![b'7'; super::super::LINE_BYTES_MAX + 1]].concat();
        assert!(message(&long).contains("line 2: expected at most"));
        assert!(matches!(parse(b""), Err(GraphError::Empty { .. })));
        assert!(matches!(parse(b"from to\n"), Err(GraphError::Empty { .. })));
    }

    #[test]
    fn no_number_is_given_beyond_the_last() {
        let mut vertices = Vertices::new();
        vertices.count = VERTICES_MAX - 1;
        assert!(matches!(vertices.number("1"), Ok(number) if number == VERTICES_MAX - 1));
        assert!(matches!(vertices.number("2"), Err(Problem::Full)));
        assert!(matches!(vertices.number("name"), Err(Problem::Full)));
        assert!(vertices.number("1").is_ok(), "a vertex that has a number keeps it");
    }

    #[test]
    fn damaged_text_never_panics() {
        let good = b"# c\n1 2 0.5\n2,3\na b\n18446744073709551615 -1\n";
        for seed in 0..5_000 {
            if let Ok(graph) = parse(&damage(good, &mut Dice::new(seed))) {
                assert!(graph.edge_count() > 0);
            }
        }
    }
}
