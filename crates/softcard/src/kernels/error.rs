//! Why a table of kernels cannot be made, or has no such kernel.

use farside_card::interface::NAME_BYTES_MAX;
use thiserror::Error;

use super::c_abi::ABI_VERSION;

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
    /// A library that cannot be loaded.
    #[error("cannot load the kernels of {path}: {why}")]
    Library {
        /// Its file.
        path: String,
        /// What is wrong with it.
        why: LibraryError,
    },
    /// More kernels than a table holds.
    #[error("a table holds at most {most} kernels; split the library, or load fewer")]
    Full {
        /// How many it holds.
        most: usize,
    },
}

/// What is wrong with a shared library of kernels.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum LibraryError {
    /// Its file cannot be found.
    #[error("{0}")]
    File(String),
    /// It cannot be opened.
    #[error("{0}; it must be a shared library of this machine (cc -shared -fPIC)")]
    Open(String),
    /// It does not export its kernels.
    #[error("it exports no farside_kernels; write FARSIDE_EXPORT_KERNELS(...) of farside-kernel.h")]
    NoSymbol,
    /// It was written for another version of the interface.
    #[error(
        "{}; this runtime speaks version {ABI_VERSION}: compile it with this runtime's \
         farside-kernel.h",
        version(*given)
    )]
    Version {
        /// The version of its table; `None`: it gives none for the version of this runtime.
        given: Option<u32>,
    },
    /// It has no kernel.
    #[error("its table is empty or NULL")]
    NoKernels,
    /// It has too many kernels.
    #[error("it has {count} kernels; at most {most} are loaded from one library")]
    TooMany {
        /// How many it has.
        count: u32,
        /// How many are loaded.
        most: u32,
    },
    /// A name that cannot be.
    #[error("the name of kernel {index} (from 0 on) is refused: {why}")]
    Name {
        /// Which kernel of the library.
        index: usize,
        /// Why.
        why: String,
    },
    /// A kernel without a function.
    #[error("the function of kernel `{name}` is NULL")]
    NoFunction {
        /// The kernel.
        name: String,
    },
}

fn version(given: Option<u32>) -> String {
    match given {
        Some(given) => format!("it was written for version {given} of farside-kernel.h"),
        None => "it was written for another version of farside-kernel.h".to_owned(),
    }
}
