//! Jobs: those that run and those that wait for a processing element.

use std::collections::{BTreeMap, VecDeque};

use farside_types::{Asid, CommandId, JobId, PeId};

use super::extents::{read_records, words};
use super::refusal::Refusal;
use super::{Action, Bus, Function, JobEnd, Phase};
use crate::interface::{
    ARG_BYTES, CompletionEntry, ExtentList, KernelArg, MESSAGE_BYTES_MAX, Status, register,
};
use crate::{Answer, Card};

/// A launch, understood and checked.
#[derive(Clone, Debug)]
pub(super) struct Launch {
    command: CommandId,
    job: JobId,
    asid: Asid,
    kernel: u32,
    args: Vec<KernelArg>,
    message: ExtentList,
}

/// A launch as the command has it.
#[derive(Clone, Copy, Debug)]
pub(super) struct LaunchOrder {
    pub(super) job: JobId,
    pub(super) kernel: u32,
    pub(super) pe: Option<PeId>,
    pub(super) args: ExtentList,
    pub(super) message: ExtentList,
}

#[derive(Clone, Debug)]
struct Running {
    launch: CommandId,
    message: ExtentList,
    stopping: bool,
    /// Commands that complete when the job is over.
    aborts: Vec<CommandId>,
}

/// The jobs of a function.
#[derive(Clone, Default, Debug)]
pub(super) struct Jobs {
    running: BTreeMap<JobId, Running>,
    waiting: VecDeque<Launch>,
}

impl Jobs {
    pub(super) fn is_empty(&self) -> bool {
        self.running.is_empty() && self.waiting.is_empty()
    }

    pub(super) fn runs(&self, job: JobId) -> bool {
        self.running.contains_key(&job)
    }

    pub(super) fn none_runs(&self) -> bool {
        self.running.is_empty()
    }

    pub(super) fn forget_waiting(&mut self) {
        self.waiting.clear();
    }

    fn knows(&self, job: JobId) -> bool {
        self.running.contains_key(&job) || self.waiting.iter().any(|launch| launch.job == job)
    }

    /// Whether a job runs and nobody has asked for its end.
    pub(super) fn wanted(&self, job: JobId) -> bool {
        self.running.get(&job).is_some_and(|running| !running.stopping)
    }
}

/// Words of a launch's entry, as they are numbered in refusals.
mod word {
    pub(super) const JOB: u64 = 2;
    pub(super) const ARGS: u64 = 4;
}

impl Function {
    pub(super) fn launch(
        &mut self,
        command: CommandId,
        asid: Asid,
        order: LaunchOrder,
        card: &mut Card,
        bus: &mut impl Bus,
    ) -> Result<Option<CompletionEntry>, Refusal> {
        let launch = self.understand(command, asid, order, bus)?;
        let pe = match order.pe {
            Some(pe) => {
                let idle = card.pes().status(pe).is_ok_and(|state| state.job().is_none());
                Some(pe).filter(|_| idle).ok_or(Refusal::state(Status::NoPe, pe.0.into()))?
            }
            None => match card.pes().idle() {
                Some(pe) => pe,
                None if self.jobs.waiting.len() >= self.config.jobs_max as usize => {
                    return Err(Refusal::state(Status::Busy, 0));
                }
                None => {
                    self.jobs.waiting.push_back(launch);
                    return Ok(None);
                }
            },
        };
        self.start(launch, pe, card);
        Ok(None)
    }

    fn understand(
        &self,
        command: CommandId,
        asid: Asid,
        order: LaunchOrder,
        bus: &mut impl Bus,
    ) -> Result<Launch, Refusal> {
        let LaunchOrder { job, kernel, args, message, .. } = order;
        self.check_asid(asid)?;
        if self.jobs.knows(job) {
            return Err(Refusal::operand(word::JOB));
        }
        if kernel as usize >= self.config.kernels.len() {
            return Err(Refusal::state(Status::NoSuchKernel, kernel.into()));
        }
        let records = read_records(args, ARG_BYTES, bus)?;
        let args = records.chunks_exact(ARG_BYTES as usize);
        let args: Option<Vec<_>> = args.map(|arg| KernelArg::from_words(words(arg))).collect();
        let args = args.ok_or(Refusal::operand(word::ARGS))?;
        if message.count > 0 && !bus.reaches(message.address, message.count.into(), true) {
            return Err(Refusal::mistake(Status::BadAddress, message.address));
        }
        Ok(Launch { command, job, asid, kernel, args, message })
    }

    fn start(&mut self, launch: Launch, pe: PeId, card: &mut Card) {
        let Launch { command, job, asid, kernel, args, message } = launch;
        let started = card.launch(pe, job);
        debug_assert_eq!(started, Ok(()), "it was idle");
        let running = Running { launch: command, message, stopping: false, aborts: Vec::new() };
        self.jobs.running.insert(job, running);
        self.counts.jobs_started += 1;
        self.actions.push_back(Action::Start { pe, job, asid, kernel, args });
    }

    /// Starts jobs that wait, in order, while a processing element is idle.
    pub(super) fn start_waiting_jobs(&mut self, card: &mut Card) {
        while !self.jobs.waiting.is_empty() {
            let Some(pe) = card.pes().idle() else {
                return;
            };
            if let Some(launch) = self.jobs.waiting.pop_front() {
                self.start(launch, pe, card);
            }
        }
    }

    pub(super) fn abort(
        &mut self,
        command: CommandId,
        job: JobId,
        card: &mut Card,
    ) -> Result<Option<CompletionEntry>, Refusal> {
        if let Some(at) = self.jobs.waiting.iter().position(|launch| launch.job == job) {
            if let Some(launch) = self.jobs.waiting.remove(at) {
                let aborted = CompletionEntry::plain(0, Status::Aborted);
                self.ledger.finish(launch.command, aborted);
            }
            return Ok(Some(CompletionEntry::plain(0, Status::Ok)));
        }
        let Some(running) = self.jobs.running.get_mut(&job) else {
            return Err(Refusal::state(Status::NoSuchJob, job.0));
        };
        running.aborts.push(command);
        self.stop(job, card);
        Ok(None)
    }

    /// Asks for a job's end: what stands in a fault is answered, the rest ends by itself.
    fn stop(&mut self, job: JobId, card: &mut Card) {
        let Some(running) = self.jobs.running.get_mut(&job) else {
            return;
        };
        if std::mem::replace(&mut running.stopping, true) {
            return;
        }
        let answers = card.interrupt(job).unwrap_or_default();
        self.hand_over(answers);
        self.actions.push_back(Action::Stop { job });
    }

    /// Asks for the end of every job.
    pub(super) fn stop_all(&mut self, card: &mut Card) {
        let jobs: Vec<JobId> = self.jobs.running.keys().copied().collect();
        for job in jobs {
            self.stop(job, card);
        }
    }

    /// Takes a job back that the embedder has not been told of.
    pub(super) fn unstart(&mut self, job: JobId, card: &mut Card) {
        self.jobs.running.remove(&job);
        // It held nothing and waited for nothing, so nothing is answered and nothing drained.
        let _ = card.abort(job);
    }

    pub(super) fn hand_over(&mut self, answers: Vec<Answer>) {
        self.actions.extend(answers.into_iter().map(Action::Answer));
    }

    /// A job is over: its kernel touches no memory any more.
    pub(super) fn end_job(
        &mut self,
        card: &mut Card,
        bus: &mut impl Bus,
        job: JobId,
        end: &JobEnd,
    ) {
        let Some(running) = self.jobs.running.remove(&job) else {
            // One that was given up has let go of what it held.
            self.window.iter_mut().for_each(|window| window.end_job(job, false));
            return;
        };
        self.counts.jobs_done += 1;
        let JobEnd { status, mut value, detail, .. } = *end;
        // A kernel that did not stop may write what it holds at any time: its accesses stay in
        // flight, so that no drain completes before it lets go.
        let holds = card.pes().of(job).any(|pe| card.in_flight().holds(pe));
        if status == Status::Hung {
            value = holds.into();
        }
        self.window.iter_mut().for_each(|window| {
            window.end_job(job, status == Status::Hung && holds);
        });
        if status != Status::Hung || !holds {
            if let Ok(aborted) = card.abort(job) {
                self.hand_over(aborted.answers);
                self.finish_drains(&aborted.drains);
            }
        }
        let message_bytes = self.write_message(running.message, &end.message, bus);
        let completion =
            CompletionEntry { message_bytes, value, detail, ..CompletionEntry::plain(0, status) };
        self.ledger.finish(running.launch, completion);
        for abort in running.aborts {
            self.ledger.finish(abort, CompletionEntry::plain(0, Status::Ok));
        }
    }

    /// Writes as much of a text as there is room for. Returns its bytes.
    fn write_message(&mut self, place: ExtentList, text: &str, bus: &mut impl Bus) -> u32 {
        let touches = matches!(self.phase, Phase::Enabled | Phase::Disabled);
        let room = place.count.min(MESSAGE_BYTES_MAX) as usize;
        if !touches || room == 0 || text.is_empty() {
            return 0;
        }
        let bytes = (0..=room.min(text.len())).rev().find(|&end| text.is_char_boundary(end));
        let text = &text.as_bytes()[..bytes.unwrap_or(0)];
        match bus.write(place.address, text) {
            Ok(()) => text.len() as u32,
            Err(error) => {
                self.report(register::ERROR_BUS, error.address, bus);
                0
            }
        }
    }
}
