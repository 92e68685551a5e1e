//! Translations that an open fault keeps for itself, so that its resume does not depend on what
//! the TLBs still hold.

use std::collections::BTreeMap;

use farside_types::{PageNo, PageRange, Rights};

use crate::MappedRun;
use crate::translation::Translation;

/// Disjoint mapped runs by first page. As many as the need has pages, at most.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fills(BTreeMap<PageNo, (MappedRun, Rights)>);

impl Fills {
    /// Keeps a run, in the place of what was known of its pages.
    pub(crate) fn insert(&mut self, mut run: MappedRun, rights: Rights) {
        self.remove(run.pages());
        if let Some((&start, &(before, same))) = self.0.range(..run.page).next_back() {
            if let Some(joined) = before.joined(&run).filter(|_| same == rights) {
                self.0.remove(&start);
                run = joined;
            }
        }
        self.0.insert(run.page, (run, rights));
    }

    /// Forgets the pages of a range.
    pub(crate) fn remove(&mut self, range: PageRange) {
        for (run, rights) in self.take(range) {
            self.put(run.outside(range), rights);
        }
    }

    /// Lowers the rights of the pages of a range.
    pub(crate) fn protect(&mut self, range: PageRange, rights: Rights) {
        for (run, old) in self.take(range) {
            self.put(run.outside(range), old);
            self.put([run.clip(range)], old.min(rights));
        }
    }

    /// The translation of a page, and how many pages it goes on for, this one included.
    pub(crate) fn find(&self, page: PageNo) -> Option<(Translation, u32)> {
        let (_, &(run, rights)) = self.0.range(..=page).next_back()?;
        let skipped = page.0 - run.page.0;
        if skipped >= u64::from(run.count) {
            return None;
        }
        let skipped = skipped as u32;
        let location = run.location.offset(skipped);
        Some((Translation { location, rights }, run.count - skipped))
    }

    /// Takes the runs that overlap a range out.
    fn take(&mut self, range: PageRange) -> Vec<(MappedRun, Rights)> {
        if range.is_empty() || self.0.is_empty() {
            return Vec::new();
        }
        let before = self.0.range(..range.start).next_back();
        let starts: Vec<PageNo> = before
            .filter(|(_, (run, _))| run.pages().overlaps(range))
            .into_iter()
            .chain(self.0.range(range.start..range.end()))
            .map(|(&start, _)| start)
            .collect();
        starts.iter().filter_map(|start| self.0.remove(start)).collect()
    }

    fn put<const N: usize>(&mut self, parts: [Option<MappedRun>; N], rights: Rights) {
        for run in parts.into_iter().flatten() {
            self.0.insert(run.page, (run, rights));
        }
    }
}
