//! Kernels with names: what a program can start on a card that is a process of its own.
//!
//! A closure cannot travel to another process, a name can. [`Kernels`] is the table of a card, or
//! of a space: names and functions. It has kernels that are [built in](builtin), Rust functions
//! that are added with [`Kernels::with`], and those of shared libraries in C
//! ([`Kernels::load_library`], `include/farside-kernel.h`).
//!
//! A kernel gets its arguments as [`KernelArgs`]: records, decoded and checked. Who runs it, and on
//! which memory, is the card's matter.

mod args;
mod body;
pub mod builtin;
mod c_abi;
mod c_columns;
mod c_own;
mod c_runs;
mod error;
mod library;
mod pieces;
mod ranges;
mod table;

pub use args::{KernelArgs, number_of};
pub use body::body_kernel;
pub use c_abi::CBody;
pub use error::{KernelsError, LibraryError};
pub use farside_card::interface::{ArgKind, KernelArg, Number};
pub use pieces::{PIECE_BYTES, pieces};
pub use table::{Kernel, KernelFunction, KernelId, Kernels};
