//! What the machine does when: a queue in the order of (time, sequence).

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use farside_types::Time;

/// Something to be done at a time.
#[derive(Debug)]
struct Entry<W> {
    at: Time,
    sequence: u64,
    work: W,
}

impl<W> PartialEq for Entry<W> {
    fn eq(&self, other: &Entry<W>) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<W> Eq for Entry<W> {}

impl<W> PartialOrd for Entry<W> {
    fn partial_cmp(&self, other: &Entry<W>) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<W> Ord for Entry<W> {
    fn cmp(&self, other: &Entry<W>) -> Ordering {
        (self.at, self.sequence).cmp(&(other.at, other.sequence))
    }
}

/// The queue.
#[derive(Debug)]
pub(crate) struct Agenda<W> {
    heap: BinaryHeap<Reverse<Entry<W>>>,
    sequence: u64,
}

impl<W> Agenda<W> {
    pub(crate) fn new() -> Agenda<W> {
        Agenda { heap: BinaryHeap::new(), sequence: 0 }
    }

    /// Enters `work` at `at`, behind what is entered there already.
    pub(crate) fn at(&mut self, at: Time, work: W) {
        self.sequence += 1;
        self.heap.push(Reverse(Entry { at, sequence: self.sequence, work }));
    }

    /// When the next work is due.
    pub(crate) fn next(&self) -> Option<Time> {
        self.heap.peek().map(|entry| entry.0.at)
    }

    /// Takes the next work.
    pub(crate) fn pop(&mut self) -> Option<(Time, W)> {
        self.heap.pop().map(|entry| (entry.0.at, entry.0.work))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_comes_by_time_and_then_as_entered() {
        let mut agenda = Agenda::new();
        agenda.at(Time(2), 'c');
        agenda.at(Time(1), 'a');
        agenda.at(Time(2), 'd');
        agenda.at(Time(1), 'b');
        let order: String = std::iter::from_fn(|| agenda.pop().map(|(_, w)| w)).collect();
        assert_eq!(order, "abcd");
    }
}
