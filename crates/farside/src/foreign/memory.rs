//! Memory that a program in another language holds.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use farside_live::Lent;
use farside_types::VirtAddr;

use super::lending::Kept;
use crate::adopted::is_over;
use crate::{Buffer, CardBuffer, Error, Space};

const WORD: u64 = size_of::<AtomicU32>() as u64;

/// Memory of a space. The program's views of it are no borrows: nobody makes slices of it here.
#[derive(Debug)]
pub enum Allocation {
    /// Shared memory, in words that all agents may change at any time.
    Shared(Buffer<AtomicU32>),
    /// A card's own.
    Own(CardBuffer<u8>),
    /// The program's, which it had before.
    Adopted(AdoptedBytes),
}

/// Memory of the program's own that is shared until this is dropped.
#[derive(Debug)]
pub struct AdoptedBytes {
    space: Space,
    bytes: Range<u64>,
    lent: Lent,
    /// Held by who brings it home: who comes second finds it there.
    is_home: Mutex<bool>,
    /// What keeps the memory.
    kept: Mutex<Kept>,
}

impl AdoptedBytes {
    /// # Safety
    /// As [`Space::adopt`] has it by a borrow: the memory is not freed before this is dropped, or given back.
    pub(super) unsafe fn new(
        space: Space,
        bytes: Range<u64>,
        name: &str,
        kept: Kept,
    ) -> Result<AdoptedBytes, Error> {
        let length = bytes.end.saturating_sub(bytes.start);
        // SAFETY: the caller's.
        let lent = unsafe { space.runtime().adopt(VirtAddr(bytes.start), length, name) }?;
        Ok(AdoptedBytes { space, bytes, lent, is_home: Mutex::new(false), kept: Mutex::new(kept) })
    }

    /// Brings it home for good.
    ///
    /// # Errors
    /// As [`Adopted::release`](crate::Adopted::release).
    pub fn give_back(&self) -> Result<(), Error> {
        let mut is_home = self.is_home.lock().unwrap_or_else(PoisonError::into_inner);
        if *is_home {
            return Ok(());
        }
        let outcome = self.space.runtime().disown(&self.lent);
        *is_home = outcome.as_ref().map_or_else(is_over, |_| true);
        Ok(outcome?)
    }

    /// Whether it was brought home.
    pub fn is_home(&self) -> bool {
        *self.is_home.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The whole words of some of its bytes. The pages are what counts, and those at the ends do not move.
    fn words(&self, bytes: &Range<u64>) -> &[AtomicU32] {
        let first = bytes.start.next_multiple_of(WORD);
        let words = (bytes.end & !(WORD - 1)).saturating_sub(first) / WORD;
        // SAFETY: the words lie in memory that is kept, aligned; nobody reads them through this.
        unsafe { std::slice::from_raw_parts(first as *const AtomicU32, words as usize) }
    }
}

impl Drop for AdoptedBytes {
    fn drop(&mut self) {
        if self.space.runtime().check_process().is_err() {
            return;
        }
        if let Err(error) = self.give_back() {
            tracing::error!(%error, "adopted memory was not given back whole");
        }
        if !self.is_home() {
            // It may not be freed.
            let kept = self.kept.get_mut().unwrap_or_else(PoisonError::into_inner);
            std::mem::forget(kept.take());
        }
    }
}

impl Allocation {
    /// Address of the first byte: the same on the host and on every card.
    pub fn start(&self) -> u64 {
        match self {
            Allocation::Shared(words) => words.addr().0,
            Allocation::Own(bytes) => bytes.addr().0,
            Allocation::Adopted(adopted) => adopted.bytes.start,
        }
    }

    pub(crate) fn end(&self) -> u64 {
        match self {
            Allocation::Shared(words) => words.addr().0 + words.len() as u64 * WORD,
            Allocation::Own(bytes) => bytes.addr().0 + bytes.len() as u64,
            Allocation::Adopted(adopted) => adopted.bytes.end,
        }
    }

    /// A card's own memory, if it is that.
    pub fn own(&self) -> Option<&CardBuffer<u8>> {
        match self {
            Allocation::Shared(_) | Allocation::Adopted(_) => None,
            Allocation::Own(bytes) => Some(bytes),
        }
    }

    /// Memory of the program's own, if it is that.
    pub fn adopted(&self) -> Option<&AdoptedBytes> {
        match self {
            Allocation::Adopted(adopted) => Some(adopted),
            Allocation::Shared(_) | Allocation::Own(_) => None,
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
            Allocation::Adopted(adopted) => Ok(adopted.words(bytes)),
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
