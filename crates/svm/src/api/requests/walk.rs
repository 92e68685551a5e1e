//! The walk of a request over its pages: what each of them needs, and the chains that do it.

use farside_types::{
    Access, AgentId, AgentSet, BLOCK_PAGES, MemoryId, PageNo, PageRange, Reason, RequestId, Time,
};

use crate::Driver;
use crate::api::command::Run;
use crate::api::reply::RequestError;
use crate::api::requests::{Pin, RequestKind};
use crate::migration::chain::{Part, Purpose, cut_runs};
use crate::migration::plan::{OpenPart, Plan};
use crate::migration::transition::{End, Transition};
use crate::placement::Action;
use crate::tables::page::{PageEntry, PageState, flag};
use crate::waiting::{Obstacle, Until, Work};

/// What a walk over the pages of a request has come to.
enum Walk {
    /// These pages are ready; there may be more.
    Ready(Plan, u64),
    /// The next page cannot be planned before.
    Wait(Until),
    /// Nothing is left.
    End,
    /// It cannot go on.
    Failed(RequestError),
}

impl Driver {
    /// Goes on with a request as far as it gets.
    pub(crate) fn serve_request(&mut self, now: Time, id: RequestId) {
        loop {
            match self.walk(id) {
                Walk::Ready(plan, pages) => {
                    if !self.start_request(now, id, plan, pages) {
                        return;
                    }
                }
                Walk::Wait(until) => return self.park(Work::Request(id), until),
                Walk::End => return self.finish_request(id),
                Walk::Failed(error) => return self.request_failed(id, error),
            }
        }
    }

    /// Looks at the next pages of a request, up to what one chain takes.
    fn walk(&mut self, id: RequestId) -> Walk {
        let Some(request) = self.requests.get(&id) else {
            return Walk::End;
        };
        let (kind, next) = (request.kind, request.left.front().copied());
        let Some(range) = next else { return Walk::End };
        let untouched = self.pass_untouched(kind, range);
        if untouched > 0 {
            return Walk::Ready(Plan::default(), untouched);
        }
        let mut plan = Plan::default();
        let mut seen = 0;
        let mut alike: Option<(PageEntry, Option<Transition>)> = None;
        let most = range.count.min(u64::from(self.config.limits.chain_pages));
        while seen < most {
            let page = range.start.offset(seen);
            let left = PageRange::new(page, range.count - seen);
            if seen > 0 && self.is_passed(kind, left) {
                break;
            }
            let entry = *self.table.get(page);
            if let Err(Obstacle::Wait(until)) = self.may_plan(page, &entry, None) {
                if seen > 0 {
                    break;
                }
                return Walk::Wait(until);
            }
            // Neighbours are mostly alike: what was found for one holds for the next.
            let transition = match alike.filter(|(like, _)| entry.is_like(like)) {
                Some((_, transition)) => transition,
                None => match self.request_transition(kind, page, &entry) {
                    Ok(transition) => transition,
                    Err(error) => return Walk::Failed(error),
                },
            };
            alike = Some((entry, transition));
            let stretch = PageRange::new(page, self.stretch(PageRange::new(page, most - seen)));
            match transition {
                Some(transition) => {
                    let run = self.run_of(page, &entry, &transition);
                    plan.add(transition, Run { count: stretch.count as u32, ..run });
                }
                None => self.mark_pin(kind, stretch),
            }
            seen += stretch.count;
        }
        Walk::Ready(plan, seen)
    }

    /// How many pages at the start of `range` need the same as its first, in frames that go on.
    fn stretch(&self, range: PageRange) -> u64 {
        if self.reservations.is_empty() { self.table.stretch(range) } else { 1 }
    }

    /// Whether a request has nothing to do for the first pages of `range`, because nobody has
    /// touched their block.
    fn is_passed(&self, kind: RequestKind, range: PageRange) -> bool {
        let passes = matches!(kind, RequestKind::Free | RequestKind::Trim | RequestKind::Protect);
        // Blocks of one that moves in blocks have frames on the host also where nobody touched them.
        let known = || self.space.block_of(range.start).is_some();
        passes && self.reservations.is_empty() && range.start.0 % BLOCK_PAGES == 0 && !known() && {
            let block = PageRange::new(range.start, range.count.min(BLOCK_PAGES));
            self.table.untouched_pages(block) > 0
        }
    }

    /// Passes pages that nobody has touched by whole blocks; gives how many. Nobody has them mapped,
    /// and no memory holds a byte of them.
    fn pass_untouched(&mut self, kind: RequestKind, range: PageRange) -> u64 {
        if !self.is_passed(kind, range) {
            return 0;
        }
        let pages = self.table.untouched_pages(range);
        if kind == RequestKind::Free {
            let gone = PageRange::new(range.start, pages);
            self.table.update(gone, |entry| entry.state = PageState::Tombstone);
        }
        pages
    }

    /// What a request needs of a page; `None` if nothing.
    fn request_transition(
        &self,
        kind: RequestKind,
        page: PageNo,
        entry: &PageEntry,
    ) -> Result<Option<Transition>, RequestError> {
        let copies = entry.directory.copies();
        match kind {
            RequestKind::Free => {
                let gone = entry.state == PageState::Tombstone;
                return Ok((!gone).then(|| self.free_transition(entry)));
            }
            RequestKind::Alloc => {
                let mut transition = Transition::unchanged(copies, entry.owner(), Reason::Return);
                transition.stop = AgentSet::only(AgentId::CPU);
                return Ok(Some(transition));
            }
            RequestKind::Disown => return self.disown_transition(page, entry),
            _ if entry.has(flag::DOOMED) || entry.state == PageState::Unallocated => {
                let trims = kind == RequestKind::Trim;
                return if trims { Ok(None) } else { Err(RequestError::Freed { page }) };
            }
            RequestKind::Protect => {
                let mut transition = Transition::unchanged(copies, entry.owner(), Reason::User);
                transition.demote = entry.directory.writers().without(AgentId::CPU);
                return Ok((!transition.demote.is_empty()).then_some(transition));
            }
            RequestKind::Trim => {
                let backed = entry.has(flag::HOST_BACKED) && !entry.directory.is_adopted();
                let idle = backed && !copies.contains(MemoryId::HOST);
                let mut transition = Transition::unchanged(copies, entry.owner(), Reason::Return);
                transition.end = End::ReleaseHost;
                return Ok((idle && !copies.is_empty()).then_some(transition));
            }
            _ => {}
        }
        let Some(to) = kind.target() else {
            return Ok(None);
        };
        if !self.is_usable(to) {
            return Err(RequestError::NoSuchMemory { memory: to });
        }
        if entry.state == PageState::Lost {
            if kind == RequestKind::Recall {
                return Ok(None);
            }
            return Err(RequestError::Lost { page, memory: entry.owner() });
        }
        self.move_transition(kind, to, page, entry)
    }

    fn move_transition(
        &self,
        kind: RequestKind,
        to: MemoryId,
        page: PageNo,
        entry: &PageEntry,
    ) -> Result<Option<Transition>, RequestError> {
        let copies = entry.directory.copies();
        let prefetch = matches!(kind, RequestKind::Prefetch(..));
        let read_only = entry.has(flag::READ_ONLY) && !to.is_host();
        let there = copies.contains(to) && (prefetch || read_only || copies.len() == 1);
        if there || (prefetch && entry.has(flag::PINNED)) {
            return Ok(None);
        }
        if entry.has(flag::PINNED) && kind != RequestKind::Recall {
            // Pinned while this request waited for the page.
            let elsewhere = |pin: &&Pin| pin.at != to && pin.range.contains(page);
            if let Some(pin) = self.pins.iter().find(elsewhere) {
                return Err(RequestError::Pinned { page, at: pin.at });
            }
        }
        let (action, reason) = match kind {
            RequestKind::Prefetch(_, access)
                if access == Access::Read || entry.has(flag::READ_MOSTLY) =>
            {
                (Action::Duplicate, Reason::Prefetch)
            }
            RequestKind::Prefetch(..) => (Action::Migrate, Reason::Prefetch),
            RequestKind::Recall => (Action::Migrate, Reason::Return),
            _ => (Action::Migrate, Reason::User),
        };
        let reads = read_only || (prefetch && action == Action::Duplicate);
        let access = if reads { Access::Read } else { Access::Write };
        let transition = self.transition(entry, to.agent(), access, action, reason, false);
        transition.map(Some).map_err(|_| RequestError::CopyFailed { page, from: entry.owner(), to })
    }

    /// Starts the chains for pages that a walk found; `false` if the rest has to wait.
    fn start_request(&mut self, now: Time, id: RequestId, plan: Plan, pages: u64) -> bool {
        let mut first_left = u64::MAX;
        for part in plan.parts {
            if let Some(left) = self.start_request_part(now, id, part) {
                first_left = first_left.min(left.0);
            }
        }
        let Some(request) = self.requests.get_mut(&id) else {
            return false;
        };
        let Some(front) = request.left.front_mut() else {
            return false;
        };
        let next = (front.start.0 + pages).min(first_left);
        *front = PageRange::new(PageNo(next), front.end().0 - next);
        if front.is_empty() {
            request.left.pop_front();
        }
        let all = first_left == u64::MAX;
        if !all && matches!(request.kind, RequestKind::Prefetch(..)) {
            // No room is left, and a prefetch evicts nothing: what is under way is all it does.
            request.left.clear();
            return true;
        }
        all
    }

    fn is_prefetch(&self, id: RequestId) -> bool {
        let request = self.requests.get(&id);
        request.is_some_and(|request| matches!(request.kind, RequestKind::Prefetch(..)))
    }

    /// Starts what there is room for and gives the first page for which there was none.
    fn start_request_part(
        &mut self,
        now: Time,
        id: RequestId,
        mut part: OpenPart,
    ) -> Option<PageNo> {
        let mut left = None;
        let mut missing = None;
        if let Some(card) = part.transition.needs_frames() {
            let room = self.room(card);
            if part.pages > room {
                let behind = cut_runs(&mut part.runs, room);
                left = behind.first().map(|run| run.page);
                missing = Some((card, part.pages - room));
                part.pages = room;
            }
            self.take_frames(card, part.pages, &mut part.runs);
        }
        while part.pages > 0 {
            if !self.has_idle_chain() {
                left = part.runs.first().map(|run| run.page);
                self.give_frames_back(&part.transition, &part.runs);
                self.park(Work::Request(id), Until::IdleChain);
                break;
            }
            let most = self.chain_limit(&part.transition, part.pages);
            let behind = cut_runs(&mut part.runs, most);
            let runs = std::mem::replace(&mut part.runs, behind);
            part.pages = part.pages.saturating_sub(most);
            if let Some(request) = self.requests.get_mut(&id) {
                request.chains += 1;
            }
            let purpose = Purpose { request: Some(id), ..Purpose::default() };
            self.start_chain(now, [Part::new(part.transition, runs)], purpose);
        }
        if let Some((card, missing)) = missing.filter(|_| !self.is_prefetch(id)) {
            self.wait_for_frames(now, card, missing, std::iter::once(Work::Request(id)));
        }
        left
    }
}
