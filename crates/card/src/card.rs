//! The card as one thing: commands on one side, processing elements on the other.
//!
//! Every method is one atomic step; the embedder calls them under one lock.

use std::ops::RangeInclusive;
use std::sync::Arc;

use farside_types::{
    Access, Asid, CancelReason, CardId, CommandId, FaultId, JobId, List, MemoryId, PageNo,
    PageRange, PeId, Rights, Shelved,
};

use crate::fault::Open;
use crate::grant::translate;
use crate::key::{KeyRange, clamp};
use crate::mmu::{check, check_frames};
use crate::mutation::CardMutation;
use crate::need::validate_ranges;
use crate::tables::{BusPages, PageBits, TableWriter, Tables};
use crate::{
    AccessId, AcquireError, CardStats, CounterNotice, Counters, DrainKind, Drained, Fault,
    FaultQueue, Geometry, GeometryError, Grant, InFlight, Level, Location, Lookup, MapError,
    MappedRun, Mmu, Need, PeError, PeState, Pes, RaiseError, Raised, Waiter, Words,
};

/// How a fault of one processing element ended. Whoever embeds the card hands it over.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Answer {
    /// Who waited.
    pub pe: PeId,
    /// The job it runs.
    pub job: JobId,
    /// How it ended.
    pub outcome: Outcome,
}

/// How a fault ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// Here is the memory; it is in flight until [`Card::end`].
    Granted(Grant),
    /// Something was taken away again in between: raise the fault once more.
    Retry,
    /// There will be no memory; the job fails with this.
    Cancelled(CancelReason),
    /// The job is no longer wanted.
    Aborted,
}

/// What an abort ended.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Aborted {
    /// The processing elements that stood in a fault; their threads may still wait for an answer.
    pub answers: Vec<Answer>,
    /// Drains that completed because the job's accesses were ended.
    pub drains: Vec<CommandId>,
}

/// Lists of each kind that there are from the start, once for all cards of the process, and their room.
const LISTS: usize = 16;
const LIST_ROOM: usize = 256;

/// Makes the lists that grants and drains are made of: a card in the program is told of them by whoever
/// serves a fault, who must not need an allocator.
fn stock_shelves() {
    MappedRun::shelf().stock(LISTS, LIST_ROOM);
    KeyRange::shelf().stock(LISTS, LIST_ROOM);
    crate::in_flight::stock_shelf(LISTS, LIST_ROOM);
    CommandId::shelf().stock(LISTS, LIST_ROOM);
    PageRange::shelf().stock(LISTS, LIST_ROOM);
    u64::shelf().stock(LISTS, LIST_ROOM);
    u32::shelf().stock(LISTS, LIST_ROOM);
}

/// Clears the bits of those of `pages` that are in `range`, whose first page has bit `first`.
fn clear_bits(bits: &mut PageBits, first: u64, range: PageRange, pages: PageRange) {
    let pages = pages.intersection(clamp(range));
    let start = first.saturating_add(pages.start.0 - range.start.0);
    for index in start..start.saturating_add(pages.count).min(bits.told()) {
        bits.clear(index);
    }
}

/// The words that are accessed without the card's lock, once somebody has asked to. A copy of a card
/// has tables of its own, which nobody has asked for.
#[derive(Debug, Default)]
struct Unlocked(Option<Arc<Words>>);

impl Clone for Unlocked {
    fn clone(&self) -> Unlocked {
        Unlocked::default()
    }
}

impl Unlocked {
    fn renew(&self) {
        if let Some(words) = &self.0 {
            words.renew();
        }
    }
}

/// A card.
#[derive(Clone, Debug)]
pub struct Card {
    id: CardId,
    frames: u32,
    geometry: Geometry,
    mmu: Mmu,
    in_flight: InFlight,
    faults: FaultQueue,
    counters: Counters,
    pes: Pes,
    words: Unlocked,
    stats: CardStats,
}

impl Card {
    /// A card in its known state: nothing mapped, nothing running. Its memory has `frames` frames.
    ///
    /// # Errors
    /// [`GeometryError`] if the sizes make no card.
    pub fn new(id: CardId, frames: u32, geometry: Geometry) -> Result<Card, GeometryError> {
        let geometry = Geometry { table_pages: geometry.table_pages_for(frames), ..geometry };
        stock_shelves();
        Ok(Card {
            id,
            frames,
            geometry,
            mmu: Mmu::with_tables(&geometry, id.memory())?,
            in_flight: InFlight::with_room(geometry.pes),
            faults: FaultQueue::new(id, geometry.fault_entries as usize),
            counters: Counters::new(
                geometry.counter_group,
                geometry.counter_threshold,
                geometry.counter_groups_max as usize,
            ),
            pes: Pes::new(geometry.pes),
            words: Unlocked::default(),
            stats: CardStats::default(),
        })
    }

    /// Breaks one rule of the tables on purpose, before they are shared (feature `mutations`).
    #[cfg(any(test, feature = "mutations"))]
    pub fn mutate(&mut self, mutation: CardMutation) {
        if let Some(tables) = self.mmu.tables_mut() {
            tables.mutate(mutation);
        }
    }

    /// Which card.
    pub fn id(&self) -> CardId {
        self.id
    }

    /// The memory on it.
    pub fn memory(&self) -> MemoryId {
        self.id.memory()
    }

    /// Frames of its memory.
    pub fn frames(&self) -> u32 {
        self.frames
    }

    /// Its sizes.
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// What it has counted.
    pub fn stats(&self) -> CardStats {
        let mut stats = self.stats;
        self.mmu.count_into(&mut stats);
        stats.counter_groups_forgotten = self.counters.forgotten();
        stats
    }

    // The command side: what the driver tells the card.

    /// Inserts translations, and keeps them in the open faults that need them.
    ///
    /// # Errors
    /// [`MapError`], counted, if one of the runs cannot be; then none was inserted.
    pub fn map(
        &mut self,
        asid: Asid,
        runs: impl Iterator<Item = MappedRun> + Clone,
        rights: Rights,
    ) -> Result<(), MapError> {
        self.map_as(asid, runs, rights, false)
    }

    /// [`Card::map`] of pages that count as written from the beginning, because there is no other copy
    /// of them. Only tables make a difference.
    ///
    /// # Errors
    /// As for [`Card::map`].
    pub fn map_written(
        &mut self,
        asid: Asid,
        runs: impl Iterator<Item = MappedRun> + Clone,
        rights: Rights,
    ) -> Result<(), MapError> {
        self.map_as(asid, runs, rights, true)
    }

    fn map_as(
        &mut self,
        asid: Asid,
        runs: impl Iterator<Item = MappedRun> + Clone,
        rights: Rights,
        written: bool,
    ) -> Result<(), MapError> {
        if let Some(error) = runs.clone().find_map(|run| self.check_run(&run).err()) {
            self.stats.mappings_refused += 1;
            return Err(error);
        }
        for run in runs {
            self.mmu.insert_as(asid, run, rights, written)?;
            self.faults.fill(asid, run, rights);
            self.stats.pages_mapped += u64::from(run.count);
        }
        // Nobody goes on where such a page was before.
        self.drain_words();
        Ok(())
    }

    /// Of a card in the program, which reaches every memory without a bus: its tables have entries for
    /// pages in all of them. To be said before anything is mapped.
    ///
    /// Whoever maps pages in such a card may serve a fault of the program: the first tables are there from now
    /// on, so that nobody has to allocate them.
    pub fn reach_memories(&mut self) {
        if let Some(tables) = self.mmu.tables_mut() {
            tables.name_bus_pages(BusPages::Memories);
            tables.stock();
        }
        self.words.0.get_or_insert_default();
    }

    /// Counts accesses to a page in another memory that were made without the card's lock.
    pub fn count_remote(&mut self, asid: Asid, page: PageNo, accesses: u32) {
        self.stats.remote_accesses += u64::from(accesses);
        self.counters.record(asid, page, accesses);
    }

    /// Lets somebody access words without the card's lock, by its tables; `None` if it has none. Every
    /// method that takes pages away waits for the words that are under way.
    /// Who does is a [`Words::user`] of these.
    pub fn share_tables(&mut self) -> Option<(Arc<Tables>, Arc<Words>)> {
        let words = self.words.0.get_or_insert_default();
        let tables = self.mmu.tables_mut()?.share(Arc::clone(words));
        Some((tables, Arc::clone(words)))
    }

    /// Waits for the words that are under way without the card's lock. Those that begin later find
    /// what was changed before.
    pub fn drain_words(&self) {
        if let Some(words) = &self.words.0 {
            words.drain();
        }
    }

    /// Has who accesses words without the card's lock see with the next one what has changed beside the
    /// tables.
    pub fn disturb_words(&self) {
        if let Some(words) = &self.words.0 {
            words.disturb();
        }
    }

    /// Counts walks that were made without the card's lock.
    pub fn count_walks(&mut self, walks: u64) {
        self.mmu.count_walks(walks);
    }

    fn check_run(&self, run: &MappedRun) -> Result<(), MapError> {
        check(run)?;
        if run.location.memory == self.memory() {
            check_frames(run.location, run.count, self.frames.into())?;
        }
        Ok(())
    }

    /// Takes translations away and drains. When the drain is done, now or later, no access goes
    /// through any of them.
    pub fn unmap(
        &mut self,
        command: CommandId,
        asid: Asid,
        ranges: impl Iterator<Item = PageRange> + Clone,
    ) -> Drained {
        self.unmap_telling(command, asid, ranges, &mut PageBits::new(0, 0))
    }

    /// [`Card::unmap`], which clears the bits of pages that were not written: they have entries in the
    /// tables that say so. `written` has a bit for each page of the ranges, in their order.
    ///
    /// The bits are final: an access sets them before it begins, and none begins any more.
    pub fn unmap_telling(
        &mut self,
        command: CommandId,
        asid: Asid,
        ranges: impl Iterator<Item = PageRange> + Clone,
        written: &mut PageBits,
    ) -> Drained {
        let mut first = 0u64;
        for range in ranges.clone() {
            self.mmu.invalidate_telling(asid, range, |pages, is_written| {
                if !is_written {
                    clear_bits(written, first, range, pages);
                }
            });
            self.faults.invalidate(asid, range);
            first = first.saturating_add(range.count);
        }
        if !self.mmu.is_mutated(CardMutation::UnmapLeavesWords) {
            self.drain_words();
        }
        let drained = self.in_flight.drain(command, asid, ranges, DrainKind::Everyone);
        self.count_drain(drained)
    }

    /// Lowers rights to `rights` and, where that takes the right to write away, drains those who
    /// may write.
    pub fn protect(
        &mut self,
        command: CommandId,
        asid: Asid,
        ranges: impl Iterator<Item = PageRange> + Clone,
        rights: Rights,
    ) -> Drained {
        if rights == Rights::ReadWrite {
            return self.count_drain(Drained::Now);
        }
        for range in ranges.clone() {
            self.mmu.protect(asid, range, rights);
            self.faults.protect(asid, range, rights);
        }
        if !self.mmu.is_mutated(CardMutation::ProtectLeavesWords) {
            self.drain_words();
        }
        let drained = self.in_flight.drain(command, asid, ranges, DrainKind::Writers);
        self.count_drain(drained)
    }

    /// Reads and clears accessed bits: clears the bits in `used` of pages that have entries in the
    /// tables that say that they were not. `used` has a bit for each page of the ranges, in their order.
    pub fn take_accessed(
        &mut self,
        asid: Asid,
        ranges: impl Iterator<Item = PageRange>,
        used: &mut PageBits,
    ) {
        let mut first = 0u64;
        for range in ranges {
            self.mmu.take_accessed(asid, range, |pages, is_used| {
                if !is_used {
                    clear_bits(used, first, range, pages);
                }
            });
            first = first.saturating_add(range.count);
        }
    }

    /// The tables, if the card has some: to walk them and share them.
    pub fn tables_mut(&mut self) -> Option<&mut TableWriter> {
        self.mmu.tables_mut()
    }

    /// [`Card::tables_mut`], to look at.
    pub fn tables(&self) -> Option<&TableWriter> {
        self.mmu.tables()
    }

    /// Takes every translation of an address space away and drains.
    pub fn unmap_all(&mut self, command: CommandId, asid: Asid) -> Drained {
        let everything = PageRange::new(PageNo(0), crate::PAGES_MAX);
        self.mmu.invalidate_all(asid);
        self.faults.invalidate(asid, everything);
        self.drain_words();
        let drained = self.in_flight.drain_all(command, asid);
        self.count_drain(drained)
    }

    fn count_drain(&mut self, drained: Drained) -> Drained {
        self.stats.drains += 1;
        if drained != Drained::Now {
            self.stats.drains_waited += 1;
        }
        drained
    }

    /// The faults that were not taken yet, oldest first, at most `faults_max`.
    pub fn take_faults(&mut self, faults_max: usize) -> Vec<Fault> {
        self.faults.take_batch(faults_max)
    }

    /// Takes the oldest fault that was not taken yet.
    pub fn next_fault(&mut self) -> Option<Fault> {
        self.faults.next_fresh()
    }

    /// Whether [`Card::take_faults`] would return any.
    pub fn has_faults(&self) -> bool {
        self.faults.has_fresh()
    }

    /// The fault that [`Card::take_faults`] would return first, and the first who waits for it.
    pub fn first_fault(&self) -> Option<(&Fault, &Waiter)> {
        self.faults.first_fresh()
    }

    /// Replays the accesses that wait for a fault. Those whose need is covered, by what the fault
    /// has collected or by the TLBs, are in flight from here on; the others are to try again.
    /// A fault that is no longer open has no answers.
    pub fn resume(&mut self, fault: FaultId) -> Vec<Answer> {
        self.resume_range(fault..=fault)
    }

    /// [`Card::resume`] for every open fault whose id lies in a range.
    pub fn resume_range(&mut self, faults: RangeInclusive<FaultId>) -> Vec<Answer> {
        let mut answers = Vec::new();
        self.resume_into(faults, &mut answers);
        answers
    }

    /// [`Card::resume_range`], which adds to `answers`.
    pub fn resume_into(&mut self, faults: RangeInclusive<FaultId>, answers: &mut Vec<Answer>) {
        self.end_faults(faults, |card, entry| {
            for waiter in &entry.waiters {
                let outcome = card.replay(entry, waiter.pe, &waiter.need);
                answers.push(card.answer(waiter.pe, waiter.job, outcome));
            }
        });
    }

    /// Ends the accesses that wait for a fault with an error.
    pub fn cancel(&mut self, fault: FaultId, reason: CancelReason) -> Vec<Answer> {
        self.cancel_range(fault..=fault, reason)
    }

    /// [`Card::cancel`] for every open fault whose id lies in a range.
    pub fn cancel_range(
        &mut self,
        faults: RangeInclusive<FaultId>,
        reason: CancelReason,
    ) -> Vec<Answer> {
        let mut answers = Vec::new();
        self.cancel_into(faults, reason, &mut answers);
        answers
    }

    /// [`Card::cancel_range`], which adds to `answers`.
    pub fn cancel_into(
        &mut self,
        faults: RangeInclusive<FaultId>,
        reason: CancelReason,
        answers: &mut Vec<Answer>,
    ) {
        self.end_faults(faults, |card, entry| {
            for waiter in &entry.waiters {
                card.stats.cancels += 1;
                answers.push(card.answer(waiter.pe, waiter.job, Outcome::Cancelled(reason)));
            }
        });
    }

    /// Takes faults out, oldest first.
    fn end_faults(
        &mut self,
        faults: RangeInclusive<FaultId>,
        mut each: impl FnMut(&mut Card, &Open),
    ) {
        let mut any = false;
        while let Some(entry) = self.faults.remove(&faults) {
            each(self, &entry);
            self.faults.recycle(entry);
            any = true;
        }
        if !any {
            self.stats.stale_answers += 1;
        }
    }

    fn replay(&mut self, entry: &Open, pe: PeId, need: &Need) -> Outcome {
        let asid = entry.fault.asid;
        let mmu = &mut self.mmu;
        let runs = translate(need.ranges(), |page, access, pages_max| {
            let filled = entry.fill(page);
            match filled.filter(|(found, _)| found.rights.allows(access)) {
                Some((found, count)) => {
                    let count = u64::from(count).min(pages_max) as u32;
                    mmu.touch(asid, PageRange::new(page, count.into()), access);
                    Some((found.location, count))
                }
                None => {
                    let hit = mmu.lookup_run(pe, asid, page, access, pages_max)?;
                    Some((hit.location, hit.count))
                }
            }
        });
        match runs {
            Some(runs) => {
                self.stats.grants_resumed += 1;
                Outcome::Granted(self.grant(pe, asid, need.ranges(), runs))
            }
            None => {
                self.stats.retries += 1;
                Outcome::Retry
            }
        }
    }

    fn answer(&mut self, pe: PeId, job: JobId, outcome: Outcome) -> Answer {
        self.pes.set(pe, PeState::Running(job));
        Answer { pe, job, outcome }
    }

    fn grant(
        &mut self,
        pe: PeId,
        asid: Asid,
        needs: impl Iterator<Item = (PageRange, Access)>,
        runs: List<MappedRun>,
    ) -> Grant {
        let own = self.memory();
        for run in runs.iter().filter(|run| run.location.memory != own) {
            self.stats.remote_accesses += u64::from(run.count);
            self.stats.remote_pages += u64::from(run.count);
            self.counters.record_range(asid, run.pages());
        }
        let access = self.in_flight.begin(pe, asid, needs);
        Grant { access, pe, runs }
    }

    /// The groups of pages whose remote accesses reached the threshold since the last call.
    pub fn take_notices(&mut self) -> Vec<CounterNotice> {
        self.take_some_notices(usize::MAX)
    }

    /// The oldest of [`Card::take_notices`], at most `notices_max`; the others stay.
    pub fn take_some_notices(&mut self, notices_max: usize) -> Vec<CounterNotice> {
        let notices = self.counters.take_some(notices_max);
        self.stats.counter_notices += notices.len() as u64;
        notices
    }

    /// Takes the oldest of [`Card::take_notices`].
    pub fn next_notice(&mut self) -> Option<CounterNotice> {
        let notice = self.counters.next_notice();
        self.stats.counter_notices += u64::from(notice.is_some());
        notice
    }

    /// Whether [`Card::take_notices`] would return any.
    pub fn has_notices(&self) -> bool {
        self.counters.has_notices()
    }

    /// Remote accesses to a group before it is reported.
    pub fn counter_threshold(&self) -> u32 {
        self.counters.threshold()
    }

    /// Changes [`Card::counter_threshold`] and sets every access counter to zero; 0 is taken as 1.
    pub fn set_counter_threshold(&mut self, threshold: u32) {
        self.counters.set_threshold(threshold);
    }

    /// Sets the access counters of a range to zero.
    pub fn clear_counters(&mut self, asid: Asid, range: PageRange) {
        self.counters.clear(asid, range);
    }

    /// Starts a job on an idle processing element.
    ///
    /// # Errors
    /// [`PeError::NoSuchPe`], [`PeError::Busy`].
    pub fn launch(&mut self, pe: PeId, job: JobId) -> Result<(), PeError> {
        self.pes.launch(pe, job)
    }

    /// The states of the processing elements.
    pub fn pes(&self) -> &Pes {
        &self.pes
    }

    /// Ends the waiting of a job's processing elements, which go on running to end themselves.
    /// What they hold stays in flight: use this on a kernel that may still touch it.
    ///
    /// # Errors
    /// [`PeError::NoSuchJob`].
    pub fn interrupt(&mut self, job: JobId) -> Result<Vec<Answer>, PeError> {
        if self.pes.of(job).next().is_none() {
            return Err(PeError::NoSuchJob { job });
        }
        let struck = self.faults.forget_job(job);
        Ok(struck.into_iter().map(|waiter| self.answer(waiter.pe, job, Outcome::Aborted)).collect())
    }

    /// Ends a job, in whatever way: its waiting, its accesses in flight, and its processing
    /// elements are idle. Call it when its kernel touches no memory any more.
    ///
    /// # Errors
    /// [`PeError::NoSuchJob`].
    pub fn abort(&mut self, job: JobId) -> Result<Aborted, PeError> {
        let answers = self.interrupt(job)?;
        let mut drains = Vec::new();
        let pes: Vec<PeId> = self.pes.of(job).collect();
        for pe in pes {
            drains.extend_from_slice(&self.in_flight.end_all_of(pe));
            self.pes.set(pe, PeState::Idle);
        }
        Ok(Aborted { answers, drains })
    }

    /// Ends whatever runs on a processing element, as [`Card::abort`] does, with the other
    /// processing elements of its job. An idle one stays idle.
    ///
    /// # Errors
    /// [`PeError::NoSuchPe`].
    pub fn abort_pe(&mut self, pe: PeId) -> Result<Aborted, PeError> {
        match self.pes.status(pe)?.job() {
            Some(job) => self.abort(job),
            None => Ok(Aborted::default()),
        }
    }

    // The access side: what processing elements ask for.

    /// Translates one page for a word access that the caller makes before it gives the card's lock
    /// back, which is why the access need not be registered. `None`: raise a fault.
    #[inline]
    pub fn access(
        &mut self,
        pe: PeId,
        asid: Asid,
        page: PageNo,
        access: Access,
    ) -> Option<Location> {
        let Lookup::Hit { location, .. } = self.mmu.lookup(pe, asid, page, access) else {
            return None;
        };
        if location.memory != self.id.memory() {
            self.stats.remote_accesses += 1;
            self.counters.record(asid, page, 1);
        }
        Some(location)
    }

    /// Takes memory through the TLBs, all of it or none. What it gives is in flight.
    ///
    /// # Errors
    /// [`AcquireError::NotResident`] if a fault must be raised; others for an access that makes no
    /// sense.
    pub fn acquire(
        &mut self,
        pe: PeId,
        asid: Asid,
        needs: &[(PageRange, Access)],
    ) -> Result<Grant, AcquireError> {
        if usize::from(pe.0) >= self.pes.count() {
            let pes = self.pes.count();
            return Err(AcquireError::NoSuchPe { pe, pes });
        }
        validate_ranges(needs, self.geometry.group_ranges_max)?;
        if self.in_flight.holds(pe) {
            return Err(AcquireError::HoldsMemory { pe });
        }
        let mmu = &mut self.mmu;
        let runs = translate(needs.iter().copied(), |page, access, pages_max| {
            let hit = mmu.lookup_run(pe, asid, page, access, pages_max)?;
            Some((hit.location, hit.count))
        });
        let runs = runs.ok_or(AcquireError::NotResident)?;
        self.stats.grants_direct += 1;
        Ok(self.grant(pe, asid, needs.iter().copied(), runs))
    }

    /// Takes one page as [`Card::access`] looks it up, for an access that takes time: it is in flight
    /// until [`Card::end`]. Where the page is, and which TLB knew.
    ///
    /// # Errors
    /// As for [`Card::acquire`].
    pub fn acquire_page(
        &mut self,
        pe: PeId,
        asid: Asid,
        page: PageNo,
        access: Access,
    ) -> Result<(Grant, Level), AcquireError> {
        if usize::from(pe.0) >= self.pes.count() {
            let pes = self.pes.count();
            return Err(AcquireError::NoSuchPe { pe, pes });
        }
        if self.in_flight.holds(pe) {
            return Err(AcquireError::HoldsMemory { pe });
        }
        let Lookup::Hit { location, level, .. } = self.mmu.lookup(pe, asid, page, access) else {
            return Err(AcquireError::NotResident);
        };
        self.stats.grants_direct += 1;
        let need = std::iter::once((PageRange::page(page), access));
        let runs = [MappedRun::new(page, 1, location)].into();
        Ok((self.grant(pe, asid, need, runs), level))
    }

    /// A processing element cannot go on. Raising the same fault again while it waits changes
    /// nothing. [`Raised::Full`]: wait until a fault was answered, then raise it again.
    ///
    /// # Errors
    /// [`RaiseError`] if the access makes no sense, if the processing element does not run the job
    /// or stands in another fault, or if it still holds memory.
    pub fn raise(
        &mut self,
        pe: PeId,
        job: JobId,
        asid: Asid,
        need: Need,
    ) -> Result<Raised, RaiseError> {
        need.validate(self.geometry.group_ranges_max)?;
        let pes = self.pes.count();
        let Ok(state) = self.pes.status(pe) else {
            return Err(RaiseError::NoSuchPe { pe, pes });
        };
        match state {
            PeState::Running(running) if running == job => {}
            PeState::Stalled(running, open)
                if running == job && self.faults.waits_for(open, pe) == Some(&need) =>
            {
                return Ok(Raised::Joined(open));
            }
            _ => return Err(RaiseError::NotRunning { pe, job, state }),
        }
        if self.in_flight.holds(pe) {
            return Err(RaiseError::HoldsMemory { pe });
        }
        let raised = self.faults.raise(pe, job, asid, need);
        match raised {
            Raised::Queued(_) => self.stats.faults_raised += 1,
            Raised::Joined(_) => self.stats.faults_joined += 1,
            Raised::Full => self.stats.fault_queue_full += 1,
        }
        if let Raised::Queued(id) | Raised::Joined(id) = raised {
            self.pes.set(pe, PeState::Stalled(job, id));
        }
        Ok(raised)
    }

    /// Gives memory back. Returns the drains that complete with it.
    #[must_use = "these drains are complete; report their commands"]
    pub fn end(&mut self, access: AccessId) -> List<CommandId> {
        self.in_flight.end(access)
    }

    /// What is in flight.
    pub fn in_flight(&self) -> &InFlight {
        &self.in_flight
    }

    /// Returns to the known state: nothing mapped, running, waiting or in flight.
    /// Ids go on, so that nothing of before is taken for something of now; so do the counts.
    /// Call it when nothing touches the card's memory any more.
    pub fn reset(&mut self) -> Aborted {
        self.mmu.clear();
        self.words.renew();
        self.counters.clear_all();
        let mut answers = Vec::new();
        while let Some(entry) = self.faults.remove(&(FaultId(0)..=FaultId(u64::MAX))) {
            let aborted = |waiter: &Waiter| Answer {
                pe: waiter.pe,
                job: waiter.job,
                outcome: Outcome::Aborted,
            };
            answers.extend(entry.waiters.iter().map(aborted));
        }
        let mut drains = Vec::new();
        for pe in (0..self.geometry.pes).map(PeId) {
            drains.extend_from_slice(&self.in_flight.end_all_of(pe));
            self.pes.set(pe, PeState::Idle);
        }
        Aborted { answers, drains }
    }
}
