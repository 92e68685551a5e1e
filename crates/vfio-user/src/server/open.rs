//! Commands that the embedder has taken and not answered yet.

use super::{Errno, Header};
use crate::wire::Command;

/// One of them.
#[derive(Debug)]
struct Entry {
    /// Clients may use a message id twice at a time; this number is never used again.
    serial: u64,
    id: u16,
    command: Command,
    no_reply: bool,
}

/// The table of them. Few are open at a time, and mostly the one that was taken last is answered.
#[derive(Debug, Default)]
pub(super) struct Open {
    entries: Vec<Entry>,
    next: u64,
}

impl Open {
    pub(super) fn len(&self) -> u32 {
        self.entries.len() as u32
    }

    /// Enters a command; gives its serial number.
    pub(super) fn insert(&mut self, header: &Header) -> u64 {
        let serial = self.next;
        self.next += 1;
        let Header { id, command, .. } = *header;
        self.entries.push(Entry { serial, id, command, no_reply: header.wants_no_reply() });
        serial
    }

    /// Takes a command out; `false` if it is not open any more.
    pub(super) fn remove(&mut self, serial: u64) -> bool {
        let at = self.entries.iter().rposition(|entry| entry.serial == serial);
        at.map(|at| self.entries.swap_remove(at)).is_some()
    }

    /// Takes all out, in the order in which they came: the error replies to those that want one.
    pub(super) fn drain(&mut self, errno: Errno) -> Vec<Header> {
        self.entries.sort_by_key(|entry| entry.serial);
        let answered = self.entries.drain(..).filter(|entry| !entry.no_reply);
        answered.map(|entry| Header::error(entry.id, entry.command, errno)).collect()
    }
}
