//! Reading a log, batch by batch: memory for a row group and no more, however long the log is.

use std::cell::Cell;
use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use farside_types::{AgentId, AgentSet, MAX_CARDS, MemoryId, MemorySet, Reason};
use parquet::column::reader::ColumnReaderImpl;
use parquet::data_type::{ByteArray, ByteArrayType, DataType, Int32Type, Int64Type};
use parquet::file::metadata::ParquetMetaData;
use parquet::file::reader::{FileReader, RowGroupReader, SerializedFileReader};
use parquet::file::statistics::Statistics;

use crate::recover::{Whole, begins_well, last_footer};
use crate::schema::{self, COLUMNS, NONE, at};
use crate::{About, Event, Kind, Name, Names, ReadError};

/// Rows that are decoded at a time.
const BATCH_ROWS: usize = 1 << 13;

/// Bytes that one event can be about: all of the largest space, in the largest pages.
const BYTES_MOST: u64 = 16 << 40 << 9;
/// Addresses of a space, in the largest pages, lie below.
const ADDRESS_MOST: u64 = 1 << 62;
/// Words that are compared before all others.
const KINDS_OF_LATE: usize = 4;
/// What is said of an empty file.
const EMPTY: &str = "it is empty, as a program leaves it that was killed in its first second or whose disk was full";

/// A log that is read.
pub struct Reader {
    path: PathBuf,
    file: SerializedFileReader<Whole>,
    about: About,
    cut: Option<Cut>,
    /// Where each of [`COLUMNS`] is in the file.
    places: [usize; COLUMNS.len()],
}

/// A log whose end is missing: its run was killed, or its disk was full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// Bytes up to the last footer, which are read.
    pub bytes: u64,
    /// Bytes behind it, which are not.
    pub left_out: u64,
}

/// Some events in their order, and the names of all so far.
#[derive(Clone, Copy)]
pub struct Batch<'a> {
    /// The events.
    pub events: &'a [Event],
    /// The names.
    pub names: &'a Names,
}

impl Reader {
    /// Opens a log, also one that was cut.
    ///
    /// # Errors
    /// [`ReadError`] says what the file is instead.
    pub fn open(path: &Path) -> Result<Reader, ReadError> {
        let failed = |source| ReadError::File { path: path.to_owned(), source };
        let not_one = |what: String| ReadError::NotOne { path: path.to_owned(), what };
        let file = File::open(path).map_err(|error| failed(absent(path, error)))?;
        let meta = file.metadata().map_err(failed)?;
        if meta.is_dir() {
            return Err(not_one("it is a folder".to_owned()));
        }
        let bytes = meta.len();
        if bytes == 0 {
            return Err(not_one(EMPTY.to_owned()));
        }
        if !begins_well(&file).map_err(failed)? {
            return Err(not_one("it does not begin as a Parquet file does".to_owned()));
        }
        let Some(end) = last_footer(&file, bytes).map_err(failed)? else {
            return Err(ReadError::Cut { path: path.to_owned(), bytes });
        };
        let cut = (end < bytes).then_some(Cut { bytes: end, left_out: bytes - end });
        let file = SerializedFileReader::new(Whole::new(file, end));
        let file = file.map_err(|error| not_one(error.to_string()))?;
        let about = about(file.metadata(), path)?;
        rows_agree(file.metadata()).map_err(not_one)?;
        let places = places(file.metadata()).map_err(not_one)?;
        Ok(Reader { path: path.to_owned(), file, about, cut, places })
    }

    /// What it is about.
    pub fn about(&self) -> &About {
        &self.about
    }

    /// What is missing at its end, if anything is.
    pub fn cut(&self) -> Option<Cut> {
        self.cut
    }

    /// Events in it.
    pub fn events(&self) -> u64 {
        self.file.metadata().file_metadata().num_rows().try_into().unwrap_or(0)
    }

    /// The time of the last event, if the file says so without being read.
    pub fn end(&self) -> Option<u64> {
        let last = |group: &parquet::file::metadata::RowGroupMetaData| match group
            .column(self.places[at::AT])
            .statistics()?
        {
            Statistics::Int64(it) => u64::try_from(*it.max_opt()?).ok(),
            _ => None,
        };
        let groups = self.file.metadata().row_groups();
        groups.iter().map(last).try_fold(0, |end, it| Some(it?.max(end)))
    }

    /// Bytes of the columns in the file, without footers.
    #[cfg(test)]
    pub(crate) fn column_bytes(&self) -> i64 {
        self.file.metadata().row_groups().iter().map(|group| group.compressed_size()).sum()
    }

    /// Hands all events to `take`, in their order.
    ///
    /// # Errors
    /// [`ReadError::Damaged`] says where the file cannot be.
    pub fn for_each(&self, mut take: impl FnMut(Batch<'_>)) -> Result<(), ReadError> {
        let mut names = Names::default();
        let mut columns = Columns::default();
        for number in 0..self.file.num_row_groups() {
            let here = Here { group: number, row: Cell::new(0), column: Cell::new("(row group)") };
            let mut next = 0;
            let group = self.contained(&here, || self.file.get_row_group(number))?;
            let mut group = self.contained(&here, || Open::new(&*group, &self.places, &here))?;
            let rows = usize::try_from(self.file.metadata().row_group(number).num_rows());
            let rows = rows.unwrap_or(0);
            while next < rows {
                let count = BATCH_ROWS.min(rows - next);
                here.row.set(next);
                self.contained(&here, || group.read(count, &mut columns, &here))?;
                columns.rows(&mut names, &here).map_err(|what| self.damaged(&here, what))?;
                take(Batch { events: &columns.events, names: &names });
                next += count;
            }
            here.row.set(rows);
            self.contained(&here, || group.end(&here))?;
        }
        Ok(())
    }

    fn damaged(&self, here: &Here, what: impl ToString) -> ReadError {
        let Here { group, row, column } = here;
        let (path, what) = (self.path.clone(), what.to_string());
        ReadError::Damaged { path, row_group: *group, row: row.get(), column: column.get(), what }
    }

    /// Errors and panics of the Parquet reader as errors with their place.
    fn contained<T, E: ToString>(
        &self,
        here: &Here,
        read: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, ReadError> {
        match catch_unwind(AssertUnwindSafe(read)) {
            Ok(result) => result.map_err(|error| self.damaged(here, error)),
            Err(_) => Err(self.damaged(here, "it cannot be decoded")),
        }
    }
}

/// Where the reader is.
struct Here {
    group: usize,
    row: Cell<usize>,
    column: Cell<&'static str>,
}

fn about(metadata: &ParquetMetaData, path: &Path) -> Result<About, ReadError> {
    let not_one = |what: String| ReadError::NotOne { path: path.to_owned(), what };
    let pairs = metadata.file_metadata().key_value_metadata();
    let value = |key: &str| {
        let mut pairs = pairs.into_iter().flatten().filter(|pair| pair.key == key);
        pairs.next().and_then(|pair| pair.value.clone())
    };
    let Some(version) = value(schema::VERSION_KEY) else {
        let columns = metadata.file_metadata().schema_descr().columns();
        let names: Vec<_> = columns.iter().take(8).map(|column| column.name()).collect();
        return Err(not_one(format!("it is a Parquet file of {}", names.join(", "))));
    };
    if version != crate::VERSION {
        return Err(ReadError::Version { path: path.to_owned(), found: version });
    }
    let text = value(schema::ABOUT_KEY).unwrap_or_default();
    let about: About = serde_json::from_str(&text)
        .map_err(|error| not_one(format!("its {}: {error}", schema::ABOUT_KEY)))?;
    if !about.page_bytes.is_power_of_two() {
        return Err(not_one(format!("its pages have {} bytes", about.page_bytes)));
    }
    if about.memories.is_empty() || about.memories.len() > MAX_CARDS + 1 {
        return Err(not_one(format!("it has {} memories", about.memories.len())));
    }
    Ok(about)
}

/// Logs that are named instead of one that is not there.
const NAMED: usize = 8;

/// Why a log cannot be opened, with those that are there instead: of several modes, spaces or processes each has a word
/// of its own before the end of its name.
fn absent(path: &Path, error: std::io::Error) -> std::io::Error {
    if error.kind() != std::io::ErrorKind::NotFound {
        return error;
    }
    let folder = path.parent().filter(|it| !it.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let (Some(stem), Some(end)) = (path.file_stem(), path.extension()) else { return error };
    let (begin, end) =
        (format!("{}.", stem.to_string_lossy()), format!(".{}", end.to_string_lossy()));
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut there: Vec<_> =
        names.filter(|it| it.starts_with(&begin) && it.ends_with(&end)).collect();
    there.sort();
    if there.is_empty() {
        return error;
    }
    let more = match there.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    there.truncate(NAMED);
    std::io::Error::new(error.kind(), format!("{error}; there are {}{more}", there.join(", ")))
}

/// Whether row groups have as many rows as the file is said to have.
fn rows_agree(metadata: &ParquetMetaData) -> Result<(), String> {
    let all = metadata.file_metadata().num_rows();
    let rows: i128 = metadata.row_groups().iter().map(|it| i128::from(it.num_rows())).sum();
    match rows == i128::from(all) {
        true => Ok(()),
        false => Err(format!("its footer has {all} rows, and its row groups {rows}")),
    }
}

/// Finds the columns.
fn places(metadata: &ParquetMetaData) -> Result<[usize; COLUMNS.len()], String> {
    let ours = parquet::schema::types::SchemaDescriptor::new(schema::message());
    let theirs = metadata.file_metadata().schema_descr();
    let mut places = [0; COLUMNS.len()];
    for (place, column) in places.iter_mut().zip(ours.columns()) {
        let name = column.name();
        let found = theirs.columns().iter().position(|it| it.path() == column.path());
        *place = found.ok_or_else(|| format!("it has no column {name:?}"))?;
        let there = theirs.column(*place);
        if there.physical_type() != column.physical_type() || there.max_def_level() > 0 {
            let (is, wants) = (there.physical_type(), column.physical_type());
            let nulls = if there.max_def_level() > 0 { ", nullable" } else { "" };
            return Err(format!("its column {name:?} is {is}{nulls}; it must be {wants}"));
        }
    }
    Ok(places)
}

/// The columns of a row group that is being read.
struct Open {
    wide: Vec<(usize, ColumnReaderImpl<Int64Type>)>,
    narrow: Vec<(usize, ColumnReaderImpl<Int32Type>)>,
    text: Vec<(usize, ColumnReaderImpl<ByteArrayType>)>,
}

impl Open {
    fn new(
        group: &dyn RowGroupReader,
        places: &[usize],
        here: &Here,
    ) -> parquet::errors::Result<Open> {
        use parquet::column::reader::ColumnReader;
        let mut open = Open { wide: Vec::new(), narrow: Vec::new(), text: Vec::new() };
        for (which, &place) in places.iter().enumerate() {
            here.column.set(COLUMNS[which]);
            match group.get_column_reader(place)? {
                ColumnReader::Int64ColumnReader(reader) => open.wide.push((which, reader)),
                ColumnReader::Int32ColumnReader(reader) => open.narrow.push((which, reader)),
                ColumnReader::ByteArrayColumnReader(reader) => open.text.push((which, reader)),
                _ => unreachable!("the types were looked at"),
            }
        }
        Ok(open)
    }

    fn read(&mut self, rows: usize, into: &mut Columns, here: &Here) -> Result<(), String> {
        for (which, reader) in &mut self.wide {
            fill(*which, reader, rows, &mut into.wide[*which], here)?;
        }
        for (which, reader) in &mut self.narrow {
            fill(*which, reader, rows, &mut into.narrow[*which], here)?;
        }
        for (which, reader) in &mut self.text {
            fill(*which, reader, rows, &mut into.text[*which], here)?;
        }
        Ok(())
    }

    /// Errors if a column has more values than the group has rows: those that were read are of other rows then.
    fn end(&mut self, here: &Here) -> Result<(), String> {
        self.wide.iter_mut().try_for_each(|(which, reader)| ended(*which, reader, here))?;
        self.narrow.iter_mut().try_for_each(|(which, reader)| ended(*which, reader, here))?;
        self.text.iter_mut().try_for_each(|(which, reader)| ended(*which, reader, here))
    }
}

fn fill<T: DataType>(
    which: usize,
    reader: &mut ColumnReaderImpl<T>,
    rows: usize,
    into: &mut Vec<T::T>,
    here: &Here,
) -> Result<(), String> {
    here.column.set(COLUMNS[which]);
    into.clear();
    while into.len() < rows {
        let read = reader.read_records(rows - into.len(), None, None, into);
        let (records, ..) = read.map_err(|error| error.to_string())?;
        if records == 0 {
            return Err(format!("it ends after {} rows of {rows}", into.len()));
        }
    }
    Ok(())
}

fn ended<T: DataType>(
    which: usize,
    reader: &mut ColumnReaderImpl<T>,
    here: &Here,
) -> Result<(), String> {
    here.column.set(COLUMNS[which]);
    match reader.read_records(1, None, None, &mut Vec::new()) {
        Ok((0, ..)) => Ok(()),
        Ok(_) => Err("it has more rows than its row group".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// Values of a batch, by the numbers of their columns, and the events that they are.
#[derive(Default)]
struct Columns {
    wide: [Vec<i64>; COLUMNS.len()],
    narrow: [Vec<i32>; COLUMNS.len()],
    text: [Vec<ByteArray>; COLUMNS.len()],
    events: Vec<Event>,
    /// The words of late, the newest last, and what they are: few follow each other.
    kinds: Vec<(ByteArray, Kind)>,
}

impl Columns {
    /// Makes events of the values.
    fn rows(&mut self, names: &mut Names, here: &Here) -> Result<(), String> {
        let first = here.row.get();
        self.events.clear();
        for row in 0..self.wide[at::AT].len() {
            here.row.set(first + row);
            let event = self.row(row, names, here)?;
            self.events.push(event);
        }
        Ok(())
    }

    fn row(&mut self, row: usize, names: &mut Names, here: &Here) -> Result<Event, String> {
        let wide = |which: usize| {
            let value = self.wide[which][row];
            u64::try_from(value).map_err(|_| wrong(which, here, value))
        };
        let memory = |which: usize| match self.narrow[which][row] {
            NONE => Ok(None),
            value if (0..=MAX_CARDS as i32).contains(&value) => Ok(Some(value as u8)),
            value => Err(wrong(which, here, value)),
        };
        let set = |which: usize| match self.narrow[which][row] {
            value if (0..1 << (MAX_CARDS + 1)).contains(&value) => Ok(value as u32),
            value => Err(wrong(which, here, value)),
        };
        let event = Event {
            at: wide(at::AT)?,
            reason: reason(self.text[at::REASON][row].data(), here)?,
            agent: memory(at::AGENT)?.map(AgentId),
            address: wide(at::ADDRESS)?,
            bytes: wide(at::BYTES)?,
            from: memory(at::FROM)?.map(MemoryId),
            to: memory(at::TO)?.map(MemoryId),
            before: MemorySet(set(at::BEFORE)?),
            after: MemorySet(set(at::AFTER)?),
            stopped: AgentSet(set(at::STOPPED)?),
            around: wide(at::AROUND)?,
            number: wide(at::NUMBER)?,
            kind: Kind::Dropped,
            name: Name::NONE,
        };
        if event.bytes > BYTES_MOST {
            return Err(wrong(at::BYTES, here, event.bytes));
        }
        if event.address > ADDRESS_MOST {
            return Err(wrong(at::ADDRESS, here, event.address));
        }
        let kind = self.kind(row, here)?;
        let name = match self.text[at::NAME][row].data() {
            [] => Name::NONE,
            text => names.number(&String::from_utf8_lossy(text)),
        };
        Ok(Event { kind, name, ..event })
    }

    fn kind(&mut self, row: usize, here: &Here) -> Result<Kind, String> {
        let word = self.text[at::KIND][row].data();
        if let Some((_, kind)) = self.kinds.iter().rev().find(|(last, _)| last.data() == word) {
            return Ok(*kind);
        }
        let unknown = || wrong(at::KIND, here, format!("{:?}", String::from_utf8_lossy(word)));
        let kind = Kind::of(word).ok_or_else(unknown)?;
        if self.kinds.len() == KINDS_OF_LATE {
            self.kinds.remove(0);
        }
        self.kinds.push((self.text[at::KIND][row].clone(), kind));
        Ok(kind)
    }
}

fn reason(word: &[u8], here: &Here) -> Result<Option<Reason>, String> {
    if word.is_empty() {
        return Ok(None);
    }
    let found = Reason::ALL.into_iter().find(|reason| reason.name().as_bytes() == word);
    let unknown = || wrong(at::REASON, here, format!("{:?}", String::from_utf8_lossy(word)));
    found.map(Some).ok_or_else(unknown)
}

fn wrong(which: usize, here: &Here, value: impl std::fmt::Display) -> String {
    here.column.set(COLUMNS[which]);
    format!("{value} cannot be")
}
