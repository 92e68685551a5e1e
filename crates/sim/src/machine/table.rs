//! Tables by small numbers that the way of every access looks into.

use std::hash::Hash;

use farside_types::IndexMap;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::state::{Reader, Refused, State, Writer};

/// A hash table without a seed. Whoever asks for its order sorts it.
pub(crate) type Table<K, V> = IndexMap<K, V>;

/// In the order of keys, so that equal states are equal bytes.
impl<K, V> State for Table<K, V>
where
    K: Ord + Hash + Serialize + DeserializeOwned,
    V: Serialize + DeserializeOwned,
{
    fn save(&self, to: &mut Writer) -> Result<(), Refused> {
        let mut entries: Vec<_> = self.iter().collect();
        entries.sort_by(|a, b| a.0.cmp(b.0));
        to.value(&entries)
    }

    fn load(&mut self, from: &mut Reader<'_>) -> Result<(), Refused> {
        let entries: Vec<(K, V)> = from.value()?;
        *self = entries.into_iter().collect();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_tables_are_equal_bytes_whatever_was_entered_first() {
        let bytes = |keys: &[(u8, u32)]| {
            let table: Table<(u8, u32), u64> =
                keys.iter().map(|&key| (key, u64::from(key.1) * 3)).collect();
            let mut to = Writer::default();
            table.save(&mut to).unwrap();
            (table, to.into_bytes())
        };
        let (table, stored) = bytes(&[(1, 7), (0, 9), (3, 1), (0, 2)]);
        assert_eq!(bytes(&[(0, 2), (3, 1), (0, 9), (1, 7)]).1, stored);
        let mut loaded: Table<(u8, u32), u64> = Table::default();
        loaded.load(&mut Reader::new(&stored)).unwrap();
        assert_eq!(loaded, table);
    }
}
