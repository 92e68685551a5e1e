//! The driver's state, to be stored and to go on from: all that [`crate::Driver`]
//! knows, its placement scheme included, but not what it was made with.
//!
//! A restored driver gives the same commands for the same events as the one that was saved.

use std::collections::{BTreeMap, BinaryHeap, VecDeque};

use farside_types::{MemorySet, PageNo, PageRange, RequestId, Time};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::api::launch::Launches;
use crate::api::order::Orders;
use crate::api::requests::{OpenRequest, Pin};
use crate::driver::{CardState, Timer};
use crate::faults::group::Reservation;
use crate::faults::host::Blocked;
use crate::faults::open::Faults;
use crate::migration::chains::Chains;
use crate::migration::detached::Detached;
use crate::migration::lost::Quarantined;
use crate::migration::prices::Prices;
use crate::migration::stop::LateStop;
use crate::placement::{PlacementScheme, SchemeState};
use crate::tables::history::History;
use crate::tables::page_table::PageTable;
use crate::tables::sorted::SortedMap;
use crate::tables::space::Space;
use crate::waiting::{Waiting, Work};
use crate::{Command, Config, Driver, Reply, Stats};

/// The fields of the driver that change, once: read from it, and put into a new one.
macro_rules! fields {
    ($($field:ident: $kind:ty,)*) => {
        #[derive(Serialize)]
        struct Saved<'a> {
            $($field: &'a $kind,)*
            scheme: SchemeState,
        }

        #[derive(Deserialize)]
        struct Restored {
            $($field: $kind,)*
            scheme: SchemeState,
        }

        impl Driver {
            fn saved(&self) -> Saved<'_> {
                Saved { $($field: &self.$field,)* scheme: self.placement.save_state() }
            }

            fn take(&mut self, state: Restored) -> Result<(), String> {
                self.placement.restore_state(state.scheme)?;
                $(self.$field = state.$field;)*
                Ok(())
            }
        }
    };
}

fields! {
    table: PageTable,
    space: Space,
    cards: Vec<CardState>,
    now: Time,
    dead: MemorySet,
    resetting: MemorySet,
    quarantine: Vec<Quarantined>,
    chains: Chains,
    waiting: Waiting,
    faults: Faults,
    requests: BTreeMap<RequestId, OpenRequest>,
    pins: Vec<Pin>,
    launches: Launches,
    orders: Orders,
    work: VecDeque<Work>,
    stuck: MemorySet,
    distrusted: MemorySet,
    detached: VecDeque<Detached>,
    late_stops: Vec<LateStop>,
    lingering: Vec<PageRange>,
    blocked: SortedMap<PageNo, Blocked>,
    bounce_free: Vec<u8>,
    reservations: Vec<Reservation>,
    timers: BinaryHeap<std::cmp::Reverse<Timer>>,
    timer_count: u64,
    commands: VecDeque<Command>,
    replies: VecDeque<Reply>,
    next_command: u64,
    next_request: u64,
    history: History,
    prices: Prices,
    stats: Stats,
}

/// What [`Driver::save`] wrote.
#[derive(Deserialize)]
#[serde(transparent)]
pub struct DriverState(Restored);

impl Driver {
    /// Writes the whole state. Best between calls of [`Driver::handle`], at any time.
    ///
    /// # Errors
    /// Those of the serializer.
    pub fn save<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.saved().serialize(serializer)
    }

    /// A driver that goes on where the saved one stood. `config` and the scheme are those that the
    /// saved driver was made with.
    ///
    /// # Errors
    /// Those of the deserializer; a configuration or a scheme that does not fit the state.
    pub fn restore<'de, D: Deserializer<'de>>(
        config: Config,
        placement: Box<dyn PlacementScheme>,
        deserializer: D,
    ) -> Result<Driver, D::Error> {
        let state = DriverState::deserialize(deserializer)?;
        Driver::go_on(config, placement, state).map_err(D::Error::custom)
    }

    /// The same with a state that has been read: for formats whose errors have no text.
    ///
    /// # Errors
    /// What is wrong with configuration or scheme, or why they do not fit the state.
    pub fn go_on(
        config: Config,
        placement: Box<dyn PlacementScheme>,
        state: DriverState,
    ) -> Result<Driver, String> {
        let mut driver = Driver::new(config, placement).map_err(|error| error.to_string())?;
        let (saved, given) = (state.0.cards.len(), driver.cards.len());
        if saved != given {
            return Err(format!("the state has {saved} cards, the configuration has {given}"));
        }
        driver.take(state.0)?;
        Ok(driver)
    }
}

#[cfg(test)]
mod tests;
