//! Reset: what was begun is ended or waited for, then everything is as new.
//!
//! From the moment the reset is asked for the function touches no ring and no list. Kernels and
//! copies that the embedder carries out may still touch memory, so the reset is over only when each
//! of them has been answered.

use super::errors::Errors;
use super::rings::RingRegisters;
use super::{Action, Function, Phase, Window};
use crate::Card;

impl Function {
    /// Ends what can be ended and asks for the end of the rest. A reset under way goes on.
    pub(super) fn begin_reset(&mut self, card: &mut Card) {
        if matches!(self.phase, Phase::Resetting { .. }) {
            return;
        }
        self.close_rings();
        self.phase = Phase::Resetting { asked: false };
        self.ledger.clear();
        self.jobs.forget_waiting();
        self.transfers.forget_waiting();
        if let Some(window) = &mut self.window {
            window.forget_waiting();
        }
        self.take_back_actions(card);
        self.stop_all(card);
        if self.transfers.any_copy() {
            self.actions.push_back(Action::StopCopies);
        }
        if self.transfers.any_link() {
            self.actions.push_back(Action::StopLinks);
        }
        self.finish_reset_if_over();
    }

    /// What the embedder has not been told of never happens. Answers and stops stay: they belong to
    /// what it has been told of.
    fn take_back_actions(&mut self, card: &mut Card) {
        for action in std::mem::take(&mut self.actions) {
            match action {
                Action::Start { job, .. } => self.unstart(job, card),
                Action::Copy { id, .. }
                | Action::Fill { id, .. }
                | Action::LinkReceive { id, .. }
                | Action::LinkSend { id, .. }
                | Action::LinkCancel { id, .. } => self.transfers.unstart(id),
                Action::Stop { job } if !self.jobs.runs(job) => {}
                Action::Stop { .. }
                | Action::Answer(_)
                | Action::StopCopies
                | Action::StopLinks
                | Action::Reset => {
                    self.actions.push_back(action);
                }
            }
        }
    }

    /// Tells the embedder, once, when nothing that the function began is under way any more.
    pub(super) fn finish_reset_if_over(&mut self) {
        if self.phase == (Phase::Resetting { asked: false })
            && self.jobs.none_runs()
            && self.transfers.none_runs()
            && self.window.as_ref().is_none_or(Window::is_quiet)
        {
            self.phase = Phase::Resetting { asked: true };
            self.actions.push_back(Action::Reset);
        }
    }

    /// The embedder's answer to [`Action::Reset`]: the card and its registers are as new, except
    /// that counters go on. Before that action it changes nothing.
    pub fn reset_done(&mut self, card: &mut Card) {
        if self.phase != (Phase::Resetting { asked: true }) {
            return;
        }
        let aborted = card.reset();
        self.hand_over(aborted.answers);
        card.set_counter_threshold(card.geometry().counter_threshold);
        self.registers = RingRegisters::default();
        self.errors = Errors::default();
        self.window.iter_mut().for_each(Window::renew);
        self.phase = Phase::Disabled;
    }
}
