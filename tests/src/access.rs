//! Accesses to words, and what is known of them while they are under way.

use farside_card::AccessId;
use farside_svm::Need;
use farside_types::{Access, AgentId, CancelReason, CardId, FaultId, JobId, PageNo};

use crate::memory::Translation;

/// What an access does to its word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WordOp {
    /// Reads it; the value must be the last one written.
    Load,
    /// Writes a value that was never written before.
    Store,
    /// Adds one, atomically.
    Increment,
}

impl WordOp {
    /// What the access needs.
    pub const fn access(self) -> Access {
        match self {
            WordOp::Load => Access::Read,
            WordOp::Store | WordOp::Increment => Access::Write,
        }
    }
}

/// An access to one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WordAccess {
    /// The page.
    pub page: PageNo,
    /// The word in the page, below [`crate::WORDS`].
    pub word: usize,
    /// What it does.
    pub op: WordOp,
}

impl WordAccess {
    /// Reads a word.
    pub const fn load(page: PageNo, word: usize) -> WordAccess {
        WordAccess { page, word, op: WordOp::Load }
    }

    /// Writes a word.
    pub const fn store(page: PageNo, word: usize) -> WordAccess {
        WordAccess { page, word, op: WordOp::Store }
    }

    /// Adds one to a word.
    pub const fn increment(page: PageNo, word: usize) -> WordAccess {
        WordAccess { page, word, op: WordOp::Increment }
    }
}

/// Who waits for an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Who {
    /// A thread of the program.
    Thread(usize),
    /// A job on a card.
    Job(JobId),
}

/// Accesses that took their translations and are not performed yet. A drain waits for them.
#[derive(Clone, Debug)]
pub(crate) struct Flight {
    pub(crate) agent: AgentId,
    pub(crate) who: Who,
    pub(crate) cargo: Cargo,
    /// For a card behind rings: what its model calls the access.
    pub(crate) grant: Option<AccessId>,
}

/// What is in flight.
#[derive(Clone, Debug)]
pub(crate) enum Cargo {
    /// One access.
    Word(WordAccess, Translation),
    /// A kernel holds a group of pages and makes so many more accesses to them.
    Group(Vec<(PageNo, Access, Translation)>, u32),
}

impl Flight {
    /// The page's translation, if it holds one.
    pub(crate) fn translation(&self, page: PageNo) -> Option<Translation> {
        match &self.cargo {
            Cargo::Word(access, translation) => (access.page == page).then_some(*translation),
            Cargo::Group(held, _) => held.iter().find(|h| h.0 == page).map(|h| h.2),
        }
    }

    /// Every page and translation it holds.
    pub(crate) fn held(&self) -> Vec<(PageNo, Translation)> {
        match &self.cargo {
            Cargo::Word(access, translation) => vec![(access.page, *translation)],
            Cargo::Group(held, _) => held.iter().map(|h| (h.0, h.2)).collect(),
        }
    }

    /// Whether it may still write the page.
    pub(crate) fn writes(&self, page: PageNo) -> bool {
        match &self.cargo {
            Cargo::Word(access, _) => access.page == page && access.op.access().is_write(),
            Cargo::Group(held, _) => held.iter().any(|h| h.0 == page && h.1.is_write()),
        }
    }
}

/// A fault of a card, from when it is raised until it is answered and the answer is carried out.
#[derive(Clone, Debug)]
pub(crate) struct Fault {
    pub(crate) id: FaultId,
    pub(crate) card: CardId,
    pub(crate) job: JobId,
    pub(crate) need: Need,
    /// The access that waits; `None` for a group.
    pub(crate) access: Option<WordAccess>,
    /// When it was raised (machine stamp).
    pub(crate) raised: u64,
    /// The driver was told.
    pub(crate) delivered: bool,
    /// The driver handed out its resume or cancel.
    pub(crate) answered: bool,
    /// The error of its cancel, which had a reason. A card may refuse it, and be given it again when
    /// the reason is long gone.
    pub(crate) judged: Option<CancelReason>,
    /// Its job ended before: nobody waits, but the driver still owes the answer.
    pub(crate) void: bool,
}

impl Fault {
    /// Every page that it needs, with the access.
    pub(crate) fn pages(&self) -> Vec<(PageNo, Access)> {
        match &self.need {
            Need::Page(page, access) => vec![(*page, *access)],
            Need::Group(ranges) => {
                let flat = |(range, access): &(farside_types::PageRange, Access)| {
                    let access = *access;
                    range.pages().map(move |page| (page, access)).collect::<Vec<_>>()
                };
                ranges.iter().flat_map(flat).collect()
            }
        }
    }
}
