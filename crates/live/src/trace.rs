//! Probe points: what enters the driver and what it has done, for whoever subscribes to `tracing`
//! at level TRACE.
//!
//! | target | when | fields |
//! |---|---|---|
//! | `farside::fault` | a thread or a card faults | page or card, access or number of faults |
//! | `farside::command` | a command is about to be carried out | id, name, reason, pages, phase |
//! | `farside::migration` | bytes are about to move, or the program asks for it | from, to, pages, reason |
//! | `farside::doorbell` | a card elsewhere is told of new commands | card |
//!
//! Without a subscriber a probe point is one comparison with a number in memory, and none of its
//! fields is looked at. They are where commands are carried out and where events enter; the driver
//! itself knows nothing of them. Some are under its lock: a subscriber must be quick and must not
//! touch shared memory.

use farside_svm::{Event, Header, Mover, Request, Step, TransferOp};
use farside_types::CardId;
use tracing::trace;

/// A command is about to be carried out.
#[inline]
pub(crate) fn command(header: &Header, name: &'static str, pages: impl Fn() -> u64) {
    trace!(
        target: "farside::command",
        id = header.id.0,
        name,
        reason = header.reason.name(),
        pages = pages(),
        phase = header.phase.name(),
    );
}

/// Bytes are about to move.
#[inline]
pub(crate) fn transfer(mover: Mover, step: &Step<TransferOp>) {
    command(&step.header, step.op.name(), || step.op.pages());
    trace!(
        target: "farside::migration",
        id = step.header.id.0,
        from = ?step.op.source(),
        to = ?step.op.destination(),
        by = ?mover,
        pages = step.op.pages(),
        reason = step.header.reason.name(),
    );
}

/// The driver is about to be told.
#[inline]
pub(crate) fn event(event: &Event<'_>) {
    match event {
        Event::CardFaults { card, faults } => {
            trace!(target: "farside::fault", %card, faults = faults.len());
        }
        Event::HostFault { page, access } => {
            trace!(target: "farside::fault", %page, ?access);
        }
        Event::Request { id, request: Request::Migrate { range, to }, .. } => {
            trace!(target: "farside::migration", request = id.0, pages = %range, %to);
        }
        _ => {}
    }
}

/// A card elsewhere is told of new commands.
#[inline]
pub(crate) fn doorbell(card: CardId) {
    trace!(target: "farside::doorbell", %card);
}
