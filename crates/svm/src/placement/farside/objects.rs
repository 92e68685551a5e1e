//! What is known of an allocation.

use serde::{Deserialize, Serialize};

use crate::ObjectFacts;

/// Pages found out before anything is concluded.
const EVIDENCE: u32 = 4;

/// What is known of an allocation.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(super) struct Object {
    /// Faults that brought pages to their first card, for reading.
    pub(super) read_first: u32,
    /// Faults of their only reader that then wrote them.
    pub(super) written_by_reader: u32,
}

impl Object {
    /// Whether a page that is read first is better copied than moved: most of those before it were
    /// not written by their reader.
    pub(super) fn keeps_copies(&self) -> bool {
        self.written_by_reader < EVIDENCE || self.written_by_reader * 4 < self.read_first
    }

    /// For who asks why.
    pub(super) fn facts(self) -> ObjectFacts {
        let Object { read_first, written_by_reader } = self;
        ObjectFacts { read_first, written_by_reader }
    }
}
