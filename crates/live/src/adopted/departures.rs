//! Pages leave the heap, but none while the program forks: a child has a copy of what is there then.
//!
//! Nobody waits in a step for the end of a fork: it stays in the queue, and whoever carries steps out does others. A fork
//! takes locks of the program's after this (`pthread_atfork`, an allocator's), and who holds one may wait for a page,
//! or for an event to be read.

use std::sync::Mutex;

use farside_linux::lock::lock;
use farside_linux::wait::Gate;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Departures {
    state: Mutex<State>,
    /// Wakes who waits for the last one that is under way, or for another fork.
    gate: Gate,
}

#[derive(Debug, Default)]
struct State {
    under_way: u32,
    /// A fork wants that none begins.
    is_stopped: bool,
}

/// Pages may leave, until dropped.
#[derive(Debug)]
pub(crate) struct Departure<'a>(Option<&'a Departures>);

impl Departures {
    /// One begins, if the program does not fork.
    pub(crate) fn begin(&self) -> Option<Departure<'_>> {
        let mut state = lock(&self.state);
        if state.is_stopped {
            return None;
        }
        state.under_way += 1;
        Some(Departure(Some(self)))
    }

    /// No page leaves from here on, until [`Departures::resume`].
    pub(super) fn stop(&self) {
        self.gate.wait_for(|| {
            let mut state = lock(&self.state);
            (!std::mem::replace(&mut state.is_stopped, true)).then_some(())
        });
        self.gate.wait_for(|| (lock(&self.state).under_way == 0).then_some(()));
    }

    pub(super) fn resume(&self) {
        lock(&self.state).is_stopped = false;
        self.gate.notify();
    }

    /// Calls `act` if no page leaves, and has none leave meanwhile; whether it was called and did something. It waits for
    /// nobody.
    pub(super) fn if_stopped(&self, act: impl FnOnce() -> bool) -> bool {
        let state = lock(&self.state);
        state.is_stopped && state.under_way == 0 && act()
    }
}

impl Departure<'_> {
    /// What takes no page from the heap.
    pub(crate) const NONE: Departure<'static> = Departure(None);
}

impl Drop for Departure<'_> {
    fn drop(&mut self) {
        let Some(departures) = self.0 else { return };
        let is_last = {
            let mut state = lock(&departures.state);
            state.under_way -= 1;
            state.under_way == 0 && state.is_stopped
        };
        if is_last {
            departures.gate.notify();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_fork_waits_for_what_is_under_way_and_nothing_begins_until_it_is_over() {
        let departures = Departures::default();
        let first = departures.begin().unwrap();
        std::thread::scope(|threads| {
            let fork = threads.spawn(|| departures.stop());
            while departures.begin().is_some() {
                std::thread::yield_now();
            }
            std::thread::sleep(Duration::from_millis(2));
            assert!(!fork.is_finished() && !departures.if_stopped(|| true));
            drop(first);
            fork.join().unwrap();
            assert!(departures.begin().is_none() && departures.if_stopped(|| true));
            let second = threads.spawn(|| departures.stop());
            std::thread::sleep(Duration::from_millis(2));
            assert!(!second.is_finished());
            departures.resume();
            second.join().unwrap();
        });
        departures.resume();
        assert!(!departures.if_stopped(|| true));
        assert!(departures.begin().is_some());
    }
}
