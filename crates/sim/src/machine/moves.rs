//! How many migrations the driver carries out at a time (`host.migrations`), and the GPUs that stand
//! still until one is over (`flush.until`).
//!
//! The driver of the published simulator handles one migration at a time (MGPUSim v3.0.0,
//! `driver/driver.go:538`, `isCurrentlyHandlingMigrationReq`); the GPUs that it has stopped go on when the pages
//! have been copied (`:747`, `prepareGPURestartReqs`). Here a migration that has to wait does so before its
//! first command, in the order in which the driver decided. A mapping of a page where it is
//! takes nothing away and copies nothing; it is no migration, and waits for none.

use std::collections::{BTreeMap, VecDeque};

use farside_svm::{ChainKey, Command, Event, HostOp, RingOp};
use farside_types::{CommandId, Epoch, Span};
use serde::{Deserialize, Serialize};

use super::{Machine, SimEvent};
use crate::gpu::Parked;
use crate::pump::Pump;

use crate::state::state;
use crate::{SimError, Spec, Until};

/// A migration: its chain, and which life of that.
type Key = (ChainKey, Epoch);

/// The migrations that are under way, and those that wait.
#[derive(Debug)]
pub(super) struct Moves {
    /// Whether anything has to be known of them.
    counted: bool,
    most: usize,
    under_way: BTreeMap<Key, Move>,
    /// Those that wait, in their order, and what they have been told to do.
    waiting: VecDeque<Key>,
    held: BTreeMap<Key, Vec<Command>>,
}

/// A migration under way.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Move {
    /// Commands that have not been answered.
    open: u32,
    /// GPUs that stand still until it is over, each once.
    stopped: Vec<u8>,
}

state!(Moves {
    values: under_way, waiting, held;
    made: counted, most;
});

impl Moves {
    pub(super) fn new(spec: &Spec) -> Moves {
        let most = spec.host.migrations.unwrap_or(u32::MAX) as usize;
        let counted = spec.host.migrations.is_some() || spec.flush.until == Until::Moved;
        Moves {
            counted,
            most,
            under_way: BTreeMap::new(),
            waiting: VecDeque::new(),
            held: BTreeMap::new(),
        }
    }

    /// Gives a command back that can be carried out now, or keeps it until its migration's turn.
    fn admit(&mut self, command: Command) -> Option<Command> {
        let header = command.header();
        let Some(chain) = ChainKey::of(header.id) else {
            return Some(command);
        };
        let key = (chain, header.epoch);
        if let Some(move_) = self.under_way.get_mut(&key) {
            move_.open += 1;
            return Some(command);
        }
        if let Some(commands) = self.held.get_mut(&key) {
            commands.push(command);
            return None;
        }
        if !moves(&command) {
            return Some(command);
        }
        if self.under_way.len() < self.most {
            self.under_way.insert(key, Move { open: 1, stopped: Vec::new() });
            return Some(command);
        }
        self.waiting.push_back(key);
        self.held.insert(key, vec![command]);
        None
    }

    /// A command has been answered, and what follows from it has been said; the GPUs that go on, if the
    /// migration is over.
    fn answered(&mut self, command: CommandId, epoch: Epoch) -> Option<Vec<u8>> {
        let key = (ChainKey::of(command)?, epoch);
        let move_ = self.under_way.get_mut(&key)?;
        move_.open -= 1;
        let over = move_.open == 0;
        over.then(|| self.under_way.remove(&key).map(|it| it.stopped))?
    }

    /// The commands of the next migration, if it may begin.
    fn next(&mut self) -> Option<Vec<Command>> {
        if self.under_way.len() >= self.most {
            return None;
        }
        let key = self.waiting.pop_front()?;
        let commands = self.held.remove(&key).unwrap_or_default();
        self.under_way.insert(key, Move { open: commands.len() as u32, stopped: Vec::new() });
        Some(commands)
    }
}

/// Whether a chain that begins with this command takes a page away or copies one.
fn moves(command: &Command) -> bool {
    match command {
        Command::Transfer(..) => true,
        Command::Host(step) => {
            matches!(step.op, HostOp::Unmap { .. } | HostOp::Protect { .. })
        }
        Command::Ring(_, step) => {
            matches!(step.op, RingOp::Unmap { .. } | RingOp::Protect { .. })
        }
    }
}

impl Machine {
    /// Carries a command out, if it is its migration's turn.
    pub(super) fn take_command(&mut self, command: Command) -> Result<(), SimError> {
        if !self.moves.counted {
            return self.carry_on(command);
        }
        match self.moves.admit(command) {
            Some(command) => self.carry_on(command),
            None => Ok(()),
        }
    }

    /// Tells the driver that a command has been carried out; the next migration may begin.
    pub(super) fn answer(&mut self, command: CommandId, epoch: Epoch) -> Result<(), SimError> {
        self.handle(Event::Done { command, epoch, result: Ok(()) })?;
        if !self.moves.counted {
            return Ok(());
        }
        let stopped = self.moves.answered(command, epoch).unwrap_or_default();
        let at = self.queue.now() + Span::from_nanos(self.spec.command.submit_ns);
        for gpu in stopped {
            self.queue.push(at, SimEvent::Restart { gpu });
        }
        while let Some(commands) = self.moves.next() {
            commands.into_iter().try_for_each(|command| self.carry_on(command))?;
        }
        Ok(())
    }

    /// Has a GPU that a command took a page from stand still until its migration is over.
    pub(super) fn stop_until_moved(&mut self, gpu: u8, command: CommandId, epoch: Epoch) {
        let Some(chain) = ChainKey::of(command) else {
            return;
        };
        let Some(move_) = self.moves.under_way.get_mut(&(chain, epoch)) else {
            return;
        };
        if !move_.stopped.contains(&gpu) {
            move_.stopped.push(gpu);
            self.gpus[usize::from(gpu)].stops += 1;
        }
    }

    /// A migration is over for which a GPU stood still.
    pub(super) fn restart(&mut self, gpu: u8) {
        let now = self.queue.now();
        let state = &mut self.gpus[usize::from(gpu)];
        state.stops -= 1;
        if state.stops > 0 {
            return;
        }
        state.counts.stalled += now.since(state.stalled_until.min(now));
        state.stalled_until = state.stalled_until.max(now);
        for event in std::mem::take(&mut state.parked) {
            let event = match event {
                Parked::Wave { unit, slot } => SimEvent::Wave { gpu, unit, slot },
                Parked::Walk { page } => SimEvent::Walked { gpu, page },
            };
            self.queue.push(now, event);
        }
    }
}
