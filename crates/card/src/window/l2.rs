//! Translations of many pages, between a translator and its walker.

use std::collections::VecDeque;

use farside_types::Rights;

use super::run::Run;
use super::{WindowFault, WindowMapping};

/// A page and where it is.
#[derive(Clone, Copy, Debug)]
struct Way {
    page: u64,
    mapping: WindowMapping,
}

/// Pages with the same lowest bits.
#[derive(Clone, Debug)]
struct Set {
    ways: Vec<Option<Way>>,
    /// The way that is filled next.
    turn: usize,
}

impl Set {
    fn clear(&mut self) {
        self.ways.fill(None);
        self.turn = 0;
    }
}

/// What a request that waits for its response knows.
#[derive(Clone, Copy, Debug)]
enum Waiting {
    Held(WindowMapping),
    Walk(u64),
}

/// An L2 TLB, as `rtl/l2_tlb.vhd`: sets of pages with the same lowest bits, whose ways are filled in turn.
///
/// Responses come in the order of requests, of what is held and of walks alike. What a walk finds is kept if
/// it may be written to and no invalidation was taken since the request was accepted: so no fault is ever
/// answered from here, and what is accepted after an invalidation of its page is answered by a walk that
/// began after it. A page that is part of a run is given back as such until there is an invalidation, of
/// whichever pages: it may be of another page of the run.
#[derive(Clone, Debug)]
pub struct WindowL2 {
    sets: Vec<Set>,
    waiting: VecDeque<Waiting>,
    /// Of those that wait, how many were accepted before the last invalidation.
    elder: usize,
    /// Invalidations until everything is dropped, and each how many.
    left: u64,
    epochs: u64,
}

impl WindowL2 {
    /// With 2^`set_bits` sets of `ways` pages each; of none it holds nothing, and hands on what walks find.
    /// The hardware knows runs that are still true by a count of `epoch_bits` bits: each 2^`epoch_bits`th
    /// invalidation drops everything.
    pub fn new(set_bits: u32, ways: usize, epoch_bits: u32) -> WindowL2 {
        let set = Set { ways: vec![None; ways], turn: 0 };
        let epochs = 1 << epoch_bits;
        WindowL2 {
            sets: vec![set; 1 << set_bits],
            waiting: VecDeque::new(),
            elder: 0,
            left: epochs,
            epochs,
        }
    }

    /// A request for `page`, counted from the window's begin. Returns the page if it must be walked for.
    pub fn accept(&mut self, page: u64) -> Option<u64> {
        let held = self.set(page).ways.iter().flatten().find(|way| way.page == page);
        let waiting = held.map_or(Waiting::Walk(page), |way| Waiting::Held(way.mapping));
        self.waiting.push_back(waiting);
        matches!(waiting, Waiting::Walk(_)).then_some(page)
    }

    /// The response to the oldest request, if it is known: `walked` is asked for the result of the oldest
    /// walk if there must be one.
    pub fn respond(
        &mut self,
        walked: impl FnOnce() -> Option<Result<WindowMapping, WindowFault>>,
    ) -> Option<Result<WindowMapping, WindowFault>> {
        let result = match *self.waiting.front()? {
            Waiting::Held(mapping) => Ok(mapping),
            Waiting::Walk(page) => {
                let result = walked()?;
                if let (0, Ok(mapping)) = (self.elder, result) {
                    self.keep(page, mapping);
                }
                result
            }
        };
        self.waiting.pop_front();
        self.elder = self.elder.saturating_sub(1);
        Some(result)
    }

    /// The pages from `first` to `last` are not what they were. Drops those of the smallest aligned run that
    /// has them all.
    pub fn invalidate(&mut self, first: u64, last: u64) {
        let run = Run::around(first, last);
        for way in self.sets.iter_mut().flat_map(|set| &mut set.ways) {
            way.take_if(|way| run.overlaps(Run::page(way.page)));
            if let Some(way) = way {
                way.mapping.size = 0;
            }
        }
        self.elder = self.waiting.len();
        self.left -= 1;
        if self.left == 0 {
            self.left = self.epochs;
            self.sets.iter_mut().for_each(Set::clear);
        }
    }

    /// Requests without a response.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    fn keep(&mut self, page: u64, mapping: WindowMapping) {
        if mapping.rights != Rights::ReadWrite {
            return;
        }
        let set = self.set_mut(page);
        let Some(way) = set.ways.get_mut(set.turn) else { return };
        *way = Some(Way { page, mapping });
        set.turn = (set.turn + 1) % set.ways.len();
    }

    fn set(&self, page: u64) -> &Set {
        &self.sets[page as usize & (self.sets.len() - 1)]
    }

    fn set_mut(&mut self, page: u64) -> &mut Set {
        let place = page as usize & (self.sets.len() - 1);
        &mut self.sets[place]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(frame: u32) -> Result<WindowMapping, WindowFault> {
        Ok(WindowMapping { frame, memory: 1, rights: Rights::ReadWrite, size: 2 })
    }

    /// Asks for a page, which a walk finds at `frame`; whether there was one, and what is known.
    fn ask(l2: &mut WindowL2, page: u64, frame: u32) -> (bool, WindowMapping) {
        let walks = l2.accept(page).is_some();
        (walks, l2.respond(|| Some(found(frame))).unwrap().unwrap())
    }

    /// The same, and only the frame.
    fn get(l2: &mut WindowL2, page: u64, frame: u32) -> (bool, u32) {
        let (walks, mapping) = ask(l2, page, frame);
        (walks, mapping.frame)
    }

    #[test]
    fn what_was_walked_for_is_held_until_others_of_its_set_take_its_turn() {
        let mut l2 = WindowL2::new(1, 2, 16);
        for page in [0, 1, 2] {
            assert_eq!(get(&mut l2, page, page as u32), (true, page as u32));
        }
        assert_eq!(get(&mut l2, 0, 9), (false, 0));
        assert_eq!(get(&mut l2, 4, 4), (true, 4), "takes the turn of the first");
        assert_eq!(get(&mut l2, 1, 9), (false, 1), "of another set");
        assert_eq!(get(&mut l2, 2, 9), (false, 2));
        assert_eq!(get(&mut l2, 0, 7), (true, 7));
    }

    #[test]
    fn responses_come_in_the_order_of_requests() {
        let mut l2 = WindowL2::new(1, 1, 16);
        get(&mut l2, 0, 5);
        assert_eq!((l2.accept(1), l2.accept(0)), (Some(1), None));
        assert_eq!(l2.respond(|| None), None, "the walk is under way");
        assert_eq!(l2.respond(|| Some(found(6))), Some(found(6)));
        let held = l2.respond(|| panic!("no walk is asked for"));
        assert_eq!(held.map(|result| result.map(|mapping| mapping.frame)), Some(Ok(5)));
        assert_eq!((l2.respond(|| None), l2.waiting()), (None, 0));
    }

    #[test]
    fn an_invalidation_drops_its_run_and_what_is_under_way() {
        let mut l2 = WindowL2::new(2, 2, 16);
        for page in 0..8 {
            get(&mut l2, page, page as u32);
        }
        l2.accept(9);
        l2.invalidate(4, 6);
        l2.accept(10);
        assert_eq!(l2.respond(|| Some(found(1))), Some(found(1)));
        assert_eq!(l2.respond(|| Some(found(2))), Some(found(2)));
        assert_eq!(get(&mut l2, 9, 3), (true, 3), "asked for before, of whichever page");
        assert_eq!(get(&mut l2, 10, 3), (false, 2));
        let walks = (4..8).all(|page| l2.clone().accept(page).is_some());
        assert!(walks && get(&mut l2, 3, 9) == (false, 3));
    }

    #[test]
    fn a_page_is_of_its_run_until_an_invalidation_of_whichever_page() {
        let mut l2 = WindowL2::new(2, 2, 16);
        let size = |l2: &mut WindowL2, page| {
            let (walks, mapping) = ask(l2, page, 4);
            (walks, mapping.size)
        };
        assert_eq!((size(&mut l2, 4), size(&mut l2, 4)), ((true, 2), (false, 2)));
        l2.invalidate(11, 11);
        assert_eq!((size(&mut l2, 4), size(&mut l2, 5)), ((false, 0), (true, 2)));
        assert_eq!(size(&mut l2, 5), (false, 2));
    }

    #[test]
    fn everything_is_dropped_when_the_count_of_invalidations_begins_again() {
        let mut l2 = WindowL2::new(2, 2, 2);
        for round in 0..3 {
            assert_eq!(get(&mut l2, 4, round), (true, round));
            for _ in 0..3 {
                l2.invalidate(11, 11);
                assert_eq!(get(&mut l2, 4, 9), (false, round));
            }
            l2.invalidate(11, 11);
        }
    }

    #[test]
    fn faults_and_what_may_only_be_read_are_not_kept() {
        let mut l2 = WindowL2::new(1, 1, 16);
        let read_only = found(3).map(|mapping| WindowMapping { rights: Rights::Read, ..mapping });
        for result in [Err(WindowFault::NotMapped), read_only] {
            assert_eq!(l2.accept(0), Some(0));
            assert_eq!(l2.respond(|| Some(result)), Some(result));
        }
        assert_eq!(l2.accept(0), Some(0));
    }

    #[test]
    fn without_ways_everything_is_walked_for() {
        let mut l2 = WindowL2::new(0, 0, 16);
        assert_eq!((get(&mut l2, 3, 1), get(&mut l2, 3, 2)), ((true, 1), (true, 2)));
    }
}
