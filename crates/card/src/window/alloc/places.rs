//! Places: which pages of a region are in use. One region's bitmap lies on the chip.

use super::super::geometry::WORD_SHIFT;
use super::bits::Bits;
use super::bus::{TableBus, TableBusError};
use super::config::Layout;
use super::word::RUN_SIZES;

/// The open region.
#[derive(Clone, Debug)]
struct Open {
    region: u64,
    bits: Bits,
    /// Memory has it otherwise.
    is_changed: bool,
}

/// The bitmap that lies on the chip; those of other regions in use are in memory.
#[derive(Clone, Debug, Default)]
pub(super) struct Places {
    open: Option<Open>,
}

impl Places {
    pub(super) fn open_region(&self) -> Option<u64> {
        self.open.as_ref().map(|open| open.region)
    }

    /// Brings a region's bitmap. One access: the open one is written back beside it. After an error
    /// nothing has changed.
    pub(super) fn open(
        &mut self,
        region: u64,
        layout: &Layout,
        bus: &mut impl TableBus,
    ) -> Result<(), TableBusError> {
        if self.open_region() == Some(region) {
            return Ok(());
        }
        self.post_back(layout, bus);
        let (begin, count) = layout.bitmap(region);
        let words: Vec<_> = (0..count).map(|word| bus.read(begin + (word << WORD_SHIFT))).collect();
        bus.wait()?;
        let words = words.into_iter().collect::<Result<_, _>>()?;
        let bits = Bits::of_words(words, layout.region_pages());
        self.open = Some(Open { region, bits, is_changed: false });
        Ok(())
    }

    /// Begins with a region of which no page is in use. What was open has been written back.
    pub(super) fn open_new(&mut self, region: u64, layout: &Layout) {
        let bits = Bits::new(layout.region_pages());
        self.open = Some(Open { region, bits, is_changed: true });
    }

    /// Writes the open region's bitmap back.
    pub(super) fn write_back(
        &mut self,
        layout: &Layout,
        bus: &mut impl TableBus,
    ) -> Result<(), TableBusError> {
        if !self.is_changed() {
            return Ok(());
        }
        self.post_back(layout, bus);
        bus.wait()?;
        if let Some(open) = &mut self.open {
            open.is_changed = false;
        }
        Ok(())
    }

    pub(super) fn is_changed(&self) -> bool {
        self.open.as_ref().is_some_and(|open| open.is_changed)
    }

    /// Nobody has a page of the region any more.
    pub(super) fn close(&mut self, region: u64) {
        if self.open_region() == Some(region) {
            self.open = None;
        }
    }

    /// The place in the open region for `pages`: aligned as runs of that length are, if there is such a one.
    pub(super) fn find(&self, pages: u64) -> Option<u64> {
        let open = self.open.as_ref()?;
        let fits = |align: &&u32| pages >= 1 << **align;
        RUN_SIZES.iter().filter(fits).find_map(|&align| open.bits.find(pages, align, 0))
    }

    /// Whether `count` pages of the open region are free.
    pub(super) fn are_free(&self, first: u64, count: u64) -> bool {
        self.open.as_ref().is_some_and(|open| open.bits.is_clear(first, count))
    }

    /// Whether a page of the open region is in use.
    pub(super) fn is_taken(&self, page: u64) -> bool {
        self.open.as_ref().is_some_and(|open| open.bits.is_set(page))
    }

    /// Pages of the open region in use.
    pub(super) fn used(&self) -> u64 {
        self.open.as_ref().map_or(0, |open| open.bits.count())
    }

    pub(super) fn take(&mut self, first: u64, count: u64) {
        self.change(|bits| bits.set(first, count));
    }

    pub(super) fn give_back(&mut self, first: u64, count: u64) {
        self.change(|bits| bits.clear(first, count));
    }

    /// The longest row of free pages of the open region.
    pub(super) fn room(&self) -> u64 {
        self.open.as_ref().map_or(0, |open| open.bits.longest())
    }

    fn change(&mut self, change: impl FnOnce(&mut Bits)) {
        if let Some(open) = &mut self.open {
            change(&mut open.bits);
            open.is_changed = true;
        }
    }

    fn post_back(&self, layout: &Layout, bus: &mut impl TableBus) {
        let Some(open) = self.open.as_ref().filter(|open| open.is_changed) else { return };
        let (begin, _) = layout.bitmap(open.region);
        for (index, &word) in open.bits.words().iter().enumerate() {
            bus.write(begin + ((index as u64) << WORD_SHIFT), word);
        }
    }
}
