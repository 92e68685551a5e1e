//! From any format into the compact one, without holding the trace in memory.
//!
//! A file is written beside its place and renamed, so that what was there stays until all is written. Where that cannot be (a pipe,
//! a device, what standard output goes to) it is written as it comes.

use std::collections::BTreeMap;
use std::fs::{File, Metadata, OpenOptions};
use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use parquet::errors::ParquetError;

use super::columns::{TraceRow, TraceWriter};
use super::sink::{Recorded, Sink};
use super::source::Source;
use super::store::Kind;
use crate::{Place, TraceError, TraceWriteError};

/// What was converted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Converted {
    /// Accesses that were written.
    pub accesses: u64,
    /// Records of the tool's that are accesses of a kind that is not known, and were left out.
    pub left_out: u64,
}

/// Reads the recording `from` and writes it as `to`, in the compact format. `gpus`: see [`super::Trace::open_spread`].
///
/// # Errors
/// [`TraceError`]: what cannot be read, or written. What `to` was before, it is then.
pub fn convert(from: &Path, to: &Path, gpus: u8) -> Result<Converted, TraceError> {
    let mut source = Source::open(from, gpus).map_err(|error| error.of(from))?;
    let unwritable = |error: std::io::Error| {
        TraceError::Write(TraceWriteError::from(ParquetError::from(error)).to(to))
    };
    let failed = |error| match error {
        TraceError::Write(error) => TraceError::Write(error.to(to)),
        error => error.of(from),
    };
    if let Some(stream) = stream(to).map_err(unwritable)? {
        return write(&mut source, stream).map_err(failed);
    }
    // What a link leads to, not the link.
    let place = &to.canonicalize().unwrap_or_else(|_| to.to_owned());
    let part = part(place);
    let file = File::create(&part).map_err(unwritable)?;
    let converted = write(&mut source, file).map_err(failed).and_then(|converted| {
        std::fs::rename(&part, place).map_err(unwritable).map(|()| converted)
    });
    if converted.is_err() {
        // What went wrong is worth more than that this may not work either.
        let _ = std::fs::remove_file(&part);
    }
    converted
}

/// What is at a path, if it is no file that another could take the place of.
fn stream(to: &Path) -> std::io::Result<Option<File>> {
    let Ok(there) = std::fs::metadata(to) else { return Ok(None) };
    if is_standard_output(&there) {
        // A descriptor of its own would begin at the file's first byte, whatever is there already.
        return Ok(Some(std::io::stdout().as_fd().try_clone_to_owned()?.into()));
    }
    if there.is_file() || there.is_dir() {
        return Ok(None);
    }
    OpenOptions::new().write(true).open(to).map(Some)
}

/// Whether a path is where standard output goes, as `/dev/stdout` is: what is converted is all that may be printed then.
pub fn is_for_standard_output(to: &Path) -> bool {
    std::fs::metadata(to).is_ok_and(|there| is_standard_output(&there))
}

fn is_standard_output(there: &Metadata) -> bool {
    let out = std::io::stdout().as_fd().try_clone_to_owned().map(File::from);
    let out = out.and_then(|out| out.metadata());
    out.is_ok_and(|out| (out.dev(), out.ino()) == (there.dev(), there.ino()))
}

/// Where it is written until all of it is there: `to` may be `from`.
fn part(to: &Path) -> PathBuf {
    let mut part = to.as_os_str().to_owned();
    part.push(".part");
    part.into()
}

fn write(source: &mut Source, out: File) -> Result<Converted, TraceError> {
    let cycles = source.description.cycles;
    let writer = TraceWriter::new(out)?;
    let mut writing = Writing { writer, running: BTreeMap::new(), cycles, accesses: 0 };
    source.read(&mut writing)?;
    writing.writer.finish(&source.description)?;
    Ok(Converted { accesses: writing.accesses, left_out: source.left_out() })
}

/// Makes rows of accesses.
struct Writing<W: Write + Send> {
    writer: TraceWriter<W>,
    /// What the compute units run, by launch, GPU and number.
    running: BTreeMap<(usize, u8, u8), (u32, u16)>,
    cycles: bool,
    accesses: u64,
}

impl<W: Write + Send> Sink for Writing<W> {
    fn marker(&mut self, launch: usize, place: Place, group: u32, wave: u16) {
        self.running.insert((launch, place.gpu, place.unit), (group, wave));
    }

    fn access(&mut self, access: &Recorded) -> Result<(), TraceError> {
        let &Recorded { launch, place, sequence, kind, address, .. } = access;
        self.accesses += 1;
        self.writer.push(TraceRow {
            launch: launch as u32,
            place,
            wave: self.running.get(&(launch, place.gpu, place.unit)).copied(),
            sequence,
            address,
            count: 1,
            write: kind == Kind::Store,
            scalar: kind == Kind::LoadScalar,
            time: self.cycles.then_some(sequence.into()),
        })?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Trace;
    use crate::trace::plain::test_file;

    const ROWS: &str = "address,write\n0x10000,0\n0x10040,1\n";

    #[test]
    fn what_there_was_stays_until_all_is_written() {
        let (good, bad) =
            (test_file("good.csv", ROWS), test_file("bad.csv", "address,write\n1,7\n"));
        let to = test_file("converted.parquet", "");
        assert_eq!(convert(&good, &to, 1).unwrap().accesses, 2);
        let before = std::fs::read(&to).unwrap();
        assert!(convert(&bad, &to, 1).is_err());
        assert_eq!(std::fs::read(&to).unwrap(), before);
        assert_eq!(convert(&good, &good, 1).unwrap().accesses, 2);
        assert_eq!(Trace::open(&good).unwrap().accesses(), 2, "it is the compact one now");
        for file in [&good, &bad, &to] {
            assert!(!part(file).exists(), "{}", file.display());
            std::fs::remove_file(file).unwrap();
        }
    }

    #[test]
    fn a_place_that_cannot_be_written_is_named() {
        let from = test_file("homeless.csv", ROWS);
        let error = convert(&from, Path::new("/no/such/a.parquet"), 1).unwrap_err().to_string();
        std::fs::remove_file(&from).unwrap();
        let told = "the trace cannot be written: /no/such/a.parquet: No such file or directory";
        assert!(error.contains(told), "{error}");
    }

    #[test]
    fn what_takes_no_more_is_named() {
        let from = test_file("much.csv", ROWS);
        let error = convert(&from, Path::new("/dev/full"), 1).unwrap_err().to_string();
        std::fs::remove_file(&from).unwrap();
        assert!(error.starts_with("the trace cannot be written: /dev/full: "), "{error}");
        assert!(error.contains("No space left on device"), "{error}");
    }

    #[test]
    fn a_pipe_gets_the_same_bytes_and_a_link_stays_one() {
        let from = test_file("piped.csv", ROWS);
        let to = test_file("piped.parquet", "");
        convert(&from, &to, 1).unwrap();
        let whole = std::fs::read(&to).unwrap();
        let pipe = to.with_extension("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let reading = std::thread::spawn({
            let pipe = pipe.clone();
            move || std::fs::read(pipe).unwrap()
        });
        assert_eq!(convert(&from, &pipe, 1).unwrap().accesses, 2);
        assert!(reading.join().unwrap() == whole && !part(&pipe).exists());
        let link = to.with_extension("link");
        std::os::unix::fs::symlink(&to, &link).unwrap();
        std::fs::write(&to, "old").unwrap();
        convert(&from, &link, 1).unwrap();
        assert!(std::fs::read(&to).unwrap() == whole && link.is_symlink());
        let full = convert(&from, Path::new("/dev/full"), 1).unwrap_err().to_string();
        assert!(full.contains("No space left"), "{full}");
        for file in [&from, &to, &link, &pipe] {
            std::fs::remove_file(file).unwrap();
        }
    }

    #[test]
    fn a_file_that_grows_between_its_two_readings_is_an_error() {
        let from = test_file("grows.csv", ROWS);
        let to = test_file("grown.parquet", "");
        for text in [format!("{ROWS}0x10080,0\n"), ROWS[..ROWS.len() - 10].to_owned()] {
            std::fs::write(&from, ROWS).unwrap();
            let mut source = Source::open(&from, 1).unwrap();
            std::fs::write(&from, text).unwrap();
            let error = write(&mut source, File::create(&to).unwrap()).unwrap_err().to_string();
            assert!(error.contains("has changed while it was read"), "{error}");
        }
        for file in [&from, &to] {
            std::fs::remove_file(file).unwrap();
        }
    }
}
