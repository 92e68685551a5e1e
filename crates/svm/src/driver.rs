//! The driver: the one entry for events and the one exit for commands.

use farside_types::{PageNo, PageRange, Time, VirtAddr};
use thiserror::Error;

use crate::placement::Placement;
use crate::{Command, Config, Event, Fight, Located, Moved, Nearest, ObjectView, PageView, Reply, Stats};
#[cfg(feature="mutations")]
use crate::Mutation;

/// One virtual address space over host memory and the memories of the cards.
pub struct Driver {}

impl Driver {
    /// STUB
    pub fn new(_config: Config, _placement: Box<dyn Placement>) -> Result<Driver, crate::ConfigError> { unimplemented!() }
    /// STUB
    pub fn handle(&mut self, _now: Time, _event: Event<'_>) { unimplemented!() }
    /// STUB
    pub fn poll_command(&mut self) -> Option<Command> { unimplemented!() }
    /// STUB
    pub fn poll_reply(&mut self) -> Option<Reply> { unimplemented!() }
    /// STUB
    pub fn poll_timeout(&self) -> Option<Time> { unimplemented!() }
    /// STUB
    pub fn handle_timeout(&mut self, _now: Time) { unimplemented!() }
    /// STUB
    #[cfg(feature = "mutations")]
    pub fn mutate(&mut self, _mutation: Mutation) { unimplemented!() }
    /// STUB: what the driver knows of a page
    pub fn page(&self, _page: PageNo) -> PageView { unimplemented!() }
    /// STUB: where the parts of a range are, merged
    pub fn locate(&self, _range: PageRange) -> Vec<Located> { unimplemented!() }
    /// STUB: checks every invariant of its tables; the text names what is broken.
    pub fn check(&self) -> Result<(), String> { unimplemented!() }
    /// STUB: no chain, no fault, no request open
    pub fn is_quiet(&self) -> bool { unimplemented!() }
    /// STUB newest last, only records that touch `range`
    pub fn history(&self, _range: PageRange) -> Vec<Moved> { unimplemented!() }
    /// STUB every allocation, ascending
    pub fn objects(&self) -> Vec<ObjectView> { unimplemented!() }
    /// STUB
    pub fn nearest(&self, _addr: VirtAddr) -> Option<Nearest> { unimplemented!() }
    /// STUB pages agents fought over, worst first
    pub fn fights(&self) -> Vec<Fight> { unimplemented!() }
    /// STUB bytes of its tables
    pub fn table_bytes(&self) -> usize { unimplemented!() }
    /// STUB
    pub fn stats(&self) -> &Stats { unimplemented!() }
}

/// Why a configuration is refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ConfigError {
    /// The arena is empty, too large or not aligned.
    #[error("the arena {arena} must have 1 to 2^32 pages and start at a multiple of 512 pages")]
    Arena {
        /// The arena given.
        arena: PageRange,
    },
    /// Too many cards.
    #[error("{cards} cards were given; a space has at most {max}", max = farside_types::MAX_CARDS)]
    TooManyCards {
        /// Cards given.
        cards: usize,
    },
    /// A value that cannot work.
    #[error("{name} is {value}, which cannot work: {why}")]
    Value {
        /// Its name.
        name: &'static str,
        /// Its value.
        value: u64,
        /// Why not.
        why: &'static str,
    },
}
