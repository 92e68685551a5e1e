//! Reads tables word by word, as section 8 of `docs/card-interface.md` lays them out: with its numbers,
//! and nothing of the card's own code.

use std::sync::atomic::Ordering;

use farside_types::{Access, Asid, FrameNo, MemoryId};

use super::{Known, ensure};
use crate::Location;
use crate::tables::Tables;

/// Bits of an entry that have a name and are the card's.
const ENTRY: u64 = 0xffff_ffff_0000_03ff;
/// Bits of a directory word.
const DIRECTORY: u64 = 0xffff_ffff_0001_0001;
/// Bits of a root word.
const ROOT: u64 = 0xffff_ffff_0000_000f;

/// An entry that was found.
#[derive(Debug)]
pub(in crate::tables) struct Entry {
    /// Its first page.
    pub(super) page: u64,
    /// Pages that the one word is for.
    pub(super) pages: u64,
    word: u64,
}

impl Entry {
    fn bit(&self, bit: u32) -> bool {
        self.word >> bit & 1 == 1
    }

    fn size(&self) -> u32 {
        (self.word >> 5 & 0x1f) as u32
    }

    fn number(&self) -> u64 {
        self.word >> 32
    }

    /// Whether it says of its page `index` what is known.
    pub(super) fn must_say(
        &self,
        index: u64,
        known: &Known,
        own: MemoryId,
        exactly: bool,
    ) -> Result<(), String> {
        let memory = if self.bit(2) { own } else { MemoryId::HOST };
        let location = Location::new(memory, FrameNo((self.number() + index) as u32));
        ensure!(location == known.location, "{self:?} is not at {known:?}");
        ensure!(self.bit(1) == known.rights.allows(Access::Write), "{self:?}: not {known:?}");
        ensure!(self.bit(3) || !known.used, "{self:?} does not say that it was used: {known:?}");
        ensure!(self.bit(4) || !known.written, "{self:?} does not say that it was written");
        let is_known = !exactly || self.bit(4) == known.written || known.wanted;
        ensure!(is_known, "{self:?} says that it was written: {known:?}");
        Ok(())
    }
}

/// Every entry of an address space. The words must be such as the specification allows.
pub(in crate::tables) fn entries(tables: &Tables, asid: Asid) -> Result<Vec<Entry>, String> {
    let root = tables.root(asid).map_or(0, |word| word.load(Ordering::Acquire));
    if root & 1 == 0 {
        return Ok(Vec::new());
    }
    let levels = (root >> 1 & 7) as u32;
    ensure!(root & !ROOT == 0 && (1..=6).contains(&levels), "{root:#x} is no root word");
    let mut found = Vec::new();
    descend(tables, (root >> 32) as u32, levels - 1, 0, &mut found)?;
    Ok(found)
}

/// The entries of a table `level` levels above the leaves, and below it.
fn descend(
    tables: &Tables,
    table: u32,
    level: u32,
    first: u64,
    found: &mut Vec<Entry>,
) -> Result<(), String> {
    let begin = found.len();
    for slot in 0..512 {
        let word = tables.word(table, slot).ok_or_else(|| format!("there is no table {table}"))?;
        let word = word.load(Ordering::Acquire);
        let page = first | (slot as u64) << (9 * level);
        match (word & 1 == 1, word >> 16 & 1 == 1, level) {
            (false, ..) => {}
            (true, true, 1..) => {
                ensure!(word & !DIRECTORY == 0, "{word:#x} is no directory word");
                descend(tables, (word >> 32) as u32, level - 1, page, found)?;
            }
            (true, false, 0 | 1) => {
                ensure!(word & !ENTRY == 0, "{word:#x} is no entry");
                found.push(Entry { page, pages: 1 << (9 * level), word });
            }
            _ => return Err(format!("{word:#x} cannot be {level} levels above the leaves")),
        }
    }
    if level == 0 {
        return found[begin..].iter().try_for_each(|entry| is_in_its_run(entry, &found[begin..]));
    }
    let runs = found[begin..].iter().filter(|entry| entry.pages == 512);
    for run in runs {
        let aligned = run.number() % 512 == 0 && run.size() == 9;
        ensure!(aligned, "{run:?} is no aligned run of 512");
        // One bit for all of them is right where all count as written, or none can be.
        ensure!(run.bit(4) || !run.bit(1), "{run:?} hides which of its pages are written");
    }
    Ok(())
}

/// All pages of the run that an entry says it is in are there, and say the same.
fn is_in_its_run(entry: &Entry, leaf: &[Entry]) -> Result<(), String> {
    let pages = 1u64 << entry.size();
    let base = entry.page / pages * pages;
    ensure!(
        pages <= 512 && entry.number() % pages == entry.page % pages,
        "{entry:?} is not aligned"
    );
    let first = leaf.partition_point(|other| other.page < base);
    let run = leaf[first..].iter().take_while(|other| other.page < base + pages);
    let same = |other: &&Entry| {
        let near = other.number().wrapping_sub(entry.number());
        (other.size(), other.bit(1), other.bit(2)) == (entry.size(), entry.bit(1), entry.bit(2))
            && near == other.page.wrapping_sub(entry.page)
    };
    let there = run.filter(same).count() as u64;
    ensure!(there == pages, "{entry:?} is in a run of {pages}, of which {there} are there");
    Ok(())
}
