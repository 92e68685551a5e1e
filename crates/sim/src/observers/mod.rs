//! Ready-made observers: what happened to a page and why, a trace to look at, counts over time.
//!
//! - [`PageHistory`]: faults, decisions and moves of chosen pages;
//! - [`Perfetto`]: a trace for <https://ui.perfetto.dev> in which each wavefront says what it waits
//!   for;
//! - [`Series`]: statistics per interval of time.
//!
//! [`Shared`] keeps a hold on an observer while the machine has it. This module owns formats and
//! bounds; what there is to observe is said in [`crate::observe`].

mod history;
mod perfetto;
mod series;
mod shared;

use farside_svm::placement::Action;

pub use history::{ENTRIES_MAX, Entry, Happened, PageHistory, Pages, Story};
pub use perfetto::{Perfetto, Units, Window, Written};
pub use series::{INTERVALS_MAX, Interval, Series};
pub use shared::Shared;

/// The word for an action, lower case.
fn action_name(action: Action) -> &'static str {
    match action {
        Action::Migrate => "migrate",
        Action::Duplicate => "duplicate",
        Action::MapRemote => "map-remote",
        Action::MapOnHost => "map-on-host",
        Action::MapAt(_) => "map-at-reader",
    }
}

/// A memory as the simulator calls it: `host`, `gpu 2`; nothing at all is `zeros`.
fn memory_name(memory: Option<farside_types::MemoryId>) -> String {
    match memory.map(farside_types::MemoryId::card) {
        None => "zeros".to_owned(),
        Some(None) => "host".to_owned(),
        Some(Some(gpu)) => format!("gpu {}", gpu.0),
    }
}
