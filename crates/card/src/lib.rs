//! The card: a pure model of an accelerator in the shared address space.
//!
//! A [`Card`] holds everything a card decides by itself: its MMU ([`Mmu`]: TLBs, rights,
//! address-space ids), which accesses are in flight and which drains wait for them ([`InFlight`]),
//! the faults it has raised ([`FaultQueue`]), its access counters ([`Counters`]) and the states of
//! its processing elements ([`Pes`]). A [`Function`] is its front of registers and rings, which takes
//! page DMA commands and gives them to the embedder as [`Action`]s.
//!
//! It owns no memory, no thread and no clock, and does no I/O. Whoever embeds it keeps it behind a
//! lock: the driver's side gives commands (`map`, `unmap`, `protect`, `resume`, `cancel`, `launch`),
//! processing elements ask for memory (`access`, `acquire`, `raise`, `end`). Bytes are moved by the
//! embedder; the card only says where they are, and when nobody uses them any more.
#![forbid(unsafe_code)]

mod card;
mod counters;
mod error;
mod fault;
mod fills;
mod flexible;
mod function;
mod geometry;
mod grant;
mod in_flight;
pub mod interface;
mod key;
mod l1;
mod l2;
pub mod link;
mod mmu;
mod mutation;
mod need;
mod pe;
mod recency;
mod stats;
mod sync;
pub mod tables;
mod translation;
pub mod window;
mod words;

pub use card::{Aborted, Answer, Card, Outcome};
pub use counters::{CounterNotice, Counters};
pub use error::{AcquireError, MapError, RaiseError, TransferFailed};
pub use fault::{Fault, FaultQueue, Raised, Waiter};
pub use function::{
    Action, Bus, BusError, Function, FunctionConfig, JobEnd, MemorySizes, WindowAction,
    WindowConfig, WindowWait,
};
pub use geometry::{CounterGroup, Geometry, GeometryError};
pub use grant::Grant;
pub use in_flight::{AccessId, DrainKind, Drained, InFlight};
pub use key::PAGES_MAX;
pub use mmu::{Level, Lookup, Mmu, RunHit};
#[cfg(any(test, feature = "mutations"))]
pub use mutation::CardMutation;
pub use need::{Need, NeedError};
pub use pe::{PeError, PeState, Pes};
pub use stats::CardStats;
#[cfg(loom)]
pub use sync::{Fence, without};
pub use translation::{Location, MappedRun, Translation};
pub use words::{InWord, WordUser, Words};
