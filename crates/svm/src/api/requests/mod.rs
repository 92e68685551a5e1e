//! Requests of the program: allocate, free, adopt, migrate, prefetch, advise, pin, protect, trim.
//!
//! A request works its way through its pages. It takes what no chain holds, waits for what one
//! does, and holds nothing while it waits.

use std::collections::VecDeque;

use farside_types::{Access, MemoryId, PageNo, PageRange, RequestId};
use serde::{Deserialize, Serialize};

use crate::Driver;
use crate::api::event::Request;
use crate::api::order::Task;
use crate::api::reply::{Outcome, Reply, RequestError};
use crate::waiting::Work;

mod adoption;
mod advice;
mod memory;
mod moves;
mod progress;
mod walk;

pub(crate) use moves::Pin;

/// A request that is under way.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct OpenRequest {
    pub(crate) kind: RequestKind,
    /// What has not been looked at yet.
    left: VecDeque<PageRange>,
    /// All of it.
    pub(crate) whole: PageRange,
    /// Chains that work for it.
    chains: u32,
    /// Grows with every request.
    serial: u64,
    pages_moved: u64,
    /// Chains of it that were rolled back and tried again.
    attempts: u8,
    error: Option<RequestError>,
}

/// What is done to each page.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum RequestKind {
    /// New pages are cleared of what the kernel remembers of their addresses.
    Alloc,
    Free,
    /// Adopted memory goes home.
    Disown,
    Migrate(MemoryId),
    /// What was emptied comes home, pins or not.
    Recall,
    Prefetch(MemoryId, Access),
    Pin(MemoryId),
    Protect,
    Trim,
}

impl OpenRequest {
    /// Whether it is complete only with `page` at `memory`.
    fn brings(&self, page: PageNo, memory: MemoryId) -> bool {
        self.destination() == Some(memory) && self.whole.contains(page)
    }

    /// The memory that all of its pages have to be in for it to succeed.
    fn destination(&self) -> Option<MemoryId> {
        match self.kind {
            RequestKind::Migrate(to) | RequestKind::Pin(to) => Some(to),
            _ => None,
        }
    }
}

impl RequestKind {
    fn target(self) -> Option<MemoryId> {
        match self {
            RequestKind::Migrate(to) | RequestKind::Prefetch(to, _) | RequestKind::Pin(to) => {
                Some(to)
            }
            RequestKind::Recall => Some(MemoryId::HOST),
            _ => None,
        }
    }

    /// Whether it has nothing to do with pages that are being freed but to fail.
    fn is_about_live_pages(self) -> bool {
        self.target().is_some() || self == RequestKind::Protect
    }
}

impl Driver {
    pub(crate) fn take_request(&mut self, id: RequestId, request: Request, after: &[Task]) {
        let open = self.requests.len() + self.orders.held();
        if open >= self.config.limits.requests {
            return self.reply(id, Err(RequestError::TooManyRequests { open }));
        }
        if let Err(because) = self.order(Task::Request(id), after) {
            return self.reply(id, Err(RequestError::NotBegun { because }));
        }
        if self.orders.holds(Task::Request(id)) {
            return self.hold_request(id, request);
        }
        self.begin_request(id, request);
    }

    pub(crate) fn begin_request(&mut self, id: RequestId, request: Request) {
        if self.keeps_journal() {
            self.note_request(&request);
        }
        let result = match request {
            Request::Alloc { bytes, name } => self.alloc(id, bytes, name),
            Request::Free { addr } => self.free(id, addr),
            Request::Adopt { range, bytes, name, moves } => {
                self.adopt(id, range, bytes, name, moves)
            }
            Request::Disown { addr } => self.disown(id, addr),
            Request::Migrate { range, to } => self.move_to(id, range, RequestKind::Migrate(to)),
            Request::Recall { range } => self.move_to(id, range, RequestKind::Recall),
            Request::Prefetch { range, to, access } => {
                self.move_to(id, range, RequestKind::Prefetch(to, access))
            }
            Request::Pin { range, at } => self.move_to(id, range, RequestKind::Pin(at)),
            Request::Unpin { range } => self.unpin(id, range),
            Request::Advise { range, advice } => self.advise(id, range, advice),
            Request::Protect { range, rights } => self.protect(id, range, rights),
            Request::Trim => {
                let ranges = self.space.objects().map(|object| object.range).collect();
                self.open(id, RequestKind::Trim, PageRange::default(), ranges);
                Ok(())
            }
        };
        if let Err(error) = result {
            self.reply(id, Err(error));
        }
    }

    fn open(
        &mut self,
        id: RequestId,
        kind: RequestKind,
        whole: PageRange,
        left: VecDeque<PageRange>,
    ) {
        self.next_request += 1;
        let serial = self.next_request;
        let (chains, pages_moved, attempts, error) = (0, 0, 0, None);
        let request =
            OpenRequest { kind, left, whole, chains, serial, pages_moved, attempts, error };
        self.requests.insert(id, request);
        self.work.push_back(Work::Request(id));
    }

    pub(crate) fn reply(&mut self, id: RequestId, result: Result<Outcome, RequestError>) {
        self.task_ended(Task::Request(id), result.is_ok());
        self.replies.push_back(Reply::Request { id, result });
    }

    fn reply_done(&mut self, id: RequestId, pages_moved: u64) {
        self.reply(id, Ok(Outcome::Done { pages_moved }));
    }

    /// The age of a request: smaller is older.
    pub(crate) fn serial_of(&self, id: RequestId) -> u64 {
        self.requests.get(&id).map_or(u64::MAX, |request| request.serial)
    }

    /// Whether a request that is older than `serial` is bringing `page` to `memory`: it is no victim
    /// then.
    pub(crate) fn is_requested(&self, page: PageNo, memory: MemoryId, serial: u64) -> bool {
        self.requests.values().any(|r| r.brings(page, memory) && r.serial < serial)
    }

    /// Whether a request that is older than `serial` brings pages to `memory`.
    pub(crate) fn is_bringing(&self, memory: MemoryId, serial: u64) -> bool {
        self.requests.values().any(|r| r.destination() == Some(memory) && r.serial < serial)
    }

    /// A page leaves `memory` although requests are bringing it there: they bring it again.
    pub(crate) fn bring_again(&mut self, page: PageNo, memory: MemoryId) {
        for request in self.requests.values_mut().filter(|r| r.brings(page, memory)) {
            if !request.left.iter().any(|range| range.contains(page)) {
                request.left.push_back(PageRange::page(page));
            }
        }
    }
}
