//! Why a command is refused: nothing of it was done.

use crate::interface::{CompletionEntry, DecodeError, Status, register};

/// A command that is not carried out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Refusal {
    pub(super) status: Status,
    pub(super) detail: u64,
    /// The bit of the error register that it sets, if it is the driver's mistake.
    pub(super) error: Option<u64>,
}

impl Refusal {
    /// A mistake of the driver.
    pub(super) const fn mistake(status: Status, detail: u64) -> Refusal {
        Refusal { status, detail, error: Some(register::ERROR_COMMAND) }
    }

    /// A word of the entry that cannot be.
    pub(super) const fn operand(word: u64) -> Refusal {
        Refusal::mistake(Status::BadOperand, word)
    }

    /// Frames that the function does not have.
    pub(super) const fn foreign(frame: u64) -> Refusal {
        let error = Some(register::ERROR_FOREIGN_FRAME);
        Refusal { status: Status::ForeignFrame, detail: frame, error }
    }

    /// A list that could not be read.
    pub(super) const fn bus(address: u64) -> Refusal {
        let error = Some(register::ERROR_BUS);
        Refusal { status: Status::BadAddress, detail: address, error }
    }

    /// The state of the card does not allow it now; a driver that makes no mistake sees this too.
    pub(super) const fn state(status: Status, detail: u64) -> Refusal {
        Refusal { status, detail, error: None }
    }

    pub(super) const fn completion(self) -> CompletionEntry {
        let plain = CompletionEntry::plain(0, self.status);
        CompletionEntry { detail: self.detail, ..plain }
    }
}

impl From<DecodeError> for Refusal {
    fn from(error: DecodeError) -> Refusal {
        match error {
            DecodeError::Opcode(code) => Refusal::mistake(Status::UnknownOpcode, code.into()),
            DecodeError::Word { word, .. } => Refusal::operand(word.into()),
            DecodeError::Flags(_) => Refusal::operand(1),
        }
    }
}
