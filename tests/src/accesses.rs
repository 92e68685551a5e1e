//! Loads and stores: looking a translation up, performing an access through it, and the rules
//! that every access is held to.

use farside_svm::{Place, Run};
use farside_types::{Access, AgentId, CardId, FrameNo, MemoryId, PageNo, Rights};

use crate::access::{Cargo, Flight, Who, WordAccess, WordOp};
use crate::job::JobFailure;
use crate::machine::{Machine, Work};
use crate::memory::{GARBAGE, Translation};
use crate::reference::Content;
use crate::transfers::Fate;
use crate::violation::{Violation, ensure};

/// How an access ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Landed {
    /// It read or wrote its word.
    Well,
    /// The memory that it was aimed at is gone.
    BusError,
}

impl Machine {
    /// What the agent's tables say of the page.
    pub(crate) fn translation(&self, agent: AgentId, page: PageNo) -> Option<Translation> {
        match agent.card() {
            Some(card) => self.cards[usize::from(card.0)].tlb.get(&page).copied(),
            None => self.cpu.mapped.get(&page).map(|&rights| self.host_translation(page, rights)),
        }
    }

    /// The CPU's translation of a page: its own frame of the host.
    fn host_translation(&self, page: PageNo, rights: Rights) -> Translation {
        let frame = self.host_frame(page);
        let generation = self.memory(MemoryId::HOST).generation;
        Translation { memory: MemoryId::HOST, frame, rights, generation }
    }

    /// The host's frame of a page.
    pub(crate) fn host_frame(&self, page: PageNo) -> FrameNo {
        self.memory(MemoryId::HOST).number(page.0 - self.pages.start.0)
    }

    /// What is in the host's frame of a page.
    pub(crate) fn at_home(&mut self, page: PageNo) -> &mut Content {
        let frame = self.host_frame(page);
        let home = self.memory_mut(MemoryId::HOST).frame_mut(frame);
        &mut home.expect("the host has a frame for each page").content
    }

    /// The translation, if it serves the access.
    pub(crate) fn hit(&self, agent: AgentId, page: PageNo, access: Access) -> Option<Translation> {
        let of_space = self.translation(agent, page).filter(|found| found.rights.allows(access));
        let own =
            || self.is_own(agent, page).then(|| self.host_translation(page, Rights::ReadWrite));
        of_space.or_else(own)
    }

    /// Begins an access whose translation was taken: it is performed now or in a while.
    pub(crate) fn take_off(
        &mut self,
        agent: AgentId,
        who: Who,
        access: WordAccess,
        translation: Translation,
    ) -> Result<(), Violation> {
        if let Who::Job(job) = who {
            self.job_mut(job).flights += 1;
        }
        self.mark_written(agent, access.page, access.op.access());
        let cargo = Cargo::Word(access, translation);
        let flight = Flight { agent, who, cargo, grant: None };
        let id = self.number();
        self.flights.insert(id, flight);
        if self.rng.chance(500) {
            return self.arrive(id);
        }
        self.later(Work::Fly(id));
        Ok(())
    }

    /// An access sets its bit in its card's tables before it begins.
    pub(crate) fn mark_written(&mut self, agent: AgentId, page: PageNo, access: Access) {
        let Some(card) = agent.card().filter(|_| access.is_write()) else { return };
        if let Some((_, written)) = self.card_mut(card).written.get_mut(&page) {
            *written = true;
        }
    }

    /// An access of a card behind rings begins.
    pub(crate) fn fly(&mut self, flight: Flight, at_once: bool) -> Result<(), Violation> {
        let id = self.number();
        self.flights.insert(id, flight);
        if at_once {
            return self.arrive(id);
        }
        self.later(Work::Fly(id));
        Ok(())
    }

    /// Something in flight arrives.
    pub(crate) fn arrive(&mut self, id: u64) -> Result<(), Violation> {
        let Some(flight) = self.flights.remove(&id) else {
            return Ok(()); // it died with its card, or was hurried by a shootdown
        };
        let (agent, grant) = (flight.agent, flight.grant);
        match flight.cargo {
            Cargo::Word(access, translation) => {
                let landed = self.perform(agent, access, translation)?;
                self.let_go(agent, grant)?;
                self.landed(flight.who, landed)
            }
            Cargo::Group(held, left) => {
                let landed = self.group_access(agent, &held)?;
                if left <= 1 || landed == Landed::BusError {
                    self.let_go(agent, grant)?;
                    return self.landed(flight.who, landed);
                }
                let cargo = Cargo::Group(held, left - 1);
                self.flights.insert(id, Flight { cargo, ..flight });
                self.later(Work::Fly(id));
                Ok(())
            }
        }
    }

    /// A card behind rings no longer holds what an access went through.
    fn let_go(
        &mut self,
        agent: AgentId,
        grant: Option<farside_card::AccessId>,
    ) -> Result<(), Violation> {
        match (agent.card(), grant) {
            (Some(card), Some(grant)) => self.end_grant(card, grant),
            _ => Ok(()),
        }
    }

    /// One access of a kernel to one of the pages that it holds.
    fn group_access(
        &mut self,
        agent: AgentId,
        held: &[(PageNo, Access, Translation)],
    ) -> Result<Landed, Violation> {
        let Some((page, access, translation)) = self.rng.pick(held) else {
            return Ok(Landed::Well);
        };
        let op = self.random_op(access);
        let word = self.rng.below(crate::WORDS as u64) as usize;
        self.perform(agent, WordAccess { page, word, op }, translation)
    }

    /// An operation that such rights allow.
    pub(crate) fn random_op(&mut self, access: Access) -> WordOp {
        match (access, self.rng.below(3)) {
            (Access::Read, _) | (_, 0) => WordOp::Load,
            (_, 1) => WordOp::Store,
            _ => WordOp::Increment,
        }
    }

    /// Who waited for the access goes on.
    fn landed(&mut self, who: Who, landed: Landed) -> Result<(), Violation> {
        match who {
            Who::Thread(thread) => self.thread_free(thread),
            Who::Job(job) => {
                let job = self.job_mut(job);
                job.flights = job.flights.saturating_sub(1);
                let card = job.card;
                if landed == Landed::BusError {
                    job.failed.get_or_insert(JobFailure::BusError);
                }
                self.wake_card(card);
            }
        }
        Ok(())
    }

    /// Performs an access through the translation that it took.
    pub(crate) fn perform(
        &mut self,
        agent: AgentId,
        access: WordAccess,
        translation: Translation,
    ) -> Result<Landed, Violation> {
        let memory = self.memory(translation.memory);
        if memory.generation != translation.generation || memory.lost {
            return Ok(Landed::BusError);
        }
        let given_up =
            |card: CardId| self.cards[usize::from(card.0)].given_up.contains(&access.page);
        if agent.card().is_some_and(given_up) {
            self.scribble(access, translation);
            return Ok(Landed::Well);
        }
        let name = describe(agent, access, translation);
        self.check_frame(&name, access, translation)?;
        self.check_facts(&name, agent, access)?;
        self.check_transfers(&name, access, translation)?;
        if access.op.access().is_write() {
            self.check_exclusive(&name, agent, access.page, translation)?;
        }
        self.read_and_write(&name, access, translation)?;
        Ok(Landed::Well)
    }

    /// A card that did not drain reads and writes frames that must be out of use.
    fn scribble(&mut self, access: WordAccess, translation: Translation) {
        if access.op.access().is_write() {
            if let Some(frame) = self.memory_mut(translation.memory).frame_mut(translation.frame) {
                frame.content[access.word] = GARBAGE;
            }
        }
    }

    /// The frame must have been given to this page.
    fn check_frame(
        &self,
        name: &str,
        access: WordAccess,
        translation: Translation,
    ) -> Result<(), Violation> {
        let frame = self.memory(translation.memory).frame(translation.frame);
        let holder = frame.and_then(|frame| frame.page);
        ensure!(
            holder == Some(access.page),
            "{name}: the frame is not this page's any more, it belongs to {holder:?}"
        );
        Ok(())
    }

    /// The page must be allocated, and writable for cards if a card writes.
    fn check_facts(&self, name: &str, agent: AgentId, access: WordAccess) -> Result<(), Violation> {
        let Some(facts) = self.facts.get(access.page) else {
            return Err(Violation(format!("{name}: a page outside the arena was mapped")));
        };
        ensure!(!facts.freed || self.is_own(agent, access.page), "{name}: the page was freed");
        ensure!(facts.live || facts.dead_at > 0, "{name}: the page was never allocated");
        ensure!(
            agent.is_cpu() || !access.op.access().is_write() || !facts.cards_read_only,
            "{name}: cards may only read this page"
        );
        Ok(())
    }

    /// Nobody reads or writes the destination of a copy under way, nobody writes its source.
    fn check_transfers(
        &self,
        name: &str,
        access: WordAccess,
        translation: Translation,
    ) -> Result<(), Violation> {
        let write = access.op.access().is_write();
        for transfer in self.transfers.values().filter(|transfer| !self.is_outdated(transfer)) {
            let (from, to) = transfer.ends();
            let silent = matches!(transfer.fate, Fate::Silent);
            let id = transfer.command.header().id;
            for run in transfer.command.runs() {
                let at = |place: Option<Place>, first: farside_types::FrameNo| {
                    place == Some(Place::Memory(translation.memory))
                        && translation.frame.0 >= first.0
                        && translation.frame.0 - first.0 < run.count
                };
                ensure!(!at(to, run.dst), "{name}: {id} still writes this frame");
                ensure!(
                    !write || silent || !at(from, run.src),
                    "{name}: a write to the source of {id}, which is under way: it may be lost"
                );
            }
        }
        Ok(())
    }

    /// Driver rule 2: who writes is the only one with a translation, or all lead to one frame.
    fn check_exclusive(
        &self,
        name: &str,
        agent: AgentId,
        page: PageNo,
        mine: Translation,
    ) -> Result<(), Violation> {
        for other in (0..self.memories.len()).map(|i| AgentId(i as u8)) {
            if other == agent {
                continue;
            }
            let harmless = other
                .card()
                .map(|card| &self.cards[usize::from(card.0)])
                .is_some_and(|card| card.stale_is_harmless(page) || card.given_up.contains(&page));
            let Some(theirs) = self.translation(other, page).filter(|_| !harmless) else {
                continue;
            };
            ensure!(
                mine.same_place(&theirs) || self.is_dangling(&theirs),
                "{name}: {other} still has the page mapped at {} {:?}",
                theirs.memory,
                theirs.frame
            );
        }
        for flight in self.flights.values() {
            let Some(theirs) = flight.translation(page) else { continue };
            let given_up = flight
                .agent
                .card()
                .is_some_and(|card| self.cards[usize::from(card.0)].given_up.contains(&page));
            ensure!(
                given_up || mine.same_place(&theirs) || self.is_dangling(&theirs),
                "{name}: an access of {} to {} {:?} is in flight",
                flight.agent,
                theirs.memory,
                theirs.frame
            );
        }
        Ok(())
    }

    /// Whether the memory that it leads to is gone.
    pub(crate) fn is_dangling(&self, translation: &Translation) -> bool {
        let memory = self.memory(translation.memory);
        memory.lost || memory.generation != translation.generation
    }

    /// Reads the word, compares it with the flat memory, and writes both.
    fn read_and_write(
        &mut self,
        name: &str,
        access: WordAccess,
        translation: Translation,
    ) -> Result<(), Violation> {
        let WordAccess { page, word, op } = access;
        let Some(frame) = self.memory_mut(translation.memory).frame_mut(translation.frame) else {
            return Err(Violation(format!("{name}: there is no such frame")));
        };
        let seen = frame.content[word];
        let expected = self.reference.page(page)[word];
        let live = self.facts.get(page).is_some_and(|facts| facts.live);
        ensure!(
            seen == expected || !live || op == WordOp::Store,
            "{name}: holds {seen:#x}, but {expected:#x} was written last"
        );
        let new = match op {
            WordOp::Load => None,
            WordOp::Store => Some(self.number() << 16),
            WordOp::Increment => Some(seen.wrapping_add(1)),
        };
        self.say('a', format!("{name} = {seen:#x} -> {new:x?}"));
        if let Some(value) = new {
            let frame = self.memory_mut(translation.memory).frame_mut(translation.frame);
            frame.expect("it was there a moment ago").content[word] = value;
            self.reference.write(page, word, value);
        }
        Ok(())
    }

    /// Performs at once what the CPU has in flight on a page (a shootdown waits for it).
    pub(crate) fn hurry_cpu(&mut self, page: PageNo, writes_only: bool) -> Result<(), Violation> {
        let on_page = |flight: &Flight| {
            flight.agent.is_cpu()
                && flight.translation(page).is_some()
                && (!writes_only || flight.writes(page))
        };
        let ids: Vec<u64> =
            self.flights.iter().filter(|(_, flight)| on_page(flight)).map(|(&id, _)| id).collect();
        ids.into_iter().try_for_each(|id| self.arrive(id))
    }
}

fn describe(agent: AgentId, access: WordAccess, translation: Translation) -> String {
    format!(
        "{agent} {:?} {:#x}.{} at {}:{}",
        access.op, access.page.0, access.word, translation.memory, translation.frame.0
    )
}

/// Whether one of the runs has a page.
pub(crate) fn touches(runs: &[Run], page: PageNo) -> bool {
    runs.iter().any(|run| run.pages().contains(page))
}
