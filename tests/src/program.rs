//! The program: random requests, launches and cancellations, some of them senseless.

use std::sync::Arc;

use farside_svm::{Advice, Request};
use farside_types::{
    Access, AgentId, CardId, JobId, MemoryId, PAGE_SIZE, PageNo, PageRange, Rights, StreamId,
    VirtAddr,
};

use crate::access::{WordAccess, WordOp};
use crate::job::{Job, JobState, JobStep, Script};
use crate::machine::{Machine, Parcel, Work};
use crate::violation::Violation;
use crate::world::World;

/// Pages that the program holds at most.
const PAGES_HELD: u64 = 240;

/// Launches that wait at most.
const LAUNCHES_WAITING: usize = 12;

impl World {
    /// Starts the random program, the random agents and the hostility.
    pub fn come_alive(&mut self) {
        self.machine.random_agents = true;
        self.machine.wake_cpu();
        self.machine.later(Work::ProgramTick);
        self.machine.later(Work::HostileTick);
    }

    /// Every job drops the steps that it has not begun.
    pub fn cut_scripts(&mut self) {
        for job in self.machine.jobs.values_mut().filter(|job| !job.is_over()) {
            job.script.steps.clear();
        }
        for card in (0..self.machine.cards.len()).map(|i| CardId(i as u8)) {
            self.machine.wake_card(card);
        }
    }

    /// The program does something.
    pub(crate) fn program_tick(&mut self) -> Result<(), Violation> {
        self.machine.later(Work::ProgramTick);
        match self.machine.rng.below(10) {
            0..=4 => self.random_launch(),
            5 => self.random_job_cancel(),
            _ => match self.random_request() {
                Some(request) => self.request_inner(request).map(|_| ()),
                None => Ok(()),
            },
        }
    }

    fn random_launch(&mut self) -> Result<(), Violation> {
        let machine = &mut self.machine;
        let waiting = machine.jobs.values().rev().filter(|job| !job.is_over());
        if waiting.take(LAUNCHES_WAITING).count() == LAUNCHES_WAITING {
            return Ok(());
        }
        let card = CardId(machine.rng.below(machine.cards.len() as u64) as u8);
        if machine.cards[usize::from(card.0)].lost {
            return Ok(());
        }
        let stream = StreamId(machine.rng.below(self.setup.streams) as u32);
        let script = machine.random_script();
        let after = machine.random_predecessors();
        let (_, parcel) = machine.ask_launch(card, stream, after, script);
        self.deliver(parcel)
    }

    fn random_job_cancel(&mut self) -> Result<(), Violation> {
        let machine = &mut self.machine;
        let asked: Vec<JobId> = machine
            .jobs
            .values()
            .rev()
            .take(50)
            .filter(|job| job.state == JobState::Asked)
            .map(|job| job.id)
            .collect();
        let Some(id) = machine.rng.pick(&asked) else { return Ok(()) };
        machine.job_mut(id).cancelled = true;
        self.deliver(Parcel::JobCancel(id))
    }

    fn random_request(&mut self) -> Option<Request> {
        let senseless = self.machine.hostility.senseless_request;
        let machine = &mut self.machine;
        if machine.rng.chance(senseless) {
            return Some(machine.senseless_request());
        }
        if machine.pages != machine.arena && machine.rng.chance(150) {
            return Some(machine.random_adoption());
        }
        let held: u64 = machine.allocations.iter().map(|range| range.count).sum();
        if machine.allocations.is_empty() || held < PAGES_HELD && machine.rng.chance(300) {
            return Some(machine.random_alloc());
        }
        machine.random_page_request()
    }
}

impl Machine {
    /// A kernel: mostly accesses, sometimes a group.
    fn random_script(&mut self) -> Script {
        let steps = self.rng.between(1, 40);
        let mut script: Vec<JobStep> = (0..steps)
            .filter_map(|_| {
                if self.rng.chance(100) {
                    self.random_group()
                } else {
                    self.random_access().map(JobStep::Access)
                }
            })
            .collect();
        if self.updates {
            script = self.with_updates(script);
        }
        let width = self.rng.between(1, 6) as u32;
        Script { steps: script.into(), width, ..Script::default() }
    }

    /// The same steps, and behind most loads of a word one or more changes of it.
    fn with_updates(&mut self, script: Vec<JobStep>) -> Vec<JobStep> {
        let mut all = Vec::with_capacity(2 * script.len());
        for step in script {
            let changed = match &step {
                JobStep::Access(WordAccess { page, word, op: WordOp::Load }) => {
                    Some(WordAccess::increment(*page, *word))
                }
                _ => None,
            };
            all.push(step);
            let changed = changed.filter(|_| self.also.chance(600));
            all.extend(changed.map(JobStep::Access));
        }
        all
    }

    /// Jobs that the next one is to come after: now and then one or two of those that have not ended, or
    /// have just ended.
    fn random_predecessors(&mut self) -> Vec<JobId> {
        if !self.rng.chance(250) {
            return Vec::new();
        }
        // Whoever launches knows of those that have ended how.
        let well =
            |job: &&Job| !job.is_over() || job.state == JobState::Done && job.failed.is_none();
        let recent: Vec<JobId> =
            self.jobs.values().rev().take(4).filter(well).map(|job| job.id).collect();
        (0..2).filter_map(|_| self.rng.pick(&recent)).collect()
    }

    /// A `with` of one to three ranges, now and then too large.
    fn random_group(&mut self) -> Option<JobStep> {
        let ranges = (0..self.rng.between(1, 3))
            .filter_map(|_| {
                let range = self.random_range(3)?;
                let access = if self.rng.chance(500) { Access::Read } else { Access::Write };
                Some((range, access))
            })
            .collect::<Vec<_>>();
        (!ranges.is_empty()).then_some(JobStep::Group(ranges))
    }

    /// A part of an allocation of at most `pages` pages.
    fn random_range(&mut self, pages: u64) -> Option<PageRange> {
        let start = self.random_page()?;
        let end = self.allocations.iter().find(|range| range.contains(start))?.end();
        let count = self.rng.between(1, pages).min(end.0 - start.0);
        Some(PageRange::new(start, count))
    }

    fn random_alloc(&mut self) -> Request {
        let bytes = self.rng.between(1, 40 * PAGE_SIZE as u64);
        Request::Alloc { bytes, name: Arc::from("random") }
    }

    fn random_memory(&mut self) -> MemoryId {
        MemoryId(self.rng.below(self.memories.len() as u64) as u8)
    }

    fn random_page_request(&mut self) -> Option<Request> {
        let range = self.random_range(24)?;
        let memory = self.random_memory();
        Some(match self.rng.below(16) {
            0..=3 => Request::Migrate { range, to: memory },
            4 => Request::Prefetch { range, to: memory, access: Access::Write },
            5 => Request::Prefetch { range, to: memory, access: Access::Read },
            6 | 7 => Request::Advise { range, advice: self.random_advice(memory) },
            8 => {
                Request::Pin { range: PageRange::new(range.start, range.count.min(3)), at: memory }
            }
            9..=11 => Request::Unpin { range: self.pinned_range().unwrap_or(range) },
            12 if !self.protecting() => {
                let rights = if self.rng.chance(300) { Rights::Read } else { Rights::ReadWrite };
                Request::Protect { range, rights }
            }
            13 => Request::Trim,
            _ => {
                let range = self.rng.pick(&self.allocations)?;
                self.end_of(range)
            }
        })
    }

    /// Whether a change of rights is under way: two at a time would race with each other.
    fn protecting(&self) -> bool {
        self.requests.values().any(|open| matches!(open.request, Request::Protect { .. }))
    }

    /// A range as it was pinned, if there is one.
    fn pinned_range(&mut self) -> Option<PageRange> {
        self.rng.pick(&self.facts.pinned)
    }

    fn random_advice(&mut self, memory: MemoryId) -> Advice {
        let on = self.rng.chance(500);
        let drawn = match self.rng.below(3) {
            0 => Advice::ReadMostly(on),
            1 => Advice::Preferred(on.then_some(memory)),
            _ => Advice::AccessedBy(AgentId(memory.0), on),
        };
        if self.also.chance(250) { Advice::WholeBlocks(on) } else { drawn }
    }

    /// Empty, overflowing, foreign, across allocations: none of it may do harm.
    fn senseless_request(&mut self) -> Request {
        let inside = self.arena.start.offset(self.rng.below(self.arena.count));
        let start = [inside, PageNo(u64::MAX - 1), PageNo(0), self.arena.end()];
        let count = [0, 1, 7, self.arena.count + 1, u64::MAX];
        let range =
            PageRange::new(start[self.rng.below(4) as usize], count[self.rng.below(5) as usize]);
        let nowhere = MemoryId(self.memories.len() as u8);
        let to = if self.rng.chance(300) { nowhere } else { self.random_memory() };
        match self.rng.below(8) {
            0 => Request::Alloc { bytes: 0, name: Arc::from("") },
            1 => Request::Alloc { bytes: u64::MAX, name: Arc::from("") },
            2 => Request::Free { addr: VirtAddr(inside.addr().0 + 1) },
            3 => Request::Prefetch { range, to, access: Access::Write },
            4 => Request::Advise { range, advice: self.random_advice(to) },
            5 => Request::Pin { range, at: nowhere },
            6 => Request::Unpin { range },
            _ => Request::Migrate { range, to },
        }
    }
}
