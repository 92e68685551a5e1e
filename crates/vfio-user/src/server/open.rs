//! Commands that the embedder has taken and not answered yet.

use std::num::NonZeroU64;

use super::{Errno, Header, Token};
use crate::wire::Command;

/// One of them.
#[derive(Debug)]
struct Entry {
    /// Clients may use a message id twice at a time; this number is never used again.
    serial: NonZeroU64,
    id: u16,
    command: Command,
    no_reply: bool,
    /// Bytes that its reply takes in the queue, at most.
    reply_bytes: usize,
}

/// The table of them. Few are open at a time, and mostly the one that was taken last is answered.
#[derive(Debug, Default)]
pub(super) struct Open {
    entries: Vec<Entry>,
    /// The number that was given last.
    last: u64,
    /// Bytes that all the replies take in the queue, at most.
    reply_bytes: usize,
}

impl Open {
    pub(super) fn len(&self) -> u32 {
        self.entries.len() as u32
    }

    /// Bytes that the replies to all of them take in the queue, at most.
    pub(super) fn reply_bytes(&self) -> usize {
        self.reply_bytes
    }

    /// Enters the command of a token that is given out.
    pub(super) fn insert(&mut self, token: &mut Token) {
        self.last += 1;
        let serial = NonZeroU64::new(self.last).expect("the numbers do not run out");
        token.serial = Some(serial);
        let Token { id, command, no_reply, .. } = *token;
        let reply_bytes = token.reply_size();
        self.reply_bytes += reply_bytes;
        self.entries.push(Entry { serial, id, command, no_reply, reply_bytes });
    }

    /// Takes a command out; `false` if it is not open any more.
    pub(super) fn remove(&mut self, serial: NonZeroU64) -> bool {
        // Mostly the only one.
        let Some(at) = self.entries.iter().rposition(|entry| entry.serial == serial) else {
            return false;
        };
        self.reply_bytes -= self.entries[at].reply_bytes;
        self.entries.swap_remove(at);
        true
    }

    /// Takes all out, in the order in which they came: the error replies to those that want one.
    pub(super) fn drain(&mut self, errno: Errno) -> Vec<Header> {
        self.reply_bytes = 0;
        self.entries.sort_by_key(|entry| entry.serial);
        let answered = self.entries.drain(..).filter(|entry| !entry.no_reply);
        answered.map(|entry| Header::error(entry.id, entry.command, errno)).collect()
    }
}
