//! What observers are told, and where the time of a fault went.

use farside_svm::placement::Action;
use farside_svm::{Command, Journal, Place, RingOp, Step, TransferOp};
use farside_types::{Access as Right, FaultId, MemoryId, PageNo, PageRange, Reason, Span, Time};
use farside_workloads::{Line, first_lines};

use super::access::Access;
use super::{Fault, Machine};
use crate::GpuCounts;
use crate::observe::{BufferPages, FaultParts, Observation, Observer, Sample, Slot, WaitsFor};

/// When an observer wants its next sample.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sampling {
    observer: usize,
    every: Span,
    next: Time,
}

/// Tells all observers.
pub(super) fn observe(observers: &mut [Box<dyn Observer>], now: Time, what: &Observation) {
    observers.iter_mut().for_each(|observer| observer.observe(now, what));
}

/// How a page came to a GPU whose fault is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Handled {
    /// It was mapped where it is.
    Mapped,
    Migrated,
    Duplicated,
    Collapsed,
}

impl Machine {
    /// Adds an observer.
    pub(crate) fn add_observer(&mut self, mut observer: Box<dyn Observer>) {
        observer.start(&self.buffer_pages());
        if let Some(every) = observer.sample_every().filter(|every| every.0 > 0) {
            // A restored run has begun long ago.
            let begun = self.elapsed().0 / every.0;
            let next = self.start + Span((begun + 1) * every.0);
            let observer = self.observers.len();
            self.samplings.push(Sampling { observer, every, next });
        }
        self.observers.push(observer);
    }

    /// Has a journal kept of what the driver does.
    pub(crate) fn keep_journal(&mut self, journal: Box<dyn Journal>) {
        self.driver.keep_journal(journal);
    }

    /// When the first launch is made.
    pub(crate) fn first_launch(&self) -> Time {
        self.start
    }

    /// Where the program's buffers are.
    fn buffer_pages(&self) -> Vec<BufferPages> {
        let buffers = self.workload.buffers();
        let firsts = first_lines(buffers);
        let pages = |&(page, line): &(u32, Line)| {
            let buffer = &buffers[firsts.partition_point(|&first| first <= line) - 1];
            let start = self.arena.offset(u64::from(page));
            let count = buffer.bytes.div_ceil(u64::from(self.spec.page.bytes));
            BufferPages { name: buffer.name.clone(), pages: PageRange::new(start, count) }
        };
        self.first_lines.iter().map(pages).collect()
    }

    /// Tells observers, if there are any.
    #[inline]
    pub(super) fn observe(&mut self, what: impl FnOnce(&Machine) -> Observation) {
        if self.observers.is_empty() {
            return;
        }
        let what = what(self);
        let now = Time(self.elapsed().0);
        observe(&mut self.observers, now, &what);
    }

    /// A point in time as observers count it.
    pub(super) fn shown(&self, at: Time) -> Time {
        Time(at.since(self.start).0)
    }

    /// A wavefront goes on after it has waited.
    #[inline]
    pub(super) fn observe_wait(&mut self, me: Access) {
        if !self.observers.is_empty() {
            self.tell_wait(me);
        }
    }

    fn tell_wait(&mut self, me: Access) {
        let now = self.queue.now();
        let wave = self.wave_mut(me);
        let since = std::mem::replace(&mut wave.since, now);
        if since >= now {
            return;
        }
        let (waits_for, page) = (wave.cause, wave.page);
        let about = matches!(waits_for, WaitsFor::Walk | WaitsFor::Fault);
        self.observe(|machine| Observation::Wait {
            slot: Slot { gpu: me.gpu, unit: me.unit, slot: me.slot },
            waits_for,
            page: about.then(|| machine.arena.offset(u64::from(page))),
            since: machine.shown(since),
        });
    }

    /// Hands out the samples that are due before `now`.
    pub(super) fn sample_up_to(&mut self, now: Time) {
        for index in 0..self.samplings.len() {
            while self.samplings[index].next <= now {
                let Sampling { observer, every, next } = self.samplings[index];
                self.samplings[index].next = next + every;
                self.sample(observer, next);
            }
        }
    }

    /// The last sample of everybody, at the end of the run.
    pub(super) fn last_sample(&mut self) {
        let now = self.queue.now();
        self.sample_up_to(now);
        for sampling in std::mem::take(&mut self.samplings) {
            self.sample(sampling.observer, now);
        }
    }

    fn sample(&mut self, observer: usize, at: Time) {
        let gpus: Vec<GpuCounts> = self.gpus.iter().map(|gpu| gpu.counts).collect();
        let driver = crate::stats::since(self.driver.stats(), &self.before);
        let at = self.shown(at);
        self.observers[observer].sample(at, &Sample { gpus: &gpus, driver: &driver });
    }

    /// Notes in open faults what the driver does for their pages.
    pub(super) fn note_command(&mut self, command: &Command) {
        let now = self.queue.now();
        match command {
            Command::Ring(card, Step { op: RingOp::Map { runs, memory, .. }, .. }) => {
                for page in runs.iter().flat_map(|run| run.pages().pages()) {
                    self.note_open(card.0, page, |fault| fault.mapped = Some((now, *memory)));
                }
            }
            Command::Transfer(_, Step { header, op }) => {
                let TransferOp::Copy { to: Place::Memory(to), runs, .. } = op else { return };
                let Some(card) = to.card() else { return };
                for page in runs.iter().flat_map(|run| run.pages().pages()) {
                    if !self.note_open(card.0, page, |fault| fault.copy = Some((now, now))) {
                        let page = page.0.wrapping_sub(self.arena.0) as u32;
                        self.decided(page, None, Action::Migrate, header.reason, now);
                    }
                }
            }
            Command::Ring(..) | Command::Host(_) => {}
        }
    }

    /// Notes something in a GPU's open faults on a page; whether there is one.
    fn note_open(&mut self, gpu: u8, page: PageNo, note: impl Fn(&mut Fault)) -> bool {
        let page = page.0.wrapping_sub(self.arena.0) as u32;
        let mut known = false;
        for write in [false, true] {
            let Some(id) = self.open.get(&(gpu, page, write)).copied() else {
                continue;
            };
            known = true;
            if let Some(fault) = self.faults.get_mut(&id) {
                note(fault);
            }
        }
        known
    }

    /// The copies of a command are done.
    pub(super) fn note_copied(&mut self, op: &TransferOp) {
        let now = self.queue.now();
        let TransferOp::Copy { to: Place::Memory(to), runs, .. } = op else {
            return;
        };
        let Some(gpu) = to.card().map(|card| card.0) else {
            return;
        };
        for page in runs.iter().flat_map(|run| run.pages().pages()) {
            let page = page.0.wrapping_sub(self.arena.0) as u32;
            for write in [false, true] {
                let id = self.open.get(&(gpu, page, write));
                if let Some(fault) = id.and_then(|id| self.faults.get_mut(id)) {
                    fault.copy = fault.copy.map(|(begun, _)| (begun, now));
                }
            }
        }
    }

    /// A batch with this fault was fetched, or has been decided about.
    pub(super) fn note_fault(&mut self, id: FaultId, decided: bool) {
        let now = self.queue.now();
        if let Some(fault) = self.faults.get_mut(&id) {
            if decided {
                fault.served = now;
            } else {
                (fault.fetched, fault.served) = (now, now);
            }
        }
    }

    fn decided(&mut self, page: u32, gpu: Option<u8>, action: Action, reason: Reason, made: Time) {
        self.observe(|machine| {
            let page = machine.arena.offset(u64::from(page));
            Observation::Decision { page, gpu, action, reason, made: machine.shown(made) }
        });
    }

    /// A fault is over: where its time went (GRIT, Figure 3).
    pub(super) fn account(&mut self, fault: &Fault, reason: Reason) {
        let now = self.queue.now();
        let (parts, handled) = (parts(fault, now), self.handled(fault));
        let counts = &mut self.gpus[usize::from(fault.gpu)].counts;
        counts.handling_host += parts.reported + parts.host;
        let rest = parts.invalidation + parts.copy + parts.replay;
        let (sum, action) = match handled {
            Handled::Mapped => (&mut counts.handling_host, Action::MapRemote),
            Handled::Migrated => (&mut counts.handling_migration, Action::Migrate),
            Handled::Duplicated => (&mut counts.handling_duplication, Action::Duplicate),
            Handled::Collapsed => (&mut counts.handling_collapse, Action::Duplicate),
        };
        *sum += rest;
        self.decided(fault.page, Some(fault.gpu), action, reason, fault.served);
        let access = if fault.write { Right::Write } else { Right::Read };
        let (gpu, page, since) = (fault.gpu, fault.page, fault.since);
        self.observe(|machine| Observation::Replay {
            gpu,
            page: machine.arena.offset(u64::from(page)),
            access,
            since: machine.shown(since),
            parts,
        });
    }

    fn handled(&self, fault: &Fault) -> Handled {
        let own = self.gpus[usize::from(fault.gpu)].memory;
        let mapped = fault.mapped.map(|(_, memory)| memory);
        let copies = self.driver.page(self.arena.offset(u64::from(fault.page))).copies;
        match (fault.copy, mapped) {
            (Some(_), _) if copies.len() > 1 => Handled::Duplicated,
            (Some(_), _) => Handled::Migrated,
            (None, Some(memory)) if memory == own && fault.write => Handled::Collapsed,
            _ => Handled::Mapped,
        }
    }
}

/// The parts add up to the time from the fault to `now`. What was under way for the page before
/// the driver came to this fault does not count twice.
fn parts(fault: &Fault, now: Time) -> FaultParts {
    let mapped = fault.mapped.map_or(now, |(at, _)| at);
    let (copy_begun, copy_end) = fault.copy.unwrap_or((mapped, mapped));
    let copy_begun = copy_begun.max(fault.served);
    let copy_end = copy_end.max(copy_begun);
    FaultParts {
        reported: fault.fetched.since(fault.since),
        host: fault.served.since(fault.fetched),
        invalidation: copy_begun.since(fault.served),
        copy: copy_end.since(copy_begun),
        replay: now.since(copy_end),
    }
}

/// The memory that a place is in: bounce buffers are the host's.
pub(super) fn memory_of(place: Place) -> MemoryId {
    match place {
        Place::Memory(memory) => memory,
        Place::Bounce(_) => MemoryId::HOST,
    }
}
