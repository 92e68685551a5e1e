//! The features of userfaultfd as a set with names.

use core::fmt;

use serde::{Serialize, Serializer};

use super::abi::feature;

/// A set of userfaultfd features ([`feature`]).
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct FeatureSet(pub u64);

impl FeatureSet {
    /// No feature.
    pub const EMPTY: FeatureSet = FeatureSet(0);

    /// Every feature this module knows, with the kernel's name for it.
    pub const NAMES: [(u64, &'static str); 17] = [
        (feature::PAGEFAULT_FLAG_WP, "PAGEFAULT_FLAG_WP"),
        (feature::EVENT_FORK, "EVENT_FORK"),
        (feature::EVENT_REMAP, "EVENT_REMAP"),
        (feature::EVENT_REMOVE, "EVENT_REMOVE"),
        (feature::MISSING_HUGETLBFS, "MISSING_HUGETLBFS"),
        (feature::MISSING_SHMEM, "MISSING_SHMEM"),
        (feature::EVENT_UNMAP, "EVENT_UNMAP"),
        (feature::SIGBUS, "SIGBUS"),
        (feature::THREAD_ID, "THREAD_ID"),
        (feature::MINOR_HUGETLBFS, "MINOR_HUGETLBFS"),
        (feature::MINOR_SHMEM, "MINOR_SHMEM"),
        (feature::EXACT_ADDRESS, "EXACT_ADDRESS"),
        (feature::WP_HUGETLBFS_SHMEM, "WP_HUGETLBFS_SHMEM"),
        (feature::WP_UNPOPULATED, "WP_UNPOPULATED"),
        (feature::POISON, "POISON"),
        (feature::WP_ASYNC, "WP_ASYNC"),
        (feature::MOVE, "MOVE"),
    ];

    /// Whether all bits of `features` are in the set.
    pub const fn contains(self, features: u64) -> bool {
        self.0 & features == features
    }

    /// Features in both sets.
    #[must_use]
    pub const fn and(self, other: FeatureSet) -> FeatureSet {
        FeatureSet(self.0 & other.0)
    }

    /// Features of this set that are not in `other`.
    #[must_use]
    pub const fn minus(self, other: FeatureSet) -> FeatureSet {
        FeatureSet(self.0 & !other.0)
    }

    /// The kernel's names of the features in the set.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        Self::NAMES.into_iter().filter(move |(bit, _)| self.contains(*bit)).map(|(_, name)| name)
    }
}

impl fmt::Display for FeatureSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, name) in self.names().enumerate() {
            if i > 0 {
                f.write_str(", ")?;
            }
            f.write_str(name)?;
        }
        Ok(())
    }
}

impl fmt::Debug for FeatureSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FeatureSet({self})")
    }
}

impl Serialize for FeatureSet {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.names())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_the_bits() {
        let set = FeatureSet(feature::MOVE | feature::EVENT_FORK);
        assert_eq!(set.to_string(), "EVENT_FORK, MOVE");
        assert!(set.contains(feature::MOVE));
        assert!(!set.contains(feature::MOVE | feature::POISON));
        assert_eq!(set.minus(FeatureSet(feature::MOVE)), FeatureSet(feature::EVENT_FORK));
    }

    #[test]
    fn every_bit_is_named_once() {
        let all = FeatureSet::NAMES.iter().fold(0, |sum, (bit, _)| {
            assert_eq!(sum & bit, 0, "two names for one bit");
            sum | bit
        });
        assert_eq!(all, (1 << 17) - 1);
    }
}
