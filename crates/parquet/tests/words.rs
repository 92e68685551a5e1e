//! A column of words by numbers is read as what was written, beside a column that the library writes.

use std::sync::Arc;

use bytes::Bytes;
use farside_parquet::Group;
use parquet::basic::{Compression, ZstdLevel};
use parquet::data_type::{ByteArrayType, Int64Type};
use parquet::file::properties::WriterProperties;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::file::writer::SerializedFileWriter;
use parquet::record::RowAccessor;
use parquet::schema::parser::parse_message_type;
use proptest::prelude::*;

const SCHEMA: &str = "message all {
    required byte_array word (UTF8);
    required byte_array same (UTF8);
    required int64 number;
}";

/// Words of 0 to 6 bytes, in which numbers are told apart.
fn words(most: u32) -> Vec<String> {
    let word = |number: u32| if number == 0 { String::new() } else { format!("w{number}") };
    (0..=most).map(word).collect()
}

fn file(rows: &[u32], words: &[String]) -> Vec<u8> {
    let schema = Arc::new(parse_message_type(SCHEMA).expect("well formed"));
    let level = ZstdLevel::try_new(1).expect("a level");
    let properties = WriterProperties::builder().set_compression(Compression::ZSTD(level)).build();
    let mut bytes = Vec::new();
    let mut writer = SerializedFileWriter::new(&mut bytes, schema, Arc::new(properties)).unwrap();
    let mut group = Group::new(&mut writer).unwrap();
    let same: Vec<_> = rows.iter().map(|&row| words[row as usize].as_str().into()).collect();
    let numbers: Vec<_> = rows.iter().map(|&row| i64::from(row)).collect();
    group.words(rows, |number| &words[number as usize]).unwrap();
    group.column::<ByteArrayType>(&same, None).unwrap();
    group.column::<Int64Type>(&numbers, None).unwrap();
    group.close().unwrap();
    writer.close().unwrap();
    bytes
}

fn check(rows: &[u32], words: &[String]) {
    let reader = SerializedFileReader::new(Bytes::from(file(rows, words))).unwrap();
    let mut found = 0;
    for (row, &number) in reader.get_row_iter(None).unwrap().zip(rows) {
        let row = row.unwrap();
        let word = &words[number as usize];
        assert_eq!((row.get_string(0).unwrap(), row.get_string(1).unwrap()), (word, word));
        found += 1;
    }
    assert_eq!(found, rows.len());
    let columns = reader.metadata().row_group(0).columns();
    assert_eq!(columns[0].num_values(), columns[1].num_values());
    assert_eq!(columns[0].compression(), columns[1].compression());
}

#[test]
fn a_group_of_a_log_is_read_as_it_was_written() {
    for most in [0, 1, 2, 40, 70_000] {
        let words = words(most);
        let rows: Vec<u32> =
            (0..1 << 14).map(|row: u32| row.wrapping_mul(40_503) % (most + 1)).collect();
        check(&rows, &words);
        check(&[most; 1 << 14], &words);
    }
}

#[test]
fn what_is_no_column_of_words_is_refused() {
    let schema = "message all { required int64 number; optional byte_array word (UTF8); }";
    let schema = Arc::new(parse_message_type(schema).expect("well formed"));
    let mut bytes = Vec::new();
    let mut writer = SerializedFileWriter::new(&mut bytes, schema, Default::default()).unwrap();
    let mut group = Group::new(&mut writer).unwrap();
    let mut refused = |why: &str| {
        let error = group.words(&[0], |_| "word").unwrap_err();
        assert!(error.to_string().contains(why), "{error}");
    };
    refused("number is no column of words");
    refused("word is no column of words");
    refused("the schema has a column less");
}

proptest! {
    #[test]
    fn any_rows_are_read_as_they_were_written(
        rows in prop::collection::vec((0u32..300, 1usize..40), 1..60),
        most in 1u32..300,
    ) {
        let run = |(number, count): &(u32, usize)| std::iter::repeat_n(number % (most + 1), *count);
        let rows: Vec<u32> = rows.iter().flat_map(run).collect();
        check(&rows, &words(most));
    }
}

#[test]
fn words_may_be_empty_or_have_any_letters() {
    check(&[2, 0, 1, 1, 0], &["", "é ✓", "a\"b\n"].map(str::to_owned));
}
