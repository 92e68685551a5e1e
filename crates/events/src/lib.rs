//! The event log of a run: every fault, move, invalidation, allocation, kernel and hint, as the driver notes them
//! ([`farside_svm::Journal`]), in a Parquet file. Live and simulated runs write the same.
//!
//! - [`Event`] is one row, [`Kind`] says what happened; `docs/report.md` has the columns.
//! - [`EventLog`] writes: a bounded buffer that whoever holds the driver's lock puts events into, and a thread that
//!   takes them out. What finds no room is counted, and the log says where that was.
//! - [`Reader`] reads, also a log whose run was killed: up to the last footer.
//!
//! It decides nothing and sums nothing up: `farside-report` does.
#![forbid(unsafe_code)]

mod about;
mod buffer;
mod chunk;
mod error;
mod event;
mod log;
mod names;
mod note;
mod read;
mod recover;
mod schema;
mod write;

pub use about::{About, Memory};
pub use error::{ReadError, WriteError};
pub use event::{Event, Kind};
pub use log::{EventLog, Full, Written};
pub use names::{Name, Names};
pub use read::{Batch, Cut, Reader};
pub use write::LogWriter;

/// The version of the columns and of the words in them.
pub const VERSION: &str = "1";
