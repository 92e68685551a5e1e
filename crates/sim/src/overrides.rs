//! A specification with some of its values replaced, as `--set gpu.count=2` on a command line does.

use serde::Deserialize;
use toml::{Table, Value};

use crate::{Spec, SpecError};

impl Spec {
    /// This specification with values replaced: `("gpu.count", "2")`, in the given order. Values
    /// are written as in TOML. What values can be is checked once, after all of them are in place,
    /// so that two that belong together may be changed one after the other.
    ///
    /// # Errors
    /// [`SpecError`] names the key that does not exist, or its value that cannot work.
    pub fn with_overrides(&self, overrides: &[(&str, &str)]) -> Result<Spec, SpecError> {
        let mut spec = self.clone();
        for (key, value) in overrides {
            spec = spec.replaced(key.trim(), value.trim())?;
        }
        spec.check()?;
        Ok(spec)
    }

    /// Every key that [`Spec::with_overrides`] knows, as `section.name`, sorted.
    pub fn keys() -> Vec<String> {
        let mut keys = Vec::new();
        for (section, values) in &complete().as_table() {
            let names = values.as_table().into_iter().flat_map(Table::keys);
            keys.extend(names.map(|name| format!("{section}.{name}")));
        }
        keys.sort_unstable();
        keys
    }

    fn replaced(&self, key: &str, value: &str) -> Result<Spec, SpecError> {
        if !Spec::keys().iter().any(|known| known == key) {
            return Err(SpecError::NoSuchKey { key: key.to_owned() });
        }
        let refused = |why: &str| SpecError::Override {
            key: key.to_owned(),
            value: value.to_owned(),
            why: why.trim_end().to_owned(),
        };
        let mut table = self.as_table();
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

    fn as_table(&self) -> Table {
        // Plain tables of integers and booleans: converting them has no way to fail.
        Table::try_from(self).unwrap_or_default()
    }
}

fn is_word(value: &str) -> bool {
    !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-')
}

/// A specification with every key present, also those that are absent by default.
fn complete() -> Spec {
    let mut spec = Spec::default();
    spec.gpu.capacity_percent = Some(100);
    spec
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(key: &str, value: &str) -> String {
        Spec::default().with_overrides(&[(key, value)]).expect_err("must be refused").to_string()
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
    fn every_key_can_be_given_the_value_it_has() {
        let spec = complete();
        for key in Spec::keys() {
            let (section, name) = key.split_once('.').unwrap();
            let value = spec.as_table()[section][name].to_string();
            assert_eq!(spec.with_overrides(&[(&key, &value)]).unwrap(), spec, "{key}");
        }
        assert!(Spec::keys().len() > 30);
    }
}
