//! Commands that have begun: each gets exactly one completion.

use std::collections::{BTreeMap, VecDeque};

use farside_types::CommandId;

use crate::interface::{CompletionEntry, Status};

#[derive(Clone, Copy, Debug)]
struct Open {
    tag: u64,
    barrier: bool,
    /// Its completion raises no interrupt, if it ends well.
    quiet: bool,
    /// What it will complete with when it is drained.
    promised: Option<CompletionEntry>,
}

/// A completion that was not written yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Over {
    pub(super) completion: CompletionEntry,
    /// It raises no interrupt by itself.
    pub(super) quiet: bool,
}

/// The commands under way, by a number of our own that grows in ring order, and the completions
/// that were not written yet.
#[derive(Clone, Default, Debug)]
pub(super) struct Ledger {
    next: u64,
    open: BTreeMap<CommandId, Open>,
    backlog: VecDeque<Over>,
}

impl Ledger {
    /// A command begins.
    pub(super) fn begin(&mut self, tag: u64, quiet: bool) -> CommandId {
        let id = CommandId(self.next);
        self.next += 1;
        self.open.insert(id, Open { tag, barrier: false, quiet, promised: None });
        id
    }

    /// The command completes when all before it have.
    pub(super) fn wait_for_earlier(&mut self, id: CommandId) {
        if let Some(open) = self.open.get_mut(&id) {
            open.barrier = true;
        }
        self.complete_barriers();
    }

    /// The command will complete with this when it is drained.
    pub(super) fn promise(&mut self, id: CommandId, completion: CompletionEntry) {
        if let Some(open) = self.open.get_mut(&id) {
            open.promised = Some(completion);
        }
    }

    /// A command is drained.
    pub(super) fn drained(&mut self, id: CommandId) {
        let promised = self.open.get(&id).and_then(|open| open.promised);
        self.finish(id, promised.unwrap_or(CompletionEntry::plain(0, Status::Ok)));
    }

    /// A command is over; its tag is put into the completion. One that is not under way, because a
    /// reset gave it up, changes nothing.
    pub(super) fn finish(&mut self, id: CommandId, completion: CompletionEntry) {
        if let Some(Open { tag, quiet, .. }) = self.open.remove(&id) {
            let quiet = quiet && completion.status == Status::Ok;
            let completion = CompletionEntry { tag, ..completion };
            self.backlog.push_back(Over { completion, quiet });
            self.complete_barriers();
        }
    }

    fn complete_barriers(&mut self) {
        while let Some(first) = self.open.first_entry().filter(|first| first.get().barrier) {
            let Open { tag, quiet, .. } = first.remove();
            let completion = CompletionEntry::plain(tag, Status::Ok);
            self.backlog.push_back(Over { completion, quiet });
        }
    }

    /// The tag of a command under way.
    pub(super) fn tag(&self, id: CommandId) -> Option<u64> {
        Some(self.open.get(&id)?.tag)
    }

    /// Commands under way.
    pub(super) fn open(&self) -> usize {
        self.open.len()
    }

    /// Completions that wait for room in their ring.
    pub(super) fn backlog(&self) -> usize {
        self.backlog.len()
    }

    /// Takes the oldest completion out.
    pub(super) fn pop_completion(&mut self) -> Option<Over> {
        self.backlog.pop_front()
    }

    /// Forgets everything; numbers go on.
    pub(super) fn clear(&mut self) {
        self.open.clear();
        self.backlog.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tags(ledger: &mut Ledger) -> Vec<u64> {
        std::iter::from_fn(|| ledger.pop_completion()).map(|over| over.completion.tag).collect()
    }

    #[test]
    fn a_barrier_completes_behind_everything_before_it_and_waits_for_nothing_behind_it() {
        let mut ledger = Ledger::default();
        let [first, second, barrier, behind, last] =
            [1, 2, 3, 4, 5].map(|tag| ledger.begin(tag, false));
        let ok = CompletionEntry::plain(0, Status::Ok);
        ledger.wait_for_earlier(barrier);
        ledger.finish(behind, ok);
        ledger.finish(second, ok);
        assert_eq!(tags(&mut ledger), [4, 2]);
        ledger.wait_for_earlier(last);
        ledger.finish(first, ok);
        assert_eq!(tags(&mut ledger), [1, 3, 5]);
        assert_eq!(ledger.open(), 0);
    }

    #[test]
    fn a_command_completes_once() {
        let mut ledger = Ledger::default();
        let id = ledger.begin(9, false);
        ledger.finish(id, CompletionEntry::plain(0, Status::Ok));
        ledger.finish(id, CompletionEntry::plain(0, Status::Aborted));
        assert_eq!(tags(&mut ledger), [9]);
    }
}
