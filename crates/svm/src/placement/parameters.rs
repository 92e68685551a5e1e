//! Parameters of a scheme: `key=value,key=value`, taken one by one.

use std::fmt;
use std::ops::RangeInclusive;

use super::SchemeError;

/// A parameter of a scheme, as a list shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Parameter {
    /// Its key, as in `key=value`.
    pub key: &'static str,
    /// What it can be.
    pub kind: ParameterKind,
    /// What it does, in a line.
    pub about: &'static str,
}

/// What a parameter can be.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ParameterKind {
    /// `on` or `off`.
    #[non_exhaustive]
    Switch {
        /// Whether it is on where nothing else is said.
        default: bool,
    },
    /// A whole number.
    #[non_exhaustive]
    Number {
        /// What it is where nothing else is said.
        default: u32,
        /// The least and the most that it can be.
        within: RangeInclusive<u32>,
    },
}

impl ParameterKind {
    /// The default, as the command line spells it.
    pub fn default_value(&self) -> String {
        match self {
            ParameterKind::Switch { default } => on_or_off(*default).to_owned(),
            ParameterKind::Number { default, .. } => default.to_string(),
        }
    }
}

impl fmt::Display for ParameterKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ParameterKind::Switch { .. } => f.write_str("on or off"),
            ParameterKind::Number { within, .. } => {
                write!(f, "a whole number from {} to {}", within.start(), within.end())
            }
        }
    }
}

fn on_or_off(on: bool) -> &'static str {
    if on { "on" } else { "off" }
}

/// What follows a scheme's name. The scheme takes the keys that it knows; what is left over is an
/// error that names it.
#[derive(Debug)]
pub struct Parameters<'a> {
    scheme: &'a str,
    pairs: Vec<(&'a str, &'a str)>,
    known: Vec<Parameter>,
}

impl<'a> Parameters<'a> {
    /// Reads `NAME` or `NAME:key=value,key=value`.
    pub(super) fn of(text: &'a str) -> Result<Parameters<'a>, SchemeError> {
        let (scheme, list) = text.split_once(':').unwrap_or((text, ""));
        Parameters::new(scheme, list)
    }

    /// Reads `key=value,key=value` for the scheme of this name.
    ///
    /// # Errors
    /// [`SchemeError::Value`]: a key that is given twice.
    pub fn new(scheme: &'a str, list: &'a str) -> Result<Parameters<'a>, SchemeError> {
        let mut parameters = Parameters::none(scheme);
        for pair in list.split(',').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            if parameters.pairs.iter().any(|&(other, _)| other == key) {
                return Err(parameters.refuse(key, value, "it is given once".to_owned()));
            }
            parameters.pairs.push((key, value));
        }
        Ok(parameters)
    }

    /// Of a scheme of which nothing more is said.
    pub(super) fn none(scheme: &'a str) -> Parameters<'a> {
        Parameters { scheme, pairs: Vec::new(), known: Vec::new() }
    }

    /// The scheme's name.
    pub(super) fn scheme(&self) -> &'a str {
        self.scheme
    }

    /// Takes a number out; `default` if it is not given. `about` says in a line what it does.
    ///
    /// # Errors
    /// [`SchemeError::Value`]: no whole number, or one that is not `within`.
    pub fn number(
        &mut self,
        key: &'static str,
        default: u32,
        within: RangeInclusive<u32>,
        about: &'static str,
    ) -> Result<u32, SchemeError> {
        let kind = ParameterKind::Number { default, within: within.clone() };
        let why = format!("it is {kind}");
        let Some(value) = self.take(Parameter { key, kind, about }) else { return Ok(default) };
        let number = value.parse().ok().filter(|number| within.contains(number));
        number.ok_or_else(|| self.refuse(key, value, why))
    }

    /// Takes a switch out: `on` or `off`. `about` says in a line what it does.
    ///
    /// # Errors
    /// [`SchemeError::Value`]: neither `on` nor `off`.
    pub fn switch(
        &mut self,
        key: &'static str,
        default: bool,
        about: &'static str,
    ) -> Result<bool, SchemeError> {
        let kind = ParameterKind::Switch { default };
        let why = format!("it is {kind}");
        match self.take(Parameter { key, kind, about }) {
            None => Ok(default),
            Some("on") => Ok(true),
            Some("off") => Ok(false),
            Some(value) => Err(self.refuse(key, value, why)),
        }
    }

    /// Those that have been asked for so far, in that order.
    pub(super) fn into_known(self) -> Vec<Parameter> {
        self.known
    }

    /// All keys have been asked for: what is left is unknown.
    ///
    /// # Errors
    /// [`SchemeError::Key`] names the first of these.
    pub fn finish(self) -> Result<(), SchemeError> {
        let Some(&(key, _)) = self.pairs.first() else { return Ok(()) };
        let keys: Vec<_> = self.known.iter().map(|parameter| parameter.key).collect();
        let known = if keys.is_empty() { "none".to_owned() } else { keys.join(", ") };
        Err(SchemeError::Key { scheme: self.scheme.to_owned(), key: key.to_owned(), known })
    }

    fn take(&mut self, parameter: Parameter) -> Option<&'a str> {
        let key = parameter.key;
        self.known.push(parameter);
        let at = self.pairs.iter().position(|&(given, _)| given == key)?;
        Some(self.pairs.remove(at).1)
    }

    fn refuse(&self, key: &str, value: &str, why: String) -> SchemeError {
        let (scheme, key, value) = (self.scheme.to_owned(), key.to_owned(), value.to_owned());
        SchemeError::Value { scheme, key, value, why }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_taken_and_what_is_left_over_is_named() {
        let mut parameters = Parameters::of("grit:threshold=8,cache=off,colour=red").unwrap();
        assert_eq!(parameters.scheme(), "grit");
        assert_eq!(parameters.number("threshold", 4, 1..=16, ""), Ok(8));
        assert_eq!(parameters.switch("cache", true, ""), Ok(false));
        assert_eq!(parameters.switch("neighbours", true, ""), Ok(true), "the default");
        let error = parameters.finish().unwrap_err().to_string();
        assert!(error.contains("\"colour\"") && error.contains("threshold, cache, neighbours"));
    }

    #[test]
    fn values_out_of_range_say_what_can_be() {
        let number = |text| Parameters::of(text).unwrap().number("threshold", 4, 1..=16, "");
        for text in ["grit:threshold=17", "grit:threshold=-1", "grit:threshold", "grit:threshold="]
        {
            let error = number(text).unwrap_err().to_string();
            assert!(error.contains("from 1 to 16"), "{text}: {error}");
        }
        let switch = Parameters::of("grit:cache=yes").unwrap().switch("cache", true, "");
        assert!(switch.unwrap_err().to_string().contains("cache=yes"));
        assert!(Parameters::of("grit:cache=on,cache=off").is_err(), "twice");
    }
}
