//! A recording in a file, in whichever format: found by its first bytes.

use std::fs::File;
use std::io::{BufReader, Read, Seek};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use super::columns::{self, TraceAllocation, TraceDescription};
use super::plain::{self, Plain, is_list, listed};
use super::record::{self, Record};
use super::sidecar::{Layout, Sidecar};
use super::sink::{Recorded, Sink};
use super::{Allocation, stream};
use crate::TraceError;

/// The first bytes of a zstd frame (RFC 8878, section 3.1.1).
const ZSTD_MAGIC: [u8; 4] = 0xfd2f_b528_u32.to_le_bytes();

/// Bytes at the beginning of a file that tell its format: a program whose accesses were recorded may have printed
/// something before them.
const HEAD_BYTES: u64 = 1 << 16;

/// A recording that is ready to be read.
pub(super) struct Source {
    pub(super) description: TraceDescription,
    pub(super) allocations: Vec<Allocation>,
    layout: Layout,
    what: What,
}

enum What {
    Records { file: File, expected: Option<u64> },
    Columns(File),
    Plain(Plain),
}

impl Source {
    /// Opens a recording. `spread`: the GPUs over which the accesses of a format that knows none
    /// are spread.
    pub(super) fn open(path: &Path, spread: u8) -> Result<Source, TraceError> {
        let unreadable = |source| TraceError::Read { path: path.to_owned(), source };
        let mut file = open(path)?;
        let spread = spread.max(1);
        let head = head(&mut file).map_err(unreadable)?;
        file.rewind().map_err(unreadable)?;
        if head.starts_with(&ZSTD_MAGIC) {
            Source::records(path, file)
        } else if head.starts_with(&columns::MAGIC) {
            if !columns::have_their_end(&mut file).map_err(unreadable)? {
                return Err(TraceError::CutOff);
            }
            Source::columns(path, file)
        } else {
            Source::plain(path, Plain::open(path, &plain::head(head), spread)?)
        }
    }

    /// A recording that knows nothing of allocations.
    fn plain(path: &Path, plain: Plain) -> Result<Source, TraceError> {
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let allocations = plain.allocations().to_vec();
        let description = describe(name, plain.gpus(), false, &allocations);
        Source::new(description, allocations, What::Plain(plain))
    }

    fn records(path: &Path, file: File) -> Result<Source, TraceError> {
        let (name, beside) = beside(path)?;
        let description = std::fs::read_to_string(&beside)
            .map_err(|source| TraceError::Beside { path: beside, of: path.to_owned(), source })?;
        let Sidecar { allocations, timing, per_gpu, records, .. } = Sidecar::parse(&description)?;
        let description = describe(name, per_gpu.len() as u32, timing, &allocations);
        Source::new(description, allocations, What::Records { file, expected: records })
    }

    fn columns(path: &Path, file: File) -> Result<Source, TraceError> {
        if columns::are_plain(&file, path)? {
            return Source::plain(path, Plain::rows(path, file)?);
        }
        let description = columns::description(&file, path)?;
        let allocation = |&TraceAllocation { address, bytes, pinned }: &_| {
            Allocation::new(address, bytes, pinned)
        };
        let allocations = description.allocations.iter().map(allocation).collect();
        Source::new(description, allocations, What::Columns(file))
    }

    fn new(
        description: TraceDescription,
        allocations: Vec<Allocation>,
        what: What,
    ) -> Result<Source, TraceError> {
        let layout = Layout::new(&allocations)?;
        Ok(Source { description, allocations, layout, what })
    }

    /// Accesses of the recording that its format does not place.
    pub(super) fn left_out(&self) -> u64 {
        match &self.what {
            What::Plain(plain) => plain.left_out(),
            _ => 0,
        }
    }

    /// Hands the whole recording to `sink`.
    pub(super) fn read(&mut self, sink: &mut impl Sink) -> Result<(), TraceError> {
        let gpus = self.description.gpus as usize;
        match &mut self.what {
            What::Records { file, expected } => {
                let stream = BufReader::with_capacity(1 << 16, file);
                records(stream, gpus, *expected, &mut self.layout, sink)
            }
            What::Columns(file) => {
                let file = file.try_clone();
                let file = file.map_err(|error| TraceError::Footer { what: error.to_string() })?;
                columns::read(file, gpus, &mut self.layout, sink)
            }
            What::Plain(plain) => plain.read(&mut self.layout, sink),
        }
    }
}

/// Opens a file that can be read twice, and waits for nobody who writes a pipe.
fn open(path: &Path) -> Result<File, TraceError> {
    let unreadable = |source| TraceError::Read { path: path.to_owned(), source };
    if path.metadata().map_err(unreadable)?.file_type().is_fifo() {
        return Err(TraceError::Pipe { path: path.to_owned() });
    }
    File::open(path).map_err(unreadable)
}

fn head(file: &mut File) -> std::io::Result<Vec<u8>> {
    let mut head = Vec::new();
    file.take(HEAD_BYTES).read_to_end(&mut head)?;
    Ok(head)
}

/// The files that a trace is read from, itself the first: a recording of records has its description beside it, a list
/// of kernels these.
///
/// # Errors
/// [`TraceError`]: a file that cannot be read, or a list that cannot be.
pub fn trace_files(path: &Path) -> Result<Vec<PathBuf>, TraceError> {
    let unreadable = |source| TraceError::Read { path: path.to_owned(), source };
    let head = head(&mut open(path)?).map_err(unreadable)?;
    let others = match beside(path) {
        Ok((_, description)) => vec![description],
        Err(_) if is_list(&head) => listed(path)?,
        Err(_) => Vec::new(),
    };
    Ok(std::iter::once(path.to_owned()).chain(others).collect())
}

/// The name of a recording of records, and where its description is.
fn beside(path: &Path) -> Result<(String, PathBuf), TraceError> {
    let file_name = path.file_name().and_then(|name| name.to_str());
    match file_name.and_then(|name| name.strip_suffix(".bin.zst")) {
        Some(name) => Ok((name.to_owned(), path.with_file_name(format!("{name}.json")))),
        None => Err(TraceError::Name { path: path.to_owned() }),
    }
}

fn describe(name: String, gpus: u32, cycles: bool, allocations: &[Allocation]) -> TraceDescription {
    let allocations = allocations.iter().map(TraceAllocation::from).collect();
    TraceDescription { name, page_bytes: super::PAGE_BYTES, gpus, cycles, allocations }
}

/// Hands the records of a zstd stream to `sink`; `expected` are those that there must be.
pub(super) fn records(
    stream: impl Read,
    gpus: usize,
    expected: Option<u64>,
    layout: &mut Layout,
    sink: &mut impl Sink,
) -> Result<(), TraceError> {
    let mut markers = 0;
    let found = stream::records(stream, |index, bytes| {
        let record = Record::parse(bytes);
        record::check_place(index, record.place, gpus)?;
        let launch = record.launch(index)?;
        if record.is_marker() {
            let (group, wave) = record.marked();
            record::check_group(index, group)?;
            markers += 1;
            sink.marker(launch, record.place, group, wave);
            return Ok(());
        }
        let kind = record.kind(index)?;
        let address = record.address();
        let Some(line) = layout.line_of(address) else {
            let (field, value) = ("address", address);
            let why = "which is in no allocation of the trace's description";
            return Err(TraceError::Record { record: index, field, value, why });
        };
        let Record { place, sequence, .. } = record;
        sink.access(&Recorded { record: index, launch, place, sequence, kind, address, line })
    })?;
    // The description's count may or may not include markers.
    match expected {
        Some(expected) if expected != found && expected != found - markers => {
            Err(TraceError::Count { found, expected })
        }
        _ => Ok(()),
    }
}
