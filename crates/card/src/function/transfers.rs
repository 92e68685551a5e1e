//! Copies, fills and link transfers: what the embedder moves for the function.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use farside_types::CommandId;

use super::extents::Roles;
use super::refusal::Refusal;
use super::{Action, Bus, Function};
use crate::interface::{CompletionEntry, ExtentArg, Status, register};
use crate::{Card, TransferFailed};

/// What the page DMA is to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Work {
    Copy,
    Fill(u64),
}

/// What the link is to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum LinkWork {
    Receive { transfer: u32, from: u16 },
    Send { transfer: u32, to: u16 },
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    id: CommandId,
    extents: ExtentArg,
    work: Work,
}

/// The transfers of a function.
#[derive(Clone, Default, Debug)]
pub(super) struct Transfers {
    /// Copies and fills that are under way, with their pages.
    running: BTreeMap<CommandId, u64>,
    /// Those that wait, in order. A list is read when its command begins, so that a command that
    /// waits is small.
    waiting: VecDeque<Waiting>,
    /// Link commands that are under way.
    links: BTreeSet<CommandId>,
}

impl Transfers {
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.none_runs()
    }

    pub(super) fn none_runs(&self) -> bool {
        self.running.is_empty() && self.links.is_empty()
    }

    pub(super) fn any_copy(&self) -> bool {
        !self.running.is_empty()
    }

    pub(super) fn any_link(&self) -> bool {
        !self.links.is_empty()
    }

    pub(super) fn forget_waiting(&mut self) {
        self.waiting.clear();
    }

    /// Takes a transfer back that the embedder has not been told of.
    pub(super) fn unstart(&mut self, id: CommandId) {
        self.running.remove(&id);
        self.links.remove(&id);
    }
}

impl Function {
    /// Takes a copy or a fill in. It begins when fewer than the most are under way.
    pub(super) fn transfer(&mut self, id: CommandId, extents: ExtentArg, work: Work) {
        self.transfers.waiting.push_back(Waiting { id, extents, work });
    }

    /// Begins copies and fills that wait, in order.
    pub(super) fn start_waiting_transfers(&mut self, card: &Card, bus: &mut impl Bus) {
        let most = card.geometry().dma_commands_max as usize;
        while self.transfers.running.len() < most {
            let Some(next) = self.transfers.waiting.pop_front() else {
                return;
            };
            if let Err(refusal) = self.begin_transfer(next, card, bus) {
                self.refuse(next.id, refusal, bus);
            }
        }
    }

    fn begin_transfer(
        &mut self,
        next: Waiting,
        card: &Card,
        bus: &mut impl Bus,
    ) -> Result<(), Refusal> {
        let Waiting { id, extents, work } = next;
        let roles = match work {
            Work::Copy => Roles::COPY,
            Work::Fill(_) => Roles::WRITE,
        };
        let extents = self.dma_extents(extents, roles, card, bus)?;
        self.transfers.running.insert(id, extents.pages());
        let extents = extents.into_vec();
        self.actions.push_back(match work {
            Work::Copy => Action::Copy { id, extents },
            Work::Fill(pattern) => Action::Fill { id, extents, pattern },
        });
        Ok(())
    }

    pub(super) fn end_transfer(&mut self, id: CommandId, result: Result<(), TransferFailed>) {
        let Some(asked) = self.transfers.running.remove(&id) else {
            return;
        };
        let (status, pages) = match result {
            Ok(()) => (Status::Ok, asked),
            Err(failed) => (Status::CopyFailed, asked.min(failed.pages_done.into())),
        };
        self.counts.dma_pages += pages;
        self.ledger.finish(id, CompletionEntry { pages, ..CompletionEntry::plain(0, status) });
    }

    /// Begins a transfer over the link.
    pub(super) fn link(
        &mut self,
        id: CommandId,
        extents: ExtentArg,
        work: LinkWork,
        card: &Card,
        bus: &mut impl Bus,
    ) -> Result<Option<CompletionEntry>, Refusal> {
        self.check_link(card)?;
        let roles = match work {
            LinkWork::Receive { .. } => Roles::WRITE,
            LinkWork::Send { .. } => Roles::READ,
        };
        let extents = self.dma_extents(extents, roles, card, bus)?.into_vec();
        self.transfers.links.insert(id);
        self.actions.push_back(match work {
            LinkWork::Receive { transfer, from } => {
                Action::LinkReceive { id, extents, transfer, from }
            }
            LinkWork::Send { transfer, to } => Action::LinkSend { id, extents, transfer, to },
        });
        Ok(None)
    }

    /// Gives an announced transfer up.
    pub(super) fn link_cancel(
        &mut self,
        id: CommandId,
        transfer: u32,
        from: u16,
    ) -> Result<Option<CompletionEntry>, Refusal> {
        if !self.config.can(register::CAP_LINK) {
            return Err(Refusal::mistake(Status::Unsupported, 0));
        }
        self.transfers.links.insert(id);
        self.actions.push_back(Action::LinkCancel { id, transfer, from });
        Ok(None)
    }

    /// A cancel is always taken, so that a link full of announced transfers can be emptied.
    fn check_link(&self, card: &Card) -> Result<(), Refusal> {
        if !self.config.can(register::CAP_LINK) {
            return Err(Refusal::mistake(Status::Unsupported, 0));
        }
        if self.transfers.links.len() >= card.geometry().dma_commands_max as usize {
            return Err(Refusal::state(Status::Busy, 0));
        }
        Ok(())
    }

    pub(super) fn end_link(&mut self, id: CommandId, status: Status, pages: u64) {
        if self.transfers.links.remove(&id) {
            self.ledger.finish(id, CompletionEntry { pages, ..CompletionEntry::plain(0, status) });
        }
    }
}
