//! The driver's processor: takes what there is to do in the order of arrival, as much at a time as it
//! has threads.
//!
//! It fetches fault batches and counter notices from the GPUs' buffers and carries out the
//! operations on the CPU's own mappings. Completions are seen without occupying it: their cost is
//! part of the batch's.

use std::collections::{BTreeMap, VecDeque};

use farside_svm::{CardFault, Event, HostOp, Need, Step};
use farside_types::{CardId, FrameNo, MemoryId, PageNo, PageRange, Span, Time};
use serde::{Deserialize, Serialize};

use super::{Machine, SimEvent};
use crate::SimError;
use crate::observe::Observation;
use crate::pump::Pump;
use crate::state::state;

/// The processor.
#[derive(Debug, Default)]
pub(super) struct Host {
    queue: VecDeque<Work>,
    /// What it does now, by the number of the piece of work, and since when.
    doing: BTreeMap<u64, (Doing, Time)>,
    /// The number of the next piece of work.
    next: u64,
    /// Time of all threads together.
    busy: Span,
}

/// What waits for the processor.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Work {
    /// Fetch what is in a GPU's buffers and handle it.
    Fetch {
        /// Which GPU.
        gpu: u8,
    },
    /// An operation on the CPU's mappings.
    Operation(Step<HostOp>),
}

/// What the processor does, with what it has fetched.
#[derive(Debug, Serialize, Deserialize)]
enum Doing {
    Batch {
        gpu: u8,
        faults: Vec<CardFault>,
        notices: Vec<PageNo>,
    },
    Operation(Step<HostOp>),
    /// Lookups in the placement scheme's own tables.
    Tables,
}

state!(Host {
    values: queue, doing, next, busy;
});

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
        self.host_next();
    }

    /// Begins with the next pieces of work that there is something to do for.
    fn host_next(&mut self) {
        while self.host.doing.len() < self.spec.host.threads as usize {
            let Some(work) = self.host.queue.pop_front() else {
                return;
            };
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
            self.occupy(doing, cost);
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
        let most = state.notices.len().min(limit - faults.len());
        let notices: Vec<_> = state.notices.drain(..most).collect();
        state.interrupting = !state.faults.is_empty() || !state.notices.is_empty();
        if state.interrupting {
            self.host.queue.push_back(Work::Fetch { gpu });
        }
        let entries = (faults.len() + notices.len()) as u64;
        let forwarded = self.forwarded(gpu, &faults);
        let cost = self.spec.host.batch_ns + self.spec.host.fault_ns * (entries - forwarded);
        for fault in &faults {
            self.note_fault(fault.id, false);
        }
        (entries > 0).then_some((Doing::Batch { gpu, faults, notices }, cost))
    }

    /// How many of the faults another GPU answers the walk for (Trans-FW).
    fn forwarded(&self, gpu: u8, faults: &[CardFault]) -> u64 {
        if !self.spec.fault.forwarding {
            return 0;
        }
        let mapped = |fault: &&CardFault| {
            let Some(page) = self.page_of_fault(fault) else {
                return false;
            };
            let others =
                self.gpus.iter().enumerate().filter(|(other, _)| *other != usize::from(gpu));
            others.into_iter().any(|(_, other)| other.table.get(page).is_some())
        };
        faults.iter().filter(mapped).count() as u64
    }

    fn page_of_fault(&self, fault: &CardFault) -> Option<u32> {
        match &fault.need {
            Need::Page(page, _) => self.index(*page).ok(),
            Need::Group(_) => None,
        }
    }

    pub(super) fn host_done(&mut self, work: u64) -> Result<(), SimError> {
        self.observe_host(work);
        match self.host.doing.remove(&work) {
            Some((Doing::Batch { gpu, faults, notices }, _)) => {
                let served = faults.len() as u64;
                self.serve(gpu, &faults, notices);
                self.look_up_tables(served)?;
            }
            Some((Doing::Operation(command), _)) => {
                self.host_operation(&command.op)?;
                self.answer(command.header.id, command.header.epoch)?;
            }
            Some((Doing::Tables, _)) => self.pump()?,
            None => {}
        }
        self.host_next();
        Ok(())
    }

    /// Has a thread be busy with so many counts of a sample.
    pub(super) fn host_busy_with(&mut self, counts: u64) {
        let cost = Span::from_nanos(self.spec.host.batch_ns + self.spec.host.sample_ns * counts);
        self.occupy(Doing::Tables, cost);
    }

    fn occupy(&mut self, doing: Doing, cost: Span) {
        let (now, work) = (self.queue.now(), self.host.next);
        self.host.next += 1;
        self.host.busy += cost;
        self.host.doing.insert(work, (doing, now));
        self.queue.push(now + cost, SimEvent::HostDone { work });
    }

    /// Carries out what the driver said, when its scheme's lookups in its own tables are over. They
    /// began with the service of the `served` faults, as the walks of the page table did (GRIT,
    /// section V-E), so only what they take longer than that is waited for. If something else has the
    /// driver say more before that, all of it is carried out then.
    fn look_up_tables(&mut self, served: u64) -> Result<(), SimError> {
        let accesses = u64::from(self.driver.take_table_accesses());
        let beside = self.spec.host.fault_ns * served;
        let longer = (accesses * self.spec.host.table_ns).saturating_sub(beside);
        if longer == 0 {
            return self.pump();
        }
        self.occupy(Doing::Tables, Span::from_nanos(longer));
        Ok(())
    }

    fn observe_host(&mut self, work: u64) {
        let Some((doing, since)) = self.host.doing.get(&work) else {
            return;
        };
        let (name, entries) = match doing {
            Doing::Batch { faults, notices, .. } => {
                ("batch", (faults.len() + notices.len()) as u64)
            }
            Doing::Operation(command) => (command.op.name(), command.op.pages()),
            Doing::Tables => ("tables", 0),
        };
        let since = self.shown(*since);
        self.observe(|_| Observation::Host { name, entries, since });
    }

    fn serve(&mut self, gpu: u8, faults: &[CardFault], notices: Vec<PageNo>) {
        let card = CardId(gpu);
        for fault in faults {
            self.note_fault(fault.id, true);
        }
        if !faults.is_empty() {
            self.driver.handle(self.queue.now(), Event::CardFaults { card, faults });
        }
        let (counter, page) = (&self.spec.counter, self.spec.page.bytes);
        let (group, count) = ((counter.group_bytes / page).max(1), counter.threshold);
        for first in notices {
            let pages = PageRange::new(first, u64::from(group));
            self.driver.handle(self.queue.now(), Event::CounterNotice { card, pages, count });
        }
    }

    /// The effect of an operation on the CPU's mappings. The simulated program does not touch
    /// memory on the CPU once time runs, so mappings have no effect; freed frames have.
    pub(super) fn host_operation(&mut self, op: &HostOp) -> Result<(), SimError> {
        let HostOp::Release { runs } = op else {
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
