//! What the harness knows of each page by itself, to judge whether an error is legitimate.
//!
//! Times are machine stamps: numbers that grow with every step. Where program and driver race (a
//! fault is raised, then the page is freed, then the driver answers), an answer is legitimate if
//! its reason was true at some time in between.

use farside_types::{AgentId, MemoryId, PageNo, PageRange};

/// One page.
#[derive(Clone, Debug, Default)]
pub(crate) struct PageFacts {
    /// Allocated or adopted, and no free was asked for.
    pub(crate) live: bool,
    /// Adopted, and the program has asked for it: who gets an answer now may be late.
    pub(crate) leaving: bool,
    /// Adopted, with other data on it: nobody may take it from the host.
    pub(crate) stays_home: bool,
    /// Freeing it failed half way: nobody has it, and it is not free either.
    pub(crate) half_freed: bool,
    /// The driver said that it is freed; no access may reach it any more.
    pub(crate) freed: bool,
    /// Last stamp at which it was not live.
    pub(crate) dead_at: u64,
    /// Cards may only read it, the driver said so.
    pub(crate) cards_read_only: bool,
    /// Last stamp at which cards may have been allowed only to read.
    pub(crate) read_only_at: Option<u64>,
    /// A frame of it was on a card when that card was lost or reset.
    pub(crate) lost: bool,
    /// A command on it failed, or was not answered in time.
    pub(crate) failed: bool,
    /// The same, and nobody was refused since because the page could not be sent away.
    pub(crate) stays: bool,
    /// Where the program pinned it, once per pin.
    pub(crate) pins: Vec<MemoryId>,
    /// An agent that lives elsewhere asked for it since the pin was asked for, or was waiting then.
    pub(crate) pin_disturbed: bool,
    /// Who asked for it, and the last stamp at which it waited for the answer.
    pub(crate) wanted: Vec<(AgentId, u64)>,
}

/// All pages of the arena, and those that can be adopted.
#[derive(Debug)]
pub(crate) struct Facts {
    arena: PageRange,
    pages: Vec<PageFacts>,
    /// The ranges that are pinned, once per pin.
    pub(crate) pinned: Vec<PageRange>,
    /// Ranges that the program wants back, with the pins that they had: it keeps them if that is refused.
    wanted_back: Vec<WantedBack>,
    /// Last stamp at which any command failed, stalled or lost its card.
    pub(crate) last_failure: u64,
    /// Last stamp at which any pin was taken away or a pinned page freed.
    pub(crate) last_unpin: u64,
}

/// A range that was adopted and is wanted back.
#[derive(Debug)]
struct WantedBack {
    range: PageRange,
    /// What was pinned of it.
    pinned: Vec<PageRange>,
    /// The pins of each page of it.
    pins: Vec<Vec<MemoryId>>,
}

impl Facts {
    pub(crate) fn new(arena: PageRange) -> Facts {
        let pages = vec![PageFacts::default(); arena.count as usize];
        let (pinned, wanted_back) = (Vec::new(), Vec::new());
        Facts { arena, pages, pinned, wanted_back, last_failure: 0, last_unpin: 0 }
    }

    /// The page; `None` outside the arena.
    pub(crate) fn get(&self, page: PageNo) -> Option<&PageFacts> {
        let inside = self.arena.contains(page);
        inside.then(|| &self.pages[(page.0 - self.arena.start.0) as usize])
    }

    pub(crate) fn get_mut(&mut self, page: PageNo) -> Option<&mut PageFacts> {
        let inside = self.arena.contains(page);
        inside.then(|| &mut self.pages[(page.0 - self.arena.start.0) as usize])
    }

    /// Changes every page of a range, which may reach out of the arena and of the space.
    pub(crate) fn each(&mut self, range: PageRange, change: impl FnMut(&mut PageFacts)) {
        let start = self.arena.start.0;
        let end = range.start.0.saturating_add(range.count).min(self.arena.end().0);
        let first = range.start.0.max(start);
        if first < end {
            self.pages[(first - start) as usize..(end - start) as usize]
                .iter_mut()
                .for_each(change);
        }
    }

    /// The driver allocated the range.
    pub(crate) fn allocated(&mut self, range: PageRange, stamp: u64) {
        self.each(range, |facts| {
            *facts = PageFacts { live: true, dead_at: stamp, ..PageFacts::default() };
        });
    }

    /// The program asked to free the range.
    pub(crate) fn dying(&mut self, range: PageRange, stamp: u64) {
        self.last_unpin = stamp;
        self.each(range, |facts| {
            facts.live = false;
            facts.dead_at = stamp;
        });
    }

    /// An agent asks for the page, or still waits for it. Those that live elsewhere disturb a pin.
    pub(crate) fn want(&mut self, page: PageNo, agent: AgentId, stamp: u64) {
        let Some(facts) = self.get_mut(page) else { return };
        facts.pin_disturbed |= facts.pins.iter().any(|&at| at != agent.home());
        match facts.wanted.iter_mut().find(|(other, _)| *other == agent) {
            Some((_, last)) => *last = stamp,
            None => facts.wanted.push((agent, stamp)),
        }
    }

    /// The program pinned a range; it had asked for it at `since`.
    pub(crate) fn pin(&mut self, range: PageRange, at: MemoryId, since: u64) {
        if range.pages().any(|page| self.get(page).is_some_and(|facts| facts.leaving)) {
            return; // overtaken by the program's wish to have the memory back, which ends its pins
        }
        self.pinned.push(range);
        self.each(range, |facts| {
            if facts.pins.is_empty() {
                facts.pin_disturbed = false;
            }
            let elsewhere = |&(agent, last): &(AgentId, u64)| agent.home() != at && last >= since;
            facts.pin_disturbed |= facts.wanted.iter().any(elsewhere);
            facts.pins.push(at);
        });
    }

    /// The program undid a pin.
    pub(crate) fn unpin(&mut self, range: PageRange, stamp: u64) {
        self.last_unpin = stamp;
        if let Some(index) = self.pinned.iter().position(|&pinned| pinned == range) {
            self.pinned.swap_remove(index);
        }
        self.each(range, |facts| _ = facts.pins.pop());
    }

    /// The driver freed a range, with every pin that touches it.
    pub(crate) fn freed(&mut self, range: PageRange) {
        self.pinned.retain(|pinned| !pinned.overlaps(range));
        self.each(range, |facts| {
            facts.freed = true;
            facts.half_freed = false;
            facts.pins.clear();
        });
    }

    /// The program asked for a range that was adopted, and for the end of its pins.
    pub(crate) fn leaving(&mut self, range: PageRange, stamp: u64) {
        let pinned = self.pinned.iter().copied().filter(|pinned| pinned.overlaps(range)).collect();
        let mut pins = Vec::new();
        self.each(range, |facts| pins.push(facts.pins.clone()));
        self.wanted_back.push(WantedBack { range, pinned, pins });
        self.unpin_all(range, stamp);
        self.each(range, |facts| facts.leaving = true);
    }

    /// The driver would not hear of it: all is as it was.
    pub(crate) fn stayed(&mut self, range: PageRange) {
        let at = self.wanted_back.iter().rposition(|wanted| wanted.range == range);
        let Some(at) = at else { return };
        let WantedBack { pinned, pins, .. } = self.wanted_back.swap_remove(at);
        self.pinned.extend(pinned);
        let mut pins = pins.into_iter();
        self.each(range, |facts| {
            facts.leaving = false;
            facts.pins = pins.next().unwrap_or_default();
        });
    }

    /// A range that was adopted is the program's again, or stays where it was; a pin that was made meanwhile went with the others.
    pub(crate) fn left(&mut self, range: PageRange, stamp: u64, gone: bool) {
        self.wanted_back.retain(|wanted| wanted.range != range);
        self.unpin_all(range, stamp);
        self.each(range, |facts| {
            facts.leaving = false;
            facts.dead_at = stamp;
            facts.live = !gone;
            facts.freed = gone;
        });
    }

    /// Of a range that was adopted no pin is left but that of what must stay.
    fn unpin_all(&mut self, range: PageRange, stamp: u64) {
        self.last_unpin = stamp;
        self.pinned.retain(|pinned| !pinned.overlaps(range));
        self.each(range, |facts| {
            facts.pins.clear();
            facts.pins.extend(facts.stays_home.then_some(MemoryId::HOST));
        });
    }

    /// Whether the page was outside every allocation at some time since `since`.
    pub(crate) fn was_dead(&self, page: PageNo, since: u64) -> bool {
        self.get(page).is_none_or(|facts| !facts.live || facts.leaving || facts.dead_at >= since)
    }

    /// Whether cards may have been kept from writing the page at some time since `since`.
    pub(crate) fn was_read_only(&self, page: PageNo, since: u64) -> bool {
        self.get(page).is_some_and(|facts| {
            facts.cards_read_only || facts.read_only_at.is_some_and(|at| at >= since)
        })
    }

    pub(crate) fn was_lost(&self, page: PageNo) -> bool {
        self.get(page).is_some_and(|facts| facts.lost)
    }

    /// Whether a failure can be the reason for an error since `since`.
    pub(crate) fn had_failure(&self, page: PageNo, since: u64) -> bool {
        self.last_failure >= since || self.get(page).is_some_and(|facts| facts.failed)
    }

    /// Pages that an agent wanted at some time since `since`, those of `except` left out.
    pub(crate) fn wanted_by(&self, agent: AgentId, except: PageRange, since: u64) -> u64 {
        let start = self.arena.start.0;
        let wants = |&(index, facts): &(usize, &PageFacts)| {
            facts.wanted.iter().any(|&(who, last)| who == agent && last >= since)
                && !holds(except, PageNo(start + index as u64))
        };
        self.pages.iter().enumerate().filter(wants).count() as u64
    }

    /// Pages pinned at a memory, those of `except` left out.
    pub(crate) fn pinned_at(&self, memory: MemoryId, except: PageRange) -> u64 {
        let start = self.arena.start.0;
        let counts = |(i, facts): (usize, &PageFacts)| {
            facts.pins.contains(&memory) && !holds(except, PageNo(start + i as u64))
        };
        self.pages.iter().enumerate().filter(|&entry| counts(entry)).count() as u64
    }
}

/// [`PageRange::contains`] for ranges that may overflow.
pub(crate) fn holds(range: PageRange, page: PageNo) -> bool {
    page >= range.start && page.0 - range.start.0 < range.count
}

#[cfg(test)]
mod tests {
    use super::*;

    const ARENA: PageRange = PageRange::new(PageNo(512), 8);
    const PAGE: PageNo = PageNo(513);

    #[test]
    fn an_error_is_legitimate_if_its_reason_was_true_after_the_fault() {
        let mut facts = Facts::new(ARENA);
        assert!(facts.was_dead(PAGE, 0));
        facts.allocated(ARENA, 10);
        assert!(facts.was_dead(PAGE, 5));
        assert!(!facts.was_dead(PAGE, 11));
        facts.dying(PageRange::page(PAGE), 20);
        assert!(facts.was_dead(PAGE, 15));
        assert!(!facts.was_dead(PageNo(514), 15));
        assert!(facts.was_dead(PageNo(9), 1000));
    }

    #[test]
    fn memory_that_is_not_given_back_at_all_keeps_its_pins() {
        let (mut facts, range) = (Facts::new(ARENA), PageRange::new(PAGE, 3));
        facts.allocated(range, 1);
        facts.pin(PageRange::page(PAGE), MemoryId(1), 2);
        let pins = |facts: &Facts| (facts.pinned.clone(), facts.get(PAGE).unwrap().pins.clone());
        let before = pins(&facts);
        facts.leaving(range, 3);
        assert_eq!(pins(&facts), (vec![], vec![]));
        facts.stayed(range);
        assert_eq!(pins(&facts), before);
        facts.leaving(range, 4);
        facts.left(range, 5, false);
        assert_eq!(pins(&facts), (vec![], vec![]), "it was tried");
    }

    #[test]
    fn pins_are_counted_outside_the_range_that_asks() {
        let mut facts = Facts::new(ARENA);
        facts.allocated(ARENA, 1);
        facts.each(PageRange::new(PAGE, 3), |page| page.pins.push(MemoryId(1)));
        assert_eq!(facts.pinned_at(MemoryId(1), PageRange::default()), 3);
        assert_eq!(facts.pinned_at(MemoryId(1), PageRange::page(PAGE)), 2);
        assert_eq!(facts.pinned_at(MemoryId(2), PageRange::default()), 0);
    }

    #[test]
    fn a_range_past_the_end_of_the_space_holds_no_low_page() {
        let wild = PageRange::new(PageNo(u64::MAX - 1), 99);
        assert!(!holds(wild, PageNo(3)));
        assert!(holds(wild, PageNo(u64::MAX)));
    }
}
