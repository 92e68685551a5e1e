//! What every registry promises, held against each, and against some that break a promise.

pub(crate) mod conformance;
mod embedded;
pub(crate) mod etcd;
mod mutants;

use std::future::Future;

/// Runs a test whose time passes as fast as it can.
pub(crate) fn in_simulated_time(test: impl Future<Output = ()>) {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_time().start_paused(true).build();
    runtime.expect("a runtime").block_on(test);
}
