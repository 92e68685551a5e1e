//! What every registry promises, held against each, and against some that break a promise.

pub(crate) mod conformance;
mod embedded;
mod mutants;
