//! The allocator beside a map of allocations.

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
