//! What a word of the window's tables says.

use farside_types::Rights;
use thiserror::Error;

use super::WindowGeometry;
use crate::tables::{Place, TableEntry};

/// Where a page of the window is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WindowMapping {
    /// Its frame.
    pub frame: u32,
    /// The memory of the card that the frame is in, 0 to 15.
    pub memory: u8,
    /// What may be done with it.
    pub rights: Rights,
    /// Pages of the aligned run that it is part of, as a power of two.
    pub size: u32,
}

/// Why a page of the window cannot be reached. Its number is that of the status in hardware.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[repr(u8)]
pub enum WindowFault {
    /// No allocation has the page.
    #[error("the page is not mapped")]
    NotMapped = 1,
    /// A write to a page that may only be read.
    #[error("the page may only be read")]
    ReadOnly = 2,
    /// The memory of the tables answered with an error.
    #[error("a word of the tables could not be read")]
    BusError = 3,
    /// A word that no allocator writes.
    #[error(
        "a word of the tables names a frame or a table that does not exist, or a run that is not aligned"
    )]
    BadEntry = 4,
    /// The page is touched for the first time, and no frame is left for it.
    #[error("the memory has no frame left for the page")]
    NoFrame = 5,
}

impl WindowFault {
    /// The fault of a status other than 0.
    pub fn from_status(status: u8) -> Option<WindowFault> {
        use WindowFault::{BadEntry, BusError, NoFrame, NotMapped, ReadOnly};
        [NotMapped, ReadOnly, BusError, BadEntry, NoFrame]
            .into_iter()
            .find(|&fault| fault as u8 == status)
    }
}

/// A word above the leaf level.
pub(super) enum Upper {
    /// Leads to a table of the next level.
    Table(u32),
    /// Maps the pages below it.
    Run(WindowMapping),
}

impl WindowMapping {
    /// What an entry says, which may be of a run of 2^`size_max` pages at most.
    fn of(
        entry: TableEntry,
        size_max: u32,
        geometry: &WindowGeometry,
    ) -> Result<WindowMapping, WindowFault> {
        let Place::Own(frame) = entry.place() else { return Err(WindowFault::BadEntry) };
        let beyond = u64::from(frame) >> geometry.frame_bits() != 0;
        if beyond || entry.size() > size_max {
            return Err(WindowFault::BadEntry);
        }
        Ok(WindowMapping {
            frame,
            memory: entry.memory(),
            rights: entry.rights(),
            size: entry.size(),
        })
    }
}

/// The word of a page in a table of the leaf level.
pub(super) fn leaf(word: u64, geometry: &WindowGeometry) -> Result<WindowMapping, WindowFault> {
    let entry = TableEntry(word);
    if !entry.is_valid() {
        return Err(WindowFault::NotMapped);
    }
    if entry.table().is_some() {
        return Err(WindowFault::BadEntry);
    }
    let last = geometry.levels() - 1;
    // Of a tree of one level there is no run.
    let size_max = if last == 0 { 0 } else { geometry.bits_below(last - 1) };
    WindowMapping::of(entry, size_max, geometry)
}

/// A word of a table of `level`, above the leaves.
pub(super) fn upper(
    word: u64,
    level: usize,
    geometry: &WindowGeometry,
) -> Result<Upper, WindowFault> {
    let entry = TableEntry(word);
    if !entry.is_valid() {
        return Err(WindowFault::NotMapped);
    }
    if let Some(table) = entry.table() {
        let beyond = u64::from(table) >> geometry.table_bits(level + 1) != 0;
        return if beyond { Err(WindowFault::BadEntry) } else { Ok(Upper::Table(table)) };
    }
    let size = geometry.bits_below(level);
    let mapping = WindowMapping::of(entry, size, geometry)?;
    let aligned = u64::from(mapping.frame) & ((1 << size) - 1) == 0;
    if mapping.size != size || !aligned {
        Err(WindowFault::BadEntry)
    } else {
        Ok(Upper::Run(mapping))
    }
}
