//! What a kernel on a far card is going to need and to make, as far as its launches before have shown: of which
//! of its arguments it has faulted on which pages, and which of them others wanted when it had ended. The ones are
//! brought in front of its next launch, since each fault of such a card costs a round trip over its link, one
//! behind the other. The others come with its completion.
//!
//! Pages are known by their place in an argument, so that a program which passes its buffers in turns is
//! understood. A page that is brought and not used costs a move; so what was seen once is believed for a few
//! launches, and then has to be seen again: then for more.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use farside_card::interface::{ArgKind, KernelArg};
use farside_svm::{CardFault, Event, Need, Request};
use farside_types::{Access, CardId, PAGE_SIZE, PageNo, PageRange, RequestId, VirtAddr};

use super::{Core, Runtime};
use farside_linux::lock::lock;
use farside_softcard::Job;

/// Launches for which a page is believed in that was seen once, and at most, where it is seen again whenever it
/// was not any more.
const BELIEVED: u16 = 8;
const BELIEVED_MAX: u16 = 128;
/// Pages of a kernel that are known, at most.
const PAGES_MAX: usize = 4096;
/// Pages of an argument that a kernel is believed to need before anything is known of it, at most: as many
/// bytes as cross a network in about a round trip.
const SMALL_PAGES: u64 = 64;
/// Pages that come with a completion, at most, and parts of memory that they may be in.
const MADE_PAGES: usize = 64;
const MADE_PARTS: usize = 16;
/// Kernels that are known, at most.
const KERNELS_MAX: usize = 256;
/// How long a launch may wait for pages that are on their way to its card: what they need of others may take
/// longer, and the kernel may not touch them.
const WAIT_LIMIT: Duration = Duration::from_millis(20);

/// What is known of an argument of a kernel.
#[derive(Debug, Default)]
struct Known {
    /// Pages of the longest that was passed, of as many as are believed to be needed before anything is known.
    seen: u32,
    /// Pages that are believed to be needed, by their place.
    needed: BTreeMap<u32, Belief>,
    /// Those that are believed to be wanted elsewhere when a kernel has ended.
    made: BTreeMap<u32, Belief>,
}

/// For how many more launches a page is believed in, and for how many it was.
#[derive(Clone, Copy, Debug)]
struct Belief {
    left: u16,
    term: u16,
}

impl Belief {
    const NEW: Belief = Belief { left: BELIEVED, term: BELIEVED };

    fn is_seen(&mut self) {
        if self.left == 0 {
            self.term = (self.term * 4).min(BELIEVED_MAX);
        }
        self.left = self.term;
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Foresight {
    /// By card and kernel: of each argument that is memory, by its place.
    kernels: HashMap<(CardId, Arc<str>), BTreeMap<u8, Known>>,
    /// The last job that has ended on each far card.
    ended: HashMap<CardId, Arc<Job>>,
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

/// Which argument of a job a page belongs to, and where in it it is.
fn place_of(job: &Job, page: PageNo) -> Option<(u8, u32)> {
    let (at, range) = places_of(job).find(|(_, range)| range.contains(page))?;
    Some((at, (page.0 - range.start.0) as u32))
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
        let Some((at, place)) = place_of(job, page) else { return };
        believe(&mut self.known(job).entry(at).or_default().needed, place);
    }

    /// A job has ended on a far card.
    pub(super) fn ended(&mut self, job: &Arc<Job>) {
        self.ended.insert(job.card, Arc::clone(job));
    }

    /// Pages leave a far card.
    pub(super) fn leave(&mut self, card: CardId, pages: impl Iterator<Item = PageNo>) {
        let Some(job) = self.ended.get(&card).cloned() else { return };
        for page in pages.take(PAGES_MAX) {
            let Some((at, place)) = place_of(&job, page) else { continue };
            believe(&mut self.known(&job).entry(at).or_default().made, place);
        }
    }

    /// The pages that are believed to be wanted elsewhere when a job has ended.
    fn made(&mut self, job: &Job) -> Vec<PageNo> {
        let known = self.known(job);
        let its = places_of(job)
            .filter_map(|(at, range)| Some(believed(&mut known.get_mut(&at)?.made, range)));
        its.flatten().collect()
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
            for page in known.entry(at).or_default().expected(range, access) {
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
    /// passed before; where it may be written, they are believed to be wanted afterwards as well.
    fn expected(&mut self, range: PageRange, access: Access) -> Vec<PageNo> {
        if range.count <= SMALL_PAGES {
            let count = range.count as u32;
            let new = self.seen..count;
            self.needed.extend(new.clone().map(|place| (place, Belief::NEW)));
            if access == Access::Write {
                // Bytes that come in vain cost more than pages that go: once, unless they are wanted.
                self.made.extend(new.map(|place| (place, Belief { left: 1, ..Belief::NEW })));
            }
            self.seen = self.seen.max(count);
        }
        believed(&mut self.needed, range)
    }
}

/// A page was seen, and is believed in for a while.
fn believe(places: &mut BTreeMap<u32, Belief>, place: u32) {
    if let Some(known) = places.get_mut(&place) {
        known.is_seen();
    } else if places.len() < PAGES_MAX {
        places.insert(place, Belief::NEW);
    }
}

/// The pages of an argument that are believed in, for one launch less.
fn believed(places: &mut BTreeMap<u32, Belief>, range: PageRange) -> Vec<PageNo> {
    // Arguments differ in length from launch to launch.
    let there = places.iter_mut().take_while(|(place, _)| u64::from(**place) < range.count);
    let believed = there.filter(|(_, belief)| belief.left > 0);
    let page = |(place, belief): (&u32, &mut Belief)| {
        belief.left -= 1;
        range.start.offset(u64::from(*place))
    };
    believed.map(page).collect()
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
    /// Whether a card is a far one.
    pub(super) fn is_behind_link(&self, card: CardId) -> bool {
        self.driver.0.config().capabilities.far.contains(card.memory())
    }

    /// What a job on a far card is believed to need and can be brought without harm, and what for.
    fn expected_by(&mut self, job: &Job) -> Vec<(PageRange, Access)> {
        if !self.is_behind_link(job.card) {
            return Vec::new();
        }
        let memory = job.card.memory();
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

    /// The parts of a far card's memory that are believed to be wanted when a job has ended: bytes.
    pub(super) fn made_by(&mut self, job: &Job) -> Vec<Range<u64>> {
        let memory = job.card.memory();
        let pages = self.foresight.made(job).into_iter().map(|page| self.driver.0.page(page));
        let here = pages.filter(|view| view.owner == Some(memory)).take(MADE_PAGES);
        let frames: BTreeSet<u64> = here.map(|view| u64::from(view.frame.0)).collect();
        let mut parts: Vec<Range<u64>> = Vec::new();
        for frame in frames {
            let bytes = frame * PAGE_SIZE as u64..(frame + 1) * PAGE_SIZE as u64;
            match parts.last_mut() {
                Some(part) if part.end == bytes.start => part.end = bytes.end,
                _ => parts.push(bytes),
            }
        }
        parts.truncate(MADE_PARTS);
        parts
    }
}

impl Runtime {
    /// Brings what a job on a far card is believed to need, and waits for it for a moment.
    pub(super) fn bring_expected(&self, job: &Job) {
        let wanted = lock(&self.core).expected_by(job);
        if wanted.is_empty() {
            return;
        }
        let to = job.card.memory();
        let wanted = wanted.into_iter().map(|(range, access)| {
            (RequestId(self.fresh_id()), Request::Prefetch { range, to, access })
        });
        let wanted: Vec<(RequestId, Request)> = wanted.collect();
        let mut open: HashSet<RequestId> = wanted.iter().map(|(id, _)| *id).collect();
        self.handle_all(wanted.into_iter().map(|(id, request)| Event::Request {
            id,
            request,
            after: &[],
        }));
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
