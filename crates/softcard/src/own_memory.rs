//! The memories that a card has for its own window, and how something is allocated in one.

use std::fmt::{self, Display, Formatter};

use farside_card::MemorySizes;
use farside_card::interface::{AllocRequest, MemoryKind};
use farside_types::{CardId, PAGE_SIZE, Rights};
use serde::{Deserialize, Serialize};

use crate::window::{Backing, WindowError};

/// The number of one of a card's own memories, counted from 0.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize,
)]
pub struct OwnMemoryId(pub u8);

impl Display for OwnMemoryId {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "memory number {}", self.0)
    }
}

/// One of a card's own memories.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct OwnMemory {
    /// Its number.
    pub id: OwnMemoryId,
    /// What it is.
    pub kind: MemoryKind,
    /// Its name: its kind and its number among those of that kind, as `ddr1`.
    pub name: String,
    /// Its bytes.
    pub bytes: u64,
    /// Those that nobody has.
    pub bytes_free: u64,
}

/// The name of one of some memories.
pub(crate) fn memory_name(kinds: &[MemoryKind], index: usize) -> String {
    let kind = kinds.get(index).copied().unwrap_or_default();
    let before = kinds.iter().take(index).filter(|&&other| other == kind).count();
    format!("{kind}{before}")
}

impl OwnMemory {
    /// All of a card's, in the order of their numbers.
    pub fn all(sizes: impl IntoIterator<Item = MemorySizes>) -> Vec<OwnMemory> {
        let sizes: Vec<_> = sizes.into_iter().collect();
        let kinds: Vec<_> = sizes.iter().map(|sizes| sizes.kind).collect();
        let bytes = |frames: u32| u64::from(frames) * PAGE_SIZE as u64;
        let named = sizes.iter().enumerate().map(|(index, sizes)| OwnMemory {
            id: OwnMemoryId(index as u8),
            kind: sizes.kind,
            name: memory_name(&kinds, index),
            bytes: bytes(sizes.frames),
            bytes_free: bytes(sizes.frames_free),
        });
        named.collect()
    }

    /// One of a card's by its name, or by its kind's if the card has one of that kind alone.
    ///
    /// # Errors
    /// [`WindowError::NoSuchMemory`] names those that there are.
    pub fn by_name(
        all: &[OwnMemory],
        card: CardId,
        name: &str,
    ) -> Result<OwnMemoryId, WindowError> {
        let mut of_kind = all.iter().filter(|memory| memory.kind.name() == name);
        let only = of_kind.next().filter(|_| of_kind.next().is_none());
        let found = all.iter().find(|memory| memory.name == name).or(only);
        found.map(|memory| memory.id).ok_or_else(|| {
            let there: Vec<_> = all.iter().map(|memory| memory.name.as_str()).collect();
            let (asked, there) = (name.to_owned(), there.join(", "));
            WindowError::NoSuchMemory { card, asked, there }
        })
    }
}

/// How memory of a card's own is allocated. A [`Backing`] alone stands for it: in the first memory, to be read and written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AllocOptions {
    /// When its pages get memory.
    pub backing: Backing,
    /// Which of the card's own memories they get, and what it grows by.
    pub memory: OwnMemoryId,
    /// What kernels may do with it. What may only be read is filled by the program (`CardBuffer::fill_from`).
    pub rights: Rights,
}

impl AllocOptions {
    /// Those of [`Backing::Lazy`].
    pub(crate) const LAZY: AllocOptions =
        AllocOptions { backing: Backing::Lazy, memory: OwnMemoryId(0), rights: Rights::ReadWrite };

    /// In a memory of the card's.
    #[must_use]
    pub const fn in_memory(self, memory: OwnMemoryId) -> AllocOptions {
        AllocOptions { memory, ..self }
    }

    /// To be read by kernels, and not written.
    #[must_use]
    pub const fn read_only(self) -> AllocOptions {
        AllocOptions { rights: Rights::Read, ..self }
    }

    pub(crate) fn malloc(self, bytes: u64) -> AllocRequest {
        let AllocOptions { backing, memory, rights } = self;
        AllocRequest::Malloc { bytes, memory: memory.0, rights, lazy: backing == Backing::Lazy }
    }

    /// Another size for what has its memory and its rights already.
    pub(crate) fn realloc(self, address: u64, bytes: u64) -> AllocRequest {
        AllocRequest::Realloc { address, bytes, lazy: self.backing == Backing::Lazy }
    }
}

impl From<Backing> for AllocOptions {
    fn from(backing: Backing) -> AllocOptions {
        AllocOptions { backing, ..AllocOptions::LAZY }
    }
}

impl Backing {
    /// In a memory of the card's.
    #[must_use]
    pub fn in_memory(self, memory: OwnMemoryId) -> AllocOptions {
        AllocOptions::from(self).in_memory(memory)
    }

    /// To be read by kernels, and not written.
    #[must_use]
    pub fn read_only(self) -> AllocOptions {
        AllocOptions::from(self).read_only()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memories_are_named_by_kind_and_number_and_found_by_either() {
        let kinds = [MemoryKind::Ddr, MemoryKind::Hbm, MemoryKind::Ddr, MemoryKind::Plain];
        let sizes = kinds.map(|kind| MemorySizes { frames: 256, frames_free: 1, kind });
        let all = OwnMemory::all(sizes);
        assert_eq!((all[0].bytes, all[0].bytes_free), (1 << 20, 4096));
        let names: Vec<_> = all.iter().map(|memory| memory.name.as_str()).collect();
        assert_eq!(names, ["ddr0", "hbm0", "ddr1", "memory0"]);
        let found = |name| OwnMemory::by_name(&all, CardId(2), name);
        assert_eq!(found("ddr1"), Ok(OwnMemoryId(2)));
        assert_eq!(found("hbm"), Ok(OwnMemoryId(1)), "there is one");
        for name in ["ddr", "bram", "hbm1", "", "HBM"] {
            let why = found(name).unwrap_err().to_string();
            let there = "card 2 has no memory of its own that is called";
            assert!(why.starts_with(there) && why.contains("ddr0, hbm0, ddr1, memory0"), "{why}");
        }
    }
}
