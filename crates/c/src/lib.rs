//! `libfarside`: spaces, shared memory and kernels for C, and for every language that calls C. `include/farside.h` is
//! written from this crate (`tests/header.rs`), and says what each call does.
//!
//! | what | where |
//! |---|---|
//! | opening, closing, what there is | `space.rs`, `options.rs` |
//! | memory | `memory.rs` |
//! | where pages are and shall be | `placement.rs` |
//! | kernels | `launch.rs` |
//! | statuses, and what was wrong | `status.rs` |
//! | handles, texts and records that cross the border | `handles.rs`, `text.rs`, `record.rs` |
//!
//! Nothing of the caller's is believed: a handle is a number that is looked up and no address, memory is looked up among the
//! space's allocations, a panic ends as a status.

mod handles;
mod launch;
mod memory;
mod options;
mod placement;
mod record;
mod space;
mod status;
mod text;

pub use handles::{farside_job, farside_space};
pub use launch::{
    Body, CArgument, FarsideLaunch, farside_call, farside_job_cancel, farside_job_free,
    farside_job_wait, farside_launch_kernel, farside_stream,
};
pub use memory::{
    farside_adopt, farside_copy_out, farside_malloc, farside_malloc_on, farside_map_file,
    farside_memory_number, farside_own_memory_free, farside_release, farside_sync_file,
    farside_take_over,
};
pub use options::{FarsideOptions, FarsideWindow};
pub use placement::{
    FarsidePlacement, farside_advise, farside_migrate, farside_pin, farside_prefetch,
    farside_set_read_only, farside_unpin, farside_where, farside_why,
};
pub use space::{
    farside_abi, farside_cards, farside_close, farside_kernel_count, farside_kernel_name,
    farside_open, farside_report, farside_version,
};
pub use status::{Status, farside_last_error, farside_status_text};
