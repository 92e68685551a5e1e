//! Recorded traces: what each compute unit accessed, launch by launch.
//!
//! A recording is a zstd stream of 16-byte records (`record.rs`) with a JSON description of the
//! allocations (`sidecar.rs`), or a Parquet file of ours (`columns/`), or what other tools write (`plain/`:
//! valgrind, DynamoRIO, gem5, Accel-Sim, plain rows). Which one it is, its first bytes say (`source.rs`). It is read as a stream,
//! checked, and put together into wavefronts and their instructions (`builder.rs`), which lie
//! compactly in memory (`store.rs`) and are a workload (`workload.rs`), or written in the compact
//! format (`convert.rs`). This module owns the formats; it knows no time. `docs/workloads.md` is the
//! specification.

mod builder;
mod bundled;
mod columns;
mod convert;
mod error;
mod plain;
mod record;
mod sidecar;
mod sink;
mod source;
mod store;
mod stream;
mod workload;

use std::io::Read;
use std::path::Path;

pub use columns::{TraceAllocation, TraceDescription, TraceRow, TraceWriteError, TraceWriter};
pub use convert::{Converted, convert, is_for_standard_output};
pub use error::TraceError;
pub use record::Access;
pub use sidecar::Allocation;
pub use source::trace_files;

use crate::{Buffer, Place};
use builder::Builder;
use sidecar::{Layout, Sidecar};
use sink::{Recorded, Sink};
use source::Source;
use store::{Kind, Launch};

/// Bytes of a page.
const PAGE_BYTES: u64 = farside_types::PAGE_SIZE as u64;

/// A trace in memory. Immutable; share it by `Arc` among simulations. It is a
/// [`Workload`](crate::Workload).
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
    left_out: u64,
}

impl Trace {
    /// Reads a recording: `NAME.bin.zst` with the `NAME.json` beside it, a Parquet file, or what another tool
    /// writes (`docs/workloads.md`). Which one it is, its content says.
    ///
    /// # Errors
    /// [`TraceError`] names the file, the allocation, and the record, row or line.
    pub fn open(path: &Path) -> Result<Trace, TraceError> {
        Trace::open_spread(path, 1)
    }

    /// As [`Trace::open`]; the accesses of a format that knows no GPUs are spread over so many: of valgrind's text
    /// each GPU in turn has a stretch of 16384, of DynamoRIO's a thread, of Accel-Sim's a share of the grid.
    ///
    /// # Errors
    /// [`TraceError`], as [`Trace::open`].
    pub fn open_spread(path: &Path, gpus: u8) -> Result<Trace, TraceError> {
        let mut source = Source::open(path, gpus).map_err(|error| error.of(path))?;
        let mut builder = Builder::new(source.description.cycles);
        source.read(&mut builder).map_err(|error| error.of(path))?;
        let left_out = source.left_out();
        let TraceDescription { name, gpus, .. } = &source.description;
        Ok(Trace { left_out, ..Trace::new(name, *gpus as usize, source.allocations, builder) })
    }

    /// Reads a trace from a zstd stream of records, with the text of its JSON description.
    ///
    /// # Errors
    /// [`TraceError`] names the allocation or the record.
    pub fn read(name: &str, description: &str, stream: impl Read) -> Result<Trace, TraceError> {
        let sidecar = Sidecar::parse(description)?;
        let mut layout = Layout::new(&sidecar.allocations)?;
        let mut builder = Builder::new(sidecar.timing);
        let gpus = sidecar.per_gpu.len();
        source::records(stream, gpus, sidecar.records, &mut layout, &mut builder)?;
        Ok(Trace::new(name, gpus, sidecar.allocations, builder))
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
                let (record, sequence, address) = (index, index as u32, 0);
                let access = Recorded { record, launch, place, sequence, kind, address, line };
                builder.access(&access)?;
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
            left_out: 0,
            launches: builder.finish(),
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

    /// Records of the tool's that it was read from which are accesses of a kind that is not known, and were left out.
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    /// Bytes that its accesses and wavefronts take in memory.
    pub fn bytes(&self) -> usize {
        self.launches.iter().map(Launch::bytes).sum()
    }
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod workload_tests;
