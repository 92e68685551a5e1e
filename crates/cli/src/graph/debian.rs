//! The dependency graph in a Debian package index.
//!
//! Owns the meaning of `Packages` text (Debian Policy, chapters 5 "Control files" and 7 "Declaring
//! relationships between packages"); where the files lie is [`debian_index`](super::index_in)'s matter.

use std::io::BufRead;

use serde::Serialize;

use super::lines::{LineReader, Read};
use super::names::{Full, Interner};
use super::{Graph, GraphError, Progress, VertexNames};

/// A virtual package with at most this many providers is replaced by them. One with more becomes
/// a vertex of its own, with an edge to each provider, so that edges stay proportional to the text.
pub const PROVIDERS_EXPANDED_MAX: usize = 64;

/// Longest name of a package, in bytes; longer ones are odd.
const NAME_BYTES_MAX: usize = 255;

/// A graph made from package indexes, and what was found while making it.
#[derive(Clone, Debug)]
pub struct DebianGraph {
    /// One vertex per package, in the order of their names, with an edge to each package that it
    /// may need.
    pub graph: Graph,
    /// What the indexes held.
    pub summary: IndexSummary,
}

/// What package indexes held, counted.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize)]
pub struct IndexSummary {
    /// Stanzas read: one per version of a package and index.
    pub stanzas: u64,
    /// Different packages.
    pub packages: u64,
    /// Names in dependencies as they are written, repetitions and alternatives included.
    pub dependencies_written: u64,
    /// Virtual packages that something depends on, replaced by their providers.
    pub virtual_expanded: u64,
    /// Virtual packages that something depends on, kept as a vertex because their providers are many.
    pub virtual_kept: u64,
    /// Names that something depends on and that no package has or provides; each is a vertex
    /// without out-neighbours.
    pub missing: u64,
    /// Lines and names that do not follow the format; they are skipped.
    pub odd: u64,
}

/// Reads any number of `Packages` files into one graph.
///
/// An edge leads from a package to each package in its `Depends`, `Pre-Depends` and `Recommends`
/// (which apt follows, too, unless told otherwise). Each of several alternatives `a | b` counts;
/// versions, architectures and build profiles do not. Several versions of a package, in one file or
/// in several, are one vertex with the edges of all.
///
/// Text that does not follow the format is skipped and counted, never an error.
pub struct IndexParser {
    names: Interner,
    /// By the number of the name: whether a stanza describes it.
    described: Vec<bool>,
    /// (package, name that it depends on)
    dependencies: Vec<(u32, u32)>,
    /// (name, package that provides it)
    provisions: Vec<(u32, u32)>,
    stanza: Stanza,
    summary: IndexSummary,
}

/// What has been read of the current stanza.
#[derive(Default)]
struct Stanza {
    package: Option<u32>,
    dependencies: Vec<u32>,
    provisions: Vec<u32>,
    /// The field that a continuation line would continue.
    field: Field,
    has_lines: bool,
}

/// The fields of a stanza that make up the graph.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum Field {
    Package,
    Dependencies,
    Provides,
    /// Any other one.
    #[default]
    Other,
}

impl Field {
    fn of(name: &[u8]) -> Field {
        // Field names are not case sensitive (Debian Policy 5.1).
        let is = |text: &str| name.eq_ignore_ascii_case(text.as_bytes());
        if is("Package") {
            Field::Package
        } else if is("Depends") || is("Pre-Depends") || is("Recommends") {
            Field::Dependencies
        } else if is("Provides") {
            Field::Provides
        } else {
            Field::Other
        }
    }
}

impl Default for IndexParser {
    fn default() -> IndexParser {
        IndexParser::new()
    }
}

impl IndexParser {
    /// A parser that has read nothing.
    pub fn new() -> IndexParser {
        IndexParser {
            names: Interner::new(),
            described: Vec::new(),
            dependencies: Vec::new(),
            provisions: Vec::new(),
            stanza: Stanza::default(),
            summary: IndexSummary::default(),
        }
    }

    /// Reads one file. `name` is for errors, `bytes_total` for `progress`.
    ///
    /// # Errors
    /// The reader's, and [`GraphError::TooManyVertices`].
    pub fn read(
        &mut self,
        name: &str,
        reader: impl BufRead,
        bytes_total: u64,
        progress: Progress<'_>,
    ) -> Result<(), GraphError> {
        let full = |Full| GraphError::TooManyVertices { name: name.to_owned() };
        let mut lines = LineReader::new(name, reader, bytes_total, progress);
        let mut line = Vec::new();
        loop {
            match lines.read(&mut line)? {
                Read::Line => self.line(&line).map_err(full)?,
                Read::TooLong => {
                    // Neither it nor its continuation can be trusted.
                    self.summary.odd += 1;
                    self.stanza.field = Field::Other;
                }
                Read::End => break,
            }
        }
        self.end_stanza();
        Ok(())
    }

    fn line(&mut self, line: &[u8]) -> Result<(), Full> {
        match line.first() {
            Some(b'#') => return Ok(()),
            _ if line.trim_ascii().is_empty() => {
                self.end_stanza();
                return Ok(());
            }
            Some(b' ' | b'\t') => return self.value(line),
            _ => {}
        }
        let Some(colon) = line.iter().position(|&byte| byte == b':') else {
            self.summary.odd += 1;
            self.stanza.field = Field::Other;
            return Ok(());
        };
        let field = Field::of(&line[..colon]);
        if field == Field::Package && self.stanza.package.is_some() {
            // The empty line between two stanzas is missing.
            self.summary.odd += 1;
            self.end_stanza();
        }
        self.stanza.has_lines = true;
        self.stanza.field = field;
        self.value(&line[colon + 1..])
    }

    /// A part of the current field's value. Lists need no more than a line at a time: what precedes
    /// a line break inside an item is the name, and what follows it is not needed.
    fn value(&mut self, value: &[u8]) -> Result<(), Full> {
        match self.stanza.field {
            Field::Other => {}
            Field::Package => {
                // A name is one word: a continuation line does not change it.
                self.stanza.field = Field::Other;
                self.stanza.package = self.name(value)?;
                self.summary.odd += u64::from(self.stanza.package.is_none());
            }
            Field::Dependencies | Field::Provides => {
                for item in value.split(|&byte| byte == b',' || byte == b'|') {
                    self.item(item)?;
                }
            }
        }
        Ok(())
    }

    /// One name in a list, perhaps with a version, an architecture and more behind it.
    fn item(&mut self, item: &[u8]) -> Result<(), Full> {
        let item = item.trim_ascii();
        let ends_name = |byte: &u8| byte.is_ascii_whitespace() || b"(:[<".contains(byte);
        let end = item.iter().position(ends_name).unwrap_or(item.len());
        if end == 0 {
            // Between two commas, or the rest of an item that was folded after its name.
            return Ok(());
        }
        let Some(name) = self.name(&item[..end])? else {
            self.summary.odd += 1;
            return Ok(());
        };
        if self.stanza.field == Field::Provides {
            self.stanza.provisions.push(name);
        } else {
            self.stanza.dependencies.push(name);
        }
        Ok(())
    }

    /// The number of a name; `None` if it cannot be one.
    fn name(&mut self, bytes: &[u8]) -> Result<Option<u32>, Full> {
        let bytes = bytes.trim_ascii();
        // Debian Policy 5.6.1 allows less; other distributions of the family use the rest as well.
        let allowed = |byte: &u8| byte.is_ascii_alphanumeric() || b"+-._~".contains(byte);
        let starts = bytes.first().is_some_and(u8::is_ascii_alphanumeric);
        if !starts || bytes.len() > NAME_BYTES_MAX || !bytes.iter().all(allowed) {
            return Ok(None);
        }
        let Ok(text) = std::str::from_utf8(bytes) else {
            return Ok(None);
        };
        let number = self.names.number(text)?;
        self.described.resize(self.names.len(), false);
        Ok(Some(number))
    }

    fn end_stanza(&mut self) {
        let stanza = std::mem::take(&mut self.stanza);
        let Some(package) = stanza.package else {
            self.summary.odd += u64::from(stanza.has_lines);
            return;
        };
        self.described[package as usize] = true;
        self.summary.stanzas += 1;
        self.summary.dependencies_written += stanza.dependencies.len() as u64;
        self.dependencies.extend(stanza.dependencies.into_iter().map(|name| (package, name)));
        self.provisions.extend(stanza.provisions.into_iter().map(|name| (name, package)));
    }

    /// The graph of all that was read. `name` is for the error.
    ///
    /// # Errors
    /// [`GraphError::Empty`] if there was no package.
    pub fn finish(self, name: &str) -> Result<DebianGraph, GraphError> {
        let mut summary = self.summary;
        summary.packages = self.described.iter().filter(|&&described| described).count() as u64;
        if summary.packages == 0 {
            return Err(GraphError::Empty { name: name.to_owned() });
        }
        let count = u32::try_from(self.names.len()).unwrap_or(super::VERTICES_MAX);
        let anonymous = VertexNames::Counted { first: 0, count };
        let providers = Graph::from_edges(anonymous, &self.provisions)?;
        let mut resolver = Resolver {
            kind: self.described.iter().map(|&d| Kind::unused(d)).collect(),
            providers,
            edges: Vec::with_capacity(self.dependencies.len()),
            summary,
        };
        for (package, name) in self.dependencies {
            resolver.dependency(package, name);
        }
        resolver.into_graph(self.names.into_names())
    }
}

/// What became of a name.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// A package: a vertex.
    Package,
    /// Not a package, and nothing depended on it so far: not a vertex.
    Unused,
    /// A virtual package replaced by its providers: not a vertex.
    Expanded,
    /// A virtual package with many providers, or a missing one: a vertex.
    Kept,
}

impl Kind {
    fn unused(described: bool) -> Kind {
        if described { Kind::Package } else { Kind::Unused }
    }

    fn is_vertex(self) -> bool {
        matches!(self, Kind::Package | Kind::Kept)
    }
}

/// Turns dependencies on names into edges between vertices.
struct Resolver {
    kind: Vec<Kind>,
    /// From each name to the packages that provide it.
    providers: Graph,
    edges: Vec<(u32, u32)>,
    summary: IndexSummary,
}

impl Resolver {
    fn dependency(&mut self, package: u32, name: u32) {
        if self.kind[name as usize] == Kind::Unused {
            self.kind[name as usize] = self.first_use(name);
        }
        if self.kind[name as usize] == Kind::Expanded {
            // A package that provides what it depends on means another provider.
            let others = self.providers.neighbours(name).iter().filter(|&&p| p != package);
            self.edges.extend(others.map(|&provider| (package, provider)));
        } else if name != package {
            self.edges.push((package, name));
        }
    }

    /// Decides about a name that is no package, and draws the edges from it if it becomes a vertex.
    fn first_use(&mut self, name: u32) -> Kind {
        let providers = self.providers.neighbours(name);
        if providers.is_empty() {
            self.summary.missing += 1;
            Kind::Kept
        } else if providers.len() <= PROVIDERS_EXPANDED_MAX {
            self.summary.virtual_expanded += 1;
            Kind::Expanded
        } else {
            self.summary.virtual_kept += 1;
            self.edges.extend(providers.iter().map(|&provider| (name, provider)));
            Kind::Kept
        }
    }

    /// Numbers the vertices by name, so that the order of files and stanzas does not matter.
    fn into_graph(self, names: Vec<String>) -> Result<DebianGraph, GraphError> {
        let mut order: Vec<u32> = (0u32..)
            .zip(&self.kind)
            .filter_map(|(name, kind)| kind.is_vertex().then_some(name))
            .collect();
        order.sort_unstable_by(|&a, &b| names[a as usize].cmp(&names[b as usize]));
        let mut vertex_of = vec![0; names.len()];
        for (vertex, &name) in (0u32..).zip(&order) {
            vertex_of[name as usize] = vertex;
        }
        let edges: Vec<(u32, u32)> = self
            .edges
            .iter()
            .map(|&(from, to)| (vertex_of[from as usize], vertex_of[to as usize]))
            .collect();
        let mut names = names;
        let listed = order.iter().map(|&name| std::mem::take(&mut names[name as usize])).collect();
        let graph = Graph::from_edges(VertexNames::Listed(listed), &edges)?;
        Ok(DebianGraph { graph, summary: self.summary })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::fuzz::{Dice, damage};

    fn parse(texts: &[&[u8]]) -> Result<DebianGraph, GraphError> {
        let mut parser = IndexParser::new();
        for text in texts {
            parser.read("test", *text, 0, &mut |_, _| {})?;
        }
        parser.finish("test")
    }

    fn edges(text: &str) -> Vec<String> {
        let graph = parse(&[text.as_bytes()]).expect("the text has a package").graph;
        (0..graph.vertex_count())
            .flat_map(|v| graph.neighbours(v).iter().map(move |&to| (v, to)))
            .map(|(v, to)| format!("{}>{}", graph.name(v).unwrap(), graph.name(to).unwrap()))
            .collect()
    }

    #[test]
    fn versions_architectures_and_profiles_are_stripped() {
        let text = "Package: a\nDepends: b (>= 1:2.0), c:any, d [amd64], e<!nocheck>,f(=1)\n\n\
                    Package: b\n\nPackage: c\n\nPackage: d\n\nPackage: e\n\nPackage: f\n";
        assert_eq!(edges(text), ["a>b", "a>c", "a>d", "a>e", "a>f"]);
    }

    #[test]
    fn every_alternative_and_every_kind_of_dependency_counts() {
        let text = "Package: a\nPre-Depends: b\nDepends: c | d\nRecommends: e\nSuggests: x\n\
                    Conflicts: y\n\nPackage: b\n\nPackage: c\n\nPackage: d\n\nPackage: e\n";
        assert_eq!(edges(text), ["a>b", "a>c", "a>d", "a>e"]);
    }

    #[test]
    fn a_virtual_package_is_replaced_by_its_providers() {
        let text = "Package: a\nDepends: mta\nProvides: mta\n\nPackage: p\nProvides: mta (= 2), q\n\n\
                    Package: r\nProvides: mta\n";
        assert_eq!(edges(text), ["a>p", "a>r"]);
        let summary = parse(&[text.as_bytes()]).unwrap().summary;
        assert_eq!((summary.packages, summary.virtual_expanded, summary.missing), (3, 1, 0));
    }

    #[test]
    fn a_name_that_is_also_a_package_means_the_package() {
        let text = "Package: a\nDepends: b\n\nPackage: b\n\nPackage: c\nProvides: b\n";
        assert_eq!(edges(text), ["a>b"]);
    }

    #[test]
    fn a_virtual_package_with_many_providers_becomes_a_vertex() {
        let mut text = String::from("Package: a\nDepends: many\n\nPackage: b\nDepends: many\n\n");
        let providers = PROVIDERS_EXPANDED_MAX + 1;
        for number in 0..providers {
            text += &format!("Package: p{number}\nProvides: many\n\n");
        }
        let found = parse(&[text.as_bytes()]).unwrap();
        assert_eq!(found.summary.virtual_kept, 1);
        let many = found.graph.names().find("many").expect("it is a vertex");
        assert_eq!(found.graph.out_degree(many), providers as u64);
        assert_eq!(found.graph.edge_count(), 2 + providers as u64);
    }

    #[test]
    fn a_missing_package_is_a_vertex_without_neighbours() {
        let found = parse(&[b"Package: a\nDepends: gone, gone\n"]).unwrap();
        assert_eq!((found.summary.missing, found.summary.dependencies_written), (1, 2));
        let gone = found.graph.names().find("gone").unwrap();
        assert_eq!(found.graph.out_degree(gone), 0);
        assert_eq!(found.graph.edge_count(), 1);
    }

    #[test]
    fn several_versions_and_files_are_merged_in_any_order() {
        let first = b"Package: a\nDepends: b\n\nPackage: b\n".as_slice();
        let second =
            b"Package: c\n\nPackage: a\nDepends: b, c\n\nPackage: a\nDepends: a\n".as_slice();
        let one = parse(&[first, second]).unwrap();
        let other = parse(&[second, first]).unwrap();
        assert_eq!(one.graph, other.graph);
        assert_eq!((one.summary.stanzas, one.summary.packages), (5, 3));
        assert_eq!(one.graph.edge_count(), 2);
    }

    #[test]
    fn folded_fields_comments_and_carriage_returns_are_read() {
        let text = "# a comment\nPackage: a\r\nDepends: b\r\n (>= 1), c |\r\n\td\r\nDescription: x\n \
                    e, f\n\r\nPackage: b\n\nPackage: c\n\nPackage: d\n";
        assert_eq!(edges(text), ["a>b", "a>c", "a>d"]);
    }

    #[test]
    fn odd_text_is_skipped_and_counted() {
        let text = b"no colon here\n\nVersion: 1\nDepends: x\n\nPackage: a b\n\nPackage: ok\n\
                     Depends: ,, , $bad, \xff\xfe, fine\nPackage: late\n\xff\xff: \xff\n\n";
        let found = parse(&[text]).unwrap();
        assert_eq!((found.summary.stanzas, found.summary.packages), (2, 2));
        // no colon, no package, "a b" (a bad name, so no package), two names, a missing empty line
        assert_eq!(found.summary.odd, 7);
        assert_eq!(found.graph.edge_count(), 1);
    }

    #[test]
    fn a_stanza_may_start_with_its_dependencies_and_end_with_the_file() {
        assert_eq!(edges("Depends: b\nPackage: a"), ["a>b"]);
    }

    #[test]
    fn no_package_is_an_error() {
        for text in [&b""[..], b"\n\n\n", b"Depends: a\n", b"Package:\n", b"\0\0\0"] {
            assert!(matches!(parse(&[text]), Err(GraphError::Empty { .. })), "{text:?}");
        }
    }

    #[test]
    fn bad_and_overlong_lines_are_skipped_with_their_continuation() {
        let mut text = b"Package: a\n not a name\nPre-Depends: d\nDepends: ".to_vec();
        text.extend(b"b, ".repeat(super::super::LINE_BYTES_MAX / 3 + 1));
        text.extend_from_slice(b"\n c\nRecommends: e\nno colon\n f\n");
        let found = parse(&[&text]).unwrap();
        assert_eq!((found.summary.odd, found.graph.edge_count()), (2, 2));
        let names = VertexNames::Listed(["a", "d", "e"].map(String::from).to_vec());
        assert_eq!(found.graph.names(), &names);
    }

    #[test]
    fn damaged_text_never_panics() {
        let good = b"Package: a\nDepends: b (>= 1) | c, d:any\nProvides: v (= 1)\n\n\
                     Package: b\nPre-Depends: v\n folded, e\n\n";
        for seed in 0..5_000 {
            let text = damage(good, &mut Dice::new(seed));
            if let Ok(found) = parse(&[&text]) {
                assert!(u64::from(found.graph.vertex_count()) >= found.summary.packages);
            }
        }
    }
}
