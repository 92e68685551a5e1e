//! Small allocations, and where they find a place.

use farside_types::Rights;

use super::allocator::Allocator;
use super::backing::{Backing, Written};
use super::bus::{TableBus, WindowPages};
use super::mutation::AllocMutation;
use super::regions::Region;
use super::status::AllocError;
use super::tables::Table;

/// Where a small allocation goes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) region: u64,
    pub(super) table: Table,
    /// The first of its pages in the region.
    pub(super) within: u64,
    /// Nothing leads to the table yet.
    pub(super) is_new: bool,
}

impl Allocator {
    /// Pages in some place of the window. Returns the first one's address.
    pub(super) fn malloc(
        &mut self,
        bus: &mut impl TableBus,
        pages: u64,
        memory: u8,
        rights: Rights,
        lazy: bool,
    ) -> Result<u64, AllocError> {
        if !self.frames.knows(memory) {
            return Err(AllocError::UnknownMemory);
        }
        let kept_back = if self.mutated.on(AllocMutation::FramesAreKeptBack) { 2 } else { 0 };
        if !lazy && self.frames.available(memory) < pages + kept_back {
            return Err(AllocError::NoFrames);
        }
        let forgets = self.mutated.on(AllocMutation::RightsForgotten);
        let rights = if forgets { Rights::ReadWrite } else { rights };
        let backing = Backing { memory, rights, lazy, first: None, last: 0 };
        let page = if self.is_large(pages) {
            self.malloc_large(bus, pages, backing)?
        } else {
            self.malloc_small(bus, pages, backing)?
        };
        self.touches.words_changed();
        bus.made_valid(WindowPages::new(page, pages));
        Ok(self.address_of(page))
    }

    fn malloc_small(
        &mut self,
        bus: &mut impl TableBus,
        pages: u64,
        backing: Backing,
    ) -> Result<u64, AllocError> {
        let place = self.find_place(bus, pages, false)?;
        // A table may have taken frames.
        if !backing.lazy && self.frames.available(backing.memory) < pages {
            self.abandon(place);
            return Err(AllocError::NoFrames);
        }
        let page = self.first_page(place);
        self.claim(place, pages);
        let backing = Backing { first: Some((page, pages)), last: page + pages - 1, ..backing };
        if self.mutated.on(AllocMutation::DirectoryFirst) && place.is_new {
            self.direct(bus, place.region, self.link_word(place.table))?;
        }
        let written = self.back(bus, place.table, WindowPages::new(page, pages), &backing);
        if bus.wait().is_err() || self.link(bus, place).is_err() {
            self.unplace(bus, place, pages, &written);
            return Err(AllocError::BusError);
        }
        Ok(page)
    }

    pub(super) fn first_page(&self, place: Place) -> u64 {
        (place.region << self.layout.leaf_bits) + place.within
    }

    /// A place for `pages`, fewer than a region has: with others, or, where it `prefers_new`, in an empty
    /// region if there is one. What a new one needs is done, but nothing leads to it yet.
    pub(super) fn find_place(
        &mut self,
        bus: &mut impl TableBus,
        pages: u64,
        prefers_new: bool,
    ) -> Result<Place, AllocError> {
        let place = if prefers_new { None } else { self.place_with_others(bus, pages)? };
        if let Some(place) = place {
            return Ok(place);
        }
        let why = match self.new_place(bus) {
            Ok(Some(place)) => return Ok(place),
            Ok(None) => AllocError::NoSpace,
            Err(error) => error,
        };
        let other = if prefers_new { self.place_with_others(bus, pages)? } else { None };
        other.ok_or(why)
    }

    fn place_with_others(
        &mut self,
        bus: &mut impl TableBus,
        pages: u64,
    ) -> Result<Option<Place>, AllocError> {
        if self.mutated.on(AllocMutation::RegionForEach) {
            return Ok(None);
        }
        let open = self.places.open_region().filter(|&open| self.regions.room(open) >= pages);
        let only_open = self.mutated.on(AllocMutation::OpenRegionOnly);
        let other = || self.regions.with_room(pages).filter(|_| !only_open);
        let Some(region) = open.or_else(other) else { return Ok(None) };
        let Region::Shared { table, .. } = self.regions.state(region) else { return Ok(None) };
        self.open(bus, region)?;
        // It has room, unless memory was changed by somebody else.
        let within = self.places.find(pages).ok_or(AllocError::BadEntry)?;
        Ok(Some(Place { region, table, within, is_new: false }))
    }

    fn new_place(&mut self, bus: &mut impl TableBus) -> Result<Option<Place>, AllocError> {
        let Some(region) = self.regions.empty_row(1) else { return Ok(None) };
        self.places.write_back(&self.layout, bus)?;
        let table = self.zeroed_table(bus)?;
        self.places.open_new(region, &self.layout);
        let room = self.layout.region_pages();
        self.regions.set(region, Region::Shared { table, used: 0 }, room);
        Ok(Some(Place { region, table, within: 0, is_new: true }))
    }

    /// Takes the pages of a place in the open region.
    pub(super) fn claim(&mut self, place: Place, pages: u64) {
        self.places.take(place.within, pages);
        self.note_used(place.region, |used| used + pages);
    }

    /// The open region's pages in use have changed.
    pub(super) fn note_used(&mut self, region: u64, change: impl FnOnce(u64) -> u64) {
        if let Region::Shared { table, used } = self.regions.state(region) {
            let used = change(used);
            self.regions.set(region, Region::Shared { table, used }, self.places.room());
        }
    }

    /// Makes the directory lead to a new table.
    pub(super) fn link(&mut self, bus: &mut impl TableBus, place: Place) -> Result<(), AllocError> {
        if place.is_new && !self.mutated.on(AllocMutation::DirectoryFirst) {
            self.direct(bus, place.region, self.link_word(place.table))?;
        }
        Ok(())
    }

    /// A place that was found, and not claimed.
    pub(super) fn abandon(&mut self, place: Place) {
        if place.is_new {
            self.places.close(place.region);
            self.tables.give_back(place.table, true, &mut self.frames);
            self.regions.set(place.region, Region::Empty, 0);
        }
    }

    /// Gives a claimed place back, of which these words were written.
    pub(super) fn unplace(
        &mut self,
        bus: &mut impl TableBus,
        place: Place,
        pages: u64,
        written: &[Written],
    ) {
        let held = self.unwrite(bus, written);
        if place.is_new {
            if held.is_empty() && self.unlink(bus, place.region).is_ok() {
                self.abandon(place);
            } else {
                self.counts.quarantined += self.layout.region_pages();
                self.places.close(place.region);
                self.regions.set(place.region, Region::Retiring { table: None }, 0);
            }
            return;
        }
        let first = self.first_page(place);
        if held.contains(&first) {
            self.bar(first);
        }
        if self.open(bus, place.region).is_err() {
            self.counts.quarantined += pages - held.len() as u64;
            return;
        }
        self.places.give_back(place.within, pages);
        held.iter().for_each(|&page| self.places.take(self.layout.within(page), 1));
        self.note_used(place.region, |used| used.saturating_sub(pages) + held.len() as u64);
        if !self.mutated.on(AllocMutation::UnusedRegionStays) {
            self.retire_unused(bus, place.region);
        }
    }
}
