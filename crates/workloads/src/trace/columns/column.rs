//! The columns of a trace in a Parquet file, wherever they are in it and whoever wrote it: found by
//! name, of any integer type, nullable or not. What else the file has is left alone.

use parquet::basic::{ConvertedType, LogicalType, Type as PhysicalType};
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::{BoolType, DataType, Int32Type, Int64Type};
use parquet::file::reader::RowGroupReader;
use parquet::schema::types::{ColumnDescriptor, SchemaDescriptor};

use super::at::{At, Place, damaged};
use crate::TraceError;

/// The columns that are read, and whether a trace must have them.
pub(super) const COLUMNS: &[(&str, bool)] = &[
    ("launch", true),
    ("gpu", true),
    ("unit", true),
    ("group", false),
    ("wave", false),
    ("sequence", true),
    ("line", true),
    ("count", true),
    ("flags", true),
];

/// Positions in [`COLUMNS`].
pub(super) const LAUNCH: usize = 0;
pub(super) const GPU: usize = 1;
pub(super) const UNIT: usize = 2;
pub(super) const GROUP: usize = 3;
pub(super) const WAVE: usize = 4;
pub(super) const SEQUENCE: usize = 5;
pub(super) const LINE: usize = 6;
pub(super) const COUNT: usize = 7;
pub(super) const FLAGS: usize = 8;

/// Where the columns of a trace are in a file.
#[derive(Debug)]
pub(super) struct Found {
    /// What is looked for: names, and whether a file must have them.
    columns: &'static [(&'static str, bool)],
    at: Vec<Option<Where>>,
}

/// Where a column is, and how its values are to be taken.
#[derive(Clone, Copy, Debug)]
struct Where {
    index: usize,
    signed: bool,
    nullable: bool,
}

impl Found {
    /// Looks for columns in a file's schema.
    pub(super) fn new(
        schema: &SchemaDescriptor,
        columns: &'static [(&'static str, bool)],
    ) -> Result<Found, TraceError> {
        let mut found = Found { columns, at: vec![None; columns.len()] };
        for (which, &(name, required)) in columns.iter().enumerate() {
            let named = |column: &ColumnDescriptor| column.path().parts() == [name];
            let mut places =
                schema.columns().iter().enumerate().filter(|(_, column)| named(column));
            found.at[which] = match (places.next(), places.next()) {
                (_, Some(_)) => {
                    let what = format!("it has the column {name:?} more than once");
                    return Err(TraceError::Footer { what });
                }
                (Some((index, column)), None) => Some(usable(name, index, column)?),
                (None, None) if required => return Err(missing(name, columns)),
                (None, None) => None,
            };
        }
        Ok(found)
    }

    /// Readers of these columns, by position, in a row group; none for the others and for those
    /// that the file does not have.
    pub(super) fn open(
        &self,
        which: &[usize],
        group: &dyn RowGroupReader,
        at: &At,
    ) -> Result<Columns, TraceError> {
        let mut columns = Columns(self.columns.iter().map(|_| None).collect());
        for &which in which {
            let Some(found) = self.at[which] else { continue };
            let (name, required) = self.columns[which];
            at.column(name);
            let reader = group.get_column_reader(found.index);
            let values = match reader.map_err(|error| damaged(at.get(), error))? {
                ColumnReader::Int32ColumnReader(reader) => Values::Narrow(reader, Vec::new()),
                ColumnReader::Int64ColumnReader(reader) => Values::Wide(reader, Vec::new()),
                ColumnReader::BoolColumnReader(reader) => Values::Truth(reader, Vec::new()),
                _ => return Err(damaged(at.get(), "it is not of integers")),
            };
            let (present, numbers) = (Vec::new(), Vec::new());
            columns.0[which] = Some(Column { name, required, found, values, present, numbers });
        }
        Ok(columns)
    }
}

fn missing(name: &str, columns: &[(&str, bool)]) -> TraceError {
    let required = columns.iter().filter(|(_, required)| *required).map(|(name, _)| *name);
    let required = required.collect::<Vec<_>>().join(", ");
    // What has neither this nor an address is perhaps of a tool whose columns have other names.
    let others = match name == COLUMNS[LAUNCH].0 {
        true => "; accesses of another tool have at least address and write (docs/workloads.md)",
        false => "",
    };
    let what = format!("it has no column {name:?}; a trace has the columns {required}{others}");
    TraceError::Footer { what }
}

/// Whether a column can be read: integers of any width, one a row.
fn usable(name: &str, index: usize, column: &ColumnDescriptor) -> Result<Where, TraceError> {
    let physical = column.physical_type();
    let is_integer =
        matches!(physical, PhysicalType::INT32 | PhysicalType::INT64 | PhysicalType::BOOLEAN);
    let signed = match (column.logical_type_ref(), column.converted_type()) {
        (Some(LogicalType::Integer(integer)), _) => Some(integer.is_signed),
        (Some(_), _) => None,
        (None, ConvertedType::NONE) => Some(true),
        (None, converted) => signedness(converted),
    };
    let refused = |is: String| {
        let what = format!("its column {name:?} is {is}; it must be of integers, one in each row");
        TraceError::Footer { what }
    };
    if column.max_rep_level() > 0 {
        return Err(refused("of lists".to_owned()));
    }
    match signed {
        Some(signed) if is_integer => {
            Ok(Where { index, signed, nullable: column.max_def_level() > 0 })
        }
        _ => Err(refused(match column.logical_type_ref() {
            Some(logical) => format!("{physical} ({logical:?})"),
            None => physical.to_string(),
        })),
    }
}

fn signedness(converted: ConvertedType) -> Option<bool> {
    use ConvertedType::{INT_8, INT_16, INT_32, INT_64, UINT_8, UINT_16, UINT_32, UINT_64};
    match converted {
        INT_8 | INT_16 | INT_32 | INT_64 => Some(true),
        UINT_8 | UINT_16 | UINT_32 | UINT_64 => Some(false),
        _ => None,
    }
}

/// The columns of a row group.
pub(super) struct Columns(Vec<Option<Column>>);

impl Columns {
    /// Reads the next `count` rows of each.
    pub(super) fn fill(&mut self, at: &At, count: usize) -> Result<(), TraceError> {
        self.0.iter_mut().flatten().try_for_each(|column| column.fill(at, count))
    }

    /// Errors if a column has more values than its row group has rows: those that were read are of other rows then.
    pub(super) fn end(&mut self, at: &At) -> Result<(), TraceError> {
        self.0.iter_mut().flatten().try_for_each(|column| column.end(at))
    }

    /// The number of a row that was read last, in a column that a trace must have.
    pub(super) fn number(&self, which: usize, row: usize) -> u64 {
        self.0[which].as_ref().map_or(0, |column| column.numbers[row])
    }

    /// The same for a column that it may have.
    pub(super) fn optional(&self, which: usize, row: usize) -> Option<u64> {
        let column = self.0[which].as_ref()?;
        column.has(row).then(|| column.numbers[row])
    }
}

/// A column of the running row group, and its numbers of the running rows.
struct Column {
    name: &'static str,
    required: bool,
    found: Where,
    values: Values,
    /// 1 where there is a value, if there need not be one.
    present: Vec<i16>,
    numbers: Vec<u64>,
}

/// How a column is stored, with the values that were read last.
enum Values {
    Narrow(ColumnReaderImpl<Int32Type>, Vec<i32>),
    Wide(ColumnReaderImpl<Int64Type>, Vec<i64>),
    /// False is 0, true 1.
    Truth(ColumnReaderImpl<BoolType>, Vec<bool>),
}

impl Column {
    fn has(&self, row: usize) -> bool {
        !self.found.nullable || self.present[row] == 1
    }

    fn fill(&mut self, at: &At, count: usize) -> Result<(), TraceError> {
        at.column(self.name);
        let present = self.found.nullable.then_some(&mut self.present);
        let signed = self.found.signed;
        let number = |value: i64, mask: u64| match u64::try_from(value) {
            Ok(number) => Some(number),
            Err(_) => (!signed).then_some(value as u64 & mask),
        };
        let numbers: Vec<Option<u64>> = match &mut self.values {
            Values::Narrow(reader, values) => {
                read(reader, values, present, at, count)?;
                let mask = u64::from(u32::MAX);
                values.iter().map(|&value| number(value.into(), mask)).collect()
            }
            Values::Wide(reader, values) => {
                read(reader, values, present, at, count)?;
                values.iter().map(|&value| number(value, u64::MAX)).collect()
            }
            Values::Truth(reader, values) => {
                read(reader, values, present, at, count)?;
                values.iter().map(|&value| Some(value.into())).collect()
            }
        };
        self.spread(&numbers, at)
    }

    fn end(&mut self, at: &At) -> Result<(), TraceError> {
        at.column(self.name);
        let levels = self.found.nullable.then_some(&mut self.present);
        let left = match &mut self.values {
            Values::Narrow(reader, values) => reader.read_records(1, levels, None, values),
            Values::Wide(reader, values) => reader.read_records(1, levels, None, values),
            Values::Truth(reader, values) => reader.read_records(1, levels, None, values),
        };
        match left.map_err(|error| damaged(at.get(), error))? {
            (0, ..) => Ok(()),
            _ => Err(damaged(at.get(), "it has more rows than its row group")),
        }
    }

    /// Puts every number where its row is.
    fn spread(&mut self, numbers: &[Option<u64>], at: &At) -> Result<(), TraceError> {
        let rows = if self.found.nullable { self.present.len() } else { numbers.len() };
        let wrong = |row: usize, what| {
            let place = at.get();
            damaged(Place { row: place.row + row as u64, ..place }, what)
        };
        let mut numbers = numbers.iter();
        self.numbers.clear();
        for row in 0..rows {
            let number = match self.has(row) {
                true => *numbers.next().unwrap_or(&None),
                false if self.required => {
                    return Err(wrong(row, "there is no value"));
                }
                false => Some(0),
            };
            let number = number.ok_or_else(|| wrong(row, "it is negative"))?;
            self.numbers.push(number);
        }
        Ok(())
    }
}

/// Reads the next `count` rows of a column.
fn read<T: DataType<T: Copy>>(
    reader: &mut ColumnReaderImpl<T>,
    values: &mut Vec<T::T>,
    mut present: Option<&mut Vec<i16>>,
    at: &At,
    count: usize,
) -> Result<(), TraceError> {
    values.clear();
    if let Some(present) = &mut present {
        present.clear();
    }
    let here = at.get();
    let mut done = 0;
    while done < count {
        let levels = present.as_deref_mut();
        let read = reader.read_records(count - done, levels, None, values);
        let (rows, ..) = read.map_err(|error| damaged(here, error))?;
        done = present.as_ref().map_or(values.len(), |present| present.len());
        if rows == 0 || done > count {
            let row = here.row + done as u64;
            return Err(damaged(Place { row, ..here }, "its rows end too early"));
        }
    }
    let Some(present) = present else { return Ok(()) };
    let there = present.iter().filter(|&&level| level == 1).count();
    if there != values.len() || present.iter().any(|level| !(0..=1).contains(level)) {
        return Err(damaged(here, "its values do not match its levels"));
    }
    Ok(())
}
