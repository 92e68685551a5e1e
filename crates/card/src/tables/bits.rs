//! One bit for each page of a command, as its completion tells them.

use farside_types::List;

/// What a command has found out about its pages, in the order in which it names them. A page that
/// nothing is known of has its bit set.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PageBits {
    words: List<u64, 8>,
    told: u64,
}

impl PageBits {
    /// Bits of the first pages of `pages`, at most `most`; all are set.
    pub fn new(pages: u64, most: u64) -> PageBits {
        let told = pages.min(most);
        let mut words: List<u64, 8> = (0..told.div_ceil(64)).map(|_| u64::MAX).collect();
        if let Some(last) = words.last_mut().filter(|_| told % 64 != 0) {
            *last = (1 << (told % 64)) - 1;
        }
        PageBits { words, told }
    }

    /// How many pages they are about.
    pub fn told(&self) -> u64 {
        self.told
    }

    /// The bit of page `index` of the command is 0. Beyond those that are told nothing happens.
    pub fn clear(&mut self, index: u64) {
        if index < self.told {
            self.words[(index / 64) as usize] &= !(1 << (index % 64));
        }
    }

    /// The bit of page `index`; one that is not told is set.
    pub fn get(&self, index: u64) -> bool {
        index >= self.told || self.words[(index / 64) as usize] >> (index % 64) & 1 == 1
    }

    /// The words: page 0 is bit 0 of the first.
    pub fn words(&self) -> &[u64] {
        &self.words
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_is_set_and_bits_behind_the_last_page_are_not() {
        let mut bits = PageBits::new(70, 192);
        assert_eq!((bits.told(), bits.words()), (70, &[u64::MAX, 0x3f][..]));
        bits.clear(64);
        bits.clear(70);
        assert!(bits.get(63) && !bits.get(64) && bits.get(65) && bits.get(1000));
        assert_eq!(PageBits::new(1000, 192).words(), [u64::MAX; 3]);
        assert_eq!(PageBits::new(0, 192).words(), [0u64; 0]);
    }
}
