//! What makes a program slow, as its account shows it, and what to do about it.
//!
//! Each rule is a file: from the account alone to a reason and one remedy. `tests/tests/slow.rs` applies
//! each remedy and counts what it saves. Rules count pages and faults, never time, so that a busy
//! machine is not taken for a slow program.

mod account;
mod afar;
mod evictions;
mod fights;
mod piecemeal;

use std::fmt;

use farside_svm::ObjectView;
use farside_types::{CardId, MemoryId, PageRange};
use serde::{Deserialize, Serialize};

pub(crate) use account::Account;

/// Something that is slow: why, and what to do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Slow {
    /// What was counted.
    pub reason: String,
    /// What makes it fewer.
    pub remedy: Remedy,
}

/// What the program can do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Remedy {
    /// Pin an allocation where all who use it reach it.
    Pin {
        /// Its name.
        object: String,
        /// Where.
        at: MemoryId,
        /// It is pinned elsewhere, and that pin has to go first.
        unpin: bool,
    },
    /// Give each card more memory.
    CardMemory {
        /// Bytes of each.
        bytes: u64,
    },
    /// Bring pages to a card before the launch that takes them.
    Prefetch {
        /// The allocation's name.
        object: String,
        /// Pages of it, from its first on.
        pages: PageRange,
        /// Whether these are all of it.
        whole: bool,
        /// The card.
        to: CardId,
    },
}

/// All that is slow: at most one finding of each rule, its worst.
pub(crate) fn findings(account: &Account) -> Vec<Slow> {
    let rules = [fights::find, evictions::find, piecemeal::find, afar::find];
    rules.iter().filter_map(|rule| rule(account)).collect()
}

fn name_of(object: &ObjectView) -> String {
    if object.name.is_empty() { "(unnamed)".to_owned() } else { object.name.to_string() }
}

impl fmt::Display for Remedy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Remedy::Pin { object, at, unpin: false } => {
                write!(f, "pin it where all reach it: space.pin(&{object}, {})", Place(*at))
            }
            Remedy::Pin { object, at, unpin: true } => {
                let at = Place(*at);
                write!(f, "pin it there: space.unpin(&{object}), space.pin(&{object}, {at})")
            }
            Remedy::CardMemory { bytes } => {
                let mib = bytes >> 20;
                write!(f, "give each card {mib} MiB, which holds all: .card_memory({mib} << 20)")
            }
            Remedy::Prefetch { object, whole: true, to, .. } => {
                let at = Place(to.memory());
                write!(f, "bring it before the launch: space.prefetch(&{object}, {at})")
            }
            Remedy::Prefetch { object, pages, whole: false, to } => {
                let (first, last) = (pages.start.0, pages.end().0.saturating_sub(1));
                write!(f, "before the launch `prefetch` pages {first}-{last} of {object} to {to}")
            }
        }
    }
}

impl fmt::Display for Slow {
    /// Two lines.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "slow: {}\n  do: {}", self.reason, self.remedy)
    }
}

/// A memory as a program writes it.
struct Place(MemoryId);

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.card() {
            None => f.write_str("MemoryId::HOST"),
            Some(card) => write!(f, "space.card({})?", card.0),
        }
    }
}
