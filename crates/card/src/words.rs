//! Words that processing elements access without the card's lock.
//!
//! Who accesses words says so in a line of its own, a [`WordUser`]; who takes pages away changes their
//! entries and then waits for the words that are under way ([`Words::drain`]). No word takes a lock,
//! and none writes to memory that another user writes to.
//!
//! # Why no word is lost
//!
//! A user marks its line, **fences**, and reads the entry of its page; a drain comes after the entry
//! was changed, **fences**, and reads the lines. Both fences are sequentially consistent, so they have
//! an order:
//!
//! - The user's comes first: the drain sees the mark, or one that came after it, and waits until that
//!   word has ended. A user ends its word with a release, which the drain acquires: what the word has
//!   written lies before whatever the drain's caller does next.
//! - The drain's comes first: the user reads the changed entry, and makes no access through the old one.
//!
//! A drain waits for the word that it has seen, not for those that the same user begins afterwards, so
//! it ends however busy the user is. A user that is added while a drain goes through the lines is added
//! behind the change of the entries, by the lock of the list.
//!
//! What holds for entries holds for whatever else a user has to see: after its mark it reads whether it
//! was **disturbed** ([`InWord::is_undisturbed`]). Who is has to look around: it forgets what it remembers
//! of the tables, whose pages are reused after a disturbance and a drain ([`Words::renew`]), and sees
//! whether it is wanted at all. It takes the disturbance back first, so that none is lost.
//!
//! `tests/loom.rs` checks this on the code itself, with a control for each of the two fences.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::sync::{AtomicU64, Fence, Mutex, fence, full_fence, rest, yield_now};

/// How often a drain looks at a line before it lets other threads run. A word takes nanoseconds; whoever
/// does not end by then has lost its processor.
const LOOKS: u32 = if cfg!(loom) { 1 } else { 200 };
/// How often, before it sleeps: the other may have less priority than whoever drains.
const YIELDS: u32 = 10_000;

/// What one user writes and nobody else does but rarely. Two cache lines, because processors fetch them
/// in pairs.
#[derive(Debug)]
#[repr(align(128))]
struct Line {
    /// Odd while a word is under way; changed twice by each word.
    word: AtomicU64,
    /// Not 0: the user is to look around.
    disturbed: AtomicU64,
}

/// The words that are under way on a card.
#[derive(Debug)]
pub struct Words {
    lines: Mutex<Vec<Arc<Line>>>,
}

/// Who accesses words, one after the other.
#[derive(Debug)]
pub struct WordUser {
    words: Arc<Words>,
    line: Arc<Line>,
    /// What the line says: even.
    at: u64,
}

/// A word that is under way, until it is dropped.
#[derive(Debug)]
pub struct InWord<'a> {
    user: &'a mut WordUser,
}

/// Users that there is room for from the start.
const USERS: usize = 64;

impl Default for Words {
    fn default() -> Words {
        Words { lines: Mutex::new(Vec::with_capacity(USERS)) }
    }
}

impl Words {
    /// Adds somebody who accesses words.
    pub fn user(self: &Arc<Words>) -> WordUser {
        let line = Arc::new(Line { word: AtomicU64::new(0), disturbed: AtomicU64::new(0) });
        self.lines(|lines| lines.push(Arc::clone(&line)));
        WordUser { words: Arc::clone(self), line, at: 0 }
    }

    /// Waits for the words that are under way. Those that begin later find what was changed before.
    pub fn drain(&self) {
        full_fence(Fence::Drain);
        self.lines(|lines| lines.iter().for_each(|line| line.drain()));
    }

    /// Has every user look around, with its next word at the latest.
    pub fn disturb(&self) {
        self.lines(|lines| lines.iter().for_each(|line| line.disturb()));
    }

    /// Has every user forget what it remembers: from here on nobody uses any of it.
    pub fn renew(&self) {
        self.disturb();
        self.drain();
    }

    fn lines<T>(&self, work: impl FnOnce(&mut Vec<Arc<Line>>) -> T) -> T {
        // Nothing under this lock panics but for want of memory.
        work(&mut self.lines.lock().unwrap_or_else(std::sync::PoisonError::into_inner))
    }
}

impl Line {
    fn disturb(&self) {
        // An exchange, as the user's is: a store would do, but `loom` does not see that it cannot come
        // between what the user's exchange reads and what it writes.
        self.disturbed.swap(1, Ordering::AcqRel);
    }

    fn drain(&self) {
        let seen = self.word.load(Ordering::Acquire);
        if seen % 2 == 0 {
            return;
        }
        let mut looks = 0u32;
        while self.word.load(Ordering::Acquire) == seen {
            looks = looks.saturating_add(1);
            match looks {
                0..=LOOKS => std::hint::spin_loop(),
                YIELDS.. => rest(),
                _ => yield_now(),
            }
        }
    }

    /// Marks the line, and fences.
    #[inline]
    fn mark(&self, odd: u64) {
        // On x86 an exchange is a full fence, for a quarter of the time of `mfence`. The language's
        // model promises that only of the fence, which every other machine gets, and `loom`.
        if cfg!(all(target_arch = "x86_64", not(loom))) {
            self.word.swap(odd, Ordering::SeqCst);
            std::sync::atomic::compiler_fence(Ordering::SeqCst);
        } else {
            // Release: whoever waits for the word before this one may see this one first.
            self.word.store(odd, Ordering::Release);
            full_fence(Fence::Mark);
        }
    }
}

impl WordUser {
    /// Begins a word. Read entries, and whatever else is changed before drains, after this and not before.
    #[inline]
    pub fn begin(&mut self) -> InWord<'_> {
        self.line.mark(self.at + 1);
        InWord { user: self }
    }
}

impl InWord<'_> {
    /// Whether there is no reason to look around.
    #[inline]
    pub fn is_undisturbed(&self) -> bool {
        self.user.line.disturbed.load(Ordering::Acquire) == 0
    }

    /// Takes a disturbance back: whether there was one. What is read from here on is at least as new as
    /// what it was for.
    pub fn take_disturbance(&mut self) -> bool {
        let line = &self.user.line;
        let was = line.disturbed.swap(0, Ordering::AcqRel) != 0;
        // Behind it, as behind the mark: whoever disturbs again and drains waits for this word, or
        // this word sees what was changed.
        fence(Ordering::SeqCst);
        was
    }

    /// There is still reason to look around, with every word.
    pub fn stay_disturbed(&mut self) {
        self.user.line.disturb();
    }
}

impl Drop for InWord<'_> {
    #[inline]
    fn drop(&mut self) {
        self.user.at += 2;
        self.user.line.word.store(self.user.at, Ordering::Release);
    }
}

impl Drop for WordUser {
    fn drop(&mut self) {
        let line = &self.line;
        self.words.lines(|lines| lines.retain(|other| !Arc::ptr_eq(other, line)));
    }
}
