//! Memory for tables that counts accesses, and fails when it is told to.

use std::collections::{BTreeMap, BTreeSet};

use super::super::{TableBus, TableBusError, WindowPages};

const BEAT_SHIFT: u32 = 6;

/// What a command costs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Cost {
    /// Accesses one after the other.
    pub(super) waits: u64,
    /// Beats of 64 bytes that were read, and written.
    pub(super) beats_read: u64,
    pub(super) beats_written: u64,
    /// Words of the directory, which lies on the chip.
    pub(super) on_chip: u64,
}

/// Whether a write that is answered with an error arrives all the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Arrives {
    Never,
    Always,
    /// Some do.
    Some,
}

/// Which accesses are answered with an error.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Failing {
    #[default]
    None,
    /// The access with this number.
    One(u64, Arrives),
    /// So many from this one on.
    Some(u64, u64, Arrives),
    /// All from this one on.
    From(u64, Arrives),
    /// All to this address.
    At(u64, Arrives),
}

#[derive(Clone, Debug, Default)]
pub(super) struct TestBus {
    pub(super) words: BTreeMap<u64, u64>,
    /// Addresses that are no access.
    pub(super) directory: std::ops::Range<u64>,
    /// Where was written last.
    pub(super) last_written: u64,
    pub(super) failing: Failing,
    pub(super) accesses: u64,
    pub(super) made_valid: Vec<WindowPages>,
    cost: Cost,
    reads: BTreeSet<u64>,
    writes: BTreeSet<u64>,
    has_failed: bool,
}

impl TestBus {
    /// What was done since the last call.
    pub(super) fn take_cost(&mut self) -> Cost {
        std::mem::take(&mut self.cost)
    }

    pub(super) fn peek(&self, address: u64) -> u64 {
        self.words.get(&address).copied().unwrap_or(0xdead_beef_dead_beef)
    }

    /// Whether the next access fails, and if so whether it arrives.
    fn fails(&mut self, address: u64) -> Option<bool> {
        let number = self.accesses;
        self.accesses += 1;
        let arrives = match self.failing {
            Failing::One(at, arrives) if at == number => arrives,
            Failing::Some(at, count, arrives) if (at..at + count).contains(&number) => arrives,
            Failing::From(at, arrives) if at <= number => arrives,
            Failing::At(at, arrives) if at == address => arrives,
            _ => return None,
        };
        Some(match arrives {
            Arrives::Never => false,
            Arrives::Always => true,
            Arrives::Some => number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 63 == 0,
        })
    }
}

impl TableBus for TestBus {
    fn read(&mut self, address: u64) -> Result<u64, TableBusError> {
        assert_eq!(address % 8, 0);
        if self.directory.contains(&address) {
            self.cost.on_chip += 1;
        } else {
            self.reads.insert(address >> BEAT_SHIFT);
        }
        match self.fails(address) {
            Some(_) => Err(TableBusError),
            None => Ok(self.peek(address)),
        }
    }

    fn write(&mut self, address: u64, word: u64) {
        assert_eq!(address % 8, 0);
        if self.directory.contains(&address) {
            self.cost.on_chip += 1;
        } else {
            self.writes.insert(address >> BEAT_SHIFT);
        }
        self.last_written = address;
        let failure = self.fails(address);
        self.has_failed |= failure.is_some();
        if failure != Some(false) {
            self.words.insert(address, word);
        }
    }

    fn wait(&mut self) -> Result<(), TableBusError> {
        let (reads, writes) = (std::mem::take(&mut self.reads), std::mem::take(&mut self.writes));
        self.cost.waits += u64::from(!reads.is_empty() || !writes.is_empty());
        self.cost.beats_read += reads.len() as u64;
        self.cost.beats_written += writes.len() as u64;
        if std::mem::take(&mut self.has_failed) { Err(TableBusError) } else { Ok(()) }
    }

    fn made_valid(&mut self, pages: WindowPages) {
        self.made_valid.push(pages);
    }
}
