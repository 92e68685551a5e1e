//! Launches: kernels start in the order of their stream, and a card with one is running.

use std::collections::{BTreeMap, HashMap, VecDeque};

use farside_types::{AgentSet, CardId, JobId, PageNo, PageRange, StreamId, Time};
use serde::{Deserialize, Serialize};

use crate::api::command::RingOp;
use crate::api::journal::Note;
use crate::api::order::Task;
use crate::mutation::Mutation;
use crate::{Driver, Reply};

/// A job that has not ended.
#[derive(Serialize, Deserialize)]
struct Launched {
    /// Where it runs; nowhere, if it is one in parts, which are jobs of their own.
    on: Option<(CardId, StreamId)>,
    started: bool,
    /// It will not end well.
    failed: bool,
    /// What it may write.
    writes: Box<[PageRange]>,
}

#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Launches {
    jobs: HashMap<JobId, Launched>,
    /// What those that have started may write. They are few, and looked through at faults.
    writing: Vec<(CardId, JobId, PageRange)>,
    /// Jobs that were given up and still hold memory.
    hung: BTreeMap<JobId, CardId>,
    /// Per stream: the job that runs, then those that wait for it.
    streams: BTreeMap<StreamId, VecDeque<JobId>>,
    /// When the last of those that ran ended: what runs later may use memory in another way.
    pub(crate) quiet_at: Time,
}

impl Launches {
    /// Whether a job has not ended.
    pub(crate) fn knows(&self, job: JobId) -> bool {
        self.jobs.contains_key(&job)
    }

    /// Whether a job that has not ended will not end well.
    pub(crate) fn has_failed(&self, job: JobId) -> bool {
        self.jobs.get(&job).is_some_and(|job| job.failed)
    }

    /// Whether a job that runs on a card may write a page.
    pub(crate) fn may_write(&self, card: CardId, page: PageNo) -> bool {
        self.writing.iter().any(|&(on, _, range)| on == card && range.contains(page))
    }

    /// Whether nobody of its stream is before it.
    fn is_first(&self, job: JobId, stream: StreamId) -> bool {
        self.streams.get(&stream).and_then(|queue| queue.front()) == Some(&job)
    }
}

impl Driver {
    pub(crate) fn launch(
        &mut self,
        job: JobId,
        (card, stream): (CardId, StreamId),
        after: &[Task],
        writes: &[PageRange],
    ) {
        if !self.is_usable(card.memory()) || self.distrusted.contains(card.memory()) {
            self.replies.push_back(Reply::JobDropped { job });
            return;
        }
        if let Err(because) = self.order(Task::Job(job), after) {
            self.replies.push_back(Reply::JobNotRun { job, because });
            return;
        }
        let on = Some((card, stream));
        let launched = Launched { on, started: false, failed: false, writes: writes.into() };
        self.launches.jobs.insert(job, launched);
        self.launches.streams.entry(stream).or_default().push_back(job);
        self.start_in_turn(job);
    }

    /// A launch in parts: each of these is told of as a launch of its own.
    pub(crate) fn launch_parts(&mut self, job: JobId) {
        let launched = Launched { on: None, started: true, failed: false, writes: Box::default() };
        self.launches.jobs.insert(job, launched);
    }

    /// Starts a job that is the first of its stream and waits for nobody else.
    pub(crate) fn start_in_turn(&mut self, job: JobId) {
        let Some(&Launched { on: Some((card, stream)), started: false, .. }) =
            self.launches.jobs.get(&job)
        else {
            return;
        };
        let turn =
            self.launches.is_first(job, stream) || self.mutated.on(Mutation::IgnoreStreamOrder);
        let held = self.orders.holds(Task::Job(job)) && !self.mutated.on(Mutation::IgnoreOrder);
        if !turn || held {
            return;
        }
        if let Some(launched) = self.launches.jobs.get_mut(&job) {
            launched.started = true;
            let writes = launched.writes.iter().map(|&range| (card, job, range));
            self.launches.writing.extend(writes);
        }
        self.cards[card.0 as usize].running += 1;
        self.note(Note::Begin { job, card });
        self.issue_detached(card, RingOp::Launch { job });
    }

    pub(crate) fn job_hung(&mut self, job: JobId) {
        if let Some(&Launched { on: Some((card, _)), .. }) = self.launches.jobs.get(&job) {
            self.launches.hung.insert(job, card);
        }
        self.job_failed(job);
    }

    /// A job will not end well: who waits for that waits no longer.
    pub(crate) fn job_failed(&mut self, job: JobId) {
        if let Some(launched) = self.launches.jobs.get_mut(&job) {
            launched.failed = true;
            self.task_ended(Task::Job(job), false);
        }
    }

    /// Whether one of `agents` is a card on which a job hangs that holds memory.
    pub(crate) fn hangs(&self, agents: AgentSet) -> bool {
        self.launches.hung.values().any(|card| agents.contains(card.agent()))
    }

    pub(crate) fn job_done(&mut self, job: JobId) {
        self.launches.hung.remove(&job);
        let Some(Launched { on, started, failed, .. }) = self.launches.jobs.remove(&job) else {
            return;
        };
        self.launches.writing.retain(|&(_, writer, _)| writer != job);
        self.leave_order(Task::Job(job));
        self.task_ended(Task::Job(job), !failed);
        let Some((card, stream)) = on else { return };
        if started {
            self.note(Note::End { job, card, well: !failed });
            let card = &mut self.cards[card.0 as usize];
            card.running = card.running.saturating_sub(1);
            if self.cards.iter().all(|card| card.running == 0) {
                self.launches.quiet_at = self.now;
            }
        }
        self.leave_stream(job, stream);
    }

    /// A card did not take a job that it was given.
    pub(crate) fn launch_failed(&mut self, job: JobId) {
        if self.launches.knows(job) {
            self.replies.push_back(Reply::JobDropped { job });
            self.job_failed(job);
            self.job_done(job);
        }
    }

    /// Only a job that has not started can be cancelled here; the card aborts one that runs.
    pub(crate) fn job_cancel(&mut self, job: JobId) {
        if self.launches.jobs.get(&job).is_some_and(|launched| !launched.started)
            && self.forget_job(job)
        {
            self.replies.push_back(Reply::JobDropped { job });
        }
    }

    /// Forgets a job that never started. Gives whether there was one.
    pub(crate) fn forget_job(&mut self, job: JobId) -> bool {
        let there = self.launches.knows(job);
        self.job_failed(job);
        self.job_done(job);
        there
    }

    fn leave_stream(&mut self, job: JobId, stream: StreamId) {
        let Some(queue) = self.launches.streams.get_mut(&stream) else {
            return;
        };
        queue.retain(|&other| other != job);
        match queue.front().copied() {
            None => {
                self.launches.streams.remove(&stream);
            }
            Some(next) => self.start_in_turn(next),
        }
    }

    /// The card is gone: its jobs, started or not, are dropped.
    pub(crate) fn drop_jobs(&mut self, card: CardId) {
        let on_card = |launched: &Launched| launched.on.is_some_and(|(on, _)| on == card);
        let mut jobs: Vec<JobId> = self
            .launches
            .jobs
            .iter()
            .filter(|(_, launched)| on_card(launched))
            .map(|(&job, _)| job)
            .collect();
        jobs.sort();
        self.cards[card.0 as usize].running = 0;
        // None of them starts when the one before it is gone.
        for job in &jobs {
            self.replies.push_back(Reply::JobDropped { job: *job });
            self.launches.jobs.entry(*job).and_modify(|launched| launched.started = true);
        }
        for job in jobs {
            self.forget_job(job);
        }
        self.cards[card.0 as usize].running = 0;
    }
}

#[cfg(test)]
mod tests {
    use farside_types::{PageNo, PageRange, Time};

    use super::*;
    use crate::placement::by_name;
    use crate::{Config, Event, StepError, StepErrorKind};

    #[test]
    fn a_launch_that_a_card_refused_before_its_reset_is_dropped_once() {
        let arena = PageRange::new(PageNo(1 << 12), 1 << 12);
        let config = Config::embedded(arena, vec![8]);
        let mut driver = Driver::new(config, by_name("on-touch").unwrap()).unwrap();
        let (job, card, stream) = (JobId(1), CardId(0), StreamId(0));
        driver.handle(Time::ZERO, Event::Launch { job, card, stream, after: &[], writes: &[] });
        let launch = driver.poll_command().unwrap();
        driver.handle(Time::ZERO, Event::CardReset { card });
        assert_eq!(driver.poll_reply(), Some(Reply::JobDropped { job }));
        let refused = StepError { pages_done: 0, kind: StepErrorKind::Transfer };
        driver.handle(Time::ZERO, launch.header().done(Err(refused)));
        assert_eq!(driver.poll_reply(), None);
    }
}
