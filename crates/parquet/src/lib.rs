//! Row groups of Parquet files whose pages have checksums.
//!
//! The Parquet library checks the checksum of a page when it reads one that has it (its feature `crc`), and writes none.
//! So every file of this repository is written through [`Group`], which puts one into the header of each page.
//!
//! What it does not cover: headers of pages, and footers. Parquet has no checksums for these.
#![forbid(unsafe_code)]

use std::io::Write;

use parquet::basic::Type;
use parquet::column::writer::{get_column_writer, get_typed_column_writer};
use parquet::data_type::DataType;
use parquet::errors::ParquetError;
use parquet::file::metadata::RowGroupMetaDataPtr;
use parquet::file::properties::WriterPropertiesPtr;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::types::ColumnDescPtr;
use zstd::bulk::Compressor;

mod pages;
mod words;

use pages::Pages;

/// What the system says, or else the library: for people, without the name of the kind of error.
pub fn said(error: &ParquetError) -> String {
    match error {
        ParquetError::External(source) => source.to_string(),
        other => other.to_string(),
    }
}

/// A row group that is being written, column by column in the order of the schema.
pub struct Group<'a, W: Write> {
    group: SerializedRowGroupWriter<'a, W>,
    properties: WriterPropertiesPtr,
    columns: std::vec::IntoIter<ColumnDescPtr>,
    /// For columns of words.
    compressor: Option<Compressor<'static>>,
}

impl<'a, W: Write + Send> Group<'a, W> {
    /// Begins the next row group of a file.
    ///
    /// # Errors
    /// Those of the Parquet library: a file has at most 32,767 groups.
    pub fn new(file: &'a mut SerializedFileWriter<W>) -> Result<Group<'a, W>, ParquetError> {
        let properties = file.properties().clone();
        let columns = file.schema_descr().columns().to_vec().into_iter();
        Ok(Group { group: file.next_row_group()?, properties, columns, compressor: None })
    }

    /// Writes the next column. A column that may have rows without a value takes `present`, 1 for each row that has
    /// one and 0 for the others.
    ///
    /// # Errors
    /// Those of the file and of the Parquet library; an error if the schema has no further column.
    ///
    /// # Panics
    /// If the column is of another type.
    pub fn column<T: DataType>(
        &mut self,
        values: &[T::T],
        present: Option<&[i16]>,
    ) -> Result<(), ParquetError> {
        let column = self.next()?;
        let mut chunk = Vec::new();
        let pages = Box::new(Pages::new(&mut chunk));
        let writer = get_column_writer(column, self.properties.clone(), pages);
        let mut writer = get_typed_column_writer::<T>(writer);
        writer.write_batch(values, present, None)?;
        let closed = writer.close()?;
        self.group.append_column(&bytes::Bytes::from(chunk), closed)
    }

    /// Writes the next column, of text, where each row is the number of its word. The numbers need not be those of a
    /// list without gaps, but there is memory for all up to the largest. Compressed by zstd, whatever the file has.
    ///
    /// # Errors
    /// As [`Group::column`]; an error if the column is not of text, or may have rows without a value.
    pub fn words<'w>(
        &mut self,
        rows: &[u32],
        word: impl Fn(u32) -> &'w str,
    ) -> Result<(), ParquetError> {
        let column = self.next()?;
        let text = column.physical_type() == Type::BYTE_ARRAY;
        if !text || column.max_def_level() > 0 || column.max_rep_level() > 0 {
            let name = column.path().string();
            return Err(ParquetError::General(format!("{name} is no column of words")));
        }
        let compressor = match &mut self.compressor {
            Some(compressor) => compressor,
            none => none.insert(words::compressor()?),
        };
        let (chunk, closed) = words::column(column, rows, word, compressor)?;
        self.group.append_column(&bytes::Bytes::from(chunk), closed)
    }

    fn next(&mut self) -> Result<ColumnDescPtr, ParquetError> {
        let missing = || ParquetError::General("the schema has a column less".to_owned());
        self.columns.next().ok_or_else(missing)
    }

    /// Ends the group.
    ///
    /// # Errors
    /// As [`Group::column`]; an error if columns are missing.
    pub fn close(self) -> Result<RowGroupMetaDataPtr, ParquetError> {
        self.group.close()
    }
}
