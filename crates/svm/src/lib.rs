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

mod capability;
mod chain;
mod check;
mod command;
mod config;
mod debug;
mod driver;
mod event;
mod evict;
mod fault;
mod frames;
mod hash;
mod history;
mod launch;
mod loose;
mod lost;
mod migrate;
mod mutation;
mod page;
pub mod placement;
mod plan;
mod prefetch;
mod query;
mod reply;
mod request;
mod residency;
mod rollback;
mod serve;
mod settle;
mod space;
mod state;
mod stats;
mod stop;
mod table;
mod thrash;

pub use capability::{Capabilities, Transport};
pub use command::{
    Command, Executor, FaultIds, Header, HostOp, Mover, Phase, Place, RingOp, Run, Runs, Step,
    TransferOp, Wait,
};
pub use config::{Config, Limits, PrefetchConfig, ThrashConfig};
pub use driver::{ConfigError, Driver};
pub use event::{Advice, CardFault, Event, Need, Request, StepError, StepErrorKind};
pub use mutation::Mutation;
pub use page::PageState;
pub use placement::PlacementScheme;
pub use query::{Fight, Located, Moved, Nearest, ObjectId, ObjectView, PageView};
pub use reply::{Outcome, Reply, RequestError};
pub use state::DriverState;
pub use stats::{Directions, Stats};
