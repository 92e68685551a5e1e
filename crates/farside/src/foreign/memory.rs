//! Memory that a program in another language holds.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use farside_live::Lent;
use farside_types::VirtAddr;

use super::file::FileBytes;
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
    /// A file.
    File(FileBytes),
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
            Allocation::File(file) => file.bytes().start,
        }
    }

    pub(crate) fn end(&self) -> u64 {
        match self {
            Allocation::Shared(words) => words.addr().0 + words.len() as u64 * WORD,
            Allocation::Own(bytes) => bytes.addr().0 + bytes.len() as u64,
            Allocation::Adopted(adopted) => adopted.bytes.end,
            Allocation::File(file) => file.bytes().end,
        }
    }

    /// A card's own memory, if it is that.
    pub fn own(&self) -> Option<&CardBuffer<u8>> {
        match self {
            Allocation::Own(bytes) => Some(bytes),
            Allocation::Shared(_) | Allocation::Adopted(_) | Allocation::File(_) => None,
        }
    }

    /// Memory of the program's own, if it is that.
    pub fn adopted(&self) -> Option<&AdoptedBytes> {
        match self {
            Allocation::Adopted(adopted) => Some(adopted),
            Allocation::Shared(_) | Allocation::Own(_) | Allocation::File(_) => None,
        }
    }

    /// A file, if it is that.
    pub fn file(&self) -> Option<&FileBytes> {
        match self {
            Allocation::File(file) => Some(file),
            Allocation::Shared(_) | Allocation::Own(_) | Allocation::Adopted(_) => None,
        }
    }

    /// Gives back what is not only freed: the program's own memory, and a file, whose changes are written.
    ///
    /// # Errors
    /// As [`AdoptedBytes::give_back`] and [`FileBytes::close`]; [`Allocation::is_given_back`] says whether it was nevertheless.
    pub fn give_back(&self) -> Result<(), Error> {
        match self {
            Allocation::Shared(_) | Allocation::Own(_) => Ok(()),
            Allocation::Adopted(adopted) => adopted.give_back(),
            Allocation::File(file) => file.close(),
        }
    }

    /// Whether dropping it is all that is left to do.
    pub fn is_given_back(&self) -> bool {
        match self {
            Allocation::Shared(_) | Allocation::Own(_) => true,
            Allocation::Adopted(adopted) => adopted.is_home(),
            Allocation::File(file) => file.is_closed(),
        }
    }

    /// Its bytes.
    pub fn bytes(&self) -> u64 {
        self.end() - self.start()
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
            Allocation::Adopted(_) => Ok(self.words_at(
                bytes.start.next_multiple_of(WORD)..bytes.end & !(WORD - 1), // the pages at its ends do not move
            )),
            // It has whole pages.
            Allocation::File(_) => {
                Ok(self.words_at(bytes.start & !(WORD - 1)..bytes.end.next_multiple_of(WORD)))
            }
            Allocation::Own(own) => {
                Err(Error::StaysOnCard { bytes: bytes.clone(), card: own.card() })
            }
        }
    }

    /// The words of bytes that begin and end with one, for their pages alone.
    fn words_at(&self, bytes: Range<u64>) -> &[AtomicU32] {
        let words = bytes.end.saturating_sub(bytes.start) / WORD;
        // SAFETY: the words lie in memory that this keeps, aligned; nobody reads them through this.
        unsafe { std::slice::from_raw_parts(bytes.start as *const AtomicU32, words as usize) }
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
