//! The address space: which allocations exist, where, and what was advised about them.

use std::collections::BTreeMap;
use std::sync::Arc;

use farside_types::{AgentSet, BLOCK_PAGES, MemoryId, PageNo, PageRange, VirtAddr};
use serde::{Deserialize, Serialize};

use crate::api::query::{ObjectId, ObjectView};
use crate::faults::contest::Contest;
use crate::tables::layout::Layout;

/// An allocation.
#[derive(Serialize, Deserialize)]
pub(crate) struct Object {
    pub(crate) id: ObjectId,
    pub(crate) name: Arc<str>,
    pub(crate) range: PageRange,
    pub(crate) bytes: u64,
    pub(crate) pages_moved: u64,
    pub(crate) pages_fetched: u64,
    pub(crate) pages_evicted: u64,
    pub(crate) hints: Vec<Hint>,
    pub(crate) contest: Contest,
    /// It moves in whole blocks of 2 MiB.
    pub(crate) whole_blocks: bool,
}

/// Advice for a part of an allocation.
#[derive(Clone, Copy, Serialize, Deserialize)]
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
            pages_fetched: self.pages_fetched,
            pages_evicted: self.pages_evicted,
        }
    }

    /// The advice for `page`: the latest that covers it.
    pub(crate) fn hint(&self, page: PageNo) -> Option<&Hint> {
        self.hints.iter().rev().find(|hint| hint.range.contains(page))
    }
}

/// An allocation that reaches into a block: first page, end, slot.
type Reach = (u64, u64, u32);

/// The allocations that reach into a block; of a large one it is all there is.
#[derive(Clone, Default, Serialize, Deserialize)]
enum Here {
    #[default]
    Nothing,
    One(Reach),
    Several(Vec<Reach>),
}

impl Here {
    fn as_slice(&self) -> &[Reach] {
        match self {
            Here::Nothing => &[],
            Here::One(reach) => std::slice::from_ref(reach),
            Here::Several(reaches) => reaches,
        }
    }

    fn push(&mut self, reach: Reach) {
        match self {
            Here::Nothing => *self = Here::One(reach),
            Here::One(first) => *self = Here::Several(vec![*first, reach]),
            Here::Several(reaches) => reaches.push(reach),
        }
    }

    /// Takes the allocation that starts at `start` out.
    fn remove(&mut self, start: u64) {
        match self {
            Here::One((first, ..)) if *first == start => *self = Here::Nothing,
            Here::Nothing | Here::One(_) => {}
            Here::Several(reaches) => reaches.retain(|&(first, ..)| first != start),
        }
    }

    /// Bytes beside the value itself.
    fn bytes(&self) -> usize {
        match self {
            Here::Several(reaches) => reaches.capacity() * size_of::<Reach>(),
            _ => 0,
        }
    }
}

/// Allocations and the gaps between them.
#[derive(Serialize, Deserialize)]
pub(crate) struct Space {
    /// First page → slot.
    order: BTreeMap<u64, u32>,
    slots: Vec<Option<Object>>,
    idle_slots: Vec<u32>,
    /// Start → pages.
    gaps: BTreeMap<u64, u64>,
    next_id: u32,
    /// Per block of the space: the allocations that reach into it, as (first page, end, slot). Every
    /// fault asks for its allocation: a few words beside each other instead of a walk of the tree.
    by_block: Vec<Here>,
    layout: Layout,
    /// Whether there was ever an allocation that moves in blocks: without, no fault asks.
    any_in_blocks: bool,
}

impl Space {
    pub(crate) fn new(arena: PageRange) -> Space {
        Space {
            order: BTreeMap::new(),
            slots: Vec::new(),
            idle_slots: Vec::new(),
            gaps: BTreeMap::from([(arena.start.0, arena.count)]),
            next_id: 0,
            by_block: Vec::new(),
            layout: Layout::new(arena),
            any_in_blocks: false,
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
        self.enter(range, bytes, name);
        Some(range)
    }

    /// Enters `range`, outside the arena, as an allocation; `false` where there are no more numbers for
    /// pages.
    pub(crate) fn adopt(&mut self, range: PageRange, bytes: u64, name: Arc<str>) -> bool {
        let fits = self.layout.adopt(range);
        if fits {
            self.enter(range, bytes, name);
        }
        fits
    }

    /// Which blocks have a place in tables.
    pub(crate) fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The first allocation with a page of `range`.
    pub(crate) fn overlapping(&self, range: PageRange) -> Option<&Object> {
        let (before, within) =
            (self.order.range(..range.start.0), self.order.range(range.start.0..));
        let near = before.last().into_iter().chain(within.take(1));
        near.filter_map(|(_, &slot)| self.at(slot)).find(|object| object.range.overlaps(range))
    }

    fn enter(&mut self, range: PageRange, bytes: u64, name: Arc<str>) {
        let id = ObjectId(self.next_id);
        self.next_id += 1;
        let (hints, contest) = (Vec::new(), Contest::default());
        let (pages_moved, pages_fetched, pages_evicted) = (0, 0, 0);
        let object = Object {
            id,
            name,
            range,
            bytes,
            pages_moved,
            pages_fetched,
            pages_evicted,
            hints,
            contest,
            whole_blocks: false,
        };
        let slot = self.idle_slots.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() as u32 - 1
        });
        self.slots[slot as usize] = Some(object);
        self.order.insert(range.start.0, slot);
        let end = self.layout.end_of(range);
        if end > self.by_block.len() {
            self.by_block.resize(end, Here::Nothing);
        }
        for block in blocks_of(range) {
            let Some(at) = self.layout.slot(block) else { continue };
            self.by_block[at].push((range.start.0, range.end().0, slot));
        }
    }

    /// The slot of the allocation that holds `page`.
    fn slot_of(&self, page: PageNo) -> Option<usize> {
        let here = self.by_block.get(self.layout.slot(page)?)?.as_slice();
        let holds = |&&(start, end, _): &&(u64, u64, u32)| (start..end).contains(&page.0);
        here.iter().find(holds).map(|&(.., slot)| slot as usize)
    }

    fn at(&self, slot: u32) -> Option<&Object> {
        self.slots.get(slot as usize)?.as_ref()
    }

    pub(crate) fn largest_gap(&self) -> u64 {
        self.gaps.values().copied().max().unwrap_or(0)
    }

    /// The allocation that starts at `addr`.
    pub(crate) fn starting_at(&self, addr: VirtAddr) -> Option<&Object> {
        if addr.page_offset() != 0 {
            return None;
        }
        self.at(*self.order.get(&addr.page().0)?)
    }

    /// The allocation that holds `page`.
    pub(crate) fn holding(&self, page: PageNo) -> Option<&Object> {
        self.slots[self.slot_of(page)?].as_ref()
    }

    pub(crate) fn holding_mut(&mut self, page: PageNo) -> Option<&mut Object> {
        let slot = self.slot_of(page)?;
        self.slots[slot].as_mut()
    }

    /// Has the allocations of `range` move in whole blocks, or not.
    pub(crate) fn move_in_blocks(&mut self, range: PageRange, on: bool) {
        self.any_in_blocks |= on;
        let mut page = range.start;
        while page < range.end() {
            let Some(object) = self.holding_mut(page) else { return };
            object.whole_blocks = on;
            page = object.range.end();
        }
    }

    /// Whether an allocation may move in blocks.
    pub(crate) fn has_blocks(&self) -> bool {
        self.any_in_blocks
    }

    /// The block of `page` inside its allocation, if that moves in blocks.
    pub(crate) fn block_of(&self, page: PageNo) -> Option<PageRange> {
        let object = self.any_in_blocks.then(|| self.holding(page))?;
        let block = PageRange::new(page.align_down(BLOCK_PAGES), BLOCK_PAGES);
        object.filter(|object| object.whole_blocks).map(|object| block.intersection(object.range))
    }

    /// Allocations in ascending order.
    pub(crate) fn objects(&self) -> impl Iterator<Item = &Object> {
        self.order.values().filter_map(|&slot| self.at(slot))
    }

    /// The allocation nearest to `addr`.
    pub(crate) fn nearest(&self, addr: VirtAddr) -> Option<&Object> {
        let page = addr.page().0;
        let before = self.order.range(..=page).next_back().and_then(|(_, &slot)| self.at(slot));
        let after = self.order.range(page + 1..).next().and_then(|(_, &slot)| self.at(slot));
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
        let Some(slot) = self.order.remove(&start.0) else { return };
        let Some(object) = self.slots[slot as usize].take() else { return };
        self.idle_slots.push(slot);
        for block in blocks_of(object.range) {
            let Some(at) = self.layout.slot(block) else { continue };
            self.by_block[at].remove(start.0);
        }
        if !self.layout.is_arena(start) {
            return self.layout.disown(object.range);
        }
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
        let lists: usize = self.by_block.capacity() * size_of::<Here>()
            + self.by_block.iter().map(Here::bytes).sum::<usize>();
        let trees = (self.order.len() + self.gaps.len()) * 16 * 3 / 2;
        let objects = self.slots.len() * size_of::<Option<Object>>();
        let hints: usize = self.objects().map(|object| object.hints.capacity()).sum();
        self.layout.bytes() + lists + trees + objects + hints * size_of::<Hint>()
    }
}

/// The first page of each block with a page of `range`.
fn blocks_of(range: PageRange) -> impl Iterator<Item = PageNo> {
    let blocks = range.start.block().0..range.end().0.div_ceil(BLOCK_PAGES);
    blocks.map(|block| PageNo(block * BLOCK_PAGES))
}
