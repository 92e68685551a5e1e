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
use farside_types::{Access, CardId, PageNo, PageRange, RequestId, VirtAddr};

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

/// What is known of an argument of a kernel.
#[derive(Debug, Default)]
struct Known {
    /// Pages of the longest that was passed, of as many as are believed to be needed before anything is known.
    seen: u32,
    /// Pages that are believed to be needed, by their place: for how many more launches.
    needed: BTreeMap<u32, u8>,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Foresight {
    /// By card and kernel: of each argument that is memory, by its place.
    kernels: HashMap<(CardId, Arc<str>), BTreeMap<u8, Known>>,
    /// Pages that were asked for, and that nobody waits for any more.
    unawaited: HashSet<RequestId>,
}

/// The pages of an argument, if it is memory.
fn pages_of(arg: &KernelArg) -> Option<PageRange> {
    PageRange::covering(VirtAddr(arg.word), arg.bytes).ok().filter(|_| arg.bytes > 0)
}

/// What a kernel may do with an argument.
fn access_of(arg: &KernelArg) -> Access {
    if arg.kind == ArgKind::Write { Access::Write } else { Access::Read }
}

/// The arguments of a job that are memory, by their places.
fn places_of(job: &Job) -> impl Iterator<Item = (u8, PageRange)> + '_ {
    job.args().iter().zip(0u8..).filter_map(|(arg, at)| Some((at, pages_of(arg)?)))
}

/// The memory that a job may touch, and what it may do there.
fn memory_of(job: &Job) -> impl Iterator<Item = (PageRange, Access)> + '_ {
    job.args().iter().filter_map(|arg| Some((pages_of(arg)?, access_of(arg))))
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
        let mut args = places_of(job);
        let Some((at, range)) = args.find(|(_, range)| range.contains(page)) else { return };
        let needed = &mut self.known(job).entry(at).or_default().needed;
        let place = (page.0 - range.start.0) as u32;
        if needed.len() < PAGES_MAX || needed.contains_key(&place) {
            needed.insert(place, BELIEVED);
        }
    }

    fn known(&mut self, job: &Job) -> &mut BTreeMap<u8, Known> {
        let key = (job.card, Arc::clone(&job.name));
        if self.kernels.len() >= KERNELS_MAX && !self.kernels.contains_key(&key) {
            // What is still in use is learned again soon.
            self.kernels.clear();
        }
        self.kernels.entry(key).or_default()
    }

    /// The pages that a job is believed to need, in order, and what for.
    fn expected(&mut self, job: &Job) -> BTreeMap<PageNo, Access> {
        let known = self.known(job);
        let mut pages = BTreeMap::new();
        for (at, range) in places_of(job) {
            let access = access_of(&job.args()[usize::from(at)]);
            for page in known.entry(at).or_default().expected(range) {
                let known = pages.entry(page).or_insert(access);
                *known = access.max(*known);
            }
        }
        pages
    }

    /// Whether nobody waits for an answer.
    pub(super) fn is_unawaited(&mut self, id: RequestId) -> bool {
        self.unawaited.remove(&id)
    }
}

impl Known {
    /// The pages of an argument that are believed to be needed. Of one that is small, those are that were never
    /// passed before.
    fn expected(&mut self, range: PageRange) -> Vec<PageNo> {
        if range.count <= SMALL_PAGES {
            let count = range.count as u32;
            self.needed.extend((self.seen..count).map(|place| (place, BELIEVED)));
            self.seen = self.seen.max(count);
        }
        let mut pages = Vec::new();
        self.needed.retain(|&place, launches| {
            // Arguments differ in length from launch to launch.
            if u64::from(place) < range.count {
                pages.push(range.start.offset(u64::from(place)));
                *launches -= 1;
            }
            *launches > 0
        });
        pages
    }
}

/// Runs of pages that follow one another and are wanted for the same.
fn runs(pages: impl IntoIterator<Item = (PageNo, Access)>) -> Vec<(PageRange, Access)> {
    let mut runs: Vec<(PageRange, Access)> = Vec::new();
    for (page, access) in pages {
        match runs.last_mut() {
            Some((run, same)) if run.end() == page && *same == access => run.count += 1,
            _ => runs.push((PageRange::new(page, 1), access)),
        }
    }
    runs
}

impl Core {
    /// What a job on a far card is believed to need and can be brought without harm, and what for.
    fn to_bring(&mut self, job: &Job) -> Vec<(PageRange, Access)> {
        let memory = job.card.memory();
        if !self.driver.0.config().capabilities.far.contains(memory) {
            return Vec::new();
        }
        let mut pages = self.foresight.expected(job);
        let others = self.jobs.values().filter(|other| other.card != job.card);
        let theirs: Vec<(PageRange, Access)> = others.flat_map(|other| memory_of(other)).collect();
        pages.retain(|&page, access| {
            let is_away = !self.driver.0.page(page).copies.contains(memory);
            // Not for this is a page taken from a kernel on another card that may be using it: whoever reads
            // it may go on.
            let mut used = theirs.iter().filter(|(range, _)| range.contains(page));
            is_away && used.all(|(_, theirs)| (*access).max(*theirs) == Access::Read)
        });
        runs(pages)
    }
}

impl Runtime {
    /// Brings what a job on a far card is believed to need, and waits for it for a moment.
    pub(super) fn bring_expected(&self, job: &Job) {
        let wanted = lock(&self.core).to_bring(job);
        if wanted.is_empty() {
            return;
        }
        let to = job.card.memory();
        let wanted = wanted.into_iter().map(|(range, access)| {
            (RequestId(self.fresh_id()), Request::Prefetch { range, to, access })
        });
        let wanted: Vec<(RequestId, Request)> = wanted.collect();
        let mut open: HashSet<RequestId> = wanted.iter().map(|(id, _)| *id).collect();
        self.handle_all(wanted.into_iter().map(|(id, request)| Event::Request { id, request }));
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
        use Access::{Read, Write};
        let pages = [(1, Read), (2, Read), (3, Write), (7, Read), (8, Read), (10, Write)];
        let wanted = [(1, 2, Read), (3, 1, Write), (7, 2, Read), (10, 1, Write)];
        let found = runs(pages.map(|(page, access)| (PageNo(page), access)));
        let run = |(start, count, access)| (PageRange::new(PageNo(start), count), access);
        assert_eq!(found, wanted.map(run));
        assert!(runs([]).is_empty());
    }
}
