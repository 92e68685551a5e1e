//! The file: row groups, and footers between them.
//!
//! A Parquet file is read from its footer, which is written last: a run that is killed would leave none. So a footer
//! is also written behind row groups on the way, and the next group behind it. Readers of Parquet see the last footer and
//! never what lies between groups; [`crate::Reader`] finds an earlier one in a file that was cut.

use std::io::Write;
use std::sync::Arc;

use farside_parquet::Group;
use farside_types::Reason;
use parquet::data_type::{Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::{
    FileMetaData, KeyValue, ParquetMetaDataBuilder, ParquetMetaDataWriter,
};
use parquet::file::writer::SerializedFileWriter;

use crate::schema::{self, NONE};
use crate::{About, Event, Kind, Name, Names};

/// Rows of the first groups. What each column of a group takes besides its rows, to begin compressing it above all, is
/// a seventh of all with half as many.
pub(crate) const GROUP_ROWS: usize = 1 << 15;
/// Bytes of groups that come for each byte of a footer on the way.
const BYTES_FOR_FOOTER: u64 = 4;
/// Bytes that a footer has for each group, about.
const FOOTER_BYTES: u64 = 1500;

/// Rows of the group that comes after so many: more, the longer a log is, because a file has at most 32,767 groups.
fn group_rows(groups: usize) -> usize {
    GROUP_ROWS * (1 + groups / 2048)
}

/// Writes events into a file, a row group at a time.
pub struct LogWriter<W: Write + Send> {
    file: SerializedFileWriter<W>,
    metadata: Vec<KeyValue>,
    columns: Columns,
    /// Those of the events that it was given.
    names: Names,
    /// Rows that the next group has room for.
    room: usize,
    rows: i64,
    /// Bytes of the file, and rows in it, when the last footer was written.
    footed: u64,
    safe: u64,
}

/// The rows that are not in the file yet; words by their numbers.
#[derive(Default)]
struct Columns {
    at: Vec<i64>,
    kind: Vec<u32>,
    reason: Vec<u32>,
    agent: Vec<i32>,
    address: Vec<i64>,
    bytes: Vec<i64>,
    from: Vec<i32>,
    to: Vec<i32>,
    before: Vec<i32>,
    after: Vec<i32>,
    stopped: Vec<i32>,
    around: Vec<i64>,
    number: Vec<i64>,
    name: Vec<u32>,
}

impl<W: Write + Send> LogWriter<W> {
    /// Begins a file.
    ///
    /// # Errors
    /// Those of `to`.
    pub fn new(to: W, about: &About) -> Result<LogWriter<W>, ParquetError> {
        let about = serde_json::to_string(about).map_err(|it| ParquetError::External(it.into()))?;
        let pair = |key: &str, value: String| KeyValue::new(key.to_owned(), value);
        let version = pair(schema::VERSION_KEY, crate::VERSION.to_owned());
        let metadata = vec![version, pair(schema::ABOUT_KEY, about)];
        let properties = Arc::new(schema::properties());
        let mut file = SerializedFileWriter::new(to, schema::message(), properties)?;
        metadata.iter().for_each(|it| file.append_key_value_metadata(it.clone()));
        Ok(LogWriter {
            file,
            metadata,
            columns: Columns::default(),
            names: Names::default(),
            room: group_rows(0),
            rows: 0,
            footed: 0,
            safe: 0,
        })
    }

    /// Takes events; writes a group whenever there are enough.
    ///
    /// # Errors
    /// Those of the file: what was written up to the last footer can be read.
    pub fn push(&mut self, events: &[Event], names: &Names) -> Result<(), ParquetError> {
        self.names.follow(names);
        for event in events {
            self.columns.push(event);
            if self.columns.at.len() >= self.room {
                self.flush()?;
            }
        }
        Ok(())
    }

    /// Rows that are not in the file yet.
    pub fn waiting(&self) -> usize {
        self.columns.at.len()
    }

    /// Rows that a reader finds whatever becomes of this writer.
    pub fn safe(&self) -> u64 {
        self.safe
    }

    /// Bytes of the file so far.
    pub fn bytes(&self) -> u64 {
        self.file.bytes_written() as u64
    }

    /// Writes a group of what there is, and a footer if that is worth it.
    ///
    /// # Errors
    /// As [`LogWriter::push`].
    pub fn flush(&mut self) -> Result<(), ParquetError> {
        if self.waiting() == 0 {
            return Ok(());
        }
        self.rows += self.waiting() as i64;
        let mut group = Group::new(&mut self.file)?;
        self.columns.write(&mut group, &self.names)?;
        group.close()?;
        self.columns.clear();
        let groups = self.file.flushed_row_groups().len() as u64;
        self.room = group_rows(groups as usize);
        match self.bytes() - self.footed >= BYTES_FOR_FOOTER * FOOTER_BYTES * groups {
            true => self.foot(),
            false => Ok(()),
        }
    }

    /// Writes a footer: from here on a reader finds all groups up to here, whatever becomes of this writer. Nothing, if
    /// there is one behind them already.
    ///
    /// # Errors
    /// As [`LogWriter::push`].
    pub fn foot(&mut self) -> Result<(), ParquetError> {
        if self.footed > 0 && self.safe == self.rows as u64 {
            return Ok(());
        }
        let groups = self.file.flushed_row_groups().to_vec();
        let descriptor = Arc::new(self.file.schema_descr().clone());
        let keys = Some(self.metadata.clone());
        let file = FileMetaData::new(1, self.rows, None, keys, descriptor, None);
        let metadata = ParquetMetaDataBuilder::new(file).set_row_groups(groups).build();
        let mut footer = Vec::new();
        ParquetMetaDataWriter::new(&mut footer, &metadata).finish()?;
        self.file.write_all(&footer)?;
        self.file.flush()?;
        (self.footed, self.safe) = (self.bytes(), self.rows as u64);
        Ok(())
    }

    /// Writes what there is and the last footer.
    ///
    /// # Errors
    /// As [`LogWriter::push`].
    pub fn finish(mut self) -> Result<W, ParquetError> {
        self.flush()?;
        self.file.into_inner()
    }
}

impl Columns {
    fn push(&mut self, event: &Event) {
        self.at.push(event.at as i64);
        self.kind.push(event.kind as u32);
        self.reason.push(event.reason.map_or(0, |reason| reason as u32 + 1));
        self.agent.push(event.agent.map_or(NONE, |agent| agent.0.into()));
        self.address.push(event.address as i64);
        self.bytes.push(event.bytes as i64);
        self.from.push(event.from.map_or(NONE, |memory| memory.0.into()));
        self.to.push(event.to.map_or(NONE, |memory| memory.0.into()));
        self.before.push(event.before.0 as i32);
        self.after.push(event.after.0 as i32);
        self.stopped.push(event.stopped.0 as i32);
        self.around.push(event.around as i64);
        self.number.push(event.number as i64);
        // No name is the last number: the first here.
        self.name.push(event.name.0.wrapping_add(1));
    }

    fn write<W: Write + Send>(
        &self,
        group: &mut Group<'_, W>,
        names: &Names,
    ) -> Result<(), ParquetError> {
        let reason = |number: u32| match number.checked_sub(1) {
            Some(reason) => Reason::ALL[reason as usize].name(),
            None => "",
        };
        group.column::<Int64Type>(&self.at, None)?;
        group.words(&self.kind, |kind| Kind::ALL[kind as usize].name())?;
        group.words(&self.reason, reason)?;
        group.column::<Int32Type>(&self.agent, None)?;
        group.column::<Int64Type>(&self.address, None)?;
        group.column::<Int64Type>(&self.bytes, None)?;
        for values in [&self.from, &self.to, &self.before, &self.after, &self.stopped] {
            group.column::<Int32Type>(values, None)?;
        }
        group.column::<Int64Type>(&self.around, None)?;
        group.column::<Int64Type>(&self.number, None)?;
        group.words(&self.name, |name| names.get(Name(name.wrapping_sub(1))))
    }

    fn clear(&mut self) {
        let Columns { at, kind, reason, agent, address, bytes, .. } = self;
        [at, address, bytes].into_iter().for_each(Vec::clear);
        let Columns { from, to, before, after, stopped, around, number, name, .. } = self;
        [kind, reason, name].into_iter().for_each(Vec::clear);
        [agent, from, to, before, after, stopped].into_iter().for_each(Vec::clear);
        [around, number].into_iter().for_each(Vec::clear);
    }
}

/// The event that says that others are missing.
pub(crate) fn dropped(at: u64, events: u64) -> Event {
    Event { number: events, ..Event::new(at, Kind::Dropped) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_room_for_a_long_log() {
        // More groups than Parquet's writer has numbers for (i16) are an error of it.
        let most: usize = (0..i16::MAX as usize).map(group_rows).sum();
        assert!(most as u64 > 1 << 32, "{most} rows");
        assert_eq!(group_rows(0), GROUP_ROWS);
    }
}
