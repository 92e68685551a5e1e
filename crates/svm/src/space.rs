//! The address space: which allocations exist, where, and what was advised about them.

use std::collections::BTreeMap;
use std::sync::Arc;

use farside_types::{AgentSet, BLOCK_PAGES, MemoryId, PageNo, PageRange, VirtAddr};

use crate::query::{ObjectId, ObjectView};

/// An allocation.
pub(crate) struct Object {
    pub(crate) id: ObjectId,
    pub(crate) name: Arc<str>,
    pub(crate) range: PageRange,
    pub(crate) bytes: u64,
    pub(crate) pages_moved: u64,
    pub(crate) hints: Vec<Hint>,
}

/// Advice for a part of an allocation.
#[derive(Clone, Copy)]
pub(crate) struct Hint {
    pub(crate) range: PageRange,
    pub(crate) preferred: Option<MemoryId>,
    pub(crate) accessed_by: AgentSet,
}

impl Object {
    pub(crate) fn view(&self) -> ObjectView {
        ObjectView {
            id: self.id,
            name: self.name.clone(),
            range: self.range,
            bytes: self.bytes,
            pages_moved: self.pages_moved,
        }
    }

    /// The advice for `page`: the latest that covers it.
    pub(crate) fn hint(&self, page: PageNo) -> Option<&Hint> {
        self.hints.iter().rev().find(|hint| hint.range.contains(page))
    }
}

/// Allocations and the gaps between them.
pub(crate) struct Space {
    objects: BTreeMap<u64, Object>,
    /// Start → pages.
    gaps: BTreeMap<u64, u64>,
    next_id: u32,
}

impl Space {
    pub(crate) fn new(arena: PageRange) -> Space {
        Space {
            objects: BTreeMap::new(),
            gaps: BTreeMap::from([(arena.start.0, arena.count)]),
            next_id: 0,
        }
    }

    /// Reserves `pages` pages; those of a block and more start at a block.
    pub(crate) fn allocate(&mut self, pages: u64, bytes: u64, name: Arc<str>) -> Option<PageRange> {
        let align = if pages >= BLOCK_PAGES { BLOCK_PAGES } else { 1 };
        let (gap, len, start) = self.gaps.iter().find_map(|(&gap, &len)| {
            let start = gap.next_multiple_of(align);
            (start - gap + pages <= len).then_some((gap, len, start))
        })?;
        self.gaps.remove(&gap);
        if start > gap {
            self.gaps.insert(gap, start - gap);
        }
        if gap + len > start + pages {
            self.gaps.insert(start + pages, gap + len - start - pages);
        }
        let range = PageRange::new(PageNo(start), pages);
        let id = ObjectId(self.next_id);
        self.next_id += 1;
        let object = Object { id, name, range, bytes, pages_moved: 0, hints: Vec::new() };
        self.objects.insert(start, object);
        Some(range)
    }

    pub(crate) fn largest_gap(&self) -> u64 {
        self.gaps.values().copied().max().unwrap_or(0)
    }

    /// The allocation that starts at `addr`.
    pub(crate) fn starting_at(&self, addr: VirtAddr) -> Option<&Object> {
        if addr.page_offset() != 0 {
            return None;
        }
        self.objects.get(&addr.page().0)
    }

    /// The allocation that holds `page`.
    pub(crate) fn holding(&self, page: PageNo) -> Option<&Object> {
        let (_, object) = self.objects.range(..=page.0).next_back()?;
        object.range.contains(page).then_some(object)
    }

    pub(crate) fn holding_mut(&mut self, page: PageNo) -> Option<&mut Object> {
        let (_, object) = self.objects.range_mut(..=page.0).next_back()?;
        object.range.contains(page).then_some(object)
    }

    /// Allocations in ascending order.
    pub(crate) fn objects(&self) -> impl Iterator<Item = &Object> {
        self.objects.values()
    }

    /// The allocation nearest to `addr`.
    pub(crate) fn nearest(&self, addr: VirtAddr) -> Option<&Object> {
        let page = addr.page().0;
        let before = self.objects.range(..=page).next_back().map(|(_, object)| object);
        let after = self.objects.range(page + 1..).next().map(|(_, object)| object);
        match (before, after) {
            (Some(b), Some(a)) => {
                let past = page.saturating_sub(b.range.end().0 - 1);
                Some(if past <= a.range.start.0 - page { b } else { a })
            }
            (found, None) | (None, found) => found,
        }
    }

    /// Gives the addresses of the allocation at `start` back.
    pub(crate) fn remove(&mut self, start: PageNo) {
        let Some(object) = self.objects.remove(&start.0) else {
            return;
        };
        let (mut start, mut end) = (object.range.start.0, object.range.end().0);
        if let Some((&before, &len)) = self.gaps.range(..start).next_back() {
            if before + len == start {
                self.gaps.remove(&before);
                start = before;
            }
        }
        if let Some(len) = self.gaps.remove(&end) {
            end += len;
        }
        self.gaps.insert(start, end - start);
    }

    pub(crate) fn bytes(&self) -> usize {
        let hints: usize = self.objects.values().map(|o| o.hints.capacity()).sum();
        (self.objects.len() * size_of::<(u64, Object)>() + self.gaps.len() * 16) * 3 / 2
            + hints * size_of::<Hint>()
    }
}
