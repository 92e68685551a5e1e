//! Columns of numbers and words, as Parquet: what statistics and series over time are written as.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use farside_parquet::Group;
use parquet::basic::{Compression, ConvertedType, LogicalType, Repetition, Type as Physical};
use parquet::data_type::{ByteArray, ByteArrayType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::{Type, TypePtr};

use super::StatsError;

/// A column: one cell a row.
#[derive(Debug)]
pub enum Cells {
    /// UTF-8.
    Words(Vec<String>),
    /// 64 bits without sign.
    Numbers(Vec<u64>),
    /// The same where there is one.
    Known(Vec<Option<u64>>),
}

/// Writes columns of equal length, and what is to be kept beside them as keys and values.
///
/// # Errors
/// [`StatsError`]: the file cannot be written.
pub fn write_parquet(
    path: &Path,
    columns: &[(&str, Cells)],
    beside: Vec<(String, String)>,
) -> Result<(), StatsError> {
    let file = File::create(path).map_err(|source| StatsError::write(path, source))?;
    parquet(file, columns, beside)
        .map_err(|source| StatsError::Parquet { path: path.to_owned(), source })
}

fn parquet(
    file: File,
    columns: &[(&str, Cells)],
    beside: Vec<(String, String)>,
) -> Result<(), ParquetError> {
    let beside = beside.into_iter().map(|(key, value)| KeyValue::new(key, value)).collect();
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(Default::default()))
        .set_created_by(concat!("farside ", env!("CARGO_PKG_VERSION")).to_owned())
        .set_key_value_metadata(Some(beside))
        .build();
    let mut writer = SerializedFileWriter::new(file, schema(columns)?, Arc::new(properties))?;
    let mut group = Group::new(&mut writer)?;
    for (_, cells) in columns {
        match cells {
            Cells::Words(words) => {
                let words: Vec<ByteArray> = words.iter().map(|w| w.as_str().into()).collect();
                group.column::<ByteArrayType>(&words, None)?;
            }
            Cells::Numbers(numbers) => {
                let numbers: Vec<i64> = numbers.iter().map(|&n| n as i64).collect();
                group.column::<Int64Type>(&numbers, None)?;
            }
            Cells::Known(cells) => {
                let there: Vec<i16> = cells.iter().map(|it| i16::from(it.is_some())).collect();
                let numbers: Vec<i64> = cells.iter().flatten().map(|&n| n as i64).collect();
                group.column::<Int64Type>(&numbers, Some(&there))?;
            }
        }
    }
    group.close()?;
    writer.close()?;
    Ok(())
}

fn schema(columns: &[(&str, Cells)]) -> Result<TypePtr, ParquetError> {
    let field = |(name, cells): &(&str, Cells)| {
        let (physical, logical, converted) = match cells {
            Cells::Words(_) => (Physical::BYTE_ARRAY, LogicalType::String, ConvertedType::UTF8),
            Cells::Numbers(_) | Cells::Known(_) => {
                let unsigned = LogicalType::integer(64, false);
                (Physical::INT64, unsigned, ConvertedType::UINT_64)
            }
        };
        let repetition = match cells {
            Cells::Known(_) => Repetition::OPTIONAL,
            Cells::Words(_) | Cells::Numbers(_) => Repetition::REQUIRED,
        };
        let built = Type::primitive_type_builder(name, physical)
            .with_repetition(repetition)
            .with_logical_type(Some(logical))
            .with_converted_type(converted)
            .build();
        built.map(Arc::new)
    };
    let fields = columns.iter().map(field).collect::<Result<Vec<_>, _>>()?;
    Ok(Arc::new(Type::group_type_builder("farside").with_fields(fields).build()?))
}
