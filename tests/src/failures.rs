//! Commands that fail although nothing is wrong with memories: paging calls of the host, and what a
//! card is told. By chance ([`crate::Hostility`]), or one of them on purpose ([`Sabotage`]).
//!
//! What a command that failed has done nobody knows: of the host's calls a part of the pages, more
//! than the answer says; of a card's, nothing.

use farside_svm::{Command, Executor, RingOp, Step, StepError, StepErrorKind, Wait};
use farside_types::{CardId, PageNo};

use crate::accesses::touches;
use crate::card::Queued;
use crate::job::JobState;
use crate::machine::{Machine, Work};
use crate::rings::flat;
use crate::violation::{Violation, ensure};

/// ENOMEM: what the kernel says most often where nothing else is wrong.
const ERRNO: StepErrorKind = StepErrorKind::Os(12);

/// One command that fails on purpose, and those like it after that.
#[derive(Clone, Copy, Debug)]
pub struct Sabotage {
    /// Which: so many commands are handed out before it.
    pub at: u64,
    /// How it fails. [`StepErrorKind::TimedOut`]: its executor says nothing at all.
    pub kind: StepErrorKind,
    /// How often: it, and then commands of the same kind by the same executor on one of its pages.
    pub times: u32,
}

/// A sabotage under way.
#[derive(Debug, Default)]
pub(crate) struct Saboteur {
    plan: Option<Sabotage>,
    /// Commands that were handed out since it was armed.
    pub(crate) seen: u64,
    /// The command that was struck first.
    first: Option<(&'static str, Executor, Vec<PageNo>)>,
    /// The names of what was struck.
    pub(crate) struck: Vec<&'static str>,
}

impl Saboteur {
    pub(crate) fn new(plan: Sabotage) -> Saboteur {
        Saboteur { plan: Some(plan), ..Saboteur::default() }
    }

    /// Whether the command is struck, and how.
    fn strikes(&mut self, command: &Command) -> Option<StepErrorKind> {
        self.seen += 1;
        let plan = self.plan.as_mut().filter(|plan| plan.times > 0)?;
        let like_first = self.first.as_ref().is_some_and(|(name, executor, pages)| {
            let same = *name == command.name() && *executor == command.executor();
            same && (pages.is_empty() || pages.iter().any(|&page| touches(command.runs(), page)))
        });
        let first = self.first.is_none() && self.seen == plan.at + 1;
        if !first && !like_first {
            return None;
        }
        if first {
            let pages = flat(command.runs()).map(|(page, ..)| page).collect();
            self.first = Some((command.name(), command.executor(), pages));
        }
        plan.times = plan.times.saturating_sub(1);
        self.struck.push(command.name());
        Some(plan.kind)
    }
}

impl Machine {
    /// Whether a command fails on purpose, and how.
    pub(crate) fn sabotaged(&mut self, command: &Command) -> Option<StepErrorKind> {
        let kind = self.saboteur.strikes(command)?;
        self.say('!', format!("{} is struck: {kind:?}", command.id().0));
        Some(kind)
    }

    /// Whether a call of the host fails by chance.
    pub(crate) fn host_call_fails(&mut self) -> Option<StepErrorKind> {
        self.rng.chance(self.hostility.host_failure).then_some(ERRNO)
    }

    /// How many pages a call of the host did before it failed, and how many it says.
    pub(crate) fn partly(&mut self, pages: u64) -> (u64, u64) {
        let said = self.rng.below(pages);
        (said + self.rng.below(pages - said + 1), said)
    }

    /// Whether a card refuses a command by chance.
    pub(crate) fn ring_command_fails(&mut self, card: CardId) -> Option<StepErrorKind> {
        let state = &self.cards[usize::from(card.0)];
        if state.stalled {
            return None;
        }
        let chance = self.hostility.ring_failure;
        self.rng.chance(chance).then_some(StepErrorKind::Transfer)
    }

    /// A card refuses the head of its ring.
    pub(crate) fn refuse(&mut self, card: CardId, head: &Queued, kind: StepErrorKind) {
        let Step { header, op } = &head.step;
        self.say('!', format!("{card} refuses {} {}", header.id.0, op.name()));
        self.note_failure(op.runs());
        match op {
            RingOp::Unmap { .. } | RingOp::Protect { .. } => {
                let state = self.card_mut(card);
                state.doubtful = true;
                // It was to be carried out before whatever comes next, and nothing comes next.
                state.halted |= header.wait == Wait::Posted;
                state.stalled |= state.halted;
                state.deaf |= state.halted;
            }
            RingOp::Map { runs, .. } => {
                let pages: Vec<PageNo> = flat(runs).map(|(page, ..)| page).collect();
                self.card_mut(card).not_mapped.extend(pages);
            }
            RingOp::Accessed { .. } => {}
            RingOp::Launch { job } => self.job_mut(*job).state = JobState::Asked,
            RingOp::Resume { faults } | RingOp::Cancel { faults, .. } => {
                for id in faults.iter() {
                    self.faults.get_mut(id).into_iter().for_each(|fault| fault.answered = false);
                }
                self.card_mut(card).answers_refused = true;
            }
        }
        let at = self.soon();
        self.complete(header, at, Err(StepError { pages_done: 0, kind }));
    }

    /// The driver says that a card is broken: somebody has to reset it.
    pub(crate) fn broken(&mut self, card: CardId) -> Result<(), Violation> {
        let state = self.card_mut(card);
        let cause = state.doubtful || state.lost || !state.not_mapped.is_empty();
        ensure!(
            cause || state.answers_refused,
            "{card} is called broken, and has not failed anything"
        );
        if !state.suspect {
            state.suspect = true;
            self.later(Work::Reset(card));
        }
        Ok(())
    }

    /// The driver says that threads wait for a page for ever: the program ends, as far as they are
    /// concerned.
    pub(crate) fn stuck(&mut self, page: PageNo) -> Result<(), Violation> {
        let failures = self.cpu.poison_failures.remove(&page).unwrap_or(0);
        ensure!(
            failures >= u32::from(self.limits.attempts),
            "threads are said to be stuck at {page}, and poison failed {failures} times only"
        );
        self.end_threads(page);
        Ok(())
    }
}
