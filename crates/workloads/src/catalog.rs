//! The generated workloads by name, at the sizes of the GRIT paper or any other.

use std::sync::Arc;

use thiserror::Error;

use super::Workload;
use super::bfs::{Bfs, Sharing};
use super::bs::BitonicSort;
use super::c2d::Convolution2d;
use super::dnn::{Options, Training};
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
    /// The largest.
    most: u64,
    /// Builds it with the nearest size that its shape allows.
    build: fn(u64) -> Arc<dyn Workload>,
}

const ENTRIES: &[Entry] = &[
    Entry {
        name: "bfs",
        megabytes: 32,
        least: Bfs::BYTES_MIN,
        most: Bfs::BYTES_MAX,
        build: |bytes| Arc::new(Bfs::new(bytes, Sharing::Levels)),
    },
    Entry {
        name: "bfs-shared",
        megabytes: 32,
        least: Bfs::SHARED_BYTES_MIN,
        most: Bfs::BYTES_MAX,
        build: |bytes| Arc::new(Bfs::new(bytes, Sharing::Edges)),
    },
    Entry {
        name: "bfs-chain",
        megabytes: 32,
        least: Bfs::CHAIN_BYTES_MIN,
        most: Bfs::BYTES_MAX,
        build: |bytes| Arc::new(Bfs::new(bytes, Sharing::Chain)),
    },
    Entry {
        name: "bs",
        megabytes: 30,
        least: BitonicSort::BYTES_MIN,
        most: BYTES_MAX,
        build: |bytes| Arc::new(BitonicSort::new(bytes)),
    },
    Entry {
        name: "c2d",
        megabytes: 94,
        least: Convolution2d::BYTES_MIN,
        most: BYTES_MAX,
        build: |bytes| Arc::new(Convolution2d::new(bytes)),
    },
    Entry {
        name: "c2d-batches",
        megabytes: 94,
        least: Convolution2d::BYTES_MIN,
        most: BYTES_MAX,
        build: |bytes| Arc::new(Convolution2d::batches(bytes)),
    },
    Entry {
        name: "c2d-untiled",
        megabytes: 94,
        least: Convolution2d::BYTES_MIN,
        most: BYTES_MAX,
        build: |bytes| Arc::new(Convolution2d::untiled(bytes)),
    },
    Entry {
        name: "fir",
        megabytes: 155,
        least: Fir::BYTES_MIN,
        most: BYTES_MAX,
        build: |bytes| Arc::new(Fir::new(bytes)),
    },
    Entry {
        name: "gemm",
        megabytes: 16,
        least: Gemm::BYTES_MIN,
        most: BYTES_MAX,
        build: |bytes| Arc::new(Gemm::new(bytes)),
    },
    Entry {
        name: "gemm-untiled",
        megabytes: 16,
        least: Gemm::BYTES_MIN,
        most: BYTES_MAX,
        build: |bytes| Arc::new(Gemm::untiled(bytes)),
    },
    Entry {
        name: "mm",
        megabytes: 33,
        least: Mm::BYTES_MIN,
        most: BYTES_MAX,
        build: |bytes| Arc::new(Mm::new(bytes, RowsOfA::First)),
    },
    Entry {
        name: "mm-own-rows",
        megabytes: 33,
        least: Mm::BYTES_MIN,
        most: BYTES_MAX,
        build: |bytes| Arc::new(Mm::new(bytes, RowsOfA::Own)),
    },
    Entry {
        name: "resnet18",
        megabytes: 48,
        least: Training::BYTES_MIN,
        most: Training::BYTES_MAX,
        build: |bytes| Arc::new(Training::resnet18(bytes, Options::default())),
    },
    Entry {
        name: "sc",
        megabytes: 131,
        least: SimpleConvolution::BYTES_MIN,
        most: BYTES_MAX,
        build: |bytes| Arc::new(SimpleConvolution::new(bytes)),
    },
    Entry {
        name: "st",
        megabytes: 33,
        least: St::BYTES_MIN,
        most: BYTES_MAX,
        build: |bytes| Arc::new(St::new(bytes, St::ITERATIONS)),
    },
    Entry {
        name: "vgg16",
        megabytes: 48,
        least: Training::BYTES_MIN,
        most: Training::BYTES_MAX,
        build: |bytes| Arc::new(Training::vgg16(bytes, Options::default())),
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
    let &Entry { name, least, most, .. } = entry;
    if bytes < least || bytes > most {
        return Err(WorkloadError::Size { name, bytes, least, most });
    }
    Ok((entry.build)(bytes))
}

#[cfg(test)]
mod tests {
    use super::super::{Cursor, Instruction, LINE_BYTES, Launch, Lines, first_lines};
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
                // A bitonic sort is of a power of two of elements, a training of whole images.
                let coarse = ["bs", "resnet18", "vgg16"].contains(&entry.name);
                let part = if coarse { 2 } else { 10 };
                assert!(got.abs_diff(asked) * part < asked, "{}: {got} of {asked}", entry.name);
            }
        }
    }

    #[test]
    fn a_size_that_does_not_work_is_answered_with_those_that_do() {
        for entry in ENTRIES {
            assert!(by_name(entry.name, Some(entry.least)).is_ok());
            for bytes in [0, entry.least - 1, entry.most + 1, u64::MAX] {
                let error = by_name(entry.name, Some(bytes)).unwrap_err().to_string();
                let parts = [entry.name, &bytes.to_string(), &entry.least.to_string()];
                assert!(parts.iter().all(|part| error.contains(part)), "{error}");
            }
        }
    }

    /// What a wavefront does, checked as the machine relies on it: the number of its barriers and
    /// of its lines.
    fn checked(workload: &dyn Workload, mut at: Cursor) -> (u32, u64) {
        let place = at;
        let starts = first_lines(workload.buffers());
        let (mut barriers, mut count, mut lines) = (0, 0, Lines::new());
        loop {
            lines.clear();
            let instruction = workload.next(&mut at, &mut lines);
            let accesses = match instruction {
                Instruction::Load | Instruction::Store | Instruction::LoadScalar => true,
                Instruction::Compute(_) | Instruction::Wait => false,
                Instruction::Barrier => {
                    barriers += 1;
                    false
                }
                Instruction::End => return (barriers, count),
            };
            assert_eq!(accesses, !lines.is_empty(), "{instruction:?} of {place:?} has {lines:?}");
            count += lines.len() as u64;
            for (index, line) in lines.iter().enumerate() {
                assert!(!lines[..index].contains(line), "{line:?} twice in {lines:?} of {place:?}");
                let buffer = starts.partition_point(|start| start <= line) - 1;
                let end = workload.buffers()[buffer].bytes.div_ceil(LINE_BYTES);
                let offset = u64::from(line.0 - starts[buffer].0);
                assert!(offset < end, "{line:?} of {place:?} is beyond buffer {buffer}");
            }
        }
    }

    #[test]
    fn instructions_access_distinct_lines_of_the_buffers_and_barriers_are_met_by_all() {
        for entry in ENTRIES {
            let workload = by_name(entry.name, Some(entry.least.max(2 * MB))).unwrap();
            let mut count = 0;
            for launch in 0..workload.launches() {
                let Launch { groups, waves, .. } = workload.launch(launch);
                let some = (0..groups).step_by(groups as usize / 16 + 1);
                for group in some.chain([groups - 1]) {
                    let wave = |wave| Cursor { launch, group, wave, ..Cursor::default() };
                    let waves = (0..waves).map(|index| checked(&*workload, wave(index)));
                    let (barriers, lines): (Vec<u32>, Vec<u64>) = waves.unzip();
                    assert!(barriers.iter().all(|&met| met == barriers[0]), "{}", entry.name);
                    count += lines.iter().sum::<u64>();
                }
            }
            assert!(count > 0, "{} accesses nothing", entry.name);
        }
    }

    #[test]
    fn the_largest_size_still_has_its_last_line_in_its_last_buffer() {
        // Those that keep a graph in memory would need as much of it.
        for entry in ENTRIES.iter().filter(|entry| entry.most == BYTES_MAX) {
            let workload = by_name(entry.name, Some(entry.most)).unwrap();
            let launch = workload.launches() - 1;
            let Launch { groups, waves, .. } = workload.launch(launch);
            let last = Cursor { launch, group: groups - 1, wave: waves - 1, ..Cursor::default() };
            assert!(checked(&*workload, last).1 > 0, "{}", entry.name);
        }
    }

    #[test]
    fn another_name_is_answered_with_those_there_are() {
        let error = by_name("doom", None).unwrap_err().to_string();
        assert!(error.contains("\"doom\"") && error.contains("fir"), "{error}");
    }
}
