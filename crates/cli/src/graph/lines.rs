//! Text, line by line, with a bound on a line's length, line numbers for errors, and progress.

use std::io::{BufRead, ErrorKind};

use super::GraphError;
use super::error::excerpt;

/// Told, now and then, how many bytes of how many have been read. The total may be an estimate, or
/// 0 where nobody knows it; the bytes read may then exceed it.
pub type Progress<'a> = &'a mut dyn FnMut(u64, u64);

/// Longest line that is looked at, in bytes. The longest in Debian's index is about 70 KB.
pub const LINE_BYTES_MAX: usize = 1 << 20;

/// Progress is reported each time this many bytes have been read.
const REPORT_BYTES: u64 = 1 << 20;

const UTF8_BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// What one step of [`LineReader::read`] found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Read {
    /// A line; the buffer holds it, without its end.
    Line,
    /// A line longer than [`LINE_BYTES_MAX`]; the buffer holds its beginning, the rest is skipped.
    TooLong,
    /// The input is at its end.
    End,
}

/// Reads lines from anything buffered.
pub(super) struct LineReader<'a, R> {
    reader: R,
    name: &'a str,
    number: u64,
    bytes_done: u64,
    bytes_reported: u64,
    bytes_total: u64,
    progress: Progress<'a>,
}

impl<'a, R: BufRead> LineReader<'a, R> {
    pub(super) fn new(
        name: &'a str,
        reader: R,
        bytes_total: u64,
        progress: Progress<'a>,
    ) -> LineReader<'a, R> {
        LineReader {
            reader,
            name,
            number: 0,
            bytes_done: 0,
            bytes_reported: 0,
            bytes_total,
            progress,
        }
    }

    /// Reads the next line into `line`, whose old contents go.
    pub(super) fn read(&mut self, line: &mut Vec<u8>) -> Result<Read, GraphError> {
        line.clear();
        let (mut bytes, mut ended, mut fits) = (0u64, false, true);
        while !ended {
            let chunk = match self.reader.fill_buf() {
                Ok(chunk) => chunk,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(source) => {
                    let name = self.name.to_owned();
                    return Err(GraphError::Read { name, source });
                }
            };
            if chunk.is_empty() {
                break;
            }
            let newline = chunk.iter().position(|&byte| byte == b'\n');
            let content = &chunk[..newline.unwrap_or(chunk.len())];
            let room = LINE_BYTES_MAX - line.len();
            fits &= content.len() <= room;
            line.extend_from_slice(&content[..content.len().min(room)]);
            ended = newline.is_some();
            let used = content.len() + usize::from(ended);
            self.reader.consume(used);
            bytes += used as u64;
        }
        self.count(bytes);
        if bytes == 0 {
            return Ok(Read::End);
        }
        self.number += 1;
        if self.number == 1 && line.starts_with(UTF8_BYTE_ORDER_MARK) {
            line.drain(..UTF8_BYTE_ORDER_MARK.len());
        }
        if line.last() == Some(&b'\r') {
            line.pop();
        }
        Ok(if fits { Read::Line } else { Read::TooLong })
    }

    /// Like [`read`](Self::read), for formats in which a line that is too long is an error.
    /// False at the end.
    pub(super) fn read_strict(&mut self, line: &mut Vec<u8>) -> Result<bool, GraphError> {
        match self.read(line)? {
            Read::Line => Ok(true),
            Read::End => Ok(false),
            Read::TooLong => {
                Err(self.error(format!("at most {LINE_BYTES_MAX} bytes in a line"), line))
            }
        }
    }

    /// An error at the current line, which has `found` where `expected` should be.
    pub(super) fn error(&self, expected: impl Into<String>, found: &[u8]) -> GraphError {
        self.error_described(expected, excerpt(found))
    }

    /// An error at the current line; `found` is a description rather than a part of the input.
    pub(super) fn error_described(
        &self,
        expected: impl Into<String>,
        found: impl Into<String>,
    ) -> GraphError {
        GraphError::Line {
            name: self.name.to_owned(),
            line: self.number,
            expected: expected.into(),
            found: found.into(),
        }
    }

    /// The input, as the user named it.
    pub(super) fn name(&self) -> String {
        self.name.to_owned()
    }

    fn count(&mut self, bytes: u64) {
        self.bytes_done += bytes;
        let unreported = self.bytes_done - self.bytes_reported;
        if unreported >= REPORT_BYTES || (bytes == 0 && unreported > 0) {
            self.bytes_reported = self.bytes_done;
            (self.progress)(self.bytes_done, self.bytes_total);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &[u8]) -> Vec<(Read, Vec<u8>)> {
        let mut ignore = |_, _| {};
        let mut reader = LineReader::new("t", text, 0, &mut ignore);
        let (mut line, mut all) = (Vec::new(), Vec::new());
        loop {
            match reader.read(&mut line).expect("memory can be read") {
                Read::End => return all,
                found => all.push((found, line.clone())),
            }
        }
    }

    #[test]
    fn line_ends_and_byte_order_marks_are_removed() {
        let all = lines(b"\xef\xbb\xbfa\r\n\n b\r\nlast");
        let texts: Vec<&[u8]> = all.iter().map(|(_, text)| text.as_slice()).collect();
        assert_eq!(texts, [&b"a"[..], b"", b" b", b"last"]);
        assert!(lines(b"").is_empty());
    }

    #[test]
    fn a_line_is_bounded_and_the_next_one_is_found() {
        let mut text = vec![b'x'; LINE_BYTES_MAX + 5];
        text.extend_from_slice(b"\nnext\n");
        let all = lines(&text);
        assert_eq!(all.len(), 2);
        assert_eq!(all[0].0, Read::TooLong);
        assert_eq!(all[0].1.len(), LINE_BYTES_MAX);
        assert_eq!(all[1], (Read::Line, b"next".to_vec()));
        let fitting = vec![b'x'; LINE_BYTES_MAX];
        assert_eq!(lines(&fitting)[0].0, Read::Line);
    }

    #[test]
    fn progress_rises_to_the_number_of_bytes() {
        let text = b"0123456789\n".repeat(400_000);
        let mut seen = Vec::new();
        let mut note = |done, total| seen.push((done, total));
        let mut reader = LineReader::new("t", &text[..], text.len() as u64, &mut note);
        let mut line = Vec::new();
        while reader.read(&mut line).expect("memory can be read") != Read::End {}
        assert!(seen.len() >= 4, "{seen:?}");
        assert!(seen.windows(2).all(|pair| pair[0].0 < pair[1].0));
        assert_eq!(seen.last(), Some(&(text.len() as u64, text.len() as u64)));
    }
}
