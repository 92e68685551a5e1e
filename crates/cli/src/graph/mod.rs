//! The graphs that `farside demo` works on, and the plain host algorithms its results are checked against.
//!
//! This module owns the way from text to [`Graph`]: the package index of a Debian machine, a smaller
//! index bundled with the program, edge lists and Matrix Market files. It owns [`mod@reference`] as
//! well. It knows nothing of spaces, cards or kernels: it hands over ordinary vectors, and the demo
//! places them in shared memory.
//!
//! Whatever the text holds, reading it ends in a graph or in a [`GraphError`] that names the file,
//! the line and what was expected there; it never panics, and memory grows with the input only.
//!
//! ```
//! use farside_cli::graph::{bundled, reference};
//!
//! let loaded = bundled()?;
//! let source = reference::best_source(&loaded.graph).expect("the graph has vertices");
//! let levels = reference::bfs_levels(&loaded.graph, source.vertex);
//! assert_eq!(levels[source.vertex as usize], 0);
//! # Ok::<(), farside_cli::graph::GraphError>(())
//! ```

mod bundled;
mod csr;
mod debian;
mod debian_index;
mod detect;
mod edge_list;
mod error;
mod lines;
mod matrix_market;
mod names;
pub mod reference;

pub use bundled::bundled;
pub use csr::{Graph, VERTICES_MAX};
pub use debian::{DebianGraph, IndexParser, IndexSummary, PROVIDERS_EXPANDED_MAX};
pub use debian_index::{APT_LISTS, index_files, index_in, system_index};
pub use detect::{Format, Loaded, load};
pub use edge_list::parse_edge_list;
pub use error::GraphError;
pub use lines::{LINE_BYTES_MAX, Progress};
pub use matrix_market::parse_matrix_market;
pub use names::VertexNames;

#[cfg(test)]
mod fuzz;
