//! Host faults: one page of an idle card, first touch, and sequential touch with fault-around.

use std::time::Instant;

use farside::{Buffer, Error, Space};
use farside_types::{PAGE_SIZE, PageRange};

use super::counts::Counts;
use super::raw::{Raw, Resolve};
use super::{Effort, Row, Target, median, pin, timed, two_cpus};

/// Pages touched per sample.
const PAGES: usize = 2048;

pub(crate) fn run(effort: Effort) -> Result<Vec<Row>, Error> {
    let mut rows = Vec::new();
    for same in [true, false] {
        rows.push(idle_card(effort, same)?);
        rows.push(first_touch(effort, same)?);
    }
    rows.push(sequential(effort)?);
    Ok(rows)
}

/// A space whose fault reader runs on `cpu`.
fn space_on(cpu: usize, around: u32) -> Result<Space, Error> {
    let _pinned = pin(cpu);
    let tune = match around {
        1 => |config: &mut farside_svm::Config| config.prefetch.host_fault_around = 1,
        _ => |config: &mut farside_svm::Config| config.prefetch.host_fault_around = 64,
    };
    let bytes = (2 * PAGES * PAGE_SIZE) as u64;
    Space::builder().cards(1).card_memory(bytes).warm(true).tune(tune).build()
}

fn words(pages: usize) -> usize {
    pages * PAGE_SIZE / size_of::<u64>()
}

/// Touches every page and gives the median of the single touches in microseconds.
fn touch_each(start: *mut u8, pages: usize) -> f64 {
    let mut times = Vec::with_capacity(pages);
    for page in 0..pages {
        let at = start.wrapping_add(page * PAGE_SIZE);
        let begin = Instant::now();
        // SAFETY: the page lies in an arena that the caller keeps; its faults are served.
        unsafe { at.write_volatile(1) };
        times.push(begin.elapsed().as_secs_f64() * 1e6);
    }
    median(times)
}

fn cpus(same: bool) -> (usize, usize) {
    let (program, server) = two_cpus();
    if same { (server, server) } else { (program, server) }
}

fn start_of(buffer: &mut Buffer<u64>) -> *mut u8 {
    buffer.as_mut_ptr().cast()
}

fn idle_card(effort: Effort, same: bool) -> Result<Row, Error> {
    let (program, server) = cpus(same);
    let space = space_on(server, 1)?;
    let mut buffer = space.alloc::<u64>(words(PAGES))?;
    let raw = Raw::start(PAGES as u32, 1, Resolve::Copy, server)?;
    let pages = PageRange::new(raw.arena.base_page(), PAGES as u64);
    let raw_start = raw.arena.base_page().addr().0 as *mut u8;
    raw.arena
        .map_zero(pages, farside_types::Rights::ReadWrite)
        .map_err(farside::LiveError::from)?;
    buffer.fill(1);
    let _pinned = pin(program);
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..effort.samples {
        space.migrate(&buffer, space.card(0)?)?;
        ours.push(touch_each(start_of(&mut buffer), PAGES));
        raw.send_out()?;
        theirs.push(touch_each(raw_start, PAGES));
    }
    let name = if same {
        "host fault, page of an idle card, handler on the same core"
    } else {
        "host fault, page of an idle card, handler on another core"
    };
    Ok(fault_row(name, ours, theirs).counting(Counts::of(&space)))
}

fn fault_row(name: &'static str, ours: Vec<f64>, theirs: Vec<f64>) -> Row {
    let (ours, theirs) = (median(ours), median(theirs));
    let detail = format!("{ours:.2} µs; raw userfaultfd {theirs:.2} µs");
    Row::new(name, ours / theirs, Target::AtMost(1.3), "x raw", detail)
}

fn first_touch(effort: Effort, same: bool) -> Result<Row, Error> {
    let (program, server) = cpus(same);
    let space = space_on(server, 1)?;
    let raw = Raw::start(PAGES as u32, 1, Resolve::Fill, server)?;
    let pages = PageRange::new(raw.arena.base_page(), PAGES as u64);
    let raw_start = raw.arena.base_page().addr().0 as *mut u8;
    let _pinned = pin(program);
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..effort.samples {
        let mut buffer = space.alloc::<u64>(words(PAGES))?;
        ours.push(touch_each(start_of(&mut buffer), PAGES));
        drop(buffer);
        raw.arena.release(pages).map_err(farside::LiveError::from)?;
        theirs.push(touch_each(raw_start, PAGES));
    }
    let name = if same {
        "first touch, handler on the same core"
    } else {
        "first touch, handler on another core"
    };
    Ok(fault_row(name, ours, theirs).counting(Counts::of(&space)))
}

/// Touches every page in order and gives the bytes a second.
fn sweep(start: *mut u8, pages: usize) -> f64 {
    let seconds = timed(|| {
        for page in 0..pages {
            let at = start.wrapping_add(page * PAGE_SIZE);
            // SAFETY: as in `touch_each`.
            unsafe { at.write_volatile(1) };
        }
    });
    (pages * PAGE_SIZE) as f64 / seconds
}

fn sequential(effort: Effort) -> Result<Row, Error> {
    let (program, server) = two_cpus();
    let space = space_on(server, 64)?;
    let mut buffer = space.alloc::<u64>(words(PAGES))?;
    buffer.fill(1);
    let raw = Raw::start(PAGES as u32, 64, Resolve::Copy, server)?;
    let pages = PageRange::new(raw.arena.base_page(), PAGES as u64);
    let raw_start = raw.arena.base_page().addr().0 as *mut u8;
    raw.arena
        .map_zero(pages, farside_types::Rights::ReadWrite)
        .map_err(farside::LiveError::from)?;
    let _pinned = pin(program);
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..2 * effort.samples {
        space.migrate(&buffer, space.card(0)?)?;
        ours.push(sweep(start_of(&mut buffer), PAGES));
        raw.send_out()?;
        theirs.push(sweep(raw_start, PAGES));
    }
    let (ours, theirs) = (median(ours), median(theirs));
    let detail = format!("{:.0} MB/s; raw userfaultfd {:.0} MB/s", ours / 1e6, theirs / 1e6);
    let name = "sequential touch, 64-page fault-around";
    let row = Row::new(name, ours / theirs, Target::AtLeast(0.9), "x raw", detail);
    Ok(row.counting(Counts::of(&space)))
}
