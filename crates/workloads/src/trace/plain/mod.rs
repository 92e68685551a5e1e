//! Recordings of other tools, which say what was accessed and not what was allocated: a byte address and a size
//! at a time.
//!
//! A file is read twice: first for the pages that it touches, which are put together into allocations, with
//! gaps of up to 64 KiB between them, and then for its accesses. Neither holds it in memory.

mod csv;
mod gem5;
mod lackey;
mod lines;
mod packed;
mod traceg;
mod view;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::{Path, PathBuf};

use farside_types::{PAGE_SHIFT, PAGE_SIZE};

pub(in crate::trace) use csv::agent_place;
pub(in crate::trace) use packed::head;
pub(in crate::trace) use traceg::{is_list, listed};

use super::Allocation;
use super::columns::PlainRows;
use super::sidecar::{Layout, around, check_pages};
use super::sink::{Recorded, Sink};
use super::store::Kind;
use crate::{LINE_BYTES, Place, TraceError};

/// What is said of a file that begins as none of these formats.
const UNKNOWN: &str = "it begins as no trace that is read: not as text of lackey (`valgrind --tool=lackey \
     --trace-mem=yes`) or of DynamoRIO's view, as packets of gem5, as a .traceg or kernelslist.g of Accel-Sim, as a \
     CSV whose first line names address and write, or as Parquet (docs/workloads.md)";

/// Largest access in bytes: more than any instruction has.
const SIZE_MAX: u64 = 1 << 16;

/// Bytes that somebody accessed.
#[derive(Clone, Copy, Debug)]
pub(in crate::trace) struct Touch {
    pub(in crate::trace) launch: usize,
    pub(in crate::trace) place: Place,
    /// The work-group and its wavefront, where the recording has them.
    pub(in crate::trace) wave: Option<(u32, u16)>,
    /// Number of the instruction: neighbours of one place with one number are one instruction.
    pub(in crate::trace) sequence: u32,
    pub(in crate::trace) kind: Kind,
    pub(in crate::trace) address: u64,
    pub(in crate::trace) size: u64,
}

impl Touch {
    /// Why it cannot be.
    pub(in crate::trace) fn wrong(&self) -> Option<&'static str> {
        if self.size == 0 || self.size > SIZE_MAX {
            return Some("its size is not 1 to 65536 bytes");
        }
        let end = self.address.checked_add(self.size + PAGE_SIZE as u64);
        end.is_none().then_some("it ends beyond the address space")
    }

    fn pages(&self) -> impl Iterator<Item = u64> {
        self.address >> PAGE_SHIFT..=(self.address + self.size - 1) >> PAGE_SHIFT
    }

    fn lines(&self) -> impl Iterator<Item = u64> {
        self.address / LINE_BYTES..=(self.address + self.size - 1) / LINE_BYTES
    }
}

/// Takes accesses.
pub(in crate::trace) type Take<'a> = &'a mut dyn FnMut(&Touch) -> Result<(), TraceError>;

/// A tool's format.
pub(in crate::trace) trait Format: std::fmt::Debug {
    /// Reads the file from its beginning, hands out every access, and gives how many there are that this format
    /// does not place.
    fn each(&self, take: Take<'_>) -> Result<u64, TraceError>;
}

/// A recording that was read once, to see what it touches.
#[derive(Debug)]
pub(in crate::trace) struct Plain {
    path: PathBuf,
    format: Box<dyn Format>,
    /// What the program must have allocated.
    allocations: Vec<Allocation>,
    gpus: u32,
    /// Accesses, and those that its format does not place.
    counts: (u64, u64),
}

impl Plain {
    /// Opens a recording that is not ours. `head` are its first bytes, decompressed; `spread`: the GPUs over which
    /// the accesses of a format that knows none are spread.
    pub(in crate::trace) fn open(
        path: &Path,
        head: &[u8],
        spread: u8,
    ) -> Result<Plain, TraceError> {
        let at = path.to_owned();
        if let Some(why) = packed::advice(head) {
            return Err(TraceError::Byte { path: at, byte: 0, why: why.into() });
        }
        let format: Box<dyn Format> = if gem5::is_it(head) {
            Box::new(gem5::Packets::new(at))
        } else if traceg::is_list(head) || traceg::is_kernel(head) {
            Box::new(traceg::Kernels::open(path, traceg::is_list(head), spread)?)
        } else if view::is_it(head) {
            Box::new(view::View::new(at, spread))
        } else if csv::is_it(head) {
            Box::new(csv::Rows::open(path)?)
        } else if lackey::is_it(head) || packed::is_it(head) {
            // What cannot be decompressed is told of by whoever reads its lines.
            Box::new(lackey::Lackey::new(at, spread))
        } else {
            return Err(TraceError::Text { path: at, line: 1, why: UNKNOWN.into() });
        };
        Plain::of(path, format, spread)
    }

    /// Opens a Parquet file of accesses.
    pub(in crate::trace) fn rows(path: &Path, file: File) -> Result<Plain, TraceError> {
        Plain::of(path, Box::new(PlainRows::new(file)), 1)
    }

    fn of(path: &Path, format: Box<dyn Format>, spread: u8) -> Result<Plain, TraceError> {
        let (mut pages, mut gpus, mut touches) = (BTreeSet::new(), u32::from(spread), 0);
        let left_out = format.each(&mut |touch| {
            touches += 1;
            pages.extend(touch.pages());
            gpus = gpus.max(u32::from(touch.place.gpu) + 1);
            check_pages(pages.len() as u64)
        })?;
        if pages.is_empty() {
            return Err(TraceError::NoAccesses { path: path.to_owned() });
        }
        let (path, allocations) = (path.to_owned(), around(&pages)?);
        Ok(Plain { path, format, allocations, gpus, counts: (touches, left_out) })
    }

    /// What the program must have allocated.
    pub(in crate::trace) fn allocations(&self) -> &[Allocation] {
        &self.allocations
    }

    /// GPUs that it has.
    pub(in crate::trace) fn gpus(&self) -> u32 {
        self.gpus
    }

    /// Accesses that its format does not place.
    pub(in crate::trace) fn left_out(&self) -> u64 {
        self.counts.1
    }

    /// Hands every access to `sink`.
    pub(in crate::trace) fn read(
        &self,
        layout: &mut Layout,
        sink: &mut impl Sink,
    ) -> Result<(), TraceError> {
        let (mut record, mut touches, mut running) = (0, 0, Vec::new());
        let left_out = self.format.each(&mut |touch| {
            touches += 1;
            let &Touch { launch, place, wave, sequence, kind, .. } = touch;
            if let Some((group, wave)) = wave {
                let at = usize::from(place.gpu) << 8 | usize::from(place.unit);
                if running.len() <= at {
                    running.resize(at + 1, None);
                }
                if running[at] != Some((launch, group, wave)) {
                    running[at] = Some((launch, group, wave));
                    sink.marker(launch, place, group, wave);
                }
            }
            for line in touch.lines() {
                let address = line * LINE_BYTES;
                let Some(line) = layout.line_of(address) else {
                    return Err(TraceError::Changed { path: self.path.clone() });
                };
                sink.access(&Recorded { record, launch, place, sequence, kind, address, line })?;
                record += 1;
            }
            Ok(())
        })?;
        if (touches, left_out) != self.counts {
            return Err(TraceError::Changed { path: self.path.clone() });
        }
        Ok(())
    }
}

/// Numbers for threads that a recording names, in the order in which they come, and their places: one GPU
/// after the other, and on each one compute unit after the other.
#[derive(Debug, Default)]
struct Threads(BTreeMap<Box<str>, u32>);

impl Threads {
    /// Where a thread is; none if there are too many.
    fn place(&mut self, name: &str, gpus: u8) -> Option<Place> {
        let number = match self.0.get(name) {
            Some(number) => *number,
            None => {
                let number = self.0.len() as u32;
                if number >= u32::from(gpus) * super::builder::UNITS_MAX as u32 {
                    return None;
                }
                self.0.insert(name.into(), number);
                number
            }
        };
        let gpus = u32::from(gpus);
        Some(Place { gpu: (number % gpus) as u8, unit: (number / gpus) as u8 })
    }
}

/// A file with this content, for a test.
#[cfg(test)]
pub(in crate::trace) fn test_file(name: &str, content: impl AsRef<[u8]>) -> PathBuf {
    let path = std::env::temp_dir().join(format!("farside-{}-{name}", std::process::id()));
    std::fs::write(&path, content).unwrap();
    path
}

/// What a file with this content is read as.
#[cfg(test)]
pub(in crate::trace) fn test_open(
    name: &str,
    content: impl AsRef<[u8]>,
    spread: u8,
) -> Result<crate::Trace, TraceError> {
    let path = test_file(name, content);
    let trace = crate::Trace::open_spread(&path, spread);
    std::fs::remove_file(path).unwrap();
    trace
}

/// The accesses of a trace: GPU, unit, line and whether it is a write.
#[cfg(test)]
pub(in crate::trace) fn test_accesses(trace: &crate::Trace, gpus: u32) -> Vec<(u8, u8, u32, bool)> {
    let all = crate::order::accesses(trace, gpus, 64);
    all.map(|a| (a.place.gpu, a.place.unit, a.line.0, a.write)).collect()
}
