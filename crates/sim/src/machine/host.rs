//! The driver's processor: does one thing at a time, in the order of arrival.
//!
//! It fetches fault batches and counter notices from the GPUs' buffers and carries out the
//! operations on the CPU's own mappings. Completions are seen without occupying it: their cost is
//! part of the batch's.

use std::collections::VecDeque;

use farside_svm::{CardFault, Command, Event, Op};
use farside_types::{CardId, FrameNo, MemoryId, PageNo, PageRange, Span, Time};

use super::{Happening, Machine};
use crate::SimError;
use crate::observe::Observation;

/// The processor.
#[derive(Debug, Default)]
pub(super) struct Host {
    queue: VecDeque<Work>,
    /// What it does now, and since when.
    current: Option<Doing>,
    since: Time,
    busy: Span,
}

/// What waits for the processor.
#[derive(Debug)]
pub(super) enum Work {
    /// Fetch what is in a GPU's buffers and handle it.
    Fetch {
        /// Which GPU.
        gpu: u8,
    },
    /// An operation on the CPU's mappings.
    Operation(Command),
}

/// What the processor does, with what it has fetched.
#[derive(Debug)]
enum Doing {
    Batch { gpu: u8, faults: Vec<CardFault>, notices: Vec<PageNo> },
    Operation(Command),
}

impl Host {
    /// How long it has been busy.
    pub(super) fn busy_for(&self) -> Span {
        self.busy
    }
}

impl Machine {
    pub(super) fn interrupt(&mut self, gpu: u8) {
        self.host_submit(Work::Fetch { gpu });
    }

    pub(super) fn host_submit(&mut self, work: Work) {
        self.host.queue.push_back(work);
        if self.host.current.is_none() {
            self.host_next();
        }
    }

    /// Begins with the next piece of work that there is something to do for.
    fn host_next(&mut self) {
        while let Some(work) = self.host.queue.pop_front() {
            let (doing, cost) = match work {
                Work::Fetch { gpu } => match self.fetch(gpu) {
                    Some(batch) => batch,
                    None => continue,
                },
                Work::Operation(command) => {
                    let host = &self.spec.host;
                    let cost = host.operation_ns + host.operation_page_ns * command.op.pages();
                    (Doing::Operation(command), cost)
                }
            };
            let cost = Span::from_nanos(cost);
            self.host.busy += cost;
            (self.host.current, self.host.since) = (Some(doing), self.queue.now());
            self.queue.push(self.queue.now() + cost, Happening::HostDone);
            return;
        }
    }

    /// Takes a batch out of a GPU's buffers, and what it costs in ns. What is left is the next
    /// batch, without another interrupt.
    fn fetch(&mut self, gpu: u8) -> Option<(Doing, u64)> {
        let limit = self.spec.driver.fault_batch as usize;
        let state = &mut self.gpus[usize::from(gpu)];
        let faults: Vec<_> = state.faults.drain(..state.faults.len().min(limit)).collect();
        let room = self.spec.fault.buffer_entries as usize - state.faults.len();
        let held_back = state.held_back.len().min(room);
        state.faults.extend(state.held_back.drain(..held_back));
        let notices = std::mem::take(&mut state.notices);
        state.interrupting = !state.faults.is_empty();
        if state.interrupting {
            self.host.queue.push_back(Work::Fetch { gpu });
        }
        let entries = (faults.len() + notices.len()) as u64;
        let cost = self.spec.host.batch_ns + self.spec.host.fault_ns * entries;
        for fault in &faults {
            self.note_fault(fault.id, false);
        }
        (entries > 0).then_some((Doing::Batch { gpu, faults, notices }, cost))
    }

    pub(super) fn host_done(&mut self) -> Result<(), SimError> {
        self.observe_host();
        match self.host.current.take() {
            Some(Doing::Batch { gpu, faults, notices }) => self.serve(gpu, &faults, notices)?,
            Some(Doing::Operation(command)) => {
                self.host_operation(&command.op)?;
                let (command, epoch) = (command.id, command.epoch);
                self.tell(Event::Done { command, epoch, result: Ok(()) })?;
            }
            None => {}
        }
        // Handling may have found the processor free and begun with something.
        if self.host.current.is_none() {
            self.host_next();
        }
        Ok(())
    }

    fn observe_host(&mut self) {
        let (name, entries) = match &self.host.current {
            Some(Doing::Batch { faults, notices, .. }) => {
                ("batch", (faults.len() + notices.len()) as u64)
            }
            Some(Doing::Operation(command)) => (command.op.name(), command.op.pages()),
            None => return,
        };
        let since = self.shown(self.host.since);
        self.observe(|_| Observation::Host { name, entries, since });
    }

    fn serve(
        &mut self,
        gpu: u8,
        faults: &[CardFault],
        notices: Vec<PageNo>,
    ) -> Result<(), SimError> {
        let card = CardId(gpu);
        for fault in faults {
            self.note_fault(fault.id, true);
        }
        if !faults.is_empty() {
            self.tell(Event::CardFaults { card, faults })?;
        }
        let (counter, page) = (&self.spec.counter, self.spec.page.bytes);
        let (group, count) = ((counter.group_bytes / page).max(1), counter.threshold);
        for first in notices {
            let pages = PageRange::new(first, u64::from(group));
            self.tell(Event::CounterNotice { card, pages, count })?;
        }
        Ok(())
    }

    /// The effect of an operation on the CPU's mappings. The simulated program does not touch
    /// memory on the CPU once time runs, so mappings have no effect; freed frames have.
    pub(super) fn host_operation(&mut self, op: &Op) -> Result<(), SimError> {
        let Op::HostRelease { runs } = op else {
            return Ok(());
        };
        for page in runs.iter().flat_map(|run| run.pages().pages()) {
            let frame = FrameNo(self.index(page)?);
            if let Some(checker) = &mut self.coherence {
                let released = checker.release(MemoryId::HOST, frame);
                released.map_err(|what| self.broken(what))?;
            }
        }
        Ok(())
    }
}
