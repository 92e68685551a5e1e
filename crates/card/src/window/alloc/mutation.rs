//! Checked-in mutations of the allocator: each is a mistake, several of them the thesis's own, and a test
//! must catch each (`tests/mutations.rs` says where).
//!
//! Outside of the crate's tests the question [`AllocMutated::on`] is a constant `false`.

/// One mistake.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(not(test), allow(dead_code))]
pub(super) enum AllocMutation {
    /// The thesis's: the first frame of a memory is given back as frame 0 of the first one.
    FirstFrameFreesFrameZero,
    /// The thesis's: where the search for a frame wraps, the bit is not looked at.
    WrapHandsOutTwice,
    /// The thesis's: there is no look at how many frames are free.
    OutOfMemoryIsSuccess,
    /// The thesis's: a free tells no translator.
    FreeTellsNobody,
    /// The thesis's: each allocation has a word of the root for itself.
    RegionForEach,
    /// The thesis's: a look-up trusts a word that was read before another touch.
    TouchTrustsOldWord,
    /// The walker is answered with a frame although the write failed.
    TouchIgnoresErrors,
    /// The gate is open for what was freed.
    GateStaysOpen,
    /// The sweep gives frames back whose words it has not written.
    SweepLeavesWords,
    /// The sweep forgets the frames.
    SweepLosesFrames,
    /// The sweep gives back frames that have moved elsewhere.
    SweepFreesMovedFrames,
    /// Places are used again before the invalidation behind the sweep.
    PlacesFreeEarly,
    /// An empty table stays linked.
    EmptyTableStaysLinked,
    /// The directory leads to a table before its words are written.
    DirectoryFirst,
    /// A free takes any page of an allocation.
    FreeTakesAnyPage,
    /// A freed allocation is freed again.
    FreeTakesFreed,
    /// Growing in place leaves the count of pages as it was.
    GrowthForgetsCount,
    /// Growing leaves the mark of the last page where it was.
    GrowthLeavesLast,
    /// Growing does not look whether the next pages are free.
    GrowthTakesWhatIsTaken,
    /// A moved run keeps its size wherever it goes.
    MoveKeepsSizes,
    /// A run of the directory that is split names the first frame for all of its pages.
    SplitForgetsFrames,
    /// Pages that stay when a run is cut keep its size.
    CutKeepsSizes,
    /// Of a run that is cut only the pages behind are invalidated.
    CutTellsBehindOnly,
    /// Pages can be written, whatever was asked for.
    RightsForgotten,
    /// After a failed write everything is given back at once.
    FailedWriteIsForgotten,
    /// Words are used as they are read.
    WordsAreTrusted,
    /// Bitmaps are used as they are read.
    BitmapsAreTrusted,
    /// The sweep goes on into the next allocation where a count says so.
    SweepTakesOthers,
    /// A word may give back the frames of tables.
    WordsFreeTables,
    /// Room is looked for in the open region alone.
    OpenRegionOnly,
    /// Two frames more than the pages are asked for.
    FramesAreKeptBack,
    /// A region that nobody came to after all keeps its table.
    UnusedRegionStays,
}

#[cfg(test)]
impl AllocMutation {
    /// Every mutation.
    pub(super) const ALL: [AllocMutation; 32] = {
        use AllocMutation::*;
        [
            FirstFrameFreesFrameZero,
            WrapHandsOutTwice,
            OutOfMemoryIsSuccess,
            FreeTellsNobody,
            RegionForEach,
            TouchTrustsOldWord,
            TouchIgnoresErrors,
            GateStaysOpen,
            SweepLeavesWords,
            SweepLosesFrames,
            SweepFreesMovedFrames,
            PlacesFreeEarly,
            EmptyTableStaysLinked,
            DirectoryFirst,
            FreeTakesAnyPage,
            FreeTakesFreed,
            GrowthForgetsCount,
            GrowthLeavesLast,
            GrowthTakesWhatIsTaken,
            MoveKeepsSizes,
            SplitForgetsFrames,
            CutKeepsSizes,
            CutTellsBehindOnly,
            RightsForgotten,
            FailedWriteIsForgotten,
            WordsAreTrusted,
            BitmapsAreTrusted,
            SweepTakesOthers,
            WordsFreeTables,
            OpenRegionOnly,
            FramesAreKeptBack,
            UnusedRegionStays,
        ]
    };
}

/// The mistake that an allocator makes; the default is none.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct AllocMutated {
    #[cfg(test)]
    active: Option<AllocMutation>,
}

impl AllocMutated {
    #[cfg(test)]
    pub(super) fn new(mutation: AllocMutation) -> AllocMutated {
        AllocMutated { active: Some(mutation) }
    }

    /// Whether it makes this one.
    #[inline(always)]
    #[cfg_attr(not(test), allow(unused_variables))]
    pub(super) fn on(self, mutation: AllocMutation) -> bool {
        #[cfg(test)]
        return self.active == Some(mutation);
        #[cfg(not(test))]
        return false;
    }
}
