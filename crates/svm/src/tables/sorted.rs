//! A map in one sorted vector: what leaves it leaves its room behind, where a tree would give the memory of a
//! node back, and ask for it again with the next key.

use std::ops::Index;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A map of a few keys, in their order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SortedMap<K, V>(Vec<(K, V)>);

impl<K, V> Default for SortedMap<K, V> {
    fn default() -> SortedMap<K, V> {
        SortedMap(Vec::new())
    }
}

impl<K: Ord, V> SortedMap<K, V> {
    /// An empty map with room for so many keys.
    pub fn with_room(keys: usize) -> SortedMap<K, V> {
        SortedMap(Vec::with_capacity(keys))
    }

    fn place(&self, key: &K) -> Result<usize, usize> {
        self.0.binary_search_by(|(known, _)| known.cmp(key))
    }

    /// Whether there are no keys.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The number of keys.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is this key.
    pub fn contains_key(&self, key: &K) -> bool {
        self.place(key).is_ok()
    }

    /// The value of `key`.
    pub fn get(&self, key: &K) -> Option<&V> {
        self.place(key).ok().map(|at| &self.0[at].1)
    }

    /// The same, to be changed.
    pub fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.place(key).ok().map(|at| &mut self.0[at].1)
    }

    /// The value of `key`, which is put in if there is none.
    pub fn get_or_insert_with(&mut self, key: K, value: impl FnOnce() -> V) -> &mut V {
        let at = match self.place(&key) {
            Ok(at) => at,
            Err(at) => {
                self.0.insert(at, (key, value()));
                at
            }
        };
        &mut self.0[at].1
    }

    /// Gives `key` this value, and tells the former one.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        match self.place(&key) {
            Ok(at) => Some(std::mem::replace(&mut self.0[at].1, value)),
            Err(at) => {
                self.0.insert(at, (key, value));
                None
            }
        }
    }

    /// Takes `key` out.
    pub fn remove(&mut self, key: &K) -> Option<V> {
        self.place(key).ok().map(|at| self.0.remove(at).1)
    }

    /// Leaves the keys for which `keep` holds.
    pub fn retain(&mut self, mut keep: impl FnMut(&K, &mut V) -> bool) {
        self.0.retain_mut(|(key, value)| keep(key, value));
    }

    /// Keys and values, ascending.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&K, &V)> {
        self.0.iter().map(|(key, value)| (key, value))
    }

    /// Values in the order of their keys.
    pub fn values(&self) -> impl DoubleEndedIterator<Item = &V> {
        self.0.iter().map(|(_, value)| value)
    }
}

impl<K: Ord, V> Index<&K> for SortedMap<K, V> {
    type Output = V;

    fn index(&self, key: &K) -> &V {
        self.get(key).expect("the key is in the map")
    }
}

impl<K: Ord, V> FromIterator<(K, V)> for SortedMap<K, V> {
    /// Of equal keys the last counts.
    fn from_iter<I: IntoIterator<Item = (K, V)>>(items: I) -> SortedMap<K, V> {
        let mut map = SortedMap::default();
        items.into_iter().for_each(|(key, value)| drop(map.insert(key, value)));
        map
    }
}

impl<K: Ord + Serialize, V: Serialize> Serialize for SortedMap<K, V> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}

impl<'de, K: Ord + Deserialize<'de>, V: Deserialize<'de>> Deserialize<'de> for SortedMap<K, V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<SortedMap<K, V>, D::Error> {
        let map = std::collections::BTreeMap::deserialize(deserializer)?;
        Ok(SortedMap(map.into_iter().collect()))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn is_a_map(steps in prop::collection::vec((0u8..5, 0u8..12), 1..80)) {
            let (mut map, mut known) = (SortedMap::default(), BTreeMap::new());
            for (value, (what, key)) in steps.into_iter().enumerate() {
                match what {
                    0 => prop_assert_eq!(map.insert(key, value), known.insert(key, value)),
                    1 => prop_assert_eq!(map.remove(&key), known.remove(&key)),
                    2 => {
                        *map.get_or_insert_with(key, || 0) += value;
                        *known.entry(key).or_insert(0) += value;
                    }
                    3 => {
                        map.retain(|k, v| *k > key / 2 || *v % 2 == 0);
                        known.retain(|k, v| *k > key / 2 || *v % 2 == 0);
                    }
                    _ => prop_assert_eq!(map.get(&key), known.get(&key)),
                }
                prop_assert_eq!(map.iter().collect::<Vec<_>>(), known.iter().collect::<Vec<_>>());
            }
            let text = serde_json::to_string(&map).unwrap();
            prop_assert_eq!(&text, &serde_json::to_string(&known).unwrap());
            prop_assert_eq!(serde_json::from_str::<SortedMap<u8, usize>>(&text).unwrap(), map);
        }
    }
}
