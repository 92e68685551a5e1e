//! Text, line by line, with a limit to what a line may have; compressed with gzip or not.

use std::borrow::Cow;
use std::fs::File;
use std::io::{BufRead, Read};
use std::path::{Path, PathBuf};

use super::packed;
use crate::TraceError;

/// Longest line: names of kernels in C++ are long.
const LINE_MAX: u64 = 1 << 16;

/// A text that is being read.
pub(super) struct Lines {
    path: PathBuf,
    text: Box<dyn BufRead>,
    is_compressed: bool,
    line: Vec<u8>,
    number: u64,
    /// A last line that does not end was cut.
    whole: bool,
}

impl Lines {
    /// From the beginning of a file whose tool ends every line.
    pub(super) fn open(path: &Path) -> Result<Lines, TraceError> {
        let unreadable = |source| TraceError::Read { path: path.to_owned(), source };
        let file = File::open(path).map_err(unreadable)?;
        let (text, is_compressed) = packed::open(file).map_err(unreadable)?;
        let (path, line) = (path.to_owned(), Vec::new());
        Ok(Lines { path, text, is_compressed, line, number: 0, whole: true })
    }

    /// The last line need not end: people write such files too.
    pub(super) fn by_people(mut self) -> Lines {
        self.whole = false;
        self
    }

    /// Goes to the next line; false at the end.
    pub(super) fn go_on(&mut self) -> Result<bool, TraceError> {
        self.line.clear();
        self.number += 1;
        let mut limited = (&mut self.text).take(LINE_MAX);
        let read = limited.read_until(b'\n', &mut self.line);
        if let Err(source) = read {
            return Err(match self.is_compressed {
                true => self.error(format!("{} ({source})", packed::DAMAGED).into()),
                false => TraceError::Read { path: self.path.clone(), source },
            });
        }
        let (ends, full) = (self.line.ends_with(b"\n"), self.line.len() as u64 == LINE_MAX);
        if full && !ends {
            return Err(self.wrong("it has more than 65536 bytes"));
        }
        if !self.line.is_empty() && !ends && self.whole {
            return Err(self.wrong("the file ends within it; it is cut off"));
        }
        if self.line.contains(&0) {
            return Err(self.wrong("it has a zero byte; this is no text"));
        }
        Ok(!self.line.is_empty())
    }

    /// The line, without its end.
    pub(super) fn bytes(&self) -> &[u8] {
        self.line.trim_ascii_end()
    }

    /// The line as text.
    pub(super) fn text(&self) -> Result<&str, TraceError> {
        std::str::from_utf8(self.bytes()).map_err(|_| self.wrong("it is not UTF-8"))
    }

    /// An error about this line.
    pub(super) fn wrong(&self, why: impl Into<Cow<'static, str>>) -> TraceError {
        let why = why.into();
        let is_last = !self.line.is_empty() && !self.line.ends_with(b"\n");
        self.error(match (self.whole, self.is_compressed) {
            (false, _) if is_last => {
                format!("{why}; the file ends within this line: is it cut off?").into()
            }
            (_, true) => format!("{why}{}", packed::PERHAPS_DAMAGED).into(),
            (_, false) => why,
        })
    }

    fn error(&self, why: Cow<'static, str>) -> TraceError {
        TraceError::Text { path: self.path.clone(), line: self.number, why }
    }

    /// An error about the file's end.
    pub(super) fn ends(&self, why: impl Into<Cow<'static, str>>) -> TraceError {
        TraceError::Text { path: self.path.clone(), line: self.number - 1, why: why.into() }
    }
}
