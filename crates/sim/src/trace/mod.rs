//! Recorded traces: what each compute unit accessed, launch by launch.
//!
//! A trace is a zstd stream of 16-byte records (`record.rs`) and a JSON description of the
//! allocations (`sidecar.rs`). It is read as a stream, checked, and sorted into one stream per
//! launch, GPU and compute unit, in record order. This module owns the format; it knows no time.

mod bundled;
mod record;
mod sidecar;
mod stream;
mod workload;

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

pub use record::Access;
pub use sidecar::Allocation;

use crate::TraceError;
use crate::workload::Buffer;
use sidecar::{Layout, Sidecar};

/// A trace in memory. Immutable; share it by `Arc` among simulations.
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
}

/// The streams of one launch, by GPU and compute unit.
#[derive(Clone, Debug, Default)]
struct Launch {
    streams: Vec<Vec<Access>>,
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
    pub fn read(name: &str, description: &str, stream: impl BufRead) -> Result<Trace, TraceError> {
        let sidecar = Sidecar::parse(description)?;
        let layout = Layout::new(&sidecar.allocations)?;
        let mut trace = Trace {
            name: name.to_owned(),
            gpus: sidecar.per_gpu.len(),
            compute_units: 0,
            buffers: workload::buffers(&sidecar.allocations),
            allocations: sidecar.allocations,
            launches: Vec::new(),
            accesses: 0,
            markers: 0,
        };
        let found = stream::records(stream, |index, bytes| {
            let record = record::Record::parse(bytes);
            trace.take(index, &record, &layout)
        })?;
        // The description's count may or may not include markers.
        match sidecar.records {
            Some(expected) if expected != found && expected != trace.accesses => {
                Err(TraceError::Count { found, expected })
            }
            _ => Ok(trace),
        }
    }

    /// Builds a trace by hand, for tests and for generated workloads: the sizes in bytes of the
    /// allocations, and per launch the accesses as `(gpu, compute unit, access)`. Pages of an
    /// [`Access`] are counted over the allocations in order.
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
        let mut trace = Trace {
            name: name.to_owned(),
            gpus: gpus.unwrap_or(1),
            compute_units: 0,
            buffers: workload::buffers(&allocations),
            allocations,
            launches: Vec::new(),
            accesses: 0,
            markers: 0,
        };
        let mut index = 0;
        for (launch, accesses) in launches.iter().enumerate() {
            for &(gpu, cu, access) in accesses {
                record::check_page(index, access, layout.pages())?;
                record::check_place(index, gpu, cu, trace.gpus)?;
                trace.add(launch, gpu, cu, access);
                index += 1;
            }
        }
        Ok(trace)
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

    /// Marker records that were skipped.
    pub fn markers(&self) -> u64 {
        self.markers
    }

    /// What a compute unit accesses in a launch, in order.
    pub fn stream(&self, launch: usize, gpu: usize, cu: usize) -> &[Access] {
        let streams = self.launches.get(launch).map(|launch| &launch.streams);
        let stream = streams.and_then(|streams| streams.get(record::place(gpu, cu)));
        stream.map_or(&[], Vec::as_slice)
    }

    fn take(
        &mut self,
        index: u64,
        record: &record::Record,
        layout: &Layout,
    ) -> Result<(), TraceError> {
        record::check_place(index, record.gpu, record.cu, self.gpus)?;
        let launch = record.launch(index)?;
        if record.is_marker() {
            self.markers += 1;
            return Ok(());
        }
        let access = record.access(index, layout)?;
        self.add(launch, record.gpu, record.cu, access);
        Ok(())
    }

    fn add(&mut self, launch: usize, gpu: u8, cu: u8, access: Access) {
        if self.launches.len() <= launch {
            self.launches.resize_with(launch + 1, Launch::default);
        }
        let streams = &mut self.launches[launch].streams;
        let place = record::place(usize::from(gpu), usize::from(cu));
        if streams.len() <= place {
            streams.resize_with(place + 1, Vec::new);
        }
        streams[place].push(access);
        self.accesses += 1;
        self.compute_units = self.compute_units.max(usize::from(cu) + 1);
    }
}

#[cfg(test)]
mod tests;
