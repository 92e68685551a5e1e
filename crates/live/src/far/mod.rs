//! A card whose program is elsewhere: what its two ends tell each other over a link, and the end beside
//! the card.
//!
//! Between the two is a link (`farside-link`, `docs/link-protocol.md`), whose frames come in order and once,
//! over as many connections as it takes: `line` is a connection, [`carry`](Carried) drives one, `redial` makes
//! the next.
//!
//! The program's end (`ring_card::by_link`) and the end beside the card ([`FarEnd`]) each have the rings
//! in memory of their own. What one side puts into a ring travels as frames (`entries`) and is put into
//! the other's: `mirror` does that beside the program, `shadow` beside the card. Both are pure: ring
//! memory and frames in, ring memory and frames out. Pages travel beside the entries, in order: what
//! was put into the card's memory before an entry is there when the card sees the entry.
//!
//! Flags by which a ring's two sides tell whether they sleep hold within one end, never between two: a
//! store, a fence and a look at the other's word need memory that both share. So every entry travels at
//! once, and each end wakes its own side.

mod behind;
mod carry;
mod end;
mod entries;
mod greeting;
mod lasting;
mod line;
mod mirror;
mod peers;
mod redial;
mod refers;
mod rings;
mod sessions;
mod shadow;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod world_tests;

pub use carry::{Carried, Lines, NewLines, Over, Rest, Side, lines, now};
pub use end::{FarEnd, FarEndError, FarEndReport};
pub use greeting::{Farewell, greeted, turn_away};
pub use lasting::Lasting;
pub use line::{Broken, Line};
pub use peers::{Come, PeerAdmission, PeerPlace, PeerWay, PeerWays};
pub use redial::{DialLine, NoLine, Redial, dial};
pub use sessions::{Came, Sessions};
pub use shadow::Refusal;

pub(crate) use mirror::{Mirror, Nonsense};
pub(crate) use rings::RingRegisters;

/// What both ends say that they can: a card that is driven by shadowed rings, in this version.
pub(crate) const CARD_BY_RINGS: u64 = 1 << 0;
/// What an end beside a card says that it can: get pages from other lenders' ends, and lend them some.
pub(crate) const DIRECT_LINKS: u64 = 1 << 1;
/// What an end beside a card says that it can: read the card's memory as soon as a launch has completed.
pub(crate) const READS_BEHIND: u64 = 1 << 2;
