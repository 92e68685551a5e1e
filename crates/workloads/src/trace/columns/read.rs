//! Reads the compact format, a row group at a time.
//!
//! Files may be damaged or hostile. All that is read is checked; the Parquet reader underneath
//! returns errors for what it checks itself and may panic for the rest, which ends here as an
//! error like any other.

use std::cell::Cell;
use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};

use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::{DataType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader, RowGroupReader, SerializedFileReader};
use parquet::schema::parser::parse_message_type;

use super::super::record::{check_group, check_place};
use super::super::sidecar::{Layout, check_description};
use super::super::sink::{Recorded, Sink};
use super::super::store::Kind;
use super::{COLUMNS, COUNT_MAX, KEY_DESCRIPTION, KEY_VERSION, SCHEMA, TraceDescription, VERSION};
use crate::TraceError;
use crate::{LINE_BYTES, Place};

/// Rows that are decoded at a time.
const BATCH_ROWS: usize = 4096;
/// Most launches of a trace.
const LAUNCHES_MAX: u32 = 1 << 16;

/// Where the reader is, for errors: row group, row in it, column.
#[derive(Clone, Copy, Debug)]
struct At {
    row_group: usize,
    row: u64,
    column: &'static str,
}

/// Turns panics of the Parquet reader into errors.
fn contained<T>(
    at: &Cell<At>,
    read: impl FnOnce() -> Result<T, TraceError>,
) -> Result<T, TraceError> {
    // What was half read is thrown away with the error.
    match catch_unwind(AssertUnwindSafe(read)) {
        Ok(result) => result,
        Err(_) => Err(damaged(at.get(), "it cannot be decoded")),
    }
}

fn damaged(at: At, what: impl ToString) -> TraceError {
    let At { row_group, row, column } = at;
    TraceError::Columns { row_group, row, column, what: what.to_string() }
}

/// What a file says about itself, checked.
pub(in super::super) fn description(file: &File) -> Result<TraceDescription, TraceError> {
    let at = Cell::new(At { row_group: 0, row: 0, column: "(file)" });
    contained(&at, || {
        let whole = |error: ParquetError| TraceError::Footer { what: error.to_string() };
        let reader = SerializedFileReader::new(
            file.try_clone().map_err(|error| TraceError::Footer { what: error.to_string() })?,
        );
        let reader = reader.map_err(whole)?;
        let metadata = reader.metadata().file_metadata();
        let expected = parse_message_type(SCHEMA).map_err(whole)?;
        if metadata.schema() != &expected {
            let what = "its columns are not those of a trace".to_owned();
            return Err(TraceError::Footer { what });
        }
        let value = |key: &str| {
            let pairs = metadata.key_value_metadata()?;
            pairs.iter().find(|pair| pair.key == key)?.value.as_deref()
        };
        match value(KEY_VERSION) {
            Some(VERSION) => {}
            version => {
                let what = format!(
                    "its version ({KEY_VERSION}) is {version:?} and this program reads {VERSION:?}"
                );
                return Err(TraceError::Footer { what });
            }
        }
        let description: TraceDescription =
            serde_json::from_str(value(KEY_DESCRIPTION).unwrap_or_default())?;
        check_description(description.page_bytes, description.gpus)?;
        Ok(description)
    })
}

/// Hands every access of a file to `sink`.
pub(in super::super) fn read(
    file: File,
    gpus: usize,
    layout: &mut Layout,
    sink: &mut impl Sink,
) -> Result<(), TraceError> {
    let at = Cell::new(At { row_group: 0, row: 0, column: "(file)" });
    contained(&at, || {
        let failed = |error: ParquetError| damaged(at.get(), error);
        let reader = SerializedFileReader::new(file).map_err(failed)?;
        let mut rows = Rows { gpus, layout, sink, at: &at, accesses: 0, running: Vec::new() };
        for row_group in 0..reader.num_row_groups() {
            at.set(At { row_group, row: 0, column: "(row group)" });
            let group = reader.get_row_group(row_group).map_err(failed)?;
            rows.group(&*group)?;
        }
        Ok(())
    })
}

/// A column of the running row group, and its values of the running batch.
struct Column<T: DataType> {
    name: &'static str,
    optional: bool,
    reader: ColumnReaderImpl<T>,
    values: Vec<T::T>,
    present: Vec<i16>,
}

impl<T: DataType<T: Copy + Default>> Column<T> {
    /// Reads the next `count` rows.
    fn fill(&mut self, at: &Cell<At>, count: usize) -> Result<(), TraceError> {
        let here = At { column: self.name, ..at.get() };
        at.set(here);
        self.values.clear();
        self.present.clear();
        while self.rows() < count {
            let left = count - self.rows();
            let present = self.optional.then_some(&mut self.present);
            let read = self.reader.read_records(left, present, None, &mut self.values);
            let (rows, ..) = read.map_err(|error| damaged(here, error))?;
            if rows == 0 || self.rows() > count {
                let row = here.row + self.rows() as u64;
                return Err(damaged(At { row, ..here }, "its rows end too early"));
            }
        }
        if self.optional {
            let there = self.present.iter().filter(|&&level| level == 1).count();
            if there != self.values.len() || self.present.iter().any(|&l| !(0..=1).contains(&l)) {
                return Err(damaged(here, "its values do not match its levels"));
            }
            self.spread();
        }
        Ok(())
    }

    fn rows(&self) -> usize {
        if self.optional { self.present.len() } else { self.values.len() }
    }

    /// Puts every value where its row is.
    fn spread(&mut self) {
        let mut from = self.values.len();
        self.values.resize(self.present.len(), T::T::default());
        for row in (0..self.present.len()).rev() {
            if self.present[row] == 1 {
                from -= 1;
                self.values[row] = self.values[from];
            }
        }
    }

    /// The value of a row, if it has one.
    fn get(&self, row: usize) -> Option<T::T> {
        let has = !self.optional || self.present[row] == 1;
        has.then(|| self.values[row])
    }
}

/// The columns of a row group.
struct Columns {
    narrow: [Column<Int32Type>; 8],
    line: Column<Int64Type>,
    time: Column<Int64Type>,
}

/// Positions in [`Columns::narrow`].
const LAUNCH: usize = 0;
const GPU: usize = 1;
const UNIT: usize = 2;
const GROUP: usize = 3;
const WAVE: usize = 4;
const SEQUENCE: usize = 5;
const COUNT: usize = 6;
const FLAGS: usize = 7;
/// Where the columns of [`Columns::narrow`] and the two others are in the file.
const NARROW: [usize; 8] = [0, 1, 2, 3, 4, 5, 7, 8];
const LINE: usize = 6;
const TIME: usize = 9;

impl Columns {
    fn open(group: &dyn RowGroupReader, at: &Cell<At>) -> Result<Columns, TraceError> {
        let mut narrow = Vec::with_capacity(NARROW.len());
        for index in NARROW {
            match open(group, at, index)? {
                ColumnReader::Int32ColumnReader(reader) => narrow.push(column(index, reader)),
                _ => return Err(damaged(at.get(), "it is not of 32 bits")),
            }
        }
        let wide = |index| match open(group, at, index)? {
            ColumnReader::Int64ColumnReader(reader) => Ok(column(index, reader)),
            _ => Err(damaged(at.get(), "it is not of 64 bits")),
        };
        let (line, time) = (wide(LINE)?, wide(TIME)?);
        match narrow.try_into() {
            Ok(narrow) => Ok(Columns { narrow, line, time }),
            Err(_) => Err(damaged(at.get(), "columns are missing")),
        }
    }

    fn fill(&mut self, at: &Cell<At>, count: usize) -> Result<(), TraceError> {
        for column in &mut self.narrow {
            column.fill(at, count)?;
        }
        self.line.fill(at, count)?;
        self.time.fill(at, count)
    }

    /// A required number of a row.
    fn number(&self, which: usize, row: usize) -> u32 {
        self.narrow[which].values[row] as u32
    }
}

fn open(
    group: &dyn RowGroupReader,
    at: &Cell<At>,
    index: usize,
) -> Result<ColumnReader, TraceError> {
    at.set(At { column: COLUMNS[index], ..at.get() });
    group.get_column_reader(index).map_err(|error| damaged(at.get(), error))
}

fn column<T: DataType>(index: usize, reader: ColumnReaderImpl<T>) -> Column<T> {
    let name = COLUMNS[index];
    let optional = matches!(name, "group" | "wave" | "time");
    Column { name, optional, reader, values: Vec::new(), present: Vec::new() }
}

/// Makes accesses of rows.
struct Rows<'a, S> {
    gpus: usize,
    layout: &'a mut Layout,
    sink: &'a mut S,
    at: &'a Cell<At>,
    accesses: u64,
    /// The work-group and wavefront that each compute unit ran last, with the launch.
    running: Vec<Option<(u32, u32, u16)>>,
}

impl<S: Sink> Rows<'_, S> {
    fn group(&mut self, group: &dyn RowGroupReader) -> Result<(), TraceError> {
        let rows = u64::try_from(group.metadata().num_rows())
            .map_err(|_| damaged(self.at.get(), "it has a negative number of rows"))?;
        let mut columns = Columns::open(group, self.at)?;
        let mut done = 0;
        while done < rows {
            let count = (rows - done).min(BATCH_ROWS as u64) as usize;
            self.at.set(At { row: done, ..self.at.get() });
            columns.fill(self.at, count)?;
            for row in 0..count {
                self.at.set(At { row: done + row as u64, ..self.at.get() });
                self.row(&columns, row)?;
            }
            done += count as u64;
        }
        Ok(())
    }

    fn row(&mut self, columns: &Columns, row: usize) -> Result<(), TraceError> {
        let number = |which| columns.number(which, row);
        let launch = number(LAUNCH);
        if launch >= LAUNCHES_MAX {
            return Err(self.wrong("launch", launch, "launches are counted from 0 to 65535"));
        }
        let place = self.place(number(GPU), number(UNIT))?;
        let wave = (columns.narrow[GROUP].get(row), columns.narrow[WAVE].get(row));
        self.wave(launch, place, wave)?;
        let kind = match number(FLAGS) {
            0 => Kind::Load,
            2 => Kind::LoadScalar,
            1 | 3 => Kind::Store,
            flags => return Err(self.wrong("flags", flags, "only the flags 1 and 2 are known")),
        };
        let count = number(COUNT);
        if count == 0 || count > COUNT_MAX {
            return Err(self.wrong("count", count, "it is 1 to 65536"));
        }
        let first = columns.line.values[row] as u64;
        let line = self.line(first, count)?;
        let sequence = number(SEQUENCE);
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

    fn place(&self, gpu: u32, unit: u32) -> Result<Place, TraceError> {
        let (Ok(gpu), Ok(unit)) = (u8::try_from(gpu), u8::try_from(unit)) else {
            return Err(self.wrong("gpu", gpu.max(unit), "GPUs and compute units have 8 bits"));
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
        wave: (Option<i32>, Option<i32>),
    ) -> Result<(), TraceError> {
        let (group, wave) = match wave {
            (Some(group), Some(wave)) => (group as u32, wave as u32),
            (None, None) => return Ok(()),
            _ => return Err(self.wrong("wave", 0, "group and wave are both there or both not")),
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
                Err(damaged(At { column: "line", ..self.at.get() }, what))
            }
        }
    }

    fn wrong(&self, column: &'static str, value: u32, why: &str) -> TraceError {
        damaged(At { column, ..self.at.get() }, format!("{value} cannot be: {why}"))
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
                damaged(At { column, ..self.at.get() }, format!("{value} cannot be: {why}"))
            }
            other => other,
        }
    }
}
