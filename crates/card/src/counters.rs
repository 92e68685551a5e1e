//! Access counters: how often the card reaches for pages in other memories, per group of pages.
//!
//! When a group reaches the threshold the driver is told, once, until the group is cleared (GRIT,
//! section II-B2).

use std::collections::HashMap;

use farside_types::{Asid, PageNo, PageRange};

use crate::CounterGroup;
use crate::key::clamp;

/// A group reached the threshold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CounterNotice {
    /// Whose address space.
    pub asid: Asid,
    /// The group's pages.
    pub pages: PageRange,
    /// Accesses counted.
    pub count: u32,
}

type Group = (Asid, u64);

/// Groups that there is room to count from the start.
const ROOM: usize = 1 << 12;

/// The access counters of a card.
#[derive(Clone, Debug)]
pub struct Counters {
    group_pages: u64,
    threshold: u32,
    groups_max: usize,
    counts: HashMap<Group, u32>,
    notices: Vec<Group>,
    forgotten: u64,
}

impl Counters {
    /// No group counted yet; at most `groups_max` are counted at once.
    pub fn new(group: CounterGroup, threshold: u32, groups_max: usize) -> Counters {
        Counters {
            group_pages: group.pages(),
            threshold,
            groups_max,
            counts: HashMap::with_capacity(groups_max.min(ROOM)),
            notices: Vec::with_capacity(ROOM / 16),
            forgotten: 0,
        }
    }

    /// The card reached for a page in another memory, `accesses` times.
    pub fn record(&mut self, asid: Asid, page: PageNo, accesses: u32) {
        let group = (asid, page.0 / self.group_pages);
        if self.counts.len() >= self.groups_max && !self.counts.contains_key(&group) {
            self.make_room();
            if self.counts.len() >= self.groups_max {
                self.forgotten += 1;
                return;
            }
        }
        let count = self.counts.entry(group).or_insert(0);
        let before = *count;
        *count = before.saturating_add(accesses);
        if before < self.threshold && *count >= self.threshold {
            self.notices.push(group);
        }
    }

    /// The card reached for every page of a range once.
    pub fn record_range(&mut self, asid: Asid, range: PageRange) {
        let range = clamp(range);
        let mut page = range.start;
        while page < range.end() {
            let next = page.align_down(self.group_pages).offset(self.group_pages);
            let end = next.min(range.end());
            self.record(asid, page, (end.0 - page.0) as u32);
            page = end;
        }
    }

    /// Forgets the groups below the threshold: they have been the quiet ones.
    fn make_room(&mut self) {
        let before = self.counts.len();
        self.counts.retain(|_, count| *count >= self.threshold);
        self.forgotten += (before - self.counts.len()) as u64;
    }

    /// The groups that reached the threshold since the last call.
    pub fn take_notices(&mut self) -> Vec<CounterNotice> {
        self.take_some(usize::MAX)
    }

    /// Whether [`Counters::take_notices`] would return any.
    pub fn has_notices(&self) -> bool {
        !self.notices.is_empty()
    }

    /// Accesses to a group before it is reported.
    pub fn threshold(&self) -> u32 {
        self.threshold
    }

    /// Changes the threshold and counts from zero again, so that no group is reported twice or
    /// never. 0 is taken as 1.
    pub fn set_threshold(&mut self, threshold: u32) {
        self.clear_all();
        self.threshold = threshold.max(1);
    }

    /// The oldest groups that reached the threshold and were not taken, at most `notices_max`.
    pub fn take_some(&mut self, notices_max: usize) -> Vec<CounterNotice> {
        let count = self.notices.len().min(notices_max);
        let taken = self.notices[..count].iter().map(|&group| self.notice(group)).collect();
        self.notices.drain(..count);
        taken
    }

    /// The oldest group that reached the threshold and was not taken.
    pub fn next_notice(&mut self) -> Option<CounterNotice> {
        let first = *self.notices.first()?;
        self.notices.remove(0);
        Some(self.notice(first))
    }

    fn notice(&self, (asid, number): Group) -> CounterNotice {
        CounterNotice {
            asid,
            pages: PageRange::new(PageNo(number * self.group_pages), self.group_pages),
            count: self.counts.get(&(asid, number)).copied().unwrap_or(0),
        }
    }

    /// Sets the groups that overlap a range to zero; notices of them that were not taken are gone.
    pub fn clear(&mut self, asid: Asid, range: PageRange) {
        let range = clamp(range);
        if range.is_empty() {
            return;
        }
        let first = range.start.0 / self.group_pages;
        let last = (range.end().0 - 1) / self.group_pages;
        let cleared = |group: &Group| group.0 == asid && (first..=last).contains(&group.1);
        self.notices.retain(|group| !cleared(group));
        if last - first < self.counts.len() as u64 {
            for number in first..=last {
                self.counts.remove(&(asid, number));
            }
        } else {
            self.counts.retain(|group, _| !cleared(group));
        }
    }

    /// Sets every group to zero.
    pub(crate) fn clear_all(&mut self) {
        self.counts.clear();
        self.notices.clear();
    }

    /// Groups that were not counted, or no longer, because too many were.
    pub fn forgotten(&self) -> u64 {
        self.forgotten
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ASID: Asid = Asid(1);

    #[test]
    fn a_group_is_reported_once_at_the_threshold_until_it_is_cleared() {
        let mut counters = Counters::new(CounterGroup::Kib64, 256, 100);
        for _ in 0..255 {
            counters.record(ASID, PageNo(17), 1);
        }
        assert!(counters.take_notices().is_empty(), "one too early");
        counters.record(ASID, PageNo(31), 1);
        let notice = counters.take_notices().pop().unwrap();
        assert_eq!(notice.pages, PageRange::new(PageNo(16), 16));
        assert_eq!(notice.count, 256);
        for _ in 0..1000 {
            counters.record(ASID, PageNo(17), 1);
        }
        assert!(counters.take_notices().is_empty(), "reported twice");
        counters.clear(ASID, PageRange::page(PageNo(20)));
        counters.record(ASID, PageNo(17), 256);
        assert_eq!(counters.take_notices().len(), 1);
    }

    #[test]
    fn groups_of_2_mib_count_512_pages_together() {
        let mut counters = Counters::new(CounterGroup::Mib2, 512, 100);
        counters.record_range(ASID, PageRange::new(PageNo(512), 511));
        assert!(counters.take_notices().is_empty());
        counters.record_range(ASID, PageRange::new(PageNo(1023), 2));
        let notice = counters.take_notices().pop().unwrap();
        assert_eq!(notice.pages, PageRange::new(PageNo(512), 512));
    }

    #[test]
    fn clearing_takes_back_notices_that_nobody_took() {
        let mut counters = Counters::new(CounterGroup::Kib64, 1, 100);
        counters.record(ASID, PageNo(0), 1);
        counters.record(Asid(2), PageNo(0), 1);
        counters.clear(ASID, PageRange::new(PageNo(0), u64::MAX));
        let left = counters.take_notices();
        assert_eq!(left.len(), 1);
        assert_eq!(left[0].asid, Asid(2));
    }

    #[test]
    fn a_full_table_forgets_quiet_groups_and_says_so() {
        let mut counters = Counters::new(CounterGroup::Kib64, 2, 4);
        for group in 0..5 {
            counters.record(ASID, PageNo(group * 16), 1);
        }
        assert_eq!(counters.forgotten(), 4);
        counters.record(ASID, PageNo(64), 1);
        assert_eq!(counters.take_notices().len(), 1);
    }
}
