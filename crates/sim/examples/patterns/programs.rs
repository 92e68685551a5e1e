//! The patterns. Each GPU runs 64 wavefronts, on 16 compute units; an instruction accesses four lines beside each other, and is
//! waited for. Where a pattern has several phases, each is a launch.

use std::ops::Range;

use farside_workloads::{BLOCK_LINES, Group, Line, Place, Script, Step};

const UNITS: u32 = 16;
const WAVES: u32 = 4;
const WORKERS: u32 = UNITS * WAVES;
const PAGE_LINES: u32 = 64;
/// Lines of an instruction whose lanes access words beside each other.
const WIDTH: u32 = 4;
/// Pages of a 2 MiB block.
const BLOCK: u32 = BLOCK_LINES / PAGE_LINES;
/// Pages of the data of most patterns: 4 MiB.
const PAGES: u32 = 1024;

/// A program and how much of its data each GPU can hold.
pub(crate) struct Pattern {
    pub(crate) name: &'static str,
    pub(crate) capacity_percent: u32,
    pub(crate) program: Script,
}

/// What is done with a line.
#[derive(Clone, Copy)]
enum Use {
    Read,
    Write,
    Update,
}

use Use::{Read, Update, Write};

/// Numbers that look drawn (splitmix64, Steele et al., OOPSLA 2014).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u32) -> u32 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) % u64::from(limit)) as u32
    }
}

/// A wavefront in the making.
struct Wave {
    gpu: u32,
    /// Its number among those of its GPU.
    index: u32,
    random: Random,
    steps: Vec<Step>,
}

impl Wave {
    /// So many lines from this one of the page.
    fn access(&mut self, page: u32, line: u32, count: u32, how: Use) {
        let lines: Vec<Line> =
            (line..line + count).map(|it| Line(page * PAGE_LINES + it)).collect();
        if !matches!(how, Write) {
            self.steps.extend([Step::Load(lines.clone()), Step::Wait]);
        }
        self.steps.push(Step::Compute(20));
        if !matches!(how, Read) {
            self.steps.push(Step::Store(lines));
        }
    }

    /// Its share of these pages, whole: the wavefronts of a GPU take them in turns.
    fn sweep(&mut self, pages: Range<u32>, how: Use) {
        for page in pages.skip(self.index as usize).step_by(WORKERS as usize) {
            (0..PAGE_LINES)
                .step_by(WIDTH as usize)
                .for_each(|line| self.access(page, line, WIDTH, how));
        }
    }

    /// Lines of these pages at random, one at a time.
    fn scatter(&mut self, pages: &Range<u32>, count: u32, how: Use) {
        for _ in 0..count {
            let page = pages.start + self.random.below(pages.len() as u32);
            let line = self.random.below(PAGE_LINES);
            self.access(page, line, 1, how);
        }
    }
}

/// A program of launches; each says what every wavefront does.
struct Program {
    gpus: u32,
    script: Script,
    launches: u64,
}

impl Program {
    fn new(name: &str, gpus: u32, pages: &[u32]) -> Program {
        let bytes: Vec<u64> = pages.iter().map(|&pages| u64::from(pages) * 4096).collect();
        Program { gpus, script: Script::new(name, &bytes), launches: 0 }
    }

    fn launch(&mut self, mut body: impl FnMut(&mut Wave)) {
        self.launches += 1;
        let mut groups = Vec::new();
        for (gpu, unit) in (0..self.gpus).flat_map(|gpu| (0..UNITS).map(move |unit| (gpu, unit))) {
            let waves = (0..WAVES).map(|wave| {
                let index = unit * WAVES + wave;
                let seed = self.launches << 32 | u64::from(gpu << 16 | index);
                let mut wave = Wave { gpu, index, random: Random(seed), steps: Vec::new() };
                body(&mut wave);
                wave.steps
            });
            let place = Place { gpu: gpu as u8, unit: unit as u8 };
            groups.push(Group { place: Some(place), waves: waves.collect() });
        }
        self.script = std::mem::take(&mut self.script).with_launch(groups);
    }

    /// The part of so many pages that a GPU has when they are dealt out in equal parts.
    fn part(&self, gpu: u32, pages: u32) -> Range<u32> {
        let each = pages / self.gpus;
        let gpu = gpu % self.gpus;
        gpu * each..(gpu + 1) * each
    }

    fn ends(self, name: &'static str, capacity_percent: u32) -> Pattern {
        Pattern { name, capacity_percent, program: self.script }
    }
}

/// Each GPU scans a half of its own part, and uses a line of the first pages, which all have, for each instruction.
fn scan(program: &Program, launch: u32, wave: &mut Wave, common: u32, how: Use) {
    let part = program.part(wave.gpu, PAGES - common);
    let half = part.len() as u32 / 2;
    let start = common + part.start + launch * half;
    for page in (start..start + half).skip(wave.index as usize).step_by(WORKERS as usize) {
        for line in (0..PAGE_LINES).step_by(WIDTH as usize) {
            wave.access(page, line, WIDTH, Read);
            wave.scatter(&(0..common), 1, how);
        }
    }
}

/// One buffer, a body for each launch.
fn of(
    name: &'static str,
    gpus: u32,
    pages: u32,
    launches: u32,
    body: impl Fn(&Program, u32, &mut Wave),
) -> Pattern {
    within(name, gpus, pages, launches, 100, body)
}

/// The same, where each GPU holds so many per cent of the data.
fn within(
    name: &'static str,
    gpus: u32,
    pages: u32,
    launches: u32,
    percent: u32,
    body: impl Fn(&Program, u32, &mut Wave),
) -> Pattern {
    let mut program = Program::new(name, gpus, &[pages]);
    for launch in 0..launches {
        let shape = Program { gpus, script: Script::default(), launches: 0 };
        program.launch(|wave| body(&shape, launch, wave));
    }
    program.ends(name, percent)
}

/// Moves a range behind the first buffer, which has so many pages.
fn second(pages: Range<u32>, first: u32) -> Range<u32> {
    let from = first.div_ceil(BLOCK) * BLOCK;
    pages.start + from..pages.end + from
}

/// All patterns for so many GPUs.
pub(crate) fn all(gpus: u32) -> Vec<Pattern> {
    let mut all = handed_on(gpus);
    all.extend(shared(gpus));
    all.extend(scattered(gpus));
    all.extend(too_large(gpus));
    all
}

/// What belongs to one GPU at a time.
fn handed_on(gpus: u32) -> Vec<Pattern> {
    vec![
        // Each GPU goes over its own part, again and again.
        of("private", gpus, PAGES, 6, |it, _, wave| wave.sweep(it.part(wave.gpu, PAGES), Update)),
        // Each GPU writes its part of a ring, the next one reads it.
        of("ring", gpus, PAGES, 12, |it, launch, wave| match launch % 2 {
            0 => wave.sweep(it.part(wave.gpu, PAGES), Write),
            _ => wave.sweep(it.part(wave.gpu + 1, PAGES), Read),
        }),
        // The same without launches between: all stages of a pipeline at once.
        of("pipeline", gpus, PAGES, 1, |it, _, wave| {
            for _ in 0..4 {
                wave.sweep(it.part(wave.gpu, PAGES), Read);
                wave.sweep(it.part(wave.gpu + 1, PAGES), Write);
            }
        }),
        // The GPUs take turns with a block.
        of("block", gpus, BLOCK, 12, |it, launch, wave| {
            if launch % it.gpus == wave.gpu {
                wave.sweep(0..BLOCK, Update);
            }
        }),
        // Who owns which part changes every four launches.
        of("owners", gpus, PAGES, 16, |it, launch, wave| {
            wave.sweep(it.part(wave.gpu + launch / 4, PAGES), Update)
        }),
        // All pages of one part after the other are reduced to half of them, until one GPU is left.
        of("tree", gpus, PAGES, 4 * (gpus.ilog2() + 1), |it, launch, wave| {
            let level = launch % (gpus.ilog2() + 1);
            if wave.gpu % (1 << level) == 0 {
                let partner = wave.gpu + (1 << level >> 1);
                wave.sweep(it.part(partner, PAGES), Read);
                wave.sweep(it.part(wave.gpu, PAGES), Update);
            }
        }),
        // Rows are written, columns of blocks are read: everyone reads from everyone.
        of("transpose", gpus, PAGES, 8, |it, launch, wave| {
            let own = it.part(wave.gpu, PAGES);
            if launch % 2 == 0 {
                return wave.sweep(own, Update);
            }
            let tile = own.len() as u32 / it.gpus;
            for from in 0..it.gpus {
                let start = it.part(from, PAGES).start + wave.gpu * tile;
                wave.sweep(start..start + tile, Read);
            }
        }),
    ]
}

/// What several GPUs use at a time.
fn shared(gpus: u32) -> Vec<Pattern> {
    vec![
        // One page that all GPUs update all the time.
        of("page", gpus, 64, 1, |_, _, wave| wave.scatter(&(0..1), 32, Update)),
        // Each GPU updates its own lines of pages that all have a part of.
        of("lines", gpus, 128, 8, |it, _, wave| {
            let each = PAGE_LINES / it.gpus;
            for page in (0..128).skip(wave.index as usize).step_by(WORKERS as usize) {
                let first = wave.gpu * each;
                (first..first + each).for_each(|line| wave.access(page, line, 1, Update));
            }
        }),
        // Pages belong to the GPUs in turn.
        of("turns", gpus, PAGES, 6, |it, _, wave| {
            let own = (wave.gpu..PAGES).step_by(it.gpus as usize);
            for page in own.skip(wave.index as usize).step_by(WORKERS as usize) {
                (0..PAGE_LINES)
                    .step_by(WIDTH as usize)
                    .for_each(|line| wave.access(page, line, WIDTH, Update));
            }
        }),
        // A grid in parts: each step reads two pages of each neighbour as well, and writes the other grid.
        of("halos", gpus, 2 * PAGES, 12, |it, launch, wave| {
            let grid = |odd| if odd % 2 == 0 { 0..PAGES } else { second(0..PAGES, PAGES) };
            let (from, to) = (grid(launch).start, grid(launch + 1).start);
            let own = it.part(wave.gpu, PAGES);
            let (first, end) = (own.start.saturating_sub(2), (own.end + 2).min(PAGES));
            wave.sweep(from + first..from + end, Read);
            wave.sweep(to + own.start..to + own.end, Write);
        }),
        // A table that all read and one GPU writes now and then.
        of("read-mostly", gpus, PAGES, 4, |_, _, wave| {
            for turn in 0..64 {
                wave.scatter(&(0..PAGES), 4, Read);
                if wave.gpu == 0 && turn % 16 == 0 {
                    wave.scatter(&(0..PAGES), 1, Write);
                }
            }
        }),
        // One GPU writes what then all read.
        of("broadcast", gpus, 128, 16, |_, launch, wave| match launch % 2 {
            0 if wave.gpu == 0 => wave.sweep(0..128, Write),
            0 => (),
            _ => wave.sweep(0..128, Read),
        }),
        // Each GPU writes its part, then everyone reads all of it.
        of("gather", gpus, 512, 8, |it, launch, wave| match launch % 2 {
            0 => wave.sweep(it.part(wave.gpu, 512), Update),
            _ => wave.sweep(0..512, Read),
        }),
        // A few pages that all read all the time, beside a scan of one's own.
        of("hot-cold", gpus, PAGES, 2, |it, launch, wave| scan(it, launch, wave, 16, Read)),
        // Each GPU counts what it scans in eight pages of all.
        of("histogram", gpus, PAGES, 2, |it, launch, wave| scan(it, launch, wave, 8, Update)),
        // A step of a factorisation: all read the pivot, everyone updates the part of what is left that is his.
        of("pivot", gpus, 512, 16, |it, launch, wave| {
            let width = 512 / 16;
            wave.sweep(launch * width..(launch + 1) * width, Read);
            for block in launch + 1..16 {
                if block % it.gpus == wave.gpu {
                    wave.sweep(block * width..(block + 1) * width, Update);
                }
            }
        }),
    ]
}

/// Accesses without an order.
fn scattered(gpus: u32) -> Vec<Pattern> {
    vec![
        // One line of each page, once.
        of("once", gpus, 2 * PAGES, 1, |it, _, wave| {
            let own = it.part(wave.gpu, 2 * PAGES);
            own.skip(wave.index as usize)
                .step_by(WORKERS as usize)
                .for_each(|page| wave.access(page, 0, 1, Read));
        }),
        // A pointer is chased through all of the data by one wavefront of each compute unit.
        of("chase", gpus, PAGES, 2, |_, _, wave| {
            if wave.index % WAVES == 0 {
                wave.scatter(&(0..PAGES), 400, Read);
            }
        }),
        // Random reads, few pages of which get most.
        of("zipf", gpus, PAGES, 2, |_, _, wave| {
            for _ in 0..200 {
                let limit = wave.random.below(PAGES) + 1;
                let page = wave.random.below(limit);
                let page = wave.random.below(page + 1);
                wave.access(page, page % PAGE_LINES, 1, Read);
            }
        }),
        // Random updates of all of the data.
        of("updates", gpus, PAGES, 2, |_, _, wave| wave.scatter(&(0..PAGES), 200, Update)),
        // Own rows, gathered from a vector of all: a sparse matrix times a vector that is then written.
        of("sparse", gpus, PAGES, 6, |it, _, wave| {
            let own = it.part(wave.gpu, PAGES - 64);
            for page in
                (own.start + 64..own.end + 64).skip(wave.index as usize).step_by(WORKERS as usize)
            {
                for line in (0..PAGE_LINES).step_by(WIDTH as usize) {
                    wave.access(page, line, WIDTH, Read);
                    wave.scatter(&(0..64), 2, Read);
                }
            }
            wave.sweep(it.part(wave.gpu, 64), Write);
        }),
    ]
}

/// Data of which a GPU holds half of what it uses.
fn too_large(gpus: u32) -> Vec<Pattern> {
    vec![
        within("stream-2x", gpus, 2 * PAGES, 3, 50 / gpus, |it, _, wave| {
            wave.sweep(it.part(wave.gpu, 2 * PAGES), Read);
        }),
        within("update-2x", gpus, 2 * PAGES, 3, 50 / gpus, |it, _, wave| {
            wave.sweep(it.part(wave.gpu, 2 * PAGES), Update);
        }),
        within("chase-2x", gpus, PAGES, 2, 50, |_, _, wave| {
            if wave.index % WAVES == 0 {
                wave.scatter(&(0..PAGES), 400, Read);
            }
        }),
    ]
}
