//! Translation tables in the card's own memory: one radix tree per address space.
//!
//! The driver's commands write them through the one [`TableWriter`], under the card's lock; walks
//! read them through [`Tables`], with or without that lock. What each word means and in which order
//! a walker reads is section 8 of `docs/card-interface.md`, which hardware follows too.
//!
//! # Why walks need no lock
//!
//! - **One word decides.** A page is mapped while its entry is valid. Every change of an entry is
//!   one atomic operation on its word, so its bits belong together. A walk that finds an entry takes
//!   it by setting its bits with a compare-exchange on the very word that it has seen
//!   (or sees them set): it never uses an entry that was cleared before that operation, and never
//!   sets a bit that the clearing would miss. All operations on one word have one order, so each
//!   clearing returns every bit that any walk has set, and they are final. An access begins after
//!   its walk; that whoever unmaps waits for accesses which began is the drain's part, not the
//!   tables'.
//! - **A table is whole before it is linked.** Its words are stored first, then the directory entry
//!   or the root with release; walks load each word with acquire. A tree grows in the same way: a
//!   new top leads to the old one before the root names it. A walk with the old root finds all that
//!   the old tree held and takes what is beyond it for missing, which is never wrong.
//! - **A table that goes is empty.** Only tables without valid entries are unlinked. A walk that
//!   still comes to one, through a directory entry of before or a walk cache, finds nothing valid
//!   there. It says "missing" only when it walked from the root. It may then be late, and its fault
//!   is looked at again under the lock.
//! - **A table page is not reused while a walk may know it.** Unlinked ones lie in limbo until a table
//!   page is needed. Then every user forgets what it remembers of the tables, and the words that were
//!   under way have ended ([`crate::Words::renew`]), before one of them is used again. Where walks are
//!   made under the writer's own lock and nothing is cached, there is nothing to wait for
//!   ([`TableWriter::new`]).
//!
//! # A full table is no error
//!
//! Pages that find no room are told to the caller, who keeps them in the TLBs alone. A page without
//! an entry counts as accessed and as written.

mod arena;
mod bits;
mod bus;
mod changes;
mod entry;
mod writer;

pub use arena::{Near, Slot, Tables, Walk, Walked};
pub use bits::PageBits;
pub use bus::{BusPages, STRETCH_PAGES};
pub use entry::{Place, Root, TableEntry};
pub use writer::TableWriter;

/// Words of a table page.
pub const SLOTS: usize = 512;
/// Bits of the page number that one level takes.
pub const LEVEL_BITS: u32 = 9;
/// Most levels of a tree.
pub const HEIGHT_MAX: u32 = 6;
/// Pages of a run that takes one entry above the leaf level.
pub(crate) const RUN_PAGES: u64 = SLOTS as u64;

#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
#[cfg(test)]
mod mutation_tests;
#[cfg(test)]
mod tests;
