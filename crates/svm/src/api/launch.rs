//! Launches: kernels start in the order of their stream, and a card with one is running.

use std::collections::{BTreeMap, HashMap, VecDeque};

use farside_types::{AgentSet, CardId, JobId, StreamId};
use serde::{Deserialize, Serialize};

use crate::api::command::RingOp;
use crate::mutation::Mutation;
use crate::{Driver, Reply};

#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Launches {
    jobs: HashMap<JobId, (CardId, StreamId)>,
    /// Jobs that were given up and still hold memory.
    hung: BTreeMap<JobId, CardId>,
    /// Per stream: the job that runs, then those that wait for it.
    streams: BTreeMap<StreamId, VecDeque<JobId>>,
}

impl Driver {
    pub(crate) fn launch(&mut self, job: JobId, card: CardId, stream: StreamId) {
        if !self.is_usable(card.memory()) || self.distrusted.contains(card.memory()) {
            self.replies.push_back(Reply::JobDropped { job });
            return;
        }
        self.launches.jobs.insert(job, (card, stream));
        let queue = self.launches.streams.entry(stream).or_default();
        queue.push_back(job);
        if queue.len() == 1 || self.mutated.on(Mutation::IgnoreStreamOrder) {
            self.start_job(job);
        }
    }

    fn start_job(&mut self, job: JobId) {
        let Some(&(card, _)) = self.launches.jobs.get(&job) else {
            return;
        };
        self.cards[card.0 as usize].running += 1;
        self.issue_detached(card, RingOp::Launch { job });
    }

    pub(crate) fn job_hung(&mut self, job: JobId) {
        if let Some(&(card, _)) = self.launches.jobs.get(&job) {
            self.launches.hung.insert(job, card);
        }
    }

    /// Whether one of `agents` is a card on which a job hangs that holds memory.
    pub(crate) fn hangs(&self, agents: AgentSet) -> bool {
        self.launches.hung.values().any(|card| agents.contains(card.agent()))
    }

    pub(crate) fn job_done(&mut self, job: JobId) {
        self.launches.hung.remove(&job);
        let Some((card, stream)) = self.launches.jobs.remove(&job) else {
            return;
        };
        let card = &mut self.cards[card.0 as usize];
        card.running = card.running.saturating_sub(1);
        self.leave_stream(job, stream);
    }

    /// A card did not take a job that it was given.
    pub(crate) fn launch_failed(&mut self, job: JobId) {
        if self.launches.jobs.contains_key(&job) {
            self.replies.push_back(Reply::JobDropped { job });
            self.job_done(job);
        }
    }

    /// Only a job that has not started can be cancelled here; the card aborts one that runs.
    pub(crate) fn job_cancel(&mut self, job: JobId) {
        let Some(&(_, stream)) = self.launches.jobs.get(&job) else {
            return;
        };
        let first = self.launches.streams.get(&stream).and_then(|queue| queue.front());
        if first != Some(&job) {
            self.launches.jobs.remove(&job);
            self.leave_stream(job, stream);
            self.replies.push_back(Reply::JobDropped { job });
        }
    }

    fn leave_stream(&mut self, job: JobId, stream: StreamId) {
        let Some(queue) = self.launches.streams.get_mut(&stream) else {
            return;
        };
        let was_first = queue.front() == Some(&job);
        queue.retain(|&other| other != job);
        let next = queue.front().copied();
        match next {
            None => {
                self.launches.streams.remove(&stream);
            }
            Some(next) if was_first => self.start_job(next),
            Some(_) => {}
        }
    }

    /// The card is gone: its jobs, started or not, are dropped.
    pub(crate) fn drop_jobs(&mut self, card: CardId) {
        let mut jobs: Vec<(JobId, StreamId)> = self
            .launches
            .jobs
            .iter()
            .filter(|(_, (on, _))| *on == card)
            .map(|(&job, &(_, stream))| (job, stream))
            .collect();
        jobs.sort();
        self.cards[card.0 as usize].running = 0;
        self.launches.hung.retain(|_, other| *other != card);
        for (job, _) in &jobs {
            self.launches.jobs.remove(job);
            self.replies.push_back(Reply::JobDropped { job: *job });
        }
        for (job, stream) in jobs {
            self.leave_stream(job, stream);
        }
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
        driver.handle(Time::ZERO, Event::Launch { job, card, stream });
        let launch = driver.poll_command().unwrap();
        driver.handle(Time::ZERO, Event::CardReset { card });
        assert_eq!(driver.poll_reply(), Some(Reply::JobDropped { job }));
        let refused = StepError { pages_done: 0, kind: StepErrorKind::Transfer };
        driver.handle(Time::ZERO, launch.header().done(Err(refused)));
        assert_eq!(driver.poll_reply(), None);
    }
}
