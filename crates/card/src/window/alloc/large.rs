//! Large allocations: whole regions, by runs of frames or tables of their own.

use farside_types::Rights;

use super::allocator::Allocator;
use super::backing::{Backing, Written};
use super::bus::{TableBus, TableBusError, WindowPages};
use super::regions::{Large, Part, Region};
use super::status::AllocError;
use super::tables::Table;
use super::word::PageWord;

/// How the pages of one region are to be had.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// By the table that it has.
    Has(Table),
    /// By a new table; whether its words are 0.
    New(Table, bool),
    /// By the directory.
    Run(u32),
}

/// How the pages that a large allocation gets are to be had: everything they need has been taken, or is promised.
#[derive(Clone, Debug, Default)]
pub(super) struct Plan {
    /// By the region's place in the allocation.
    steps: Vec<(u64, Step)>,
    /// Frames for words of tables.
    promised: u64,
}

impl Allocator {
    pub(super) fn malloc_large(
        &mut self,
        bus: &mut impl TableBus,
        pages: u64,
        backing: Backing,
    ) -> Result<u64, AllocError> {
        let regions = self.regions_for(pages);
        let first = self.regions.empty_row(regions).ok_or(AllocError::NoSpace)?;
        let plan = self.plan(bus, 0, pages, &backing, |_| Part::Nothing)?;
        self.claim_regions(first, 0, regions);
        self.carry_out(bus, first, plan, WindowPages::new(0, pages), backing)?;
        let Backing { memory, rights, .. } = backing;
        self.regions.set_large(first, Some(Large { pages, memory, rights }));
        Ok(first << self.layout.leaf_bits)
    }

    /// Regions that a large allocation of so many pages has.
    pub(super) fn regions_for(&self, pages: u64) -> u64 {
        pages.div_ceil(self.layout.region_pages())
    }

    /// Regions from the `from`th on of the allocation that begins with region `first` are its own.
    pub(super) fn claim_regions(&mut self, first: u64, from: u64, to: u64) {
        for after in from..to {
            self.regions.set(first + after, Region::Large { after, part: Part::Nothing }, 0);
        }
    }

    /// How pages `from` to `to` of a large allocation are to be had; `part` says what its regions have now.
    /// All or nothing.
    pub(super) fn plan(
        &mut self,
        bus: &mut impl TableBus,
        from: u64,
        to: u64,
        backing: &Backing,
        part: impl Fn(u64) -> Part,
    ) -> Result<Plan, AllocError> {
        let mut plan = Plan::default();
        if backing.lazy || from == to {
            return Ok(plan);
        }
        let region_pages = self.layout.region_pages();
        for after in self.layout.region_of(from)..self.regions_for(to) {
            let pages = WindowPages::new(after * region_pages, region_pages);
            let (begin, end) = (from.max(pages.first), to.min(pages.end()));
            let is_whole = end - begin == region_pages;
            let step = match part(after) {
                Part::Table(table) => Ok(Step::Has(table)),
                _ => self.plan_new(bus, is_whole, backing.memory),
            };
            let step = step.inspect_err(|_| self.drop_plan(&plan, backing.memory))?;
            if !matches!(step, Step::Run(_)) {
                plan.promised += end - begin;
            }
            plan.steps.push((after, step));
        }
        if self.frames.available(backing.memory) < plan.promised {
            self.drop_plan(&plan, backing.memory);
            return Err(AllocError::NoFrames);
        }
        self.frames.reserve(backing.memory, plan.promised);
        Ok(plan)
    }

    /// For all pages of a region a run, or any table, since all of its words are written; else a table of
    /// zeroes.
    fn plan_new(
        &mut self,
        bus: &mut impl TableBus,
        is_whole: bool,
        memory: u8,
    ) -> Result<Step, AllocError> {
        if !is_whole {
            return self.zeroed_table(bus).map(|table| Step::New(table, true));
        }
        if let Some(frame) = self.frames.take(memory, self.layout.leaf_bits, None) {
            return Ok(Step::Run(frame));
        }
        let (table, is_zero) =
            self.tables.take_any(&mut self.frames).ok_or(AllocError::NoFrames)?;
        Ok(Step::New(table, is_zero))
    }

    /// Gives everything back that a plan has taken, but for what is promised.
    fn drop_plan(&mut self, plan: &Plan, memory: u8) {
        for &(_, step) in &plan.steps {
            match step {
                Step::Has(_) => {}
                Step::New(table, is_zero) => {
                    self.tables.give_back(table, is_zero, &mut self.frames);
                }
                Step::Run(frame) => {
                    self.frames.give_back(memory, frame, self.layout.leaf_bits);
                }
            }
        }
    }

    /// Gives a plan up.
    pub(super) fn cancel(&mut self, plan: &Plan, memory: u8) {
        self.frames.unreserve(memory, plan.promised);
        self.drop_plan(plan, memory);
    }

    /// Does what is planned: `pages` of the allocation that begins with region `first`, whose regions are claimed.
    /// After an error those of its regions that had nothing are empty again, or quarantined.
    pub(super) fn carry_out(
        &mut self,
        bus: &mut impl TableBus,
        first: u64,
        plan: Plan,
        pages: WindowPages,
        backing: Backing,
    ) -> Result<(), AllocError> {
        let begin = first << self.layout.leaf_bits;
        let backing = Backing {
            first: (pages.first == 0).then_some((begin, 1)),
            last: begin + pages.end() - 1,
            ..backing
        };
        self.frames.unreserve(backing.memory, plan.promised);
        let mut written = Vec::new();
        for &(after, step) in &plan.steps {
            let (Step::Has(table) | Step::New(table, _)) = step else { continue };
            let region = WindowPages::new(
                begin + (after << self.layout.leaf_bits),
                self.layout.region_pages(),
            );
            let from = region.first.max(begin + pages.first);
            let these = WindowPages::new(from, region.end().min(begin + pages.end()) - from);
            written.extend(self.back(bus, table, these, &backing));
        }
        let done = bus.wait().and_then(|()| self.direct_all(bus, first, &plan, &backing));
        if done.is_err() {
            self.undo_plan(bus, first, &plan, pages, backing.memory, &written);
            return Err(AllocError::BusError);
        }
        for (after, step) in plan.steps {
            let part = match step {
                Step::Has(table) | Step::New(table, _) => Part::Table(table),
                Step::Run(frame) => Part::Run(frame),
            };
            self.regions.set_part(first + after, part);
        }
        Ok(())
    }

    /// The directory's words, after those of tables are seen.
    fn direct_all(
        &self,
        bus: &mut impl TableBus,
        first: u64,
        plan: &Plan,
        backing: &Backing,
    ) -> Result<(), TableBusError> {
        for &(after, step) in &plan.steps {
            let word = match step {
                Step::Has(_) => continue,
                Step::New(table, _) => self.link_word(table),
                Step::Run(frame) => {
                    let last = ((first + after + 1) << self.layout.leaf_bits) - 1;
                    let of = (backing.memory, backing.rights);
                    self.run_word(first + after, frame, of, last == backing.last)
                }
            };
            bus.write(self.layout.directory_word(first + after), word);
        }
        bus.wait()
    }

    /// The directory's word of a region of a large allocation that is one run of frames in a memory, with these
    /// rights; whether the allocation ends with it.
    pub(super) fn run_word(
        &self,
        region: u64,
        frame: u32,
        (memory, rights): (u8, Rights),
        is_last: bool,
    ) -> u64 {
        let is_first = matches!(self.regions.state(region), Region::Large { after: 0, .. });
        let word = PageWord::mapped(memory, frame, rights, self.layout.leaf_bits);
        word.bounding(is_first, is_last).0
    }

    fn undo_plan(
        &mut self,
        bus: &mut impl TableBus,
        first: u64,
        plan: &Plan,
        pages: WindowPages,
        memory: u8,
        written: &[Written],
    ) {
        let held = self.unwrite(bus, written);
        let owned = self.regions_for(pages.first);
        for &(after, step) in &plan.steps {
            if matches!(step, Step::Has(_)) {
                continue;
            }
            let region = first + after;
            let is_held = held.iter().any(|&page| self.layout.region_of(page) == region);
            if self.unlink(bus, region).is_err() || is_held {
                self.quarantine_step(region, step, after < owned);
                continue;
            }
            match step {
                Step::New(table, _) => self.tables.give_back(table, false, &mut self.frames),
                Step::Run(frame) => {
                    self.frames.give_back(memory, frame, self.layout.leaf_bits);
                }
                Step::Has(_) => {}
            }
        }
        self.empty_claimed(first, owned, self.regions_for(pages.end()));
    }

    /// A region whose words or whose word of the directory could not be written back. One that its allocation
    /// had before stays with it, and with the table.
    fn quarantine_step(&mut self, region: u64, step: Step, is_owned: bool) {
        self.counts.quarantined += self.layout.region_pages();
        self.regions.taint(region);
        match step {
            Step::New(table, _) if is_owned => self.regions.set_part(region, Part::Table(table)),
            _ => self.regions.set(region, Region::Retiring { table: None }, 0),
        }
    }
}
