//! A walk of one page, word by word.

use super::mapping::{Upper, leaf, upper};
use super::{WindowFault, WindowGeometry, WindowMapping};

/// What a walk needs next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WindowNeed {
    /// The word at this address of the card's memory, from a table of this level; the root's is 0.
    Word {
        /// The address.
        address: u64,
        /// The level.
        level: usize,
    },
    /// Nothing: this is its result.
    Nothing(Result<WindowMapping, WindowFault>),
}

/// A walk through the window's tables. It reads nothing: [`WindowWalk::need`] says which word, and
/// [`WindowWalk::take`] is given it.
#[derive(Clone, Debug)]
pub struct WindowWalk {
    geometry: WindowGeometry,
    page: u64,
    need: WindowNeed,
}

impl WindowWalk {
    /// For page `page`, counted from the window's begin, from the root at address `root`.
    pub fn new(geometry: &WindowGeometry, root: u64, page: u64) -> WindowWalk {
        let address = root + geometry.offset_in_table(0, page);
        let need = WindowNeed::Word { address, level: 0 };
        WindowWalk { geometry: geometry.clone(), page, need }
    }

    /// What it needs.
    pub fn need(&self) -> WindowNeed {
        self.need
    }

    /// The word that was needed, or `None` where the memory has answered with an error. Nothing
    /// happens if no word is needed.
    pub fn take(&mut self, word: Option<u64>) {
        let WindowNeed::Word { level, .. } = self.need else { return };
        self.need = match word {
            None => WindowNeed::Nothing(Err(WindowFault::BusError)),
            Some(word) => self.after(word, level),
        };
    }

    fn after(&self, word: u64, level: usize) -> WindowNeed {
        if level + 1 == self.geometry.levels() {
            return WindowNeed::Nothing(leaf(word, &self.geometry));
        }
        match upper(word, level, &self.geometry) {
            Err(fault) => WindowNeed::Nothing(Err(fault)),
            Ok(Upper::Run(run)) => {
                let within = self.page & ((1 << self.geometry.bits_below(level)) - 1);
                WindowNeed::Nothing(Ok(WindowMapping { frame: run.frame + within as u32, ..run }))
            }
            Ok(Upper::Table(table)) => {
                let begin = self.geometry.table_address(level + 1, table);
                let address = begin + self.geometry.offset_in_table(level + 1, self.page);
                WindowNeed::Word { address, level: level + 1 }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use farside_types::Rights;

    use super::*;
    use crate::tables::{Place, TableEntry};

    const ROOT: u64 = 0x1000;

    fn geometry() -> WindowGeometry {
        WindowGeometry::new(12, &[2, 3], 20).unwrap()
    }

    fn entry(frame: u32, size: u32) -> TableEntry {
        TableEntry::leaf(Place::Own(frame), Rights::ReadWrite, false, size).in_memory(5)
    }

    /// The result of a walk of page 1 * 8 + 3 that finds these words, and the addresses that it reads.
    fn walk(words: &[Option<u64>]) -> (Result<WindowMapping, WindowFault>, Vec<u64>) {
        let mut walk = WindowWalk::new(&geometry(), ROOT, 8 + 3);
        let mut addresses = Vec::new();
        for &word in words {
            let WindowNeed::Word { address, level } = walk.need() else {
                panic!("a word too many")
            };
            assert_eq!(level, addresses.len());
            addresses.push(address);
            walk.take(word);
        }
        let WindowNeed::Nothing(result) = walk.need() else { panic!("{:?}", walk.need()) };
        walk.take(Some(0));
        assert_eq!(walk.need(), WindowNeed::Nothing(result), "nothing was needed");
        (result, addresses)
    }

    #[test]
    fn a_page_is_found_by_two_words() {
        let (result, addresses) = walk(&[Some(TableEntry::directory(6).0), Some(entry(0x77, 1).0)]);
        let mapping = WindowMapping { frame: 0x77, memory: 5, rights: Rights::ReadWrite, size: 1 };
        assert_eq!(result, Ok(mapping));
        assert_eq!(addresses, [ROOT + 8, 6 * 64 + 3 * 8]);
    }

    #[test]
    fn the_root_may_map_a_run_itself() {
        let (result, addresses) = walk(&[Some(entry(0x40, 3).0)]);
        assert_eq!(result.map(|mapping| (mapping.frame, mapping.size)), Ok((0x43, 3)));
        assert_eq!(addresses.len(), 1);
        for bad in [entry(0x41, 3), entry(0x40, 2), entry(0x100, 3)] {
            assert_eq!(walk(&[Some(bad.0)]).0, Err(WindowFault::BadEntry), "{bad:?}");
        }
    }

    #[test]
    fn what_is_not_there_or_makes_no_sense_is_a_fault() {
        use WindowFault::{BadEntry, BusError, NotMapped};
        let table = Some(TableEntry::directory(6).0);
        let bus = TableEntry::leaf(Place::Bus(1), Rights::Read, false, 0);
        let cases: [(&[Option<u64>], WindowFault); 9] = [
            (&[None], BusError),
            (&[Some(0xffff_fffe)], NotMapped),
            (&[Some(TableEntry::directory(1 << 14).0)], BadEntry),
            (&[Some(bus.0)], BadEntry),
            (&[table, None], BusError),
            (&[table, Some(0)], NotMapped),
            (&[table, table], BadEntry),
            (&[table, Some(bus.0)], BadEntry),
            (&[table, Some(entry(1, 4).0)], BadEntry),
        ];
        for (words, fault) in cases {
            assert_eq!(walk(words).0, Err(fault), "{words:?}");
            assert_eq!(WindowFault::from_status(fault as u8), Some(fault));
        }
        assert_eq!(walk(&[table, Some(entry(0x100, 0).0)]).0, Err(BadEntry), "no such frame");
        assert_eq!((WindowFault::from_status(0), WindowFault::from_status(6)), (None, None));
    }

    #[test]
    fn there_may_be_one_level_or_four() {
        for levels in 1..=4 {
            let bits = vec![3; levels];
            let geometry = WindowGeometry::new(12, &bits, 32).unwrap();
            let mut walk = WindowWalk::new(&geometry, 0, 0o1234 & ((1 << (3 * levels)) - 1));
            let mut reads = 0;
            while let WindowNeed::Word { address, level } = walk.need() {
                assert_eq!(level, reads);
                reads += 1;
                let digit = 0o1234 >> (3 * (levels - reads)) & 7;
                assert_eq!(address, if level == 0 { 0 } else { 64 * level as u64 } + 8 * digit);
                let table = TableEntry::directory(reads as u32);
                walk.take(Some(if reads == levels { entry(9, 0).0 } else { table.0 }));
            }
            assert_eq!(reads, levels);
            let WindowNeed::Nothing(Ok(mapping)) = walk.need() else { panic!("{walk:?}") };
            assert_eq!(mapping.frame, 9);
        }
    }
}
