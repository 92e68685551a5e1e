//! Simulated time: the event queue, and resources that are reserved for a while.
//!
//! Owns no meaning: what happens at a point in time is the machine's business.

mod lane;
mod queue;
mod resource;

pub use lane::Lane;
pub use queue::Queue;
pub use resource::{Port, bytes_time};
