//! Memory that the program had before: adopted, watched, given back.

use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, Weak};
use std::thread::JoinHandle;

use farside_linux::lock::lock;
use farside_linux::signals::{BlockedSignals, block_for_whole_thread};
use farside_linux::uffd::Fault;
use farside_svm::{Event, Request, RequestError};
use farside_types::{Access, CardId, MemoryId, PAGE_SIZE, PageNo, PageRange, VirtAddr};
use rustix::event::{PollFd, PollFlags};

use super::files::lost_of;
use super::{Port, Runtime};
use crate::adopted::{AdoptError, Region, Watch, Whose, check_private, fork};
use crate::error::LiveError;
use crate::memories::Frames;

/// How often memory is asked to come home that a card does not let go, before it stays adopted.
const TRIES: u32 = 8;

/// Faults that the driver is told of at once.
const FAULTS: usize = 64;

/// The reader of faults on adopted memory, and the worker that brings home what the program has emptied, moved
/// or unmapped.
#[derive(Debug, Default)]
pub(crate) struct Keepers(Mutex<Vec<JoinHandle<()>>>);

/// A range in its parts: the page with the first bytes, if it holds others as well; those that are its alone;
/// the page with the last bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cut {
    first: Option<PageNo>,
    inner: PageRange,
    last: Option<PageNo>,
}

impl Cut {
    fn of(addr: VirtAddr, bytes: u64) -> Result<Cut, AdoptError> {
        if bytes == 0 {
            return Err(AdoptError::Empty { addr });
        }
        let page = PAGE_SIZE as u64;
        let end = addr.0.checked_add(bytes).filter(|&end| end < 1 << 56);
        let end = end.ok_or(AdoptError::Range { addr, bytes })?;
        let inner = addr.0.next_multiple_of(page)..end / page * page;
        let first = (addr.page_offset() != 0).then_some(addr.page());
        let last =
            (end % page != 0).then_some(VirtAddr(end).page()).filter(|&last| Some(last) != first);
        let count = inner.end.saturating_sub(inner.start) / page;
        Ok(Cut { first, inner: PageRange::new(VirtAddr(inner.start).page(), count), last })
    }

    /// All pages, edges too.
    fn whole(&self) -> PageRange {
        let first = self.first.unwrap_or(self.inner.start);
        let behind = self.last.map_or(self.inner.end(), |last| last.offset(1));
        PageRange::new(first, behind.0.max(first.0 + 1) - first.0)
    }

    fn edges(&self) -> impl Iterator<Item = PageNo> {
        self.first.into_iter().chain(self.last)
    }
}

/// Memory that was adopted, for [`Runtime::disown`]. It names this adoption and no later one of the same addresses.
#[derive(Debug)]
pub struct Lent {
    cut: Cut,
    /// Nothing if no page is the range's alone.
    region: Option<Weak<Region>>,
    /// Pages of edges that it still counts for; held by who gives it back, so that others wait for that.
    edges: Mutex<Vec<PageNo>>,
}

impl Runtime {
    /// Takes memory of the program's own into the space. Pages of which it is only a part stay on the host, where
    /// kernels reach them; all others move.
    ///
    /// # Errors
    /// [`LiveError::Adopt`], [`LiveError::Request`] if it is in the space already; then nothing has changed.
    ///
    /// # Safety
    /// Nobody frees the memory, or makes references to it that kernels contradict, before [`Runtime::disown`] has
    /// given it back, or failed with an [`AdoptError::Lost`]; or the space has been closed.
    pub unsafe fn adopt(&self, addr: VirtAddr, bytes: u64, name: &str) -> Result<Lent, LiveError> {
        self.check_process()?;
        let cut = Cut::of(addr, bytes)?;
        self.check_cards(addr, &cut)?;
        check_private(addr, bytes)?;
        let _signals = BlockedSignals::block();
        let watch = Arc::clone(self.memories.adopted.watch()?);
        self.start_keepers(&watch)?;
        let _one = lock(&self.memories.adopted.adopting);
        self.end_former(&cut)?;
        let mut taken = Vec::new();
        match self.adopt_parts(&cut, bytes, name, &watch, &mut taken) {
            Ok(region) => Ok(Lent {
                cut,
                region: region.as_ref().map(Arc::downgrade),
                edges: Mutex::new(taken),
            }),
            Err(error) => {
                for edge in taken {
                    if let Err(error) = self.leave_edge(edge) {
                        tracing::error!(page = %edge, %error, "an edge of memory that was not adopted stays a card's to reach");
                    }
                }
                Err(error)
            }
        }
    }

    /// Ends what the program has moved to the addresses, or unmapped there, and the worker has not given back yet:
    /// who looks for a page there must not find the former range, nor two of them.
    fn end_former(&self, cut: &Cut) -> Result<(), LiveError> {
        let watch = self.memories.adopted.watching();
        watch.into_iter().for_each(|watch| watch.hear());
        let whole = cut.whole();
        for region in self.memories.adopted.regions() {
            if !region.is_anywhere_in(whole) {
                continue;
            }
            match self.bring_home_if_over(&region) {
                Ok(true) | Err(LiveError::Adopt(AdoptError::NotAdopted { .. })) => {}
                Ok(false) => {
                    let known = region.pages();
                    return Err(LiveError::Request(RequestError::InTheSpace {
                        range: whole,
                        known,
                    }));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn adopt_parts(
        &self,
        cut: &Cut,
        bytes: u64,
        name: &str,
        watch: &Arc<Watch>,
        taken: &mut Vec<PageNo>,
    ) -> Result<Option<Arc<Region>>, LiveError> {
        for page in cut.edges() {
            self.take_edge(page, name)?;
            taken.push(page);
        }
        if cut.inner.is_empty() {
            return Ok(None);
        }
        let region = Arc::new(Region::new(cut.inner, watch)?);
        self.enter_region(Arc::clone(&region), bytes, name)?;
        Ok(Some(region))
    }

    /// Tells the driver of a range, and has it watched.
    pub(super) fn enter_region(
        &self,
        region: Arc<Region>,
        bytes: u64,
        name: &str,
    ) -> Result<(), LiveError> {
        let range = region.pages();
        self.tell_adopted(range, bytes, name, true)?;
        self.memories.adopted.enter(Arc::clone(&region));
        if let Err(error) = region.begin() {
            self.memories.adopted.leave(&region);
            let _ = self.request(Request::Disown { addr: range.start.addr() });
            return Err(error.into());
        }
        Ok(())
    }

    fn tell_adopted(
        &self,
        range: PageRange,
        bytes: u64,
        name: &str,
        moves: bool,
    ) -> Result<(), LiveError> {
        self.request(Request::Adopt { range, bytes, name: name.into(), moves }).map(drop)
    }

    fn take_edge(&self, page: PageNo, name: &str) -> Result<(), LiveError> {
        let edges = &self.memories.adopted.edges;
        // What is counted is what the driver was told, whoever else comes or goes.
        let _turn = edges.turn();
        if !edges.share(page) {
            return Ok(());
        }
        self.tell_adopted(PageRange::page(page), PAGE_SIZE as u64, name, false)?;
        let frame = self.inspect(|driver| driver.page(page).frame)?;
        edges.enter(page, frame);
        Ok(())
    }

    fn leave_edge(&self, page: PageNo) -> Result<(), LiveError> {
        let edges = &self.memories.adopted.edges;
        let _turn = edges.turn();
        if edges.is_last(page) {
            // If it fails, the driver knows the page still, and it counts as before.
            self.request(Request::Disown { addr: page.addr() })?;
        }
        edges.leave(page);
        Ok(())
    }

    /// Whether all cards reach what is to be adopted.
    fn check_cards(&self, addr: VirtAddr, cut: &Cut) -> Result<(), AdoptError> {
        for (card, port) in (0u8..).map(CardId).zip(&self.ports) {
            if matches!(self.memories.card(card), Frames::Beyond(_)) {
                return Err(AdoptError::Beyond { card });
            }
            if matches!(port, Port::Ring(_)) && cut.edges().next().is_some() {
                return Err(AdoptError::Unaligned { addr, card });
            }
        }
        Ok(())
    }

    /// Gives adopted memory back: all of it is at home, and as it was before but for what kernels have written.
    /// Kernels that still use it fail.
    ///
    /// # Errors
    /// [`AdoptError::Lost`] if bytes of it are gone with a card, and [`AdoptError::NotAdopted`] if the program has
    /// moved or unmapped some of it, after which it was given back at once. All others: it is adopted as before.
    pub fn disown(&self, lent: &Lent) -> Result<(), LiveError> {
        self.check_process()?;
        let _signals = BlockedSignals::block();
        let mut edges = lock(&lent.edges);
        let outcome = match &lent.region {
            Some(region) => match region.upgrade() {
                Some(region) => self.bring_home(&region),
                None => Err(AdoptError::NotAdopted { range: lent.cut.inner }.into()),
            },
            None if edges.is_empty() => {
                Err(AdoptError::NotAdopted { range: lent.cut.whole() }.into())
            }
            None => Ok(()),
        };
        let over = match &outcome {
            Ok(()) => true,
            Err(error) => matches!(
                error,
                LiveError::Adopt(AdoptError::Lost { .. } | AdoptError::NotAdopted { .. })
            ),
        };
        while let Some(&page) = edges.last().filter(|_| over) {
            self.leave_edge(page)?;
            edges.pop();
        }
        outcome
    }

    /// Gives a range back.
    pub(super) fn bring_home(&self, region: &Arc<Region>) -> Result<(), LiveError> {
        let outcome = self.bring_home_in_turn(region, &mut lock(&region.is_home));
        have_faults_again(region, outcome)
    }

    /// Gives a range back if the program has moved or unmapped some of it, or it was not all at home the last time, and
    /// waits for who does that already; `false` if it is adopted for good.
    fn bring_home_if_over(&self, region: &Arc<Region>) -> Result<bool, LiveError> {
        let mut is_home = lock(&region.is_home);
        let is_over =
            region.leaves.load(Ordering::SeqCst) || region.is_let_go.load(Ordering::SeqCst);
        if *is_home || !is_over {
            return Ok(*is_home);
        }
        let outcome = self.bring_home_in_turn(region, &mut is_home);
        drop(is_home);
        have_faults_again(region, outcome).map(|()| true)
    }

    fn bring_home_in_turn(
        &self,
        region: &Arc<Region>,
        is_home: &mut bool,
    ) -> Result<(), LiveError> {
        let range = region.pages();
        if let Some(watch) = self.memories.adopted.watching() {
            // Who has read that some of it was unmapped, and not entered it yet, holds the order.
            drop(watch.order());
        }
        if *is_home {
            return Err(AdoptError::NotAdopted { range }.into());
        }
        if region.backing().is_some() && !region.is_let_go.load(Ordering::SeqCst) {
            // While all is as it was, should it fail; but for what was lost, which is told at the end.
            self.flush_file(region)?;
        }
        let mut tries = 0;
        let lost = loop {
            // Only its last steps failed the last time: the addresses may be another range's by now.
            if region.is_let_go.load(Ordering::SeqCst) {
                break lock(&region.lost).clone();
            }
            let lost = self.inspect(|driver| driver.lost(range))?;
            match self.request(Request::Disown { addr: range.start.addr() }) {
                Ok(_) => break lost,
                Err(LiveError::Request(RequestError::NotAnAllocation { .. })) => break lost,
                Err(error) if tries >= TRIES => return Err(error),
                Err(_) => tries += 1,
            }
        };
        lock(&region.lost).clone_from(&lost);
        region.is_let_go.store(true, Ordering::SeqCst);
        if let Some(backing) = region.backing() {
            self.flush_file(region)?;
            return self.end_file(region, is_home, &lost, backing.path());
        }
        if let Err((done, errno)) = region.finish(&lost) {
            // The driver does not know it any more; its pages are served from the staging area.
            let range = PageRange::new(range.start.offset(done), range.count - done);
            tracing::error!(%range, %errno, "adopted memory is not all at home");
            return Err(AdoptError::NotHome { range, errno }.into());
        }
        region.end();
        self.memories.adopted.leave(region);
        *is_home = true;
        if region.leaves.load(Ordering::SeqCst) {
            return Err(AdoptError::NotAdopted { range }.into());
        }
        match lost.first() {
            Some(&first) => {
                let pages = lost.iter().map(|range| range.count).sum();
                Err(AdoptError::Lost { pages, first }.into())
            }
            None => Ok(()),
        }
    }

    /// Gives the memory of a file back, of which all that there is was written.
    fn end_file(
        &self,
        region: &Arc<Region>,
        is_home: &mut bool,
        lost: &[PageRange],
        path: &Path,
    ) -> Result<(), LiveError> {
        region.end();
        self.memories.adopted.leave(region);
        *is_home = true;
        let Some(&first) = lost.first() else { return Ok(()) };
        Err(lost_of(path, lost, first).into())
    }

    /// Gives all adopted memory back: the space closes.
    pub(crate) fn disown_all(&self) {
        for region in self.memories.adopted.regions() {
            if let Err(error) = self.bring_home(&region) {
                tracing::error!(range = %region.pages(), %error, "a space closes with adopted memory");
            }
        }
    }

    /// Whether a range is adopted memory.
    pub(crate) fn is_adopted(&self, range: PageRange) -> bool {
        let adopted = &self.memories.adopted;
        if !adopted.is_used() {
            return false;
        }
        let known = adopted.each(range, |region, part| match region {
            Some(_) => Ok(()),
            None if adopted.edges.contains(part.start) => Ok(()),
            None => Err(()),
        });
        known.is_ok()
    }

    /// The pages of a range that may move: without those at the edges of adopted memory.
    pub fn movable(&self, range: PageRange) -> PageRange {
        let adopted = &self.memories.adopted;
        if range.is_empty() || !adopted.is_used() || self.arena().covers(range) {
            return range;
        }
        let stays = |page: PageNo| adopted.edges.contains(page);
        let first = u64::from(stays(range.start));
        let last = u64::from(range.count > first && stays(PageNo(range.end().0 - 1)));
        PageRange::new(range.start.offset(first), range.count - first - last)
    }

    /// How often a page stayed on the host because a device had it pinned.
    pub fn pinned_by_devices(&self) -> u64 {
        self.memories.adopted.pinned()
    }

    /// Takes pages of adopted memory from the program by a copy, while it writes them: for tests that must
    /// notice.
    #[cfg(feature = "mutations")]
    pub fn copy_adopted_first(&self) {
        if let Some(watch) = self.memories.adopted.watching() {
            watch.copies_first.store(true, Ordering::SeqCst);
        }
    }

    /// Asks for all adopted memory to be at home, for a fork.
    pub(crate) fn bring_adopted_home(&self) {
        for region in self.memories.adopted.programs() {
            let range = region.pages();
            if let Err(error) = self.request(Request::Migrate { range, to: MemoryId::HOST }) {
                tracing::debug!(%range, %error, "not all of adopted memory can come home");
            }
            // What is on the host and in no map is mapped.
            let away: Vec<PageNo> = region.away().collect();
            for pages in away.chunks(FAULTS) {
                let access = Access::Write;
                self.handle_all(pages.iter().map(|&page| Event::HostFault { page, access }));
            }
        }
    }

    /// Waits until what the program has emptied by now (`MADV_DONTNEED`) is empty for cards as well.
    pub(crate) fn await_emptied(&self) {
        let Some(watch) = self.memories.adopted.watching() else { return };
        // Who has read of it and not entered it yet holds the order.
        drop(watch.order());
        let asked = watch.asked.load(Ordering::SeqCst);
        let served = || watch.served.load(Ordering::SeqCst) >= asked;
        let over = || served() || watch.closed.load(Ordering::SeqCst);
        if !over() {
            watch.work.wait_for(|| over().then_some(()));
        }
    }

    pub(super) fn start_keepers(&self, watch: &Arc<Watch>) -> Result<(), LiveError> {
        let mut keepers = lock(&self.keepers.0);
        let Some(runtime) = self.shared() else { return Ok(()) };
        fork::enter(&runtime);
        // They end before the space does, which waits for them.
        let body = |work: fn(&Runtime, &Watch)| {
            let (runtime, watch) = (Arc::downgrade(&runtime), Arc::clone(watch));
            move || {
                block_for_whole_thread();
                let Some(runtime) = runtime.upgrade() else { return };
                work(&runtime, &watch);
            }
        };
        let all = [
            ("farside-adopted", read_faults as fn(&Runtime, &Watch)),
            ("farside-keeper", work as fn(&Runtime, &Watch)),
        ];
        // Where the system refused the second one, the first is there since.
        let there = keepers.len();
        for (name, work) in all.into_iter().skip(there) {
            let builder = std::thread::Builder::new().name(name.to_owned());
            keepers.push(builder.spawn(body(work)).map_err(LiveError::Thread)?);
        }
        Ok(())
    }

    /// Ends the threads for adopted memory, when there is none any more.
    pub(crate) fn dismiss_keepers(&self) {
        let keepers = std::mem::take(&mut *lock(&self.keepers.0));
        if let Some(watch) = self.memories.adopted.watching() {
            watch.closed.store(true, Ordering::SeqCst);
            watch.ring();
            watch.work.notify();
        }
        for keeper in keepers {
            let _ = keeper.join();
        }
    }

    /// In a child made by fork there are no such threads.
    pub(crate) fn forget_keepers(&self) {
        if let Ok(mut keepers) = self.keepers.0.try_lock() {
            std::mem::take(&mut *keepers).into_iter().for_each(std::mem::forget);
        }
    }
}

/// Who has faulted since the driver has let go of a range that could not be given back is served now.
fn have_faults_again(region: &Region, outcome: Result<(), LiveError>) -> Result<(), LiveError> {
    if outcome.is_err() && region.is_let_go.load(Ordering::SeqCst) {
        region.let_fault_again();
    }
    outcome
}

/// Reads faults on adopted memory, and whatever else happens to it.
fn read_faults(runtime: &Runtime, watch: &Watch) {
    let mut known = [(PageNo(0), Access::Read); FAULTS];
    while !watch.closed.load(Ordering::SeqCst) {
        let mut sources =
            [PollFd::new(watch.uffd(), PollFlags::IN), PollFd::new(&watch.bell, PollFlags::IN)];
        // Every outcome means: look.
        let _ = rustix::event::poll(&mut sources, None);
        if sources[1].revents().contains(PollFlags::IN) {
            let mut count = [0; 8];
            let _ = rustix::io::read(&watch.bell, &mut count);
            // What did not begin because of a fork.
            runtime.carry_out(lock(&runtime.core));
        }
        watch.hear();
        loop {
            let mut count = 0;
            // What cannot be served before an event is heard comes again, with the bell.
            for Fault { addr, access, .. } in std::iter::from_fn(|| watch.next_fault()).take(FAULTS)
            {
                match watch.whose(addr.page()) {
                    Whose::Drivers(_) if watch.fill_beside_a_fork(addr.page()) => {}
                    Whose::Drivers(page) => {
                        known[count] = (page, access);
                        count += 1;
                    }
                    Whose::LetGo(region, page) => region.serve(page),
                    Whose::Nobodys => watch.fill_unknown(addr.page()),
                }
            }
            if count == 0 {
                break;
            }
            let faults = known[..count].iter();
            runtime.handle_all(faults.map(|&(page, access)| Event::HostFault { page, access }));
        }
    }
}

/// Brings home what the program has emptied, and gives back what it has moved or unmapped some of.
fn work(runtime: &Runtime, watch: &Watch) {
    loop {
        let closed = || watch.closed.load(Ordering::SeqCst);
        let asked = || watch.asked.load(Ordering::SeqCst);
        let served = watch.served.load(Ordering::SeqCst);
        watch.work.wait_for(|| (asked() > served || closed()).then_some(()));
        if closed() {
            return;
        }
        let asked = asked();
        for region in runtime.memories.adopted.regions() {
            if region.leaves.load(Ordering::SeqCst) {
                let range = region.pages();
                let outcome = runtime.bring_home(&region);
                let expected = |error: &LiveError| {
                    matches!(error, LiveError::Adopt(AdoptError::NotAdopted { .. }))
                };
                if let Some(error) = outcome.err().filter(|error| !expected(error)) {
                    tracing::warn!(%range, %error, "memory that the program has moved or unmapped is not all given back");
                }
                continue;
            }
            bring_emptied(runtime, &region);
        }
        watch.served.store(asked, Ordering::SeqCst);
        watch.work.notify();
    }
}

/// What a range has emptied comes home, as zeros.
fn bring_emptied(runtime: &Runtime, region: &Region) {
    let mut pages = region.emptied_pages().peekable();
    while let Some(first) = pages.next() {
        let mut range = PageRange::page(first);
        while pages.next_if(|&next| next == range.end()).is_some() {
            range.count += 1;
        }
        let mut tries = 0;
        loop {
            // Whoever empties them again meanwhile has this done again.
            region.are_recalled(range);
            match runtime.request(Request::Recall { range }) {
                Ok(_) => break,
                Err(_) if tries < TRIES => tries += 1,
                Err(error) => {
                    tracing::warn!(%range, %error, "memory that was emptied does not come home");
                    break region.are_to_be_recalled(range);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_which_a_range_is_only_a_part_are_its_edges() {
        let cut = |addr, bytes| {
            let Cut { first, inner, last } = Cut::of(VirtAddr(addr), bytes).unwrap();
            (first.map(|page| page.0), (inner.start.0, inner.count), last.map(|page| page.0))
        };
        assert_eq!(cut(0x4000, 0x3000), (None, (4, 3), None));
        assert_eq!(cut(0x4010, 0x3000), (Some(4), (5, 2), Some(7)));
        assert_eq!(cut(0x4010, 0x2ff0), (Some(4), (5, 2), None));
        assert_eq!(cut(0x4000, 0x2001), (None, (4, 2), Some(6)));
        assert_eq!(cut(0x4010, 0x20), (Some(4), (5, 0), None));
        assert_eq!(cut(0x4000, 0x20), (None, (4, 0), Some(4)));
        assert_eq!(cut(0x4fff, 2), (Some(4), (5, 0), Some(5)));
        assert_eq!(Cut::of(VirtAddr(64), 0), Err(AdoptError::Empty { addr: VirtAddr(64) }));
        let whole = Cut::of(VirtAddr(u64::MAX - 4), 100);
        assert!(matches!(whole, Err(AdoptError::Range { .. })), "{whole:?}");
    }
}
