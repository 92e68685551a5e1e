//! Requests of the program: allocate, free, migrate, prefetch, advise, pin, protect, trim.
//!
//! A request works its way through its pages. It takes what no chain holds, waits for what one
//! does, and holds nothing while it waits.

use std::collections::VecDeque;
use std::sync::Arc;

use farside_types::{
    Access, AgentId, AgentSet, BLOCK_PAGES, MemoryId, PAGE_SIZE, PageNo, PageRange, Reason,
    RequestId, Rights, Time, VirtAddr,
};
use serde::{Deserialize, Serialize};

use crate::Driver;
use crate::api::command::{RingOp, Run};
use crate::api::event::{Advice, Request};
use crate::api::reply::{Outcome, Reply, RequestError};
use crate::migration::chain::{Part, Purpose, cut_runs};
use crate::migration::chains::ChainId;
use crate::migration::plan::{OpenPart, Plan};
use crate::migration::transition::{End, Fill, Transition};
use crate::mutation::Mutation;
use crate::placement::Action;
use crate::tables::page::{PageEntry, PageState, flag};
use crate::tables::space::Hint;
use crate::waiting::{Obstacle, Until, Work};

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
    Migrate(MemoryId),
    Prefetch(MemoryId),
    Pin(MemoryId),
    Protect,
    Trim,
}

/// Pages that the program pinned.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Pin {
    pub(crate) range: PageRange,
    pub(crate) at: MemoryId,
    /// Its request has succeeded: it can be undone.
    pub(crate) ready: bool,
}

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
            RequestKind::Migrate(to) | RequestKind::Prefetch(to) | RequestKind::Pin(to) => Some(to),
            _ => None,
        }
    }
}

impl Driver {
    pub(crate) fn take_request(&mut self, id: RequestId, request: Request) {
        if self.requests.len() >= self.config.limits.requests {
            let open = self.requests.len();
            return self.reply(id, Err(RequestError::TooManyRequests { open }));
        }
        let result = match request {
            Request::Alloc { bytes, name } => self.alloc(id, bytes, name),
            Request::Free { addr } => self.free(id, addr),
            Request::Migrate { range, to } => self.move_to(id, range, RequestKind::Migrate(to)),
            Request::Prefetch { range, to } => self.move_to(id, range, RequestKind::Prefetch(to)),
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

    fn reply(&mut self, id: RequestId, result: Result<Outcome, RequestError>) {
        self.replies.push_back(Reply::Request { id, result });
    }

    fn reply_done(&mut self, id: RequestId, pages_moved: u64) {
        self.reply(id, Ok(Outcome::Done { pages_moved }));
    }

    fn alloc(&mut self, id: RequestId, bytes: u64, name: Arc<str>) -> Result<(), RequestError> {
        if bytes == 0 {
            return Err(RequestError::EmptyAllocation);
        }
        let pages = bytes.div_ceil(PAGE_SIZE as u64);
        let Some(range) = self.space.allocate(pages, bytes, name) else {
            let largest_gap = self.space.largest_gap();
            return Err(RequestError::OutOfAddressSpace { pages, largest_gap });
        };
        let mut poisoned = VecDeque::new();
        for page in self.table.touched(range).into_iter().flat_map(PageRange::pages) {
            if self.table.get(page).has(flag::POISONED) {
                poisoned.push_back(PageRange::page(page));
            }
        }
        self.table.update(range, |entry| {
            let flags = entry.flags & (flag::HOST_UNSAFE | flag::POISONED);
            *entry = PageEntry { state: PageState::Fresh, flags, ..PageEntry::default() };
        });
        if poisoned.is_empty() {
            self.reply(id, Ok(Outcome::Allocated(range)));
        } else {
            // Nobody gets the pages before the program was told of them.
            self.table.update(range, |entry| entry.set(flag::DOOMED, true));
            self.open(id, RequestKind::Alloc, range, poisoned);
        }
        Ok(())
    }

    fn free(&mut self, id: RequestId, addr: VirtAddr) -> Result<(), RequestError> {
        let not_one = RequestError::NotAnAllocation { addr };
        let Some(object) = self.space.starting_at(addr) else {
            return Err(not_one);
        };
        let range = object.range;
        let freed_already = self.requests.values().any(|request| {
            let about_all = matches!(request.kind, RequestKind::Free | RequestKind::Alloc);
            about_all && request.whole == range
        });
        if freed_already || self.lingering.contains(&range) {
            return Err(not_one);
        }
        self.table.update(range, |entry| entry.set(flag::DOOMED, true));
        self.pins.retain(|pin| !pin.range.overlaps(range));
        self.open(id, RequestKind::Free, range, VecDeque::from([range]));
        Ok(())
    }

    fn move_to(
        &mut self,
        id: RequestId,
        range: PageRange,
        kind: RequestKind,
    ) -> Result<(), RequestError> {
        self.check_range(range)?;
        let Some(to) = kind.target() else {
            return Ok(());
        };
        if !self.is_usable(to) {
            return Err(RequestError::NoSuchMemory { memory: to });
        }
        if !matches!(kind, RequestKind::Prefetch(_)) {
            self.check_fit(range, to)?;
            let elsewhere = |pin: &&Pin| pin.at != to && pin.range.overlaps(range);
            if let Some(pin) = self.pins.iter().find(elsewhere) {
                let page = pin.range.intersection(range).start;
                return Err(RequestError::Pinned { page, at: pin.at });
            }
        }
        if let RequestKind::Pin(at) = kind {
            self.pins.push(Pin { range, at, ready: false });
        }
        self.open(id, kind, range, VecDeque::from([range]));
        Ok(())
    }

    /// Whether `range` is there, and all of it allocated.
    fn check_range(&self, range: PageRange) -> Result<(), RequestError> {
        if range.is_empty() {
            return Err(RequestError::EmptyRange);
        }
        let mut page = range.start;
        // Counted from the start: the end of a senseless range may not exist.
        while page.0 - range.start.0 < range.count {
            let object = self.space.holding(page);
            let live = object.filter(|o| !self.table.get(o.range.start).has(flag::DOOMED));
            let Some(object) = live else {
                return Err(RequestError::Unallocated { range, page });
            };
            page = object.range.end();
        }
        Ok(())
    }

    /// Whether `range` can be at `memory` all at once, beside what is pinned there.
    fn check_fit(&self, range: PageRange, memory: MemoryId) -> Result<(), RequestError> {
        let Some(card) = memory.card() else {
            return Ok(());
        };
        let state = &self.cards[card.0 as usize].frames;
        let frames = u64::from(state.total() - state.quarantined());
        let pinned = self.pinned_beside(range, memory);
        if range.count.saturating_add(pinned) > frames {
            let pages = range.count;
            return Err(RequestError::DoesNotFit { memory, pages, frames, pinned });
        }
        Ok(())
    }

    /// Pages that are pinned at `memory`, those of `range` left out. Pins may overlap.
    fn pinned_beside(&self, range: PageRange, memory: MemoryId) -> u64 {
        let at = self.pins.iter().filter(|pin| pin.at == memory);
        let mut ranges: Vec<PageRange> = at.map(|pin| pin.range).collect();
        ranges.sort_unstable_by_key(|pinned| pinned.start);
        let mut counted = PageNo(0);
        let mut pages = 0;
        for pinned in ranges {
            let start = pinned.start.max(counted);
            if pinned.end() > start {
                let new = PageRange::new(start, pinned.end().0 - start.0);
                pages += new.count - new.intersection(range).count;
                counted = new.end();
            }
        }
        pages
    }

    fn unpin(&mut self, id: RequestId, range: PageRange) -> Result<(), RequestError> {
        self.check_range(range)?;
        let Some(at) = self.pins.iter().rposition(|pin| pin.range == range && pin.ready) else {
            return Err(RequestError::NotPinned { page: range.start });
        };
        self.pins.remove(at);
        self.unmark_pins(range);
        self.reply_done(id, 0);
        Ok(())
    }

    /// Takes the mark from pages that no pin covers any more.
    fn unmark_pins(&mut self, range: PageRange) {
        let pins = &self.pins;
        for part in self.table.touched(range) {
            self.table.for_each_mut(part, |page, entry| {
                let covered = pins.iter().any(|pin| pin.range.contains(page));
                entry.set(flag::PINNED, covered && entry.has(flag::PINNED));
            });
        }
    }

    fn advise(
        &mut self,
        id: RequestId,
        range: PageRange,
        advice: Advice,
    ) -> Result<(), RequestError> {
        self.check_range(range)?;
        match advice {
            Advice::ReadMostly(on) => {
                self.table.update(range, |entry| entry.set(flag::READ_MOSTLY, on));
            }
            Advice::Preferred(memory) => {
                if let Some(memory) = memory.filter(|&memory| !self.is_usable(memory)) {
                    return Err(RequestError::NoSuchMemory { memory });
                }
                self.hint(range, |hint| hint.preferred = memory);
            }
            Advice::AccessedBy(agent, on) => {
                if !self.is_usable(agent.home()) {
                    return Err(RequestError::NoSuchMemory { memory: agent.home() });
                }
                self.hint(range, |hint| {
                    let set = hint.accessed_by;
                    hint.accessed_by = if on { set.with(agent) } else { set.without(agent) };
                });
                if on {
                    self.promise_mappings(range);
                }
            }
        }
        self.placement.on_hint(range, advice);
        self.reply_done(id, 0);
        Ok(())
    }

    /// Changes the advice of every allocation in `range`.
    fn hint(&mut self, range: PageRange, change: impl Fn(&mut Hint)) {
        let mut page = range.start;
        while page < range.end() {
            let Some(object) = self.space.holding_mut(page) else {
                break;
            };
            let part = object.range.intersection(range);
            let known = object.hint(page).filter(|hint| hint.range.covers(part)).copied();
            let none = Hint { range: part, preferred: None, accessed_by: AgentSet::EMPTY };
            let mut hint = Hint { range: part, ..known.unwrap_or(none) };
            change(&mut hint);
            object.hints.retain(|old| !part.covers(old.range));
            object.hints.push(hint);
            page = object.range.end();
        }
        self.table.update(range, |entry| entry.set(flag::HINTED, true));
    }

    /// Maps settled pages for those that were promised a mapping and can have one. Only cards: the
    /// CPU maps its own memory by its faults.
    pub(crate) fn promise_mappings(&mut self, range: PageRange) {
        for page in self.table.touched(range).into_iter().flat_map(PageRange::pages) {
            let entry = *self.table.get(page);
            let settled = matches!(entry.state, PageState::Host | PageState::Card);
            let hint = self.space.holding(page).and_then(|object| object.hint(page)).copied();
            let Some(hint) = hint.filter(|_| settled) else {
                continue;
            };
            for agent in hint.accessed_by.minus(entry.directory.mappers()).iter() {
                self.promise_mapping(page, &entry, agent);
            }
        }
    }

    fn promise_mapping(&mut self, page: PageNo, entry: &PageEntry, agent: AgentId) {
        let Some(card) = agent.card() else { return };
        let memory = entry.owner();
        if self.is_dead(agent.home()) || !self.config.capabilities.can_map(agent, memory) {
            return;
        }
        let read_only = entry.has(flag::READ_ONLY);
        let rights = if read_only { Rights::Read } else { Rights::ReadWrite };
        let frame = self.frame_at(page, entry, memory);
        self.table.get_mut(page).directory.map(agent, rights);
        let runs = [Run { page, count: 1, src: frame, dst: frame }].as_slice().into();
        let op = RingOp::Map { runs, memory, rights };
        self.issue_detached(card, op);
    }

    fn protect(
        &mut self,
        id: RequestId,
        range: PageRange,
        rights: Rights,
    ) -> Result<(), RequestError> {
        self.check_range(range)?;
        let on = rights == Rights::Read;
        self.table.update(range, |entry| entry.set(flag::READ_ONLY, on));
        if on {
            self.open(id, RequestKind::Protect, range, VecDeque::from([range]));
        } else {
            self.reply_done(id, 0);
        }
        Ok(())
    }

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
        let most = u64::from(self.config.limits.chain_pages);
        for page in range.pages().take(most as usize) {
            let left = PageRange::new(page, range.end().0 - page.0);
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
            match transition {
                Some(transition) => {
                    let (src, dst) = self.frames_for(page, &entry, &transition);
                    plan.add(transition, page, src, dst);
                }
                None => self.mark_pin(kind, PageRange::page(page)),
            }
            seen += 1;
        }
        Walk::Ready(plan, seen)
    }

    /// Whether a request has nothing to do for the first pages of `range`, because nobody has
    /// touched their block.
    fn is_passed(&self, kind: RequestKind, range: PageRange) -> bool {
        let passes = matches!(kind, RequestKind::Free | RequestKind::Trim | RequestKind::Protect);
        passes && self.reservations.is_empty() && range.start.0 % BLOCK_PAGES == 0 && {
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

    fn mark_pin(&mut self, kind: RequestKind, range: PageRange) {
        if let RequestKind::Pin(_) = kind {
            self.table.for_each_mut(range, |_, entry| entry.set(flag::PINNED, true));
        }
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
                let idle = entry.has(flag::HOST_BACKED) && !copies.contains(MemoryId::HOST);
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
        let prefetch = matches!(kind, RequestKind::Prefetch(_));
        let read_only = entry.has(flag::READ_ONLY) && !to.is_host();
        let there = copies.contains(to) && (prefetch || read_only || copies.len() == 1);
        if there || (prefetch && entry.has(flag::PINNED)) {
            return Ok(None);
        }
        if entry.has(flag::PINNED) {
            // Pinned while this request waited for the page.
            let elsewhere = |pin: &&Pin| pin.at != to && pin.range.contains(page);
            if let Some(pin) = self.pins.iter().find(elsewhere) {
                return Err(RequestError::Pinned { page, at: pin.at });
            }
        }
        let (action, reason) = match kind {
            RequestKind::Prefetch(_) if entry.has(flag::READ_MOSTLY) => {
                (Action::Duplicate, Reason::Prefetch)
            }
            RequestKind::Prefetch(_) => (Action::Migrate, Reason::Prefetch),
            _ => (Action::Migrate, Reason::User),
        };
        let reads = read_only || (prefetch && action == Action::Duplicate);
        let access = if reads { Access::Read } else { Access::Write };
        let transition = self.transition(entry, to.agent(), access, action, reason);
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
        if !all && matches!(request.kind, RequestKind::Prefetch(_)) {
            // No room is left, and a prefetch evicts nothing: what is under way is all it does.
            request.left.clear();
            return true;
        }
        all
    }

    fn is_prefetch(&self, id: RequestId) -> bool {
        let request = self.requests.get(&id);
        request.is_some_and(|request| matches!(request.kind, RequestKind::Prefetch(_)))
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
            self.start_chain(now, vec![Part::new(part.transition, runs)], purpose);
        }
        if let Some((card, missing)) = missing.filter(|_| !self.is_prefetch(id)) {
            self.wait_for_frames(now, card, missing, std::iter::once(Work::Request(id)));
        }
        left
    }

    /// A chain of a request has ended well.
    pub(crate) fn request_progress(&mut self, id: RequestId, chain: ChainId) {
        let parts = &self.chains[chain].parts;
        let moved: u64 = parts
            .iter()
            .filter(|part| part.transition.fill != Fill::Nothing)
            .map(|part| u64::from(part.pages))
            .sum();
        let runs: Vec<PageRange> =
            parts.iter().flat_map(|part| part.runs.iter().map(Run::pages)).collect();
        let Some(request) = self.requests.get_mut(&id) else {
            return;
        };
        request.chains -= 1;
        request.pages_moved += moved;
        let kind = request.kind;
        for range in runs {
            self.mark_pin(kind, range);
        }
        self.finish_request(id);
    }

    /// A chain of a request, or the request itself, has failed.
    pub(crate) fn request_failed(&mut self, id: RequestId, error: RequestError) {
        let Some(request) = self.requests.get_mut(&id) else {
            return;
        };
        request.error.get_or_insert(error);
        request.left.clear();
        self.finish_request(id);
    }

    /// The chain of a request was rolled back.
    pub(crate) fn request_rolled_back(
        &mut self,
        id: RequestId,
        chain: ChainId,
        error: RequestError,
    ) {
        let Some(request) = self.requests.get_mut(&id) else { return };
        request.chains -= 1;
        request.attempts = request.attempts.saturating_add(1);
        let again = matches!(request.kind, RequestKind::Free | RequestKind::Protect);
        let spent = request.attempts >= self.config.limits.attempts;
        if again && (!spent || self.mutated.on(Mutation::RetryForever)) {
            let parts = self.chains[chain].parts.iter();
            request.left.extend(parts.flat_map(|part| part.runs.iter().map(Run::pages)));
            return self.work.push_back(Work::Request(id));
        }
        self.request_failed(id, error);
    }

    /// Answers a request when nothing of it is left.
    fn finish_request(&mut self, id: RequestId) {
        let Some(request) = self.requests.get(&id) else {
            return;
        };
        if request.chains > 0 || !request.left.is_empty() {
            return;
        }
        let Some(request) = self.requests.remove(&id) else {
            return;
        };
        if request.destination().is_some() {
            self.wake_for_room();
        }
        let OpenRequest { kind, whole, pages_moved, error, .. } = request;
        match (kind, error) {
            (RequestKind::Free, None) => {
                self.remove_object(whole);
                self.reply_done(id, 0);
            }
            (RequestKind::Alloc, None) => {
                self.table.update(whole, |entry| entry.set(flag::DOOMED, false));
                self.wake(Until::Poisoned);
                self.reply(id, Ok(Outcome::Allocated(whole)));
            }
            (RequestKind::Alloc, Some(error)) => {
                self.remove_object(whole);
                self.wake(Until::Poisoned);
                self.reply(id, Err(error));
            }
            (RequestKind::Pin(at), Some(error)) => {
                if let Some(pin) = self.open_pin(whole, at) {
                    self.pins.remove(pin);
                }
                self.unmark_pins(whole);
                self.reply(id, Err(error));
            }
            (RequestKind::Pin(at), None) => {
                if let Some(pin) = self.open_pin(whole, at) {
                    self.pins[pin].ready = true;
                }
                self.reply_done(id, pages_moved);
            }
            (_, Some(error)) => self.reply(id, Err(error)),
            (_, None) => self.reply_done(id, pages_moved),
        }
    }

    /// The pin that a request under way is making.
    fn open_pin(&self, range: PageRange, at: MemoryId) -> Option<usize> {
        self.pins.iter().rposition(|pin| *pin == Pin { range, at, ready: false })
    }

    /// The addresses of a freed allocation can be used again.
    fn remove_object(&mut self, range: PageRange) {
        self.placement.on_free(range);
        if self.is_held(range) {
            return self.lingering.push(range);
        }
        self.give_addresses_back(range);
    }

    /// Nobody maps a page of the freed allocation any more.
    pub(crate) fn give_addresses_back(&mut self, range: PageRange) {
        self.table.update(range, |entry| {
            let flags = entry.flags & (flag::POISONED | flag::HOST_UNSAFE);
            *entry = PageEntry { flags, ..PageEntry::default() };
        });
        self.space.remove(range.start);
    }

    /// Whether `page` belongs to an allocation that the program was not told of yet.
    pub(crate) fn is_being_allocated(&self, page: PageNo, entry: &PageEntry) -> bool {
        let opens = |request: &OpenRequest| {
            request.kind == RequestKind::Alloc && request.whole.contains(page)
        };
        entry.has(flag::DOOMED) && self.requests.values().any(opens)
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

    /// The age of a request: smaller is older.
    pub(crate) fn serial_of(&self, id: RequestId) -> u64 {
        self.requests.get(&id).map_or(u64::MAX, |request| request.serial)
    }
}
