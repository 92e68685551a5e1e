//! What a kernel on a far card is going to need, as far as its launches before have shown: of which of its
//! arguments it has faulted on which pages. Those are brought in front of the next launch, since each fault of
//! such a card costs a round trip over its link, one behind the other.
//!
//! Pages are known by their place in an argument, so that a program which passes its buffers in turns is
//! understood. A page that is brought and not used costs a move; so what was seen once is believed for a few
//! launches, and then has to be seen again.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use farside_card::interface::{ArgKind, KernelArg};
use farside_svm::{CardFault, Event, Need, Request};
use farside_types::{CardId, PageNo, PageRange, RequestId, VirtAddr};

use super::{Core, Runtime};
use farside_linux::lock::lock;
use farside_softcard::Job;

/// Launches for which a page is believed to be needed that was faulted on.
const BELIEVED: u8 = 8;
/// Pages of a kernel that are known, at most.
const PAGES_MAX: usize = 4096;
/// Pages of an argument that a kernel is believed to need before anything is known of it, at most: as many
/// bytes as cross a network in about a round trip.
const SMALL_PAGES: u64 = 64;
/// Kernels that are known, at most.
const KERNELS_MAX: usize = 256;
/// How long a launch may wait for pages that are on their way to its card: what they need of others may take
/// longer, and the kernel may not touch them.
const WAIT_LIMIT: Duration = Duration::from_millis(5);

/// A page of an argument: its place among the arguments, and among its pages.
type Part = (u8, u32);

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Foresight {
    kernels: HashMap<(CardId, Arc<str>), BTreeMap<Part, u8>>,
    /// Pages that were asked for, and that nobody waits for any more.
    unawaited: HashSet<RequestId>,
}

/// The pages of an argument, if it is memory.
fn pages_of(arg: &KernelArg) -> Option<PageRange> {
    PageRange::covering(VirtAddr(arg.word), arg.bytes).ok().filter(|_| arg.bytes > 0)
}

/// The arguments of a job that are memory, by their places.
fn memory_of(job: &Job) -> impl Iterator<Item = (u8, PageRange)> + '_ {
    job.args().iter().zip(0u8..).filter_map(|(arg, at)| Some((at, pages_of(arg)?)))
}

impl Foresight {
    /// A card has faulted while these jobs ran on it.
    pub(super) fn faulted<'a>(
        &mut self,
        faults: &[CardFault],
        jobs: impl Iterator<Item = &'a Arc<Job>> + Clone,
    ) {
        for fault in faults {
            match &fault.need {
                Need::Page(page, _) => jobs.clone().for_each(|job| self.note(job, *page)),
                Need::Group(ranges) => {
                    let pages = ranges.iter().flat_map(|(range, _)| range.pages());
                    for page in pages.take(PAGES_MAX) {
                        jobs.clone().for_each(|job| self.note(job, page));
                    }
                }
            }
        }
    }

    fn note(&mut self, job: &Job, page: PageNo) {
        let mut args = memory_of(job);
        let Some((at, range)) = args.find(|(_, range)| range.contains(page)) else { return };
        let known = self.known(job);
        let place = (page.0 - range.start.0) as u32;
        if known.len() < PAGES_MAX || known.contains_key(&(at, place)) {
            known.insert((at, place), BELIEVED);
        }
    }

    /// What is known of a job's kernel. Of one that is launched for the first time it is believed that it needs
    /// those of its arguments that are small and its own: what it only reads, others may read meanwhile.
    fn known(&mut self, job: &Job) -> &mut BTreeMap<Part, u8> {
        let key = (job.card, Arc::clone(&job.name));
        if self.kernels.len() >= KERNELS_MAX && !self.kernels.contains_key(&key) {
            // What is still in use is learned again soon.
            self.kernels.clear();
        }
        self.kernels.entry(key).or_insert_with(|| {
            let own = |at: u8| job.args()[usize::from(at)].kind == ArgKind::Write;
            let small = memory_of(job).filter(|&(at, range)| own(at) && range.count <= SMALL_PAGES);
            let places =
                small.flat_map(|(at, range)| (0..range.count as u32).map(move |p| (at, p)));
            places.take(PAGES_MAX).map(|place| (place, BELIEVED)).collect()
        })
    }

    /// The pages that a job is believed to need, in order, and whether it alone may write them.
    fn expected(&mut self, job: &Job) -> BTreeMap<PageNo, bool> {
        let known = self.known(job);
        let args: Vec<Option<PageRange>> = job.args().iter().map(pages_of).collect();
        let mut pages = BTreeMap::new();
        known.retain(|&(at, place), believed| {
            let range = args.get(usize::from(at)).copied().flatten();
            // Arguments differ in length from launch to launch.
            if let Some(range) = range.filter(|range| u64::from(place) < range.count) {
                let is_own = job.args()[usize::from(at)].kind == ArgKind::Write;
                *pages.entry(PageNo(range.start.0 + u64::from(place))).or_default() |= is_own;
                *believed -= 1;
            }
            *believed > 0
        });
        pages
    }

    /// Whether nobody waits for an answer.
    pub(super) fn is_unawaited(&mut self, id: RequestId) -> bool {
        self.unawaited.remove(&id)
    }
}

/// Runs of pages that follow one another.
fn runs(pages: impl IntoIterator<Item = PageNo>) -> Vec<PageRange> {
    let mut runs: Vec<PageRange> = Vec::new();
    for page in pages {
        match runs.last_mut() {
            Some(run) if run.start.0 + run.count == page.0 => run.count += 1,
            _ => runs.push(PageRange::new(page, 1)),
        }
    }
    runs
}

impl Runtime {
    /// Brings what a job on a far card is believed to need, and waits for it for a moment.
    pub(super) fn bring_expected(&self, job: &Job) {
        let wanted = {
            let mut core = lock(&self.core);
            let Core { driver, foresight, jobs, .. } = &mut *core;
            let memory = job.card.memory();
            if !driver.0.config().capabilities.far.contains(memory) {
                return;
            }
            let mut pages = foresight.expected(job);
            // It is not for this to take a page from a kernel on another card that may be using it.
            let others = jobs.values().filter(|other| other.card != job.card);
            let theirs: Vec<PageRange> =
                others.flat_map(|other| memory_of(other)).map(|(_, range)| range).collect();
            pages.retain(|&page, is_own| {
                let view = driver.0.page(page);
                // What others only read they may go on to read.
                let is_news = *is_own || !view.writers.is_empty();
                let is_away = !view.copies.contains(memory);
                is_news && is_away && !theirs.iter().any(|range| range.contains(page))
            });
            runs(pages.into_keys())
        };
        if wanted.is_empty() {
            return;
        }
        let requests = wanted.into_iter().map(|range| (RequestId(self.fresh_id()), range));
        let requests: Vec<(RequestId, PageRange)> = requests.collect();
        let to = job.card.memory();
        let events = requests.iter().map(|&(id, range)| {
            let request = Request::Prefetch { range, to };
            Event::Request { id, request }
        });
        self.handle_all(events);
        let mut open: HashSet<RequestId> = requests.iter().map(|(id, _)| *id).collect();
        let until = Instant::now() + WAIT_LIMIT;
        self.replies.wait(Some(until), || {
            let mut core = lock(&self.core);
            // What could not be brought is faulted on.
            open.retain(|id| core.answered.remove(id).is_none());
            open.is_empty().then_some(())
        });
        let mut core = lock(&self.core);
        open.retain(|id| core.answered.remove(id).is_none());
        core.foresight.unawaited.extend(open);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_that_follow_one_another_are_one_run() {
        let pages = [1, 2, 3, 7, 8, 10].map(PageNo);
        let wanted = [(1, 3), (7, 2), (10, 1)];
        assert_eq!(runs(pages), wanted.map(|(start, count)| PageRange::new(PageNo(start), count)));
        assert!(runs([]).is_empty());
    }
}
