//! One command at a time.

use std::sync::MutexGuard;

use farside_card::interface::AllocRequest;
use farside_card::window::{AllocError, AllocStep};
use farside_linux::lock::lock;
use farside_softcard::WindowError;
use farside_types::{PageRange, VirtAddr};

use super::{CardWindow, End, Surroundings, Tables};

/// The right to change what is allocated. No lock is held between its steps.
pub(super) struct Turn<'a> {
    window: &'a CardWindow,
}

impl<'a> Turn<'a> {
    /// Waits for the turn: each ends within the limit of one drain.
    ///
    /// # Errors
    /// Nothing is allocated any more.
    pub(super) fn take(window: &'a CardWindow) -> Result<Turn<'a>, WindowError> {
        window.turns.wait_for(|| {
            let mut tables = lock(&window.tables);
            if let Some(end) = tables.end {
                return Some(Err(window.ended(end)));
            }
            if tables.is_taken {
                return None;
            }
            tables.is_taken = true;
            Some(Ok(Turn { window }))
        })
    }

    fn tables(&self) -> MutexGuard<'a, Tables> {
        lock(&self.window.tables)
    }

    pub(super) fn begin(&self, request: AllocRequest) -> AllocStep {
        self.tables().handle(request)
    }

    /// Whether no kernel that was given up still has one of these pages, which were taken from all cards.
    pub(super) fn is_let_go(&self, pages: PageRange) -> bool {
        self.tables().held.let_go(pages)
    }

    pub(super) fn go_on(&self) -> Result<u64, AllocError> {
        self.tables().invalidated()
    }

    /// What is swept is zero for whoever gets it.
    pub(super) fn sweep(&self, around: &impl Surroundings) {
        let card = self.window.card();
        self.tables().sweep(self.window, |first, count| around.zero(card, first, count));
    }

    /// Somebody has pages and does not let them go.
    pub(super) fn hold(&self, addr: VirtAddr) -> WindowError {
        let mut tables = self.tables();
        let end = *tables.end.get_or_insert(End::Held(addr));
        drop(tables);
        self.window.ended(end)
    }

    /// Pages that nobody has any more are shown no more.
    pub(super) fn hide(&self, pages: PageRange) {
        self.window.view.hide(&mut self.tables().shown, pages);
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.tables().is_taken = false;
        self.window.turns.notify();
    }
}

impl CardWindow {
    fn ended(&self, end: End) -> WindowError {
        let card = self.card();
        match end {
            End::Held(addr) => WindowError::Held { card, addr },
            End::Gone => WindowError::Gone { card },
        }
    }
}
