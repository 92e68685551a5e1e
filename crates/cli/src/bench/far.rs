//! Cards in processes of their own: faults on either side, page DMA, and what they cost at rest.

use std::path::Path;
use std::time::{Duration, Instant};

use farside::{Buffer, CardPlace, Error, LiveError, Read, Space, Value, Write};
use farside_linux::card_memory::{CardMemory, copy_pages};
use farside_live::arena::Arena;
use farside_types::{FrameNo, PAGE_SIZE, PageRange, Rights};

use super::card_process::{CardProcess, Echo, ticks_of};
use super::counts::Counts;
use super::far_steps;
use super::raw::{Raw, Resolve};
use super::{Effort, Row, Target, median, pin, timed, two_cpus};

/// Pages that fault one by one.
const PAGES: usize = 2048;
/// Bytes of the large copies.
const LARGE: usize = 32 << 20;
/// Words of a page.
pub(super) const WORDS: usize = PAGE_SIZE / size_of::<u64>();

pub(crate) fn run(effort: Effort) -> Result<Vec<Row>, Error> {
    let mut rows = Vec::new();
    for same in [true, false] {
        rows.push(card_fault(effort, same)?);
        rows.push(host_fault_while_running(effort, same)?);
    }
    rows.extend(large_copies(effort)?);
    rows.push(at_rest()?);
    rows.extend(far_steps::run()?);
    Ok(rows)
}

fn cpus(same: bool) -> (usize, usize) {
    let (program, server) = two_cpus();
    if same { (program, program) } else { (program, server) }
}

/// A space on cards elsewhere that moves single pages.
pub(super) fn space_of_single_pages(places: Vec<CardPlace>) -> Result<Space, Error> {
    let tune = |config: &mut farside_svm::Config| {
        config.prefetch.host_fault_around = 1;
        config.prefetch.density_percent = 100;
        config.keep_clean_copies = false;
    };
    Space::builder().cards_at(places).tune(tune).build()
}

/// A list with one node at the beginning of each page.
pub(super) fn link_pages(list: &mut Buffer<u64>, pages: usize) -> u64 {
    let first = list.as_ptr() as u64;
    for page in 0..pages {
        let next = if page + 1 == pages { 0 } else { first + ((page + 1) * PAGE_SIZE) as u64 };
        list[page * WORDS] = next;
    }
    first
}

fn card_fault(effort: Effort, same: bool) -> Result<Row, Error> {
    let (program, server) = cpus(same);
    let card = CardProcess::start("fault", (2 * PAGES * PAGE_SIZE) as u64, server)?;
    let _pinned = pin(program);
    let space = space_of_single_pages(vec![card.place()])?;
    let mut list = space.alloc::<u64>(PAGES * WORDS)?;
    let echo = Echo::start(server)?;
    let limit = Limit::new()?;
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..effort.samples {
        let start = link_pages(&mut list, PAGES);
        let steps = PAGES as u64;
        let seconds = timed_result(|| {
            space.kernel("farside.chase").call((Read(&list), Value(start), Value(steps))).map(drop)
        })?;
        ours.push(seconds / PAGES as f64 * 1e6);
        theirs.push(limit.measure(|| echo.round_trip())?);
    }
    let (ours, theirs) = (median(ours), median(theirs));
    let detail = format!("{ours:.2} µs; eventfd round trip + zap + copy {theirs:.2} µs");
    let name = if same {
        "card fault, card's process on the same core"
    } else {
        "card fault, card's process on another core"
    };
    let row = Row::new(name, ours / theirs, Target::AtMost(1.5), "x limit", detail);
    Ok(row.counting(Counts::of(&space)))
}

fn timed_result(body: impl FnOnce() -> Result<(), Error>) -> Result<f64, Error> {
    let start = Instant::now();
    body()?;
    Ok(start.elapsed().as_secs_f64())
}

/// What a fault costs at the least: a round trip to another process, and for the page between, to
/// take it out of the program's mappings and to copy it to a card's memory.
pub(super) struct Limit {
    arena: Arena,
    card: CardMemory,
}

impl Limit {
    pub(super) fn new() -> Result<Limit, LiveError> {
        let arena = Arena::new((PAGES * PAGE_SIZE) as u64)?;
        let card = CardMemory::new(PAGES as u32)?;
        card.warm(FrameNo(0), PAGES as u32)?;
        Ok(Limit { arena, card })
    }

    /// Microseconds a page.
    pub(super) fn measure(&self, round_trip: impl Fn()) -> Result<f64, LiveError> {
        let all = PageRange::new(self.arena.base_page(), PAGES as u64);
        self.arena.map_zero(all, Rights::ReadWrite)?;
        let start = self.arena.base_page().addr().0 as *mut u8;
        for page in 0..PAGES {
            // SAFETY: the page lies in the arena and has just been mapped.
            unsafe { start.wrapping_add(page * PAGE_SIZE).write_volatile(1) };
        }
        let begin = Instant::now();
        for page in 0..PAGES {
            round_trip();
            let range = PageRange::page(self.arena.base_page().offset(page as u64));
            self.arena.unmap(range)?;
            let from = self.arena.alias_ptr(range)?;
            let to = self.card.run_ptr(FrameNo(page as u32), 1)?;
            // SAFETY: both are one page of distinct memories that nobody else uses.
            unsafe { copy_pages(from.as_ptr(), to.as_ptr(), 1) };
        }
        Ok(begin.elapsed().as_secs_f64() / PAGES as f64 * 1e6)
    }
}

fn host_fault_while_running(effort: Effort, same: bool) -> Result<Row, Error> {
    let (program, server) = cpus(same);
    let card = CardProcess::start("running", (2 * PAGES * PAGE_SIZE) as u64, server)?;
    // The fault reader is where a raw handler is: on the program's processor.
    let _pinned = pin(program);
    let space = space_of_single_pages(vec![card.place()])?;
    let echo = Echo::start(server)?;
    let raw = Raw::start(PAGES as u32, 1, Resolve::Copy, program)?;
    let pages = PageRange::new(raw.arena.base_page(), PAGES as u64);
    let raw_start = raw.arena.base_page().addr().0 as *mut u8;
    raw.arena.map_zero(pages, Rights::ReadWrite).map_err(LiveError::from)?;
    let mut buffer = space.alloc::<u64>(PAGES * WORDS)?;
    buffer.fill(1);
    let (mut ours, mut bare, mut trips) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..effort.samples {
        space.migrate(&buffer, space.card(0)?)?;
        let each = space.scope(|scope| {
            // Something runs on the card, so every drain is waited for.
            let job = scope.kernel("farside.wait").launch_call(())?;
            std::thread::sleep(Duration::from_millis(20));
            let each = touch_each(buffer.as_mut_ptr().cast(), PAGES);
            job.cancel();
            Ok::<f64, Error>(each)
        })?;
        ours.push(each);
        raw.send_out()?;
        bare.push(touch_each(raw_start, PAGES));
        trips.push(timed(|| (0..PAGES).for_each(|_| echo.round_trip())) / PAGES as f64 * 1e6);
    }
    let (ours, bare, trip) = (median(ours), median(bare), median(trips));
    let limit = bare + 1.5 * trip;
    let detail =
        format!("{ours:.2} µs; raw fault with copy {bare:.2} µs + 1.5 round trips of {trip:.2} µs");
    let name = if same {
        "host fault, kernel running on the card, same core"
    } else {
        "host fault, kernel running on the card, another core"
    };
    let row = Row::new(name, ours / limit, Target::AtMost(1.0), "x limit", detail);
    Ok(row.counting(Counts::of(&space)))
}

/// Touches every page and gives the median of the single touches in microseconds.
fn touch_each(start: *mut u8, pages: usize) -> f64 {
    let touch = |page: usize| {
        let at = start.wrapping_add(page * PAGE_SIZE);
        // SAFETY: the page lies in an arena that the caller keeps; its faults are served.
        timed(|| unsafe { at.write_volatile(1) }) * 1e6
    };
    median((0..pages).map(touch).collect())
}

fn large_copies(effort: Effort) -> Result<Vec<Row>, Error> {
    let (program, server) = two_cpus();
    let memory = 2 * LARGE as u64;
    let cards = [
        CardProcess::start("large0", memory, server)?,
        CardProcess::start("large1", memory, server)?,
    ];
    let _pinned = pin(program);
    let space = Space::builder().cards_at(cards.iter().map(CardProcess::place)).build()?;
    let mut buffer = space.alloc::<u64>(LARGE / 8)?;
    let (a, b) = (space.card(0)?, space.card(1)?);
    let frames = (LARGE / PAGE_SIZE) as u32;
    let (from, to) = (warm_memory(frames)?, warm_memory(frames)?);
    let (mut down, mut across, mut bare) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..effort.samples + 1 {
        buffer.fill(round as u64);
        let there = timed_result(|| space.migrate(&buffer, a).map(drop))?;
        let over = timed_result(|| space.migrate(&buffer, b).map(drop))?;
        // SAFETY: both memories have that many frames, and nobody else uses them.
        let copy = timed(|| unsafe { copy_pages(from.base(), to.base(), frames as usize) });
        if round > 0 {
            // The first round warms the cards' own mappings of memory, which `from` and `to` have.
            down.push(there);
            across.push(over);
            bare.push(copy);
        }
    }
    let bare = median(bare);
    let row = |name, seconds: f64| {
        let rate = |seconds: f64| LARGE as f64 / seconds / 1e9;
        let detail =
            format!("{:.2} GB/s; memcpy of memory files {:.2} GB/s", rate(seconds), rate(bare));
        let row = Row::new(name, bare / seconds, Target::AtLeast(0.9), "x memcpy", detail);
        row.counting(Counts::of(&space))
    };
    Ok(vec![
        row("32 MB host to card by the card's DMA", median(down)),
        row("32 MB card to card, peer", median(across)),
    ])
}

fn warm_memory(frames: u32) -> Result<CardMemory, LiveError> {
    let memory = CardMemory::new(frames)?;
    memory.warm(FrameNo(0), frames)?;
    Ok(memory)
}

/// A program and four cards that have nothing to do.
fn at_rest() -> Result<Row, Error> {
    let (_, server) = two_cpus();
    let cards = (0..4)
        .map(|n| CardProcess::start(&format!("rest{n}"), 1 << 20, server))
        .collect::<Result<Vec<_>, _>>()?;
    let space = Space::builder().cards_at(cards.iter().map(CardProcess::place)).build()?;
    let mut data = space.alloc::<u64>(WORDS)?;
    for card in space.cards() {
        space.kernel("farside.increment").on(card).call(Write(&mut data))?;
    }
    let own = Path::new("/proc/self/stat");
    let taken = || ticks_of(own) + cards.iter().map(CardProcess::ticks).sum::<u64>();
    let before = taken();
    std::thread::sleep(Duration::from_secs(3));
    let ticks = (taken() - before) as f64;
    let detail = "clock ticks of the program and four card processes in 3 s".to_owned();
    Ok(Row::new("processor time at rest", ticks, Target::AtMost(0.0), "ticks", detail))
}
