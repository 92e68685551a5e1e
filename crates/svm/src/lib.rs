//! The driver of Farside: who owns a page, what to do about a fault, how to move it.
//!
//! A [`Driver`] is one virtual address space over host memory and the memories of the cards. It is
//! a deterministic state machine: no threads, no clock, no I/O, no unsafe code. It is told the
//! time and what happened and says what to do:
//!
//! - [`Driver::handle`] takes an [`Event`];
//! - [`Driver::poll_command`] and [`Driver::poll_reply`] are then called until they return `None`;
//! - [`Driver::poll_timeout`] says when [`Driver::handle_timeout`] wants to be called.
//!
//! Two machines carry its commands out: `farside-live` (Linux) and `farside-sim` (virtual time).
#![forbid(unsafe_code)]

mod api;
mod check;
mod debug;
mod driver;
mod faults;
mod migration;
mod mutation;
pub mod placement;
mod scratch;
mod state;
mod tables;
mod waiting;

pub use api::capability::{Capabilities, Transport};
pub use api::command::{
    Command, Executor, FaultIds, Header, HostOp, Mover, Phase, Place, RingOp, Run, Runs, Step,
    TransferOp, Wait,
};
pub use api::config::{
    Config, ConfigError, Eviction, KnownCosts, Limits, PrefetchConfig, ThrashConfig,
};
pub use api::event::{Advice, CardFault, Event, Need, Request, StepError, StepErrorKind};
pub use api::journal::{Change, ChangeKind, Hint, Journal, Note};
pub use api::order::Task;
pub use api::query::{Fight, Located, Moved, Nearest, ObjectId, ObjectView, PageView};
pub use api::reply::{Outcome, Reply, RequestError};
pub use api::stats::{Directions, Stats};
pub use api::why::{Contested, Evidence, GroupFacts, Judge, ObjectFacts, Verdict, Why};
pub use driver::Driver;
pub use migration::chains::ChainKey;
pub use mutation::Mutation;
pub use placement::PlacementScheme;
pub use state::DriverState;
pub use tables::page::PageState;
pub use tables::sorted::SortedMap;
