//! The library for bindings of other languages, where no compiler sees to what is lent: the memory that a program
//! holds is known by its addresses, and what kernels hold of it is looked at before each launch.

mod file;
mod job;
mod lending;
mod memory;
mod space;

pub use file::FileBytes;
pub use job::ForeignJob;
pub use lending::LaunchId;
pub use memory::{AdoptedBytes, Allocation};
pub use space::{ForeignLaunch, ForeignSpace};
