//! Each page of twice a card's memory once, in random order: every access is a fault, and from the half
//! on each makes room.

use farside::{Buffer, Error, PAGE_SIZE, Read, Space, Value};

use super::super::card_process::{CardProcess, Echo};
use super::super::counts::Counts;
use super::super::far::Limit;
use super::super::{Effort, Row, Target, median, pin, timed, two_cpus};

const PAGES: usize = 8192;
const WORDS: usize = PAGE_SIZE / size_of::<u64>();

/// A list with one node in each page, in random order. Gives the first.
fn link(list: &mut Buffer<u64>) -> u64 {
    let mut order: Vec<usize> = (0..PAGES).collect();
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for last in (1..PAGES).rev() {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        order.swap(last, (state >> 33) as usize % (last + 1));
    }
    let start = list.as_ptr() as u64;
    let address = |page: usize| start + (page * PAGE_SIZE) as u64;
    for (at, &page) in order.iter().enumerate() {
        list[page * WORDS] = order.get(at + 1).map_or(0, |&next| address(next));
    }
    address(order[0])
}

pub(super) fn run(effort: Effort) -> Result<Row, Error> {
    let (program, server) = two_cpus();
    let card = CardProcess::start("random", (PAGES / 2 * PAGE_SIZE) as u64, server)?;
    let _pinned = pin(program);
    let space = Space::builder().cards_at([card.place()]).build()?;
    let mut list = space.alloc::<u64>(PAGES * WORDS)?;
    let (echo, limit) = (Echo::start(server)?, Limit::new()?);
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    let before = Counts::of(&space);
    for _ in 0..effort.samples {
        // It is written, so that all of it is on the host again.
        let start = link(&mut list);
        let mut result = Ok(0);
        let seconds = timed(|| {
            let args = (Read(&list), Value(start), Value(PAGES as u64));
            result = space.kernel("farside.chase").call(args);
        });
        result?;
        ours.push(seconds / PAGES as f64 * 1e6);
        theirs.push(limit.measure(|| echo.round_trip())?);
    }
    let counts = Counts::of(&space).since(&before);
    let (ours, theirs) = (median(ours), median(theirs));
    let detail = format!(
        "{ours:.2} µs a page, of {PAGES}; eventfd round trip + zap + copy {theirs:.2} µs; what \
         leaves is clean, and costs nothing"
    );
    let name = "each page once, in random order, half of them fit";
    Ok(Row::new(name, ours / theirs, Target::AtMost(1.5), "x limit", detail).counting(counts))
}
