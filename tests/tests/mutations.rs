//! Negative controls of the randomised runs: each checked-in mutation breaks one rule of the
//! driver, and the harness must see each within a bounded number of runs.

use farside_svm::Mutation;
use harness::{Hostility, Setup};

/// Runs that a mutation may survive; of those of loans, which few pages of few worlds show, ten times as many.
const RUNS: u64 = 60;

/// Steps of each.
const STEPS: u64 = 3_000;

fn must_be_caught(mutation: Mutation) {
    let of_loans = Mutation::LOANS.contains(&mutation);
    let is_rare = of_loans || Mutation::FOLLOWERS.contains(&mutation);
    let runs = if is_rare { 10 * RUNS } else { RUNS };
    harness::must_be_caught(mutation, runs, STEPS, |run| {
        // Reordering and breaking machines in turn; the seeds walk through every scheme and
        // transport.
        let hostility = if run % 2 == 0 { Hostility::reordering() } else { Hostility::breaking() };
        let setup = Setup::random(5_000 + run * 7, hostility).mutated(mutation);
        if Mutation::FOLLOWERS.contains(&mutation) {
            return setup.reading_at_once();
        }
        if Mutation::ADOPTION.contains(&mutation) {
            return setup.adopting();
        }
        if !of_loans {
            return setup;
        }
        let mut setup = setup.lending();
        setup.hostility.card_lost *= 5;
        setup
    });
}

harness::mutations! {
    Mutation {
        skip_drain: SkipDrain,
        copy_before_unmap: CopyBeforeUnmap,
        map_before_copy: MapBeforeCopy,
        free_before_drain: FreeBeforeDrain,
        keep_replicas: KeepReplicas,
        keep_stale_copy: KeepStaleCopy,
        trust_late_completions: TrustLateCompletions,
        reuse_after_timeout: ReuseAfterTimeout,
        forget_remote_mappers: ForgetRemoteMappers,
        skip_zero_fill: SkipZeroFill,
        drop_waiters: DropWaiters,
        ignore_copy_failure: IgnoreCopyFailure,
        evict_pinned: EvictPinned,
        resume_group_early: ResumeGroupEarly,
        free_without_stopping: FreeWithoutStopping,
        stale_residency: StaleResidency,
        evict_without_copy: EvictWithoutCopy,
        retry_forever: RetryForever,
        lost_reads_as_zero: LostReadsAsZero,
        ignore_stream_order: IgnoreStreamOrder,
        ignore_order: IgnoreOrder,
        run_after_failure: RunAfterFailure,
        leave_unconfirmed: LeaveUnconfirmed,
        forget_failed_answers: ForgetFailedAnswers,
        untold_is_clean: UntoldIsClean,
        written_is_clean: WrittenIsClean,
        lent_stays_mapped: LentStaysMapped,
        ignore_remote_writers: IgnoreRemoteWriters,
        loan_outlives_unmap: LoanOutlivesUnmap,
        loan_outlives_trim: LoanOutlivesTrim,
        loan_outlives_card: LoanOutlivesCard,
        give_back_elsewhere: GiveBackElsewhere,
        reach_adopted_at_home: ReachAdoptedAtHome,
        move_what_stays: MoveWhatStays,
        enter_before_leader: EnterBeforeLeader,
        outlive_leader: OutliveLeader,
    }
}
