//! The allocator beside a map of allocations.

mod allocator_trace;
mod budget;
mod bus;
mod corrupted;
mod faults;
mod frames_trace;
mod mutations;
mod random;
mod refusals;
mod scenarios;
mod seeds;
mod world;
