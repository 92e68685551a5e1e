//! Checked-in mutations of the translation tables: each breaks one rule of section 8 of
//! `docs/card-interface.md`, and a test that is named there must catch each
//! (`tables/mutation_tests.rs`; `tests/tests/ring_mutations.rs` those that a driver can see).
//!
//! Without the feature `mutations` the question [`Mutated::on`] is a constant `false` and costs nothing.

/// One broken rule.
#[cfg_attr(not(any(test, feature = "mutations")), allow(unreachable_pub))]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum CardMutation {
    /// `UNMAP` leaves the entries in the tables.
    UnmapLeavesTable,
    /// `UNMAP` leaves the translations in the TLBs.
    UnmapLeavesTlbs,
    /// `UNMAP` does not wait for the words that are under way.
    UnmapLeavesWords,
    /// `PROTECT` leaves the right to write in the tables.
    ProtectLeavesTable,
    /// `PROTECT` leaves the right to write in the TLBs.
    ProtectLeavesTlbs,
    /// `PROTECT` does not wait for the words that are under way.
    ProtectLeavesWords,
    /// A table page is used again while walk caches know it.
    ReuseTablesEarly,
    /// A change reads a word and then writes it: what a walk sets in between is lost.
    ChangeInTwoSteps,
    /// A walk sets its bits in a word whatever has become of it, and uses what it has seen before.
    WalkSetsBitsBlindly,
    /// A walk lets writes go on where pages may only be read.
    WalkIgnoresRights,
    /// A walk does not note that a page was used.
    AccessedNotSet,
    /// A walk does not note that a page was written.
    DirtyNotSet,
    /// A TLB keeps the right to write to a page that does not count as written.
    TlbWritesUnseen,
    /// `ACCESSED` leaves translations in the TLBs, whose use sets no bit.
    AccessedLeavesTlbs,
    /// A fault's own translation is used without a note.
    ResumeSetsNoBits,
    /// `MAP` of a page where it is begins with new bits.
    MapForgetsBits,
    /// An aligned run of pages that can be written takes one entry, and one dirty bit.
    RunHidesBits,
    /// The table of a run that is split names the first frame for all of its pages.
    SplitForgetsFrames,
    /// Pages of a run keep its size when a part of it changes.
    PartOfRunKeepsSize,
    /// All address spaces have the tables of the first.
    SpacesShareTables,
    /// A page that finds no room stays where the tables had it before.
    FullTableKeepsOld,
    /// Pages that found no room count as not written once they have an entry.
    TrustPagesWithoutRoom,
}

#[cfg(any(test, feature = "mutations"))]
impl CardMutation {
    /// Every mutation.
    pub const ALL: [CardMutation; 22] = [
        CardMutation::UnmapLeavesTable,
        CardMutation::UnmapLeavesTlbs,
        CardMutation::UnmapLeavesWords,
        CardMutation::ProtectLeavesTable,
        CardMutation::ProtectLeavesTlbs,
        CardMutation::ProtectLeavesWords,
        CardMutation::ReuseTablesEarly,
        CardMutation::ChangeInTwoSteps,
        CardMutation::WalkSetsBitsBlindly,
        CardMutation::WalkIgnoresRights,
        CardMutation::AccessedNotSet,
        CardMutation::DirtyNotSet,
        CardMutation::TlbWritesUnseen,
        CardMutation::AccessedLeavesTlbs,
        CardMutation::ResumeSetsNoBits,
        CardMutation::MapForgetsBits,
        CardMutation::RunHidesBits,
        CardMutation::SplitForgetsFrames,
        CardMutation::PartOfRunKeepsSize,
        CardMutation::SpacesShareTables,
        CardMutation::FullTableKeepsOld,
        CardMutation::TrustPagesWithoutRoom,
    ];
}

/// Which mutation a card runs with; the default is none.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Mutated {
    #[cfg(any(test, feature = "mutations"))]
    active: Option<CardMutation>,
}

impl Mutated {
    #[cfg(any(test, feature = "mutations"))]
    pub(crate) fn set(&mut self, mutation: CardMutation) {
        self.active = Some(mutation);
    }

    /// Whether the rule that `mutation` breaks is broken.
    #[inline(always)]
    #[cfg_attr(not(any(test, feature = "mutations")), allow(unused_variables))]
    pub(crate) fn on(self, mutation: CardMutation) -> bool {
        #[cfg(any(test, feature = "mutations"))]
        return self.active == Some(mutation);
        #[cfg(not(any(test, feature = "mutations")))]
        return false;
    }
}
