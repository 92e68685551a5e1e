//! A card whose program is elsewhere: what its two ends tell each other over a link, and the end beside
//! the card.
//!
//! The program's end (`ring_card::by_link`) and the end beside the card ([`FarEnd`]) each have the rings
//! in memory of their own. What one side puts into a ring travels as entries of `wire` and is put into
//! the other's: `mirror` does that beside the program, `shadow` beside the card. Both are pure: ring
//! memory and messages in, ring memory and messages out. Pages travel beside the entries, in order: what
//! was put into the card's memory before an entry is there when the card sees the entry.
//!
//! Flags by which a ring's two sides tell whether they sleep hold within one end, never between two: a
//! store, a fence and a look at the other's word need memory that both share. So every entry travels at
//! once, and each end wakes its own side.

mod boxes;
mod end;
mod mirror;
mod refers;
mod rings;
mod shadow;
#[cfg(test)]
mod tests;
mod wire;
#[cfg(test)]
mod world_tests;

pub use end::{FarEnd, FarEndError, FarEndReport};
pub use shadow::Refusal;

pub(crate) use boxes::{Bulk, Inbox, Outbox};
pub(crate) use end::{BULK_WAITING_MAX, GETS_MAX};
pub(crate) use mirror::{Mirror, Nonsense};
pub(crate) use rings::RingRegisters;
pub(crate) use wire::{BULK_BYTES, Call, Message, VERSION, WireError};
