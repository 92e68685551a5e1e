//! What kernels hold that were given up, or whose card is gone: their threads go on, and may have slices of these pages
//! for ever. Nobody else makes one of them that would contradict theirs.

use farside_linux::lock::lock;
use farside_types::{Access, CancelReason, CardId, PageRange, Rights};

use super::CardWindow;

/// Pages that such a kernel holds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Held {
    pub(crate) pages: PageRange,
    /// What it does with them.
    pub(crate) access: Access,
    /// Where it runs.
    pub(crate) card: CardId,
    /// The card knows of the access no more: no drain waits for it.
    pub(crate) is_forgotten: bool,
}

impl CardWindow {
    /// Takes pages out of use, but for their holder. What cards have of them has to be taken away after this.
    pub(crate) fn take_out_of_use(&self, held: Held) {
        let mut tables = lock(&self.tables);
        tables.held.push(held);
        self.view.withdraw(&tables.shown, held.pages, held.access);
    }
}

/// All that such kernels hold of a window.
#[derive(Debug, Default)]
pub(super) struct AllHeld(Vec<Held>);

impl AllHeld {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn push(&mut self, held: Held) {
        self.0.push(held);
    }

    /// What may be done with pages, of which `access` is wanted.
    pub(super) fn rights(&self, range: PageRange, access: Access) -> Result<Rights, CancelReason> {
        let mut rights = Rights::ReadWrite;
        for held in self.0.iter().filter(|held| held.pages.overlaps(range)) {
            if held.access.is_write() || access.is_write() {
                return Err(CancelReason::Held(held.card));
            }
            rights = Rights::Read;
        }
        Ok(rights)
    }

    /// Whoever held these pages, has let them go, if his card knows it.
    pub(super) fn let_go(&mut self, pages: PageRange) -> bool {
        self.0.retain(|held| held.is_forgotten || !held.pages.overlaps(pages));
        !self.0.iter().any(|held| held.pages.overlaps(pages))
    }
}
