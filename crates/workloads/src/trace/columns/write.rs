//! Writes the compact format, a row group at a time.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use farside_parquet::{Group, said};
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::data_type::{Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use parquet::schema::types::ColumnPath;
use thiserror::Error;

use super::{
    COUNT_MAX, FLAG_SCALAR, FLAG_WRITE, KEY_DESCRIPTION, KEY_VERSION, SCHEMA, TraceDescription,
    VERSION,
};
use crate::{LINE_BYTES, Place};

/// Rows of a row group: what is held in memory, about 50 bytes each.
const GROUP_ROWS: usize = 1 << 18;
/// Compression level: higher ones gain little here.
const LEVEL: i32 = 9;

/// Why a trace cannot be written.
#[derive(Debug, Error)]
#[error("the trace cannot be written: {}", said(.0))]
pub struct TraceWriteError(#[from] ParquetError);

impl TraceWriteError {
    /// Says which file was to be written.
    pub(crate) fn to(self, path: &Path) -> TraceWriteError {
        let named = format!("{}: {}", path.display(), said(&self.0));
        TraceWriteError(ParquetError::External(named.into()))
    }
}

/// Consecutive lines that one wavefront instruction accesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceRow {
    /// The kernel launch, from 0.
    pub launch: u32,
    /// Who accesses.
    pub place: Place,
    /// Work-group and wavefront, if they are known.
    pub wave: Option<(u32, u16)>,
    /// Number of the memory instruction on its compute unit: rows with the same number and flags
    /// that follow each other there are one instruction. Of a trace with cycles, the cycle.
    pub sequence: u32,
    /// Address of the first byte; the line that holds it is meant.
    pub address: u64,
    /// Lines, at least 1.
    pub count: u32,
    /// Whether they are written.
    pub write: bool,
    /// Whether they go through the scalar cache.
    pub scalar: bool,
    /// When, in nanoseconds, if it is known.
    pub time: Option<u64>,
}

/// Writes a trace row by row. The description comes last, when all allocations are known.
pub struct TraceWriter<W: Write + Send> {
    file: SerializedFileWriter<W>,
    rows: Rows,
    /// May grow by lines that follow.
    last: Option<TraceRow>,
}

/// The columns of a row group.
#[derive(Debug, Default)]
struct Rows {
    launch: Vec<i32>,
    gpu: Vec<i32>,
    unit: Vec<i32>,
    group: Vec<i32>,
    wave: Vec<i32>,
    /// 1 where there are a work-group and a wavefront.
    has_wave: Vec<i16>,
    sequence: Vec<i32>,
    line: Vec<i64>,
    count: Vec<i32>,
    flags: Vec<i32>,
    time: Vec<i64>,
    has_time: Vec<i16>,
}

impl<W: Write + Send> TraceWriter<W> {
    /// An empty trace.
    ///
    /// # Errors
    /// [`TraceWriteError`] says what `out` refuses.
    pub fn new(out: W) -> Result<TraceWriter<W>, TraceWriteError> {
        let schema = Arc::new(parse_message_type(SCHEMA)?);
        let mut properties = WriterProperties::builder()
            .set_compression(Compression::ZSTD(ZstdLevel::try_new(LEVEL)?))
            .set_created_by(concat!("farside ", env!("CARGO_PKG_VERSION")).to_owned())
            .set_max_row_group_row_count(None);
        // Numbers that mostly grow by little; the others are few values each: a dictionary.
        for name in ["sequence", "line", "time"] {
            properties = properties
                .set_column_dictionary_enabled(ColumnPath::from(name), false)
                .set_column_encoding(ColumnPath::from(name), Encoding::DELTA_BINARY_PACKED);
        }
        let file = SerializedFileWriter::new(out, schema, Arc::new(properties.build()))?;
        Ok(TraceWriter { file, rows: Rows::default(), last: None })
    }

    /// Adds lines. They join the row before if they continue it.
    ///
    /// # Errors
    /// [`TraceWriteError`].
    pub fn push(&mut self, row: TraceRow) -> Result<(), TraceWriteError> {
        let mut row = TraceRow { address: row.address / LINE_BYTES * LINE_BYTES, ..row };
        if let Some(last) = &mut self.last {
            let end = last.address + u64::from(last.count) * LINE_BYTES;
            let alike = TraceRow { address: last.address, count: last.count, ..row } == *last;
            if alike && end == row.address && last.count < COUNT_MAX {
                let more = row.count.min(COUNT_MAX - last.count);
                last.count += more;
                row.count -= more;
                row.address += u64::from(more) * LINE_BYTES;
            }
        }
        while row.count > 0 {
            let count = row.count.min(COUNT_MAX);
            if let Some(last) = self.last.replace(TraceRow { count, ..row }) {
                self.write(&last)?;
            }
            row.count -= count;
            row.address += u64::from(count) * LINE_BYTES;
        }
        Ok(())
    }

    fn write(&mut self, row: &TraceRow) -> Result<(), TraceWriteError> {
        self.rows.push(row);
        if self.rows.launch.len() == GROUP_ROWS {
            self.flush()?;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), TraceWriteError> {
        let mut group = Group::new(&mut self.file)?;
        let rows = std::mem::take(&mut self.rows);
        rows.write(&mut group)?;
        group.close()?;
        Ok(())
    }

    /// Writes what is left and the description, and flushes.
    ///
    /// # Errors
    /// [`TraceWriteError`].
    pub fn finish(mut self, description: &TraceDescription) -> Result<W, TraceWriteError> {
        if let Some(last) = self.last.take() {
            self.write(&last)?;
        }
        if !self.rows.launch.is_empty() {
            self.flush()?;
        }
        let text = serde_json::to_string(description)
            .map_err(|error| ParquetError::External(Box::new(error)))?;
        for (key, value) in [(KEY_VERSION, VERSION.to_owned()), (KEY_DESCRIPTION, text)] {
            self.file.append_key_value_metadata(KeyValue::new(key.to_owned(), value));
        }
        let mut file = self.file.into_inner()?;
        // A buffer that is dropped tells nobody what it could not write.
        file.flush().map_err(ParquetError::from)?;
        Ok(file)
    }
}

impl Rows {
    fn push(&mut self, row: &TraceRow) {
        // Unsigned columns are stored as the signed numbers with the same bits.
        self.launch.push(row.launch as i32);
        self.gpu.push(row.place.gpu.into());
        self.unit.push(row.place.unit.into());
        self.has_wave.push(row.wave.is_some().into());
        if let Some((group, wave)) = row.wave {
            self.group.push(group as i32);
            self.wave.push(wave.into());
        }
        self.sequence.push(row.sequence as i32);
        self.line.push((row.address / LINE_BYTES) as i64);
        self.count.push(row.count as i32);
        let (write, scalar) = (u8::from(row.write), u8::from(row.scalar));
        self.flags.push(((write * FLAG_WRITE) | (scalar * FLAG_SCALAR)).into());
        self.has_time.push(row.time.is_some().into());
        self.time.extend(row.time.map(|time| time as i64));
    }

    /// Writes the columns in the order of the schema.
    fn write<W: Write + Send>(&self, group: &mut Group<'_, W>) -> Result<(), ParquetError> {
        group.column::<Int32Type>(&self.launch, None)?;
        group.column::<Int32Type>(&self.gpu, None)?;
        group.column::<Int32Type>(&self.unit, None)?;
        group.column::<Int32Type>(&self.group, Some(&self.has_wave))?;
        group.column::<Int32Type>(&self.wave, Some(&self.has_wave))?;
        group.column::<Int32Type>(&self.sequence, None)?;
        group.column::<Int64Type>(&self.line, None)?;
        group.column::<Int32Type>(&self.count, None)?;
        group.column::<Int32Type>(&self.flags, None)?;
        group.column::<Int64Type>(&self.time, Some(&self.has_time))
    }
}
