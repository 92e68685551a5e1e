//! Launches: kernels start in the order of their stream, and a card with one is running.

use std::collections::{BTreeMap, HashMap, VecDeque};

use farside_types::{CardId, JobId, StreamId};
use serde::{Deserialize, Serialize};

use crate::api::command::RingOp;
use crate::mutation::Mutation;
use crate::{Driver, Reply};

#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Launches {
    jobs: HashMap<JobId, (CardId, StreamId)>,
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

    pub(crate) fn job_done(&mut self, job: JobId) {
        let Some((card, stream)) = self.launches.jobs.remove(&job) else {
            return;
        };
        let card = &mut self.cards[card.0 as usize];
        card.running = card.running.saturating_sub(1);
        self.leave_stream(job, stream);
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
        for (job, _) in &jobs {
            self.launches.jobs.remove(job);
            self.replies.push_back(Reply::JobDropped { job: *job });
        }
        for (job, stream) in jobs {
            self.leave_stream(job, stream);
        }
    }
}
