//! The writes of the ledger: records are gathered, written together, one write at a time.
//!
//! After a write that failed, the next one replaces the file, so that what the failed one left is
//! never in the middle of it.

use super::devices::State;
use super::{Action, FenceReason, Lender, WriteId, WriteKind};
use crate::ids::DeviceName;
use crate::ledger::{self, Record};
use crate::mutation::Mutation;
use crate::text::Text;
use crate::time::BootTime;

/// Records after which the file is replaced by a shorter one.
const APPENDED_MAX: usize = 4096;

/// What is to be written.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Journal {
    /// Not handed out yet.
    gathered: Vec<GatheredRecord>,
    /// The write that the gathered records will be in.
    next: WriteId,
    /// The write under way, and until when it may take.
    pub(super) under_way: Option<(WriteId, BootTime)>,
    /// The file has to be replaced before anything is appended.
    replace: bool,
    appended: usize,
}

/// The bytes of one record.
type GatheredRecord = Vec<u8>;

impl Default for Journal {
    /// The first write replaces the file: it says which run of the machine it is, and heals its end.
    fn default() -> Self {
        Self { gathered: Vec::new(), next: WriteId(1), under_way: None, replace: true, appended: 0 }
    }
}

impl Lender {
    /// Takes a fact in that is to be durable. Says with which write it will be.
    pub(super) fn record(&mut self, record: Record) -> WriteId {
        self.ledger.apply(&record);
        self.journal.gathered.push(ledger::encode(&[record]));
        self.journal.next
    }

    /// Hands out what was gathered, if no write is under way.
    pub(super) fn flush(&mut self) {
        if self.journal.under_way.is_some() || self.journal.gathered.is_empty() {
            return;
        }
        let write = self.journal.next;
        self.journal.next.0 += 1;
        self.journal.under_way = Some((write, self.now.after(self.limits.store_max)));
        let gathered = std::mem::take(&mut self.journal.gathered);
        self.journal.appended += gathered.len();
        let (kind, bytes) = if self.journal.replace || self.journal.appended > APPENDED_MAX {
            self.journal.appended = 0;
            (WriteKind::Replace, self.ledger.bytes())
        } else {
            (WriteKind::Append, gathered.concat())
        };
        self.emit(Action::Store { write, kind, bytes });
    }

    pub(super) fn stored(&mut self, write: WriteId) {
        if self.close(write) {
            self.journal.replace = false;
            self.told(write);
            self.fence_ended(write);
        }
    }

    /// A write failed, or took too long: what waits for it is not granted. What has ended has ended.
    pub(super) fn store_failed(&mut self, write: WriteId, why: &Text) {
        if self.close(write) {
            self.stats.stores_failed += 1;
            self.journal.replace = true;
            self.untold(write, why);
            self.fence_ended(write);
        }
    }

    /// Whether `write` is the one under way, which it then is no more.
    fn close(&mut self, write: WriteId) -> bool {
        let is_it = self.journal.under_way.is_some_and(|(under_way, _)| under_way == write);
        if is_it {
            self.journal.under_way = None;
        }
        is_it
    }

    /// Fences the devices whose leases ended with a write.
    fn fence_ended(&mut self, write: WriteId) {
        let ended = self.devices.iter().filter_map(|(name, device)| match &device.state {
            State::Ending(why, with) if *with == write => Some((name.clone(), why.clone())),
            _ => None,
        });
        let ended: Vec<(DeviceName, _)> = ended.collect();
        for (name, why) in ended {
            if self.mutated.on(Mutation::SkipFence) {
                self.set_state(&name, State::Free);
                continue;
            }
            self.fence(&name, FenceReason::Ended(why));
        }
    }
}
