//! Where the reader of a Parquet file is, for errors.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::TraceError;

/// A place in a file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) row_group: usize,
    /// The row in it.
    pub(super) row: u64,
    pub(super) column: &'static str,
}

/// Where the reader is.
#[derive(Debug)]
pub(super) struct At(Cell<Place>);

impl At {
    /// Before the first row group.
    pub(super) fn new() -> At {
        At(Cell::new(Place { row_group: 0, row: 0, column: "(file)" }))
    }

    pub(super) fn get(&self) -> Place {
        self.0.get()
    }

    /// Goes to a row group.
    pub(super) fn row_group(&self, row_group: usize) {
        self.0.set(Place { row_group, row: 0, column: "(row group)" });
    }

    /// Goes to a row of it.
    pub(super) fn row(&self, row: u64) {
        self.0.set(Place { row, ..self.get() });
    }

    /// Goes to a column of the row.
    pub(super) fn column(&self, column: &'static str) {
        self.0.set(Place { column, ..self.get() });
    }
}

/// Says what is wrong there.
pub(super) fn damaged(place: Place, what: impl ToString) -> TraceError {
    let Place { row_group, row, column } = place;
    TraceError::Columns { row_group, row, column, what: what.to_string() }
}

/// Turns panics of the Parquet reader into errors.
pub(super) fn contained<T>(
    at: &At,
    read: impl FnOnce() -> Result<T, TraceError>,
) -> Result<T, TraceError> {
    // What was half read is thrown away with the error.
    match catch_unwind(AssertUnwindSafe(read)) {
        Ok(result) => result,
        Err(_) => Err(damaged(at.get(), "it cannot be decoded")),
    }
}
