//! Recorded traces: what each compute unit accessed, launch by launch.
//!
//! A trace is a zstd stream of 16-byte records (`record.rs`) and a JSON description of the
//! allocations (`sidecar.rs`). It is read as a stream, checked, and put together into wavefronts
//! and their instructions (`builder.rs`), which lie compactly in memory (`store.rs`) and are a
//! workload (`workload.rs`). This module owns the format; it knows no time.

mod builder;
mod bundled;
mod record;
mod sidecar;
mod store;
mod stream;
mod workload;

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;
use std::sync::OnceLock;

pub use record::Access;
pub use sidecar::Allocation;

use crate::TraceError;
use crate::workload::{Buffer, Place};
use builder::Builder;
use sidecar::{Layout, Sidecar};
use store::{Kind, Launch};

/// A trace in memory. Immutable; share it by `Arc` among simulations. It is a
/// [`Workload`](crate::workload::Workload).
#[derive(Clone, Debug)]
pub struct Trace {
    name: String,
    gpus: usize,
    compute_units: usize,
    allocations: Vec<Allocation>,
    buffers: Vec<Buffer>,
    launches: Vec<Launch>,
    accesses: u64,
    markers: u64,
    /// The streams again, in pages: see [`Trace::stream`].
    pages: OnceLock<Vec<Vec<Vec<Access>>>>,
}

impl Trace {
    /// Reads `NAME.bin.zst` and the `NAME.json` beside it.
    ///
    /// # Errors
    /// [`TraceError`] names the file, the allocation or the record.
    pub fn open(path: &Path) -> Result<Trace, TraceError> {
        let file_name = path.file_name().and_then(|name| name.to_str());
        let Some(name) = file_name.and_then(|name| name.strip_suffix(".bin.zst")) else {
            return Err(TraceError::Name { path: path.to_owned() });
        };
        let beside = path.with_file_name(format!("{name}.json"));
        let unreadable = |path: &Path| {
            let path = path.to_owned();
            move |source| TraceError::Read { path, source }
        };
        let description = std::fs::read_to_string(&beside).map_err(unreadable(&beside))?;
        let file = File::open(path).map_err(unreadable(path))?;
        Trace::read(name, &description, BufReader::with_capacity(1 << 16, file))
    }

    /// Reads a trace from a zstd stream, with the text of its JSON description.
    ///
    /// # Errors
    /// [`TraceError`] names the allocation or the record.
    pub fn read(name: &str, description: &str, stream: impl Read) -> Result<Trace, TraceError> {
        let sidecar = Sidecar::parse(description)?;
        let mut layout = Layout::new(&sidecar.allocations)?;
        let mut builder = Builder::new(sidecar.timing);
        let gpus = sidecar.per_gpu.len();
        let found = stream::records(stream, |index, bytes| {
            take(&mut builder, &mut layout, gpus, index, &record::Record::parse(bytes))
        })?;
        // The description's count may or may not include markers.
        match sidecar.records {
            Some(expected) if expected != found && expected != builder.accesses => {
                Err(TraceError::Count { found, expected })
            }
            _ => Ok(Trace::new(name, gpus, sidecar.allocations, builder)),
        }
    }

    /// Builds a trace by hand, for tests and for generated workloads: the sizes in bytes of the
    /// allocations, and per launch the accesses as `(gpu, compute unit, access)`. Pages of an
    /// [`Access`] are counted over the allocations in order; each access is an instruction of one
    /// line, the first of its page.
    ///
    /// # Errors
    /// [`TraceError`] names the allocation or the access (as a record) that cannot be.
    pub fn from_accesses(
        name: &str,
        allocations: &[u64],
        launches: &[Vec<(u8, u8, Access)>],
    ) -> Result<Trace, TraceError> {
        let allocations = sidecar::place(allocations)?;
        let layout = Layout::new(&allocations)?;
        let gpus = launches.iter().flatten().map(|&(gpu, ..)| usize::from(gpu) + 1).max();
        let gpus = gpus.unwrap_or(1);
        let mut builder = Builder::new(false);
        let mut index = 0;
        for (launch, accesses) in launches.iter().enumerate() {
            for &(gpu, unit, access) in accesses {
                let place = Place { gpu, unit };
                record::check_place(index, place, gpus)?;
                let Some(line) = layout.line_of_page(&allocations, access.page) else {
                    let (field, value) = ("page", u64::from(access.page));
                    let why = "beyond the last allocation";
                    return Err(TraceError::Record { record: index, field, value, why });
                };
                let kind = if access.write { Kind::Store } else { Kind::Load };
                builder.access(index, launch, place, index as u32, kind, line)?;
                index += 1;
            }
        }
        Ok(Trace::new(name, gpus, allocations, builder))
    }

    fn new(name: &str, gpus: usize, allocations: Vec<Allocation>, builder: Builder) -> Trace {
        Trace {
            name: name.to_owned(),
            gpus,
            compute_units: builder.units,
            buffers: sidecar::buffers(&allocations),
            allocations,
            accesses: builder.accesses,
            markers: builder.markers,
            launches: builder.finish(),
            pages: OnceLock::new(),
        }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// GPUs that it was recorded on.
    pub fn gpus(&self) -> usize {
        self.gpus
    }

    /// Compute units that it uses, of each GPU: the highest number plus one.
    pub fn compute_units(&self) -> usize {
        self.compute_units
    }

    /// The program's allocations, in the order they were made.
    pub fn allocations(&self) -> &[Allocation] {
        &self.allocations
    }

    /// Pages of all allocations.
    pub fn pages(&self) -> u64 {
        self.allocations.iter().map(Allocation::pages).sum()
    }

    /// Kernel launches.
    pub fn launches(&self) -> usize {
        self.launches.len()
    }

    /// Accesses, markers not counted.
    pub fn accesses(&self) -> u64 {
        self.accesses
    }

    /// Marker records, which say what work-group and wavefront a compute unit runs.
    pub fn markers(&self) -> u64 {
        self.markers
    }

    /// Bytes that its accesses and wavefronts take in memory.
    pub fn bytes(&self) -> usize {
        self.launches.iter().map(Launch::bytes).sum()
    }

    /// What a compute unit accesses in a launch, in order.
    pub fn stream(&self, launch: usize, gpu: usize, cu: usize) -> &[Access] {
        let launches = self.pages.get_or_init(|| {
            let launches = self.launches.iter();
            launches
                .map(|launch| launch.streams.iter().map(|s| self.in_pages(s)).collect())
                .collect()
        });
        let position = self.launches.get(launch).and_then(|launch| {
            let place = |s: &store::Stream| (usize::from(s.place.gpu), usize::from(s.place.unit));
            launch.streams.iter().position(|stream| place(stream) == (gpu, cu))
        });
        position.map_or(&[], |stream| &launches[launch][stream])
    }

    fn in_pages(&self, stream: &store::Stream) -> Vec<Access> {
        let firsts = crate::workload::first_lines(&self.buffers);
        let mut pages = 0;
        let mut first_pages = Vec::new();
        for allocation in &self.allocations {
            first_pages.push(pages);
            pages += allocation.pages() as u32;
        }
        let page = |line: u32| {
            let buffer = firsts.partition_point(|first| first.0 <= line) - 1;
            first_pages[buffer] + (line - firsts[buffer].0) / sidecar::LINES_PER_PAGE as u32
        };
        let mut lines = stream.lines.iter();
        let mut accesses = Vec::with_capacity(stream.lines.len());
        for head in &stream.heads {
            let write = head.kind() == Kind::Store;
            let some = lines.by_ref().take(head.lines());
            accesses.extend(some.map(|&line| Access { page: page(line), bytes: 64, write }));
        }
        accesses
    }
}

#[inline]
fn take(
    builder: &mut Builder,
    layout: &mut Layout,
    gpus: usize,
    index: u64,
    record: &record::Record,
) -> Result<(), TraceError> {
    record::check_place(index, record.place, gpus)?;
    let launch = record.launch(index)?;
    if record.is_marker() {
        let (group, wave) = record.marked();
        record::check_group(index, group)?;
        builder.marker(launch, record.place, group, wave);
        return Ok(());
    }
    let kind = record.kind(index)?;
    let Some(line) = layout.line_of(record.address()) else {
        let (field, value) = ("address", record.address());
        let why = "which is in no allocation of the trace's description";
        return Err(TraceError::Record { record: index, field, value, why });
    };
    builder.access(index, launch, record.place, record.sequence, kind, line)
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod workload_tests;
