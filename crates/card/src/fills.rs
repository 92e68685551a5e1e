//! Translations that an open fault keeps for itself, so that its resume does not depend on what
//! the TLBs still hold.

use farside_types::{PageNo, PageRange, Rights};

use crate::MappedRun;
use crate::translation::Translation;

/// Disjoint mapped runs by first page, ascending. As many as the need has pages, at most. In a vector, which
/// keeps its room for the next fault.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fills(Vec<(MappedRun, Rights)>);

impl Fills {
    /// None, with room for a few.
    pub(crate) fn with_room() -> Fills {
        Fills(Vec::with_capacity(4))
    }

    /// Forgets all of them.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// Keeps a run, in the place of what was known of its pages.
    pub(crate) fn insert(&mut self, run: MappedRun, rights: Rights) {
        self.remove(run.pages());
        let at = self.first_from(run.page);
        if let Some((before, same)) = at.checked_sub(1).map(|before| self.0[before]) {
            if let Some(joined) = before.joined(&run).filter(|_| same == rights) {
                self.0[at - 1].0 = joined;
                return;
            }
        }
        self.0.insert(at, (run, rights));
    }

    /// Forgets the pages of a range.
    pub(crate) fn remove(&mut self, range: PageRange) {
        self.cut_out(range, |_| None);
    }

    /// Lowers the rights of the pages of a range.
    pub(crate) fn protect(&mut self, range: PageRange, rights: Rights) {
        self.cut_out(range, |old| Some(old.min(rights)));
    }

    /// The translation of a page, and how many pages it goes on for, this one included.
    pub(crate) fn find(&self, page: PageNo) -> Option<(Translation, u32)> {
        let behind = self.0.partition_point(|(run, _)| run.page <= page);
        let (run, rights) = self.0[behind.checked_sub(1)?];
        let skipped = page.0 - run.page.0;
        if skipped >= u64::from(run.count) {
            return None;
        }
        let skipped = skipped as u32;
        let location = run.location.offset(skipped);
        Some((Translation { location, rights }, run.count - skipped))
    }

    /// The number of the first run that starts at `page` or behind it.
    fn first_from(&self, page: PageNo) -> usize {
        self.0.partition_point(|(run, _)| run.page < page)
    }

    /// Cuts the pages of a range out of all runs; those for which there are `rights` come back with these.
    fn cut_out(&mut self, range: PageRange, rights: impl Fn(Rights) -> Option<Rights>) {
        if range.is_empty() {
            return;
        }
        let mut at = self.first_from(range.start).saturating_sub(1);
        while let Some(&(run, old)) = self.0.get(at).filter(|(run, _)| run.page < range.end()) {
            if !run.pages().overlaps(range) {
                at += 1;
                continue;
            }
            self.0.remove(at);
            let [before, behind] = run.outside(range);
            let inside = rights(old).and_then(|now| Some((run.clip(range)?, now)));
            let parts = [before.map(|run| (run, old)), inside, behind.map(|run| (run, old))];
            for part in parts.into_iter().flatten() {
                self.0.insert(at, part);
                at += 1;
            }
        }
    }
}
