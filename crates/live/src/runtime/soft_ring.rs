//! The driver's commands on a card in the program: tables change at once.

use std::sync::Arc;

use farside_card::tables::PageBits;
use farside_card::{Answer, Drained, Location, MappedRun};
use farside_linux::lock::lock;
use farside_softcard::{Job, SoftCard};
use farside_svm::{RingOp, Run};
use farside_types::{CommandId, JobId, MemoryId, Rights};

use super::ASID;

/// Carries out a command of a card's ring. `job` finds the job of a launch, `told` is what the command tells of
/// its pages, and `answers` is empty before and afterwards. [`Drained::Now`]: it is done; else it is when the
/// drain of this id ends.
pub(super) fn carry_out(
    card: &SoftCard,
    id: CommandId,
    op: &RingOp,
    job: impl FnOnce(JobId) -> Option<Arc<Job>>,
    told: &mut PageBits,
    answers: &mut Vec<Answer>,
) -> Drained {
    match op {
        RingOp::Unmap { runs, tells } => {
            let ranges = runs.iter().map(|run| run.pages());
            if !tells {
                return lock(&card.model).unmap(id, ASID, ranges);
            }
            *told = PageBits::new(op.pages(), op.pages());
            lock(&card.model).unmap_telling(id, ASID, ranges, told)
        }
        RingOp::Protect { runs, rights } => {
            let ranges = runs.iter().map(|run| run.pages());
            lock(&card.model).protect(id, ASID, ranges, *rights)
        }
        RingOp::Map { runs, memory, rights } => {
            map(card, runs, *memory, *rights);
            Drained::Now
        }
        RingOp::Accessed { runs } => {
            *told = PageBits::new(op.pages(), op.pages());
            lock(&card.model).take_accessed(ASID, runs.iter().map(Run::pages), told);
            Drained::Now
        }
        RingOp::Resume { faults } => {
            let mut model = lock(&card.model);
            faults.iter().for_each(|&fault| model.resume_into(fault..=fault, answers));
            drop(model);
            card.answer(answers.drain(..));
            Drained::Now
        }
        RingOp::Cancel { faults, reason } => {
            let mut model = lock(&card.model);
            faults.iter().for_each(|&fault| model.cancel_into(fault..=fault, *reason, answers));
            drop(model);
            card.answer(answers.drain(..));
            Drained::Now
        }
        RingOp::Launch { job: id } => {
            if let Some(job) = job(*id) {
                card.enqueue(job);
            }
            Drained::Now
        }
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
