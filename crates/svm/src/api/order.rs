//! Order between launches and requests: one that is to come after others is held back until they have
//! ended well, and never begins if one of them does not. Whom something waits for was told of before it, so
//! nobody waits in a circle.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use farside_types::{JobId, RequestId};
use serde::{Deserialize, Serialize};

use crate::api::event::Request;
use crate::api::reply::RequestError;
use crate::mutation::Mutation;
use crate::{Driver, Reply};

/// What can come after others, and have others come after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Task {
    /// A launch.
    Job(JobId),
    /// A request.
    Request(RequestId),
}

impl std::fmt::Display for Task {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Task::Job(job) => job.fmt(f),
            Task::Request(request) => request.fmt(f),
        }
    }
}

/// The least and the greatest task, for ranges of pairs.
const FIRST: Task = Task::Job(JobId(0));
const LAST: Task = Task::Request(RequestId(u64::MAX));

/// Who is held back, and for whom.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Orders {
    /// Pairs: who is awaited, and who waits.
    awaited: BTreeSet<(Task, Task)>,
    /// The same pairs the other way round.
    waits: BTreeSet<(Task, Task)>,
    /// Requests that are held back.
    held: BTreeMap<RequestId, Request>,
    /// Those that have ended and are awaited; `true`: well.
    ended: VecDeque<(Task, bool)>,
}

impl Orders {
    /// Whether it is held back.
    pub(crate) fn holds(&self, task: Task) -> bool {
        self.waits.range((task, FIRST)..=(task, LAST)).next().is_some()
    }

    fn waits_for(&mut self, task: Task, other: Task) {
        self.awaited.insert((other, task));
        self.waits.insert((task, other));
    }

    /// Requests that are held back.
    pub(crate) fn held(&self) -> usize {
        self.held.len()
    }

    /// Takes one out that waits for `other`.
    fn next_behind(&mut self, other: Task) -> Option<Task> {
        let &pair = self.awaited.range((other, FIRST)..=(other, LAST)).next()?;
        self.awaited.remove(&pair);
        self.waits.remove(&(pair.1, other));
        Some(pair.1)
    }

    /// It waits for nobody any more.
    fn forget(&mut self, task: Task) {
        while let Some(&(_, other)) = self.waits.range((task, FIRST)..=(task, LAST)).next() {
            self.waits.remove(&(task, other));
            self.awaited.remove(&(other, task));
        }
    }
}

impl Driver {
    /// Has `task` wait for those of `after` that have not ended. Gives the first that is known to end
    /// badly, if there is one: then it waits for nobody.
    pub(crate) fn order(&mut self, task: Task, after: &[Task]) -> Result<(), Task> {
        for &other in after {
            match other {
                Task::Job(job) if self.launches.has_failed(job) => {
                    self.orders.forget(task);
                    return Err(other);
                }
                _ if self.is_under_way(other) && other != task => {
                    self.orders.waits_for(task, other);
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn is_under_way(&self, task: Task) -> bool {
        match task {
            Task::Job(job) => self.launches.knows(job),
            Task::Request(id) => {
                self.requests.contains_key(&id) || self.orders.held.contains_key(&id)
            }
        }
    }

    /// Holds a request back.
    pub(crate) fn hold_request(&mut self, id: RequestId, request: Request) {
        self.orders.held.insert(id, request);
    }

    /// Takes note of an end, which is told to those who wait for it before `handle` returns.
    pub(crate) fn task_ended(&mut self, task: Task, well: bool) {
        if self.orders.awaited.range((task, FIRST)..=(task, LAST)).next().is_some() {
            self.orders.ended.push_back((task, well));
        }
    }

    /// Tells those who wait of one end. `false`: there was none to be told of.
    pub(crate) fn tell_of_end(&mut self) -> bool {
        let Some((ended, well)) = self.orders.ended.pop_front() else { return false };
        while let Some(task) = self.orders.next_behind(ended) {
            if !well && !self.mutated.on(Mutation::RunAfterFailure) {
                self.never_begins(task, ended);
            } else if !self.orders.holds(task) {
                self.begin(task);
            }
        }
        true
    }

    fn begin(&mut self, task: Task) {
        match task {
            Task::Job(job) => self.start_in_turn(job),
            Task::Request(id) => {
                if let Some(request) = self.orders.held.remove(&id) {
                    self.begin_request(id, request);
                }
            }
        }
    }

    /// What it waited for has ended badly.
    pub(crate) fn never_begins(&mut self, task: Task, because: Task) {
        self.orders.forget(task);
        match task {
            Task::Job(job) => {
                if self.forget_job(job) {
                    self.replies.push_back(Reply::JobNotRun { job, because });
                }
            }
            Task::Request(id) => {
                self.orders.held.remove(&id);
                self.reply(id, Err(RequestError::NotBegun { because }));
            }
        }
    }

    /// It is not wanted any more.
    pub(crate) fn leave_order(&mut self, task: Task) {
        self.orders.forget(task);
    }
}

#[cfg(test)]
mod tests {
    use farside_types::{CardId, PageNo, PageRange, StreamId, Time};

    use super::*;
    use crate::api::command::RingOp;
    use crate::placement::by_name;
    use crate::{Command, Config, Event};

    struct Fixture(Driver);

    impl Fixture {
        fn new() -> Fixture {
            let arena = PageRange::new(PageNo(1 << 12), 1 << 12);
            let config = Config::embedded(arena, vec![8, 8]);
            Fixture(Driver::new(config, by_name("on-touch").unwrap()).unwrap())
        }

        fn tell(&mut self, event: Event<'_>) {
            self.0.handle(Time::ZERO, event);
        }

        fn launch(&mut self, job: u64, after: &[Task]) {
            let (card, stream) = (CardId((job % 2) as u8), StreamId(job as u32));
            self.tell(Event::Launch { job: JobId(job), card, stream, after, writes: &[] });
        }

        fn ends(&mut self, job: u64, well: bool) {
            if !well {
                self.tell(Event::JobFailed { job: JobId(job) });
            }
            self.tell(Event::JobDone { job: JobId(job) });
        }

        /// The launches that were handed out since this was last asked.
        fn started(&mut self) -> Vec<u64> {
            let commands = std::iter::from_fn(|| self.0.poll_command());
            let launches = commands.filter_map(|command| match command {
                Command::Ring(_, step) => match step.op {
                    RingOp::Launch { job } => Some(job.0),
                    _ => None,
                },
                _ => None,
            });
            launches.collect()
        }

        fn replies(&mut self) -> Vec<Reply> {
            std::iter::from_fn(|| self.0.poll_reply()).collect()
        }
    }

    fn job(id: u64) -> Task {
        Task::Job(JobId(id))
    }

    fn not_run(id: u64, because: Task) -> Reply {
        Reply::JobNotRun { job: JobId(id), because }
    }

    #[test]
    fn a_diamond_starts_side_by_side_and_comes_together() {
        let mut f = Fixture::new();
        f.launch(1, &[]);
        f.launch(2, &[job(1)]);
        f.launch(3, &[job(1)]);
        f.launch(4, &[job(2), job(3)]);
        assert_eq!(f.started(), [1]);
        f.ends(1, true);
        assert_eq!(f.started(), [2, 3]);
        f.ends(3, true);
        assert!(f.started().is_empty());
        f.ends(2, true);
        assert_eq!(f.started(), [4]);
        f.ends(4, true);
        assert!(f.0.is_quiet());
    }

    #[test]
    fn who_comes_after_a_failure_never_starts_whatever_else_it_waits_for() {
        let mut f = Fixture::new();
        f.launch(1, &[]);
        f.launch(2, &[]);
        f.launch(3, &[job(1), job(2)]);
        f.launch(4, &[job(3)]);
        f.ends(2, false);
        assert_eq!(f.replies(), [not_run(3, job(2)), not_run(4, job(3))]);
        f.ends(1, true);
        assert_eq!(f.started(), [1, 2]);
        // Nothing of them is left: a number is used again.
        f.launch(3, &[]);
        assert_eq!(f.started(), [3]);
    }

    #[test]
    fn a_failure_that_is_known_before_the_end_counts_for_later_launches_too() {
        let mut f = Fixture::new();
        f.launch(1, &[]);
        f.launch(2, &[job(1)]);
        f.tell(Event::JobFailed { job: JobId(1) });
        f.launch(3, &[job(1)]);
        assert_eq!(f.replies(), [not_run(2, job(1)), not_run(3, job(1))]);
        assert_eq!(f.started(), [1]);
    }

    #[test]
    fn a_launch_that_waits_can_be_cancelled_and_loses_its_card() {
        let mut f = Fixture::new();
        f.launch(2, &[]);
        for id in [3, 5] {
            f.launch(id, &[job(2)]);
        }
        f.launch(4, &[job(3)]);
        f.tell(Event::JobCancel { job: JobId(3) });
        let dropped = |id| Reply::JobDropped { job: JobId(id) };
        assert_eq!(f.replies(), [dropped(3), not_run(4, job(3))]);
        f.tell(Event::CardLost { card: CardId(1) });
        assert_eq!(f.replies(), [dropped(5)]);
        f.ends(2, true);
        assert_eq!(f.started(), [2]);
    }

    #[test]
    fn a_stream_waits_for_whom_its_first_waits() {
        let mut f = Fixture::new();
        f.launch(1, &[]);
        for (id, after) in [(2, &[job(1)][..]), (3, &[])] {
            let (card, stream) = (CardId(0), StreamId(77));
            f.tell(Event::Launch { job: JobId(id), card, stream, after, writes: &[] });
        }
        assert_eq!(f.started(), [1]);
        f.ends(1, true);
        assert_eq!(f.started(), [2]);
        f.ends(2, true);
        assert_eq!(f.started(), [3]);
    }

    #[test]
    fn requests_wait_and_are_waited_for() {
        let mut f = Fixture::new();
        let alloc = Request::Alloc { bytes: 4096, name: "a".into() };
        f.tell(Event::LaunchParts { job: JobId(1) });
        let id = RequestId(1);
        f.tell(Event::Request { id, request: alloc.clone(), after: &[job(1)] });
        f.launch(2, &[Task::Request(id)]);
        assert!(f.started().is_empty() && f.replies().is_empty());
        assert!(!f.0.is_quiet());
        f.ends(1, true);
        assert!(matches!(f.replies()[..], [Reply::Request { result: Ok(_), .. }]));
        assert_eq!(f.started(), [2]);

        f.tell(Event::LaunchParts { job: JobId(5) });
        let id = RequestId(2);
        f.tell(Event::Request { id, request: alloc, after: &[job(5)] });
        f.launch(6, &[Task::Request(id)]);
        f.ends(5, false);
        let result = Err(RequestError::NotBegun { because: job(5) });
        assert_eq!(f.replies(), [Reply::Request { id, result }, not_run(6, Task::Request(id))]);
    }

    #[test]
    fn a_long_chain_of_failures_needs_no_deep_stack() {
        let mut f = Fixture::new();
        f.launch(1, &[]);
        for id in 2..=100_000 {
            f.launch(id, &[job(id - 1)]);
        }
        f.ends(1, false);
        assert_eq!(f.replies().len(), 99_999);
        assert_eq!(f.started(), [1]);
    }
}
