//! The graph that the demo works on: a file, this machine's package index, or the bundled one.

use std::path::Path;

use farside_cli::graph::{APT_LISTS, Format, GraphError, Loaded, bundled, load, system_index};
use indicatif::ProgressBar;

/// A graph, and why it is this one.
pub(crate) struct Input {
    pub(crate) loaded: Loaded,
    /// Why the bundled graph is used; `None` if it is not, or was asked for.
    pub(crate) fallback: Option<String>,
}

/// Reads the graph. `bar` shows how far it is, in percent.
pub(crate) fn read(
    input: Option<&Path>,
    use_bundled: bool,
    bar: &ProgressBar,
) -> Result<Input, GraphError> {
    let mut progress = |done: u64, total: u64| {
        // A total of 0 means that nobody knows it.
        bar.set_position((100 * done).checked_div(total).unwrap_or(0).min(100));
    };
    if let Some(path) = input {
        bar.set_message(format!("reading {}", path.display()));
        return Ok(Input { loaded: load(path, &mut progress)?, fallback: None });
    }
    if use_bundled {
        return Ok(Input { loaded: bundled()?, fallback: None });
    }
    bar.set_message("reading the package index of this machine");
    match system_index(&mut progress) {
        Ok(found) => {
            let loaded = Loaded {
                name: format!("package index of this machine ({APT_LISTS})"),
                format: Format::DebianIndex,
                graph: found.graph,
                index: Some(found.summary),
            };
            Ok(Input { loaded, fallback: None })
        }
        Err(error) => Ok(Input { loaded: bundled()?, fallback: Some(error.to_string()) }),
    }
}
