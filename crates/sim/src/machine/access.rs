//! How a line is accessed: translation, caches, the way to its memory, or a fault.
//!
//! A line takes its translation at one instant, when a TLB or a walk answers, and counts as in
//! flight from then until it is over. A drain waits for exactly these.

use farside_svm::{CardFault, Need};
use farside_types::{Access as Right, FaultId, MemoryId, Span, Time};
use serde::{Deserialize, Serialize};

use super::pool::List;
use super::{Fault, Machine, SimEvent};
use crate::gpu::Parked;
use crate::gpu::{Lookup, WaveState};
use crate::observe::{Observation, Slot, WaitsFor};
use crate::{EngineMode, StoreMode};
use farside_workloads::{BLOCK_LINES, Line};

/// What a line is accessed for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Kind {
    /// Through the vector cache.
    #[default]
    Load,
    /// Through the scalar cache.
    Scalar,
    /// Code.
    Fetch,
    Store,
}

impl Kind {
    pub(super) fn is_store(self) -> bool {
        self == Kind::Store
    }

    pub(super) fn right(self) -> Right {
        if self.is_store() { Right::Write } else { Right::Read }
    }

    /// The cache of its compute unit that it goes through.
    pub(super) fn cache(self) -> usize {
        match self {
            Kind::Load | Kind::Store => 0,
            Kind::Scalar => 1,
            Kind::Fetch => 2,
        }
    }
}

/// An access of a wavefront to a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Access {
    pub(super) line: Line,
    pub(super) gpu: u8,
    pub(super) unit: u8,
    pub(super) slot: u8,
    pub(super) kind: Kind,
}

impl Machine {
    /// The page of a line. A line in no buffer has one that nobody allocated: the access ends in a
    /// fault that the driver refuses.
    #[inline]
    pub(super) fn page_of(&self, line: Line) -> u32 {
        let within = (line.0 & (BLOCK_LINES - 1)) >> self.page_shift;
        match self.blocks.get((line.0 / BLOCK_LINES) as usize) {
            Some(block) if within < block.pages => block.start + within,
            _ => self.nowhere(),
        }
    }

    /// The page of lines that are in no buffer: the last of the arena, which is larger than the
    /// buffers.
    #[inline]
    pub(super) fn nowhere(&self) -> u32 {
        self.arena_pages as u32 - 1
    }

    /// The first line of a page of the program's.
    pub(super) fn first_line(&self, page: u32) -> Line {
        let buffer =
            self.first_lines.partition_point(|&(first, _)| first <= page).saturating_sub(1);
        let (start, line) = self.first_lines[buffer];
        Line(line.0 + (page.saturating_sub(start) << self.page_shift))
    }

    /// A wavefront accesses a line at `at`, now or a little later.
    pub(super) fn line(&mut self, access: Access, at: Time) {
        let page = self.page_of(access.line);
        let gpu = &mut self.gpus[usize::from(access.gpu)];
        match gpu.lookup(at, usize::from(access.unit), page) {
            Lookup::Hit(at) => match self.usable(access, page) {
                Some(memory) => self.proceed(access, page, memory, at, false),
                None => {
                    self.pend(access);
                    self.raise(access, page);
                }
            },
            Lookup::Miss(at) => {
                self.pend(access);
                self.join_walk(access, page, at);
            }
        }
    }

    /// The memory through which an access goes, if the page is mapped as it needs.
    pub(super) fn usable(&self, access: Access, page: u32) -> Option<MemoryId> {
        let table = &self.gpus[usize::from(access.gpu)].table;
        table.usable(page, self.needs(access.kind))
    }

    /// What the page has to be mapped for. Stores that need not be alone are content with a copy.
    fn needs(&self, kind: Kind) -> Right {
        if self.spec.store.mode == StoreMode::Exclusive { kind.right() } else { Right::Read }
    }

    /// Whether every GPU has its own copy of the page.
    fn is_per_gpu(&self, page: u32) -> bool {
        self.per_gpu.iter().any(|pages| pages.contains(&page))
    }

    /// Nobody knows yet when the access ends.
    pub(super) fn pend(&mut self, access: Access) {
        self.wave_mut(access).pending[usize::from(access.kind.is_store())] += 1;
    }

    /// Waits for the walk of a page that is under way, or starts one.
    fn join_walk(&mut self, access: Access, page: u32, at: Time) {
        let key = (access.gpu, page);
        self.wave_mut(access).waits(WaitsFor::Walk, page);
        if let Some(list) = self.walks.get_mut(&key) {
            return self.pool.append(list, access, at);
        }
        let end = self.gpus[usize::from(access.gpu)].walk(at, page);
        self.queue.push(end, SimEvent::Walked { gpu: access.gpu, page });
        let scheme = self.driver.page_mode(self.arena.offset(u64::from(page)));
        self.gpus[usize::from(access.gpu)].counts.count_scheme(scheme);
        let mut list = List::EMPTY;
        self.pool.append(&mut list, access, at);
        self.walks.insert(key, list);
    }

    /// A walk is over: what waits for it goes on, or faults.
    pub(super) fn walked(&mut self, gpu: u8, page: u32) {
        let now = self.queue.now();
        let state = &mut self.gpus[usize::from(gpu)];
        let stalled = state.stalled_until;
        if state.stops > 0 {
            state.parked.push(Parked::Walk { page });
            return;
        }
        if stalled > now {
            // The answer comes when the pipelines go on.
            self.queue.push(stalled, SimEvent::Walked { gpu, page });
            return;
        }
        let Some(mut list) = self.walks.remove(&(gpu, page)) else {
            return;
        };
        while let Some((access, since)) = self.pool.take(&mut list) {
            match self.usable(access, page) {
                Some(memory) => {
                    self.gpus[usize::from(gpu)].fill(usize::from(access.unit), page);
                    self.proceed(access, page, memory, now.max(since), true);
                }
                None => self.raise(access, page),
            }
        }
    }

    /// Carries an access out through a translation that it takes now and has at `at`; `pending`
    /// says whether its wavefront knows that it waits.
    pub(super) fn proceed(
        &mut self,
        access: Access,
        page: u32,
        memory: MemoryId,
        at: Time,
        pending: bool,
    ) {
        let store = access.kind.is_store();
        let home = self.gpus[usize::from(access.gpu)].memory;
        if memory != home && self.moves.are_closed() && (store || !self.is_held(access)) {
            self.wait_for_moves(access, page, pending);
            return;
        }
        if let Some(samples) = &mut self.samples {
            samples.count(access.gpu, page);
        }
        let at = at + self.times.l1_cache;
        let gpu = &mut self.gpus[usize::from(access.gpu)];
        if store && self.spec.store.mode == StoreMode::Ideal {
            gpu.counts.local += 1;
            self.over(access, page, memory, at, pending);
            return;
        }
        let cache = access.kind.cache();
        let held = gpu.unit(usize::from(access.unit)).caches[cache].lookup(access.line);
        let end = match held {
            Some(ready) if !store => {
                gpu.counts.local += 1;
                gpu.counts.count_l1(access.kind as usize, true);
                at.max(ready)
            }
            _ => {
                if !store {
                    gpu.counts.count_l1(access.kind as usize, false);
                }
                if store && self.spec.store.mode == StoreMode::Broadcast {
                    self.broadcast(access, page, at);
                }
                let events = self.spec.engine.mode == EngineMode::Events;
                let path = events.then(|| self.path(access, memory));
                let end = match &path {
                    Some(path) => self.unloaded(path, access.line, at),
                    None => self.reserve(access, memory, at),
                };
                let gpu = &mut self.gpus[usize::from(access.gpu)];
                if !store {
                    gpu.units[usize::from(access.unit)].caches[cache].insert(access.line, end);
                }
                if memory == home {
                    gpu.counts.local += 1;
                } else {
                    gpu.counts.remote += 1;
                    gpu.counts.handling_remote += end.since(at);
                    self.moves.far_until(end);
                    self.count_remote(access.gpu, page);
                    self.wave_mut(access).cause = WaitsFor::Remote;
                }
                if let Some(path) = path {
                    if !pending {
                        self.pend(access);
                    }
                    self.depart(access, page, memory, path, at);
                    return;
                }
                end
            }
        };
        self.over(access, page, memory, end, pending);
    }

    /// Whether a cache of its compute unit holds the line of an access.
    fn is_held(&mut self, access: Access) -> bool {
        let unit = self.gpus[usize::from(access.gpu)].unit(usize::from(access.unit));
        unit.caches[access.kind.cache()].lookup(access.line).is_some()
    }

    /// Sends a line to all other GPUs that have a copy of its page. Nobody waits for it.
    fn broadcast(&mut self, access: Access, page: u32, at: Time) {
        for other in 0..self.gpus.len() {
            let memory = self.gpus[other].memory;
            let copy = self.gpus[other].table.usable(page, Right::Read) == Some(memory);
            if copy && other != usize::from(access.gpu) {
                self.reserve(access, memory, at);
                self.gpus[usize::from(access.gpu)].counts.broadcasts += 1;
            }
        }
    }

    /// It is known that the access ends at `end`.
    pub(super) fn over(
        &mut self,
        access: Access,
        page: u32,
        memory: MemoryId,
        end: Time,
        pending: bool,
    ) {
        self.accesses += 1;
        self.idle_events = 0;
        let gpu = &mut self.gpus[usize::from(access.gpu)];
        gpu.use_until(page, end);
        let store = access.kind.is_store();
        gpu.counts.reads += u64::from(!store);
        gpu.counts.writes += u64::from(store);
        let frame = gpu.table.frame(page);
        let wave = &mut gpu.units[usize::from(access.unit)].waves[usize::from(access.slot)];
        let last = if store { &mut wave.stores_end } else { &mut wave.loads_end };
        *last = (*last).max(end);
        wave.pending[usize::from(store)] -= u32::from(pending);
        if self.coherence.is_some() && !self.is_per_gpu(page) {
            let Access { gpu, unit, .. } = access;
            let memory = memory.0;
            let check = SimEvent::Check { page, frame, memory, gpu, unit, write: store };
            self.queue.push(end, check);
        }
        if pending {
            self.wake(access);
        }
    }

    /// Has a wavefront go on if what it waited for is there.
    pub(super) fn wake(&mut self, access: Access) {
        let now = self.queue.now();
        let Access { gpu, unit, slot, .. } = access;
        let wave = self.wave_mut(access);
        match wave.state {
            WaveState::Fault if wave.faults == 0 => {
                wave.state = WaveState::Running;
                self.queue.push(now, SimEvent::Wave { gpu, unit, slot });
            }
            WaveState::Loads if wave.pending[0] == 0 => {
                wave.state = WaveState::Running;
                let at = now.max(wave.loads_end);
                self.queue.push(at, SimEvent::Wave { gpu, unit, slot });
            }
            WaveState::Ending if wave.pending == [0, 0] => {
                wave.state = WaveState::Running;
                let at = now.max(wave.loads_end).max(wave.stores_end);
                self.queue.push(at, SimEvent::WaveEnd { gpu, unit, slot });
            }
            _ => {}
        }
    }

    fn count_remote(&mut self, gpu: u8, page: u32) {
        let state = &mut self.gpus[usize::from(gpu)];
        if let Some(first) = state.counters.count(page) {
            state.counts.notices += 1;
            state.notices.push(self.arena.offset(u64::from(first)));
            self.send_interrupt(gpu);
        }
    }

    /// Has an access wait in a fault; its wavefront stands still. A GPU has one fault per page
    /// in the buffer, and a second one if a write comes after a read.
    pub(super) fn raise(&mut self, access: Access, page: u32) {
        let since = self.queue.now();
        self.gpus[usize::from(access.gpu)].counts.faulted_accesses += 1;
        let wave = self.wave_mut(access);
        wave.faults += 1;
        wave.waits(WaitsFor::Fault, page);
        let write = self.needs(access.kind).is_write();
        let serves = |write| self.open.get(&(access.gpu, page, write));
        let open = serves(true).or_else(|| serves(write));
        match open.and_then(|id| self.faults.get_mut(id)) {
            Some(fault) => self.pool.append(&mut fault.waiting, access, since),
            None => self.report(access, page, since),
        }
    }

    /// Puts a new fault into the GPU's buffer, or behind it if the buffer is full.
    fn report(&mut self, access: Access, page: u32, since: Time) {
        let id = FaultId(self.next_fault);
        self.next_fault += 1;
        let (gpu, right) = (access.gpu, self.needs(access.kind));
        let write = right.is_write();
        let need = Need::Page(self.arena.offset(u64::from(page)), right);
        let state = &mut self.gpus[usize::from(gpu)];
        state.counts.faults += 1;
        state.counts.protection_faults += u64::from(state.table.get(page).is_some());
        let entry = CardFault { id, need };
        if state.faults.len() < self.spec.fault.buffer_entries as usize {
            state.faults.push(entry);
        } else {
            state.counts.faults_held_back += 1;
            state.held_back.push_back(entry);
        }
        let mut waiting = List::EMPTY;
        self.pool.append(&mut waiting, access, since);
        self.open.insert((gpu, page, write), id);
        let Access { unit, slot, .. } = access;
        let slot = Slot { gpu, unit, slot };
        let (fetched, served, copy, mapped) = (since, since, None, None);
        let fault = Fault { gpu, page, write, since, waiting, fetched, served, copy, mapped };
        self.faults.insert(id, fault);
        self.observe(|machine| Observation::Fault {
            slot,
            page: machine.arena.offset(u64::from(page)),
            access: right,
            protection: machine.gpus[usize::from(gpu)].table.get(page).is_some(),
        });
        self.send_interrupt(gpu);
    }

    /// An interrupt for what is in the GPU's buffers, unless one is on its way.
    fn send_interrupt(&mut self, gpu: u8) {
        let state = &mut self.gpus[usize::from(gpu)];
        if !state.interrupting {
            state.interrupting = true;
            let at = self.queue.now() + Span::from_nanos(self.spec.host.interrupt_ns);
            self.queue.push(at, SimEvent::Interrupt { gpu });
        }
    }
}
