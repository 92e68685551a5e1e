//! What both ends of the link count.

/// What a sender has counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SenderCounters {
    /// Frames of data.
    pub data_frames: u64,
    /// Pages that were sent again because the receiver missed them.
    pub pages_again: u64,
    /// Questions.
    pub questions: u64,
    /// Pauses that were obeyed.
    pub pauses: u64,
    /// Reports of transfers that are not open, or of earlier rounds. Harmless.
    pub reports_late: u64,
    /// Frames that were damaged.
    pub damaged: u64,
    /// Frames for another function, or of no transfer.
    pub foreign: u64,
}

/// What a receiver has counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ReceiverCounters {
    /// Frames whose bytes were handed over.
    pub delivered: u64,
    /// Frames of data that never came, as their sequence tells.
    pub lost: u64,
    /// Frames that came twice.
    pub duplicated: u64,
    /// Frames that came behind later ones.
    pub reordered: u64,
    /// Frames of pages that were sent again although these bytes were here, or whose transfer had
    /// ended. Harmless.
    pub repeated: u64,
    /// Frames that were damaged or cut off.
    pub damaged: u64,
    /// Frames of no announced transfer, of another sender, for another function, or beyond the
    /// announced pages.
    pub foreign: u64,
    /// Frames for which there was no room.
    pub overrun: u64,
    /// Pauses that were asked for.
    pub pauses: u64,
    /// Reports that were sent.
    pub reports: u64,
}

impl ReceiverCounters {
    /// Frames that were lost, repeated, out of order, damaged or foreign: what sets `ERROR_LINK`.
    pub fn errors(&self) -> u64 {
        [self.lost, self.duplicated, self.reordered, self.damaged, self.foreign, self.overrun]
            .into_iter()
            .fold(0, u64::saturating_add)
    }
}
