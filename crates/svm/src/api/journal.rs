//! What the driver tells of all that happens, one note after the other: the history is bounded and answers
//! questions, a journal is complete and is kept by whoever wants it.
//!
//! A driver without a journal makes no notes. One with a journal calls it in the middle of its work, under
//! whatever lock the machine holds: it takes a note and returns, and never calls the driver.

use farside_types::{
    Access, AgentId, AgentSet, CardId, JobId, MemoryId, MemorySet, PageRange, Reason, Time,
    VirtAddr,
};

use crate::Driver;
use crate::api::event::{Advice, Need, Request};
use crate::api::query::Located;
use crate::migration::transition::{Label, Transition};

/// Takes notes of what a driver does.
pub trait Journal: Send + std::fmt::Debug {
    /// Something happened.
    fn note(&mut self, at: Time, note: Note<'_>);
}

/// Something that happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Note<'a> {
    /// An agent could not go on without these pages.
    Fault {
        /// Who.
        agent: AgentId,
        /// The pages: one, or a stretch of those that a kernel wants together.
        pages: PageRange,
        /// What for.
        access: Access,
    },
    /// A card's fault on pages that were there: only their translation was missing.
    Refill {
        /// The card.
        card: CardId,
        /// The page that it wanted.
        pages: PageRange,
    },
    /// Where pages are has changed, or who may use them.
    Change(Change),
    /// Address space was allocated; the pages are nowhere yet.
    Alloc {
        /// The pages.
        pages: PageRange,
        /// The program's name for it; may be empty.
        name: &'a str,
    },
    /// The program has given an allocation back.
    Free {
        /// Its pages.
        pages: PageRange,
    },
    /// The program said how memory is used, or where it shall be.
    Hint {
        /// The pages.
        pages: PageRange,
        /// What it said.
        hint: Hint,
    },
    /// The program launched a kernel. The machine notes it: the driver knows no names.
    Launch {
        /// Names the job from here on.
        job: JobId,
        /// The card.
        card: CardId,
        /// The kernel's name.
        name: &'a str,
    },
    /// What a launch may use, to the byte, as the machine knows it.
    Lent {
        /// Which.
        job: JobId,
        /// The first byte.
        at: VirtAddr,
        /// How many.
        bytes: u64,
        /// What for.
        access: Access,
    },
    /// A card was given a kernel to run.
    Begin {
        /// Which.
        job: JobId,
        /// The card.
        card: CardId,
    },
    /// A job that had begun has ended.
    End {
        /// Which.
        job: JobId,
        /// The card.
        card: CardId,
        /// Whether it ended well.
        well: bool,
    },
    /// A card's access counter says that it reaches pages from afar.
    Notice {
        /// The card.
        card: CardId,
        /// The counter's pages.
        pages: PageRange,
    },
    /// A card is gone, with its memory.
    Gone {
        /// Which.
        card: CardId,
    },
}

/// What became of pages that lie behind each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// Which pages.
    pub pages: PageRange,
    /// Memories with a valid copy before.
    pub before: MemorySet,
    /// And now.
    pub after: MemorySet,
    /// The bytes that came: from where, and to which memory; zeros come from nowhere.
    pub came: Option<(Option<MemoryId>, MemoryId)>,
    /// How many of the pages nobody had asked for: they lay near those that somebody did.
    pub around: u32,
    /// Who lost its mapping, or the right to write.
    pub stopped: AgentSet,
    /// Whom it was done for; nobody, if the driver wanted it.
    pub agent: Option<AgentId>,
    /// What kind of change.
    pub kind: ChangeKind,
    /// Why.
    pub reason: Reason,
}

/// What kind of change it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeKind {
    /// The only location changed.
    Migration,
    /// One more copy.
    Duplication,
    /// A write took the other copies away.
    Collapse,
    /// Mapped over the bus.
    RemoteMap,
    /// Left a full card.
    Eviction,
    /// Only rights or mappings changed.
    Rights,
    /// The program gave the pages back.
    Free,
    /// The card with the only copy is gone.
    Lost,
    /// Where the pages were when the journal was begun.
    Found,
}

/// What a program says about its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hint {
    /// Move it there.
    Migrate(MemoryId),
    /// Bring it there, to be read or written.
    Prefetch(MemoryId, Access),
    /// Move it there and keep it.
    Pin(MemoryId),
    /// Undo a pin.
    Unpin,
    /// How it will be used.
    Advise(Advice),
}

impl From<Label> for ChangeKind {
    fn from(label: Label) -> ChangeKind {
        match label {
            Label::Migration => ChangeKind::Migration,
            Label::Duplication => ChangeKind::Duplication,
            Label::Collapse => ChangeKind::Collapse,
            Label::RemoteMap => ChangeKind::RemoteMap,
            Label::Eviction => ChangeKind::Eviction,
            Label::Rights => ChangeKind::Rights,
        }
    }
}

impl Change {
    /// What a transition makes of pages; `came` says whether bytes were copied or filled.
    pub(crate) fn of(transition: &Transition, pages: PageRange, came: bool) -> Change {
        let from = (!transition.before.is_empty()).then_some(transition.from);
        Change {
            pages,
            before: transition.before,
            after: transition.after,
            came: came.then_some((from, transition.at)),
            around: 0,
            stopped: transition.stop.union(transition.demote),
            agent: transition.map.map(|(agent, _)| agent),
            kind: transition.label.into(),
            reason: transition.reason,
        }
    }
}

impl Driver {
    /// Has a journal kept from now on, in the place of another. It begins with the allocations that there
    /// are and where their pages are.
    pub fn keep_journal(&mut self, mut journal: Box<dyn Journal>) {
        let now = self.now;
        for object in self.space.objects() {
            journal.note(now, Note::Alloc { pages: object.range, name: &object.name });
        }
        let ranges: Vec<PageRange> = self.space.objects().map(|object| object.range).collect();
        for Located { range, copies, .. } in ranges.iter().flat_map(|&range| self.locate(range)) {
            if !copies.is_empty() {
                journal.note(now, Note::Change(found(range, copies)));
            }
        }
        self.journal = Some(journal);
    }

    /// Whether a journal is kept.
    pub fn keeps_journal(&self) -> bool {
        self.journal.is_some()
    }

    /// Takes a note, if a journal is kept: also one of the machine's.
    #[inline]
    pub fn note(&mut self, note: Note<'_>) {
        if let Some(journal) = &mut self.journal {
            journal.note(self.now, note);
        }
    }

    /// Notes what an agent's fault needs.
    #[inline]
    pub(crate) fn note_fault(&mut self, agent: AgentId, need: &Need) {
        let Some(journal) = &mut self.journal else { return };
        let mut tell = |pages, access| journal.note(self.now, Note::Fault { agent, pages, access });
        match need {
            Need::Page(page, access) => tell(PageRange::page(*page), *access),
            Need::Group(ranges) => ranges.iter().for_each(|&(pages, access)| tell(pages, access)),
        }
    }

    /// Notes what the program asks for, where that says something about its memory.
    pub(crate) fn note_request(&mut self, request: &Request) {
        let (range, hint) = match *request {
            Request::Migrate { range, to } => (range, Hint::Migrate(to)),
            Request::Prefetch { range, to, access } => (range, Hint::Prefetch(to, access)),
            Request::Pin { range, at } => (range, Hint::Pin(at)),
            Request::Unpin { range } => (range, Hint::Unpin),
            Request::Advise { range, advice } => (range, Hint::Advise(advice)),
            _ => return,
        };
        self.note(Note::Hint { pages: range, hint });
    }
}

/// Pages that were there when the journal was begun.
fn found(pages: PageRange, copies: MemorySet) -> Change {
    Change {
        pages,
        before: MemorySet::EMPTY,
        after: copies,
        came: None,
        around: 0,
        stopped: AgentSet::EMPTY,
        agent: None,
        kind: ChangeKind::Found,
        reason: Reason::Demand,
    }
}
