//! The host's processors: threads, a page table, poison.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use farside_types::{PageNo, Rights};

use crate::access::WordAccess;

/// What a thread does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Thread {
    /// Nothing.
    Idle,
    /// Its access is in flight.
    Flying,
    /// Its access waits in a fault, raised at this stamp.
    Blocked(WordAccess, u64),
    /// It was woken and is about to try again.
    Woken(WordAccess, u64),
}

/// The processors of the host.
#[derive(Debug)]
pub(crate) struct Cpu {
    pub(crate) threads: Vec<Thread>,
    pub(crate) mapped: BTreeMap<PageNo, Rights>,
    pub(crate) poisoned: BTreeSet<PageNo>,
    /// Pages of faults that the driver was told of and has not answered. Whoever waited may have
    /// gone on; the driver cannot know, and may hold such a fault back for a while.
    pub(crate) told: BTreeSet<PageNo>,
    /// Accesses that wait for a thread.
    pub(crate) queue: VecDeque<WordAccess>,
    pub(crate) tick_scheduled: bool,
    /// Pages that could not be poisoned, and how often in a row.
    pub(crate) poison_failures: BTreeMap<PageNo, u32>,
    /// Accesses that ended with an error (SIGBUS), with their page.
    pub(crate) errors: Vec<PageNo>,
}

impl Cpu {
    pub(crate) fn new(threads: usize) -> Cpu {
        Cpu {
            threads: vec![Thread::Idle; threads],
            mapped: BTreeMap::new(),
            poisoned: BTreeSet::new(),
            told: BTreeSet::new(),
            queue: VecDeque::new(),
            tick_scheduled: false,
            poison_failures: BTreeMap::new(),
            errors: Vec::new(),
        }
    }
}
