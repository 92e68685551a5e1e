//! Rules of the ring protocol that the harness can break on purpose, to see that it notices.

use farside_card::CardMutation;

/// A broken rule. Each breaks now and then, not always, but for those of the card's tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RingMutation {
    /// The driver publishes commands and does not ring the doorbell.
    ForgetDoorbell,
    /// The card publishes an entry and does not interrupt a driver that sleeps.
    ForgetInterrupt,
    /// The card's producer index is seen before the entries that it counts.
    PublishBeforeEntry,
    /// The driver goes to sleep without a second look at the rings.
    DriverSleepsBlindly,
    /// The card goes to sleep without a second look at the rings.
    CardSleepsBlindly,
    /// The card completes an `UNMAP` while an access through its pages is in flight.
    SkipDrain,
    /// A completion is lost.
    LoseCompletion,
    /// A fault that finds the fault ring full is lost.
    LoseFault,
    /// A translation stays in the card when it is unmapped.
    KeepTranslation,
    /// A copy is said to be done before it is.
    CopyLate,
    /// An `UNMAP` leaves the entries of the card's tables.
    KeepTableEntry,
    /// An `UNMAP` leaves what the TLBs have from the tables.
    KeepTlbEntry,
    /// A `PROTECT` leaves the right to write in the card's tables.
    KeepTableRight,
    /// A walk of the tables does not look at rights.
    WalkIgnoresRights,
}

impl RingMutation {
    /// All of them.
    pub const ALL: [RingMutation; 14] = [
        RingMutation::ForgetDoorbell,
        RingMutation::ForgetInterrupt,
        RingMutation::PublishBeforeEntry,
        RingMutation::DriverSleepsBlindly,
        RingMutation::CardSleepsBlindly,
        RingMutation::SkipDrain,
        RingMutation::LoseCompletion,
        RingMutation::LoseFault,
        RingMutation::KeepTranslation,
        RingMutation::CopyLate,
        RingMutation::KeepTableEntry,
        RingMutation::KeepTlbEntry,
        RingMutation::KeepTableRight,
        RingMutation::WalkIgnoresRights,
    ];

    /// The rule of the card's tables that it is.
    fn of_tables(self) -> Option<CardMutation> {
        match self {
            RingMutation::KeepTableEntry => Some(CardMutation::UnmapLeavesTable),
            RingMutation::KeepTlbEntry => Some(CardMutation::UnmapLeavesTlbs),
            RingMutation::KeepTableRight => Some(CardMutation::ProtectLeavesTable),
            RingMutation::WalkIgnoresRights => Some(CardMutation::WalkIgnoresRights),
            _ => None,
        }
    }
}

/// The rule that is broken, and how often it could have been.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Broken {
    mutation: Option<RingMutation>,
    chances: u32,
}

impl Broken {
    pub(super) fn new(mutation: Option<RingMutation>) -> Broken {
        Broken { mutation, chances: 0 }
    }

    /// The rule of the card's tables that is broken, if it is one of theirs. It is always broken.
    pub(super) fn tables(&self) -> Option<CardMutation> {
        self.mutation.and_then(RingMutation::of_tables)
    }

    /// Whether this rule is broken at all.
    pub(super) fn is(&self, mutation: RingMutation) -> bool {
        self.mutation == Some(mutation)
    }

    /// Whether this rule is broken this time: every seventh.
    pub(super) fn now(&mut self, mutation: RingMutation) -> bool {
        if !self.is(mutation) {
            return false;
        }
        self.chances += 1;
        self.chances % 7 == 0
    }
}
