//! The machine's state as bytes, and back.
//!
//! A machine is made from its specification and its program; what changes while it runs is its
//! state. To restore one, a fresh machine is made and every part of it takes its state over: what
//! the specification fixes (sizes, latencies) is not stored, and a state of another size is
//! refused with the name of the field. The macro [`state`] names each field of a part once, so that a
//! field that is forgotten does not compile.

mod file;

use std::fmt;

use postcard::ser_flavors::Flavor;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::StateError;
pub(crate) use file::{Header, open, seal};

/// Why a state cannot be taken over: where, and what is wrong there.
#[derive(Debug)]
pub(crate) struct Refused {
    place: String,
    why: String,
}

impl Refused {
    pub(crate) fn new(why: impl fmt::Display) -> Refused {
        Refused { place: String::new(), why: why.to_string() }
    }

    /// The field, or the index in brackets, that this happened in.
    pub(crate) fn within(mut self, place: &str) -> Refused {
        let dot = if self.place.is_empty() || self.place.starts_with('[') { "" } else { "." };
        self.place = format!("{place}{dot}{}", self.place);
        self
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

impl From<Refused> for StateError {
    fn from(Refused { place, why }: Refused) -> StateError {
        StateError::Part { place, why }
    }
}

/// A part of the machine: its state can be stored, and be put into a fresh part.
pub(crate) trait State {
    /// Writes the state.
    fn save(&self, to: &mut Writer) -> Result<(), Refused>;

    /// Takes over a state of a part of the same size.
    fn load(&mut self, from: &mut Reader<'_>) -> Result<(), Refused>;
}

/// Collects bytes: integers are as long as their values need.
#[derive(Debug, Default)]
pub(crate) struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    /// Writes a value.
    pub(crate) fn value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Refused> {
        postcard::serialize_with_flavor(value, Sink(&mut self.bytes)).map_err(Refused::new)
    }

    /// What has been written.
    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}

/// Where values go.
struct Sink<'a>(&'a mut Vec<u8>);

impl Flavor for Sink<'_> {
    type Output = ();

    fn try_push(&mut self, byte: u8) -> postcard::Result<()> {
        self.0.push(byte);
        Ok(())
    }

    fn try_extend(&mut self, bytes: &[u8]) -> postcard::Result<()> {
        self.0.extend_from_slice(bytes);
        Ok(())
    }

    fn finalize(self) -> postcard::Result<()> {
        Ok(())
    }
}

/// Reads what a [`Writer`] wrote.
#[derive(Debug)]
pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { bytes }
    }

    /// Reads a value.
    pub(crate) fn value<T: Deserialize<'a>>(&mut self) -> Result<T, Refused> {
        let (value, rest) = postcard::take_from_bytes(self.bytes).map_err(Refused::new)?;
        self.bytes = rest;
        Ok(value)
    }

    /// Reads a list that must be as long as `into`.
    pub(crate) fn fixed<T: DeserializeOwned>(&mut self, into: &mut [T]) -> Result<(), Refused> {
        let count: usize = self.value()?;
        if count != into.len() {
            let expected = into.len();
            return Err(Refused::new(format!("{count} values, and the machine has {expected}")));
        }
        for value in into {
            *value = self.value()?;
        }
        Ok(())
    }

    /// All has been read.
    pub(crate) fn end(self) -> Result<(), Refused> {
        match self.bytes.len() {
            0 => Ok(()),
            left => Err(Refused::new(format!("{left} bytes too many"))),
        }
    }
}

/// Parts of which the machine has a fixed number.
impl<T: State> State for [T] {
    fn save(&self, to: &mut Writer) -> Result<(), Refused> {
        to.value(&self.len())?;
        self.iter().try_for_each(|part| part.save(to))
    }

    fn load(&mut self, from: &mut Reader<'_>) -> Result<(), Refused> {
        let count: usize = from.value()?;
        if count != self.len() {
            let expected = self.len();
            return Err(Refused::new(format!("{count} of them, and the machine has {expected}")));
        }
        for (index, part) in self.iter_mut().enumerate() {
            part.load(from).map_err(|refused| refused.within(&format!("[{index}]")))?;
        }
        Ok(())
    }
}

impl<T: State> State for Vec<T> {
    fn save(&self, to: &mut Writer) -> Result<(), Refused> {
        self.as_slice().save(to)
    }

    fn load(&mut self, from: &mut Reader<'_>) -> Result<(), Refused> {
        self.as_mut_slice().load(from)
    }
}

impl<T: State, const N: usize> State for [T; N] {
    fn save(&self, to: &mut Writer) -> Result<(), Refused> {
        self.as_slice().save(to)
    }

    fn load(&mut self, from: &mut Reader<'_>) -> Result<(), Refused> {
        self.as_mut_slice().load(from)
    }
}

/// A part that a machine has or has not.
impl<T: State> State for Option<T> {
    fn save(&self, to: &mut Writer) -> Result<(), Refused> {
        to.value(&self.is_some())?;
        self.iter().try_for_each(|part| part.save(to))
    }

    fn load(&mut self, from: &mut Reader<'_>) -> Result<(), Refused> {
        let present: bool = from.value()?;
        if present != self.is_some() {
            return Err(Refused::new("only one of state and machine has it"));
        }
        self.iter_mut().try_for_each(|part| part.load(from))
    }
}

/// Names the fields of a part: `values` are stored, `fixed` are lists as long as the machine's,
/// `parts` have a state of their own, `made` comes with the fresh part.
macro_rules! state {
    ($Part:ty {
        $(values: $($value:ident),+;)?
        $(fixed: $($fixed:ident),+;)?
        $(parts: $($part:ident),+;)?
        $(made: $($made:ident),+;)?
    }) => {
        impl $crate::state::State for $Part {
            fn save(
                &self,
                to: &mut $crate::state::Writer,
            ) -> Result<(), $crate::state::Refused> {
                let Self { $($($value,)+)? $($($fixed,)+)? $($($part,)+)? $($($made: _,)+)? } = self;
                $($(to.value($value).map_err(|it| it.within(stringify!($value)))?;)+)?
                $($(to.value(&$fixed[..]).map_err(|it| it.within(stringify!($fixed)))?;)+)?
                $($($part.save(to).map_err(|it| it.within(stringify!($part)))?;)+)?
                Ok(())
            }

            fn load(
                &mut self,
                from: &mut $crate::state::Reader<'_>,
            ) -> Result<(), $crate::state::Refused> {
                $($(
                    self.$value = from.value().map_err(|it| it.within(stringify!($value)))?;
                )+)?
                $($(
                    let list = &mut self.$fixed[..];
                    from.fixed(list).map_err(|it| it.within(stringify!($fixed)))?;
                )+)?
                $($(self.$part.load(from).map_err(|it| it.within(stringify!($part)))?;)+)?
                Ok(())
            }
        }
    };
}

pub(crate) use state;
