//! Memory that Python holds.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Weak};

use farside::{Buffer, CardBuffer};
use pyo3::prelude::*;
use pyo3::types::PyByteArray;

use crate::error::{FarsideError, raised};

const WORD: u64 = size_of::<AtomicU32>() as u64;

/// Memory of a space. Python's views of it are no borrows: nobody makes slices of it here.
pub(crate) enum Allocation {
    /// Shared memory, in words that all agents may change at any time.
    Shared(Buffer<AtomicU32>),
    /// A card's own.
    Own(CardBuffer<u8>),
}

impl Allocation {
    fn start(&self) -> u64 {
        match self {
            Allocation::Shared(words) => words.addr().0,
            Allocation::Own(bytes) => bytes.addr().0,
        }
    }

    fn end(&self) -> u64 {
        match self {
            Allocation::Shared(words) => words.addr().0 + words.len() as u64 * WORD,
            Allocation::Own(bytes) => bytes.addr().0 + bytes.len() as u64,
        }
    }

    /// A card's own memory, if it is that.
    pub(crate) fn own(&self) -> Option<&CardBuffer<u8>> {
        match self {
            Allocation::Shared(_) => None,
            Allocation::Own(bytes) => Some(bytes),
        }
    }

    /// The words that have these bytes, which are in it, for requests to the driver.
    ///
    /// # Errors
    /// It is a card's own memory, of which the driver knows nothing.
    pub(crate) fn words(&self, bytes: &Range<u64>) -> PyResult<&[AtomicU32]> {
        match self {
            Allocation::Shared(words) => {
                let first = (bytes.start - self.start()) / WORD;
                let end = (bytes.end - self.start()).div_ceil(WORD);
                Ok(&words[first as usize..end as usize])
            }
            Allocation::Own(own) => {
                let (Range { start, end }, card) = (bytes, own.card());
                Err(FarsideError::new_err(format!(
                    "{start:#x}..{end:#x} is {card}'s own memory, which stays where it is; use an array of \
                     Space.array for what shall move"
                )))
            }
        }
    }
}

/// An allocation. Freed when nothing refers to it any more: no array over it, and no kernel that it is lent to.
#[pyclass(frozen, module = "farside")]
pub(crate) struct Memory {
    allocation: Arc<Allocation>,
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
        match &*self.allocation {
            Allocation::Shared(_) => true,
            Allocation::Own(bytes) => py.detach(|| bytes.host().is_ok()),
        }
    }

    /// A copy of a card's own memory, however scattered its frames are.
    fn copied<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyByteArray>> {
        match &*self.allocation {
            Allocation::Shared(_) => {
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
        Memory { allocation, nbytes }
    }
}

/// The allocations of a space, by their first addresses.
#[derive(Default)]
pub(crate) struct Memories(BTreeMap<u64, Weak<Allocation>>);

impl Memories {
    pub(crate) fn add(&mut self, allocation: &Arc<Allocation>) {
        self.0.retain(|_, memory| memory.strong_count() > 0);
        self.0.insert(allocation.start(), Arc::downgrade(allocation));
    }

    /// The allocation that has all of these bytes.
    pub(crate) fn of(&self, bytes: &Range<u64>) -> Option<Arc<Allocation>> {
        let (_, memory) = self.0.range(..=bytes.start).next_back()?;
        memory.upgrade().filter(|allocation| bytes.end <= allocation.end())
    }
}
