//! A smaller package index that comes with the program, for machines that have none.

use super::detect::{Format, Loaded};
use super::{GraphError, IndexParser};

/// The text, in the format of a `Packages` index; its first lines say where it comes from.
const TEXT: &str = include_str!("../../data/debian-12-subset.txt");

/// The bundled graph: some well-known packages of Debian 12 with all that they need.
///
/// # Errors
/// None in practice: a test reads it.
pub fn bundled() -> Result<Loaded, GraphError> {
    let name = "the bundled graph (part of Debian 12)";
    let mut parser = IndexParser::new();
    parser.read(name, TEXT.as_bytes(), TEXT.len() as u64, &mut |_, _| {})?;
    let found = parser.finish(name)?;
    Ok(Loaded {
        name: name.to_owned(),
        format: Format::DebianIndex,
        graph: found.graph,
        index: Some(found.summary),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bundled_graph_is_whole_and_small() {
        let loaded = bundled().expect("it is well formed");
        let summary = loaded.index.expect("it is an index");
        assert_eq!((summary.odd, summary.missing), (0, 0), "it needs nothing outside itself");
        assert!((1_500..=3_000).contains(&summary.packages), "{summary:?}");
        assert_eq!(u64::from(loaded.graph.vertex_count()), summary.packages);
        assert!(loaded.graph.edge_count() > 4 * summary.packages);
        assert!(TEXT.len() < 250_000);
        assert!(TEXT.is_ascii() && TEXT.starts_with('#'));
    }
}
