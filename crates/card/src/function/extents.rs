//! The pages of a command: read from memory where they are a list, and checked, all of them before
//! anything is done with one.

use super::refusal::Refusal;
use super::{Bus, Function};
use crate::interface::{
    DecodeError, DmaAddr, EXTENT_BYTES, Extent, ExtentArg, ExtentList, LIST_PAGES_MAX, Status,
    register,
};
use crate::{Card, PAGES_MAX};

/// Pages that are about as much work as a record.
const PAGES_PER_WORK: u64 = 1024;

/// What one end of the pages is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum End {
    /// Nothing: its word is 0.
    Unused,
    /// It is read.
    Read,
    /// It is written, or mapped so that it may be.
    Write,
}

/// What an operation uses of its extents.
#[derive(Clone, Copy, Debug)]
pub(super) struct Roles {
    /// Pages of an address space; else the word is 0.
    pub(super) pages: bool,
    pub(super) src: End,
    pub(super) dst: End,
}

impl Roles {
    /// Pages of an address space alone.
    pub(super) const PAGES: Roles = Roles { pages: true, src: End::Unused, dst: End::Unused };
    /// Pages that are copied.
    pub(super) const COPY: Roles = Roles { pages: false, src: End::Read, dst: End::Write };
    /// Pages that are written: filled, or received over the link.
    pub(super) const WRITE: Roles = Roles { src: End::Unused, ..Roles::COPY };
    /// Pages that are sent over the link.
    pub(super) const READ: Roles = Roles { dst: End::Unused, ..Roles::COPY };

    /// Pages that are mapped to their destination.
    pub(super) const fn map(dst: End) -> Roles {
        Roles { dst, ..Roles::PAGES }
    }
}

/// The extents of a command. One that is in the entry itself needs no memory.
#[derive(Clone, Debug)]
pub(super) enum Extents {
    Inline([Extent; 1]),
    List(Vec<Extent>),
}

impl Extents {
    pub(super) fn into_vec(self) -> Vec<Extent> {
        match self {
            Extents::Inline(one) => one.to_vec(),
            Extents::List(list) => list,
        }
    }

    /// Pages in all.
    pub(super) fn pages(&self) -> u64 {
        self.iter().map(|extent| u64::from(extent.count)).sum()
    }
}

impl std::ops::Deref for Extents {
    type Target = [Extent];

    fn deref(&self) -> &[Extent] {
        match self {
            Extents::Inline(one) => one,
            Extents::List(list) => list,
        }
    }
}

/// Words of an extent, as they are numbered in refusals.
mod word {
    pub(super) const PAGE: u64 = 0;
    pub(super) const COUNT: u64 = 1;
    pub(super) const SRC: u64 = 2;
    pub(super) const DST: u64 = 3;
}

/// The number of a word of an extent: in the entry the operands begin at word 2; in a list it is
/// the word within the record and, above eight bits, the record counted from 1.
fn numbered(record: Option<usize>, word: u64) -> u64 {
    match record {
        None => 2 + word,
        Some(record) => word | (record as u64 + 1) << 8,
    }
}

impl Function {
    /// Reads and checks the extents of a command.
    pub(super) fn extents(
        &mut self,
        arg: ExtentArg,
        roles: Roles,
        card: &Card,
        bus: &mut impl Bus,
    ) -> Result<Extents, Refusal> {
        let extents = match arg {
            ExtentArg::Inline(extent) => Extents::Inline([extent]),
            ExtentArg::List(list) => Extents::List(read_list(list, bus)?),
        };
        self.work += extents.len() as u64;
        let listed = matches!(extents, Extents::List(_));
        for (index, extent) in extents.iter().enumerate() {
            self.check(extent, listed.then_some(index), roles, card, bus)?;
        }
        Ok(extents)
    }

    /// [`Function::extents`] of a command that moves pages, which may not be too many.
    pub(super) fn dma_extents(
        &mut self,
        arg: ExtentArg,
        roles: Roles,
        card: &Card,
        bus: &mut impl Bus,
    ) -> Result<Extents, Refusal> {
        let most = u64::from(card.geometry().dma_pages_max);
        let too_many = Refusal::operand(2 + word::COUNT);
        // Each record has a page at least: a list that is too long is not read.
        if matches!(arg, ExtentArg::List(list) if u64::from(list.count) > most) {
            return Err(too_many);
        }
        let extents = self.extents(arg, roles, card, bus)?;
        if extents.pages() > most { Err(too_many) } else { Ok(extents) }
    }

    /// [`Function::extents`] of a command about an address space. The pages of a list are bounded, and
    /// so are those that are mapped: each of them is work.
    pub(super) fn bounded_extents(
        &mut self,
        arg: ExtentArg,
        roles: Roles,
        card: &Card,
        bus: &mut impl Bus,
    ) -> Result<Extents, Refusal> {
        let is_list = matches!(arg, ExtentArg::List(_));
        let extents = self.extents(arg, roles, card, bus)?;
        let is_bounded = is_list || roles.dst != End::Unused;
        if is_bounded && extents.pages() > LIST_PAGES_MAX {
            return Err(Refusal::operand(2 + word::COUNT));
        }
        if is_bounded {
            self.work += extents.pages() / PAGES_PER_WORK;
        }
        Ok(extents)
    }

    fn check(
        &self,
        extent: &Extent,
        record: Option<usize>,
        roles: Roles,
        card: &Card,
        bus: &mut impl Bus,
    ) -> Result<(), Refusal> {
        let wrong = |word| Refusal::operand(numbered(record, word));
        let end = extent.page.saturating_add(extent.count.into());
        if end > PAGES_MAX || (!roles.pages && extent.page != 0) {
            return Err(wrong(word::PAGE));
        }
        let ends = [(word::SRC, extent.src, roles.src), (word::DST, extent.dst, roles.dst)];
        for (word, place, end) in ends {
            match (end, place) {
                (End::Unused, DmaAddr::Bus(0)) => {}
                (End::Unused, _) => return Err(wrong(word)),
                _ => reach(place, extent.count, end == End::Write, self.driver_frames(card), bus)?,
            }
        }
        if roles.src != End::Unused && roles.dst != End::Unused {
            self.check_pair(extent, wrong(word::DST))?;
        }
        Ok(())
    }

    /// Both ends of a copy.
    fn check_pair(&self, extent: &Extent, overlap: Refusal) -> Result<(), Refusal> {
        let overlaps = |a: u32, b: u32| a.abs_diff(b) < extent.count;
        match (extent.src, extent.dst) {
            (DmaAddr::Own(src), DmaAddr::Own(dst)) if overlaps(src, dst) => Err(overlap),
            (DmaAddr::Bus(src), DmaAddr::Bus(dst)) => {
                if !self.config.can(register::CAP_DMA_BUS_TO_BUS) {
                    return Err(Refusal::mistake(Status::Unsupported, 0));
                }
                if overlaps(src, dst) { Err(overlap) } else { Ok(()) }
            }
            _ => Ok(()),
        }
    }
}

/// Checks that the function, whose driver names `frames` frames, may touch these pages.
fn reach(
    place: DmaAddr,
    count: u32,
    write: bool,
    frames: u32,
    bus: &mut impl Bus,
) -> Result<(), Refusal> {
    match place {
        DmaAddr::Own(frame) => {
            let frames = u64::from(frames);
            if u64::from(frame) + u64::from(count) > frames {
                return Err(Refusal::foreign(frames.max(frame.into())));
            }
        }
        DmaAddr::Bus(page) => {
            let address = u64::from(page) << 12;
            let beyond = u64::from(page) + u64::from(count) > 1 << 32;
            if beyond || !bus.reaches(address, u64::from(count) << 12, write) {
                return Err(Refusal::mistake(Status::BadAddress, address));
            }
        }
    }
    Ok(())
}

/// Reads `count` records of `bytes` bytes each; `count` was bounded when the command was decoded.
pub(super) fn read_records(
    list: ExtentList,
    bytes: u64,
    bus: &mut impl Bus,
) -> Result<Vec<u8>, Refusal> {
    let length = u64::from(list.count) * bytes;
    if list.address.checked_add(length).is_none() {
        return Err(Refusal::bus(list.address));
    }
    let mut records = vec![0; length as usize];
    if records.is_empty() {
        return Ok(records);
    }
    bus.read(list.address, &mut records).map_err(|error| Refusal::bus(error.address))?;
    Ok(records)
}

/// The words of a record.
pub(super) fn words<const N: usize>(record: &[u8]) -> [u64; N] {
    let mut words = [0; N];
    for (word, bytes) in words.iter_mut().zip(record.chunks_exact(8)) {
        let mut value = [0; 8];
        value.copy_from_slice(bytes);
        *word = u64::from_le_bytes(value);
    }
    words
}

fn read_list(list: ExtentList, bus: &mut impl Bus) -> Result<Vec<Extent>, Refusal> {
    let records = read_records(list, EXTENT_BYTES, bus)?;
    let records = records.chunks_exact(EXTENT_BYTES as usize).enumerate();
    records
        .map(|(index, record)| {
            Extent::from_words(words(record), 0).map_err(|error| match error {
                DecodeError::Word { word, .. } => {
                    Refusal::operand(numbered(Some(index), word.into()))
                }
                other => other.into(),
            })
        })
        .collect()
}
