//! Negative controls of the runs with rings: each broken rule of the ring protocol must be seen by the
//! harness within a bounded number of runs.

use farside_svm::Mutation;
use harness::{Hostility, RingMutation, Setup, run_episode};

/// Runs that a mutation may survive. Most are seen in the first; a lost fault, in a machine whose queue of faults
/// is full, in the fiftieth.
const RUNS: u64 = 200;

/// Steps of each.
const STEPS: u64 = 3_000;

/// Machines that break nothing by themselves: what is seen is the mutation.
fn world(run: u64, crowded: bool) -> Setup {
    let hostility = if run % 2 == 0 { Hostility::none() } else { Hostility::reordering() };
    let setup = Setup::random_rings(15_000 + run * 7, hostility);
    if crowded { setup.crowded() } else { setup }
}

fn must_be_caught(mutation: RingMutation) {
    harness::must_be_caught(mutation, RUNS, STEPS, |run| {
        world(run, mutation == RingMutation::LoseFault).ring_mutated(mutation)
    });
}

harness::mutations! {
    RingMutation {
        forget_doorbell: ForgetDoorbell,
        forget_interrupt: ForgetInterrupt,
        publish_before_entry: PublishBeforeEntry,
        driver_sleeps_blindly: DriverSleepsBlindly,
        card_sleeps_blindly: CardSleepsBlindly,
        skip_drain: SkipDrain,
        lose_completion: LoseCompletion,
        lose_fault: LoseFault,
        keep_translation: KeepTranslation,
        copy_late: CopyLate,
        keep_table_entry: KeepTableEntry,
        keep_tlb_entry: KeepTlbEntry,
        keep_table_right: KeepTableRight,
        walk_ignores_rights: WalkIgnoresRights,
    }
}

/// The controls' control: the same runs with nothing broken.
#[test]
fn control_nothing_is_caught_where_nothing_is_broken() {
    for (run, crowded) in (0..RUNS).flat_map(|run| [(run, false), (run, true)]) {
        if let Err(failure) = run_episode(world(run, crowded), STEPS) {
            panic!("{failure}");
        }
    }
}

/// Cards that only refuse commands: a refused one that is taken for done is noticed.
#[test]
fn control_a_refused_unmap_that_is_believed_is_noticed() {
    let rule = Mutation::LeaveUnconfirmed;
    let hostility = Hostility { ring_failure: 40, ..Hostility::none() };
    harness::must_be_caught(rule, 36, 10_000, |run| Setup {
        mutation: Some(rule),
        ..Setup::random_rings(13_000 + run, hostility.clone())
    });
}
