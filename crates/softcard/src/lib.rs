//! Software cards: the model of `farside-card` with threads for processing elements, kernels in Rust
//! and in C, and the server that offers a card to other programs.
//!
//! [`SoftCard`] is the card; what it is plugged into is its [`Embedder`]: the runtime of a program,
//! or [`serve`], a process of its own. A kernel sees memory through its [`KernelContext`].
//!
//! It knows neither the driver nor the runtime: whoever has a software card carries commands out on
//! its model.

#![cfg(target_os = "linux")]

mod card;
mod error;
mod hot;
mod job;
mod kernel;
pub mod kernels;
mod own_memory;
mod record;
pub mod serve;
mod span;
mod view;
mod window;
mod window_plan;

pub use card::{Embedder, SoftCard};
pub use error::KernelError;
pub use farside_card::interface::{MemoryKind, UnknownMemoryKind};
pub use job::{Granted, Job, KernelBody, Lent, Returned, Stop};
pub use kernel::{
    CardBuffer, ColumnBuilder, ColumnParts, Growable, KernelContext, Made, MadeColumn, TextBuilder,
};
pub use kernels::{Kernel, KernelArgs, KernelId, Kernels, KernelsError};
pub use own_memory::{AllocOptions, OwnMemory, OwnMemoryId};
pub use record::{Recorder, Running, Taken};
pub use span::{AtomicSpan, Ptr, ReadSpan, Word, WriteSpan};
pub use view::{RangeRequest, ReadView, Request, Runs, Want, WriteView};
pub use window::{Backing, WindowError};
pub use window_plan::{
    WINDOW_FRAMES_MAX, WINDOW_MEMORIES_MAX, WindowMemory, WindowPlan, WindowPlanError,
    window_frames,
};
