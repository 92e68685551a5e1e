//! Reads the compact format, a row group at a time.
//!
//! Files may be damaged or hostile. All that is read is checked; the Parquet reader underneath
//! returns errors for what it checks itself and may panic for the rest, which ends here as an
//! error like any other.

use std::fs::File;

use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader, RowGroupReader, SerializedFileReader};

use super::super::record::{check_group, check_place};
use super::super::sidecar::Layout;
use super::super::sink::{Recorded, Sink};
use super::super::store::Kind;
use super::COUNT_MAX;
use super::at::{At, Place as Where, contained, damaged};
use super::column::{
    COLUMNS, COUNT, Columns, FLAGS, Found, GPU, GROUP, LAUNCH, LINE, SEQUENCE, UNIT, WAVE,
};
use crate::TraceError;
use crate::{LINE_BYTES, Place};

/// Rows that are decoded at a time.
pub(super) const BATCH_ROWS: u64 = 4096;
/// Most launches of a trace.
const LAUNCHES_MAX: u64 = 1 << 16;
const ALL: [usize; 9] = [LAUNCH, GPU, UNIT, GROUP, WAVE, SEQUENCE, LINE, COUNT, FLAGS];

/// Hands every access of a file to `sink`.
pub(in super::super) fn read(
    file: File,
    gpus: usize,
    layout: &mut Layout,
    sink: &mut impl Sink,
) -> Result<(), TraceError> {
    let at = At::new();
    contained(&at, || {
        let reader = SerializedFileReader::new(file).map_err(|error| damaged(at.get(), error))?;
        let mut rows = Rows { gpus, layout, sink, at: &at, accesses: 0, running: Vec::new() };
        each(&reader, COLUMNS, &ALL, &at, |columns, row| rows.row(columns, row))
    })
}

/// Calls `take` for every row, with those of the columns that have these positions.
pub(super) fn each(
    reader: &SerializedFileReader<File>,
    columns: &'static [(&'static str, bool)],
    which: &[usize],
    at: &At,
    mut take: impl FnMut(&Columns, usize) -> Result<(), TraceError>,
) -> Result<(), TraceError> {
    let failed = |error: ParquetError| damaged(at.get(), error);
    let found = Found::new(reader.metadata().file_metadata().schema_descr(), columns)?;
    for row_group in 0..reader.num_row_groups() {
        at.row_group(row_group);
        let group: Box<dyn RowGroupReader> = reader.get_row_group(row_group).map_err(failed)?;
        let rows = u64::try_from(group.metadata().num_rows())
            .map_err(|_| damaged(at.get(), "it has a negative number of rows"))?;
        let mut columns = found.open(which, &*group, at)?;
        let mut done = 0;
        while done < rows {
            let count = (rows - done).min(BATCH_ROWS);
            at.row(done);
            columns.fill(at, count as usize)?;
            for row in 0..count {
                at.row(done + row);
                take(&columns, row as usize)?;
            }
            done += count;
        }
        at.row(rows);
        columns.end(at)?;
    }
    Ok(())
}

/// Makes accesses of rows.
struct Rows<'a, S> {
    gpus: usize,
    layout: &'a mut Layout,
    sink: &'a mut S,
    at: &'a At,
    accesses: u64,
    /// The work-group and wavefront that each compute unit ran last, with the launch.
    running: Vec<Option<(u32, u32, u16)>>,
}

impl<S: Sink> Rows<'_, S> {
    fn row(&mut self, columns: &Columns, row: usize) -> Result<(), TraceError> {
        let number = |which| columns.number(which, row);
        let launch = number(LAUNCH);
        if launch >= LAUNCHES_MAX {
            return Err(self.wrong("launch", launch, "launches are counted from 0 to 65535"));
        }
        let place = self.place(number(GPU), number(UNIT))?;
        let wave = (columns.optional(GROUP, row), columns.optional(WAVE, row));
        self.wave(launch as u32, place, wave)?;
        let kind = match number(FLAGS) {
            0 => Kind::Load,
            2 => Kind::LoadScalar,
            1 | 3 => Kind::Store,
            flags => return Err(self.wrong("flags", flags, "only the flags 1 and 2 are known")),
        };
        let Some(count) = count(number(COUNT)) else {
            return Err(self.wrong("count", number(COUNT), "it is 1 to 65536"));
        };
        let first = number(LINE);
        let line = self.line(first, count)?;
        let Ok(sequence) = u32::try_from(number(SEQUENCE)) else {
            return Err(self.wrong("sequence", number(SEQUENCE), "it has 32 bits"));
        };
        for offset in 0..count {
            let record = self.accesses;
            let address = (first + u64::from(offset)) * LINE_BYTES;
            let launch = launch as usize;
            let line = line + offset;
            self.sink.access(&Recorded { record, launch, place, sequence, kind, address, line })?;
            self.accesses += 1;
        }
        Ok(())
    }

    fn place(&self, gpu: u64, unit: u64) -> Result<Place, TraceError> {
        let Ok(gpu) = u8::try_from(gpu) else {
            return Err(self.wrong("gpu", gpu, "it is 0 to 15"));
        };
        let Ok(unit) = u8::try_from(unit) else {
            return Err(self.wrong("unit", unit, "it is 0 to 63"));
        };
        let place = Place { gpu, unit };
        check_place(0, place, self.gpus).map_err(|error| self.named(error))?;
        Ok(place)
    }

    /// Tells the sink when a compute unit goes on with another wavefront.
    fn wave(
        &mut self,
        launch: u32,
        place: Place,
        wave: (Option<u64>, Option<u64>),
    ) -> Result<(), TraceError> {
        let (group, wave) = match wave {
            (Some(group), Some(wave)) => (group, wave),
            (None, None) => return Ok(()),
            _ => return Err(self.wrong("wave", 0, "group and wave are both there or both not")),
        };
        let Ok(group) = u32::try_from(group) else {
            return Err(self.wrong("group", group, "it has 32 bits"));
        };
        check_group(0, group).map_err(|error| self.named(error))?;
        // The largest would leave no number for how many there are.
        let Some(wave) = u16::try_from(wave).ok().filter(|&wave| wave < u16::MAX) else {
            return Err(self.wrong("wave", wave, "it is 0 to 65534"));
        };
        let at = usize::from(place.gpu) << 8 | usize::from(place.unit);
        if self.running.len() <= at {
            self.running.resize(at + 1, None);
        }
        if self.running[at] != Some((launch, group, wave)) {
            self.running[at] = Some((launch, group, wave));
            self.sink.marker(launch as usize, place, group, wave);
        }
        Ok(())
    }

    /// The line of the workload's memory, if all of the row's lines are in one allocation.
    fn line(&mut self, first: u64, count: u32) -> Result<u32, TraceError> {
        let last = first.checked_add(u64::from(count) - 1);
        let mut find = |line: u64| self.layout.line_of(line.checked_mul(LINE_BYTES)?);
        match (find(first), last.and_then(find)) {
            (Some(line), Some(end)) if end.checked_sub(line) == Some(count - 1) => Ok(line),
            _ => {
                let what = format!("lines {first:#x} and following are in no allocation");
                Err(damaged(Where { column: "line", ..self.at.get() }, what))
            }
        }
    }

    fn wrong(&self, column: &'static str, value: u64, why: &str) -> TraceError {
        damaged(Where { column, ..self.at.get() }, format!("{value} cannot be: {why}"))
    }

    /// Says where a value is that was refused.
    fn named(&self, error: TraceError) -> TraceError {
        match error {
            TraceError::Record { field, value, why, .. } => {
                let column = match field {
                    "GPU" => "gpu",
                    "CU" => "unit",
                    _ => "group",
                };
                damaged(Where { column, ..self.at.get() }, format!("{value} cannot be: {why}"))
            }
            other => other,
        }
    }
}

/// The lines of a row, if there can be so many.
pub(super) fn count(count: u64) -> Option<u32> {
    u32::try_from(count).ok().filter(|&count| count > 0 && count <= COUNT_MAX)
}
