//! User-managed moves: processor time there and back, and the software's time beside a page's copy and
//! the kernel's bare calls.

use farside::{Error, LiveError, MemoryId, Space, TimeSpent};
use farside_linux::card_memory::{CardMemory, copy_pages};
use farside_live::arena::Arena;
use farside_types::{FrameNo, PAGE_SIZE, Rights, Span};

use super::counts::Counts;
use super::{Effort, Row, Target, median, pin, processor_time, timed, two_cpus};

const BLOCK: usize = 2 << 20;
const LARGE: usize = 32 << 20;
/// Pages of it.
const PAGES: f64 = (LARGE / PAGE_SIZE) as f64;

pub(crate) fn run(effort: Effort) -> Result<Vec<Row>, Error> {
    let (program, server) = two_cpus();
    let space = {
        let _pinned = pin(server);
        Space::builder().cards(2).card_memory(2 * LARGE as u64).warm(true).build()?
    };
    let _pinned = pin(program);
    let mut rows = there_and_back(&space, effort)?;
    rows.push(adopted(&space, effort)?);
    rows.extend(software(&space, effort)?);
    Ok(rows)
}

/// A block goes to a card and back by each kind of pages, in turns with two memcpys and the bare calls.
fn there_and_back(space: &Space, effort: Effort) -> Result<Vec<Row>, Error> {
    let card = space.card(0)?;
    let mut large = space.alloc_large::<u64>(BLOCK / 8, "large")?;
    let mut small = space.alloc::<u64>(BLOCK / 8)?;
    let bare = Bare::new(BLOCK)?;
    let (mut ours, mut copies, mut calls) = ([Vec::new(), Vec::new()], Vec::new(), Vec::new());
    for buffer in [&mut large, &mut small] {
        buffer.fill(1);
    }
    let before = Counts::of(space);
    for _ in 0..8 * effort.samples {
        for (kind, buffer) in [&mut large, &mut small].into_iter().enumerate() {
            buffer[0] += 1;
            let mut moved = Ok(0);
            ours[kind].push(processor_time(|| {
                moved =
                    space.migrate(buffer, card).and_then(|_| space.migrate(buffer, MemoryId::HOST));
            }));
            moved?;
        }
        copies.push(processor_time(|| bare.copy_there_and_back()));
        let [unmap, map, _] = bare.measure()?;
        calls.push((unmap + map) * 1e-9 * bare.pages());
    }
    let [large, small] = ours.map(|samples| median(samples) * 1e6);
    let (copies, calls) = (median(copies) * 1e6, median(calls) * 1e6);
    let detail = format!("{large:.0} µs of processor time; two memcpys {copies:.0} µs");
    let name = "2 MiB there and back, idle card, large pages";
    let by_large = Row::new(name, large / copies, Target::AtMost(1.3), "x memcpy", detail);
    let detail = format!(
        "{small:.0} µs of processor time; two memcpys {copies:.0} µs, `madvise` and \
         `UFFDIO_CONTINUE` {calls:.0} µs"
    );
    let name = "2 MiB there and back, idle card, pages of 4 KiB";
    let limit = "x memcpy and bare calls";
    let by_small = Row::new(name, small / (copies + calls), Target::AtMost(1.3), limit, detail);
    let counts = Counts::of(space).since(&before);
    Ok(vec![by_large.counting(counts.clone()), by_small.counting(counts)])
}

/// Memory of the program's own goes to a card and back, in turns with two memcpys.
fn adopted(space: &Space, effort: Effort) -> Result<Row, Error> {
    let card = space.card(0)?;
    let mut memory = vec![1u64; (BLOCK + PAGE_SIZE) / 8];
    let skip = memory.as_ptr().align_offset(PAGE_SIZE);
    let mut block = space.adopt(&mut memory[skip..skip + BLOCK / 8], "adopted")?;
    let bare = Bare::new(BLOCK)?;
    let (mut ours, mut copies) = (Vec::new(), Vec::new());
    let before = Counts::of(space);
    for _ in 0..8 * effort.samples {
        block[0] += 1;
        let mut moved = Ok(0);
        ours.push(processor_time(|| {
            moved = space.migrate(&block, card).and_then(|_| space.migrate(&block, MemoryId::HOST));
        }));
        moved?;
        copies.push(processor_time(|| bare.copy_there_and_back()));
    }
    let (ours, copies) = (median(ours) * 1e6, median(copies) * 1e6);
    let detail = format!("{ours:.0} µs of processor time; two memcpys {copies:.0} µs");
    let name = "2 MiB there and back, idle card, adopted memory";
    let row = Row::new(name, ours / copies, Target::AtMost(2.2), "x memcpy", detail);
    Ok(row.counting(Counts::of(space).since(&before)))
}

/// Software time of one move, in nanoseconds per page.
#[derive(Clone, Copy)]
struct Software {
    plan: f64,
    command: f64,
    setup: f64,
    finalize: f64,
}

impl Software {
    fn between(before: TimeSpent, after: TimeSpent) -> Software {
        let each = |span: Span| span.as_nanos() as f64 / PAGES;
        Software {
            plan: each(after.plan - before.plan),
            command: each(after.command - before.command),
            setup: each(after.setup - before.setup),
            finalize: each(after.finalize - before.finalize),
        }
    }

    fn sum(&self) -> f64 {
        self.plan + self.command + self.setup + self.finalize
    }
}

/// The sample whose sum is the median.
fn middle(mut samples: Vec<Software>) -> Software {
    samples.sort_by(|a, b| a.sum().total_cmp(&b.sum()));
    samples[samples.len() / 2]
}

fn software(space: &Space, effort: Effort) -> Result<Vec<Row>, Error> {
    let mut buffer = space.alloc::<u64>(LARGE / 8)?;
    let (first, second) = (space.card(0)?.into(), space.card(1)?.into());
    let bare = Bare::new(LARGE)?;
    let mut samples: [Vec<Software>; 3] = Default::default();
    let mut limits: [Vec<f64>; 3] = Default::default();
    let before = Counts::of(space);
    for round in 0..2 * effort.samples {
        buffer.fill(round as u64 + 1);
        let route: [MemoryId; 3] = [first, second, MemoryId::HOST];
        for (step, to) in route.into_iter().enumerate() {
            let before = space.report().times;
            space.migrate(&buffer, to)?;
            samples[step].push(Software::between(before, space.report().times));
        }
        let measured = bare.measure()?;
        limits.iter_mut().zip(measured).for_each(|(limit, sample)| limit.push(sample));
    }
    let counts = Counts::of(space).since(&before);
    let [out, across, back] = samples.map(middle);
    let [unmap, map, copy] = limits.map(median);
    let driver = |name, time: Software| {
        let detail = format!("{:.0} ns; to copy a page {copy:.0} ns", time.plan);
        let row = Row::new(name, time.plan / copy, Target::AtMost(0.1), "x copy", detail);
        row.counting(counts.clone())
    };
    let software = |name, time: Software, call: f64, what: &str| {
        let detail = format!(
            "planning {:.0} + commands {:.0} + setup {:.0} + finalize {:.0} ns; {what} alone {call:.0} ns",
            time.plan, time.command, time.setup, time.finalize
        );
        Row::new(name, time.sum() / call, Target::AtMost(1.15), "x bare calls", detail)
    };
    Ok(vec![
        driver("driver's part of a page of 32 MB, card → card", across),
        driver("driver's part of a page of 32 MB, host → card", out),
        driver("driver's part of a page of 32 MB, card → host", back),
        software("a page of 32 MB but its copy, host → card", out, unmap, "`madvise`"),
        software("a page of 32 MB but its copy, card → host", back, map, "`UFFDIO_CONTINUE`"),
    ])
}

/// What a move cannot do without: the kernel's calls, and a copy between warm memories.
struct Bare {
    arena: Arena,
    from: CardMemory,
    to: CardMemory,
}

impl Bare {
    fn new(bytes: usize) -> Result<Bare, LiveError> {
        let arena = Arena::new(bytes as u64)?;
        arena.map_zero(arena.pages(), Rights::ReadWrite)?;
        let memory = || {
            let frames = (bytes / PAGE_SIZE) as u32;
            let memory = CardMemory::new(frames)?;
            memory.warm(FrameNo(0), frames)?;
            Ok::<_, LiveError>(memory)
        };
        Ok(Bare { arena, from: memory()?, to: memory()? })
    }

    fn pages(&self) -> f64 {
        self.arena.pages().count as f64
    }

    fn copy_there_and_back(&self) {
        for (from, to) in [(&self.from, &self.to), (&self.to, &self.from)] {
            // SAFETY: both memories have that many pages, and nothing else uses them.
            unsafe { copy_pages(from.base(), to.base(), self.pages() as usize) };
        }
    }

    /// To unmap and to map pages that were touched, and to copy them, in nanoseconds per page.
    fn measure(&self) -> Result<[f64; 3], LiveError> {
        let pages = self.arena.pages();
        let alias = self.arena.alias_ptr(pages)?;
        let program = self.arena.program_ptr(pages.start)?;
        for start in [alias, program] {
            // SAFETY: all pages are mapped in both mappings, and nothing else uses them.
            unsafe { start.as_ptr().write_bytes(1, pages.bytes() as usize) };
        }
        let mut outcome = Ok(());
        let unmap = timed(|| outcome = self.arena.unmap(pages));
        outcome?;
        let mut outcome = Ok(Default::default());
        let map = timed(|| outcome = self.arena.map(pages, Rights::ReadWrite));
        outcome?;
        // SAFETY: both memories have that many pages, and nothing else uses them.
        let copy = timed(|| unsafe {
            copy_pages(self.from.base(), self.to.base(), pages.count as usize);
        });
        Ok([unmap, map, copy].map(|seconds| seconds * 1e9 / self.pages()))
    }
}
