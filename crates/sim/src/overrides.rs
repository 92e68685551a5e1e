//! A specification with some of its values replaced, as `--set gpu.count=2` on a command line does:
//! the one reader of keys and values, for machines of GPUs and of cards.
//!
//! A specification is sections of keys. It knows what its values can be; this module knows how they
//! are written.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use toml::{Table, Value};

use crate::cards::{CardsError, CardsSpec};
use crate::{Spec, SpecError};

/// Why a value is not replaced.
#[derive(Debug)]
enum Refused {
    /// No key has this name.
    NoSuchKey { key: String },
    /// The value is not of the key's type.
    Value { key: String, value: String, why: String },
}

/// A specification whose values can be replaced one by one.
trait Replaceable: Clone + Serialize + DeserializeOwned {
    /// One with every key present, also those that are absent by default.
    fn complete() -> Self;

    /// Every key as `section.name`, sorted.
    fn sorted_keys() -> Vec<String> {
        let mut keys = Vec::new();
        for (section, values) in &as_table(&Self::complete()) {
            let names = values.as_table().into_iter().flat_map(Table::keys);
            keys.extend(names.map(|name| format!("{section}.{name}")));
        }
        keys.sort_unstable();
        keys
    }

    /// This one with values replaced in the given order; what they can be is not looked at.
    fn with_values(&self, overrides: &[(&str, &str)]) -> Result<Self, Refused> {
        let mut spec = self.clone();
        for (key, value) in overrides {
            spec = replaced(&spec, key.trim(), value.trim())?;
        }
        Ok(spec)
    }
}

impl Replaceable for Spec {
    fn complete() -> Spec {
        let mut spec = Spec::default();
        spec.gpu.capacity_percent = Some(100);
        spec.host.migrations = Some(1);
        spec
    }
}

impl Replaceable for CardsSpec {
    fn complete() -> CardsSpec {
        CardsSpec::default()
    }
}

impl Spec {
    /// This specification with values replaced: `("gpu.count", "2")`, in the given order. Values
    /// are written as in TOML, words without quotes. What values can be is checked once, after all
    /// of them are in place, so that two that belong together may be changed one after the other.
    ///
    /// # Errors
    /// [`SpecError`] names the key that does not exist, or its value that cannot work.
    pub fn with_overrides(&self, overrides: &[(&str, &str)]) -> Result<Spec, SpecError> {
        let spec = self.with_values(overrides)?;
        spec.check()?;
        Ok(spec)
    }

    /// Every key that [`Spec::with_overrides`] knows, as `section.name`, sorted.
    pub fn keys() -> Vec<String> {
        Spec::sorted_keys()
    }
}

impl CardsSpec {
    /// This specification with values replaced: `("machine.cards", "4")`, as
    /// [`Spec::with_overrides`] does.
    ///
    /// # Errors
    /// [`CardsError`] names the key that does not exist, or its value that cannot work.
    pub fn with_overrides(&self, overrides: &[(&str, &str)]) -> Result<CardsSpec, CardsError> {
        let spec = self.with_values(overrides)?;
        spec.check()?;
        Ok(spec)
    }

    /// Every key that [`CardsSpec::with_overrides`] knows, as `section.name`, sorted.
    pub fn keys() -> Vec<String> {
        CardsSpec::sorted_keys()
    }
}

impl From<Refused> for SpecError {
    fn from(refused: Refused) -> SpecError {
        match refused {
            Refused::NoSuchKey { key } => SpecError::NoSuchKey { key },
            Refused::Value { key, value, why } => SpecError::Override { key, value, why },
        }
    }
}

impl From<Refused> for CardsError {
    fn from(refused: Refused) -> CardsError {
        match refused {
            Refused::NoSuchKey { key } => CardsError::NoSuchKey { key },
            Refused::Value { key, value, why } => CardsError::Override { key, value, why },
        }
    }
}

fn replaced<S: Replaceable>(spec: &S, key: &str, value: &str) -> Result<S, Refused> {
    if !S::sorted_keys().iter().any(|known| known == key) {
        return Err(Refused::NoSuchKey { key: key.to_owned() });
    }
    let refused = |why: &str| Refused::Value {
        key: key.to_owned(),
        value: value.to_owned(),
        why: why.trim_end().to_owned(),
    };
    let mut table = as_table(spec);
    let (section, name) = key.split_once('.').unwrap_or((key, ""));
    if let Some(values) = table.get_mut(section).and_then(Value::as_table_mut) {
        // Words need no quotes: `flush.mode=page`.
        let parsed = match (values.get(name), is_word(value)) {
            (Some(Value::String(_)), true) => Value::String(value.to_owned()),
            _ => Value::deserialize(toml::de::ValueDeserializer::new(value))
                .map_err(|_| refused("it must be an integer, true, false or a known word"))?,
        };
        values.insert(name.to_owned(), parsed);
    }
    table.try_into().map_err(|error: toml::de::Error| refused(error.message()))
}

fn as_table<S: Serialize>(spec: &S) -> Table {
    // Plain tables of integers, words and booleans: converting them has no way to fail.
    Table::try_from(spec).unwrap_or_default()
}

fn is_word(value: &str) -> bool {
    !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cards::{Topology, Transport};

    fn refused(key: &str, value: &str) -> String {
        Spec::default().with_overrides(&[(key, value)]).expect_err("must be refused").to_string()
    }

    fn cards_refused(key: &str, value: &str) -> String {
        CardsSpec::default().with_overrides(&[(key, value)]).expect_err("refused").to_string()
    }

    #[test]
    fn a_value_is_replaced_and_the_others_stay() {
        let base = Spec::from_toml("[link]\nnvlink_ns = 777").unwrap();
        let given = [
            ("gpu.count", "2"),
            (" gpu.capacity_percent ", " 70 "),
            ("driver.keep_clean_copies", "true"),
        ];
        let mut expected = base.clone();
        expected.gpu.count = 2;
        expected.gpu.capacity_percent = Some(70);
        expected.driver.keep_clean_copies = true;
        assert_eq!(base.with_overrides(&given).unwrap(), expected);
        assert_eq!(base.with_overrides(&[]).unwrap(), base);
    }

    #[test]
    fn a_word_needs_no_quotes() {
        for word in ["page", "\"page\""] {
            let spec = Spec::default().with_overrides(&[("flush.mode", word)]).unwrap();
            assert_eq!(spec.flush.mode, crate::FlushMode::Page);
        }
        let error = refused("flush.mode", "pages");
        assert!(error.contains("flush.mode") && error.contains("pipeline"), "{error}");
    }

    #[test]
    fn the_last_of_several_counts() {
        let spec = Spec::default().with_overrides(&[("gpu.count", "2"), ("gpu.count", "3")]);
        assert_eq!(spec.unwrap().gpu.count, 3);
    }

    #[test]
    fn values_that_belong_together_change_one_after_the_other() {
        let given = [("tlb.l1_entries", "8"), ("tlb.l1_ways", "8")];
        assert_eq!(Spec::default().with_overrides(&given).unwrap().tlb.l1_ways, 8);
        assert!(refused("tlb.l1_entries", "8").contains("tlb.l1_ways is 32"));
    }

    #[test]
    fn errors_name_the_key_and_the_value() {
        for key in ["gpu.cuont", "gqu.count", "gpu", "count", "", ".", "gpu.count.x"] {
            let error = refused(key, "2");
            assert!(
                error.contains(&format!("{key:?}")) && error.contains("--print-machine"),
                "{error}"
            );
        }
        for value in ["two", "true", "-1", "1.5", "", "2\nx = 3", "99999999999999999999"] {
            let error = refused("gpu.count", value);
            assert!(
                error.contains("gpu.count") && error.contains(&format!("{value:?}")),
                "{error}"
            );
            assert!(!error.ends_with(": "), "says why: {error}");
        }
        assert!(refused("gpu.count", "17").contains("gpu.count is 17"));
    }

    #[test]
    fn a_machine_of_cards_is_changed_in_the_same_words() {
        let given = [
            ("machine.cards", "4"),
            (" machine.transport ", " bounce "),
            ("ethernet.topology", "\"switch\""),
            ("driver.always_drain", "false"),
        ];
        let spec = CardsSpec::default().with_overrides(&given).unwrap();
        assert_eq!((spec.machine.cards, spec.machine.transport), (4, Transport::Bounce));
        assert_eq!((spec.ethernet.topology, spec.driver.always_drain), (Topology::Switch, false));
        for key in ["machine.crads", "machine", "cards", "", "machine.cards.x"] {
            let error = cards_refused(key, "4");
            assert!(
                error.contains(&format!("{key:?}")) && error.contains("machine.cards"),
                "{error}"
            );
        }
        for value in ["four", "true", "-1", "1.5", "", "2\nx = 3"] {
            let error = cards_refused("machine.cards", value);
            assert!(error.contains(&format!("machine.cards cannot be {value:?}: ")), "{error}");
        }
        let error = cards_refused("machine.transport", "pigeon");
        assert!(error.contains("pigeon") && error.contains("bounce"), "{error}");
        assert!(cards_refused("machine.cards", "17").contains("machine.cards is 17"));
        let pair = [("mmu.reads_in_flight", "64"), ("mmu.fault_entries", "64")];
        assert!(CardsSpec::default().with_overrides(&pair).is_ok());
        assert!(CardsSpec::default().with_overrides(&pair[..1]).is_err());
    }

    #[test]
    fn every_key_can_be_given_the_value_it_has() {
        fn check<S: Replaceable + PartialEq + std::fmt::Debug>() {
            let spec = S::complete();
            let keys = S::sorted_keys();
            for key in &keys {
                let (section, name) = key.split_once('.').unwrap();
                let value = as_table(&spec)[section][name].to_string();
                assert_eq!(spec.with_values(&[(key, &value)]).unwrap(), spec, "{key}");
            }
            assert!(keys.len() > 30, "{keys:?}");
        }
        check::<Spec>();
        check::<CardsSpec>();
    }
}
