//! Checked-in mutations: each breaks one rule of the driver, and the harness must catch each.
//!
//! They are the negative controls of the randomised harness. Without the feature `mutations` the
//! question [`on`] is a constant `false` and costs nothing.

/// One broken rule.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Mutation {
    /// Treats the drain of a running card as posted (rule 5: stop writers → copy).
    SkipDrain,
    /// Copies before the CPU is stopped (rule 5).
    CopyBeforeUnmap,
    /// Maps the destination before the copy is done (rule 5: copy → switch ownership).
    MapBeforeCopy,
    /// Frees a frame before the posted invalidation of it has completed (rule 5).
    FreeBeforeDrain,
    /// A write to a duplicated page leaves the other copies mapped (rule 2).
    KeepReplicas,
    /// A write upgrade leaves the host's stale frame marked as a valid copy (rule 2).
    KeepStaleCopy,
    /// Believes completions of an abandoned epoch (epochs).
    TrustLateCompletions,
    /// Frees the frames of a copy that timed out at once, instead of quarantining them (rule 5).
    ReuseAfterTimeout,
    /// Forgets to invalidate agents that map the page remotely (rule 1: directory of mappers).
    ForgetRemoteMappers,
    /// Maps a fresh page without filling it with zeros (rule 1: Fresh moves by zero fill).
    SkipZeroFill,
    /// Forgets the faults that arrive while a page moves (rule 8).
    DropWaiters,
    /// Takes a failed copy for a good one (rule 4: rollback).
    IgnoreCopyFailure,
    /// Evicts pinned pages (rule 9: the contract of oversubscription).
    EvictPinned,
    /// Resumes a grouped fault when its first part has arrived (all or nothing).
    ResumeGroupEarly,
    /// Frees an allocation without stopping those that have it mapped (rule 1).
    FreeWithoutStopping,
    /// Does not tell the residency map about departures (rule 3).
    StaleResidency,
    /// Hands out card memory twice: does not take eviction victims off their owner (rule 9).
    EvictWithoutCopy,
    /// Retries a failing copy without a bound (rule 8).
    RetryForever,
    /// Shows a lost page as fresh zeros (state Lost).
    LostReadsAsZero,
    /// Starts launches of one stream together (launch order).
    IgnoreStreamOrder,
    /// Starts a launch before those that it is to come after have ended (launch order).
    IgnoreOrder,
    /// Starts what was to come after something that has failed (launch order).
    RunAfterFailure,
    /// Takes an agent out of a page's directory although its unmap failed (rule 2).
    LeaveUnconfirmed,
    /// Forgets a command of no chain that failed (rule 8).
    ForgetFailedAnswers,
    /// Takes a lent page for clean of which the card told nothing (lent pages).
    UntoldIsClean,
    /// Takes a lent page for clean of which the card told that it was written (lent pages).
    WrittenIsClean,
    /// Leaves the host its mapping of a page that it lends (rule 2).
    LentStaysMapped,
    /// Believes the owner's bits of a lent page although others write it over the bus (lent pages).
    IgnoreRemoteWriters,
    /// A loan outlives the translation that it was made with (lent pages).
    LoanOutlivesUnmap,
    /// A loan outlives the host's frame (lent pages).
    LoanOutlivesTrim,
    /// The host's bytes of a lent page count as the page's when the card is lost (lent pages).
    LoanOutlivesCard,
    /// Adopted memory is given back wherever it is (adopted memory).
    GiveBackElsewhere,
    /// Cards reach adopted memory at the program's own addresses (adopted memory).
    ReachAdoptedAtHome,
    /// Adopted memory that holds other data as well moves (adopted memory).
    MoveWhatStays,
    /// Lends what the jobs of a card only read: it is lost with the card. No rule is broken, so scenarios see it.
    LendToReaders,
    /// A copy beside another one is entered before that has been (rule 5: copy → switch ownership).
    EnterBeforeLeader,
    /// A copy beside another one is entered although that one has failed (rule 4: rollback).
    OutliveLeader,
    /// Fights over an allocation are never settled (rule 10).
    FightForever,
    /// A verdict is for the pages that were fought over, and not for their allocation (rule 10).
    VerdictPerPage,
    /// A page of a settled fight is mapped where it is without its neighbours (rule 10).
    MapPageByPage,
    /// What is only read in a fight is mapped where it is, and not copied (rule 10).
    ReadersShareOneCopy,
    /// A counter moves its group back into a fight at once (rule 10).
    ProbeAtOnce,
    /// A settled fight stays settled, whatever counters tell (rule 10).
    NeverProbe,
    /// Who wants back what a probe has moved is not heard (rule 10).
    IgnoreObjections,
    /// Cards that do not reach each other's memory take pages from each other for ever (rule 10).
    FightWithoutPeers,
    /// What the host and a running card take from each other is not seen as a fight (rule 10).
    IgnoreTheHost,
    /// A page that has been put on the host to end a fight goes to the next card that asks (rule 10).
    LeaveCommonGround,
}

impl Mutation {
    /// Those that break the rules of fights: every byte stays right, so what sees them is a count of moves
    /// (`faults/contest/tests.rs`).
    pub const FIGHTS: [Mutation; 10] = [
        Mutation::FightForever,
        Mutation::VerdictPerPage,
        Mutation::MapPageByPage,
        Mutation::ReadersShareOneCopy,
        Mutation::ProbeAtOnce,
        Mutation::NeverProbe,
        Mutation::IgnoreObjections,
        Mutation::FightWithoutPeers,
        Mutation::IgnoreTheHost,
        Mutation::LeaveCommonGround,
    ];

    /// Those that break the rules of loans. Worlds that lend much see them.
    pub const LOANS: [Mutation; 7] = [
        Mutation::UntoldIsClean,
        Mutation::WrittenIsClean,
        Mutation::LentStaysMapped,
        Mutation::IgnoreRemoteWriters,
        Mutation::LoanOutlivesUnmap,
        Mutation::LoanOutlivesTrim,
        Mutation::LoanOutlivesCard,
    ];

    /// Those that break the rules of adopted memory. Worlds that adopt see them.
    pub const ADOPTION: [Mutation; 3] =
        [Mutation::GiveBackElsewhere, Mutation::ReachAdoptedAtHome, Mutation::MoveWhatStays];

    /// Those that break the rules of copies that are made beside others. Worlds in which many read see them.
    pub const FOLLOWERS: [Mutation; 2] = [Mutation::EnterBeforeLeader, Mutation::OutliveLeader];

    /// Every mutation but those of fights: random runs see it.
    pub const ALL: [Mutation; 36] = [
        Mutation::SkipDrain,
        Mutation::CopyBeforeUnmap,
        Mutation::MapBeforeCopy,
        Mutation::FreeBeforeDrain,
        Mutation::KeepReplicas,
        Mutation::KeepStaleCopy,
        Mutation::TrustLateCompletions,
        Mutation::ReuseAfterTimeout,
        Mutation::ForgetRemoteMappers,
        Mutation::SkipZeroFill,
        Mutation::DropWaiters,
        Mutation::IgnoreCopyFailure,
        Mutation::EvictPinned,
        Mutation::ResumeGroupEarly,
        Mutation::FreeWithoutStopping,
        Mutation::StaleResidency,
        Mutation::EvictWithoutCopy,
        Mutation::RetryForever,
        Mutation::LostReadsAsZero,
        Mutation::IgnoreStreamOrder,
        Mutation::IgnoreOrder,
        Mutation::RunAfterFailure,
        Mutation::LeaveUnconfirmed,
        Mutation::ForgetFailedAnswers,
        Mutation::UntoldIsClean,
        Mutation::WrittenIsClean,
        Mutation::LentStaysMapped,
        Mutation::IgnoreRemoteWriters,
        Mutation::LoanOutlivesUnmap,
        Mutation::LoanOutlivesTrim,
        Mutation::LoanOutlivesCard,
        Mutation::GiveBackElsewhere,
        Mutation::ReachAdoptedAtHome,
        Mutation::MoveWhatStays,
        Mutation::EnterBeforeLeader,
        Mutation::OutliveLeader,
    ];
}

/// Which mutation a driver runs with; the default is none.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Mutated {
    #[cfg(any(test, feature = "mutations"))]
    active: Option<Mutation>,
}

impl Mutated {
    #[cfg(any(test, feature = "mutations"))]
    pub(crate) fn set(&mut self, mutation: Mutation) {
        self.active = Some(mutation);
    }

    /// Whether the rule that `mutation` breaks is broken.
    #[inline(always)]
    #[cfg_attr(not(any(test, feature = "mutations")), allow(unused_variables))]
    pub(crate) fn on(self, mutation: Mutation) -> bool {
        #[cfg(any(test, feature = "mutations"))]
        return self.active == Some(mutation);
        #[cfg(not(any(test, feature = "mutations")))]
        return false;
    }
}
