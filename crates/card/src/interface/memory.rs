//! What the memories of a card's own window are.

use std::fmt::{self, Display, Formatter};
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Of what kind a memory is. Nothing depends on it but who chooses one.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum MemoryKind {
    /// Nothing is said of it.
    #[default]
    #[serde(rename = "memory")]
    Plain,
    /// A channel of DDR memory.
    Ddr,
    /// High-bandwidth memory.
    Hbm,
    /// Block RAM on the chip.
    #[serde(rename = "bram")]
    BlockRam,
    /// Memory of the host that is set apart for the card.
    Host,
}

/// A text that names no kind of memory.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("`{0}` is no kind of memory; there are {names}", names = MemoryKind::ALL.map(MemoryKind::name).join(", "))]
pub struct UnknownMemoryKind(pub String);

impl MemoryKind {
    /// All of them, in the order of their codes.
    pub const ALL: [MemoryKind; 5] = [
        MemoryKind::Plain,
        MemoryKind::Ddr,
        MemoryKind::Hbm,
        MemoryKind::BlockRam,
        MemoryKind::Host,
    ];

    /// What a register says.
    pub fn code(self) -> u32 {
        self as u32
    }

    /// The kind of a code; one that is not known says nothing.
    pub fn from_code(code: u32) -> MemoryKind {
        MemoryKind::ALL.get(code as usize).copied().unwrap_or_default()
    }

    /// Its name, without the number that memories of one kind have.
    pub fn name(self) -> &'static str {
        match self {
            MemoryKind::Plain => "memory",
            MemoryKind::Ddr => "ddr",
            MemoryKind::Hbm => "hbm",
            MemoryKind::BlockRam => "bram",
            MemoryKind::Host => "host",
        }
    }
}

impl Display for MemoryKind {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for MemoryKind {
    type Err = UnknownMemoryKind;

    fn from_str(text: &str) -> Result<MemoryKind, UnknownMemoryKind> {
        let found = MemoryKind::ALL.into_iter().find(|kind| kind.name() == text);
        found.ok_or_else(|| UnknownMemoryKind(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_told_by_codes_and_by_names() {
        for (code, kind) in (0..).zip(MemoryKind::ALL) {
            assert_eq!((kind.code(), MemoryKind::from_code(code)), (code, kind));
            assert_eq!(kind.to_string().parse(), Ok(kind));
        }
        assert_eq!(MemoryKind::from_code(5), MemoryKind::Plain);
        let refused = "DDR".parse::<MemoryKind>().unwrap_err().to_string();
        assert_eq!(refused, "`DDR` is no kind of memory; there are memory, ddr, hbm, bram, host");
    }
}
