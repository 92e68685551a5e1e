//! How a workload spreads over GPUs: accesses per GPU, pages by the number of GPUs that share
//! them, share of writes. For comparing generated workloads with recorded traces of the same
//! kernels; it knows no time.

use farside_types::PAGE_SIZE;

use super::lanes::Kernel;
use super::{Buffer, Cursor, Instruction, LINE_BYTES, Lines, Place, Workload, first_lines};
use crate::Trace;
use crate::order::accesses;

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
    /// How many of all go to pages that several GPUs touch.
    pub to_shared: u64,
    /// By buffer: how many pages no GPU touched, one did, two did, and so on.
    pub sharers: Vec<Vec<u64>>,
}

/// What happened to a page.
#[derive(Clone, Copy, Default)]
struct Page {
    /// GPUs that touched it, a bit for each.
    gpus: u16,
    accesses: u64,
}

/// The pages of each buffer.
type Pages = Vec<Vec<Page>>;

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
        let mut pages = untouched(workload.buffers().iter().map(|buffer| buffer.bytes));
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
                            let page = &mut pages[buffer][((line.0 - first) / PAGE_LINES) as usize];
                            profile.take(gpu, instruction == Instruction::Store, page);
                        }
                    }
                }
            }
        }
        let data = pages.iter().zip(&buffers.kernel).filter(|(_, kernel)| !**kernel);
        data.for_each(|(pages, _)| profile.finish(pages));
        profile
    }

    /// Counts what a trace recorded on up to 16 GPUs in its first `data` allocations; those after
    /// them are code, arguments and packets.
    pub fn of_trace(trace: &Trace, data: usize) -> Profile {
        let gpus = trace.gpus().min(GPUS_MAX);
        let buffers = &trace.buffers()[..data.min(trace.buffers().len())];
        let mut profile = Profile { accesses: vec![0; gpus], ..Profile::default() };
        let mut pages = untouched(buffers.iter().map(|buffer| buffer.bytes));
        let firsts = first_lines(trace.buffers());
        for access in accesses(trace, gpus as u32, trace.compute_units() as u32) {
            let buffer = firsts.partition_point(|first| *first <= access.line) - 1;
            if let Some(pages) = pages.get_mut(buffer) {
                let page = (access.line.0 - firsts[buffer].0) / PAGE_LINES;
                let gpu = usize::from(access.place.gpu);
                profile.take(gpu, access.write, &mut pages[page as usize]);
            }
        }
        pages.iter().for_each(|pages| profile.finish(pages));
        profile
    }

    /// Counts an access.
    fn take(&mut self, gpu: usize, write: bool, page: &mut Page) {
        self.accesses[gpu] += 1;
        self.writes += u64::from(write);
        page.gpus |= 1 << gpu;
        page.accesses += 1;
    }

    /// Counts the pages of a buffer when all accesses are.
    fn finish(&mut self, pages: &[Page]) {
        let mut counts = vec![0; self.accesses.len() + 1];
        for page in pages {
            let sharers = page.gpus.count_ones();
            counts[sharers as usize] += 1;
            self.to_shared += if sharers > 1 { page.accesses } else { 0 };
        }
        self.sharers.push(counts);
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
        self.percent(self.writes)
    }

    /// Accesses to shared pages in percent of all.
    pub fn to_shared_percent(&self) -> f64 {
        self.percent(self.to_shared)
    }

    fn percent(&self, part: u64) -> f64 {
        100.0 * part as f64 / self.accesses.iter().sum::<u64>().max(1) as f64
    }
}

/// The place that MGPUSim gives to work-group `group` of `groups`: each of `gpus` GPUs gets an
/// equal share of consecutive ones, and deals them out to its `units` compute units in turn.
pub fn in_shares(groups: u32, gpus: u8, units: u8, group: u32) -> Place {
    let share = groups.div_ceil(u32::from(gpus).max(1)).max(1);
    let unit = (group % share) % u32::from(units).max(1);
    Place { gpu: (group / share) as u8, unit: unit as u8 }
}

fn untouched(bytes: impl Iterator<Item = u64>) -> Pages {
    bytes.map(|bytes| vec![Page::default(); bytes.div_ceil(PAGE_SIZE as u64) as usize]).collect()
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
        let kernel = buffers.iter().map(Kernel::owns).collect();
        BufferOfBlock { first, kernel }
    }

    /// Its number and first line.
    fn of(&self, line: u32) -> (usize, u32) {
        let buffer = self.first.partition_point(|&first| first <= line) - 1;
        (buffer, self.first[buffer])
    }
}

#[cfg(test)]
mod tests {
    use super::super::fir::Fir;
    use super::super::mm::{Mm, RowsOfA};
    use super::super::st::St;
    use super::*;

    /// Compares a workload with an excerpt of a trace of the same kernel, of which the compute
    /// units are kept that `kept` names.
    fn agrees(trace: &Trace, data: usize, workload: &dyn Workload, kept: fn(u8) -> bool) {
        let recorded = Profile::of_trace(trace, data);
        let generated = Profile::of_workload(workload, 4, |launch, group| {
            let groups = workload.launch(launch).groups;
            Some(in_shares(groups, 4, 64, group)).filter(|place| kept(place.unit))
        });
        assert_eq!(workload.launches() as usize, trace.launches());
        assert!(recorded.accesses.iter().all(|&accesses| accesses > 1000), "{recorded:?}");
        assert_eq!(generated, recorded, "{}", workload.name());
    }

    #[test]
    fn fir_is_the_recorded_one() {
        let description = include_str!("../fixtures/fir.json");
        let stream = &include_bytes!("../fixtures/fir.bin.zst")[..];
        let trace = Trace::read("fir", description, stream).unwrap();
        agrees(&trace, 4, &Fir::new(1 << 20), |unit| !(4..60).contains(&unit));
    }

    #[test]
    fn mm_is_the_recorded_one() {
        let mm = Mm::new(3 << 20, RowsOfA::First);
        agrees(&Trace::bundled("mm").unwrap(), 3, &mm, |unit| unit % 16 == 0);
    }

    #[test]
    fn st_is_the_recorded_one() {
        let st = St::new(2_171_136, 3);
        agrees(&Trace::bundled("st").unwrap(), 2, &st, |unit| unit % 8 == 0);
    }

    #[test]
    fn a_multiplication_with_its_own_rows_reads_the_whole_of_a() {
        let mm = Mm::new(3 << 20, RowsOfA::Own);
        let profile = Profile::of_workload(&mm, 4, |_, group| Some(in_shares(256, 4, 64, group)));
        // Each GPU has its own rows of A and C, and all read B.
        let matrix = 256;
        let private = vec![0, matrix, 0, 0, 0];
        assert_eq!(profile.sharers, [private.clone(), vec![0, 0, 0, 0, matrix], private]);
    }
}
