//! Files of other tools that were compressed: gzip is read, others are named.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};

use flate2::bufread::MultiGzDecoder;

const GZIP: &[u8] = &[0x1f, 0x8b];

/// Why what is compressed cannot be read on.
pub(super) const DAMAGED: &str =
    "what begins there cannot be decompressed; it is cut off or damaged";

/// A file from its beginning, decompressed, and whether that was needed.
pub(super) fn open(file: File) -> std::io::Result<(Box<dyn BufRead>, bool)> {
    let mut file = BufReader::with_capacity(1 << 16, file);
    let is_compressed = file.fill_buf()?.starts_with(GZIP);
    Ok(match is_compressed {
        true => (Box::new(BufReader::with_capacity(1 << 16, MultiGzDecoder::new(file))), true),
        false => (Box::new(file), false),
    })
}

/// The first bytes of a file as they are decompressed, of which `head` are the first that it has; these if they cannot be.
pub(in crate::trace) fn head(head: Vec<u8>) -> Vec<u8> {
    if !head.starts_with(GZIP) {
        return head;
    }
    let mut text = Vec::with_capacity(head.len());
    // It ends with an error, as not all of the file is here.
    let _ = MultiGzDecoder::new(&head[..]).take(head.len() as u64).read_to_end(&mut text);
    if text.is_empty() { head } else { text }
}

/// What to do with a file that is compressed in a way that is not read.
pub(super) fn advice(head: &[u8]) -> Option<&'static str> {
    let known: [(&[u8], &str); 2] = [
        (
            b"\xfd7zXZ\0",
            "it is compressed with xz, which is not read: decompress it first (xz -dk)",
        ),
        (b"BZh", "it is compressed with bzip2, which is not read: decompress it first (bzip2 -dk)"),
    ];
    known.into_iter().find(|(magic, _)| head.starts_with(magic)).map(|(_, advice)| advice)
}
