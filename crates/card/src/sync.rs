//! Atomics of the parts that run without a lock: the standard library's, or `loom`'s where it checks
//! them (`RUSTFLAGS="--cfg loom"`).

/// Sleeps for a moment.
pub(crate) fn rest() {
    #[cfg(not(loom))]
    std::thread::sleep(std::time::Duration::from_micros(50));
    #[cfg(loom)]
    yield_now();
}

#[cfg(loom)]
pub(crate) use loom::{
    sync::{
        Mutex,
        atomic::{AtomicU64, fence},
    },
    thread::yield_now,
};
#[cfg(not(loom))]
pub(crate) use std::{
    sync::{
        Mutex,
        atomic::{AtomicU64, fence},
    },
    thread::yield_now,
};
