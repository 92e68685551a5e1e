//! Waiting for another thread: spin while there is a processor to spare, then sleep.
//!
//! A sleeping thread costs tens of microseconds to wake; a spinning one is there at once. But when
//! more threads spin than there are processors, the one that is waited for does not run, and each
//! wait costs a time slice (milliseconds). So the process counts its spinners and always leaves
//! one processor to those who work.

use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::thread::futex;

use crate::affinity::cpu_count;

/// How long a wait spins before it sleeps, unless told otherwise: about what a wake-up costs.
pub const DEFAULT_SPIN: Duration = Duration::from_micros(50);

/// Conditions checked between two looks at the clock.
const CHECKS_PER_CLOCK: u32 = 32;

static SPINNERS: AtomicUsize = AtomicUsize::new(0);

/// A processor to spin on, until dropped.
#[derive(Debug)]
pub struct SpinPermit(());

impl SpinPermit {
    /// A permit, unless the spinners of this process would then leave no processor free. Never
    /// on a machine with one processor.
    pub fn take() -> Option<SpinPermit> {
        SpinPermit::take_of(cpu_count())
    }

    fn take_of(cpus: usize) -> Option<SpinPermit> {
        SPINNERS
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |now| {
                (now + 1 < cpus).then_some(now + 1)
            })
            .ok()
            .map(|_| SpinPermit(()))
    }
}

impl Drop for SpinPermit {
    fn drop(&mut self) {
        SPINNERS.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Where threads wait until a condition holds that another thread makes true.
///
/// The condition is the caller's own (an atomic, a queue that is not empty). Whoever makes it true
/// calls [`Gate::notify`] **afterwards**. No wake-up is lost: a waiter takes the gate's count
/// before it checks the condition, and sleeps only if the count is still the same.
#[derive(Debug, Default)]
pub struct Gate {
    /// Counts notifications; the word that waiters sleep on.
    count: AtomicU32,
    /// Threads that sleep or are about to.
    sleepers: AtomicU32,
}

impl Gate {
    /// A gate that nobody waits at.
    pub const fn new() -> Gate {
        Gate { count: AtomicU32::new(0), sleepers: AtomicU32::new(0) }
    }

    /// Lets all waiters check their condition again. Costs no system call if nobody sleeps.
    pub fn notify(&self) {
        // SeqCst on both: either this sees the sleeper, or the sleeper's futex call sees the new
        // count and returns at once.
        self.count.fetch_add(1, Ordering::SeqCst);
        if self.sleepers.load(Ordering::SeqCst) > 0 {
            let outcome = futex::wake(&self.count, futex::Flags::PRIVATE, i32::MAX as u32);
            debug_assert!(outcome.is_ok(), "a wake of a valid word cannot fail");
        }
    }

    /// Waits until `ready` gives a value, or `deadline` passes (`None`: for ever). Spins for
    /// [`DEFAULT_SPIN`] first if a processor is free.
    pub fn wait<T>(
        &self,
        deadline: Option<Instant>,
        ready: impl FnMut() -> Option<T>,
    ) -> Option<T> {
        self.wait_spinning(DEFAULT_SPIN, deadline, ready)
    }

    /// Waits until `ready` gives a value, however long that takes.
    pub fn wait_for<T>(&self, mut ready: impl FnMut() -> Option<T>) -> T {
        loop {
            // Without a deadline it gives up for nothing.
            if let Some(value) = self.wait(None, &mut ready) {
                return value;
            }
        }
    }

    /// Like [`Gate::wait`], spinning for `spin` at most.
    pub fn wait_spinning<T>(
        &self,
        spin: Duration,
        deadline: Option<Instant>,
        mut ready: impl FnMut() -> Option<T>,
    ) -> Option<T> {
        if let Some(value) = ready().or_else(|| spin_until(spin, deadline, &mut ready)) {
            return Some(value);
        }
        loop {
            let seen = self.count.load(Ordering::SeqCst);
            if let Some(value) = ready() {
                return Some(value);
            }
            let left = match deadline {
                None => None,
                Some(deadline) => Some(deadline.checked_duration_since(Instant::now())?),
            };
            self.sleep(seen, left);
        }
    }

    /// Sleeps until the count is no longer `seen`, a signal comes, or the time is up.
    fn sleep(&self, seen: u32, left: Option<Duration>) {
        // A span beyond the kernel's clock is as good as none.
        let timeout = left.and_then(|left| futex::Timespec::try_from(left).ok());
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        // Every outcome (woken, changed, interrupted, timed out) means: check again.
        let _ = futex::wait(&self.count, futex::Flags::PRIVATE, seen, timeout.as_ref());
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Calls `ready` until it gives a value, for `limit` or to `deadline` at most, if a processor is
/// free for that.
pub fn spin_until<T>(
    limit: Duration,
    deadline: Option<Instant>,
    mut ready: impl FnMut() -> Option<T>,
) -> Option<T> {
    if limit.is_zero() {
        return None;
    }
    let _permit = SpinPermit::take()?;
    let end = Instant::now().checked_add(limit);
    let end = match (end, deadline) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    };
    loop {
        for _ in 0..CHECKS_PER_CLOCK {
            if let Some(value) = ready() {
                return Some(value);
            }
            core::hint::spin_loop();
        }
        if end.is_some_and(|end| Instant::now() >= end) {
            return None;
        }
    }
}

#[cfg(test)]
mod tests {
    use core::sync::atomic::AtomicBool;
    use std::sync::Arc;

    use super::*;

    const LONG: Duration = Duration::from_secs(20);

    fn soon() -> Option<Instant> {
        Some(Instant::now() + LONG)
    }

    #[test]
    fn spinners_leave_one_processor_free() {
        // The count is the process's own, so other tests may hold permits: only bounds are exact.
        assert!(SpinPermit::take_of(1).is_none());
        let permits: Vec<_> = (0..200).map_while(|_| SpinPermit::take_of(64)).collect();
        assert!(permits.len() <= 63, "{}", permits.len());
        assert!(SpinPermit::take_of(2).is_none());
    }

    #[test]
    fn a_condition_that_holds_is_not_waited_for() {
        assert_eq!(Gate::new().wait(None, || Some(3)), Some(3));
    }

    #[test]
    fn a_deadline_ends_the_wait() {
        let start = Instant::now();
        let gate = Gate::new();
        let outcome = gate.wait(Some(start + Duration::from_millis(20)), || None::<()>);
        assert_eq!(outcome, None);
        assert!(start.elapsed() >= Duration::from_millis(20));
        assert_eq!(gate.wait(Some(start), || None::<()>), None, "a deadline in the past");
    }

    #[test]
    fn a_sleeper_is_woken() {
        let shared = Arc::new((Gate::new(), AtomicBool::new(false)));
        let waiter = {
            let shared = Arc::clone(&shared);
            std::thread::spawn(move || {
                shared.0.wait_spinning(Duration::ZERO, soon(), || {
                    shared.1.load(Ordering::Acquire).then_some(())
                })
            })
        };
        while shared.0.sleepers.load(Ordering::SeqCst) == 0 {
            std::thread::yield_now();
        }
        shared.1.store(true, Ordering::Release);
        shared.0.notify();
        assert_eq!(waiter.join().unwrap(), Some(()));
    }

    /// Two threads hand a number back and forth, each hand-over by one notification. One lost
    /// wake-up and the wait runs into its deadline.
    fn ping_pong(spin: Duration, rounds: u32) {
        let shared = Arc::new((Gate::new(), AtomicU32::new(0)));
        let turn = move |gate: &Gate, number: &AtomicU32, parity: u32| {
            for _ in 0..rounds {
                let now = gate.wait_spinning(spin, soon(), || {
                    let now = number.load(Ordering::Acquire);
                    (now % 2 == parity).then_some(now)
                });
                number.store(now.expect("a wake-up was lost") + 1, Ordering::Release);
                gate.notify();
            }
        };
        let other = {
            let shared = Arc::clone(&shared);
            std::thread::spawn(move || turn(&shared.0, &shared.1, 1))
        };
        turn(&shared.0, &shared.1, 0);
        other.join().unwrap();
        assert_eq!(shared.1.load(Ordering::Acquire), 2 * rounds);
    }

    #[test]
    fn no_wake_up_is_lost_when_sleeping() {
        ping_pong(Duration::ZERO, 5_000);
    }

    #[test]
    fn no_wake_up_is_lost_when_spinning() {
        ping_pong(DEFAULT_SPIN, 5_000);
    }
}
