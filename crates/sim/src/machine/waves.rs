//! Work-groups and wavefronts: starting them, running their instructions, ending them.
//!
//! A wavefront runs on within one event until it must wait for something, or is further ahead of
//! the clock than `engine.run_ahead_cycles`.

use farside_types::{JobId, Span, Time};

use super::access::{Access, Kind};
use super::dispatch::Dispatcher;
use super::watch::observe;
use super::{Machine, SimEvent};
use crate::SimError;
use crate::gpu::{Group, Parked, Wave, WaveState};
use crate::observe::{Observation, Slot, WaitsFor};
use crate::state::state;
use farside_workloads::{Cursor, Instruction, Launch, Line, Lines};

/// Instructions of 8 bytes in a line of code.
const INSTRUCTIONS_PER_LINE: u32 = 8;

/// The launch that runs.
#[derive(Debug, Default)]
pub(super) struct Running {
    /// Which.
    pub(super) index: u32,
    pub(super) shape: Option<Launch>,
    pub(super) dispatcher: Dispatcher,
    /// GPUs whose ring has come to it.
    pub(super) launched: usize,
    /// GPUs whose end the driver has not seen.
    pub(super) jobs_left: usize,
}

state!(Running {
    values: index, shape, dispatcher, launched, jobs_left;
});

impl Machine {
    pub(super) fn wave_mut(&mut self, at: Access) -> &mut Wave {
        let gpu = &mut self.gpus[usize::from(at.gpu)];
        &mut gpu.units[usize::from(at.unit)].waves[usize::from(at.slot)]
    }

    /// A GPU's ring has come to the launch. Work-groups start when all have.
    pub(super) fn launch(&mut self, gpu: u8, job: JobId) {
        self.rings[usize::from(gpu)].job = Some(job);
        self.gpus[usize::from(gpu)].begin_kernel();
        self.running.launched += 1;
        if self.running.launched == self.gpus.len() {
            for gpu in 0..self.gpus.len() {
                self.fill(gpu as u8);
            }
        }
    }

    /// Starts as many work-groups as a GPU has room for; ends its job if there is nothing more.
    fn fill(&mut self, gpu: u8) {
        let g = usize::from(gpu);
        let Some(shape) = self.running.shape else {
            return;
        };
        let units = self.gpus[g].units.len();
        loop {
            let unit = &self.gpus[g].units;
            let room = |index: usize| unit[index].has_room(shape.waves, shape.groups_per_unit);
            match self.running.dispatcher.next(g, units, room) {
                Some((group, unit)) => self.start(gpu, unit as u8, group, shape.waves),
                None => break,
            }
        }
        if self.gpus[g].resident == 0 && self.running.dispatcher.is_exhausted(g) {
            self.job_ended(gpu);
        }
    }

    /// Starts a work-group on a compute unit that has room for it.
    fn start(&mut self, gpu: u8, unit: u8, group: u32, waves: u16) {
        let state = &mut self.gpus[usize::from(gpu)];
        let since = Time(self.queue.now().since(self.start).0);
        let at = self.queue.now().max(state.next_dispatch);
        state.next_dispatch = at + self.times.dispatch;
        state.resident += 1;
        let cu = &mut state.units[usize::from(unit)];
        cu.resident += 1;
        let place = cu.groups.iter().position(|held| held.alive == 0).unwrap_or_default();
        cu.groups[place] = Group { alive: waves, ..Group::default() };
        for wave in 0..waves {
            let slot = cu.free.trailing_zeros();
            cu.free &= cu.free - 1;
            cu.waves[slot as usize] = Wave {
                cursor: Cursor { launch: self.running.index, group, wave, ..Cursor::default() },
                state: WaveState::Running,
                group: place as u8,
                since: at,
                ..Wave::default()
            };
            let slot = slot as u8;
            self.queue.push(at, SimEvent::Wave { gpu, unit, slot });
            let wave = (self.running.index, group, wave);
            observe(
                &mut self.observers,
                since,
                &Observation::WaveBegin { slot: Slot { gpu, unit, slot }, wave },
            );
        }
    }

    /// Runs a wavefront on.
    pub(super) fn wave(&mut self, gpu: u8, unit: u8, slot: u8) {
        let me = Access { gpu, unit, slot, ..Access::default() };
        let now = self.queue.now();
        let stalled = self.gpus[usize::from(gpu)].stalled_until;
        self.observe_wait(me);
        if self.gpus[usize::from(gpu)].stops > 0 {
            self.wave_mut(me).cause = WaitsFor::Flush;
            self.gpus[usize::from(gpu)].parked.push(Parked::Wave { unit, slot });
            return;
        }
        if stalled > now {
            self.wave_mut(me).cause = WaitsFor::Flush;
            self.queue.push(stalled, SimEvent::Wave { gpu, unit, slot });
            return;
        }
        self.idle_events = 0;
        self.wave_mut(me).cause = WaitsFor::Local;
        let mut lines = self.lines.take().unwrap_or_default();
        if let Some(at) = self.run_wave(me, &mut lines) {
            self.wave_mut(me).since = now;
            self.queue.push(at, SimEvent::Wave { gpu, unit, slot });
        }
        self.lines = Some(lines);
    }

    /// Runs a wavefront until it must wait; when it goes on, if that is known.
    fn run_wave(&mut self, me: Access, lines: &mut Lines) -> Option<Time> {
        let now = self.queue.now();
        let limit = now + self.times.run_ahead;
        let mut at = now;
        while at <= limit {
            let wave = self.wave_mut(me);
            if wave.faults > 0 {
                return self.stop(me, WaveState::Fault);
            }
            if let Some(line) = self.fetch_code(me, at) {
                self.line(Access { line, kind: Kind::Fetch, ..me }, at);
                match self.until_loaded(me) {
                    Some(loaded) => at = at.max(loaded),
                    None => return None,
                }
                continue;
            }
            lines.clear();
            let gpu = &mut self.gpus[usize::from(me.gpu)];
            let cu = &mut gpu.units[usize::from(me.unit)];
            let wave = &mut cu.waves[usize::from(me.slot)];
            match self.workload.next(&mut wave.cursor, lines) {
                Instruction::Load => at = self.issue(me, lines, Kind::Load, at),
                Instruction::Store => at = self.issue(me, lines, Kind::Store, at),
                Instruction::LoadScalar => at = self.issue(me, lines, Kind::Scalar, at),
                Instruction::Compute(cycles) => {
                    let span = Span(self.times.cycle.0 * u64::from(cycles));
                    at = cu.compute(usize::from(me.slot), at, span);
                    self.wave_mut(me).cause = WaitsFor::Compute;
                }
                Instruction::Wait => match self.until_loaded(me) {
                    Some(loaded) => at = at.max(loaded),
                    None => return None,
                },
                Instruction::Barrier => return self.arrive(me, at),
                Instruction::End => {
                    self.end(me, at);
                    return None;
                }
            }
        }
        Some(at)
    }

    /// Stands still until it is woken.
    fn stop(&mut self, me: Access, state: WaveState) -> Option<Time> {
        let now = self.queue.now();
        let wave = self.wave_mut(me);
        wave.state = state;
        wave.since = now;
        None
    }

    /// When all loads have been answered; if nobody knows, the wavefront stands still.
    fn until_loaded(&mut self, me: Access) -> Option<Time> {
        let wave = self.wave_mut(me);
        match wave.pending[0] {
            0 => Some(wave.loads_end),
            _ => self.stop(me, WaveState::Loads),
        }
    }

    /// The line of code that has to be fetched before the next instruction.
    fn fetch_code(&mut self, me: Access, at: Time) -> Option<Line> {
        let (first, count) = self.running.shape?.code?;
        let wave = self.wave_mut(me);
        let index = wave.fetched;
        wave.fetched += 1;
        if index % INSTRUCTIONS_PER_LINE != 0 || count == 0 {
            return None;
        }
        let line = Line(first.0 + index / INSTRUCTIONS_PER_LINE % count);
        let cache = &mut self.gpus[usize::from(me.gpu)].unit(usize::from(me.unit)).caches[2];
        match cache.lookup(line) {
            Some(ready) if ready <= at => None,
            _ => Some(line),
        }
    }

    /// Issues the lines of an instruction, one a cycle; when the last one has been issued.
    fn issue(&mut self, me: Access, lines: &[Line], kind: Kind, at: Time) -> Time {
        let cycle = self.times.cycle;
        let cu = &mut self.gpus[usize::from(me.gpu)].units[usize::from(me.unit)];
        let begin = at.max(cu.next_issue);
        let mut at = begin;
        cu.next_issue = begin + Span(cycle.0 * lines.len() as u64);
        cu.caches[kind.cache()].fetch(lines);
        for &line in lines {
            self.line(Access { line, kind, ..me }, at);
            at = at + cycle;
        }
        at
    }

    /// Comes to the barrier; the last one has all go on.
    fn arrive(&mut self, me: Access, at: Time) -> Option<Time> {
        self.stop(me, WaveState::Barrier);
        self.wave_mut(me).cause = WaitsFor::Barrier;
        let cu = &mut self.gpus[usize::from(me.gpu)].units[usize::from(me.unit)];
        let place = cu.waves[usize::from(me.slot)].group;
        let group = &mut cu.groups[usize::from(place)];
        group.arrived += 1;
        group.arrived_at = group.arrived_at.max(at);
        self.open_barrier(me.gpu, me.unit, place);
        None
    }

    /// Lets the wavefronts of a group go on if all that are left have arrived.
    fn open_barrier(&mut self, gpu: u8, unit: u8, place: u8) {
        let cu = &mut self.gpus[usize::from(gpu)].units[usize::from(unit)];
        let group = &mut cu.groups[usize::from(place)];
        if group.arrived == 0 || group.arrived < group.alive {
            return;
        }
        let at = group.arrived_at;
        (group.arrived, group.arrived_at) = (0, Time::ZERO);
        for (slot, wave) in cu.waves.iter_mut().enumerate() {
            if wave.group == place && wave.state == WaveState::Barrier {
                wave.state = WaveState::Running;
                self.queue.push(at, SimEvent::Wave { gpu, unit, slot: slot as u8 });
            }
        }
    }

    /// The last instruction: the wavefront ends with its last access.
    fn end(&mut self, me: Access, at: Time) {
        let wave = self.wave_mut(me);
        wave.stores_end = wave.stores_end.max(at);
        self.stop(me, WaveState::Ending);
        self.wake(me);
    }

    /// A wavefront has ended; perhaps its work-group, and perhaps the launch on this GPU.
    pub(super) fn wave_end(&mut self, gpu: u8, unit: u8, slot: u8) {
        self.observe_wait(Access { gpu, unit, slot, ..Access::default() });
        self.observe(|_| Observation::WaveEnd { slot: Slot { gpu, unit, slot } });
        let state = &mut self.gpus[usize::from(gpu)];
        let cu = &mut state.units[usize::from(unit)];
        let wave = &mut cu.waves[usize::from(slot)];
        wave.state = WaveState::Idle;
        let place = wave.group;
        cu.free |= 1 << slot;
        let group = &mut cu.groups[usize::from(place)];
        group.alive -= 1;
        if group.alive > 0 {
            self.open_barrier(gpu, unit, place);
            return;
        }
        cu.resident -= 1;
        state.resident -= 1;
        self.groups_done += 1;
        self.fill(gpu);
    }

    /// Prepares the dispatch of launch `index`.
    pub(super) fn prepare(&mut self, index: u32) -> Result<(), SimError> {
        let shape = self.workload.launch(index);
        let dispatcher = Dispatcher::new(&self.spec, &*self.workload, index, shape)?;
        let (launched, jobs_left) = (0, self.gpus.len());
        self.running = Running { index, shape: Some(shape), dispatcher, launched, jobs_left };
        Ok(())
    }
}
