//! Why a kernel failed, as the program sees it.

use std::sync::Arc;

use farside_types::{Access, CancelReason, CardId, PageNo, VirtAddr};
use thiserror::Error;

use crate::window::WindowError;

/// Why a kernel failed. The host and all other kernels go on.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum KernelError {
    /// It used an address that it was not given.
    #[error("kernel `{kernel}` made a {} at {addr}, which it was not given{hint}; pass that memory \
             to the launch, or mend the pointer", verb(*access))]
    WildAddress {
        /// The kernel.
        kernel: Arc<str>,
        /// The address.
        addr: VirtAddr,
        /// Load or store.
        access: Access,
        /// What lies nearest.
        hint: String,
    },
    /// Memory it may use could not be had.
    #[error("kernel `{kernel}` cannot have {page} on {card}: {reason}")]
    Fault {
        /// The kernel.
        kernel: Arc<str>,
        /// The card.
        card: CardId,
        /// The (first) page it asked for.
        page: PageNo,
        /// Why not.
        reason: CancelReason,
    },
    /// Memory of the card's own could not be had, or given back.
    #[error("kernel `{kernel}`: {error}")]
    Window {
        /// The kernel.
        kernel: Arc<str>,
        /// Why not.
        error: WindowError,
    },
    /// What it asked for makes no sense.
    #[error("kernel `{kernel}` made a request that cannot be served: {why}")]
    BadRequest {
        /// The kernel.
        kernel: Arc<str>,
        /// Why.
        why: String,
    },
    /// The program no longer wants it.
    #[error("kernel `{kernel}` was cancelled")]
    Cancelled {
        /// The kernel.
        kernel: Arc<str>,
    },
    /// It ran longer than it may.
    #[error("kernel `{kernel}` ran into its time limit and was stopped")]
    TimedOut {
        /// The kernel.
        kernel: Arc<str>,
    },
    /// It does not react; its processing element was given up.
    #[error(
        "kernel `{kernel}` on {card} hangs: it did not stop when it was told to; its processing \
         element is given up, and memory it holds is lost"
    )]
    Hung {
        /// The kernel.
        kernel: Arc<str>,
        /// The card.
        card: CardId,
    },
    /// It panicked.
    #[error("kernel `{kernel}` panicked: {message}")]
    Panicked {
        /// The kernel.
        kernel: Arc<str>,
        /// What it said.
        message: String,
    },
    /// It never started.
    #[error("kernel `{kernel}` was dropped: {card} is gone or was not free{why}")]
    Dropped {
        /// The kernel.
        kernel: Arc<str>,
        /// The card.
        card: CardId,
        /// Why it is gone, behind a colon; empty where nobody knows more.
        why: String,
    },
    /// It was to come after something that has failed, and never started.
    #[error(
        "kernel `{kernel}` on {card} was not run: {after}, which it was to come after, failed: {why}"
    )]
    NotRun {
        /// The kernel.
        kernel: Arc<str>,
        /// The card.
        card: CardId,
        /// What failed: the first that did, where one came after the other.
        after: String,
        /// Why that failed.
        why: String,
    },
    /// The card has no kernel of this name.
    #[error(
        "{card} has no kernel `{kernel}`; `farside cards --kernels` lists those it has, `farside \
         card serve --kernels LIBRARY` adds some"
    )]
    NotOnCard {
        /// The kernel.
        kernel: Arc<str>,
        /// The card.
        card: CardId,
    },
    /// Too many jobs wait on the card.
    #[error("kernel `{kernel}` was not started: too many jobs wait on {card}; wait for some first")]
    Busy {
        /// The kernel.
        kernel: Arc<str>,
        /// The card.
        card: CardId,
    },
    /// It gave up by itself.
    #[error("kernel `{kernel}` failed: {message}")]
    Failed {
        /// The kernel.
        kernel: Arc<str>,
        /// What it said.
        message: String,
    },
}

impl KernelError {
    /// The error of word `at` of the `words` of a run, with what became of the others, where there is
    /// room to say so.
    #[cold]
    pub(crate) fn in_run(mut self, run: &str, at: usize, words: usize) -> KernelError {
        if let KernelError::WildAddress { hint: text, .. }
        | KernelError::BadRequest { why: text, .. } = &mut self
        {
            let place = format!(" (word {at} of the {words} of a {run}; those before it are done)");
            text.push_str(&place);
        }
        self
    }
}

fn verb(access: Access) -> &'static str {
    match access {
        Access::Read => "load",
        Access::Write => "store",
    }
}
