//! Shared memory that Python holds.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Weak};

use farside::Buffer;
use pyo3::prelude::*;

/// Shared memory in words that all agents may change at any time: Python's views of it are no borrows.
pub(crate) type Words = Buffer<AtomicU32>;

const WORD: u64 = size_of::<AtomicU32>() as u64;

/// An allocation. Freed when nothing refers to it any more: no array over it, and no kernel that it is lent to.
#[pyclass(frozen, module = "farside")]
pub(crate) struct Memory {
    words: Arc<Words>,
    /// What was asked for; words may be up to three bytes more.
    #[pyo3(get)]
    nbytes: u64,
}

#[pymethods]
impl Memory {
    /// Address of the first byte: the same on the host and on every card.
    #[getter]
    fn address(&self) -> u64 {
        self.words.addr().0
    }
}

impl Memory {
    pub(crate) fn new(words: Arc<Words>, nbytes: u64) -> Memory {
        Memory { words, nbytes }
    }
}

/// The allocations of a space, by their first addresses.
#[derive(Default)]
pub(crate) struct Memories(BTreeMap<u64, Weak<Words>>);

impl Memories {
    pub(crate) fn add(&mut self, words: &Arc<Words>) {
        self.0.retain(|_, memory| memory.strong_count() > 0);
        self.0.insert(words.addr().0, Arc::downgrade(words));
    }

    /// The allocation that has all of these bytes.
    pub(crate) fn of(&self, bytes: &Range<u64>) -> Option<Arc<Words>> {
        let (start, memory) = self.0.range(..=bytes.start).next_back()?;
        let words = memory.upgrade()?;
        (bytes.end <= start + words.len() as u64 * WORD).then_some(words)
    }
}

/// The words that have these bytes, which are in `words`.
pub(crate) fn part<'a>(words: &'a Words, bytes: &Range<u64>) -> &'a [AtomicU32] {
    let start = words.addr().0;
    let first = (bytes.start - start) / WORD;
    let end = (bytes.end - start).div_ceil(WORD);
    &words[first as usize..end as usize]
}
