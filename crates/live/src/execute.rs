//! Carrying out commands of the host's processors: paging calls and copies.

use farside_svm::{Command, Op, Run, StepError};

use crate::runtime::Runtime;

impl Runtime {
    /// Carries a command out. The driver's lock is not held.
    pub(crate) fn execute(&self, command: &Command) -> Result<(), StepError> {
        if let Some(probe) = self.probe {
            probe(command);
        }
        self.unless_struck(command, || self.act(command))
    }

    fn act(&self, command: &Command) -> Result<(), StepError> {
        let memories = &self.memories;
        let arena = &memories.arena;
        match &command.op {
            Op::HostUnmap { runs } => memories.host_runs(runs, |range| arena.unmap(range)),
            Op::HostProtect { runs, rights } => {
                memories.host_runs(runs, |range| arena.protect(range, *rights))
            }
            Op::HostMap { runs, rights } => {
                // Fresh pages are holes in the file, all others have bytes: one call serves both.
                memories.host_runs(runs, |range| arena.map_zero(range, *rights).map(drop))
            }
            Op::HostRelease { runs } => memories.host_runs(runs, |range| arena.release(range)),
            Op::HostPoison { runs } => self.poison(runs),
            Op::Copy { from, to, runs } => {
                memories.copy(*from, *to, runs);
                Ok(())
            }
            Op::Fill { memory, runs } => {
                memories.fill(*memory, runs);
                Ok(())
            }
            Op::CardUnmap { .. }
            | Op::CardProtect { .. }
            | Op::CardMap { .. }
            | Op::CardResume { .. }
            | Op::CardCancel { .. }
            | Op::CardLaunch { .. } => unreachable!("ring commands are carried out under the lock"),
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
        self.memories.host_runs(runs, |range| arena.poison(range))
    }
}
