//! Agents: threads of the program and jobs on cards, and the accesses that they make.

use farside_svm::{CardFault, HostOp, Need};
use farside_types::{Access, AgentId, CardId, FaultId, GROUP_PAGES, JobId, PageNo, PageRange};

use crate::access::{Fault, Who, WordAccess};
use crate::cpu::Thread;
use crate::job::{Job, JobFailure, JobState, JobStep};
use crate::machine::{Machine, Parcel, Work, group};
use crate::violation::Violation;

/// Remote accesses to a group after which the card's counter reports it.
const COUNTER_THRESHOLD: u32 = 8;

impl Machine {
    pub(crate) fn job_mut(&mut self, id: JobId) -> &mut Job {
        self.jobs.get_mut(&id).expect("jobs are never removed")
    }

    /// Sees to it that threads look for work.
    pub(crate) fn wake_cpu(&mut self) {
        if !self.cpu.tick_scheduled {
            self.cpu.tick_scheduled = true;
            self.later(Work::CpuTick);
        }
    }

    /// Sees to it that the jobs of a card look for work.
    pub(crate) fn wake_card(&mut self, card: CardId) {
        let card_state = self.card_mut(card);
        if !card_state.tick_scheduled && card_state.running > 0 {
            card_state.tick_scheduled = true;
            self.later(Work::CardTick(card));
        }
    }

    /// Threads begin accesses: those asked for, or any.
    pub(crate) fn cpu_tick(&mut self) -> Result<(), Violation> {
        self.cpu.tick_scheduled = false;
        while let Some(thread) = self.cpu.threads.iter().position(|t| *t == Thread::Idle) {
            let wanted = self.cpu.queue.pop_front();
            let access =
                wanted.or_else(|| if self.random_agents { self.random_access() } else { None });
            let Some(access) = access else { break };
            self.thread_access(thread, access)?;
            if wanted.is_none() {
                break;
            }
        }
        if self.random_agents {
            self.wake_cpu();
        }
        Ok(())
    }

    /// An access to anything.
    pub(crate) fn random_access(&mut self) -> Option<WordAccess> {
        let page = self.random_page()?;
        let word = self.rng.below(crate::WORDS as u64) as usize;
        let kind = if self.rng.chance(500) { Access::Read } else { Access::Write };
        let op = self.random_op(kind);
        Some(WordAccess { page, word, op })
    }

    /// A thread makes an access: a hit, an error, or a fault.
    fn thread_access(&mut self, thread: usize, access: WordAccess) -> Result<(), Violation> {
        let WordAccess { page, op, .. } = access;
        if self.cpu.poisoned.contains(&page) {
            return self.thread_error(thread, page, self.stamp);
        }
        if let Some(translation) = self.hit(AgentId::CPU, page, op.access()) {
            self.cpu.threads[thread] = Thread::Flying;
            return self.take_off(AgentId::CPU, Who::Thread(thread), access, translation);
        }
        self.note_wanted(AgentId::CPU, page);
        self.cpu.threads[thread] = Thread::Blocked(access, self.stamp);
        self.say('f', format!("cpu {:?} {:#x}", op, page.0));
        self.deliver(Parcel::HostFault(page, op.access()));
        Ok(())
    }

    /// A thread's access ends with an error, which must have a reason.
    fn thread_error(&mut self, thread: usize, page: PageNo, since: u64) -> Result<(), Violation> {
        self.judge_poisoned_access(page, since)?;
        self.say('a', format!("cpu {:#x} ends with an error", page.0));
        self.cpu.errors.push(page);
        self.thread_free(thread);
        Ok(())
    }

    /// Threads that wait for a page end, with the program that they are of.
    pub(crate) fn end_threads(&mut self, page: PageNo) {
        for thread in 0..self.cpu.threads.len() {
            match self.cpu.threads[thread] {
                Thread::Blocked(access, _) | Thread::Woken(access, _) if access.page == page => {
                    self.say('a', format!("cpu {:#x} ends with its program", page.0));
                    self.cpu.errors.push(page);
                    self.thread_free(thread);
                }
                _ => {}
            }
        }
    }

    /// A thread has nothing to do.
    pub(crate) fn thread_free(&mut self, thread: usize) {
        self.cpu.threads[thread] = Thread::Idle;
        if !self.cpu.queue.is_empty() {
            self.wake_cpu();
        }
    }

    /// Threads that wait for a page try again, at once: the wake-up itself takes no time here.
    pub(crate) fn wake_threads(&mut self, page: PageNo) {
        for thread in 0..self.cpu.threads.len() {
            match self.cpu.threads[thread] {
                Thread::Blocked(access, since) if access.page == page => {
                    self.cpu.threads[thread] = Thread::Woken(access, since);
                    let now = self.now;
                    self.agenda.at(now, Work::Retry(thread));
                }
                _ => {}
            }
        }
    }

    /// A woken thread makes its access again.
    pub(crate) fn retry(&mut self, thread: usize) -> Result<(), Violation> {
        let Thread::Woken(access, since) = self.cpu.threads[thread] else {
            return Ok(());
        };
        if self.cpu.poisoned.contains(&access.page) {
            return self.thread_error(thread, access.page, since);
        }
        self.thread_access(thread, access)
    }

    /// Jobs of a card go on, and a translation may fall out of the TLB.
    pub(crate) fn card_tick(&mut self, card: CardId) -> Result<(), Violation> {
        self.card_mut(card).tick_scheduled = false;
        self.evict_translation(card);
        let running: Vec<JobId> = self
            .jobs
            .values()
            .filter(|job| job.card == card && job.state == JobState::Running)
            .map(|job| job.id)
            .collect();
        let mut busy = false;
        for id in running {
            busy |= self.advance(id)?;
        }
        if busy {
            self.wake_card(card);
        }
        Ok(())
    }

    /// A random translation is forgotten, while no command is on its way that relies on it.
    fn evict_translation(&mut self, card: CardId) {
        let chance = self.hostility.tlb_eviction;
        let state = &self.cards[usize::from(card.0)];
        // The tables of a card behind rings are so small that it forgets by itself.
        if state.port.is_some() || !state.ring.is_empty() || !self.rng.chance(chance) {
            return;
        }
        let pages: Vec<PageNo> = self.cards[usize::from(card.0)].tlb.keys().copied().collect();
        if let Some(page) = self.rng.pick(&pages) {
            self.say('!', format!("{card} forgets {:#x}", page.0));
            self.card_mut(card).tlb.remove(&page);
        }
    }

    /// Lets a job begin its next step, or ends it; true if it wants another tick.
    fn advance(&mut self, id: JobId) -> Result<bool, Violation> {
        let job = self.job_mut(id);
        let at_work = job.flights + job.waits;
        if job.failed.is_some() {
            if job.flights == 0 {
                self.finish_job(id, None);
            }
            return Ok(false);
        }
        let Some(next) = job.script.steps.front().cloned() else {
            if at_work == 0 && !job.script.lingers {
                self.finish_job(id, None);
            }
            return Ok(false);
        };
        let (width, card) = (job.script.width, job.card);
        let on_port = self.cards[usize::from(card.0)].port.is_some();
        let room = match next {
            JobStep::Access(_) if !on_port => at_work < width,
            JobStep::Access(_) | JobStep::Group(_) => at_work == 0,
        };
        if room {
            self.job_mut(id).script.steps.pop_front();
            match next {
                step if on_port => self.port_step(card, id, step)?,
                JobStep::Access(access) => self.job_access(card, id, access)?,
                JobStep::Group(ranges) => self.job_group(card, id, &ranges),
            }
        }
        Ok(room)
    }

    fn job_access(
        &mut self,
        card: CardId,
        job: JobId,
        access: WordAccess,
    ) -> Result<(), Violation> {
        let agent = card.agent();
        let kind = access.op.access();
        if let Some(translation) = self.hit(agent, access.page, kind) {
            if translation.memory != agent.home() {
                self.count_remote(card, access.page);
            }
            return self.take_off(agent, Who::Job(job), access, translation);
        }
        self.raise(card, job, Need::Page(access.page, kind), Some(access));
        Ok(())
    }

    fn job_group(&mut self, card: CardId, job: JobId, ranges: &[(PageRange, Access)]) {
        let agent = card.agent();
        let pages = || {
            let each = |&(range, access): &(PageRange, Access)| {
                range.pages().map(move |page| (page, access)).collect::<Vec<_>>()
            };
            ranges.iter().flat_map(each)
        };
        let held: Vec<_> = pages()
            .filter_map(|(page, access)| Some((page, access, self.hit(agent, page, access)?)))
            .collect();
        if held.len() == pages().count() {
            return self.hold_group(card, job, held);
        }
        self.raise(card, job, Need::Group(group(ranges)), None);
    }

    /// An access of a job faults, whatever the card's tables say.
    pub(crate) fn raise_word(&mut self, card: CardId, job: JobId, access: WordAccess) {
        self.raise(card, job, Need::Page(access.page, access.op.access()), Some(access));
    }

    /// An access of a card, or a group, waits in a fault.
    pub(crate) fn raise(
        &mut self,
        card: CardId,
        job: JobId,
        need: Need,
        access: Option<WordAccess>,
    ) {
        // Cards behind rings number their faults themselves, from 0 on.
        let id = FaultId(self.number() | 1 << 63);
        self.say('f', format!("{card} {job} {id} {need:?}"));
        let raised = self.stamp;
        let fault = Fault {
            id,
            card,
            job,
            need,
            access,
            raised,
            delivered: false,
            answered: false,
            judged: None,
            void: false,
        };
        self.faults.insert(id, fault);
        self.want_pages(card, id);
        self.job_mut(job).waits += 1;
        let state = self.card_mut(card);
        state.fault_buffer.push(id);
        if !state.flush_scheduled {
            state.flush_scheduled = true;
            self.later(Work::Flush(card));
        }
    }

    /// A card wants the pages of a fault.
    pub(crate) fn want_pages(&mut self, card: CardId, id: FaultId) {
        let pages = self.faults.get(&id).map(Fault::pages).unwrap_or_default();
        for (page, _) in pages {
            self.note_wanted(card.agent(), page);
        }
    }

    /// An agent wants a page: if it lives elsewhere a pin may not hold any more.
    fn note_wanted(&mut self, agent: AgentId, page: PageNo) {
        let stamp = self.stamp;
        self.facts.want(page, agent, stamp);
    }

    /// Dates all accesses that wait for pages: they still want them.
    pub(crate) fn date_waiting(&mut self) {
        let stamp = self.stamp;
        for fault in self.faults.values() {
            for (page, _) in fault.pages() {
                self.facts.want(page, fault.card.agent(), stamp);
            }
        }
        for &page in &self.cpu.told {
            self.facts.want(page, AgentId::CPU, stamp);
        }
        for thread in &self.cpu.threads {
            if let Thread::Blocked(access, _) | Thread::Woken(access, _) = thread {
                self.facts.want(access.page, AgentId::CPU, stamp);
            }
        }
    }

    /// The driver is told of a fault of the host.
    pub(crate) fn note_told(&mut self, page: PageNo) {
        self.note_wanted(AgentId::CPU, page);
        self.cpu.told.insert(page);
    }

    /// The driver answers faults of the host.
    pub(crate) fn forget_told(&mut self, op: &HostOp) {
        if let HostOp::Map { runs, .. } | HostOp::Poison { runs } = op {
            for page in runs.iter().flat_map(|run| run.pages().pages()) {
                self.cpu.told.remove(&page);
            }
        }
    }

    /// Sends the buffered faults, as one batch.
    pub(crate) fn flush_faults(&mut self, card: CardId) {
        let state = self.card_mut(card);
        state.flush_scheduled = false;
        let ids = std::mem::take(&mut state.fault_buffer);
        let batch: Vec<CardFault> = ids
            .into_iter()
            .filter_map(|id| self.faults.get(&id))
            .map(|fault| CardFault { id: fault.id, need: fault.need.clone() })
            .collect();
        if !batch.is_empty() {
            let now = self.now;
            self.agenda.at(now, Work::Deliver(Parcel::CardFaults(card, batch)));
        }
    }

    /// A remote access is counted; at the threshold the driver hears of the group.
    fn count_remote(&mut self, card: CardId, page: PageNo) {
        let index = page.0 / GROUP_PAGES;
        let count = self.card_mut(card).counters.entry(index).or_default();
        *count += 1;
        if *count >= COUNTER_THRESHOLD {
            let counted = std::mem::take(count);
            let pages = PageRange::new(PageNo(index * GROUP_PAGES), GROUP_PAGES);
            self.deliver(Parcel::CounterNotice(card, pages, counted));
        }
    }

    /// A job ends: its faults are void, the driver is told.
    pub(crate) fn finish_job(&mut self, id: JobId, failure: Option<JobFailure>) {
        let job = self.job_mut(id);
        let (card, was_running) = (job.card, job.state == JobState::Running);
        job.state = JobState::Done;
        job.waits = 0;
        job.flights = 0;
        if job.failed.is_none() {
            job.failed = failure;
        }
        let outcome = job.failed;
        if was_running {
            self.card_mut(card).running -= 1;
        }
        for fault in self.faults.values_mut().filter(|fault| fault.job == id) {
            fault.void = true;
        }
        self.say('e', format!("{id} ended on {card}: {outcome:?}"));
        if was_running && self.end_on_port(card, id) {
            return; // the card will say so
        }
        self.deliver(Parcel::JobDone(id));
    }
}
