//! What the `farside` command is made of, for programs and tests that use more than its command
//! line: graphs, sweeps of simulations, reproductions of published experiments.
//!
//! Programs that want shared memory over cards need the crate `farside` only.

mod csv_text;
pub mod graph;
pub mod own_scheme;
pub mod reproduce;
pub mod sweep;
