//! Which entry to replace: one bit per entry, set when it is used (bit pseudo-LRU).

/// The entries used lately, of at most 64.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Recency(u64);

impl Recency {
    /// Entry `index` of `entries` was used. When all have been, only this one counts as recent.
    #[inline]
    pub(crate) fn touch(&mut self, index: usize, entries: usize) {
        self.0 |= 1 << index;
        if self.0.count_ones() as usize == entries {
            self.0 = 1 << index;
        }
    }

    /// The entry to replace: the first that was not used lately.
    pub(crate) fn victim(self, entries: usize) -> usize {
        (self.0.trailing_ones() as usize) % entries
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_entry_used_last_is_never_the_victim() {
        for entries in [2, 4, 32, 64] {
            let mut recency = Recency::default();
            for step in 0..1000 {
                let index = step * 7 % entries;
                recency.touch(index, entries);
                assert_ne!(recency.victim(entries), index, "{entries} entries, step {step}");
            }
        }
    }
}
