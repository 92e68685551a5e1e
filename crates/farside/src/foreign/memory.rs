//! Memory that a program in another language holds.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Weak};

use crate::{Buffer, CardBuffer, Error};

const WORD: u64 = size_of::<AtomicU32>() as u64;

/// Memory of a space. The program's views of it are no borrows: nobody makes slices of it here.
#[derive(Debug)]
pub enum Allocation {
    /// Shared memory, in words that all agents may change at any time.
    Shared(Buffer<AtomicU32>),
    /// A card's own.
    Own(CardBuffer<u8>),
}

impl Allocation {
    /// Address of the first byte: the same on the host and on every card.
    pub fn start(&self) -> u64 {
        match self {
            Allocation::Shared(words) => words.addr().0,
            Allocation::Own(bytes) => bytes.addr().0,
        }
    }

    pub(crate) fn end(&self) -> u64 {
        match self {
            Allocation::Shared(words) => words.addr().0 + words.len() as u64 * WORD,
            Allocation::Own(bytes) => bytes.addr().0 + bytes.len() as u64,
        }
    }

    /// A card's own memory, if it is that.
    pub fn own(&self) -> Option<&CardBuffer<u8>> {
        match self {
            Allocation::Shared(_) => None,
            Allocation::Own(bytes) => Some(bytes),
        }
    }

    /// The words that have these bytes, which are in it, for requests to the driver.
    ///
    /// # Errors
    /// [`Error::StaysOnCard`]: it is a card's own memory, of which the driver knows nothing.
    pub(crate) fn words(&self, bytes: &Range<u64>) -> Result<&[AtomicU32], Error> {
        match self {
            Allocation::Shared(words) => {
                let first = (bytes.start - self.start()) / WORD;
                let end = (bytes.end - self.start()).div_ceil(WORD);
                Ok(&words[first as usize..end as usize])
            }
            Allocation::Own(own) => {
                Err(Error::StaysOnCard { bytes: bytes.clone(), card: own.card() })
            }
        }
    }
}

/// The allocations of a space, by their first addresses.
#[derive(Debug, Default)]
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
