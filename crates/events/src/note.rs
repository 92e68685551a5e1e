//! From a note of the driver to a row.

use farside_svm::{Advice, Change, ChangeKind, Hint, Note};
use farside_types::{Access, PageRange, Time};

use crate::{Event, Kind, Name};

/// How a machine counts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scale {
    /// The beginning.
    pub(crate) start: Time,
    /// Bytes of a page.
    pub(crate) page_bytes: u64,
}

impl Scale {
    /// The row of a note; `name` gives the number of a name.
    pub(crate) fn event(&self, at: Time, note: Note<'_>, name: impl FnOnce(&str) -> Name) -> Event {
        let at = at.since(self.start).0;
        let event = |kind| Event::new(at, kind);
        let about = |kind, pages| self.about(event(kind), pages);
        match note {
            Note::Fault { agent, pages, access } => {
                let kind = of_access(access, Kind::FaultRead, Kind::FaultWrite);
                Event { agent: Some(agent), ..about(kind, pages) }
            }
            Note::Refill { card, pages } => {
                Event { agent: Some(card.agent()), ..about(Kind::Refill, pages) }
            }
            Note::Change(change) => self.change(at, &change),
            Note::Alloc { pages, name: text } => {
                Event { name: name(text), ..about(Kind::Alloc, pages) }
            }
            Note::Free { pages } => about(Kind::Free, pages),
            Note::Hint { pages, hint } => self.hint(at, pages, hint),
            Note::Launch { job, card, name: text } => Event {
                agent: Some(card.agent()),
                number: job.0,
                name: name(text),
                ..event(Kind::Launch)
            },
            Note::Lent { job, at: address, bytes, access } => {
                let kind = of_access(access, Kind::LentRead, Kind::LentWrite);
                Event { number: job.0, address: address.0, bytes, ..event(kind) }
            }
            Note::Begin { job, card } => {
                Event { agent: Some(card.agent()), number: job.0, ..event(Kind::Begin) }
            }
            Note::End { job, card, well } => {
                let kind = if well { Kind::End } else { Kind::Failed };
                Event { agent: Some(card.agent()), number: job.0, ..event(kind) }
            }
            Note::Notice { card, pages } => {
                Event { agent: Some(card.agent()), ..about(Kind::Notice, pages) }
            }
            Note::Gone { card } => Event { agent: Some(card.agent()), ..event(Kind::Gone) },
        }
    }

    fn about(&self, event: Event, pages: PageRange) -> Event {
        let (address, bytes) = (pages.start.0 * self.page_bytes, pages.count * self.page_bytes);
        Event { address, bytes, ..event }
    }

    fn change(&self, at: u64, change: &Change) -> Event {
        let kind = match change.kind {
            ChangeKind::Migration => Kind::Migration,
            ChangeKind::Duplication => Kind::Duplication,
            ChangeKind::Collapse => Kind::Collapse,
            ChangeKind::RemoteMap => Kind::RemoteMap,
            ChangeKind::Eviction => Kind::Eviction,
            ChangeKind::Rights => Kind::Rights,
            ChangeKind::Free => Kind::Freed,
            ChangeKind::Lost => Kind::Lost,
            ChangeKind::Found => Kind::Found,
        };
        let (from, to) = change.came.map_or((None, None), |(from, to)| (from, Some(to)));
        Event {
            reason: Some(change.reason),
            agent: change.agent,
            from,
            to,
            before: change.before,
            after: change.after,
            stopped: change.stopped,
            around: u64::from(change.around) * self.page_bytes,
            ..self.about(Event::new(at, kind), change.pages)
        }
    }

    fn hint(&self, at: u64, pages: PageRange, hint: Hint) -> Event {
        let (kind, to, agent) = match hint {
            Hint::Migrate(to) => (Kind::Migrate, Some(to), None),
            Hint::Prefetch(to, access) => {
                (of_access(access, Kind::PrefetchRead, Kind::PrefetchWrite), Some(to), None)
            }
            Hint::Pin(to) => (Kind::Pin, Some(to), None),
            Hint::Unpin => (Kind::Unpin, None, None),
            Hint::Advise(Advice::ReadMostly(true)) => (Kind::ReadMostly, None, None),
            Hint::Advise(Advice::ReadMostly(false)) => (Kind::NotReadMostly, None, None),
            Hint::Advise(Advice::Preferred(to)) => (Kind::Preferred, to, None),
            Hint::Advise(Advice::AccessedBy(agent, true)) => (Kind::AccessedBy, None, Some(agent)),
            Hint::Advise(Advice::AccessedBy(agent, false)) => {
                (Kind::NotAccessedBy, None, Some(agent))
            }
            Hint::Advise(Advice::WholeBlocks(_)) => (Kind::WholeBlocks, None, None),
        };
        Event { to, agent, ..self.about(Event::new(at, kind), pages) }
    }
}

fn of_access(access: Access, read: Kind, write: Kind) -> Kind {
    if access.is_write() { write } else { read }
}
