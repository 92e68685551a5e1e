//! The allocator of the card's window: malloc, realloc and free on the card, and frames for pages when they
//! are first touched. `docs/rtl/allocator.md` is its specification, for this model and for hardware.
//!
//! | concept | file |
//! |---|---|
//! | commands, and what an address belongs to | `allocator.rs` |
//! | which requester is next | `arbiter.rs` |
//! | places for pages: one region's bitmap, the regions, which has room | `places.rs`, `regions.rs`, `room_tree.rs` |
//! | frames of the card's memories | `frames.rs` |
//! | leaf tables, packed into frames | `tables.rs` |
//! | words for pages | `backing.rs`, `word.rs` |
//! | small allocations, large ones | `malloc.rs`, `large.rs` |
//! | other sizes | `realloc.rs`, `shrink.rs` |
//! | what was freed | `free.rs`, `sweep.rs` |
//! | first touches | `touch.rs` |
//! | words that nobody can have written | `sound.rs` |
//! | what is where, errors and counts | `config.rs`, `status.rs` |

mod allocator;
mod arbiter;
mod backing;
mod bits;
mod bus;
mod config;
mod frames;
mod free;
mod large;
mod malloc;
mod mutation;
mod places;
mod realloc;
mod regions;
mod room_tree;
mod shrink;
mod sound;
mod status;
mod sweep;
mod tables;
#[cfg(test)]
mod tests;
mod touch;
mod word;

pub use allocator::{AllocStep, Allocator};
pub use arbiter::AllocArbiter;
pub use bus::{TableBus, TableBusError, WindowPages};
pub use config::{AllocatorConfig, AllocatorConfigError};
pub use frames::FreedFrames;
pub use status::{AllocCounts, AllocError};
pub use sweep::SweepStep;
pub use touch::Touch;
