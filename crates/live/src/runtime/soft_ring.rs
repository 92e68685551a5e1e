//! The driver's commands on a card in the program: tables change at once.

use farside_card::{Answer, Drained, Location, MappedRun};
use farside_linux::lock::lock;
use farside_softcard::SoftCard;
use farside_svm::{Op, Run};
use farside_types::{CommandId, MemoryId, Rights};

use super::ASID;

/// Carries out a command of a card's ring, other than a launch. [`Drained::Now`]: it is done; else
/// it is when the drain of this id ends.
pub(super) fn carry_out(card: &SoftCard, id: CommandId, op: &Op) -> Drained {
    match op {
        Op::CardUnmap { runs } => {
            let ranges = runs.iter().map(|run| run.pages());
            lock(&card.model).unmap(id, ASID, ranges)
        }
        Op::CardProtect { runs, rights } => {
            let ranges = runs.iter().map(|run| run.pages());
            lock(&card.model).protect(id, ASID, ranges, *rights)
        }
        Op::CardMap { runs, memory, rights } => {
            map(card, runs, *memory, *rights);
            Drained::Now
        }
        Op::CardResume { faults } => {
            let mut model = lock(&card.model);
            let answers: Vec<Answer> = faults.iter().flat_map(|&f| model.resume(f)).collect();
            drop(model);
            card.answer(answers);
            Drained::Now
        }
        Op::CardCancel { faults, reason } => {
            let mut model = lock(&card.model);
            let answers: Vec<Answer> =
                faults.iter().flat_map(|&f| model.cancel(f, *reason)).collect();
            drop(model);
            card.answer(answers);
            Drained::Now
        }
        _ => Drained::Now,
    }
}

fn map(card: &SoftCard, runs: &[Run], memory: MemoryId, rights: Rights) {
    let mapped =
        runs.iter().map(|run| MappedRun::new(run.page, run.count, Location::new(memory, run.dst)));
    if let Err(error) = lock(&card.model).map(ASID, mapped, rights) {
        // The driver and the card disagree about the card's size: a bug, and without a
        // mapping the kernel faults again, a bounded number of times.
        tracing::error!(%error, "a card refused a mapping");
    }
}
