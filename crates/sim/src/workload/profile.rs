//! How a workload spreads over GPUs: accesses per GPU, pages by the number of GPUs that share
//! them, share of writes. For comparing generated workloads with recorded traces of the same
//! kernels; it knows no time.

use farside_types::PAGE_SIZE;

use super::lanes::Kernel;
use super::{Buffer, Cursor, Instruction, LINE_BYTES, Lines, Place, Workload};
use crate::Trace;

/// Most GPUs of a profile.
const GPUS_MAX: usize = 16;
/// Lines of a page.
const PAGE_LINES: u32 = (PAGE_SIZE as u64 / LINE_BYTES) as u32;

/// Accesses to data. The code, the arguments and the queue packets of kernels are left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Profile {
    /// Line accesses of each GPU.
    pub accesses: Vec<u64>,
    /// How many of all are writes.
    pub writes: u64,
    /// By buffer: how many pages no GPU touched, one did, two did, and so on.
    pub sharers: Vec<Vec<u64>>,
}

/// GPUs that touched each page of each buffer, a bit for each.
type Touched = Vec<Vec<u16>>;

impl Profile {
    /// Runs a workload, one work-group after the other, on up to 16 GPUs. `place` says where a
    /// work-group of a launch runs; `None` leaves it out.
    pub fn of_workload(
        workload: &dyn Workload,
        gpus: usize,
        place: impl Fn(u32, u32) -> Option<Place>,
    ) -> Profile {
        let gpus = gpus.min(GPUS_MAX);
        let mut profile = Profile { accesses: vec![0; gpus], ..Profile::default() };
        let mut touched = pages(workload.buffers().iter().map(|buffer| buffer.bytes));
        let buffers = BufferOfBlock::new(workload.buffers());
        let mut lines = Lines::new();
        for launch in 0..workload.launches() {
            let shape = workload.launch(launch);
            for group in 0..shape.groups {
                let Some(gpu) = place(launch, group).map(|place| usize::from(place.gpu) % gpus)
                else {
                    continue;
                };
                for wave in 0..shape.waves {
                    let mut at = Cursor { launch, group, wave, ..Cursor::default() };
                    loop {
                        lines.clear();
                        let instruction = workload.next(&mut at, &mut lines);
                        if instruction == Instruction::End {
                            break;
                        }
                        for line in lines.iter() {
                            let (buffer, first) = buffers.of(line.0);
                            if buffers.kernel[buffer] {
                                continue;
                            }
                            profile.accesses[gpu] += 1;
                            profile.writes += u64::from(instruction == Instruction::Store);
                            touched[buffer][((line.0 - first) / PAGE_LINES) as usize] |= 1 << gpu;
                        }
                    }
                }
            }
        }
        let data = touched.iter().zip(&buffers.kernel).filter(|(_, kernel)| !**kernel);
        profile.sharers = data.map(|(pages, _)| count(pages, gpus)).collect();
        profile
    }

    /// Counts what a trace recorded on up to 16 GPUs in its first `data` allocations; those after
    /// them are code, arguments and packets.
    pub fn of_trace(trace: &Trace, data: usize) -> Profile {
        let gpus = trace.gpus().min(GPUS_MAX);
        let allocations = &trace.allocations()[..data.min(trace.allocations().len())];
        let mut profile = Profile { accesses: vec![0; gpus], ..Profile::default() };
        let mut touched = pages(allocations.iter().map(|allocation| allocation.bytes));
        let mut firsts = Vec::with_capacity(touched.len());
        let mut end = 0;
        for pages in &touched {
            firsts.push(end);
            end += pages.len();
        }
        for launch in 0..trace.launches() {
            for gpu in 0..gpus {
                for unit in 0..trace.compute_units() {
                    for access in trace.stream(launch, gpu, unit) {
                        let page = access.page as usize;
                        if page >= end {
                            continue;
                        }
                        let buffer = firsts.partition_point(|&first| first <= page) - 1;
                        profile.accesses[gpu] += 1;
                        profile.writes += u64::from(access.write);
                        touched[buffer][page - firsts[buffer]] |= 1 << gpu;
                    }
                }
            }
        }
        profile.sharers = touched.iter().map(|pages| count(pages, gpus)).collect();
        profile
    }

    /// Pages of all buffers by the number of GPUs that touched them.
    pub fn pages_by_sharers(&self) -> Vec<u64> {
        let mut sum = vec![0; self.accesses.len() + 1];
        for counts in &self.sharers {
            sum.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
        }
        sum
    }

    /// Writes in percent of all accesses.
    pub fn write_percent(&self) -> f64 {
        100.0 * self.writes as f64 / self.accesses.iter().sum::<u64>().max(1) as f64
    }
}

/// The place that MGPUSim gives to work-group `group` of `groups`: each of `gpus` GPUs gets an
/// equal share of consecutive ones, and deals them out to its `units` compute units in turn.
pub fn in_shares(groups: u32, gpus: u8, units: u8, group: u32) -> Place {
    let share = groups.div_ceil(u32::from(gpus).max(1)).max(1);
    let unit = (group % share) % u32::from(units).max(1);
    Place { gpu: (group / share) as u8, unit: unit as u8 }
}

fn pages(bytes: impl Iterator<Item = u64>) -> Touched {
    bytes.map(|bytes| vec![0; bytes.div_ceil(PAGE_SIZE as u64) as usize]).collect()
}

fn count(pages: &[u16], gpus: usize) -> Vec<u64> {
    let mut counts = vec![0; gpus + 1];
    pages.iter().for_each(|touched| counts[touched.count_ones() as usize] += 1);
    counts
}

/// Finds the buffer of a line.
struct BufferOfBlock {
    first: Vec<u32>,
    /// By buffer: whether it belongs to a kernel.
    kernel: Vec<bool>,
}

impl BufferOfBlock {
    fn new(buffers: &[Buffer]) -> BufferOfBlock {
        let first = super::first_lines(buffers).iter().map(|line| line.0).collect();
        let kernel = buffers.iter().map(|buffer| Kernel::owns(buffer)).collect();
        BufferOfBlock { first, kernel }
    }

    /// Its number and first line.
    fn of(&self, line: u32) -> (usize, u32) {
        let buffer = self.first.partition_point(|&first| first <= line) - 1;
        (buffer, self.first[buffer])
    }
}
