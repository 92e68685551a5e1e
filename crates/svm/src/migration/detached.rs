//! Commands of no chain: nobody waits for them, and yet none may fail in silence (driver rule 8).
//!
//! | command | when it fails |
//! |---|---|
//! | poison a page for the CPU | again, some times; then the program hears that its threads wait for ever |
//! | answer faults of a card | again, some times; then the card has to be reset |
//! | insert translations | the access faults again; a card that fails some in a row has to be reset |
//! | read which pages were used | nothing is learnt of them |
//! | take translations of bytes that are gone | the card has to be reset |
//! | launch | the job is dropped |

use farside_types::{AgentId, AgentSet, CardId, CommandId, JobId, PageNo, Reason};
use serde::{Deserialize, Serialize};

use crate::Driver;
use crate::api::command::{FaultIds, Header, HostOp, Order, Phase, RingOp, Run, Runs, Wait};
use crate::api::event::{StepError, StepErrorKind};
use crate::api::reply::Reply;
use crate::migration::chains::ChainId;
use crate::mutation::Mutation;
use crate::tables::page::{PageState, flag};
use crate::waiting::Until;

/// A command of no chain that is not answered.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Detached {
    command: CommandId,
    what: What,
    /// How often it has failed.
    failures: u8,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
enum What {
    Poison(PageNo),
    Answer(CardId, RingOp),
    Map(CardId),
    Unmap(CardId, Runs),
    Accessed(CardId, Runs),
    Launch(CardId, JobId),
}

impl Driver {
    /// Issues a command of a card that no chain waits for.
    pub(crate) fn issue_detached(&mut self, card: CardId, op: RingOp) {
        let what = match &op {
            RingOp::Resume { .. } | RingOp::Cancel { .. } => What::Answer(card, op.clone()),
            RingOp::Unmap { runs, .. } => What::Unmap(card, runs.clone()),
            RingOp::Accessed { runs } => What::Accessed(card, runs.clone()),
            RingOp::Launch { job } => What::Launch(card, *job),
            RingOp::Map { .. } | RingOp::Protect { .. } => What::Map(card),
        };
        self.stats.posted_commands += 1;
        self.send_detached(Order::Ring(card, op), what, 0);
    }

    fn send_detached(&mut self, order: Order, what: What, failures: u8) {
        let id = self.command_id(ChainId::DETACHED);
        let (epoch, wait, phase) = (farside_types::Epoch(0), Wait::Posted, Phase::Finalize);
        let reason = Reason::Demand;
        self.commands.push_back(order.with(Header { id, epoch, wait, phase, reason }));
        self.detached.push_back(Detached { command: id, what, failures });
    }

    /// The card and the pages of a [`RingOp::Accessed`] that is under way.
    pub(crate) fn asked_about(&self, command: CommandId) -> Option<(CardId, Runs)> {
        let asked = self.detached.iter().find(|detached| detached.command == command)?;
        match &asked.what {
            What::Accessed(card, runs) => Some((*card, runs.clone())),
            _ => None,
        }
    }

    /// Pages that a card was asked about, and has not told of yet.
    pub(crate) fn pages_asked(&self, card: CardId) -> u64 {
        let asked = self.detached.iter().filter_map(|detached| match &detached.what {
            What::Accessed(on, runs) if *on == card => Some(runs),
            _ => None,
        });
        asked.flat_map(|runs| runs.iter()).map(|run| u64::from(run.count)).sum()
    }

    /// A command of no chain was answered.
    pub(crate) fn detached_done(&mut self, command: CommandId, result: Result<(), StepError>) {
        // Rings answer in order, so it is one of the first.
        let Some(at) = self.detached.iter().position(|detached| detached.command == command) else {
            self.stats.late_completions += 1;
            return;
        };
        let Some(Detached { what, failures, .. }) = self.detached.remove(at) else { return };
        match result {
            Ok(()) => self.detached_succeeded(what),
            Err(error) => self.detached_failed(what, failures + 1, error.kind),
        }
    }

    fn detached_succeeded(&mut self, what: What) {
        match what {
            What::Poison(page) => {
                self.table.get_mut(page).directory.unmap(AgentSet::only(AgentId::CPU));
                self.wake(Until::Poisoned);
            }
            What::Map(card) => self.map_answered(card, true),
            What::Unmap(card, runs) => {
                self.confirm(AgentSet::only(card.agent()), runs.iter().map(Run::pages));
            }
            What::Answer(..) | What::Launch(..) | What::Accessed(..) => {}
        }
    }

    fn detached_failed(&mut self, what: What, failures: u8, kind: StepErrorKind) {
        if self.mutated.on(Mutation::ForgetFailedAnswers) {
            return;
        }
        let spent = failures >= self.config.limits.attempts.max(1);
        match what {
            What::Poison(page) if spent => {
                // Whoever wants the page meanwhile is not to wait as well.
                self.wake(Until::Poisoned);
                self.replies.push_back(Reply::ThreadsStuck { page, kind });
            }
            What::Poison(page) => self.issue_poison(page, failures),
            What::Map(card) => self.map_answered(card, false),
            What::Launch(_, job) => self.launch_failed(job),
            What::Accessed(..) => {}
            // The card is gone, and what it was told with it.
            What::Answer(card, _) | What::Unmap(card, _)
                if kind == StepErrorKind::CardGone || self.is_dead(card.memory()) => {}
            What::Answer(card, op) if !spent => {
                let order = Order::Ring(card, op.clone());
                self.send_detached(order, What::Answer(card, op), failures);
            }
            What::Answer(card, _) | What::Unmap(card, _) => self.distrust(card),
        }
    }

    /// An answer to faults failed that a chain had given: it is given again.
    pub(crate) fn answer_failed(&mut self, card: CardId, faults: FaultIds, kind: StepErrorKind) {
        self.detached_failed(What::Answer(card, RingOp::Resume { faults }), 1, kind);
    }

    /// A card has inserted translations, or failed to. Without them it faults again, and is given
    /// them again, but not for ever.
    pub(crate) fn map_answered(&mut self, card: CardId, well: bool) {
        let most = self.config.limits.attempts;
        let state = &mut self.cards[card.0 as usize];
        state.maps_failed = if well { 0 } else { state.maps_failed.saturating_add(1) };
        if state.maps_failed > most {
            self.distrust(card);
        }
    }

    /// The program's accesses to `page` end with an error, until the page is next moved or mapped,
    /// or allocated anew.
    pub(crate) fn poison(&mut self, page: PageNo) {
        self.blocked.remove(&page);
        if !self.table.covers(page) {
            return;
        }
        let unallocated = self.table.get(page).state == PageState::Unallocated;
        if unallocated && !self.config.arena.contains(page) {
            // It was given back to the program, which ends the wait.
            return;
        }
        self.stats.cancelled_faults += 1;
        self.table.get_mut(page).set(flag::POISONED, true);
        self.issue_poison(page, 0);
    }

    fn issue_poison(&mut self, page: PageNo, failures: u8) {
        let frame = self.table.host_frame(page);
        let runs = [Run { page, count: 1, src: frame, dst: frame }].as_slice().into();
        let order = Order::Host(HostOp::Poison { runs });
        self.send_detached(order, What::Poison(page), failures);
    }

    /// Whether the command that poisons `page` is still out. The host's commands have no order
    /// among each other: nothing may lift the poison before.
    pub(crate) fn is_being_poisoned(
        &self,
        page: PageNo,
        entry: &crate::tables::page::PageEntry,
    ) -> bool {
        let poisons =
            |detached: &Detached| matches!(detached.what, What::Poison(other) if other == page);
        entry.has(flag::POISONED) && self.detached.iter().any(poisons)
    }

    /// A card is gone: what it was told by nobody's chain is answered by nobody.
    pub(crate) fn forget_detached(&mut self, card: CardId) {
        self.detached.retain(|detached| match detached.what {
            What::Answer(on, _)
            | What::Map(on)
            | What::Unmap(on, _)
            | What::Accessed(on, _)
            | What::Launch(on, _) => on != card,
            What::Poison(_) => true,
        });
    }
}
