//! Memory that Python holds.

use std::sync::Arc;

use farside::foreign::Allocation;
use pyo3::prelude::*;
use pyo3::types::PyByteArray;

use crate::error::{FarsideError, raised};
use crate::space::Space;
use crate::unlocked::Unlocked;

/// An allocation. Freed when nothing refers to it any more: no array over it, and no kernel that it is lent to.
#[pyclass(frozen, module = "farside")]
pub(crate) struct Memory {
    allocation: Unlocked<Arc<Allocation>>,
    /// What was asked for; shared words may be up to three bytes more.
    #[pyo3(get)]
    nbytes: u64,
}

#[pymethods]
impl Memory {
    /// Address of the first byte: the same on the host and on every card.
    #[getter]
    fn address(&self) -> u64 {
        self.allocation.start()
    }

    /// Whether the program can read and write it at its address; else there are only copies.
    fn is_shown(&self, py: Python<'_>) -> bool {
        match &**self.allocation {
            Allocation::Shared(_) | Allocation::Adopted(_) | Allocation::File(_) => true,
            Allocation::Own(bytes) => py.detach(|| bytes.host().is_ok()),
        }
    }

    /// Brings memory of the program's own home for good, which no kernel may hold; nothing for other memory.
    fn give_back(&self, py: Python<'_>, space: &Space) -> PyResult<()> {
        let Some(adopted) = self.allocation.adopted() else { return Ok(()) };
        space.check_unused(&self.allocation).map_err(raised)?;
        py.detach(|| adopted.give_back()).map_err(raised)
    }

    /// Writes what was changed of a file; nothing for other memory.
    fn sync(&self, py: Python<'_>) -> PyResult<()> {
        let Some(file) = self.allocation.file() else { return Ok(()) };
        py.detach(|| file.sync()).map_err(raised)
    }

    /// A copy of a card's own memory, however scattered its frames are.
    fn copied<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyByteArray>> {
        match &**self.allocation {
            Allocation::Shared(_) | Allocation::Adopted(_) | Allocation::File(_) => {
                Err(FarsideError::new_err("shared memory is copied by NumPy: array.copy()"))
            }
            Allocation::Own(bytes) => {
                let bytes = py.detach(|| bytes.to_vec()).map_err(|error| raised(error.into()))?;
                Ok(PyByteArray::new(py, &bytes))
            }
        }
    }
}

impl Memory {
    pub(crate) fn new(allocation: Arc<Allocation>, nbytes: u64) -> Memory {
        Memory { allocation: Unlocked::new(allocation), nbytes }
    }
}
