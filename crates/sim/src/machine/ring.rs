//! The GPUs' command rings: one command after the other, in ring order.
//!
//! What takes translations away does so when the command begins, and ends when the accesses that
//! hold them are over: TLB shootdown, flush and drain. What gives something (a mapping, a replay,
//! a launch) takes effect when the command ends.

use std::collections::VecDeque;

use farside_svm::{ChainKey, Header, RingOp, Run, Step};
use farside_types::{
    CancelReason, CardId, FaultId, FrameNo, JobId, MemoryId, Reason, Rights, Span, Time,
};

use super::access::Access;
use super::{Machine, SimEvent};
use crate::gpu::Mapping;
use crate::observe::Observation;
use crate::state::state;
use crate::{FlushMode, SimError, Told, Until};
use farside_workloads::Cursor;

/// One GPU's ring.
#[derive(Debug, Default)]
pub(super) struct Ring {
    /// Commands with the time from which the GPU can see them.
    queue: VecDeque<(Time, Step<RingOp>)>,
    /// The command under way.
    current: Option<Step<RingOp>>,
    /// When it began.
    begun: Time,
    /// A start is in the queue of events.
    starting: bool,
    /// The job that runs.
    pub(super) job: Option<JobId>,
}

state!(Ring {
    values: queue, current, begun, starting, job;
});

impl Ring {
    /// Whether the migration of a command takes a page away here too.
    fn takes_for(&self, header: &Header) -> bool {
        let key = (ChainKey::of(header.id), header.epoch);
        let waiting = self.queue.iter().map(|(_, step)| step);
        waiting.chain(&self.current).any(|step| {
            let of_it = (ChainKey::of(step.header.id), step.header.epoch) == key;
            of_it && matches!(step.op, RingOp::Unmap { .. })
        })
    }

    /// Whether a command is under way or waits.
    #[cfg(test)]
    pub(super) fn is_busy(&self) -> bool {
        self.current.is_some() || !self.queue.is_empty()
    }
}

impl Machine {
    pub(super) fn submit(&mut self, card: CardId, command: Step<RingOp>) -> Result<(), SimError> {
        let gpu = card.0;
        let seen = self.queue.now() + Span::from_nanos(self.spec.command.submit_ns);
        let Some(ring) = self.rings.get_mut(usize::from(gpu)) else {
            return Err(self.broken(format!("a command for {card}, which does not exist")));
        };
        ring.queue.push_back((seen, command));
        self.ring_next(gpu);
        Ok(())
    }

    /// Arranges for the next command to begin, unless one is under way.
    fn ring_next(&mut self, gpu: u8) {
        let ring = &mut self.rings[usize::from(gpu)];
        if ring.starting || ring.current.is_some() {
            return;
        }
        if let Some(&(seen, _)) = ring.queue.front() {
            ring.starting = true;
            self.queue.push(seen, SimEvent::RingStart { gpu });
        }
    }

    pub(super) fn ring_start(&mut self, gpu: u8) -> Result<(), SimError> {
        let ring = &mut self.rings[usize::from(gpu)];
        ring.starting = false;
        let Some((_, command)) = ring.queue.pop_front() else {
            return Ok(());
        };
        let own = self.queue.now() + self.ring_cost(&command.op);
        let whole = self.empties(&command.op);
        let end = match &command.op {
            RingOp::Unmap { runs, .. } => {
                let end = self.take_away(gpu, runs, None, (whole, own))?;
                end.max(self.tell_others(gpu, &command.header))
            }
            RingOp::Protect { runs, rights } => {
                self.take_away(gpu, runs, Some(*rights), (whole, own))?
            }
            RingOp::Map { .. }
            | RingOp::Accessed { .. }
            | RingOp::Resume { .. }
            | RingOp::Cancel { .. }
            | RingOp::Launch { .. } => own,
        };
        if whole && self.spec.flush.until == Until::Moved {
            self.stop_until_moved(gpu, command.header.id, command.header.epoch);
        }
        let ring = &mut self.rings[usize::from(gpu)];
        (ring.current, ring.begun) = (Some(command), self.queue.now());
        self.queue.push(end, SimEvent::RingEnd { gpu });
        Ok(())
    }

    fn ring_cost(&self, op: &RingOp) -> Span {
        let spec = &self.spec.command;
        let special = match op {
            RingOp::Unmap { .. } | RingOp::Protect { .. } => spec.invalidate_ns,
            RingOp::Launch { .. } => spec.launch_ns,
            RingOp::Map { .. }
            | RingOp::Accessed { .. }
            | RingOp::Resume { .. }
            | RingOp::Cancel { .. } => 0,
        };
        Span::from_nanos(spec.base_ns + special + spec.page_ns * op.pages())
    }

    /// Whether a command empties the whole GPU, or what is of its pages only.
    pub(super) fn empties(&self, op: &RingOp) -> bool {
        let flush = &self.spec.flush;
        let pipeline = flush.mode == FlushMode::Pipeline;
        match op {
            RingOp::Unmap { .. } => pipeline,
            RingOp::Protect { .. } => pipeline && flush.demote == FlushMode::Pipeline,
            RingOp::Map { .. }
            | RingOp::Accessed { .. }
            | RingOp::Resume { .. }
            | RingOp::Cancel { .. }
            | RingOp::Launch { .. } => false,
        }
    }

    /// Empties the GPUs that have nothing of the page as well, where a counter's migration tells every GPU; when that
    /// is done. The first GPU that the migration takes the page from does so, for all of them.
    fn tell_others(&mut self, gpu: u8, header: &Header) -> Time {
        let now = self.queue.now();
        let flush = &self.spec.flush;
        let (until, pipeline) = (flush.until, flush.mode == FlushMode::Pipeline);
        let all = pipeline && flush.counter == Told::All && header.reason == Reason::Counter;
        if !all || !self.moves.tell(header.id, header.epoch) {
            return now;
        }
        let mut end = now;
        for other in (0..self.gpus.len() as u8).filter(|&other| other != gpu) {
            if self.rings[usize::from(other)].takes_for(header) {
                continue;
            }
            end = end.max(self.flush_all(other, now));
            if until == Until::Moved {
                self.stop_until_moved(other, header.id, header.epoch);
            }
        }
        end
    }

    /// Flushes a whole GPU; when that is done, at `own` or later.
    fn flush_all(&mut self, gpu: u8, own: Time) -> Time {
        let now = self.queue.now();
        let state = &mut self.gpus[usize::from(gpu)];
        let drained = now.max(state.in_flight);
        let dirty = state.flush();
        let end = own.max(drained + self.links.write_back(dirty));
        let state = &mut self.gpus[usize::from(gpu)];
        state.counts.flushes += 1;
        state.counts.flushed_lines += u64::from(dirty);
        // It may stand still already, for another migration.
        let from = now.max(state.stalled_until).min(end);
        state.counts.stalled += end.since(from);
        state.stalled_until = state.stalled_until.max(end);
        end
    }

    /// Takes translations or rights away, and flushes: the `whole` GPU or what is of these pages. When
    /// that is done, at `own` or later: accesses that hold them are over, and what was dirty is
    /// written back.
    fn take_away(
        &mut self,
        gpu: u8,
        runs: &[Run],
        rights: Option<Rights>,
        (whole, own): (bool, Time),
    ) -> Result<Time, SimError> {
        let now = self.queue.now();
        let (mut drained, mut dirty) = (now, 0);
        let lines = 1 << self.page_shift;
        for page in runs.iter().flat_map(|run| run.pages().pages()) {
            let page = self.index(page)?;
            let first = self.first_line(page);
            let state = &mut self.gpus[usize::from(gpu)];
            match rights {
                None => state.table.unmap(page),
                Some(rights) => state.table.protect(page, rights),
            }
            if !whole {
                drained = drained.max(state.page_in_flight(page));
                dirty += state.flush_page(page, first, lines);
            }
        }
        if whole {
            return Ok(self.flush_all(gpu, own));
        }
        let end = own.max(drained + self.links.write_back(dirty));
        let state = &mut self.gpus[usize::from(gpu)];
        state.counts.flushes += 1;
        state.counts.flushed_lines += u64::from(dirty);
        Ok(end)
    }

    pub(super) fn ring_end(&mut self, gpu: u8) -> Result<(), SimError> {
        let Some(command) = self.rings[usize::from(gpu)].current.take() else {
            return Ok(());
        };
        let begun = self.rings[usize::from(gpu)].begun;
        let command_empties = self.empties(&command.op);
        if self.is_draining(gpu, &command.op, begun) {
            self.rings[usize::from(gpu)].current = Some(command);
            self.drain_on(gpu, command_empties);
            return Ok(());
        }
        self.observe(|machine| Observation::Command {
            gpu,
            name: command.op.name(),
            page: command.op.runs().first().map(|run| run.page),
            pages: command.op.pages(),
            since: machine.shown(begun),
        });
        let header = &command.header;
        match &command.op {
            RingOp::Map { runs, memory, rights } => {
                self.map(gpu, runs, *memory, (*rights, header.reason))?
            }
            RingOp::Resume { faults } => {
                for &fault in faults.iter() {
                    self.resume(fault, header.reason)?;
                }
            }
            RingOp::Cancel { faults, reason } => {
                if let Some(error) = faults.iter().find_map(|id| self.cancelled(*id, *reason)) {
                    return Err(error);
                }
            }
            RingOp::Launch { job } => self.launch(gpu, *job),
            RingOp::Unmap { .. } | RingOp::Protect { .. } | RingOp::Accessed { .. } => {}
        }
        let seen = self.queue.now() + Span::from_nanos(self.spec.command.complete_ns);
        self.queue.push(seen, SimEvent::Done { command: header.id, epoch: header.epoch });
        self.ring_next(gpu);
        Ok(())
    }

    /// Lines are still under way: an invalidation looks again a cycle later.
    fn drain_on(&mut self, gpu: u8, whole: bool) {
        let next = self.queue.now() + self.times.cycle;
        if whole {
            let state = &mut self.gpus[usize::from(gpu)];
            state.stalled_until = state.stalled_until.max(next);
        }
        self.queue.push(next, SimEvent::RingEnd { gpu });
    }

    /// A fault was answered with an error: who waited in it.
    fn cancelled(&self, id: FaultId, reason: CancelReason) -> Option<SimError> {
        let fault = self.faults.get(&id)?;
        let Access { unit, slot, line, .. } = self.pool.iter(fault.waiting).next()?;
        if fault.page == self.nowhere() {
            let unit = &self.gpus[usize::from(fault.gpu)].units[usize::from(unit)];
            let Cursor { launch, group, wave, .. } = unit.waves[usize::from(slot)].cursor;
            let workload = self.workload.name().to_owned();
            return Some(SimError::Line { workload, launch, group, wave, line });
        }
        Some(SimError::Cancelled {
            at: Time(self.elapsed().0),
            gpu: usize::from(fault.gpu),
            cu: usize::from(unit),
            page: self.arena.offset(u64::from(fault.page)),
            reason,
        })
    }

    fn map(
        &mut self,
        gpu: u8,
        runs: &[Run],
        memory: MemoryId,
        (rights, reason): (Rights, Reason),
    ) -> Result<(), SimError> {
        let own = memory == self.gpus[usize::from(gpu)].memory;
        for run in runs {
            for (offset, page) in run.pages().pages().enumerate() {
                let page = self.index(page)?;
                let frame = FrameNo(run.dst.0 + offset as u32);
                let mapping = Mapping { memory, rights };
                self.gpus[usize::from(gpu)].table.map(page, mapping, frame);
                if own {
                    self.copies.mapped(page, rights, reason);
                }
            }
        }
        Ok(())
    }

    /// Ends a fault and replays the accesses that wait in it: each takes the translation that is
    /// there now, in ring order, so that it makes progress whatever is invalidated afterwards.
    fn resume(&mut self, id: FaultId, reason: Reason) -> Result<(), SimError> {
        let Some(mut fault) = self.faults.remove(&id) else {
            return Err(self.broken(format!("{id} is resumed and is not open")));
        };
        self.open.remove(&(fault.gpu, fault.page, fault.write));
        self.account(&fault, reason);
        while let Some((access, since)) = self.pool.take(&mut fault.waiting) {
            self.replay(access, fault.page, since);
        }
        Ok(())
    }

    fn replay(&mut self, access: Access, page: u32, since: Time) {
        let now = self.queue.now();
        let state = &mut self.gpus[usize::from(access.gpu)];
        state.counts.fault_wait += now.since(since);
        self.wave_mut(access).faults -= 1;
        let usable = self.usable(access, page);
        let state = &mut self.gpus[usize::from(access.gpu)];
        match usable {
            Some(memory) => {
                state.fill(usize::from(access.unit), page);
                self.proceed(access, page, memory, now, true);
                // The line may be under way for a while; the wavefront goes on.
                self.wake(access);
            }
            None => {
                state.counts.refaults += 1;
                self.raise(access, page);
            }
        }
    }

    /// The last access of the GPU's job is over.
    pub(super) fn job_ended(&mut self, gpu: u8) {
        if let Some(job) = self.rings[usize::from(gpu)].job.take() {
            let seen = self.queue.now() + Span::from_nanos(self.spec.command.complete_ns);
            self.queue.push(seen, SimEvent::JobDone { job });
        }
    }
}
