//! Reading a specification of cards: TOML, files, single values.

use std::path::Path;

use serde::Deserialize;
use toml::{Table, Value};

use super::{CardsError, CardsSpec};

impl CardsSpec {
    /// Reads TOML. Keys that are left out have the value of `as-published`.
    ///
    /// # Errors
    /// [`CardsError`] that names the key: unknown keys, wrong types, values that cannot work.
    pub fn from_toml(text: &str) -> Result<CardsSpec, CardsError> {
        let spec: CardsSpec = toml::from_str(text)?;
        spec.check()?;
        Ok(spec)
    }

    /// Reads a TOML file.
    ///
    /// # Errors
    /// [`CardsError`] that names the file or the key.
    pub fn open(path: &Path) -> Result<CardsSpec, CardsError> {
        let unreadable = |source| CardsError::Read { path: path.to_owned(), source };
        CardsSpec::from_toml(&std::fs::read_to_string(path).map_err(unreadable)?)
    }

    /// The whole specification as TOML, as it is written beside results.
    pub fn to_toml(&self) -> String {
        // Plain tables of integers, names and booleans: serialising them has no way to fail.
        toml::to_string(self).unwrap_or_default()
    }

    /// Every key, as `section.name`, sorted.
    pub fn keys() -> Vec<String> {
        let mut keys = Vec::new();
        for (section, values) in &CardsSpec::default().as_table() {
            let names = values.as_table().into_iter().flat_map(Table::keys);
            keys.extend(names.map(|name| format!("{section}.{name}")));
        }
        keys.sort_unstable();
        keys
    }

    /// This specification with values replaced: `("machine.cards", "4")`, in the given order.
    /// Numbers, `true` and `false` are written as in TOML, names as they are. What values can be is
    /// checked once, after all of them are in place.
    ///
    /// # Errors
    /// [`CardsError`] names the key that does not exist, or its value that cannot work.
    pub fn with_overrides(&self, overrides: &[(&str, &str)]) -> Result<CardsSpec, CardsError> {
        let mut spec = self.clone();
        for (key, value) in overrides {
            spec = spec.replaced(key.trim(), value.trim())?;
        }
        spec.check()?;
        Ok(spec)
    }

    fn replaced(&self, key: &str, value: &str) -> Result<CardsSpec, CardsError> {
        let mut table = self.as_table();
        let (section, name) = key.split_once('.').unwrap_or((key, ""));
        let values = table.get_mut(section).and_then(Value::as_table_mut);
        let Some(place) = values.and_then(|values| values.get_mut(name)) else {
            return Err(CardsError::NoSuchKey { key: key.to_owned() });
        };
        let parsed = Value::deserialize(toml::de::ValueDeserializer::new(value));
        *place = parsed.unwrap_or_else(|_| Value::String(value.to_owned()));
        table.try_into().map_err(|error: toml::de::Error| CardsError::Override {
            key: key.to_owned(),
            value: value.to_owned(),
            why: error.message().trim_end().to_owned(),
        })
    }

    fn as_table(&self) -> Table {
        // As for `to_toml`.
        Table::try_from(self).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cards::{Topology, Transport};

    fn refused(text: &str) -> String {
        CardsSpec::from_toml(text).expect_err("must be refused").to_string()
    }

    #[test]
    fn what_is_written_beside_a_result_reads_back_as_the_same() {
        let farside = CardsSpec::preset("farside").unwrap();
        for spec in [CardsSpec::default(), farside] {
            assert_eq!(CardsSpec::from_toml(&spec.to_toml()).unwrap(), spec);
        }
        assert_eq!(CardsSpec::from_toml("").unwrap(), CardsSpec::preset("as-published").unwrap());
    }

    #[test]
    fn errors_name_the_key() {
        assert!(refused("[machine]\ncrads = 4").contains("crads"));
        assert!(refused("[machine]\ncards = 17").contains("machine.cards is 17"));
        assert!(refused("[machine]\ncards = 1").contains("machine.cards is 1"));
        assert!(refused("[mmu]\nl2_ways = 7").contains("mmu.l2_ways is 7"));
        assert!(refused("[mmu]\nreads_in_flight = 64").contains("mmu.fault_entries is 48"));
        assert!(refused("[mmu]\nflexible_pages_min = 65536").contains("flexible_pages_max"));
        assert!(refused("[host]\nentry_pages = 2").contains("host.entry_pages is 2"));
        assert!(refused("[machine]\ntransport = \"pigeon\"").contains("pigeon"));
        assert!(refused("[machine").contains("cannot be read"));
        let error = CardsSpec::open(Path::new("no/such/cards.toml")).unwrap_err().to_string();
        assert!(error.contains("no/such/cards.toml"), "{error}");
        let error = CardsSpec::preset("tapasco").unwrap_err().to_string();
        assert!(error.contains("as-published"), "{error}");
    }

    #[test]
    fn values_are_replaced_by_key() {
        let base = CardsSpec::default();
        let given = [
            ("machine.cards", "4"),
            (" machine.transport ", " bounce "),
            ("ethernet.topology", "switch"),
            ("driver.always_drain", "false"),
        ];
        let spec = base.with_overrides(&given).unwrap();
        assert_eq!((spec.machine.cards, spec.machine.transport), (4, Transport::Bounce));
        assert_eq!((spec.ethernet.topology, spec.driver.always_drain), (Topology::Switch, false));
        for (key, value) in [("machine.crads", "4"), ("machine", "4"), ("machine.cards", "four")] {
            let error = base.with_overrides(&[(key, value)]).unwrap_err().to_string();
            assert!(error.contains(key), "{error}");
        }
        assert!(CardsSpec::keys().contains(&"host.wake_ns".to_owned()));
    }
}
