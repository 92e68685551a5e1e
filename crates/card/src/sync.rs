//! Atomics of the parts that run without a lock: the standard library's, or `loom`'s where it checks
//! them (`RUSTFLAGS="--cfg loom"`).

use std::sync::atomic::Ordering;

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

/// The fences that order words and drains. Only the tests under `loom` name them from outside.
#[cfg_attr(not(loom), allow(unreachable_pub))]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fence {
    /// Of a user, behind its mark.
    Mark,
    /// Of a drain, before it reads the lines.
    Drain,
}

#[cfg(loom)]
thread_local! {
    /// What a control leaves out. `loom` runs all threads of a model on one.
    static LEFT_OUT: std::cell::Cell<Option<Fence>> = const { std::cell::Cell::new(None) };
}

/// Runs `model` without one of the fences.
#[cfg(loom)]
pub fn without<T>(fence: Fence, model: impl FnOnce() -> T) -> T {
    LEFT_OUT.set(Some(fence));
    let value = model();
    LEFT_OUT.set(None);
    value
}

/// A full fence.
#[inline(always)]
pub(crate) fn full_fence(which: Fence) {
    #[cfg(loom)]
    if LEFT_OUT.get() == Some(which) {
        return;
    }
    let _ = which;
    fence(Ordering::SeqCst);
}
