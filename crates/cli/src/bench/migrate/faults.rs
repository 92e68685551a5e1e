//! Host faults of 4 KiB, one after the other and at random, against UMap's design: the same pages from the
//! same kind of memory, threads pinned alike.

use farside::{Buffer, MemoryId, Space};
use farside_types::PAGE_SIZE;

use super::super::counts::Counts;
use super::super::{BenchError, Effort, Row, Target, median, pin, timed, two_cpus};
use super::machine::PAGE;
use super::umap::UmapLike;

/// Pages of the region: 32 MB.
const PAGES: usize = 8192;
/// Pages that the driver brings along with a host fault, as it is configured if nothing is said
/// (`PrefetchConfig`): of as many at most one is touched at random, so that what is brought along is in vain.
const AROUND: usize = 16;

/// In which order pages are touched.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Order {
    Sequential,
    Random,
}

impl Order {
    const fn name(self) -> &'static str {
        match self {
            Order::Sequential => "sequential",
            Order::Random => "random",
        }
    }

    /// At most as much slower than UMap's design; 2: twice as fast.
    const fn least(self) -> f64 {
        match self {
            Order::Sequential => 2.0,
            Order::Random => 1.0,
        }
    }

    /// The pages, each once.
    fn pages(self) -> Vec<usize> {
        match self {
            Order::Sequential => (0..PAGES).collect(),
            Order::Random => one_of_each(PAGES, AROUND),
        }
    }
}

/// One page of each aligned window of `window` pages, in random order.
fn one_of_each(pages: usize, window: usize) -> Vec<usize> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut below = |most: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) as usize % most
    };
    let mut order: Vec<usize> =
        (0..pages).step_by(window).map(|first| first + below(window)).collect();
    (1..order.len()).rev().for_each(|last| order.swap(last, below(last + 1)));
    order
}

pub(super) fn run(effort: Effort) -> Result<Vec<Row>, BenchError> {
    let mut rows = Vec::new();
    for same in [true, false] {
        let bench = Bench::new(same)?;
        for order in [Order::Sequential, Order::Random] {
            rows.push(bench.measure(effort, order)?);
        }
    }
    Ok(rows)
}

/// Both sides, and what they have to give.
struct Bench {
    same: bool,
    program: usize,
    space: Space,
    buffer: Buffer<u64>,
    umap: UmapLike,
    image: Vec<u64>,
}

impl Bench {
    fn new(same: bool) -> Result<Bench, BenchError> {
        let (other, server) = two_cpus();
        let program = if same { server } else { other };
        let space = {
            let _pinned = pin(server);
            Space::builder()
                .cards(1)
                .card_memory(2 * (PAGES * PAGE_SIZE) as u64)
                .warm(true)
                .build()?
        };
        let mut buffer = space.alloc::<u64>(PAGES * PAGE)?;
        let image: Vec<u64> = (0..PAGES * PAGE)
            .map(|word| (word as u64).wrapping_mul(0x2545_f491_4f6c_dd1d))
            .collect();
        buffer.copy_from_slice(&image);
        let umap = UmapLike::start(PAGES as u32, server)?;
        Ok(Bench { same, program, space, buffer, umap, image })
    }

    fn measure(&self, effort: Effort, order: Order) -> Result<Row, BenchError> {
        let _pinned = pin(self.program);
        let pages = order.pages();
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        let mut counts = Counts::default();
        for round in 0..=effort.samples {
            self.space.migrate(&self.buffer, self.space.card(0)?)?;
            let before = Counts::of(&self.space);
            let found = self.touch(self.buffer.as_ptr(), &pages)?;
            counts = Counts::of(&self.space).since(&before);
            self.space.migrate(&self.buffer, MemoryId::HOST)?;
            self.umap.send_out(&self.image)?;
            let other = self.touch(self.umap.start_ptr().cast(), &pages)?;
            // The first time everything is new.
            if round > 0 {
                ours.push(found);
                theirs.push(other);
            }
        }
        let (ours, theirs) = (median(ours), median(theirs));
        let detail = format!(
            "{ours:.2} µs a page, {} faults for {}; UMap's design {theirs:.2} µs",
            counts.get("host_faults"),
            pages.len()
        );
        let on = if self.same { "the same core" } else { "another core" };
        let name = format!("fault, 4 KiB, {}, against UMap's design on {on}", order.name());
        let target = Target::AtLeast(order.least());
        Ok(Row::new(name, theirs / ours, target, "x UMap's", detail).counting(counts))
    }

    /// Reads a word of each page, and gives the µs of a page. Then all of what was touched has to be
    /// there.
    fn touch(&self, start: *const u64, pages: &[usize]) -> Result<f64, BenchError> {
        let word = |page: usize| page * PAGE + page % PAGE;
        let mut sum = 0u64;
        let seconds = timed(|| {
            for &page in pages {
                // SAFETY: the word lies in a region of `PAGES` pages whose faults are served.
                sum = sum.wrapping_add(unsafe { start.wrapping_add(word(page)).read_volatile() });
            }
        });
        let wanted = pages.iter().fold(0u64, |sum, &page| sum.wrapping_add(self.image[word(page)]));
        let is_whole = |page: usize| {
            let words = page * PAGE..(page + 1) * PAGE;
            // SAFETY: as above; nothing writes the page.
            words.into_iter().all(|at| unsafe { start.wrapping_add(at).read() } == self.image[at])
        };
        if sum != wanted || !pages.iter().all(|&page| is_whole(page)) {
            let why = "what was read is not what was written: this is a bug";
            return Err(BenchError::Failed(why.to_owned()));
        }
        Ok(seconds * 1e6 / pages.len() as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn at_random_no_page_is_touched_that_another_fault_brings_along() {
        let mut pages = one_of_each(PAGES, AROUND);
        assert!(pages.windows(2).any(|two| two[0] > two[1]), "not in order");
        pages.sort_unstable();
        let windows: Vec<usize> = pages.iter().map(|page| page / AROUND).collect();
        assert_eq!(windows, (0..PAGES / AROUND).collect::<Vec<_>>());
        let inside = pages.iter().map(|page| page % AROUND);
        assert!(inside.collect::<std::collections::BTreeSet<_>>().len() > AROUND / 2);
    }

    #[test]
    fn the_window_is_the_drivers() {
        let usual = farside_svm::Config::embedded(Default::default(), vec![1]).prefetch;
        assert_eq!(usual.host_fault_around as usize, AROUND);
    }
}
