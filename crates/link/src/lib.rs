//! The link between a borrower and the lender's end of a lease.
//!
//! Owns what goes over the connection of a lease and how it is protected. Who may have a lease is the
//! business of `farside-lease`; whose certificates there are, of `farside-lend`.
//!
//! [`endpoint`] is one end of the protocol of `docs/link-protocol.md`: order, credit, resumption. [`frame`]
//! and [`control`] are what it says; what there is no credit for waits in an [`Outgoing`]. All of it is pure:
//! whoever has a connection puts it there (`farside-live`, `far`).

pub mod control;
pub mod description;
pub mod endpoint;
pub mod error;
pub mod frame;
mod mutation;
mod outgoing;
pub mod wire;

pub use endpoint::{Config, Endpoint, Event, Lease, NotSent};
pub use frame::{Class, Frame, Kind, Tag};
pub use outgoing::Outgoing;
