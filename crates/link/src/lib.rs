//! The link between a borrower and the lender's end of a lease.
//!
//! Owns what goes over the connection of a lease and how it is protected. Who may have a lease is the
//! business of `farside-lease`; whose certificates there are, of `farside-lend`.
//!
//! [`endpoint`] is one end of the protocol of `docs/link-protocol.md`, pure: order, credit, resumption.
//! [`frame`] and [`control`] are what it says, [`mod@line`] puts it on a socket. [`tls`] protects a
//! connection, and [`pump`] carries any other protocol over it.

pub mod control;
pub mod description;
pub mod endpoint;
pub mod error;
pub mod frame;
pub mod line;
mod mutation;
pub mod pump;
pub mod tls;
pub mod wire;

pub use endpoint::{Config, Endpoint, Event, Lease, NotSent};
pub use frame::{Class, Frame, Kind, Tag};
