//! The GPUs' command rings: one command after the other, in ring order.
//!
//! What takes translations away does so when the command begins, and ends when the accesses that
//! hold them are over: TLB shootdown, flush and drain. What gives something (a mapping, a replay,
//! a launch) takes effect when the command ends.

use std::collections::VecDeque;

use farside_svm::{Command, Op, Run};
use farside_types::{CancelReason, CardId, FaultId, FrameNo, JobId, MemoryId, Rights, Span, Time};

use super::{Happening, Machine, Waiting};
use crate::SimError;
use crate::gpu::Mapping;

/// One GPU's ring.
#[derive(Debug, Default)]
pub(super) struct Ring {
    /// Commands with the time from which the GPU can see them.
    queue: VecDeque<(Time, Command)>,
    /// The command under way.
    current: Option<Command>,
    /// A start is in the queue of events.
    starting: bool,
    /// The job that runs.
    job: Option<JobId>,
}

impl Ring {
    /// Whether a command is under way or waits.
    #[cfg(test)]
    pub(super) fn is_busy(&self) -> bool {
        self.current.is_some() || !self.queue.is_empty()
    }
}

impl Machine {
    pub(super) fn submit(&mut self, card: CardId, command: Command) -> Result<(), SimError> {
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
            self.queue.push(seen, Happening::RingStart { gpu });
        }
    }

    pub(super) fn ring_start(&mut self, gpu: u8) -> Result<(), SimError> {
        let ring = &mut self.rings[usize::from(gpu)];
        ring.starting = false;
        let Some((_, command)) = ring.queue.pop_front() else {
            return Ok(());
        };
        let drained = match &command.op {
            Op::CardUnmap { runs } => self.take_away(gpu, runs, None)?,
            Op::CardProtect { runs, rights } => self.take_away(gpu, runs, Some(*rights))?,
            _ => Time::ZERO,
        };
        let end = drained.max(self.queue.now() + self.ring_cost(&command.op));
        self.rings[usize::from(gpu)].current = Some(command);
        self.queue.push(end, Happening::RingEnd { gpu });
        Ok(())
    }

    fn ring_cost(&self, op: &Op) -> Span {
        let spec = &self.spec.command;
        let special = match op {
            Op::CardUnmap { .. } | Op::CardProtect { .. } => spec.invalidate_ns,
            Op::CardLaunch { .. } => spec.launch_ns,
            _ => 0,
        };
        Span::from_nanos(spec.base_ns + special + spec.page_ns * op.pages())
    }

    /// Takes translations or rights away; when the accesses that hold them are over.
    fn take_away(
        &mut self,
        gpu: u8,
        runs: &[Run],
        rights: Option<Rights>,
    ) -> Result<Time, SimError> {
        let mut drained = Time::ZERO;
        for page in runs.iter().flat_map(|run| run.pages().pages()) {
            let page = self.index(page)?;
            let state = &mut self.gpus[usize::from(gpu)];
            let until = match rights {
                None => state.unmap(page),
                Some(rights) => state.protect(page, rights),
            };
            drained = drained.max(until);
        }
        Ok(drained)
    }

    pub(super) fn ring_end(&mut self, gpu: u8) -> Result<(), SimError> {
        let Some(command) = self.rings[usize::from(gpu)].current.take() else {
            return Ok(());
        };
        match &command.op {
            Op::CardMap { runs, memory, rights } => self.map(gpu, runs, *memory, *rights)?,
            Op::CardResume { faults } => {
                for &fault in faults.iter() {
                    self.resume(fault)?;
                }
            }
            Op::CardCancel { faults, reason } => {
                if let Some(error) = faults.iter().find_map(|id| self.cancelled(*id, *reason)) {
                    return Err(error);
                }
            }
            Op::CardLaunch { job } => self.launch(gpu, *job),
            Op::CardUnmap { .. } | Op::CardProtect { .. } => {}
            op => return Err(self.broken(format!("a card's ring cannot do {}", op.name()))),
        }
        let seen = self.queue.now() + Span::from_nanos(self.spec.command.complete_ns);
        self.queue.push(seen, Happening::Done { command: command.id, epoch: command.epoch });
        self.ring_next(gpu);
        Ok(())
    }

    /// A fault was answered with an error: who waited in it.
    fn cancelled(&self, id: FaultId, reason: CancelReason) -> Option<SimError> {
        let fault = self.faults.get(&id)?;
        let unit = fault.waiting.first()?.unit;
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
        rights: Rights,
    ) -> Result<(), SimError> {
        for run in runs {
            for (offset, page) in run.pages().pages().enumerate() {
                let page = self.index(page)?;
                let frame = FrameNo(run.dst.0 + offset as u32);
                let mapping = Mapping { memory, frame, rights };
                self.gpus[usize::from(gpu)].table.map(page, mapping);
            }
        }
        Ok(())
    }

    /// Ends a fault and replays the accesses that wait in it: each takes the translation that is
    /// there now, in ring order, so that it makes progress whatever is invalidated afterwards.
    fn resume(&mut self, id: FaultId) -> Result<(), SimError> {
        let Some(fault) = self.faults.remove(&id) else {
            return Err(self.broken(format!("{id} is resumed and is not open")));
        };
        self.open.remove(&(fault.gpu, fault.page, fault.write));
        for waiting in fault.waiting {
            self.replay(fault.gpu, waiting);
        }
        Ok(())
    }

    fn replay(&mut self, gpu: u8, waiting: Waiting) {
        let Waiting { unit, access, since } = waiting;
        let waited = self.queue.now().since(since);
        let state = &mut self.gpus[usize::from(gpu)];
        state.counts.fault_wait += waited;
        state.units[usize::from(unit)].faults -= 1;
        match self.usable(gpu, access) {
            Some(mapping) => {
                self.gpus[usize::from(gpu)].fill(usize::from(unit), access.page);
                self.access(gpu, unit, access, mapping, Span::ZERO);
            }
            None => {
                self.gpus[usize::from(gpu)].counts.refaults += 1;
                self.raise(gpu, unit, access);
            }
        }
        self.schedule(gpu, unit);
    }

    /// Starts the GPU's part of the running launch.
    fn launch(&mut self, gpu: u8, job: JobId) {
        let now = self.queue.now();
        let g = usize::from(gpu);
        self.rings[g].job = Some(job);
        let mut left = 0;
        for (unit, cu) in self.gpus[g].units.iter_mut().enumerate() {
            let accesses = self.trace.stream(self.launch, g, unit).len();
            cu.start(accesses, now);
            left += accesses as u64;
        }
        self.gpus[g].left = left;
        if left == 0 {
            self.job_ended(gpu);
        }
        for unit in 0..self.gpus[g].units.len() {
            self.schedule(gpu, unit as u8);
        }
    }

    /// The last access of the GPU's job is over.
    pub(super) fn job_ended(&mut self, gpu: u8) {
        if let Some(job) = self.rings[usize::from(gpu)].job.take() {
            let seen = self.queue.now() + Span::from_nanos(self.spec.command.complete_ns);
            self.queue.push(seen, Happening::JobDone { job });
        }
    }
}
