//! The oracle: whether an error of the driver has a legitimate reason, from what the harness
//! knows by itself. An error without one is as much a violation as wrong data.

use farside_svm::{Outcome, Request, RequestError};
use farside_types::{
    AgentId, CancelReason, CardId, CommandId, MemoryId, PAGE_SIZE, PageNo, PageRange, RequestId,
    Rights,
};

use crate::access::Fault;
use crate::facts::{PageFacts, holds};
use crate::machine::Machine;
use crate::violation::{Violation, ensure};

/// Alignment that an allocation may ask for, in pages.
const ALIGNMENT_SLACK: u64 = farside_types::BLOCK_PAGES;

/// A request that waits for its reply.
#[derive(Clone, Debug)]
pub(crate) struct OpenRequest {
    pub(crate) request: Request,
    /// When it was made (machine stamp).
    pub(crate) issued: u64,
    /// For a free of an allocation, or what gives adopted memory back: its pages.
    pub(crate) freeing: Option<PageRange>,
}

impl OpenRequest {
    /// The pages it is about, if it is about pages.
    pub(crate) fn range(&self) -> Option<PageRange> {
        match self.request {
            Request::Migrate { range, .. }
            | Request::Recall { range }
            | Request::Prefetch { range, .. }
            | Request::Advise { range, .. }
            | Request::Pin { range, .. }
            | Request::Unpin { range }
            | Request::Protect { range, .. } => Some(range),
            Request::Disown { .. } => self.freeing,
            Request::Alloc { .. }
            | Request::Free { .. }
            | Request::Adopt { .. }
            | Request::Trim => None,
        }
    }

    /// The memory it names.
    fn target(&self) -> Option<MemoryId> {
        match self.request {
            Request::Migrate { to, .. } | Request::Prefetch { to, .. } => Some(to),
            Request::Pin { at, .. } => Some(at),
            _ => None,
        }
    }
}

impl Machine {
    /// The fault is cancelled: was there a reason since it was raised?
    pub(crate) fn judge_cancel(
        &mut self,
        fault: &Fault,
        reason: CancelReason,
    ) -> Result<(), Violation> {
        let since = fault.raised;
        let pages = fault.pages();
        let any = |test: &dyn Fn(PageNo) -> bool| pages.iter().any(|&(page, _)| test(page));
        let legitimate = match reason {
            CancelReason::Unallocated | CancelReason::Freed => {
                any(&|page| self.facts.was_dead(page, since))
            }
            CancelReason::ReadOnly => pages.iter().any(|&(page, kind)| {
                kind.is_write()
                    && (self.facts.was_read_only(page, since) || self.is_being_protected(page))
            }),
            CancelReason::Lost => any(&|page| self.may_be_lost(page)),
            CancelReason::CopyFailed | CancelReason::Held(_) => {
                // Bounce buffers that a card may still write are out of use.
                any(&|page| self.facts.had_failure(page, since))
                    || self.cards.iter().any(|card| card.doubtful)
            }
            CancelReason::OutOfMemory => {
                let (memory, count) = (fault.card.memory(), pages.len() as u64);
                let pinned = self.facts.pinned_at(memory, PageRange::default());
                self.is_full(memory, count, since)
                    || self.is_blocked(memory, count + pinned + self.pins_open(memory))
            }
            CancelReason::GroupTooLarge => {
                let count = pages.len() as u64;
                fault.access.is_none()
                    && (count > self.limits.group_pages
                        || self.is_full(fault.card.memory(), count, since))
            }
            CancelReason::CardLost(card) => self.is_gone(card),
            CancelReason::PinnedElsewhere => {
                let is_pinned = |page| self.may_be_pinned(page, MemoryId::HOST);
                let can_map = self.capabilities.can_map(fault.card.agent(), MemoryId::HOST);
                (!can_map || any(&|page| self.moves_adopted(page)))
                    && (any(&is_pinned) || self.facts.last_unpin >= since)
            }
            CancelReason::HostKeeps => {
                any(&|page| self.moves_adopted(page) && self.facts.had_failure(page, since))
            }
            CancelReason::TooManyFaults => self.faults.len() >= self.limits.faults,
            // The driver has nothing to do with windows.
            CancelReason::WindowFull => false,
        };
        ensure!(
            legitimate,
            "{} ({:?}) of {} is cancelled as {reason:?}, without a reason",
            fault.id,
            fault.need,
            fault.job
        );
        Ok(())
    }

    /// Whether the page was on a card that went away, or is on one that does not let it go.
    fn may_be_lost(&self, page: PageNo) -> bool {
        let stuck = self.cards.iter().filter(|card| card.doubtful);
        self.facts.was_lost(page) || stuck.into_iter().any(|card| self.has(card.id.memory(), page))
    }

    /// Whether a frame of the memory is the page's.
    fn has(&self, memory: MemoryId, page: PageNo) -> bool {
        self.memory(memory).frames.iter().any(|frame| frame.page == Some(page))
    }

    /// Whether a request to let cards only read the page is under way.
    fn is_being_protected(&self, page: PageNo) -> bool {
        self.requests.values().any(|open| match open.request {
            Request::Protect { range, rights: Rights::Read } => holds(range, page),
            _ => false,
        })
    }

    /// Whether `pages` pages more cannot be in a memory, whatever is evicted.
    fn is_full(&self, memory: MemoryId, pages: u64, since: u64) -> bool {
        let frames = self.memory(memory).frames.len() as u64;
        let pinned = self.facts.pinned_at(memory, PageRange::default()) + self.pins_open(memory);
        // What a card that does not answer may still write is out of use, wherever it is.
        let doubtful = self.cards.iter().any(|card| card.doubtful);
        pages + pinned > frames
            || doubtful
            || self.facts.last_failure >= since
            || self.facts.last_unpin >= since
    }

    /// Whether so many pages cannot be in a memory beside others that could not be sent away: that is not
    /// tried for ever. It is the reason of one refusal, and is tried again then.
    fn is_blocked(&mut self, memory: MemoryId, pages: u64) -> bool {
        let frames = &self.memory(memory).frames;
        let stays = |page: &PageNo| {
            let facts = self.facts.get(*page);
            facts.is_some_and(|facts| facts.stays && !facts.pins.contains(&memory))
        };
        let stay: Vec<PageNo> = frames.iter().filter_map(|f| f.page).filter(stays).collect();
        let blocked = !stay.is_empty() && pages + stay.len() as u64 > frames.len() as u64;
        if blocked {
            let refused =
                |&page: &PageNo| self.facts.each(PageRange::page(page), |f| f.stays = false);
            stay.iter().for_each(refused);
        }
        blocked
    }

    /// Pages of pin requests that are under way.
    fn pins_open(&self, memory: MemoryId) -> u64 {
        let pages = |open: &OpenRequest| match open.request {
            Request::Pin { range, at } if at == memory => range.count.min(self.arena.count),
            _ => 0,
        };
        self.requests.values().map(pages).sum()
    }

    fn is_gone(&self, card: CardId) -> bool {
        self.cards
            .get(usize::from(card.0))
            .is_none_or(|card| card.lost || card.doubtful || card.recovering)
    }

    /// The CPU's accesses to a page are about to end with an error: is there a reason?
    pub(crate) fn judge_poison(&self, id: CommandId, page: PageNo) -> Result<(), Violation> {
        let facts = self.facts.get(page);
        let stuck = self.cards.iter().any(|card| card.doubtful || card.lost);
        ensure!(
            stuck || facts.is_none_or(|facts| !facts.live || facts.lost || facts.failed),
            "{id} poisons {page}, which is allocated, not lost, and never failed"
        );
        Ok(())
    }

    /// An access of the CPU ended with an error: is there a reason?
    pub(crate) fn judge_poisoned_access(&self, page: PageNo, since: u64) -> Result<(), Violation> {
        ensure!(
            self.facts.was_dead(page, since)
                || self.may_be_lost(page)
                || self.facts.had_failure(page, since),
            "an access of the cpu to {page} ended with an error, without a reason"
        );
        Ok(())
    }

    /// A reply arrived: takes over what it says, after judging it.
    pub(crate) fn judge_reply(
        &mut self,
        id: RequestId,
        result: &Result<Outcome, RequestError>,
    ) -> Result<(), Violation> {
        let Some(open) = self.requests.remove(&id) else {
            return Err(Violation(format!("{id} is answered, but it is not open: {result:?}")));
        };
        match result {
            Ok(outcome) => self.judge_success(id, &open, *outcome),
            Err(error) => {
                ensure!(
                    self.error_is_legitimate(&open, error) || self.request_is_blocked(&open, error),
                    "{id} ({:?}) failed without a reason: {error}",
                    open.request
                );
                self.restore(&open, error);
                Ok(())
            }
        }
    }

    /// A free that was refused leaves the allocation alive; after a change of rights that failed
    /// cards may or may not be kept from writing.
    fn restore(&mut self, open: &OpenRequest, error: &RequestError) {
        if let Request::Protect { range, .. } = open.request {
            self.facts.each(range, |facts| facts.read_only_at = Some(u64::MAX));
        }
        if let Request::Pin { .. } = open.request {
            // As long as it was under way others may have met its pins.
            self.facts.last_unpin = self.stamp;
        }
        if let (Request::Disown { .. }, Some(range)) = (&open.request, open.freeing) {
            match error {
                RequestError::TooManyRequests { .. } => self.facts.stayed(range),
                _ => self.facts.left(range, self.stamp, false),
            }
            self.allocations.push(range);
        } else if let Some(range) = open.freeing {
            // Where it went wrong half way nobody has the pages any more, until they are freed.
            let half =
                matches!(error, RequestError::NotLetGo { .. } | RequestError::NotReleased { .. });
            self.facts.each(range, |facts| {
                facts.half_freed |= half;
                facts.live = !facts.half_freed;
            });
            self.allocations.push(range);
        }
    }

    fn judge_success(
        &mut self,
        id: RequestId,
        open: &OpenRequest,
        outcome: Outcome,
    ) -> Result<(), Violation> {
        self.judge_range(id, open)?;
        let stamp = self.stamp;
        match open.request {
            Request::Alloc { bytes, .. } => self.take_allocation(id, bytes, outcome)?,
            Request::Free { addr } => {
                let Some(range) = open.freeing else {
                    return Err(Violation(format!("{id} freed {addr}, which is no allocation")));
                };
                self.facts.freed(range);
            }
            Request::Adopt { range, moves, .. } => self.take_adopted(id, range, moves)?,
            Request::Disown { addr } => {
                let Some(range) = open.freeing else {
                    return Err(Violation(format!("{id} gave {addr} back, which was not adopted")));
                };
                self.take_back(id, range)?;
            }
            Request::Pin { range, at } => {
                self.date_waiting();
                self.facts.pin(range, at, open.issued);
            }
            Request::Unpin { range } => {
                let home = range.pages().find(|&page| self.stays_home(page));
                ensure!(
                    home.is_none() || self.facts.pinned.contains(&range),
                    "{id} unpins {home:?}, which holds other data as well, and which the program has not pinned"
                );
                self.facts.unpin(range, stamp);
            }
            Request::Protect { range, rights } => self.facts.each(range, |facts| {
                facts.cards_read_only = rights == Rights::Read;
                facts.read_only_at = Some(stamp);
            }),
            _ => {}
        }
        Ok(())
    }

    /// What must have been refused and was not.
    fn judge_range(&self, id: RequestId, open: &OpenRequest) -> Result<(), Violation> {
        let Some(range) = open.range() else { return Ok(()) };
        ensure!(range.count > 0, "{id} about no page at all succeeded");
        ensure!(
            range.count <= self.arena.count,
            "{id} about {} pages succeeded; the arena has {}",
            range.count,
            self.arena.count
        );
        let dead = range.pages().find(|&page| self.facts.was_dead(page, open.issued));
        let still = dead.filter(|&page| self.facts.get(page).is_none_or(|f| !f.live));
        let raced = still.is_some_and(|page| {
            self.facts.get(page).is_some_and(|facts| facts.dead_at >= open.issued)
        });
        ensure!(
            still.is_none() || raced,
            "{id} ({:?}) succeeded, but {:?} is not allocated",
            open.request,
            still
        );
        if let Some(memory) = open.target() {
            ensure!(
                usize::from(memory.0) < self.memories.len(),
                "{id} to {memory}, which does not exist, succeeded"
            );
            let frames = self.memory(memory).frames.len() as u64;
            ensure!(
                range.count <= frames || matches!(open.request, Request::Prefetch { .. }),
                "{id}: {} pages in {memory}, which has {frames} frames",
                range.count
            );
        }
        Ok(())
    }

    fn take_allocation(
        &mut self,
        id: RequestId,
        bytes: u64,
        outcome: Outcome,
    ) -> Result<(), Violation> {
        let Outcome::Allocated(range) = outcome else {
            return Err(Violation(format!("{id} asked for memory and got {outcome:?}")));
        };
        let pages = bytes.div_ceil(PAGE_SIZE as u64);
        ensure!(range.count == pages && pages > 0, "{id}: {bytes} bytes became {range}");
        ensure!(self.arena.covers(range), "{id}: {range} is not in the arena {}", self.arena);
        let dying = self.requests.values().filter_map(|open| open.freeing);
        let taken = self.allocations.iter().copied().chain(dying).find(|r| r.overlaps(range));
        ensure!(taken.is_none(), "{id}: {range} overlaps {taken:?}");
        self.facts.allocated(range, self.stamp);
        self.reference.clear(range);
        self.allocations.push(range);
        Ok(())
    }

    fn error_is_legitimate(&self, open: &OpenRequest, error: &RequestError) -> bool {
        let since = open.issued;
        let asked = |page: PageNo| open.range().is_some_and(|range| holds(range, page));
        match *error {
            RequestError::EmptyAllocation => {
                matches!(open.request, Request::Alloc { bytes: 0, .. })
            }
            RequestError::OutOfAddressSpace { pages, .. } => {
                // What a card does not let go stays out of use.
                self.largest_gap() < pages.saturating_add(ALIGNMENT_SLACK)
                    || self.cards.iter().any(|card| card.doubtful)
            }
            RequestError::NotAnAllocation { .. } => open.freeing.is_none(),
            RequestError::Unallocated { page, .. } | RequestError::Freed { page } => {
                asked(page) && self.facts.was_dead(page, since)
            }
            RequestError::EmptyRange => match open.request {
                Request::Adopt { range, .. } => range.count == 0,
                _ => open.range().is_some_and(|range| range.count == 0),
            },
            RequestError::NoSuchMemory { memory } => {
                memory.card().is_some_and(|card| self.is_gone(card))
                    || usize::from(memory.0) >= self.memories.len()
                    || self.facts.last_failure >= since
            }
            RequestError::DoesNotFit { memory, .. } => {
                let pages = open.range().map_or(0, |range| range.count);
                pages > self.arena.count || self.range_is_too_large(open, memory, pages)
            }
            RequestError::Pinned { page, at } => {
                asked(page) && (self.may_be_pinned(page, at) || self.facts.last_unpin >= since)
            }
            // A pin is undone as it was made: for the same range.
            RequestError::NotPinned { page } => {
                let range = open.range().unwrap_or_default();
                asked(page)
                    && (!self.facts.pinned.contains(&range)
                        || self.facts.last_unpin >= since
                        || self.facts.was_dead(page, since))
            }
            RequestError::CopyFailed { page, from, to } => {
                // A card that is gone fails what it is given before the driver hears of it.
                let ends = [from, to].into_iter().filter_map(MemoryId::card);
                asked(page) && self.facts.had_failure(page, since)
                    || self.facts.last_failure >= since
                    || self.cards.iter().any(|card| card.doubtful)
                    || ends.into_iter().any(|card| self.is_gone(card))
            }
            RequestError::NotLetGo { page, .. } | RequestError::NotReleased { page, .. } => {
                let freed = open.freeing.is_some_and(|range| holds(range, page));
                let about = asked(page)
                    || freed
                    || matches!(open.request, Request::Trim | Request::Alloc { .. });
                about && self.facts.had_failure(page, since)
                    || self.cards.iter().any(|card| card.doubtful)
            }
            RequestError::Lost { page, .. } => asked(page) && self.may_be_lost(page),
            // Requests of this program come after nothing.
            RequestError::NotBegun { .. } => false,
            RequestError::InTheSpace { range, .. } => self.is_taken(range),
            RequestError::TooManyRequests { .. } => self.requests.len() >= self.limits.requests,
        }
    }

    fn range_is_too_large(&self, open: &OpenRequest, memory: MemoryId, pages: u64) -> bool {
        let frames = self.memory(memory).frames.len() as u64;
        let range = open.range().unwrap_or_default();
        pages + self.held_for_others(memory, range, open.issued) > frames
            || self.is_full(memory, 0, open.issued)
    }

    /// Whether a request does not fit beside pages that could not be sent away.
    fn request_is_blocked(&mut self, open: &OpenRequest, error: &RequestError) -> bool {
        let range = open.range().unwrap_or_default();
        match *error {
            RequestError::DoesNotFit { memory, .. } => self
                .is_blocked(memory, range.count + self.held_for_others(memory, range, open.issued)),
            _ => false,
        }
    }

    /// Frames of a memory that are not taken from who has them, for the pages of `range`.
    fn held_for_others(&self, memory: MemoryId, range: PageRange, since: u64) -> u64 {
        let pinned = self.facts.pinned_at(memory, range) + self.pins_open(memory);
        // What its kernels wait for, all at once, is not taken from them.
        pinned + self.facts.wanted_by(AgentId(memory.0), range, since)
    }

    fn may_be_pinned(&self, page: PageNo, at: MemoryId) -> bool {
        let pinned = self.facts.get(page).is_some_and(|facts| facts.pins.contains(&at));
        pinned
            || self.requests.values().any(|open| match open.request {
                Request::Pin { range, at: other } => other == at && holds(range, page),
                _ => false,
            })
    }

    /// The largest range of the arena that nothing holds.
    fn largest_gap(&self) -> u64 {
        let dying = self.requests.values().filter_map(|open| open.freeing);
        let known = self.allocations.iter().copied().chain(dying);
        let mut taken: Vec<PageRange> = known.filter(|range| self.arena.covers(*range)).collect();
        taken.sort();
        taken.push(PageRange::new(self.arena.end(), 0));
        let mut at = self.arena.start;
        let mut largest = 0;
        for range in taken {
            largest = largest.max(range.start.0.saturating_sub(at.0));
            at = at.max(range.end());
        }
        largest
    }

    /// Judges an eviction: it never takes a pinned page (driver rule 9).
    pub(crate) fn judge_eviction(&self, command: &farside_svm::Command) -> Result<(), Violation> {
        use farside_svm::{Command, Place, RingOp};
        let from = match command {
            Command::Transfer(_, step) => match step.op.source() {
                Some(Place::Memory(from)) => from,
                Some(Place::Bounce(_)) | None => return Ok(()),
            },
            Command::Ring(card, step) if matches!(step.op, RingOp::Unmap { .. }) => card.memory(),
            Command::Ring(..) | Command::Host(_) => return Ok(()),
        };
        let pinned = command.runs().iter().flat_map(|run| run.pages().pages()).find(|&page| {
            let pinned = |facts: &PageFacts| facts.live && facts.pins.contains(&from);
            // A card that is told to let go of a page may have it mapped in another memory.
            self.facts.get(page).is_some_and(pinned) && self.has(from, page)
        });
        ensure!(
            command.header().reason != farside_types::Reason::Eviction || pinned.is_none(),
            "{} evicts {pinned:?}, which is pinned at {from}",
            command.id()
        );
        Ok(())
    }
}
