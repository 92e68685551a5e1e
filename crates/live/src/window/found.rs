//! A window of a card, near or far.

use farside_card::MappedRun;
use farside_types::{Access, CancelReason, CardId, PageRange, Rights};

use super::{CardWindow, FarWindow, Held};

/// See the module.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Found<'a> {
    /// Of a card in the program.
    Near(&'a CardWindow),
    /// Of a card elsewhere.
    Far(&'a FarWindow),
}

impl Found<'_> {
    /// Its addresses.
    pub(crate) fn pages(self) -> PageRange {
        match self {
            Found::Near(window) => window.pages(),
            Found::Far(window) => window.pages(),
        }
    }

    /// Whose it is.
    pub(crate) fn card(self) -> CardId {
        match self {
            Found::Near(window) => window.card(),
            Found::Far(window) => window.card(),
        }
    }

    /// As [`CardWindow::translate`] and [`FarWindow::translate`].
    ///
    /// # Errors
    /// Why a page cannot be reached.
    pub(crate) fn translate(
        self,
        range: PageRange,
        access: Access,
        insert: impl FnOnce(&[MappedRun], Rights),
    ) -> Result<(), CancelReason> {
        match self {
            Found::Near(window) => window.translate(range, access, insert),
            Found::Far(window) => window.translate(range, access, insert),
        }
    }

    /// As [`CardWindow::take_out_of_use`].
    pub(crate) fn take_out_of_use(self, held: Held) {
        match self {
            Found::Near(window) => window.take_out_of_use(held),
            Found::Far(window) => window.take_out_of_use(held),
        }
    }

    /// The card is gone.
    pub(crate) fn lose(self) {
        match self {
            Found::Near(window) => window.lose(),
            Found::Far(window) => window.lose(),
        }
    }
}
