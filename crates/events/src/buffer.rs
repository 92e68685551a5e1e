//! What a log holds that is not in the file yet: a bounded number of chunks, which go round.
//!
//! Chunks are exchanged and not copied, and the one that was emptied last is filled next: while the thread that writes keeps
//! up, all events go through the few that the processor's caches have.

use std::collections::VecDeque;

use crate::Event;
#[cfg(test)]
use crate::chunk::CHUNK;
use crate::chunk::{Filling, room};

/// Chunks that a buffer has room for.
const CHUNKS: usize = 16;

/// Events that it has room for.
#[cfg(test)]
pub(crate) const ROOM: usize = CHUNK * CHUNKS;

/// The chunks of a log, oldest events first: those that are full, and the one that is filled.
#[derive(Debug)]
pub(crate) struct Buffer {
    full: VecDeque<Vec<Event>>,
    filling: Filling,
    empty: Vec<Vec<Event>>,
    /// Events that found no room and of which the log does not say so yet.
    dropped: u64,
    dropped_in_all: u64,
    /// How often somebody has asked for what there is to be in the file, and how many of these have it.
    asked: u64,
    answered: u64,
    /// Chunks until all is taken that was there when it was asked for last.
    due: usize,
    closed: bool,
    /// Why the file takes no more, if so.
    failed: Option<String>,
}

impl Buffer {
    pub(crate) fn new() -> Buffer {
        Buffer {
            full: VecDeque::with_capacity(CHUNKS),
            filling: Filling::new(),
            empty: (1..CHUNKS).map(|_| room()).collect(),
            dropped: 0,
            dropped_in_all: 0,
            asked: 0,
            answered: 0,
            due: 0,
            closed: false,
            failed: None,
        }
    }

    /// Whether there is room for an event, in the chunk that is filled or in the next one.
    pub(crate) fn takes_one(&mut self) -> bool {
        if self.filling.is_full()
            && let Some(next) = self.empty.pop()
        {
            self.full.push_back(self.filling.exchange(next));
        }
        !self.filling.is_full() && !self.is_over()
    }

    /// Puts an event where [`Buffer::takes_one`] has found room; whether there is a chunk to write now.
    pub(crate) fn put(&mut self, event: Event) -> bool {
        self.filling.push(event);
        self.filling.is_full()
    }

    /// An event has found no room.
    pub(crate) fn leave_out(&mut self) {
        self.dropped += 1;
        self.dropped_in_all += 1;
    }

    /// Events that the log has to say are missing, with so `many` that go for that; nothing, if none is.
    pub(crate) fn missing_with(&mut self, many: u64) -> Option<u64> {
        let missing = std::mem::take(&mut self.dropped);
        (missing > 0).then(|| {
            self.dropped_in_all += many;
            missing + many
        })
    }

    /// Whether there is room for a chunk, or there will never be.
    pub(crate) fn takes_chunk(&self) -> bool {
        !self.empty.is_empty() || self.is_over()
    }

    /// Exchanges a chunk for an empty one; without an end of the log, whoever gives it has waited for
    /// [`Buffer::takes_chunk`].
    pub(crate) fn put_chunk(&mut self, chunk: &mut Filling) {
        match self.empty.pop().filter(|_| !self.is_over()) {
            Some(next) => self.full.push_back(chunk.exchange(next)),
            None => {
                self.dropped_in_all += chunk.len() as u64;
                chunk.clear();
            }
        }
    }

    /// Whether no chunk is full, nobody asks for what there is, and more events may come.
    pub(crate) fn is_filling(&self) -> bool {
        self.full.is_empty() && !self.filling.is_full() && self.due == 0 && !self.closed
    }

    /// Whether no event is left, and none comes.
    pub(crate) fn is_done(&self) -> bool {
        self.closed && self.full.is_empty() && self.filling.is_empty()
    }

    /// The oldest events for an empty chunk. Gives the last of those who have asked, if with these events all is taken
    /// that there was.
    pub(crate) fn exchange(&mut self, empty: &mut Vec<Event>) -> Option<u64> {
        match self.full.pop_front() {
            Some(full) => self.empty.push(std::mem::replace(empty, full)),
            None => *empty = self.filling.exchange(std::mem::take(empty)),
        }
        let last = self.due == 1;
        self.due = self.due.saturating_sub(1);
        last.then_some(self.asked)
    }

    /// Asks for what there is to be in the file; gives the number of the question.
    pub(crate) fn ask(&mut self) -> u64 {
        self.due = self.full.len() + 1;
        self.asked += 1;
        self.asked
    }

    /// What was asked for up to this question is in the file.
    pub(crate) fn answer(&mut self, question: u64) {
        self.answered = question;
    }

    pub(crate) fn is_answered(&self, question: u64) -> bool {
        self.answered >= question
    }

    /// Why the file takes no more, if so.
    pub(crate) fn failed(&self) -> Option<&str> {
        self.failed.as_deref()
    }

    /// No more events are taken.
    pub(crate) fn close(&mut self) {
        self.closed = true;
    }

    /// The file takes no more, neither what is here nor `others`, and why. Gives the number of all events that are missing.
    pub(crate) fn fail(&mut self, why: String, others: u64) -> u64 {
        self.failed = Some(why);
        self.dropped_in_all += self.len() as u64 + others;
        self.dropped_in_all
    }

    /// Events that are missing in all.
    pub(crate) fn left_out(&self) -> u64 {
        self.dropped_in_all
    }

    /// Events that wait.
    pub(crate) fn len(&self) -> usize {
        self.full.iter().map(Vec::len).sum::<usize>() + self.filling.len()
    }

    fn is_over(&self) -> bool {
        self.closed || self.failed.is_some()
    }
}
