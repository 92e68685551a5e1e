//! Why a fault was cancelled, as a word.

use farside_types::{CancelReason, CardId};

/// The word of a reason: its number, and the card it names in the upper half.
pub fn reason_to_word(reason: CancelReason) -> u32 {
    match reason {
        CancelReason::Unallocated => 1,
        CancelReason::Freed => 2,
        CancelReason::ReadOnly => 3,
        CancelReason::Lost => 4,
        CancelReason::CopyFailed => 5,
        CancelReason::Held(card) => 6 | u32::from(card.0) << 16,
        CancelReason::OutOfMemory => 7,
        CancelReason::GroupTooLarge => 8,
        CancelReason::CardLost(card) => 9 | u32::from(card.0) << 16,
        CancelReason::TooManyFaults => 10,
        CancelReason::PinnedElsewhere => 11,
        CancelReason::HostKeeps => 12,
        CancelReason::WindowFull => 13,
    }
}

/// The reason of a word; `None` if there is none of this number.
pub fn reason_from_word(word: u32) -> Option<CancelReason> {
    let card = u8::try_from(word >> 16).ok().map(CardId)?;
    let reason = match word & 0xffff {
        1 => CancelReason::Unallocated,
        2 => CancelReason::Freed,
        3 => CancelReason::ReadOnly,
        4 => CancelReason::Lost,
        5 => CancelReason::CopyFailed,
        6 => CancelReason::Held(card),
        7 => CancelReason::OutOfMemory,
        8 => CancelReason::GroupTooLarge,
        9 => CancelReason::CardLost(card),
        10 => CancelReason::TooManyFaults,
        11 => CancelReason::PinnedElsewhere,
        12 => CancelReason::HostKeeps,
        13 => CancelReason::WindowFull,
        _ => return None,
    };
    (reason_to_word(reason) == word).then_some(reason)
}
