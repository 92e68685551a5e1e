//! The machine: memories, tables, agents and executors on virtual time. It carries out what the
//! driver commands, as late and as badly as the knobs allow, and watches every access.
//!
//! It does not own the driver; the [`crate::World`] passes commands in and events out. What each
//! part does is beside it: `accesses` (loads and stores and their rules), `rings` (commands of a
//! card), `transfers` (all other commands), `agents` (threads and jobs), `losses`.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::sync::Arc;

use farside_svm::Capabilities;
use farside_svm::{CardFault, Command, Config, Header, Limits, Request, StepError, Task};
use farside_types::{
    Access, CardId, CommandId, Epoch, FaultId, JobId, MemoryId, PageNo, PageRange, RequestId, Span,
    StreamId, Time,
};

use crate::access::{Fault, Flight};
use crate::agenda::Agenda;
use crate::card::Card;
use crate::cpu::Cpu;
use crate::facts::Facts;
use crate::failures::Saboteur;
use crate::hostility::Hostility;
use crate::job::{Job, JobState};
use crate::log::Log;
use crate::memory::Memory;
use crate::oracle::OpenRequest;
use crate::port::Step;
use crate::prng::Prng;
use crate::reference::{Content, Reference};
use crate::transfers::{Fate, OffRing, Transfer};
use crate::violation::Violation;

/// Something on its way to the driver.
#[derive(Clone, Debug)]
pub(crate) enum Parcel {
    CardFaults(CardId, Vec<CardFault>),
    HostFault(PageNo, Access),
    /// With whether it only reads.
    Launch(JobId, CardId, StreamId, Vec<Task>, bool),
    JobDone(JobId),
    JobCancel(JobId),
    Request(RequestId, Request),
    Done(CommandId, Epoch, Result<(), StepError>),
    Told(CommandId, u64, u64, Vec<u64>),
    CounterNotice(CardId, PageRange, u32),
    CardLost(CardId),
    CardReset(CardId),
    /// A direct link from one card to another works again, or not for now.
    Link(CardId, CardId, bool),
}

/// Something that the machine will do.
#[derive(Debug)]
pub(crate) enum Work {
    /// The head of a card's ring.
    Ring(CardId),
    /// A command that is in no ring acts.
    Transfer(CommandId),
    /// A silent copy acts after all.
    LateEffect(CommandId),
    /// Something in flight arrives.
    Fly(u64),
    /// The driver is told.
    Deliver(Parcel),
    /// A card sends its buffered faults.
    Flush(CardId),
    /// A woken thread tries again.
    Retry(usize),
    /// Threads make accesses.
    CpuTick,
    /// Jobs of a card make accesses.
    CardTick(CardId),
    /// The machine thinks of something nasty.
    HostileTick,
    /// The program thinks of a request.
    ProgramTick,
    /// An operator resets a card.
    Reset(CardId),
    /// A card that stood still goes on, unless it is to be reset.
    GoOn(CardId),
    /// Something happens at a card's port, in that life of it.
    Port(CardId, u64, Step),
}

/// The machine.
#[derive(Debug)]
pub(crate) struct Machine {
    pub(crate) now: Time,
    /// Grows with every step; dates facts.
    pub(crate) stamp: u64,
    pub(crate) rng: Prng,
    /// For what was not drawn from the beginning: worlds of old seeds are what they were but for that.
    pub(crate) also: Prng,
    pub(crate) agenda: Agenda<Work>,
    pub(crate) log: Log,
    pub(crate) arena: PageRange,
    /// The arena, and behind it what the program has had before and may have adopted.
    pub(crate) pages: PageRange,
    pub(crate) capabilities: Capabilities,
    pub(crate) limits: Limits,
    pub(crate) hostility: Hostility,
    pub(crate) memories: Vec<Memory>,
    /// The bounce buffers: per page what is in it.
    pub(crate) bounces: Vec<Vec<(Option<PageNo>, Content)>>,
    pub(crate) cpu: Cpu,
    pub(crate) cards: Vec<Card>,
    pub(crate) jobs: BTreeMap<JobId, Job>,
    pub(crate) faults: BTreeMap<FaultId, Fault>,
    /// Faults that died with their card; answers to them are ignored.
    pub(crate) forgotten: HashSet<FaultId>,
    pub(crate) flights: BTreeMap<u64, Flight>,
    pub(crate) transfers: BTreeMap<CommandId, Transfer>,
    pub(crate) used_commands: HashSet<CommandId>,
    pub(crate) reference: Reference,
    pub(crate) facts: Facts,
    /// Requests that the driver has not answered.
    pub(crate) requests: BTreeMap<RequestId, OpenRequest>,
    /// What is allocated, as the driver's replies say.
    pub(crate) allocations: Vec<PageRange>,
    /// Jobs change most of what they read.
    pub(crate) updates: bool,
    /// Agents make accesses of their own.
    pub(crate) random_agents: bool,
    /// Fates of the next copies, before chance decides (for scenarios).
    pub(crate) planned_fates: VecDeque<Fate>,
    /// What fails on purpose (for scenarios).
    pub(crate) saboteur: Saboteur,
    /// The page whose copies fail.
    pub(crate) broken_page: Option<PageNo>,
    pub(crate) next_number: u64,
}

impl Machine {
    /// With so many pages behind the arena that can be adopted.
    pub(crate) fn new(config: &Config, adoptable: u64, hostility: Hostility, seed: u64) -> Machine {
        let arena = config.arena;
        let pages = PageRange::new(arena.start, arena.count + adoptable);
        let mut memories = vec![Memory::host(pages, arena)];
        memories.extend(config.card_frames.iter().map(|&frames| Memory::card(frames)));
        let capabilities = config.capabilities.clone();
        let slot = vec![(None, Content::default()); capabilities.bounce_pages as usize];
        let bounces = vec![slot; usize::from(capabilities.bounce_slots)];
        let cards = (0..config.card_frames.len()).map(|i| Card::new(CardId(i as u8)));
        Machine {
            now: Time::ZERO,
            stamp: 1,
            rng: Prng::new(seed),
            also: Prng::new(!seed),
            agenda: Agenda::new(),
            log: Log::default(),
            arena,
            pages,
            capabilities,
            limits: config.limits,
            hostility,
            memories,
            bounces,
            cpu: Cpu::new(3),
            cards: cards.collect(),
            jobs: BTreeMap::new(),
            faults: BTreeMap::new(),
            forgotten: HashSet::new(),
            flights: BTreeMap::new(),
            transfers: BTreeMap::new(),
            used_commands: HashSet::new(),
            reference: Reference::new(pages),
            facts: Facts::new(pages),
            requests: BTreeMap::new(),
            allocations: Vec::new(),
            updates: false,
            random_agents: false,
            planned_fates: VecDeque::new(),
            saboteur: Saboteur::default(),
            broken_page: None,
            next_number: 0,
        }
    }

    /// A number that was never used.
    pub(crate) fn number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number
    }

    /// A moment after now, at most the longest delay away.
    pub(crate) fn soon(&mut self) -> Time {
        self.now + Span::from_nanos(self.rng.between(1, self.hostility.delay_ns_max))
    }

    pub(crate) fn later(&mut self, work: Work) {
        let at = self.soon();
        self.agenda.at(at, work);
    }

    pub(crate) fn deliver(&mut self, parcel: Parcel) {
        self.later(Work::Deliver(parcel));
    }

    pub(crate) fn say(&mut self, mark: char, text: String) {
        self.log.line(self.now, mark, text);
    }

    pub(crate) fn memory(&self, memory: MemoryId) -> &Memory {
        &self.memories[usize::from(memory.0)]
    }

    pub(crate) fn memory_mut(&mut self, memory: MemoryId) -> &mut Memory {
        &mut self.memories[usize::from(memory.0)]
    }

    pub(crate) fn card_mut(&mut self, card: CardId) -> &mut Card {
        &mut self.cards[usize::from(card.0)]
    }

    /// Carries out work that needs no driver.
    pub(crate) fn run(&mut self, work: Work) -> Result<(), Violation> {
        match work {
            Work::Ring(card) => self.run_ring(card),
            Work::Transfer(id) => self.run_transfer(id),
            Work::LateEffect(id) => self.late_effect(id),
            Work::Fly(id) => self.arrive(id),
            Work::Flush(card) => {
                self.flush_faults(card);
                Ok(())
            }
            Work::Retry(thread) => self.retry(thread),
            Work::CpuTick => self.cpu_tick(),
            Work::CardTick(card) => self.card_tick(card),
            Work::Port(card, life, step) => self.run_port(card, life, step),
            Work::GoOn(card) => {
                let state = &self.cards[usize::from(card.0)];
                if state.stalled && !state.suspect && !state.halted {
                    self.go_on(card);
                }
                Ok(())
            }
            Work::HostileTick => {
                self.hostile_tick();
                Ok(())
            }
            Work::Deliver(_) | Work::ProgramTick | Work::Reset(_) => Ok(()),
        }
    }

    /// Takes a command that the driver hands out.
    pub(crate) fn take(&mut self, command: Command) -> Result<(), Violation> {
        match command {
            Command::Ring(card, step) => {
                self.accept_ring(card, &step)?;
                self.enqueue(card, step);
                Ok(())
            }
            Command::Host(step) => {
                self.forget_told(&step.op);
                self.begin_transfer(OffRing::Host(step))
            }
            Command::Transfer(mover, step) => self.begin_transfer(OffRing::Bytes(mover, step)),
        }
    }

    /// Tells the driver that a command is done; sometimes twice.
    pub(crate) fn complete(&mut self, header: &Header, at: Time, result: Result<(), StepError>) {
        let parcel = || Parcel::Done(header.id, header.epoch, result);
        self.agenda.at(at, Work::Deliver(parcel()));
        if self.rng.chance(self.hostility.duplicate_completion) {
            let again = at + Span::from_nanos(self.rng.between(1, self.hostility.delay_ns_max));
            self.agenda.at(again, Work::Deliver(parcel()));
        }
    }

    /// What is open, for the message about a run that does not come to rest.
    pub(crate) fn unfinished(&self) -> String {
        let faults: Vec<_> = self.faults.values().filter(|fault| !fault.answered).collect();
        let queued = self.cards.iter().map(|card| card.ring.len()).sum::<usize>();
        format!(
            "requests {:?}, faults {faults:?}, commands {:?}, {queued} in rings",
            self.requests,
            self.transfers.keys()
        )
    }

    /// Whether no command is under way: nothing in a ring, nothing unanswered.
    pub(crate) fn commands_idle(&self) -> bool {
        self.transfers.is_empty() && self.cards.iter().all(|card| card.ring.is_empty())
    }

    /// A page that an agent might want: often a hot one, rarely a wild one.
    pub(crate) fn random_page(&mut self) -> Option<PageNo> {
        if self.rng.chance(self.hostility.wild_access) {
            return Some(PageNo(self.arena.start.0 + self.rng.below(self.arena.count)));
        }
        let range = if self.rng.chance(400) {
            let hot = *self.allocations.first()?;
            PageRange::new(hot.start, hot.count.min(4))
        } else {
            self.rng.pick(&self.allocations)?
        };
        Some(PageNo(range.start.0 + self.rng.below(range.count)))
    }

    /// Asks the driver to launch a job.
    pub(crate) fn ask_launch(
        &mut self,
        card: CardId,
        stream: StreamId,
        after: Vec<JobId>,
        script: crate::job::Script,
    ) -> (JobId, Parcel) {
        let id = JobId(self.number());
        let only_reads = script.only_reads;
        let job = Job {
            id,
            card,
            stream,
            after: after.clone(),
            script,
            state: JobState::Asked,
            failed: None,
            cancelled: false,
            flights: 0,
            waits: 0,
        };
        self.jobs.insert(id, job);
        let after = after.into_iter().map(Task::Job).collect();
        (id, Parcel::Launch(id, card, stream, after, only_reads))
    }
}

/// The need of a group as the driver wants it.
pub(crate) fn group(ranges: &[(PageRange, Access)]) -> Arc<[(PageRange, Access)]> {
    ranges.iter().copied().collect()
}
