//! The answers that one reader or writer gets.

use std::collections::VecDeque;
use std::num::NonZeroUsize;

use farside_types::Access;

use super::run::Run;
use super::{WindowFault, WindowGeometry, WindowMapping};

/// The answer to a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WindowAnswer {
    /// The address is none of the window: it goes on as it is.
    Untranslated(u64),
    /// The place in a memory of the card.
    At {
        /// The memory, 0 to 15.
        memory: u8,
        /// The address in it.
        address: u64,
    },
    /// The address cannot be reached.
    Fault {
        /// Why.
        fault: WindowFault,
        /// The address that was asked for.
        address: u64,
    },
}

/// Where the result of a request comes from.
#[derive(Clone, Copy, Debug)]
enum Source {
    /// It needs none.
    Pass,
    /// A translation that was held.
    Held(WindowMapping),
    /// The walk of this number.
    Walk(u64),
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    address: u64,
    access: Access,
    source: Source,
}

/// A translation that is held.
#[derive(Clone, Copy, Debug)]
struct Entry {
    run: Run,
    mapping: WindowMapping,
}

/// A walk that was asked for.
#[derive(Clone, Copy, Debug)]
struct Walk {
    page: u64,
    /// Nothing said since that the page is not what it was.
    is_true: bool,
    /// There was no invalidation since.
    is_undisturbed: bool,
    result: Option<Result<WindowMapping, WindowFault>>,
}

/// A translator that holds some translations, each of a page or of an aligned run of pages.
///
/// Requests are answered in their order. A request for a page whose walk is under way shares that walk,
/// whatever was asked for in between. One that is accepted after an invalidation of its page is answered
/// by a walk that began after it; what was accepted before is waited for
/// ([`WindowTranslator::is_drained`]). A fault that somebody has seen is an invalidation of its page.
///
/// An invalidation drops what overlaps the smallest aligned run that has all its pages. The translation
/// that was filled first makes room for the next one.
#[derive(Clone, Debug)]
pub struct WindowTranslator {
    geometry: WindowGeometry,
    base: u64,
    entries: Vec<Option<Entry>>,
    /// The place in `entries` that is filled next.
    next_entry: usize,
    waiting: VecDeque<Waiting>,
    /// Walks that are under way or waited for, by their number; the first is that of `walks[0]`.
    walks: VecDeque<Walk>,
    first_walk: u64,
    /// Of those that wait, how many were accepted before the last invalidation.
    draining: usize,
}

impl WindowTranslator {
    /// Of a window that begins at `base`, aligned to its size, with room for `entries` translations.
    pub fn new(geometry: &WindowGeometry, base: u64, entries: NonZeroUsize) -> WindowTranslator {
        WindowTranslator {
            geometry: geometry.clone(),
            base,
            entries: vec![None; entries.get()],
            next_entry: 0,
            waiting: VecDeque::new(),
            walks: VecDeque::new(),
            first_walk: 0,
            draining: 0,
        }
    }

    /// A request. Returns the page that must be walked for, if one must.
    pub fn accept(&mut self, address: u64, access: Access) -> Option<u64> {
        let page = self.page(address);
        let (source, walked) = match page {
            None => (Source::Pass, None),
            Some(page) => match (self.held(page), self.shared(page)) {
                (Some(mapping), _) => (Source::Held(mapping), None),
                (None, Some(walk)) => (Source::Walk(walk), None),
                (None, None) => (Source::Walk(self.walk(page)), Some(page)),
            },
        };
        self.waiting.push_back(Waiting { address, access, source });
        walked
    }

    /// The result of a walk; they come in the order in which [`WindowTranslator::accept`] asked for them.
    pub fn walked(&mut self, result: Result<WindowMapping, WindowFault>) {
        let Some(walk) = self.walks.iter_mut().find(|walk| walk.result.is_none()) else { return };
        walk.result = Some(result);
        let walk = *walk;
        if let (true, Ok(mapping)) = (walk.is_true, result) {
            self.fill(walk, mapping);
        }
        self.forget_walks();
    }

    /// The answer to the oldest request, if it is known. Each is given once.
    pub fn answer(&mut self) -> Option<WindowAnswer> {
        let oldest = *self.waiting.front()?;
        let answer = match oldest.source {
            Source::Pass => WindowAnswer::Untranslated(oldest.address),
            Source::Held(mapping) => self.translated(oldest, Ok(mapping)),
            Source::Walk(number) => {
                let result = self.walks[(number - self.first_walk) as usize].result?;
                self.translated(oldest, result)
            }
        };
        self.waiting.pop_front();
        self.draining = self.draining.saturating_sub(1);
        if let (WindowAnswer::Fault { .. }, Some(page)) = (answer, self.page(oldest.address)) {
            self.drop_run(Run::page(page));
        }
        self.forget_walks();
        Some(answer)
    }

    /// The pages from `first` to `last` are not what they were.
    pub fn invalidate(&mut self, first: u64, last: u64) {
        self.drop_run(Run::around(first, last));
        self.draining = self.waiting.len();
    }

    /// Whether every request that was accepted before the last invalidation has been answered.
    pub fn is_drained(&self) -> bool {
        self.draining == 0
    }

    /// Requests without an answer.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// The page of an address, counted from the window's begin, if it is one of the window.
    fn page(&self, address: u64) -> Option<u64> {
        let within = address.wrapping_sub(self.base);
        (within >> self.geometry.window_bits() == 0).then_some(within >> self.geometry.page_bits())
    }

    /// Where a page is that an entry has. Within a run, frames lie as pages do.
    fn held(&self, page: u64) -> Option<WindowMapping> {
        let has = |entry: &&Entry| entry.run.overlaps(Run::page(page));
        let Entry { run, mapping } = self.entries.iter().flatten().find(has)?;
        let within = (1 << run.size) - 1;
        let frame = mapping.frame & !within | page as u32 & within;
        Some(WindowMapping { frame, ..*mapping })
    }

    /// The walk under way that a request for this page may wait for.
    fn shared(&self, page: u64) -> Option<u64> {
        let may = |walk: &Walk| walk.page == page && walk.is_true && walk.result.is_none();
        let place = self.walks.iter().position(may)?;
        Some(self.first_walk + place as u64)
    }

    /// The number of a new walk.
    fn walk(&mut self, page: u64) -> u64 {
        self.walks.push_back(Walk { page, is_true: true, is_undisturbed: true, result: None });
        self.first_walk + self.walks.len() as u64 - 1
    }

    /// Holds what a walk has found; of a run only the page itself, if there was any invalidation since the
    /// walk began, as it may have been for another of its pages, or if the frames do not lie as pages do.
    fn fill(&mut self, walk: Walk, mapping: WindowMapping) {
        let lies_alike = (walk.page as u32 ^ mapping.frame) & ((1 << mapping.size) - 1) == 0;
        let size = if walk.is_undisturbed && lies_alike { mapping.size } else { 0 };
        let run = Run { page: walk.page, size };
        self.drop_entries(run);
        self.entries[self.next_entry] = Some(Entry { run, mapping });
        self.next_entry = (self.next_entry + 1) % self.entries.len();
    }

    fn drop_run(&mut self, run: Run) {
        self.drop_entries(run);
        for walk in self.walks.iter_mut().filter(|walk| walk.result.is_none()) {
            walk.is_undisturbed = false;
            walk.is_true &= !run.overlaps(Run::page(walk.page));
        }
    }

    fn drop_entries(&mut self, run: Run) {
        for entry in &mut self.entries {
            entry.take_if(|entry| entry.run.overlaps(run));
        }
    }

    /// Walks whose result nobody waits for any more.
    fn forget_walks(&mut self) {
        let is_waited_for = |number: u64, waiting: &VecDeque<Waiting>| {
            waiting.iter().any(|one| matches!(one.source, Source::Walk(walk) if walk == number))
        };
        while self.walks.front().is_some_and(|walk| {
            walk.result.is_some() && !is_waited_for(self.first_walk, &self.waiting)
        }) {
            self.walks.pop_front();
            self.first_walk += 1;
        }
    }

    fn translated(
        &self,
        Waiting { address, access, .. }: Waiting,
        result: Result<WindowMapping, WindowFault>,
    ) -> WindowAnswer {
        let reached = result.and_then(|mapping| {
            if mapping.rights.allows(access) { Ok(mapping) } else { Err(WindowFault::ReadOnly) }
        });
        match reached {
            Err(fault) => WindowAnswer::Fault { fault, address },
            Ok(WindowMapping { frame, memory, .. }) => {
                let bits = self.geometry.page_bits();
                let within = address & ((1 << bits) - 1);
                WindowAnswer::At { memory, address: u64::from(frame) << bits | within }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use farside_types::Rights;

    use super::*;
    use Access::{Read, Write};

    const BASE: u64 = 1 << 40;
    const PAGE: u64 = 1 << 12;

    fn translator(entries: usize) -> WindowTranslator {
        let geometry = WindowGeometry::new(12, &[2, 3], 20).unwrap();
        WindowTranslator::new(&geometry, BASE, NonZeroUsize::new(entries).unwrap())
    }

    fn mapping(frame: u32, rights: Rights) -> Result<WindowMapping, WindowFault> {
        Ok(WindowMapping { frame, memory: 2, rights, size: 0 })
    }

    fn run(frame: u32, size: u32) -> Result<WindowMapping, WindowFault> {
        Ok(WindowMapping { frame, memory: 2, rights: Rights::ReadWrite, size })
    }

    fn at(address: u64) -> Option<WindowAnswer> {
        Some(WindowAnswer::At { memory: 2, address })
    }

    /// Asks for a page and is answered; whether it was walked for, and the frame.
    fn read(translator: &mut WindowTranslator, page: u64, found: u32, size: u32) -> (bool, u64) {
        let walks = translator.accept(BASE + page * PAGE, Read).is_some();
        if walks {
            translator.walked(run(found, size));
        }
        let Some(WindowAnswer::At { address, .. }) = translator.answer() else { panic!("a place") };
        (walks, address / PAGE)
    }

    #[test]
    fn requests_for_one_page_share_a_walk_and_are_answered_in_order() {
        let mut translator = translator(1);
        assert_eq!(translator.accept(BASE + 3 * PAGE + 8, Read), Some(3));
        assert_eq!(translator.accept(BASE + 3 * PAGE + 16, Write), None);
        assert_eq!(translator.accept(BASE - 1, Read), None);
        assert_eq!(translator.accept(BASE + 32 * PAGE, Read), None);
        assert_eq!(translator.accept(BASE + 31 * PAGE, Read), Some(31));
        assert_eq!(translator.accept(BASE + 3 * PAGE, Read), None, "whatever came between");
        assert_eq!(translator.answer(), None, "the walk is under way");
        translator.walked(mapping(7, Rights::ReadWrite));
        assert_eq!(translator.answer(), at(7 * PAGE + 8));
        assert_eq!(translator.answer(), at(7 * PAGE + 16));
        assert_eq!(translator.answer(), Some(WindowAnswer::Untranslated(BASE - 1)));
        assert_eq!(translator.answer(), Some(WindowAnswer::Untranslated(BASE + 32 * PAGE)));
        assert_eq!((translator.answer(), translator.waiting()), (None, 2));
        translator.walked(mapping(8, Rights::ReadWrite));
        assert_eq!(translator.answer(), at(8 * PAGE));
        assert_eq!(translator.answer(), at(7 * PAGE));
        assert_eq!(translator.accept(BASE + 31 * PAGE, Read), None, "held");
        assert_eq!(translator.accept(BASE + 3 * PAGE, Read), Some(3), "not any more");
    }

    #[test]
    fn an_invalidation_is_for_what_comes_after_it() {
        let mut translator = translator(1);
        translator.accept(BASE, Read);
        translator.invalidate(1, 1);
        assert_eq!(translator.accept(BASE, Read), None, "another page");
        translator.invalidate(0, 0);
        assert_eq!(translator.accept(BASE, Read), Some(0));
        translator.walked(mapping(1, Rights::Read));
        assert_eq!(translator.accept(BASE, Read), None, "the second walk");
        translator.walked(mapping(2, Rights::Read));
        assert!(!translator.is_drained());
        assert_eq!((translator.answer(), translator.answer()), (at(PAGE), at(PAGE)));
        assert!(translator.is_drained());
        assert_eq!((translator.answer(), translator.answer()), (at(2 * PAGE), at(2 * PAGE)));
        assert_eq!(translator.accept(BASE, Read), None);
        translator.invalidate(0, 31);
        assert_eq!(translator.accept(BASE, Read), Some(0));
    }

    #[test]
    fn a_fault_is_told_and_forgotten() {
        let mut translator = translator(2);
        assert_eq!(translator.accept(BASE + 5, Read), Some(0));
        translator.walked(mapping(1, Rights::Read));
        assert_eq!(translator.answer(), at(PAGE + 5));
        assert_eq!(translator.accept(BASE + 5, Write), None, "it is known that it may not");
        let fault = WindowAnswer::Fault { fault: WindowFault::ReadOnly, address: BASE + 5 };
        assert_eq!(translator.answer(), Some(fault));
        assert_eq!(translator.accept(BASE, Read), Some(0));
        translator.walked(Err(WindowFault::NotMapped));
        assert_eq!(translator.accept(BASE + 1, Read), Some(0), "faults are not held");
        let fault = WindowAnswer::Fault { fault: WindowFault::NotMapped, address: BASE };
        assert_eq!(translator.answer(), Some(fault));
        assert_eq!(
            translator.accept(BASE, Read),
            Some(0),
            "nor is what was under way when it was seen"
        );
    }

    #[test]
    fn one_entry_has_a_whole_run() {
        let mut translator = translator(2);
        assert_eq!(read(&mut translator, 9, 0x45, 2), (true, 0x45));
        assert_eq!(read(&mut translator, 8, 0x44, 2), (false, 0x44));
        assert_eq!(read(&mut translator, 11, 0x47, 2), (false, 0x47));
        assert_eq!(read(&mut translator, 12, 0x99, 0), (true, 0x99));
        // The run is longer meanwhile: what overlaps it makes room.
        assert_eq!(read(&mut translator, 13, 0x45, 3), (true, 0x45));
        assert_eq!(read(&mut translator, 12, 0, 0), (false, 0x44));
        assert_eq!(read(&mut translator, 8, 0, 0), (false, 0x40));
        translator.invalidate(14, 14);
        assert_eq!(read(&mut translator, 8, 7, 0), (true, 7));
    }

    #[test]
    fn frames_that_do_not_lie_as_pages_do_are_no_run() {
        let mut translator = translator(2);
        assert_eq!(read(&mut translator, 9, 0x44, 1), (true, 0x44));
        assert_eq!(read(&mut translator, 9, 0, 0), (false, 0x44));
        assert_eq!(read(&mut translator, 8, 0x44, 1), (true, 0x44));
    }

    #[test]
    fn a_run_that_was_under_way_at_an_invalidation_is_kept_for_one_page() {
        let mut translator = translator(4);
        assert_eq!(translator.accept(BASE + 4 * PAGE, Read), Some(4));
        translator.invalidate(5, 5);
        translator.walked(run(0x10, 1));
        assert_eq!(translator.answer(), at(0x10 * PAGE));
        assert_eq!(read(&mut translator, 4, 0, 0), (false, 0x10));
        assert_eq!(read(&mut translator, 5, 0x33, 0), (true, 0x33));
    }

    #[test]
    fn an_invalidation_is_of_the_smallest_aligned_run_around_its_pages() {
        let mut translator = translator(8);
        for page in 0..8 {
            read(&mut translator, page, 0x10 + page as u32, 0);
        }
        translator.invalidate(4, 6);
        let walked = (0..8).map(|page| read(&mut translator, page, 0, 0).0);
        assert_eq!(
            walked.collect::<Vec<_>>(),
            [false, false, false, false, true, true, true, true]
        );
    }

    #[test]
    fn the_oldest_translation_makes_room() {
        let mut translator = translator(3);
        for page in [0, 1, 2, 0, 3] {
            read(&mut translator, page, page as u32, 0);
        }
        let walked = [1, 2, 3, 0].map(|page| read(&mut translator, page, page as u32, 0).0);
        assert_eq!(walked, [false, false, false, true]);
    }

    #[test]
    fn as_many_walks_as_pages_that_are_held() {
        let mut translator = translator(32);
        let (mut seed, mut walks) = (1_u64, VecDeque::new());
        let mut walked = 0;
        for step in 0..2000 {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            walks.extend(translator.accept(BASE + (seed >> 59) * PAGE, Read));
            if step % 7 == 0 && walks.pop_front().is_some() {
                translator.walked(mapping(1, Rights::Read));
                walked += 1;
            }
            while translator.answer().is_some() {}
        }
        assert_eq!((walked, walks.len()), (32, 0));
    }
}
