//! Files of other tools that were compressed: gzip is read, others are named.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};

use flate2::bufread::MultiGzDecoder;

const GZIP: &[u8] = &[0x1f, 0x8b];

/// Why what is compressed cannot be read on.
pub(super) const DAMAGED: &str =
    "what begins there cannot be decompressed; it is cut off or damaged";

/// What is said besides of something wrong in what was decompressed: that it is damaged shows at its end only.
pub(super) const PERHAPS_DAMAGED: &str =
    "; the file is compressed, and gzip -t says whether it is damaged";

/// Whether a file that begins so is compressed with gzip.
pub(super) fn is_it(head: &[u8]) -> bool {
    head.starts_with(GZIP)
}

/// A file from its beginning, decompressed, and whether that was needed.
pub(super) fn open(file: File) -> std::io::Result<(Box<dyn BufRead>, bool)> {
    let mut file = BufReader::with_capacity(1 << 16, file);
    let is_compressed = is_it(file.fill_buf()?);
    Ok(match is_compressed {
        true => (Box::new(BufReader::with_capacity(1 << 16, MultiGzDecoder::new(file))), true),
        false => (Box::new(file), false),
    })
}

/// The first bytes of a file as they are decompressed, of which `head` are the first that it has; these if they cannot be.
pub(in crate::trace) fn head(head: Vec<u8>) -> Vec<u8> {
    if !is_it(&head) {
        return head;
    }
    let mut text = Vec::with_capacity(head.len());
    // It ends with an error, as not all of the file is here.
    let _ = MultiGzDecoder::new(&head[..]).take(head.len() as u64).read_to_end(&mut text);
    if text.is_empty() { head } else { text }
}

/// What to do with a file that is packed or written in a way that is not read.
pub(super) fn advice(head: &[u8]) -> Option<&'static str> {
    let known: [(&[u8], &str); 4] = [
        (
            b"\xfd7zXZ\0",
            "it is compressed with xz, which is not read: decompress it first (xz -dk)",
        ),
        (b"BZh", "it is compressed with bzip2, which is not read: decompress it first (bzip2 -dk)"),
        (
            b"PK\x03\x04",
            "it is a zip file, which is not read; if DynamoRIO wrote it, give what its view tool makes of it: drrun -t \
             drmemtrace -tool view -indir FOLDER 2> FILE",
        ),
        (
            b"\xff\xfe",
            "it is text in UTF-16, which is not read: write it in UTF-8 (iconv -f UTF-16 -t UTF-8)",
        ),
    ];
    known.into_iter().find(|(magic, _)| head.starts_with(magic)).map(|(_, advice)| advice)
}
