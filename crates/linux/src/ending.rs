//! Something that ends once: threads wait for it, and one task is woken.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Waker;
use std::time::Instant;

use crate::lock::lock;
use crate::signals::BlockedSignals;
use crate::wait::Gate;

/// The end of something, which comes once.
#[derive(Debug, Default)]
pub struct Ending {
    come: AtomicBool,
    gate: Gate,
    waker: Mutex<Option<Waker>>,
}

impl Ending {
    /// Whether it has come.
    pub fn has_come(&self) -> bool {
        self.come.load(Ordering::SeqCst)
    }

    /// It has come, and [`Ending::come`] follows: whoever looks sees it from here on, whoever sleeps is woken by that.
    pub fn mark(&self) {
        self.come.store(true, Ordering::SeqCst);
    }

    /// It comes: whoever waits goes on, and the task that was noted is woken, once. A waker that is noted here is
    /// woken by whoever calls this, with whatever locks that holds.
    pub fn come(&self) {
        self.mark();
        self.gate.notify();
        let waker = lock(&self.waker).take();
        waker.into_iter().for_each(Waker::wake);
    }

    /// Waits for it, until `deadline` at most (`None`: for ever). `false`: it has not come.
    pub fn wait(&self, deadline: Option<Instant>) -> bool {
        self.gate.wait(deadline, || self.has_come().then_some(())).is_some()
    }

    /// Notes the task that is to be woken, in place of the one noted before. `true`: it has come, and nobody is
    /// woken any more for this.
    pub fn note(&self, waker: Waker) -> bool {
        let (come, other) = {
            let _signals = BlockedSignals::block();
            let mut slot = lock(&self.waker);
            // Looked at under the lock: an end that comes later finds the waker.
            if self.has_come() { (true, Some(waker)) } else { (false, slot.replace(waker)) }
        };
        // What a waker does when it goes is the program's.
        drop(other);
        come
    }

    /// Nobody is to be woken.
    pub fn forget(&self) {
        let waker = {
            let _signals = BlockedSignals::block();
            lock(&self.waker).take()
        };
        drop(waker);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;
    use std::task::Wake;

    use super::*;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn counted() -> (Arc<Count>, Waker) {
        let count = Arc::new(Count::default());
        (Arc::clone(&count), count.into())
    }

    #[test]
    fn only_the_last_task_is_woken_and_only_once() {
        let (ending, (first, one), (last, two)) = (Ending::default(), counted(), counted());
        assert!(!ending.note(one) && !ending.note(two));
        ending.come();
        ending.come();
        assert_eq!((first.0.load(Ordering::SeqCst), last.0.load(Ordering::SeqCst)), (0, 1));
        assert!(ending.wait(None) && ending.has_come());
    }

    #[test]
    fn a_task_that_comes_late_or_was_forgotten_is_not_woken() {
        let (ending, (late, one), (forgotten, two)) = (Ending::default(), counted(), counted());
        assert!(!ending.note(two));
        ending.forget();
        ending.come();
        assert!(ending.note(one));
        assert_eq!((late.0.load(Ordering::SeqCst), forgotten.0.load(Ordering::SeqCst)), (0, 0));
        assert_eq!((Arc::strong_count(&late), Arc::strong_count(&forgotten)), (1, 1));
    }

    /// An end that races with a task that is noted: it sees the end, or it is woken.
    #[test]
    fn no_task_is_left_asleep() {
        for _ in 0..2_000 {
            let (ending, (count, waker)) = (Ending::default(), counted());
            let saw = std::thread::scope(|s| {
                s.spawn(|| ending.come());
                ending.note(waker)
            });
            assert_eq!(count.0.load(Ordering::SeqCst), usize::from(!saw));
        }
    }
}
