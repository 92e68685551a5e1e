//! A column of text whose words are known by numbers: a dictionary, and for each row which of its words.
//!
//! The library's writer takes text, and finds each row's word in its dictionary by hashing and comparing it: half of what it
//! took to write an event log. Who has numbers already needs neither. The pages are those that the library writes, and any
//! reader of Parquet reads them (`Encodings.md` of the format: dictionary encoding, and its hybrid of runs and packed bits).

use bytes::Bytes;
use parquet::basic::{Compression, Encoding, EncodingMask, PageType, ZstdLevel};
use parquet::column::page::{CompressedPage, Page, PageWriteSpec, PageWriter};
use parquet::column::writer::ColumnCloseResult;
use parquet::errors::ParquetError;
use parquet::file::metadata::{ColumnChunkMetaData, OffsetIndexBuilder, PageEncodingStats};
use parquet::schema::types::ColumnDescPtr;
use zstd::bulk::Compressor;

use crate::pages::Pages;

/// How hard pages are compressed: text in a dictionary has little left.
const LEVEL: i32 = 1;
/// Rows that are packed together.
const PACKED: usize = 8;
/// What a word is as long as no row has it.
const ABSENT: u32 = u32::MAX;

/// What compresses pages; to make one takes as long as to compress some.
pub(crate) fn compressor() -> Result<Compressor<'static>, ParquetError> {
    Ok(Compressor::new(LEVEL)?)
}

/// The bytes of a column, and what its group is told of them.
pub(crate) fn column<'w>(
    column: ColumnDescPtr,
    rows: &[u32],
    word: impl Fn(u32) -> &'w str,
    compressor: &mut Compressor<'_>,
) -> Result<(Vec<u8>, ColumnCloseResult), ParquetError> {
    let (words, rows_words) = dictionary(rows);
    let mut chunk = Vec::new();
    let mut pages = Pages::new(&mut chunk);
    let dictionary = pages.write_page(dictionary_page(&words, word, compressor)?)?;
    let data = pages.write_page(data_page(words.len(), &rows_words, compressor)?)?;
    let closed = closed(column, rows.len() as u64, &dictionary, &data)?;
    Ok((chunk, closed))
}

/// The words that there are, in the order of their first rows, and each row's place among them.
fn dictionary(rows: &[u32]) -> (Vec<u32>, Vec<u32>) {
    let most = rows.iter().max().map_or(0, |most| *most as usize + 1);
    let (mut places, mut words) = (vec![ABSENT; most], Vec::new());
    let place = |&row: &u32| {
        let place = &mut places[row as usize];
        if *place == ABSENT {
            *place = words.len() as u32;
            words.push(row);
        }
        *place
    };
    let rows = rows.iter().map(place).collect();
    (words, rows)
}

/// Its length, and the word itself.
fn dictionary_page<'w>(
    words: &[u32],
    word: impl Fn(u32) -> &'w str,
    compressor: &mut Compressor<'_>,
) -> Result<CompressedPage, ParquetError> {
    let mut plain = Vec::new();
    for word in words.iter().map(|&number| word(number)) {
        plain.extend((word.len() as u32).to_le_bytes());
        plain.extend(word.as_bytes());
    }
    let num_values = words.len() as u32;
    let page =
        |buf| Page::DictionaryPage { buf, num_values, encoding: Encoding::PLAIN, is_sorted: false };
    compressed(&plain, page, compressor)
}

/// How many bits a place takes, and all places.
fn data_page(
    words: usize,
    rows: &[u32],
    compressor: &mut Compressor<'_>,
) -> Result<CompressedPage, ParquetError> {
    let bits = bits_of(words);
    let mut plain = vec![bits as u8];
    places(rows, bits, &mut plain);
    let page = |buf| Page::DataPage {
        buf,
        num_values: rows.len() as u32,
        encoding: Encoding::RLE_DICTIONARY,
        def_level_encoding: Encoding::RLE,
        rep_level_encoding: Encoding::RLE,
        statistics: None,
    };
    compressed(&plain, page, compressor)
}

fn compressed(
    plain: &[u8],
    page: impl FnOnce(Bytes) -> Page,
    compressor: &mut Compressor<'_>,
) -> Result<CompressedPage, ParquetError> {
    let bytes = compressor.compress(plain)?;
    Ok(CompressedPage::new(page(Bytes::from(bytes)), plain.len()))
}

/// Bits of a place among so many; at least one, as some readers know no fewer.
fn bits_of(words: usize) -> u32 {
    usize::BITS - words.saturating_sub(1).max(1).leading_zeros()
}

/// Places as runs of the same, where there are at least as many as are packed together, and as packed bits.
fn places(rows: &[u32], bits: u32, into: &mut Vec<u8>) {
    let is_run =
        |rows: &[u32]| rows.len() >= PACKED && rows[..PACKED].iter().all(|it| *it == rows[0]);
    let mut left = rows;
    while !left.is_empty() {
        if is_run(left) {
            let run = left.iter().take_while(|it| **it == left[0]).count();
            push_count((run as u64) << 1, into);
            into.extend(&left[0].to_le_bytes()[..bits.div_ceil(8) as usize]);
            left = &left[run..];
        } else {
            let groups = left.chunks(PACKED).take_while(|group| !is_run(group)).count();
            push_count((groups as u64) << 1 | 1, into);
            let (packed, behind) = left.split_at(left.len().min(groups * PACKED));
            packed.chunks(PACKED).for_each(|group| pack(group, bits, into));
            left = behind;
        }
    }
}

/// As many bytes as a place has bits, from the lowest bit on; what is missing of a group is zeros.
fn pack(group: &[u32], bits: u32, into: &mut Vec<u8>) {
    let (mut kept, mut held) = (0u64, 0);
    let all = group.iter().copied().chain(std::iter::repeat_n(0, PACKED - group.len()));
    for place in all {
        kept |= u64::from(place) << held;
        held += bits;
        while held >= 8 {
            into.push(kept as u8);
            kept >>= 8;
            held -= 8;
        }
    }
}

/// A number, 7 bits a byte from the lowest on.
fn push_count(mut left: u64, into: &mut Vec<u8>) {
    while left >= 0x80 {
        into.push(left as u8 | 0x80);
        left >>= 7;
    }
    into.push(left as u8);
}

/// What the library's writer would say of such a column.
fn closed(
    column: ColumnDescPtr,
    rows: u64,
    dictionary: &PageWriteSpec,
    data: &PageWriteSpec,
) -> Result<ColumnCloseResult, ParquetError> {
    let level = ZstdLevel::try_new(LEVEL)?;
    let encodings = [Encoding::PLAIN, Encoding::RLE, Encoding::RLE_DICTIONARY];
    let page = |page_type, encoding| PageEncodingStats { page_type, encoding, count: 1 };
    let pages = vec![
        page(PageType::DICTIONARY_PAGE, Encoding::PLAIN),
        page(PageType::DATA_PAGE, Encoding::RLE_DICTIONARY),
    ];
    let bytes = |of: fn(&PageWriteSpec) -> usize| (of(dictionary) + of(data)) as i64;
    let metadata = ColumnChunkMetaData::builder(column)
        .set_compression(Compression::ZSTD(level))
        .set_encodings_mask(EncodingMask::new_from_encodings(encodings.iter()))
        .set_page_encoding_stats(pages)
        .set_total_compressed_size(bytes(|page| page.compressed_size))
        .set_total_uncompressed_size(bytes(|page| page.uncompressed_size))
        .set_num_values(rows as i64)
        .set_dictionary_page_offset(Some(dictionary.offset as i64))
        .set_data_page_offset(data.offset as i64)
        .build()?;
    // The file has none if it is not to have them.
    let mut offsets = OffsetIndexBuilder::new();
    offsets.append_offset_and_size(data.offset as i64, data.compressed_size as i32);
    offsets.append_row_count(rows as i64);
    Ok(ColumnCloseResult {
        bytes_written: dictionary.bytes_written + data.bytes_written,
        rows_written: rows,
        metadata,
        bloom_filter: None,
        column_index: None,
        offset_index: Some(offsets.build()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(rows: &[u32], words: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        places(rows, bits_of(words), &mut bytes);
        bytes
    }

    #[test]
    fn places_are_runs_and_packed_bits_as_the_format_has_them() {
        // The example of `Encodings.md`: 0 to 7 in three bits.
        assert_eq!(encoded(&[0, 1, 2, 3, 4, 5, 6, 7], 8), [0x03, 0x88, 0xc6, 0xfa]);
        assert_eq!(encoded(&[5; 100], 8), [0xc8, 0x01, 5], "a hundred, twice, in 7 bits a byte");
        assert_eq!(encoded(&[300; 8], 301), [0x10, 0x2c, 0x01], "a place of two bytes");
        assert_eq!(encoded(&[1, 0, 1], 2), [0x03, 0b101], "a group that is not full");
        let mut rows = vec![1, 0, 0, 0, 0, 0, 0, 0];
        rows.extend([0; 9]);
        assert_eq!(encoded(&rows, 2), [0x03, 1, 0x12, 0], "packed, and then a run");
        assert_eq!(encoded(&[], 1), [0u8; 0]);
    }

    #[test]
    fn a_place_has_as_many_bits_as_the_largest_takes() {
        let bits = [0, 1, 2, 3, 4, 5, 256, 257].map(bits_of);
        assert_eq!(bits, [1, 1, 1, 2, 2, 3, 8, 9]);
    }

    #[test]
    fn a_dictionary_has_the_words_that_rows_have_and_no_others() {
        assert_eq!(dictionary(&[7, 3, 7, 0]), (vec![7, 3, 0], vec![0, 1, 0, 2]));
        assert_eq!(dictionary(&[]), (vec![], vec![]));
    }
}
