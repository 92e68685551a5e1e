//! The native half of the Python package `farside`: spaces, memory, launches, simulations. It speaks of addresses, bytes
//! and numbers; the half in Python (`farside/`) makes NumPy arrays, futures and tables of them.
//!
//! What Rust's compiler sees to, is seen to here while the program runs: memory that is lent to a kernel lives until
//! the kernel has ended, and what a kernel writes is lent to nobody else ([`lending`]).

mod column;
mod error;
mod job;
mod memory;
mod page;
mod simulation;
mod space;
mod unlocked;

/// What `farside/__init__.py` imports.
#[pyo3::pymodule]
mod _farside {
    use pyo3::prelude::*;

    #[pymodule_export]
    use crate::column::Column;
    #[pymodule_export]
    use crate::error::{FarsideError, KernelError, LentError};
    #[pymodule_export]
    use crate::job::Job;
    #[pymodule_export]
    use crate::memory::Memory;
    #[pymodule_export]
    use crate::page::page;
    #[pymodule_export]
    use crate::simulation::{
        Program, Simulation, check_library, is_library, machine_text, presets, schemes, workloads,
    };
    #[pymodule_export]
    use crate::space::Space;

    #[pymodule_init]
    fn version(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
