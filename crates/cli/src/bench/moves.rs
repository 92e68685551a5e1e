//! User-managed moves: processor time there and back, and software time per page.

use farside::{Error, MemoryId, Space, TimeSpent};
use farside_linux::card_memory::{CardMemory, copy_pages};
use farside_live::arena::Arena;
use farside_types::{FrameNo, PAGE_SIZE, Rights};

use super::{Effort, Row, Target, median, pin, processor_time, timed, two_cpus};

const BLOCK: usize = 2 << 20;
const LARGE: usize = 32 << 20;

pub(crate) fn run(effort: Effort) -> Result<Vec<Row>, Error> {
    let (program, server) = two_cpus();
    let space = {
        let _pinned = pin(server);
        Space::builder().cards(2).card_memory(2 * LARGE as u64).warm(true).build()?
    };
    let _pinned = pin(program);
    let mut rows = vec![there_and_back(&space, effort)?];
    rows.extend(software(&space, effort)?);
    Ok(rows)
}

fn there_and_back(space: &Space, effort: Effort) -> Result<Row, Error> {
    let pages = (BLOCK / PAGE_SIZE) as u32;
    let (a, b) = (CardMemory::new(pages), CardMemory::new(pages));
    let (a, b) = (a.map_err(farside::LiveError::from)?, b.map_err(farside::LiveError::from)?);
    for memory in [&a, &b] {
        memory.warm(FrameNo(0), pages).map_err(farside::LiveError::from)?;
    }
    let mut buffer = space.alloc::<u64>(BLOCK / 8)?;
    buffer.fill(1);
    let card = space.card(0)?;
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..8 * effort.samples {
        buffer[0] += 1;
        let mut moved = Ok(0);
        ours.push(processor_time(|| {
            moved =
                space.migrate(&buffer, card).and_then(|_| space.migrate(&buffer, MemoryId::HOST));
        }));
        moved?;
        theirs.push(processor_time(|| {
            for (from, to) in [(&a, &b), (&b, &a)] {
                // SAFETY: both memories have `pages` pages, and nothing else touches them.
                unsafe { copy_pages(from.base(), to.base(), pages as usize) };
            }
        }));
    }
    let (ours, theirs) = (median(ours) * 1e6, median(theirs) * 1e6);
    let detail = format!("{ours:.0} µs of processor time; two memcpys {theirs:.0} µs");
    let name = "user-managed 2 MiB there and back, idle card";
    Ok(Row::new(name, ours / theirs, Target::AtMost(3.2), "x memcpy", detail))
}

/// Software time of one move, in microseconds per page.
#[derive(Clone, Copy)]
struct Software {
    setup: f64,
    allocate: f64,
    finalize: f64,
}

impl Software {
    fn between(before: TimeSpent, after: TimeSpent, pages: f64) -> Software {
        Software {
            setup: (after.setup - before.setup).as_micros_f64() / pages,
            allocate: (after.allocate - before.allocate).as_micros_f64() / pages,
            finalize: (after.finalize - before.finalize).as_micros_f64() / pages,
        }
    }

    fn sum(&self) -> f64 {
        self.setup + self.allocate + self.finalize
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
    let pages = (LARGE / PAGE_SIZE) as f64;
    let mut samples: [Vec<Software>; 3] = Default::default();
    for round in 0..2 * effort.samples {
        buffer.fill(round as u64 + 1);
        let route: [MemoryId; 3] = [first, second, MemoryId::HOST];
        for (step, to) in route.into_iter().enumerate() {
            let before = space.report().times;
            space.migrate(&buffer, to)?;
            samples[step].push(Software::between(before, space.report().times, pages));
        }
    }
    let [out, across, back] = samples.map(middle);
    let row = |name, time: Software, most| {
        let ns = |micros: f64| micros * 1e3;
        let detail = format!(
            "setup {:.0} + allocate {:.0} + finalize {:.0} ns at 32 MB; the paper's driver 370 ns",
            ns(time.setup),
            ns(time.allocate),
            ns(time.finalize)
        );
        Row::new(name, time.sum(), Target::AtMost(most), "µs/page", detail)
    };
    let (unmap, map) = kernel_calls(effort)?;
    let out_floor = format!("; the kernel's unmap alone {unmap:.0} ns");
    let back_floor = format!("; the kernel's map alone {map:.0} ns");
    Ok(vec![
        row("software time per page, card → card", across, 0.03),
        row("software time per page, host → card", out, 0.15).noting(&out_floor),
        row("software time per page, card → host", back, 0.25).noting(&back_floor),
    ])
}

/// What the kernel takes to unmap and to map 32 MB that were touched, in nanoseconds per page: the
/// floor of moves between host and card.
fn kernel_calls(effort: Effort) -> Result<(f64, f64), Error> {
    let arena = Arena::new(LARGE as u64).map_err(farside::LiveError::from)?;
    let pages = arena.pages();
    arena.map_zero(pages, Rights::ReadWrite).map_err(farside::LiveError::from)?;
    let alias = arena.alias_ptr(pages).map_err(farside::LiveError::from)?;
    let program = arena.program_ptr(pages.start).map_err(farside::LiveError::from)?;
    let (mut unmaps, mut maps) = (Vec::new(), Vec::new());
    for _ in 0..2 * effort.samples {
        for start in [alias, program] {
            // SAFETY: all pages are mapped in both mappings, and nothing else uses them.
            unsafe { start.as_ptr().write_bytes(1, LARGE) };
        }
        let mut outcome = Ok(());
        unmaps.push(timed(|| outcome = arena.unmap(pages)));
        outcome.map_err(farside::LiveError::from)?;
        let mut outcome = Ok(Default::default());
        maps.push(timed(|| outcome = arena.map(pages, Rights::ReadWrite)));
        outcome.map_err(farside::LiveError::from)?;
    }
    let per_page = |samples| median(samples) * 1e9 / pages.count as f64;
    Ok((per_page(unmaps), per_page(maps)))
}
