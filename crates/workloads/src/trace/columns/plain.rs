//! Parquet files of accesses, from whatever tool: columns `address` and `write` (integers, or a truth value), and if they
//! are there `agent`, `size` and `time`, as `plain/csv.rs` has them.

use std::fs::File;
use std::path::Path;

use farside_types::MAX_CARDS;
use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader, SerializedFileReader};

use super::super::plain::{Format, Take, Touch, agent_place};
use super::super::store::Kind;
use super::at::{At, Place as Where, contained, damaged};
use super::read::each;
use crate::TraceError;

/// The columns that are read, and whether a file must have them.
const COLUMNS: &[(&str, bool)] =
    &[("address", true), ("write", true), ("agent", false), ("size", false), ("time", false)];
const ADDRESS: usize = 0;
const WRITE: usize = 1;
const AGENT: usize = 2;
const SIZE: usize = 3;
const TIME: usize = 4;
/// What only a trace of ours has.
const OURS: &str = "launch";

/// Whether a file is of accesses, and no trace of ours.
pub(in super::super) fn are_plain(file: &File, path: &Path) -> Result<bool, TraceError> {
    let at = At::new();
    let unreadable = |source| TraceError::Read { path: path.to_owned(), source };
    let file = file.try_clone().map_err(unreadable)?;
    contained(&at, || {
        let whole = |error: ParquetError| TraceError::Footer { what: error.to_string() };
        let reader = SerializedFileReader::new(file).map_err(whole)?;
        let schema = reader.metadata().file_metadata().schema_descr();
        let has =
            |name: &str| schema.columns().iter().any(|column| column.path().parts() == [name]);
        Ok(!has(OURS) && has(COLUMNS[ADDRESS].0))
    })
}

/// A file of accesses.
#[derive(Debug)]
pub(in super::super) struct PlainRows {
    file: File,
}

impl PlainRows {
    pub(in super::super) fn new(file: File) -> PlainRows {
        PlainRows { file }
    }
}

impl Format for PlainRows {
    fn each(&self, take: Take<'_>) -> Result<u64, TraceError> {
        let at = At::new();
        contained(&at, || {
            let whole = |what: String| TraceError::Footer { what };
            let file = self.file.try_clone().map_err(|error| whole(error.to_string()))?;
            let reader =
                SerializedFileReader::new(file).map_err(|error| whole(error.to_string()))?;
            let (mut sequence, mut times) = (0_u32, [0; MAX_CARDS]);
            each(&reader, COLUMNS, &[ADDRESS, WRITE, AGENT, SIZE, TIME], &at, |columns, row| {
                let wrong = |which: usize, what: String| {
                    damaged(Where { column: COLUMNS[which].0, ..at.get() }, what)
                };
                let other = |which, missing| columns.optional(which, row).unwrap_or(missing);
                let place = agent_place(other(AGENT, 0)).map_err(|why| wrong(AGENT, why))?;
                let (time, last) = (other(TIME, 0), &mut times[usize::from(place.gpu)]);
                if time < *last {
                    return Err(wrong(
                        TIME,
                        format!("{time} is before {last}, the agent's last; sort by time"),
                    ));
                }
                *last = time;
                let kind = match columns.number(WRITE, row) {
                    0 => Kind::Load,
                    1 => Kind::Store,
                    write => return Err(wrong(WRITE, format!("{write} cannot be: it is 0 or 1"))),
                };
                let (address, size) = (columns.number(ADDRESS, row), other(SIZE, 1));
                let touch = Touch { launch: 0, place, wave: None, sequence, kind, address, size };
                if let Some(why) = touch.wrong() {
                    return Err(wrong(ADDRESS, format!("{size} bytes at {address:#x}: {why}")));
                }
                sequence = sequence.wrapping_add(1);
                take(&touch)
            })
        })?;
        Ok(0)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parquet::data_type::{BoolType, Int32Type, Int64Type};
    use parquet::file::properties::WriterProperties;
    use parquet::file::writer::SerializedFileWriter;
    use parquet::schema::parser::parse_message_type;

    use super::super::super::plain::{test_accesses, test_open};

    /// A file of these rows: address, write, agent and size, the columns in another order than ours.
    fn file(rows: &[(i64, bool, i32, i64)]) -> Vec<u8> {
        let schema = "message rows {
            required int32 agent; optional int64 size; required boolean write; required int64 address (integer(64, false));
        }";
        let schema = Arc::new(parse_message_type(schema).unwrap());
        let properties = Arc::new(WriterProperties::builder().build());
        let mut bytes = Vec::new();
        let mut writer = SerializedFileWriter::new(&mut bytes, schema, properties).unwrap();
        let mut group = writer.next_row_group().unwrap();
        let mut column = group.next_column().unwrap().unwrap();
        let agents: Vec<i32> = rows.iter().map(|row| row.2).collect();
        column.typed::<Int32Type>().write_batch(&agents, None, None).unwrap();
        column.close().unwrap();
        let mut column = group.next_column().unwrap().unwrap();
        let sizes: Vec<i64> = rows.iter().map(|row| row.3).collect();
        column.typed::<Int64Type>().write_batch(&sizes, Some(&vec![1; rows.len()]), None).unwrap();
        column.close().unwrap();
        let mut column = group.next_column().unwrap().unwrap();
        let writes: Vec<bool> = rows.iter().map(|row| row.1).collect();
        column.typed::<BoolType>().write_batch(&writes, None, None).unwrap();
        column.close().unwrap();
        let mut column = group.next_column().unwrap().unwrap();
        let addresses: Vec<i64> = rows.iter().map(|row| row.0).collect();
        column.typed::<Int64Type>().write_batch(&addresses, None, None).unwrap();
        column.close().unwrap();
        group.close().unwrap();
        writer.close().unwrap();
        bytes
    }

    #[test]
    fn rows_are_accesses() {
        let rows = [(0x10000, false, 0, 8), (0x10040, true, 3, 65)];
        let trace = test_open("rows.parquet", file(&rows), 1).unwrap();
        let found = test_accesses(&trace, 4);
        assert_eq!(found, [(0, 0, 0, false), (3, 0, 1, true), (3, 0, 2, true)]);
    }

    #[test]
    fn what_is_wrong_is_named_by_its_row() {
        for (row, column) in [
            ((0x10000, false, 16, 8), "agent"),
            ((0x10000, false, -1, 8), "agent"),
            ((-1, false, 0, 8), "address"),
            ((0x10000, false, 0, 0), "address"),
        ] {
            let bytes = file(&[(0x10000, false, 0, 8), row]);
            let error = test_open("wrong.parquet", bytes, 1).unwrap_err().to_string();
            assert!(error.contains(&format!("row 1, column {column}")), "{row:?}: {error}");
        }
        let renamed = |from: &[u8], to: &[u8]| {
            let mut bytes = file(&[(0x10000, false, 0, 8)]);
            while let Some(at) = bytes.windows(from.len()).position(|part| part == from) {
                bytes[at..at + from.len()].copy_from_slice(to);
            }
            test_open("renamed.parquet", bytes, 1).unwrap_err().to_string()
        };
        let error = renamed(b"address", b"pointer");
        assert!(error.contains("at least address and write"), "{error}");
        let error = renamed(b"agent", b"write");
        assert!(error.contains("\"write\" more than once"), "{error}");
        let whole = file(&[(0x10000, false, 0, 8); 100]);
        for cut in (4..whole.len()).step_by(7) {
            assert!(test_open("cut.parquet", &whole[..cut], 1).is_err(), "{cut}");
        }
    }
}
