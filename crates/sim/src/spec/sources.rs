//! Where each value of a machine comes from. A value's documentation is what says so, after the word
//! "Default"; what a preset has otherwise carries its own source ([`super::presets`]).

use super::Spec;
use super::presets::given;
use crate::SpecError;

/// Sections with the structure that documents them.
const SECTIONS: &[(&str, &str, &str)] = &[
    ("gpu", "GpuSpec", include_str!("gpu.rs")),
    ("tlb", "TlbSpec", include_str!("translation.rs")),
    ("walk", "WalkSpec", include_str!("translation.rs")),
    ("page", "PageSpec", include_str!("translation.rs")),
    ("cache", "CacheSpec", include_str!("cache.rs")),
    ("link", "LinkSpec", include_str!("link.rs")),
    ("command", "CommandSpec", include_str!("orders.rs")),
    ("copy", "CopySpec", include_str!("link.rs")),
    ("host", "HostSpec", include_str!("host.rs")),
    ("fault", "FaultSpec", include_str!("reports.rs")),
    ("flush", "FlushSpec", include_str!("orders.rs")),
    ("store", "StoreSpec", include_str!("store.rs")),
    ("counter", "CounterSpec", include_str!("reports.rs")),
    ("driver", "DriverSpec", include_str!("host.rs")),
    ("engine", "EngineSpec", include_str!("engine.rs")),
];

/// What is said of values that no preset has.
const CHANGED: &str = "given with --set";

impl Spec {
    /// The whole specification as TOML, each value with its source behind it: where `preset` has it from,
    /// "assumed" where it is, or that it was changed. It reads back as the same machine.
    ///
    /// # Errors
    /// [`SpecError::NoSuchPreset`].
    pub fn to_toml_with_sources(&self, preset: &str) -> Result<String, SpecError> {
        let base = Spec::preset(preset)?;
        let (own, base) = (self.to_toml(), base.to_toml());
        let mut text = String::new();
        for (section, line) in with_sections(&own) {
            text += line;
            if let Some((key, _)) = line.split_once(" = ") {
                let key = format!("{section}.{key}");
                let of_preset = with_sections(&base).any(|it| it == (section, line));
                let source = match of_preset {
                    true => source(preset, &key).unwrap_or_default(),
                    false => CHANGED.to_owned(),
                };
                behind(&mut text, line.len(), &source);
            }
            text.push('\n');
        }
        Ok(text)
    }
}

/// Columns of a screen, and the one in which sources begin.
const COLUMNS: usize = 80;
const BEGIN: usize = 24;

/// Writes a source behind a value that takes `used` columns, on as many lines as it needs.
fn behind(text: &mut String, used: usize, source: &str) {
    let begin = |text: &mut String, used: usize| {
        let gap = BEGIN.saturating_sub(used).max(1);
        text.push_str(&" ".repeat(gap));
        text.push('#');
        used + gap + 1
    };
    let mut column = begin(text, used);
    for (index, word) in source.split(' ').enumerate() {
        if index > 0 && column + 1 + word.len() > COLUMNS {
            text.push('\n');
            column = begin(text, 0);
        }
        text.push(' ');
        text.push_str(word);
        column += 1 + word.len();
    }
}

/// The lines of a TOML text, each with the section that it is in.
fn with_sections(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.lines().scan("", |section, line| {
        if let Some(name) = line.strip_prefix('[') {
            *section = name.trim_end_matches(']');
        }
        Some((*section, line))
    })
}

/// Where a preset has the value of a key from.
fn source(preset: &str, key: &str) -> Option<String> {
    given(preset, key).map(|it| it.source.to_owned()).or_else(|| documented(key))
}

/// What the documentation of a value says after "Default".
fn documented(key: &str) -> Option<String> {
    let (section, name) = key.split_once('.')?;
    let &(_, structure, text) = SECTIONS.iter().find(|it| it.0 == section)?;
    let fields = text.split_once(&format!("pub struct {structure} {{"))?.1.split_once("\n}")?.0;
    let before = fields.split_once(&format!("pub {name}: "))?.0;
    let lines = before.lines().rev().map(str::trim).skip_while(|line| line.is_empty());
    let doc = lines.take_while(|line| line.starts_with("///") || line.starts_with("#["));
    let mut doc: Vec<_> = doc.filter_map(|line| line.strip_prefix("///")).map(str::trim).collect();
    doc.reverse();
    let doc = doc.join(" ");
    let said = doc.split_once("Default")?.1.trim_start();
    // The value itself stands before.
    let value = said.find([' ', ':', ',', ';', '.']).unwrap_or(said.len());
    let why = said[value..].trim_matches([' ', ':', ',', ';', '.']);
    let bracketed = why.strip_prefix('(').and_then(|why| why.strip_suffix(')'));
    let why = bracketed.filter(|why| !why.contains('(')).unwrap_or(why);
    let assumed = doc.contains("assumed");
    let why = why.trim_end_matches("; assumed").trim_end_matches("assumed").trim_end();
    Some(match (assumed, why) {
        (true, "") => "assumed".to_owned(),
        (true, why) if why.starts_with("assumed") => why.to_owned(),
        (true, why) => format!("assumed: {why}"),
        (false, "") => return None,
        (false, why) => why.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_of_every_preset_has_a_source() {
        for preset in Spec::PRESETS {
            for key in Spec::keys() {
                let source = source(preset, &key);
                assert!(source.is_some_and(|it| !it.is_empty()), "{preset}: {key}");
            }
        }
    }

    #[test]
    fn values_stand_beside_their_sources_and_read_back() {
        for preset in Spec::PRESETS {
            let spec = Spec::preset(preset).unwrap();
            let text = spec.to_toml_with_sources(preset).unwrap();
            assert_eq!(Spec::from_toml(&text).unwrap(), spec);
            assert!(!text.contains(CHANGED), "{text}");
            let wide = text.lines().find(|line| line.len() > COLUMNS);
            assert_eq!(wide, None, "{preset}");
        }
        let table_1 = Spec::default().to_toml_with_sources("grit-table-1").unwrap();
        let line = |text: &str, start: &str| {
            let found = text.lines().find(|line| line.starts_with(start));
            found.unwrap_or_default().to_owned()
        };
        assert!(line(&table_1, "l2_entries = 512").ends_with("# Table I"), "{table_1}");
        assert!(line(&table_1, "nvlink_ns").contains("# assumed"), "{table_1}");
        assert!(line(&table_1, "launch_ns").contains("# assumed: a few"), "{table_1}");
        let paper = Spec::preset("grit-paper").unwrap();
        let paper = paper.to_toml_with_sources("grit-paper").unwrap();
        assert!(line(&paper, "migrations = 1").contains("driver/driver.go:538"), "{paper}");
        let changed = Spec::default().with_overrides(&[("link.nvlink_ns", "999")]).unwrap();
        let changed = changed.to_toml_with_sources("grit-table-1").unwrap();
        assert!(line(&changed, "nvlink_ns = 999").ends_with(CHANGED), "{changed}");
        assert!(Spec::default().to_toml_with_sources("grit").is_err());
    }
}
