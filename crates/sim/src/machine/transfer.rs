//! Copies and zero fills: a latency, and the time on the links at both ends.
//!
//! Any number may be under way; links are what they wait for. The checker sees what a copy read
//! when it starts and requires that the source has not changed when it ends.

use farside_svm::{Place, Run, Step, TransferOp};
use farside_types::{FrameNo, PageNo, Span, Time};
use serde::{Deserialize, Serialize};

use super::watch::memory_of;
use super::{Machine, SimEvent};
use crate::SimError;
use crate::coherence::{Coherence, Content};
use crate::observe::Observation;
use crate::time::bytes_time;

/// A copy or fill under way.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Transfer {
    command: Step<TransferOp>,
    since: Time,
    /// What the pages of a copy held when it started, if the checker is on.
    read: Vec<Content>,
}

/// Page `i` of a command: its number, and its frames at the source and at the destination.
fn pages(runs: &[Run]) -> impl Iterator<Item = (PageNo, FrameNo, FrameNo)> + '_ {
    runs.iter().flat_map(|run| {
        let frames = |frame: FrameNo, offset: usize| FrameNo(frame.0 + offset as u32);
        let pages = run.pages().pages().enumerate();
        pages.map(move |(i, page)| (page, frames(run.src, i), frames(run.dst, i)))
    })
}

impl Machine {
    pub(super) fn transfer_start(&mut self, command: Step<TransferOp>) -> Result<(), SimError> {
        let now = self.queue.now();
        let bytes = command.op.pages() * u64::from(self.spec.page.bytes);
        let on_the_wire = match &command.op {
            TransferOp::Copy { from, to, .. } => {
                let (from, to) = (memory_of(*from), memory_of(*to));
                self.links.carry(now, from, to, bytes)
            }
            TransferOp::Fill { .. } => now + bytes_time(bytes, self.spec.gpu.memory_gb_per_s),
        };
        let end = on_the_wire + Span::from_nanos(self.spec.copy.latency_ns);
        let id = command.header.id;
        let transfer = self.transfer(command)?;
        self.transfers.insert(id, transfer);
        self.queue.push(end, SimEvent::TransferEnd { command: id });
        Ok(())
    }

    fn transfer(&mut self, command: Step<TransferOp>) -> Result<Transfer, SimError> {
        for run in command.op.runs() {
            self.index(run.page)?;
        }
        let mut read = Vec::new();
        if let (Some(checker), TransferOp::Copy { from, runs, .. }) =
            (&mut self.coherence, &command.op)
        {
            let loaded: Result<Vec<_>, _> = (0u32..)
                .zip(pages(runs))
                .map(|(index, (_, src, _))| checker.load(*from, src, index))
                .collect();
            read = loaded.map_err(|what| self.broken(what))?;
        }
        Ok(Transfer { command, since: self.queue.now(), read })
    }

    pub(super) fn transfer_end(&mut self, id: farside_types::CommandId) -> Result<(), SimError> {
        let Some(transfer) = self.transfers.remove(&id) else {
            return Ok(());
        };
        self.transfer_effect(&transfer)?;
        self.note_copied(&transfer.command.op);
        self.observe_transfer(&transfer);
        let header = transfer.command.header;
        self.answer(header.id, header.epoch)
    }

    fn transfer_effect(&mut self, transfer: &Transfer) -> Result<(), SimError> {
        let arena = self.arena;
        let Some(checker) = &mut self.coherence else {
            return Ok(());
        };
        let done = match &transfer.command.op {
            TransferOp::Copy { from, to, runs } => copy(checker, *from, *to, runs, &transfer.read),
            TransferOp::Fill { memory, runs } => pages(runs).try_for_each(|(page, _, frame)| {
                checker.zero((page.0 - arena.0) as u32, *memory, frame)
            }),
        };
        done.map_err(|what| self.broken(what))
    }

    fn observe_transfer(&mut self, transfer: &Transfer) {
        let (from, to) = match &transfer.command.op {
            TransferOp::Copy { from, to, .. } => (Some(memory_of(*from)), memory_of(*to)),
            TransferOp::Fill { memory, .. } => (None, *memory),
        };
        for run in transfer.command.op.runs() {
            self.observe(|machine| {
                let (since, reason) =
                    (machine.shown(transfer.since), transfer.command.header.reason);
                Observation::Transfer { page: run.page, pages: run.count, from, to, since, reason }
            });
        }
    }

    /// Carries a copy or fill out at once: before time starts.
    pub(super) fn transfer_now(&mut self, command: Step<TransferOp>) -> Result<(), SimError> {
        let transfer = self.transfer(command)?;
        self.transfer_effect(&transfer)
    }
}

fn copy(
    checker: &mut Coherence,
    from: Place,
    to: Place,
    runs: &[Run],
    read: &[Content],
) -> Result<(), String> {
    let mut indexed = (0u32..).zip(pages(runs)).zip(read);
    indexed.try_for_each(|((index, (_, src, dst)), &content)| {
        checker.store(content, (from, src), (to, dst), index)
    })
}
