//! Pages with their checksums, one behind the other as they are in a column of a file.

use parquet::column::page::{CompressedPage, PageWriteSpec, PageWriter};
use parquet::errors::ParquetError;
use parquet::file::writer::{SerializedPageWriter, TrackedWrite};

/// How Thrift's compact protocol begins a field of 32 bits whose number is one more than that of the field before.
const NEXT_I32: u8 = 0x15;
/// One in the part of a field's first byte that says how much larger its number is than that of the field before.
const ONE_FURTHER: u8 = 0x10;
/// Fields of a page's header that come before its checksum: its type, its bytes uncompressed and compressed.
const FIELDS_BEFORE: usize = 3;

/// Writes pages into a buffer.
pub(crate) struct Pages<'a> {
    chunk: &'a mut Vec<u8>,
}

impl<'a> Pages<'a> {
    pub(crate) fn new(chunk: &'a mut Vec<u8>) -> Pages<'a> {
        Pages { chunk }
    }
}

impl PageWriter for Pages<'_> {
    fn write_page(&mut self, page: CompressedPage) -> Result<PageWriteSpec, ParquetError> {
        let (bytes, sum) = (page.data().len(), crc32fast::hash(page.data()));
        let mut plain = TrackedWrite::new(Vec::new());
        let spec = SerializedPageWriter::new(&mut plain).write_page(page)?;
        let plain = plain.into_inner()?;
        let (header, data) = plain.split_at(plain.len() - bytes);
        let unknown = || ParquetError::General("the header of a page is another".to_owned());
        let header_now = with_checksum(header, sum).ok_or_else(unknown)?;
        let (offset, grown) = (self.chunk.len() as u64, header_now.len() - header.len());
        self.chunk.extend(header_now);
        self.chunk.extend(data);
        Ok(PageWriteSpec {
            offset,
            uncompressed_size: spec.uncompressed_size + grown,
            compressed_size: spec.compressed_size + grown,
            bytes_written: spec.bytes_written + grown as u64,
            ..spec
        })
    }

    fn close(&mut self) -> Result<(), ParquetError> {
        Ok(())
    }
}

/// A page's header with its checksum (field 4, `crc`), which it does not have yet. Nothing if it does not begin as a header
/// does (`PageHeader` of `parquet.thrift`, in the compact protocol).
fn with_checksum(header: &[u8], sum: u32) -> Option<Vec<u8>> {
    let mut at = 0;
    for _ in 0..FIELDS_BEFORE {
        if *header.get(at)? != NEXT_I32 {
            return None;
        }
        // A number ends with its first byte below 0x80.
        at += 2 + header[at + 1..].iter().position(|byte| byte & 0x80 == 0)?;
    }
    // The field behind comes one closer to the field before it.
    let behind = header.get(at)?.checked_sub(ONE_FURTHER).filter(|it| *it >= ONE_FURTHER)?;
    let mut with = header[..at].to_vec();
    with.push(NEXT_I32);
    push_signed(sum as i32, &mut with);
    with.push(behind);
    with.extend(&header[at + 1..]);
    Some(with)
}

/// A number of 32 bits in the compact protocol: the sign last, 7 bits a byte from the lowest on.
fn push_signed(number: i32, into: &mut Vec<u8>) {
    let mut left = ((number << 1) ^ (number >> 31)) as u32;
    while left >= 0x80 {
        into.push(left as u8 | 0x80);
        left >>= 7;
    }
    into.push(left as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checksum_comes_between_the_third_field_and_what_follows() {
        // A data page (0) of 300 bytes, 5 compressed; then field 5, a struct that ends at once, and the end.
        let header = [0x15, 0, 0x15, 0xd8, 0x04, 0x15, 10, 0x2c, 0, 0];
        let with = with_checksum(&header, 1).expect("it is a header");
        assert_eq!(with, [0x15, 0, 0x15, 0xd8, 0x04, 0x15, 10, 0x15, 2, 0x1c, 0, 0]);
        let largest = with_checksum(&header, u32::MAX).expect("it is a header");
        assert_eq!(largest[7..10], [0x15, 1, 0x1c], "-1, as a signed number");
        let lowest = with_checksum(&header, 1 << 31).expect("it is a header");
        assert_eq!(lowest[7..14], [0x15, 0xff, 0xff, 0xff, 0xff, 0x0f, 0x1c]);
    }

    #[test]
    fn what_is_no_header_without_a_checksum_gets_none() {
        let has_one = [0x15, 0, 0x15, 2, 0x15, 2, 0x15, 2, 0x1c, 0, 0];
        let cut = [0x15, 0, 0x15, 0x80];
        let other = [0x15, 0, 0x18, 2, 0x15, 2, 0x2c, 0, 0];
        for header in [&has_one[..], &cut, &cut[..2], &other, &[]] {
            assert_eq!(with_checksum(header, 7), None, "{header:x?}");
        }
    }
}
