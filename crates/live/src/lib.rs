//! The host's end of the live machine: carries the driver's commands out with userfaultfd and memory
//! files, and drives cards.
//!
//! [`Runtime`] is the driver behind a lock; [`arena`] the memory that a program shares with its cards;
//! the driver of cards behind rings speaks the card interface to a process or a device. [`features`] and
//! [`doctor`] say what this machine can do. Software cards are `farside-softcard`'s.

#![cfg(target_os = "linux")]

mod adopted;
pub mod arena;
pub mod doctor;
mod error;
mod execute;
pub mod far;
pub mod features;
#[cfg(feature = "harness")]
pub mod harness;
pub mod lease;
mod memories;
pub mod ring_card;
mod runtime;
mod shares;
mod threads;
mod times;
mod trace;
mod traffic;
mod watchdog;
mod window;

pub use adopted::{AdoptError, FileError};
pub use error::LiveError;
pub use farside_card::Geometry;
pub use farside_linux::ending::Ending;
pub use farside_linux::signals::block_for_whole_thread;
pub use ring_card::{CardPlace, CardStream, Dial, Dialled, PlaceError, TransportError};
pub use runtime::{
    CardShare, FILE_MEMORY_MIN, Filed, GivenBack, Lent, MakePiece, Move, MoveError, Parallel,
    ParallelLaunch, PieceError, PieceWork, Predecessor, Probe, Runtime, RuntimeConfig,
};
#[cfg(feature = "mutations")]
pub use runtime::{Strike, Struck};
pub use threads::Machine;
pub use times::TimeSpent;
pub use traffic::{Flow, Traffic};
pub use window::OwnPart;
