//! Losses: stalled rings, lost and reset cards, counters that report nonsense.

use farside_types::{CardId, GROUP_PAGES, MemoryId, PageNo, PageRange, Rights};

use crate::job::{JobFailure, JobState};
use crate::machine::{Machine, Parcel, Work};
use crate::rings::GONE;
use crate::violation::Violation;
use farside_svm::Executor;

impl Machine {
    /// The machine thinks of something nasty.
    /// Now and then a direct link from a card goes, or comes back, whatever is under way on it.
    fn change_link(&mut self, from: CardId) {
        let linked = self.capabilities.links[usize::from(from.0)];
        for to in linked.iter().filter_map(MemoryId::card) {
            let works = self.rng.chance(700);
            self.deliver(Parcel::Link(from, to, works));
        }
    }

    pub(crate) fn hostile_tick(&mut self) {
        let index = self.rng.below(self.cards.len() as u64) as u8;
        let card = CardId(index);
        let knobs = self.hostility.clone();
        let healthy = {
            let state = self.card_mut(card);
            !state.lost && !state.stalled && !state.suspect
        };
        if healthy && self.rng.chance(knobs.stalled_ring) {
            self.stall(card);
        }
        let survivors = self.cards.iter().filter(|card| !card.lost).count();
        if healthy && survivors > 1 && self.rng.chance(knobs.card_lost) {
            self.lose(card);
            self.deliver(Parcel::CardLost(card));
        }
        if healthy && self.rng.chance(knobs.card_reset) {
            let now = self.now;
            self.agenda.at(now, Work::Reset(card));
        }
        let nasty = knobs.spurious_notice > 0 && self.cards[usize::from(index)].port.is_some();
        if healthy && nasty && self.rng.chance(100) {
            self.abort_a_job(card);
        }
        self.change_link(card);
        if healthy && self.rng.chance(knobs.spurious_notice) {
            let group =
                self.arena.start.0 + self.rng.below(self.arena.count) / GROUP_PAGES * GROUP_PAGES;
            let pages = PageRange::new(PageNo(group), GROUP_PAGES);
            self.deliver(Parcel::CounterNotice(card, pages, 1));
        }
    }

    /// A ring stands still until the card is reset.
    pub(crate) fn stall(&mut self, card: CardId) {
        self.say('!', format!("the ring of {card} stalls"));
        self.facts.last_failure = self.stamp;
        let state = self.card_mut(card);
        state.stalled = true;
        state.doubtful = true;
        state.deaf = true;
        if state.behind_rings {
            self.silence_port(card);
        }
    }

    /// The driver called a card that stands still suspect. Pages that the card could write when it
    /// was told to let them go may be lost, for it may write them still. Those that the driver says
    /// are lost, and those that the card can only read, are taken from it all the same: from now
    /// on its accesses to them are nobody's.
    ///
    /// A ring that stood still and goes on again may let pages go just before the driver's patience
    /// with it ends. Its answer is late all the same, and what the card could write may be lost. What
    /// it has not come to in its ring by then it keeps a little longer, as one that stands still does.
    pub(crate) fn give_up(
        &mut self,
        card: CardId,
        pages: PageRange,
        is_lost: impl Fn(PageNo) -> bool,
    ) {
        let state = &self.cards[usize::from(card.0)];
        let (stalled, went_on) = (state.stalled, !state.stalled && state.deaf);
        let late: Vec<PageNo> = pages.pages().filter(|page| state.late.contains(page)).collect();
        let (read, written) = self.told_to_let_go(card);
        self.may_lose(if stalled { &written } else { &late });
        if stalled || went_on {
            let taken = written.into_iter().filter(|&page| is_lost(page)).chain(read);
            self.card_mut(card).given_up.extend(taken);
        }
    }

    /// A ring that stood still goes on again.
    pub(crate) fn go_on(&mut self, card: CardId) {
        let (_, written) = self.told_to_let_go(card);
        let state = self.card_mut(card);
        state.late.extend(written);
        state.stalled = false;
        self.kick_ring(card);
        self.unstall_port(card);
    }

    /// The pages of the drains in a card's ring: those that it can only read, and the others.
    fn told_to_let_go(&self, card: CardId) -> (Vec<PageNo>, Vec<PageNo>) {
        let state = &self.cards[usize::from(card.0)];
        let drains = state.ring.iter().filter(|queued| queued.step.op.drains());
        let pages = drains
            .flat_map(|queued| queued.step.op.runs().iter().flat_map(|run| run.pages().pages()));
        // A translation that fell out of the TLB is one that the driver cannot know of.
        // One that waits in the ring is one that the card may have taken, for all that the driver knows.
        let only_reads = |page: &PageNo| state.rights(*page) == Some(Rights::Read);
        pages.partition(only_reads)
    }

    fn may_lose(&mut self, pages: &[PageNo]) {
        for &page in pages {
            self.facts.each(PageRange::page(page), |facts| facts.lost = true);
        }
    }

    /// A card is gone with its memory.
    pub(crate) fn lose(&mut self, card: CardId) {
        self.say('!', format!("{card} is lost"));
        self.unplug(card);
        self.wipe(card, true);
        self.card_mut(card).lost = true;
    }

    /// A card starts anew: nothing in flight, no translation, nothing in its memory.
    pub(crate) fn reset(&mut self, card: CardId) -> Result<(), Violation> {
        self.say('!', format!("{card} is reset"));
        let port = self.unplug(card);
        self.wipe(card, false);
        let state = self.card_mut(card);
        (state.stalled, state.suspect, state.doubtful) = (false, false, false);
        (state.deaf, state.halted) = (false, false);
        state.late.clear();
        state.recovering = true;
        port.map_or(Ok(()), |port| self.plug_in_again(card, *port))
    }

    /// Whatever was on the card, or on its way through it, is no more.
    fn wipe(&mut self, card: CardId, lost: bool) {
        let memory = card.memory();
        self.facts.last_failure = self.stamp;
        let held: Vec<PageNo> =
            self.memory(memory).frames.iter().filter_map(|frame| frame.page).collect();
        for page in held {
            self.facts.each(PageRange::page(page), |facts| facts.lost = true);
        }
        self.memory_mut(memory).wipe(lost);
        self.flights.retain(|_, flight| flight.agent != card.agent());
        self.end_jobs(card);
        let gone: Vec<_> =
            self.faults.values().filter(|fault| fault.card == card).map(|fault| fault.id).collect();
        for id in gone {
            self.faults.remove(&id);
            self.forgotten.insert(id);
        }
        self.drop_commands(card);
    }

    fn end_jobs(&mut self, card: CardId) {
        let ids: Vec<_> = self
            .jobs
            .values()
            .filter(|job| job.card == card)
            .filter(|job| matches!(job.state, JobState::Issued | JobState::Running))
            .map(|job| job.id)
            .collect();
        for id in ids {
            self.finish_job(id, Some(JobFailure::CardGone));
        }
    }

    /// Every command that the card owes an answer to is answered with "gone".
    fn drop_commands(&mut self, card: CardId) {
        let state = self.card_mut(card);
        state.tlb.clear();
        state.written.clear();
        state.given_up.clear();
        state.not_mapped.clear();
        state.answers_refused = false;
        state.fault_buffer.clear();
        state.counters.clear();
        state.running = 0;
        state.head_begun = false;
        let behind_rings = state.behind_rings;
        let ring = std::mem::take(&mut state.ring);
        if behind_rings {
            // Its connection is gone, and nobody answers.
            let dma = Executor::CardDma(card);
            self.transfers.retain(|_, transfer| transfer.command.executor() != dma);
            return;
        }
        for queued in ring {
            let at = self.soon();
            self.complete(&queued.step.header, at, Err(GONE));
        }
        let silent: Vec<_> = self
            .transfers
            .values()
            .filter(|transfer| transfer.fate == crate::Fate::Silent)
            .filter(|transfer| uses(&transfer.command.executor(), card))
            .map(|transfer| *transfer.command.header())
            .collect();
        for header in silent {
            self.transfers.remove(&header.id);
            let at = self.soon();
            self.complete(&header, at, Err(GONE));
        }
    }
}

fn uses(executor: &Executor, card: CardId) -> bool {
    match *executor {
        Executor::HostCpu => false,
        Executor::Card(c) | Executor::CardDma(c) => c == card,
        Executor::Link(a, b) => a == card || b == card,
    }
}
