//! The Linux machine of Farside: carries out the driver's commands with userfaultfd, memory files
//! and cards that live in the program.
//!
//! The lower half, without any decision: [`uffd`] (page faults in user space), [`arena`] (the
//! memory a program shares with its cards), [`card_memory`], [`wait`], [`clock`], [`signals`],
//! [`affinity`], and [`features`] with [`doctor`], which say what this machine can do.

#![cfg(target_os = "linux")]

pub mod affinity;
pub mod arena;
pub mod card_memory;
pub mod clock;
#[cfg(feature = "conformance")]
pub mod conformance;
pub mod doctor;
mod error;
mod execute;
pub mod features;
#[cfg(feature = "harness")]
pub mod harness;
mod job;
mod kernel;
pub mod kernels;
mod lock;
mod mapping;
mod memories;
mod record;
mod ring_card;
mod runtime;
pub mod serve;
#[cfg(any(feature = "conformance", feature = "harness"))]
pub mod shared;
pub mod signals;
mod soft_card;
mod span;
mod threads;
mod times;
pub mod uffd;
pub mod vfio;
mod view;
pub mod wait;

pub use error::{KernelError, LiveError};
pub use job::{Granted, Job, KernelBody, Returned};
pub use kernel::KernelContext;
pub use kernels::{Kernel, KernelArgs, KernelId, Kernels, KernelsError};
pub use mapping::MemoryError;
pub use record::{Recorder, Running, Taken};
pub use ring_card::{CardPlace, PlaceError, TransportError};
pub use runtime::{Probe, Runtime, RuntimeConfig};
#[cfg(feature = "mutations")]
pub use runtime::{Strike, Struck};
pub use span::{AtomicSpan, Ptr, ReadSpan, Word, WriteSpan};
pub use threads::Machine;
pub use times::TimeSpent;
pub use view::{RangeRequest, ReadView, Request, Runs, Want, WriteView};
