//! The generated workloads by name, at the sizes of the GRIT paper or any other.

use std::sync::Arc;

use thiserror::Error;

use super::Workload;
use super::bfs::{Bfs, Sharing};
use super::bs::BitonicSort;
use super::c2d::Convolution2d;
use super::fir::Fir;
use super::gemm::Gemm;
use super::mm::{Mm, RowsOfA};
use super::sc::SimpleConvolution;
use super::st::St;

/// Bytes of a megabyte in the paper's Table II.
const MB: u64 = 1 << 20;
/// Most bytes of a workload: with every buffer rounded up to blocks, its lines still have a number
/// of 32 bits.
const BYTES_MAX: u64 = 128 << 30;

/// A workload that can be asked for.
struct Entry {
    name: &'static str,
    /// Megabytes in Table II of the GRIT paper; for others a size like those.
    megabytes: u64,
    /// The smallest data footprint in bytes.
    least: u64,
    /// Builds it with the nearest size that its shape allows.
    build: fn(u64) -> Arc<dyn Workload>,
}

const ENTRIES: &[Entry] = &[
    Entry {
        name: "bfs",
        megabytes: 32,
        least: Bfs::BYTES_MIN,
        build: |bytes| Arc::new(Bfs::new(bytes, Sharing::Levels)),
    },
    Entry {
        name: "bfs-shared",
        megabytes: 32,
        least: Bfs::SHARED_BYTES_MIN,
        build: |bytes| Arc::new(Bfs::new(bytes, Sharing::Edges)),
    },
    Entry {
        name: "bs",
        megabytes: 30,
        least: BitonicSort::BYTES_MIN,
        build: |bytes| Arc::new(BitonicSort::new(bytes)),
    },
    Entry {
        name: "c2d",
        megabytes: 94,
        least: Convolution2d::BYTES_MIN,
        build: |bytes| Arc::new(Convolution2d::new(bytes)),
    },
    Entry {
        name: "fir",
        megabytes: 155,
        least: Fir::BYTES_MIN,
        build: |bytes| Arc::new(Fir::new(bytes)),
    },
    Entry {
        name: "gemm",
        megabytes: 16,
        least: Gemm::BYTES_MIN,
        build: |bytes| Arc::new(Gemm::new(bytes)),
    },
    Entry {
        name: "mm",
        megabytes: 33,
        least: Mm::BYTES_MIN,
        build: |bytes| Arc::new(Mm::new(bytes, RowsOfA::First)),
    },
    Entry {
        name: "mm-own-rows",
        megabytes: 33,
        least: Mm::BYTES_MIN,
        build: |bytes| Arc::new(Mm::new(bytes, RowsOfA::Own)),
    },
    Entry {
        name: "sc",
        megabytes: 131,
        least: SimpleConvolution::BYTES_MIN,
        build: |bytes| Arc::new(SimpleConvolution::new(bytes)),
    },
    Entry {
        name: "st",
        megabytes: 33,
        least: St::BYTES_MIN,
        build: |bytes| Arc::new(St::new(bytes, St::ITERATIONS)),
    },
];

const fn names() -> [&'static str; ENTRIES.len()] {
    let mut names = [""; ENTRIES.len()];
    let mut index = 0;
    while index < names.len() {
        names[index] = ENTRIES[index].name;
        index += 1;
    }
    names
}

/// Every name that [`by_name`] knows.
pub const NAMES: &[&str] = &names();

/// Why a workload cannot be had.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum WorkloadError {
    /// No workload has this name.
    #[error("there is no workload named {name:?}; workloads are: {}", NAMES.join(", "))]
    NoSuchWorkload {
        /// The name given.
        name: String,
    },
    /// It cannot be that small or that large.
    #[error("{name} cannot have {bytes} bytes of data; it works from {least} to {most} bytes")]
    Size {
        /// The workload.
        name: &'static str,
        /// The size given.
        bytes: u64,
        /// The smallest that works.
        least: u64,
        /// The largest that works.
        most: u64,
    },
}

/// The workload of this name with `bytes` of data, as near as its shape allows (whole work-groups,
/// whole blocks of a matrix); `None`: the size in Table II of the GRIT paper.
///
/// # Errors
/// [`WorkloadError`] names the workload, the size and those that work.
pub fn by_name(name: &str, bytes: Option<u64>) -> Result<Arc<dyn Workload>, WorkloadError> {
    let Some(entry) = ENTRIES.iter().find(|entry| entry.name == name) else {
        return Err(WorkloadError::NoSuchWorkload { name: name.to_owned() });
    };
    let bytes = bytes.unwrap_or(entry.megabytes * MB);
    if bytes < entry.least || bytes > BYTES_MAX {
        let (name, least, most) = (entry.name, entry.least, BYTES_MAX);
        return Err(WorkloadError::Size { name, bytes, least, most });
    }
    Ok((entry.build)(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data_bytes(workload: &dyn Workload) -> u64 {
        workload.buffers().iter().map(|buffer| buffer.bytes).sum()
    }

    #[test]
    fn every_workload_has_the_size_that_was_asked_for_within_a_tenth() {
        for entry in ENTRIES {
            for bytes in [None, Some(3 * MB), Some(50 * MB)] {
                let workload = by_name(entry.name, bytes).unwrap();
                let asked = bytes.unwrap_or(entry.megabytes * MB);
                let got = data_bytes(&*workload);
                assert_eq!(workload.name(), entry.name);
                // A bitonic sort is of a power of two of elements.
                let part = if entry.name == "bs" { 2 } else { 10 };
                assert!(got.abs_diff(asked) * part < asked, "{}: {got} of {asked}", entry.name);
            }
        }
    }

    #[test]
    fn a_size_that_does_not_work_is_answered_with_those_that_do() {
        for entry in ENTRIES {
            assert!(by_name(entry.name, Some(entry.least)).is_ok());
            for bytes in [0, entry.least - 1, BYTES_MAX + 1, u64::MAX] {
                let error = by_name(entry.name, Some(bytes)).unwrap_err().to_string();
                let parts = [entry.name, &bytes.to_string(), &entry.least.to_string()];
                assert!(parts.iter().all(|part| error.contains(part)), "{error}");
            }
        }
    }

    #[test]
    fn another_name_is_answered_with_those_there_are() {
        let error = by_name("doom", None).unwrap_err().to_string();
        assert!(error.contains("\"doom\"") && error.contains("fir"), "{error}");
    }
}
