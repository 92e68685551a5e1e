//! What an agent may do with a page, and what it wants to do.

use serde::{Deserialize, Serialize};

/// What a mapping allows.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum Rights {
    /// Loads only.
    Read,
    /// Loads, stores and atomics.
    ReadWrite,
}

/// One access, as a fault reports it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum Access {
    /// A load.
    Read,
    /// A store or an atomic.
    Write,
}

impl Rights {
    /// Whether a mapping with these rights serves `access`.
    pub const fn allows(self, access: Access) -> bool {
        matches!((self, access), (Rights::ReadWrite, _) | (_, Access::Read))
    }
}

impl Access {
    /// The least rights that serve this access.
    pub const fn rights(self) -> Rights {
        match self {
            Access::Read => Rights::Read,
            Access::Write => Rights::ReadWrite,
        }
    }

    /// Whether it is a write.
    pub const fn is_write(self) -> bool {
        matches!(self, Access::Write)
    }
}
