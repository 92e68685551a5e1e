//! Functional replay: a workload's accesses in a fixed order, one at a time, without time.
//!
//! What a placement scheme does is then fixed by its definition alone, down to the number of
//! faults, migrations and remote accesses.

mod order;

pub use order::{Access, Accesses, accesses};
