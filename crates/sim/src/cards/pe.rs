//! The processing element: issues as many accesses as may be in flight, and goes on when they are
//! over. An access is in flight from its translation until its bytes are there, and holds nothing
//! while it stands in a fault, so that cards which fight over pages never wait for each other.

use farside_types::{Access, CardId, JobId, PageNo, PeId, Span};

use super::CardsError;
use super::machine::{CardMachine, SimEvent};
use super::workload::Work;

/// A processing element with a job.
#[derive(Debug)]
pub(super) struct Pe {
    job: JobId,
    work: Work,
    /// Pages that are done.
    done: u64,
    /// Pages that are accessed together.
    window: Vec<PageNo>,
    stage: Access,
    /// How many of them have been issued, and how many accesses are over.
    issued: usize,
    returned: usize,
    /// The next issue is in the queue of events.
    scheduled: bool,
}

impl Pe {
    /// The job it runs.
    pub(super) fn job(&self) -> JobId {
        self.job
    }
}

impl CardMachine {
    /// Starts a job.
    pub(super) fn start(&mut self, card: CardId, job: JobId) -> Result<(), CardsError> {
        let Some(state) = self.jobs.get(&job) else {
            return Err(self.broken(format!("{job} is launched and nobody asked for it")));
        };
        let work = state.work.clone();
        self.open_ports(card, job)?;
        self.cards[usize::from(card.0)].pe = Some(Pe {
            job,
            work,
            done: 0,
            window: Vec::new(),
            stage: Access::Read,
            issued: 0,
            returned: 0,
            scheduled: false,
        });
        self.next_window(card)
    }

    /// Begins with the next pages, or ends the job.
    fn next_window(&mut self, card: CardId) -> Result<(), CardsError> {
        let most = self.spec.mmu.reads_in_flight;
        let Some(pe) = &mut self.cards[usize::from(card.0)].pe else { return Ok(()) };
        pe.window = pe.work.window(pe.done, most);
        pe.done += pe.window.len() as u64;
        if pe.window.is_empty() {
            let job = pe.job;
            self.cards[usize::from(card.0)].pe = None;
            self.close_ports(card, job)?;
            self.queue.push(self.queue.now(), SimEvent::JobEnd { job });
            return Ok(());
        }
        self.begin_stage(card, Access::Read);
        Ok(())
    }

    fn begin_stage(&mut self, card: CardId, stage: Access) {
        if let Some(pe) = &mut self.cards[usize::from(card.0)].pe {
            (pe.stage, pe.issued, pe.returned) = (stage, 0, 0);
        }
        self.schedule(card, Span::ZERO);
    }

    /// Has the next access issued after `span`, if there is one and one more may be in flight.
    fn schedule(&mut self, card: CardId, span: Span) {
        let most = match self.cards[usize::from(card.0)].pe.as_ref().map(|pe| pe.stage) {
            Some(Access::Write) => self.spec.mmu.writes_in_flight,
            _ => self.spec.mmu.reads_in_flight,
        };
        let Some(pe) = &mut self.cards[usize::from(card.0)].pe else { return };
        let room = pe.issued - pe.returned < most as usize;
        if room && !pe.scheduled && pe.issued < pe.window.len() {
            pe.scheduled = true;
            self.queue.push(self.queue.now() + span, SimEvent::Issue { card });
        }
    }

    pub(super) fn issue(&mut self, card: CardId) -> Result<(), CardsError> {
        let Some(pe) = &mut self.cards[usize::from(card.0)].pe else { return Ok(()) };
        pe.scheduled = false;
        let (page, stage) = (pe.window[pe.issued], pe.stage);
        pe.issued += 1;
        let lookup = self.access(card, page, stage)?;
        self.schedule(card, lookup);
        Ok(())
    }

    /// The access at a port is over.
    pub(super) fn access_end(&mut self, card: CardId, port: PeId) -> Result<(), CardsError> {
        let (page, access, at) = self.end(card, port)?;
        self.check(page, access, at.memory, at.frame)?;
        self.returned(card)
    }

    fn returned(&mut self, card: CardId) -> Result<(), CardsError> {
        let Some(pe) = &mut self.cards[usize::from(card.0)].pe else { return Ok(()) };
        pe.returned += 1;
        if pe.returned < pe.window.len() {
            self.schedule(card, Span::ZERO);
            return Ok(());
        }
        if pe.stage == Access::Read && pe.work.writes() {
            let pages = pe.window.len() as u64;
            let end = self.queue.now() + Span::from_nanos(self.spec.pe.page_ns * pages);
            self.queue.push(end, SimEvent::Computed { card });
            Ok(())
        } else {
            self.next_window(card)
        }
    }

    pub(super) fn computed(&mut self, card: CardId) -> Result<(), CardsError> {
        self.begin_stage(card, Access::Write);
        Ok(())
    }
}
