//! Kernels: when they ran, by name, and what their cards had to wait for meanwhile.

use std::collections::{BTreeMap, HashMap};

use farside_events::{Event, Kind, Name, Names};
use farside_types::AgentId;

use crate::text::shown;
use crate::{KernelFacts, RunFacts};

/// Runs that are told apart: those of one name on one card that are closer than this part of the whole are one.
const APART: u64 = 1500;
/// Runs that are kept.
const RUNS: usize = 6000;
/// Names that are told apart; others are summed up under the last.
const NAMES: usize = 200;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Kernels {
    apart: u64,
    /// Jobs that were launched: their names.
    named: HashMap<u64, usize>,
    by_name: HashMap<Name, usize>,
    sums: Vec<KernelFacts>,
    /// Jobs that run: when they began, where.
    running: BTreeMap<u64, (u64, AgentId)>,
    /// The job that began last on each card and has not ended.
    latest: HashMap<AgentId, Vec<u64>>,
    runs: Vec<RunFacts>,
    /// The newest run of each card and name.
    newest: HashMap<(AgentId, usize), usize>,
}

impl Kernels {
    pub(crate) fn new(end: u64) -> Kernels {
        Kernels { apart: end / APART, ..Kernels::default() }
    }

    /// Something happened to a job.
    pub(crate) fn take(&mut self, event: &Event, names: &Names) {
        let (job, agent) = (event.number, event.agent.unwrap_or(AgentId::CPU));
        match event.kind {
            Kind::Launch => {
                let kernel = self.kernel(event.name, names);
                self.named.insert(job, kernel);
            }
            Kind::Begin => {
                self.running.insert(job, (event.at, agent));
                self.latest.entry(agent).or_default().push(job);
            }
            Kind::End | Kind::Failed => self.end(event, job, agent, names),
            _ => {}
        }
    }

    fn kernel(&mut self, name: Name, names: &Names) -> usize {
        if let Some(&kernel) = self.by_name.get(&name) {
            return kernel;
        }
        if self.sums.len() == NAMES {
            return NAMES - 1;
        }
        let text = match (names.get(name), self.sums.len() + 1 == NAMES) {
            (_, true) => "(others)",
            ("", _) => "(unnamed)",
            (text, _) => text,
        };
        self.sums.push(KernelFacts {
            name: shown(text),
            count: 0,
            failed: 0,
            time: 0,
            longest: 0,
            faults: 0,
            pages_moved: 0,
        });
        let kernel = self.sums.len() - 1;
        self.by_name.insert(name, kernel);
        kernel
    }

    fn end(&mut self, event: &Event, job: u64, agent: AgentId, names: &Names) {
        let named = self.named.remove(&job);
        let kernel = named.unwrap_or_else(|| self.kernel(Name::NONE, names));
        let Some((begun, _)) = self.running.remove(&job) else { return };
        self.latest.entry(agent).or_default().retain(|&it| it != job);
        let took = event.at.saturating_sub(begun);
        let sum = &mut self.sums[kernel];
        sum.count += 1;
        sum.failed += u64::from(event.kind == Kind::Failed);
        sum.time += took;
        sum.longest = sum.longest.max(took);
        self.run(agent, kernel, begun, event.at);
    }

    fn run(&mut self, agent: AgentId, kernel: usize, from: u64, until: u64) {
        if let Some(&newest) = self.newest.get(&(agent, kernel)) {
            let run = &mut self.runs[newest];
            if from.saturating_sub(run.until) <= self.apart || self.runs.len() >= RUNS {
                let run = &mut self.runs[newest];
                run.until = run.until.max(until);
                run.count += 1;
                return;
            }
        }
        if self.runs.len() < RUNS {
            self.newest.insert((agent, kernel), self.runs.len());
            self.runs.push(RunFacts { agent: agent.0, kernel, from, until, count: 1 });
        }
    }

    /// The kernel that began last on a card and runs.
    fn running_on(&mut self, agent: AgentId) -> Option<&mut KernelFacts> {
        let job = self.latest.get(&agent)?.last()?;
        let kernel = *self.named.get(job)?;
        self.sums.get_mut(kernel)
    }

    /// A card had to wait.
    pub(crate) fn fault(&mut self, agent: AgentId) {
        if let Some(kernel) = self.running_on(agent) {
            kernel.faults += 1;
        }
    }

    /// Pages came to a card.
    pub(crate) fn moved(&mut self, agent: AgentId, pages: u64) {
        if let Some(kernel) = self.running_on(agent) {
            kernel.pages_moved += pages;
        }
    }

    /// Kernels, those that ran longest first, and their runs.
    pub(crate) fn finish(mut self, end: u64) -> (Vec<KernelFacts>, Vec<RunFacts>) {
        // What has not ended when the log does ran until then.
        for (job, (begun, agent)) in std::mem::take(&mut self.running) {
            if let Some(kernel) = self.named.get(&job).copied() {
                self.run(agent, kernel, begun, end);
            }
        }
        let mut order: Vec<usize> = (0..self.sums.len()).collect();
        order.sort_by_key(|&it| std::cmp::Reverse(self.sums[it].time));
        let mut place = vec![0; order.len()];
        order.iter().enumerate().for_each(|(at, &kernel)| place[kernel] = at);
        let kernels = order.iter().map(|&it| self.sums[it].clone()).collect();
        self.runs.iter_mut().for_each(|run| run.kernel = place[run.kernel]);
        (kernels, self.runs)
    }
}
