//! Each page has a checksum, which is what Parquet says, and a bit that flips in one is seen.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use farside_parquet::Group;
use parquet::basic::{Compression, ZstdLevel};
use parquet::data_type::{ByteArray, ByteArrayType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::{WriterProperties, WriterVersion};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;

const SCHEMA: &str = "message all {
    required byte_array word (UTF8);
    required int64 number;
    optional int32 some;
}";
const ROWS: usize = 300;

fn zstd() -> Compression {
    Compression::ZSTD(ZstdLevel::try_new(1).expect("a level"))
}

/// A file of two groups; its words are written as text, or by their numbers.
fn file(compression: Compression, version: WriterVersion, by_number: bool) -> Vec<u8> {
    let schema = Arc::new(parse_message_type(SCHEMA).expect("well formed"));
    let properties = WriterProperties::builder()
        .set_compression(compression)
        .set_writer_version(version)
        .build();
    let mut bytes = Vec::new();
    let mut writer = SerializedFileWriter::new(&mut bytes, schema, Arc::new(properties)).unwrap();
    for group in 0..2 {
        let word = |number: u32| ["a", "bb", "ccc"][number as usize];
        let places: Vec<_> = (0..ROWS as u32).map(|row| row % 3).collect();
        let words: Vec<_> = places.iter().map(|&place| ByteArray::from(word(place))).collect();
        let numbers: Vec<_> = (0..ROWS as i64).map(|row| row * row + group).collect();
        let present: Vec<_> = (0..ROWS).map(|row| i16::from(row % 5 == 0)).collect();
        let some: Vec<_> = (0..ROWS as i32).filter(|row| row % 5 == 0).collect();
        let mut group = Group::new(&mut writer).unwrap();
        match by_number {
            true => group.words(&places, word).unwrap(),
            false => group.column::<ByteArrayType>(&words, None).unwrap(),
        }
        group.column::<Int64Type>(&numbers, None).unwrap();
        group.column::<Int32Type>(&some, Some(&present)).unwrap();
        group.close().unwrap();
    }
    writer.close().unwrap();
    bytes
}

/// All rows, as text.
fn rows(file: &[u8]) -> Result<Vec<String>, ParquetError> {
    let reader = SerializedFileReader::new(Bytes::copy_from_slice(file))?;
    reader.get_row_iter(None)?.map(|row| row.map(|row| row.to_string())).collect()
}

/// Where the pages of a file are, by its footer: a dictionary, if there is one, and one page behind it in each column.
fn pages(file: &[u8]) -> Vec<Range<usize>> {
    let reader = SerializedFileReader::new(Bytes::copy_from_slice(file)).unwrap();
    let mut pages = Vec::new();
    for column in reader.metadata().row_groups().iter().flat_map(|group| group.columns()) {
        let (start, bytes) = column.byte_range();
        let data = column.data_page_offset() as usize;
        let whole = start as usize..(start + bytes) as usize;
        pages.extend([whole.start..data, data..whole.end].into_iter().filter(|it| !it.is_empty()));
    }
    pages
}

/// The checksum in the header of a page, and its bytes behind the header.
fn checksum(page: &[u8]) -> (u32, &[u8]) {
    let (mut at, mut numbers) = (0, Vec::new());
    while page[at] == 0x15 {
        let (mut number, mut shift) = (0_u64, 0);
        loop {
            at += 1;
            number |= u64::from(page[at] & 0x7f) << shift;
            shift += 7;
            if page[at] & 0x80 == 0 {
                break;
            }
        }
        at += 1;
        numbers.push((number >> 1) as i64 ^ -((number & 1) as i64));
    }
    // Type, bytes uncompressed, bytes compressed, checksum.
    assert_eq!(numbers.len(), 4, "{page:x?}");
    (numbers[3] as u32, &page[page.len() - numbers[2] as usize..])
}

fn kinds() -> Vec<Vec<u8>> {
    let versions = [WriterVersion::PARQUET_1_0, WriterVersion::PARQUET_2_0];
    let both = |version| [zstd(), Compression::UNCOMPRESSED].map(|it| file(it, version, false));
    let by_number = file(zstd(), WriterVersion::PARQUET_1_0, true);
    versions.into_iter().flat_map(both).chain([by_number]).collect()
}

#[test]
fn what_is_written_is_read() {
    for file in kinds() {
        let rows = rows(&file).expect("it can be read");
        assert_eq!(rows.len(), 2 * ROWS);
        assert_eq!(rows[5], r#"{word: "ccc", number: 25, some: 5}"#);
        assert_eq!(rows[ROWS + 1], r#"{word: "bb", number: 2, some: null}"#);
    }
}

#[test]
fn each_page_has_the_checksum_of_its_bytes_behind_the_header() {
    for file in kinds() {
        let pages = pages(&file);
        assert!(pages.len() >= 2 * 4, "{pages:?}");
        for page in pages {
            let (sum, bytes) = checksum(&file[page.clone()]);
            assert_eq!(sum, crc32fast::hash(bytes), "{page:?}");
        }
    }
}

#[test]
fn a_bit_that_flips_in_a_page_is_an_error() {
    for mut file in kinds() {
        for page in pages(&file) {
            let bytes = checksum(&file[page.clone()]).1.len();
            // All of them take half a minute.
            for at in (page.end - bytes..page.end).step_by(11) {
                let bit = 1 << (at % 8);
                file[at] ^= bit;
                let error = rows(&file).expect_err("a bit is another").to_string();
                assert!(error.contains("checksum"), "byte {at}: {error}");
                file[at] ^= bit;
            }
        }
    }
}

#[test]
fn columns_that_the_schema_does_not_have_are_refused() {
    let schema = Arc::new(parse_message_type("message one { required int64 a; }").unwrap());
    let mut bytes = Vec::new();
    let mut writer = SerializedFileWriter::new(&mut bytes, schema, Default::default()).unwrap();
    let mut group = Group::new(&mut writer).unwrap();
    group.column::<Int64Type>(&[1], None).unwrap();
    assert!(group.column::<Int64Type>(&[1], None).is_err());
}
