//! Copies and fills under way.
//!
//! The checker sees what a copy read when it started and requires that its source has not changed
//! when it ends.

use farside_svm::{Place, Run, Step, TransferOp};
use farside_types::{CommandId, FrameNo, MemoryId, PageNo, Time};

use super::CardsError;
use super::machine::{CardMachine, SimEvent};
use crate::coherence::Content;

/// A copy or fill under way.
#[derive(Debug)]
pub(super) struct Transfer {
    command: Step<TransferOp>,
    since: Time,
    read: Vec<Content>,
}

/// Page `i` of a command: its number, and its frames at the source and at the destination.
fn pages(runs: &[Run]) -> impl Iterator<Item = (PageNo, FrameNo, FrameNo)> + '_ {
    runs.iter().flat_map(|run| {
        let pages = run.pages().pages().zip(0u32..);
        pages.map(|(page, i)| (page, FrameNo(run.src.0 + i), FrameNo(run.dst.0 + i)))
    })
}

impl CardMachine {
    pub(super) fn transfer_start(&mut self, command: Step<TransferOp>) -> Result<(), CardsError> {
        let since = self.queue.now();
        let end = self.wires.carry(since, &self.spec, &command.op);
        let read = self.load(&command.op)?;
        let id = command.header.id;
        self.transfers.insert(id, Transfer { command, since, read });
        self.queue.push(end, SimEvent::TransferEnd { command: id });
        Ok(())
    }

    fn load(&mut self, op: &TransferOp) -> Result<Vec<Content>, CardsError> {
        let (Some(checker), TransferOp::Copy { from, runs, .. }) = (&mut self.coherence, op) else {
            return Ok(Vec::new());
        };
        let indexed = (0u32..).zip(pages(runs));
        let read: Result<_, _> =
            indexed.map(|(index, (_, src, _))| checker.load(*from, src, index)).collect();
        read.map_err(|what| self.broken(what))
    }

    pub(super) fn transfer_end(&mut self, id: CommandId) -> Result<(), CardsError> {
        let Some(transfer) = self.transfers.remove(&id) else {
            return Err(self.broken(format!("copy {id} ends twice")));
        };
        let command = &transfer.command;
        self.put(&command.op, &transfer.read)?;
        self.note_arrival(&command.op)?;
        let seen = self.queue.now() + self.notice_copy(command.op.pages());
        self.copied(seen.since(transfer.since));
        self.queue.push(seen, SimEvent::Done { command: id, epoch: command.header.epoch });
        Ok(())
    }

    fn put(&mut self, op: &TransferOp, read: &[Content]) -> Result<(), CardsError> {
        let arena = self.arena.start;
        let Some(checker) = &mut self.coherence else {
            return Ok(());
        };
        let done = match op {
            TransferOp::Copy { from, to, runs } => {
                let mut indexed = (0u32..).zip(pages(runs)).zip(read);
                indexed.try_for_each(|((index, (_, src, dst)), &content)| {
                    checker.store(content, (*from, src), (*to, dst), index)
                })
            }
            TransferOp::Fill { memory, runs } => pages(runs).try_for_each(|(page, _, frame)| {
                checker.zero((page.0 - arena.0) as u32, *memory, frame)
            }),
        };
        done.map_err(|what| self.broken(what))
    }

    /// Remembers where the bytes came from: finalizing depends on it.
    fn note_arrival(&mut self, op: &TransferOp) -> Result<(), CardsError> {
        for page in op.runs().iter().flat_map(|run| run.pages().pages()) {
            let index = self.index(page)?;
            match op {
                TransferOp::Copy { from: Place::Memory(memory), .. } => {
                    self.arrived.insert(index, *memory);
                }
                // New pages take the place of entries of the host.
                TransferOp::Fill { .. } => {
                    self.arrived.insert(index, MemoryId::HOST);
                }
                _ => {}
            }
        }
        Ok(())
    }
}
