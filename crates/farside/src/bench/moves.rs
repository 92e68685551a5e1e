//! User-managed moves: processor time there and back, and software time per page.

use farside::{Error, MemoryId, Space, TimeSpent};
use farside_live::card_memory::{CardMemory, copy_pages};
use farside_types::{FrameNo, PAGE_SIZE};

use super::{Effort, Row, Target, median, pin, processor_time, two_cpus};

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

/// Setup, allocate and finalize between two looks, in microseconds.
fn software_time(before: TimeSpent, after: TimeSpent) -> f64 {
    let sum = |t: TimeSpent| t.setup + t.allocate + t.finalize;
    (sum(after) - sum(before)).as_micros_f64()
}

fn software(space: &Space, effort: Effort) -> Result<Vec<Row>, Error> {
    let mut buffer = space.alloc::<u64>(LARGE / 8)?;
    let (first, second) = (space.card(0)?.into(), space.card(1)?.into());
    let pages = (LARGE / PAGE_SIZE) as f64;
    let mut samples: [Vec<f64>; 3] = Default::default();
    for round in 0..2 * effort.samples {
        buffer.fill(round as u64 + 1);
        let route: [MemoryId; 3] = [first, second, MemoryId::HOST];
        for (step, to) in route.into_iter().enumerate() {
            let before = space.report().times;
            space.migrate(&buffer, to)?;
            samples[step].push(software_time(before, space.report().times) / pages);
        }
    }
    let [out, across, back] = samples.map(median);
    let row = |name, reached: f64, most| {
        let detail = format!("32 MB; the paper's driver: 0.37 µs; {:.0} ns", reached * 1e3);
        Row::new(name, reached, Target::AtMost(most), "µs/page", detail)
    };
    Ok(vec![
        row("software time per page, card → card", across, 0.03),
        row("software time per page, host → card", out, 0.15),
        row("software time per page, card → host", back, 0.25),
    ])
}
