//! Which processors a thread may use: counting them, and pinning for measurements.

use std::marker::PhantomData;
use std::sync::OnceLock;

use rustix::io::Errno;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The thread could not be pinned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot pin this thread to CPU {cpu}: {errno}; choose one of the CPUs of this process")]
pub struct PinError {
    /// The processor asked for.
    pub cpu: usize,
    /// The kernel's answer.
    pub errno: Errno,
}

/// Processors that this process may use, counted at the first call; at least one.
pub fn cpu_count() -> usize {
    static COUNT: OnceLock<usize> = OnceLock::new();
    *COUNT.get_or_init(|| allowed_cpus().len().max(1))
}

/// The processors that the calling thread may use, ascending. Empty if the kernel does not say.
pub fn allowed_cpus() -> Vec<usize> {
    let Ok(set) = sched_getaffinity(None) else {
        return Vec::new();
    };
    (0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect()
}

/// Keeps the calling thread on one processor until dropped.
#[derive(Debug)]
pub struct Pinned {
    before: CpuSet,
    /// The thread that was pinned must be the one that drops it.
    _thread: PhantomData<*const ()>,
}

/// Pins the calling thread to `cpu`.
///
/// # Errors
/// [`PinError`] if the processor does not exist or is not allowed.
pub fn pin(cpu: usize) -> Result<Pinned, PinError> {
    let fail = |errno| PinError { cpu, errno };
    if cpu >= CpuSet::MAX_CPU {
        return Err(fail(Errno::INVAL));
    }
    let before = sched_getaffinity(None).map_err(fail)?;
    let mut only = CpuSet::new();
    only.set(cpu);
    sched_setaffinity(None, &only).map_err(fail)?;
    Ok(Pinned { before, _thread: PhantomData })
}

impl Drop for Pinned {
    fn drop(&mut self) {
        if let Err(errno) = sched_setaffinity(None, &self.before) {
            tracing::warn!(%errno, "the thread stays pinned to one CPU");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pinned_thread_stays_and_is_set_free() {
        let before = allowed_cpus();
        let cpu = *before.last().unwrap();
        let pinned = pin(cpu).unwrap();
        assert_eq!(allowed_cpus(), [cpu]);
        assert_eq!(rustix::thread::sched_getcpu(), cpu);
        drop(pinned);
        assert_eq!(allowed_cpus(), before);
    }

    #[test]
    fn a_cpu_that_is_not_there_is_an_error() {
        assert!(pin(usize::MAX).is_err());
        assert!(pin(CpuSet::MAX_CPU - 1).is_err());
    }
}
