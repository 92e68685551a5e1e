//! Why a page moved.

use core::fmt;

use serde::{Deserialize, Serialize};

/// Why a page moved, was copied or lost a mapping. Every move carries one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    /// An agent faulted on it (ODPM).
    Demand,
    /// The program asked for it (UMPM).
    User,
    /// It lies near a fault, or the program announced its use.
    Prefetch,
    /// Its memory was full.
    Eviction,
    /// Remote accesses reached the access counter's threshold.
    Counter,
    /// A write to a duplicated page took the other copies away.
    Collapse,
    /// Agents fought over it.
    Thrash,
    /// It went back where it had been: the program freed, unpinned or trimmed it.
    Return,
    /// Its card is gone.
    Lost,
}

impl Reason {
    /// Every reason, in the order of their declaration.
    pub const ALL: [Reason; 9] = [
        Reason::Demand,
        Reason::User,
        Reason::Prefetch,
        Reason::Eviction,
        Reason::Counter,
        Reason::Collapse,
        Reason::Thrash,
        Reason::Return,
        Reason::Lost,
    ];

    /// The word for it, lower case.
    pub const fn name(self) -> &'static str {
        match self {
            Reason::Demand => "demand",
            Reason::User => "user",
            Reason::Prefetch => "prefetch",
            Reason::Eviction => "eviction",
            Reason::Counter => "counter",
            Reason::Collapse => "collapse",
            Reason::Thrash => "thrash",
            Reason::Return => "return",
            Reason::Lost => "lost",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
