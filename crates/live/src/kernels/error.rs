//! Why a table of kernels cannot be made, or has no such kernel.

use farside_card::interface::NAME_BYTES_MAX;
use thiserror::Error;

/// A name, or a library, that a table of kernels refuses.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum KernelsError {
    /// Nothing has this name.
    #[error("there is no kernel `{name}`; {hint}")]
    Unknown {
        /// The name asked for.
        name: String,
        /// Those that are alike, or those that there are.
        hint: String,
    },
    /// Two kernels of one name.
    #[error("there is a kernel `{name}` already; give this one another name")]
    Duplicate {
        /// The name.
        name: String,
    },
    /// A kernel without a name.
    #[error("a kernel has an empty name; a name has 1 to {NAME_BYTES_MAX} bytes")]
    Empty,
    /// A name that is too long.
    #[error("the name of a kernel, `{start}…`, has {bytes} bytes; at most {NAME_BYTES_MAX} fit")]
    TooLong {
        /// How it begins.
        start: String,
        /// Its length.
        bytes: usize,
    },
    /// More kernels than a table holds.
    #[error("a table holds at most {most} kernels; split the library, or load fewer")]
    Full {
        /// How many it holds.
        most: usize,
    },
}
