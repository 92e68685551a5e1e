//! The host's software: threads of the driver that work through what it says, one thing after the
//! other. What a step costs is charged here; the driver itself takes no time.

use std::collections::VecDeque;

use farside_svm::{
    Command, Event, Header, HostOp, Phase, Place, Reply, RingOp, Run, Step, TransferOp, Wait,
};
use farside_types::{CardId, MemoryId, Span, Time};

use super::CardsError;
use super::machine::{CardMachine, SimEvent};

/// Something the driver said.
#[derive(Debug)]
pub(super) enum Item {
    /// A command to carry out.
    Command(Command),
    /// An answer for the program.
    Reply(Reply),
}

/// What waits for a thread.
#[derive(Debug)]
enum Work {
    /// What the driver said at one time, in order.
    Items(Vec<Item>),
    /// The faults of a card.
    Faults(CardId),
}

/// The threads of the driver.
#[derive(Debug)]
pub(super) struct Host {
    free: u32,
    queue: VecDeque<Work>,
    /// When a thread was last busy.
    active: Time,
}

impl Host {
    pub(super) fn new(processors: u32) -> Host {
        Host { free: processors, queue: VecDeque::new(), active: Time::ZERO }
    }
}

impl CardMachine {
    /// Gives the host's software something to work through.
    pub(super) fn submit(&mut self, items: Vec<Item>) -> Result<(), CardsError> {
        if items.is_empty() {
            return Ok(());
        }
        self.host.queue.push_back(Work::Items(items));
        self.next_work()
    }

    /// The driver has woken for the faults of a card.
    pub(super) fn fault_interrupt(&mut self, card: CardId) -> Result<(), CardsError> {
        self.host.queue.push_back(Work::Faults(card));
        self.next_work()
    }

    /// Gives what waits to threads that are free.
    fn next_work(&mut self) -> Result<(), CardsError> {
        while self.host.free > 0 {
            let Some(work) = self.host.queue.pop_front() else {
                return Ok(());
            };
            self.host.free -= 1;
            let items = match work {
                Work::Items(items) => items,
                Work::Faults(card) => self.fetch(card)?,
            };
            self.work(items);
        }
        Ok(())
    }

    /// Takes a card's faults and asks the driver what to do.
    fn fetch(&mut self, card: CardId) -> Result<Vec<Item>, CardsError> {
        let state = &mut self.cards[usize::from(card.0)];
        state.interrupting = false;
        let faults = state.take_faults();
        let batch = faults.len() as u64;
        for job in self.jobs.values_mut().filter(|job| job.card == card) {
            job.batches += 1;
            job.faults += batch;
        }
        self.driver.handle(self.queue.now(), Event::CardFaults { card, faults: &faults });
        self.listen()
    }

    /// A thread works through `items`.
    fn work(&mut self, items: Vec<Item>) {
        let mut at = self.queue.now();
        for item in items {
            let cost = self.cost(&item);
            at = at + cost;
            self.queue.push(at, SimEvent::Reached(item));
        }
        self.queue.push(at, SimEvent::ThreadFree);
    }

    pub(super) fn thread_free(&mut self) -> Result<(), CardsError> {
        self.host.free += 1;
        self.host.active = self.queue.now();
        self.next_work()
    }

    /// A thread has come to this command or answer.
    pub(super) fn reached(&mut self, item: Item) -> Result<(), CardsError> {
        match item {
            Item::Reply(Reply::Request { id, result }) => {
                let now = self.queue.now();
                self.replies.insert(id, (now, Reply::Request { id, result }));
                Ok(())
            }
            Item::Reply(reply) => {
                Err(self.broken(format!("an answer that nobody asked for: {reply:?}")))
            }
            Item::Command(Command::Ring(card, step)) => self.ready(card, step.header.id),
            Item::Command(Command::Transfer(_, step)) => self.transfer_start(step),
            Item::Command(Command::Host(step)) => self.host_operation(&step),
        }
    }

    /// An operation on the CPU's mappings. The simulated program touches memory on the CPU only
    /// through requests, so mappings have no effect, and a frame that was given back is not used.
    fn host_operation(&mut self, step: &Step<HostOp>) -> Result<(), CardsError> {
        if let HostOp::Map { runs, .. } = &step.op {
            for page in runs.iter().flat_map(|run| run.pages().pages()) {
                let index = self.index(page)?;
                self.arrived.remove(&index);
            }
        }
        self.finished(&step.header);
        Ok(())
    }

    /// The driver sees at once that a command is done.
    pub(super) fn finished(&mut self, header: &Header) {
        let Header { id: command, epoch, .. } = *header;
        self.queue.push(self.queue.now(), SimEvent::Done { command, epoch });
    }

    /// What a command or answer costs the software; also enters it into the account of steps.
    fn cost(&mut self, item: &Item) -> Span {
        let Item::Command(command) = item else {
            return Span::ZERO;
        };
        let cost = match command {
            Command::Ring(_, Step { op: RingOp::Launch { .. }, .. }) => {
                return Span::from_nanos(self.spec.host.launch_ns);
            }
            Command::Ring(_, step) => self.ring_cost(step),
            Command::Host(step) => self.host_cost(&step.op),
            Command::Transfer(_, step) => self.transfer_cost(&step.op),
        };
        self.steps.add(command.header().phase, cost);
        cost
    }

    fn ring_cost(&self, step: &Step<RingOp>) -> Span {
        match &step.op {
            RingOp::Unmap { runs, .. } | RingOp::Protect { runs, .. } => {
                self.setup_cost(step.header.wait, runs)
            }
            RingOp::Map { runs, .. } => self.map_cost(runs, false),
            RingOp::Accessed { .. }
            | RingOp::Resume { .. }
            | RingOp::Cancel { .. }
            | RingOp::Launch { .. } => Span::ZERO,
        }
    }

    fn host_cost(&self, op: &HostOp) -> Span {
        match op {
            HostOp::Unmap { runs } | HostOp::Protect { runs, .. } => {
                let per_page = self.spec.host.host_setup_page_ps;
                Span::from_nanos(self.spec.host.setup_ns) + self.per_entry(runs, per_page)
            }
            HostOp::Map { runs, .. } => self.map_cost(runs, true),
            HostOp::Release { .. } | HostOp::Poison { .. } => Span::ZERO,
        }
    }

    fn transfer_cost(&self, op: &TransferOp) -> Span {
        match op {
            TransferOp::Copy { from, to, .. } => {
                let bounces = matches!((from, to), (Place::Bounce(_), _) | (_, Place::Bounce(_)));
                let hop = if bounces { self.spec.pcie.bounce_hop_ns } else { 0 };
                Span::from_nanos(self.spec.dma.command_ns + hop)
            }
            TransferOp::Fill { memory, .. } if memory.is_host() => Span::ZERO,
            TransferOp::Fill { .. } => Span::from_nanos(self.spec.dma.command_ns),
        }
    }

    fn setup_cost(&self, wait: Wait, runs: &[Run]) -> Span {
        let host = &self.spec.host;
        let asks = wait == Wait::Awaited || self.spec.driver.always_drain;
        let drain = if asks { host.drain_ns } else { 0 };
        Span::from_nanos(host.setup_ns + drain) + self.per_entry(runs, host.setup_page_ps)
    }

    /// Finalizing pages that have just arrived, or giving back the translations of resident ones.
    fn map_cost(&self, runs: &[Run], to_host: bool) -> Span {
        let host = &self.spec.host;
        let first = runs.first().and_then(|run| self.index(run.page).ok());
        let source = first.and_then(|index| self.arrived.get(&index)).copied();
        let page = match (source, to_host) {
            (None, true) => return Span::from_nanos(host.finalize_ns),
            (None, false) => return Span::from_nanos(host.refill_ns),
            (Some(_), true) => host.to_host_finalize_page_ps,
            (Some(MemoryId::HOST), false) => host.host_finalize_page_ps,
            (Some(_), false) => host.finalize_page_ps,
        };
        let mut cost = Span::from_nanos(host.finalize_ns) + self.per_entry(runs, page);
        if source == Some(MemoryId::HOST) && host.entry_pages == 1 {
            let pages: u64 = runs.iter().map(|run| u64::from(run.count)).sum();
            let beyond = pages.saturating_sub(host.host_free_pages);
            cost += Span(beyond * host.host_free_page_ps);
        }
        cost
    }

    /// A cost per entry of the page table.
    fn per_entry(&self, runs: &[Run], each_ps: u64) -> Span {
        let pages = u64::from(self.spec.host.entry_pages);
        let entries = |count: u32| u64::from(count).div_ceil(pages);
        let entries: u64 = runs.iter().map(|run| entries(run.count)).sum();
        Span(entries * each_ps)
    }

    /// From an interrupt until the thread that waits for it runs.
    pub(super) fn wake(&self) -> Span {
        Span::from_nanos(self.spec.host.wake_ns)
    }

    /// As [`CardMachine::wake`], for a processor that may have gone to sleep meanwhile.
    pub(super) fn wake_from_nap(&self) -> Span {
        let host = &self.spec.host;
        let idle = self.queue.now().since(self.host.active);
        let napping = idle > Span::from_nanos(host.nap_after_ns);
        self.wake() + Span::from_nanos(if napping { host.nap_ns } else { 0 })
    }

    /// How long a copy of `pages` pages goes unnoticed when it is over.
    pub(super) fn notice_copy(&self, pages: u64) -> Span {
        let polled = pages < u64::from(self.spec.host.poll_below_pages);
        if polled { Span::ZERO } else { self.wake() }
    }

    /// Enters time that a copy took into the account of steps.
    pub(super) fn copied(&mut self, span: Span) {
        self.steps.add(Phase::Copy, span);
    }
}
