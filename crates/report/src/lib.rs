//! What an event log says: where pages were, who faulted, what moved and why, what each allocation and kernel
//! cost, and what to do about it.
//!
//! [`facts`] reads a log once, from its beginning to its end, and keeps sums: memory for what the program had
//! allocated, not for the events. [`page`] makes a page of the facts that needs nothing besides a browser, [`text`] a few
//! lines. Remedies are found by rules, a file each in `rules/`; they count pages and faults, never time, so that a busy
//! machine is not taken for a slow program. What each remedy saves is tested by applying it (`tests/tests/report.rs`).
#![forbid(unsafe_code)]

mod facts;
mod gather;
mod heat;
mod kernels;
mod objects;
mod page;
mod page_state;
mod perfetto;
mod rules;
mod series;
mod story;
mod text;

pub use facts::*;
pub use page::page;
pub use perfetto::{INSTANTS_MOST, TraceError, Traced, perfetto};
pub use rules::{Remedy, Rule};
pub use text::text;

use farside_events::{ReadError, Reader};

/// Columns that time is divided into.
pub const BINS: usize = 240;

/// What a log says.
///
/// # Errors
/// [`ReadError`] says where the log cannot be.
pub fn facts(reader: &Reader) -> Result<Facts, ReadError> {
    let mut gather = gather::Gather::new(reader.about(), end(reader)?);
    reader.for_each(|batch| gather.take(batch.events, batch.names))?;
    Ok(gather.finish(reader))
}

/// When the last event was.
fn end(reader: &Reader) -> Result<u64, ReadError> {
    if let Some(end) = reader.end() {
        return Ok(end);
    }
    // The file does not say.
    let mut end = 0;
    reader.for_each(|batch| end = batch.events.iter().fold(end, |end, it| end.max(it.at)))?;
    Ok(end)
}
