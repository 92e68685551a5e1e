//! A row of bits: what is in use, and where there is room.

const WORD_BITS: u64 = 64;

/// A row of bits; a set one is in use. Searches look at a word of 64 at a time, as hardware does.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Bits {
    /// Those beyond the row are set.
    words: Vec<u64>,
    len: u64,
}

impl Bits {
    /// A row of `len`, none in use.
    pub(super) fn new(len: u64) -> Bits {
        Bits::of_words(vec![0; len.div_ceil(WORD_BITS) as usize], len)
    }

    /// A row of `len` from its words.
    pub(super) fn of_words(mut words: Vec<u64>, len: u64) -> Bits {
        if let Some(last) = words.last_mut().filter(|_| len % WORD_BITS != 0) {
            *last |= u64::MAX << (len % WORD_BITS);
        }
        Bits { words, len }
    }

    pub(super) fn words(&self) -> &[u64] {
        &self.words
    }

    pub(super) fn is_set(&self, index: u64) -> bool {
        index >= self.len
            || self.words[(index / WORD_BITS) as usize] >> (index % WORD_BITS) & 1 == 1
    }

    /// Whether all of `count` from `first` on are clear, and in the row.
    pub(super) fn is_clear(&self, first: u64, count: u64) -> bool {
        first.checked_add(count).is_some_and(|end| end <= self.len)
            && self.next_set(first) >= first + count
    }

    pub(super) fn set(&mut self, first: u64, count: u64) {
        for index in first..first + count {
            self.words[(index / WORD_BITS) as usize] |= 1 << (index % WORD_BITS);
        }
    }

    pub(super) fn clear(&mut self, first: u64, count: u64) {
        for index in first..first + count {
            self.words[(index / WORD_BITS) as usize] &= !(1 << (index % WORD_BITS));
        }
    }

    /// The first place from `from` on, a multiple of 2^`align`, with `count` clear bits.
    pub(super) fn find(&self, count: u64, align: u32, from: u64) -> Option<u64> {
        let mut from = from;
        loop {
            let start = self.next_clear(from)?.checked_next_multiple_of(1 << align)?;
            if start.checked_add(count)? > self.len {
                return None;
            }
            let end = self.next_set(start);
            if end - start >= count {
                return Some(start);
            }
            from = end.max(start + 1);
        }
    }

    /// How many are set.
    pub(super) fn count(&self) -> u64 {
        let beyond = self.words.len() as u64 * WORD_BITS - self.len;
        self.words.iter().map(|word| u64::from(word.count_ones())).sum::<u64>() - beyond
    }

    /// The length of the longest row of clear bits.
    pub(super) fn longest(&self) -> u64 {
        let (mut longest, mut from) = (0, 0);
        while let Some(start) = self.next_clear(from) {
            from = self.next_set(start);
            longest = longest.max(from - start);
        }
        longest
    }

    fn next_clear(&self, from: u64) -> Option<u64> {
        self.next(from, |word| !word)
    }

    /// The next that is set, or the row's end.
    fn next_set(&self, from: u64) -> u64 {
        self.next(from, |word| word).unwrap_or(self.len).min(self.len)
    }

    fn next(&self, from: u64, wanted: fn(u64) -> u64) -> Option<u64> {
        if from >= self.len {
            return None;
        }
        let begin = (from / WORD_BITS) as usize;
        (begin..self.words.len()).find_map(|index| {
            let beyond = if index == begin { u64::MAX << (from % WORD_BITS) } else { u64::MAX };
            let found = wanted(self.words[index]) & beyond;
            (found != 0).then(|| index as u64 * WORD_BITS + u64::from(found.trailing_zeros()))
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn slow_find(bits: &Bits, count: u64, align: u32, from: u64) -> Option<u64> {
        (from..bits.len).find(|&start| start % (1 << align) == 0 && bits.is_clear(start, count))
    }

    proptest! {
        #[test]
        fn searches_find_what_is_there(
            len in 1u64..200,
            taken in proptest::collection::vec((0u64..200, 1u64..9), 0..30),
            count in 1u64..70,
            align in 0u32..7,
            from in 0u64..200,
        ) {
            let mut bits = Bits::new(len);
            for (first, count) in taken {
                let end = (first + count).min(len);
                bits.set(first.min(end), end - first.min(end));
            }
            prop_assert_eq!(bits.find(count, align, from), slow_find(&bits, count, align, from));
            let longest = (1..=len).rev().find(|&n| slow_find(&bits, n, 0, 0).is_some());
            prop_assert_eq!(bits.longest(), longest.unwrap_or(0));
            let set = (0..len).filter(|&index| bits.is_set(index)).count() as u64;
            prop_assert_eq!(bits.count(), set);
            let again = Bits::of_words(bits.words().to_vec(), len);
            prop_assert_eq!(again, bits);
        }
    }

    #[test]
    fn what_is_beyond_the_row_is_in_use() {
        let mut bits = Bits::new(70);
        assert!(bits.is_set(70) && !bits.is_clear(69, 2) && bits.is_clear(69, 1));
        bits.set(0, 70);
        assert_eq!((bits.find(1, 0, 0), bits.longest()), (None, 0));
        bits.clear(64, 2);
        assert_eq!((bits.find(2, 1, 3), bits.find(1, 0, 66)), (Some(64), None));
    }
}
