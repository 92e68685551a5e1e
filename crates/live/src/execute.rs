//! Carrying out commands of the host's processors: paging calls and copies.

use farside_svm::{Command, Header, HostOp, Mover, Run, Step, StepError, TransferOp};

use farside_types::Rights;

use crate::adopted::{Departure, Region};
use crate::runtime::Runtime;
use crate::trace;
use crate::traffic::Copying;

/// A command that a host processor carries out.
#[derive(Clone, Debug)]
pub(crate) enum HostWork {
    /// A paging call.
    Paging(Step<HostOp>),
    /// A copy or fill; whoever else could do it is not there.
    Transfer(Mover, Step<TransferOp>),
}

impl From<HostWork> for Command {
    fn from(work: HostWork) -> Command {
        match work {
            HostWork::Paging(step) => Command::Host(step),
            HostWork::Transfer(mover, step) => Command::Transfer(mover, step),
        }
    }
}

impl HostWork {
    pub(crate) fn header(&self) -> &Header {
        match self {
            HostWork::Paging(step) => &step.header,
            HostWork::Transfer(_, step) => &step.header,
        }
    }

    /// The runs that it is about.
    pub(crate) fn runs(&self) -> &[Run] {
        match self {
            HostWork::Paging(step) => step.op.runs(),
            HostWork::Transfer(_, step) => step.op.runs(),
        }
    }

    /// The runs that it takes from where the program has them.
    fn takes(&self) -> &[Run] {
        let HostWork::Paging(step) = self else { return &[] };
        match &step.op {
            HostOp::Unmap { runs } | HostOp::Poison { runs } => runs,
            HostOp::Protect { runs, rights } | HostOp::Map { runs, rights } => {
                if *rights == Rights::ReadWrite { &[] } else { runs }
            }
            HostOp::Release { .. } => &[],
        }
    }

    /// What it copies, if it does.
    pub(crate) fn copying(&self) -> Option<Copying> {
        match self {
            HostWork::Paging(_) => None,
            HostWork::Transfer(_, step) => Copying::of(&step.op),
        }
    }

    /// Pages that are copied or filled.
    pub(crate) fn pages_moved(&self) -> u64 {
        match self {
            HostWork::Paging(_) => 0,
            HostWork::Transfer(_, step) => step.op.pages(),
        }
    }
}

impl Runtime {
    /// Whether a command can be begun: none that takes adopted memory while the program forks. What this gives is
    /// kept until it was carried out.
    pub(crate) fn may_begin(&self, work: &HostWork) -> Option<Departure<'_>> {
        let adopted = &self.memories.adopted;
        // A child has no copy of what is a file's.
        let programs = |run: &Run| self.memories.is_adopted(run) && !self.is_filed(run);
        let takes = adopted.is_used() && work.takes().iter().any(programs);
        if takes { adopted.departure() } else { Some(Departure::NONE) }
    }

    /// Carries a command out. The driver's lock is not held.
    pub(crate) fn execute(&self, work: &HostWork) -> Result<(), StepError> {
        match work {
            HostWork::Paging(Step { header, op }) => {
                trace::command(header, op.name(), || op.pages());
            }
            HostWork::Transfer(mover, step) => trace::transfer(*mover, step),
        }
        let command = || work.clone().into();
        self.unless_struck(command, || match work {
            HostWork::Paging(step) => self.page(&step.op),
            HostWork::Transfer(_, step) => self.transfer(&step.op),
        })
    }

    /// A paging call.
    fn page(&self, op: &HostOp) -> Result<(), StepError> {
        let memories = &self.memories;
        let arena = &memories.arena;
        match op {
            HostOp::Unmap { runs } => {
                memories.host_runs(runs, |range| arena.unmap(range), Region::unmap)
            }
            HostOp::Protect { runs, rights } => {
                let adopted = |region: &Region, range| region.protect(range, *rights);
                memories.host_runs(runs, |range| arena.protect(range, *rights), adopted)
            }
            HostOp::Map { runs, rights } => {
                // Fresh pages are holes in the file, all others have bytes: one call serves both.
                let adopted = |region: &Region, range| region.map(range, *rights);
                let map = |range| arena.map_zero(range, *rights).map(drop);
                memories.host_runs(runs, map, adopted)
            }
            // Adopted memory keeps its pages.
            HostOp::Release { runs } => {
                memories.host_runs(runs, |range| arena.release(range), |_, _| Ok(()))
            }
            HostOp::Poison { runs } => self.poison(runs),
        }
    }

    fn transfer(&self, op: &TransferOp) -> Result<(), StepError> {
        match op {
            TransferOp::Copy { from, to, runs } => self.memories.copy(*from, *to, runs),
            TransferOp::Fill { memory, runs } => {
                self.memories.fill(*memory, runs);
                Ok(())
            }
        }
    }

    /// Where the kernel cannot poison (before Linux 6.6) an access to a lost page cannot end with
    /// SIGBUS on that page alone; the arena is closed instead of showing zeros.
    fn poison(&self, runs: &[Run]) -> Result<(), StepError> {
        let arena = &self.memories.arena;
        if !arena.support().poison {
            let pages = runs.first().map(Run::pages).unwrap_or_default();
            eprintln!(
                "farside: {pages} cannot be given to the thread that waits for it, and this \
                 kernel cannot end that access alone (UFFDIO_POISON, Linux 6.6); aborting rather \
                 than showing zeros"
            );
            std::process::abort();
        }
        self.memories.host_runs(runs, |range| arena.poison(range), Region::poison)
    }
}
