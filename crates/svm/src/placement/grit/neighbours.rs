//! Neighbouring-Aware Prediction: pages next to each other are mostly used alike (GRIT, section
//! V-D).
//!
//! A group is 8, 64 or 512 aligned pages of one scheme. When most pages around a page whose scheme
//! was just decided have that scheme, all of them get it: they meet it at their next fault, without
//! counting faults of their own. Nothing is moved or invalidated for it, and nobody waits for it.

use farside_types::{PageNo, PageRange};

use super::scheme_bits::SchemeBits;
use crate::placement::PageMode;

/// Pages of a group, by its group bits (table V).
pub(super) const SIZES: [u64; 4] = [1, 8, 64, 512];

impl SchemeBits {
    /// The group bits of the largest group that holds `page`.
    pub(super) fn level(&self, page: PageNo) -> u8 {
        let holds = |&level: &u8| self.group(page.align_down(SIZES[level as usize])) >= level;
        (1..SIZES.len() as u8).rev().find(holds).unwrap_or(0)
    }

    /// The page gets a scheme that is not the one it had. Groups around it come apart or together.
    pub(super) fn change(&mut self, page: PageNo, scheme: PageMode) {
        self.degrade(page);
        self.set_scheme(page, scheme);
        for level in 1..SIZES.len() as u8 {
            if !self.promote(page, scheme, level) {
                break;
            }
        }
    }

    /// The groups around `page` come apart: the part with it down to single pages, the others to
    /// the next smaller groups.
    fn degrade(&mut self, page: PageNo) {
        for level in (1..=self.level(page)).rev() {
            for part in parts(page, level) {
                self.set_group(part, level - 1);
            }
        }
    }

    /// Joins the eight parts of the group of this level around `page`, if more than half of them
    /// have `scheme`. Gives whether they were joined.
    fn promote(&mut self, page: PageNo, scheme: PageMode, level: u8) -> bool {
        let alike = |part: &PageNo| {
            self.mode(*part) == scheme && (level == 1 || self.group(*part) >= level - 1)
        };
        let joins = parts(page, level).filter(alike).count() > 4;
        if joins {
            let size = SIZES[level as usize];
            let base = page.align_down(size);
            for page in PageRange::new(base, size).pages() {
                self.set_scheme(page, scheme);
                self.set_group(page, 0);
            }
            self.set_group(base, level);
        }
        joins
    }
}

/// Base pages of the eight parts of the group of this level around `page`.
fn parts(page: PageNo, level: u8) -> impl Iterator<Item = PageNo> {
    let base = page.align_down(SIZES[level as usize]);
    (0..8).map(move |part| base.offset(part * SIZES[level as usize - 1]))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Eight, 64 and 512 pages start here.
    const BASE: PageNo = PageNo(512 * 9);

    fn page(index: u64) -> PageNo {
        BASE.offset(index)
    }

    fn of_scheme(bits: &SchemeBits, scheme: PageMode, pages: u64) -> u64 {
        (0..pages).filter(|&index| bits.mode(page(index)) == scheme).count() as u64
    }

    #[test]
    fn more_than_half_of_eight_pages_make_a_group() {
        let mut bits = SchemeBits::default();
        for index in [0, 2, 4, 6] {
            bits.change(page(index), PageMode::Duplication);
        }
        assert_eq!(of_scheme(&bits, PageMode::Duplication, 8), 4, "half is not more than half");
        assert_eq!(bits.level(page(0)), 0);
        bits.change(page(7), PageMode::Duplication);
        assert_eq!(of_scheme(&bits, PageMode::Duplication, 16), 8, "all eight, and none beyond");
        assert_eq!(bits.group(page(0)), 0b01);
        assert_eq!(bits.level(page(5)), 0b01);
    }

    /// Five of eight, in five of eight, in five of eight groups.
    fn whole_block(bits: &mut SchemeBits, scheme: PageMode) {
        for large in 0..5 {
            for small in 0..5 {
                for index in 0..5 {
                    bits.change(page(large * 64 + small * 8 + index), scheme);
                }
            }
        }
    }

    #[test]
    fn groups_grow_to_64_and_512_pages_and_no_further() {
        let mut bits = SchemeBits::default();
        for small in 0..5 {
            assert_eq!(of_scheme(&bits, PageMode::AccessCounter, 64), small * 8);
            for index in 0..5 {
                bits.change(page(small * 8 + index), PageMode::AccessCounter);
            }
        }
        assert_eq!(of_scheme(&bits, PageMode::AccessCounter, 512), 64);
        assert_eq!(bits.group(page(0)), 0b10);
        let mut bits = SchemeBits::default();
        whole_block(&mut bits, PageMode::AccessCounter);
        assert_eq!(of_scheme(&bits, PageMode::AccessCounter, 1024), 512);
        assert_eq!(bits.group(page(0)), 0b11);
    }

    #[test]
    fn a_group_of_64_with_another_scheme_in_it_comes_apart_into_seven_groups_of_eight() {
        let mut bits = SchemeBits::default();
        for small in 0..5 {
            for index in 0..5 {
                bits.change(page(small * 8 + index), PageMode::AccessCounter);
            }
        }
        bits.change(page(19), PageMode::Duplication);
        for small in 0..8 {
            let expected = if small == 2 { 0b00 } else { 0b01 };
            assert_eq!(bits.group(page(small * 8)), expected, "group {small}");
        }
        assert_eq!(bits.mode(page(19)), PageMode::Duplication);
        assert_eq!(of_scheme(&bits, PageMode::AccessCounter, 64), 63);
    }

    #[test]
    fn a_group_of_512_comes_apart_into_groups_of_64_and_of_eight() {
        let mut bits = SchemeBits::default();
        whole_block(&mut bits, PageMode::AccessCounter);
        bits.change(page(0), PageMode::Duplication);
        assert_eq!(bits.level(page(1)), 0b00);
        assert_eq!(bits.level(page(8)), 0b01);
        assert_eq!(bits.level(page(64)), 0b10);
        assert_eq!(bits.level(page(511)), 0b10);
    }

    #[test]
    fn a_group_without_its_bits_does_not_count_for_the_larger_one() {
        let mut bits = SchemeBits::default();
        // In four parts all pages have the scheme, in the others four of eight: no majority.
        for small in 0..8 {
            let pages = if small < 4 { 8 } else { 4 };
            for index in 0..pages {
                bits.change(page(small * 8 + index), PageMode::Duplication);
            }
        }
        assert_eq!(bits.level(page(0)), 0b01);
        assert_eq!(of_scheme(&bits, PageMode::Duplication, 64), 48);
    }
}
