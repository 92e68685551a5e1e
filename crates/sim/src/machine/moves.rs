//! How many migrations the driver carries out at a time (`host.migrations`), the GPUs that stand still until
//! one is over (`flush.until`), and the accesses to other memories that wait for its end (`flush.far`).
//!
//! The driver of the published simulator handles one migration at a time (MGPUSim v3.0.0,
//! `driver/driver.go:538`, `isCurrentlyHandlingMigrationReq`); the GPUs that it has stopped go on when the pages
//! have been copied (`:747`, `prepareGPURestartReqs`). Before all that it drains every GPU's port to the others
//! (`:561`, `initiateRDMADrain`), and opens them last (`:802`). Here a migration that has to wait does so before its
//! first command, in the order in which the driver decided. A mapping of a page where it is
//! takes nothing away and copies nothing; it is no migration, and waits for none, which is assumed
//! ([`crate::HostSpec::migrations`]).
//!
//! What is posted to an idle card nobody waits for: the ring's order has the card carry it out before it runs again. So a
//! launch stays behind what was posted to its card before and waits for its migration's turn.

use std::collections::{BTreeMap, VecDeque};

use farside_svm::{ChainKey, Command, Event, HostOp, RingOp, Step, Wait};
use farside_types::{CommandId, Epoch, Span, Time};
use serde::{Deserialize, Serialize};

use super::access::Access;
use super::{Machine, SimEvent};
use crate::gpu::Parked;
use crate::observe::WaitsFor;
use crate::pump::Pump;
use crate::state::state;
use crate::{Far, SimError, Spec, Told, Until};

/// A migration: its chain, and which life of that.
type Key = (ChainKey, Epoch);

/// The migrations that are under way, and those that wait.
#[derive(Debug)]
pub(super) struct Moves {
    /// Whether anything has to be known of them.
    counted: bool,
    most: usize,
    /// The driver's own time for one, before its first command.
    own: Span,
    /// While one goes on, accesses to other memories wait.
    closes: bool,
    under_way: BTreeMap<Key, Move>,
    /// Those that wait, in their order, and what those that have not begun have been told to do.
    waiting: VecDeque<Key>,
    held: BTreeMap<Key, Vec<Command>>,
    /// Launches behind something that is held and was posted to their card: nobody waits for it, since the card
    /// was to have it before it runs again.
    launches: Vec<Command>,
    /// Accesses to other memories that wait, and when the last of those under way is over.
    far: Vec<Access>,
    far_until: Time,
}

/// A migration under way.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Move {
    /// Its commands are carried out.
    begun: bool,
    /// Commands that have not been answered.
    open: u32,
    /// Every GPU has been told of it (`flush.counter`).
    told: bool,
    /// GPUs that stand still until it is over, each once.
    stopped: Vec<u8>,
}

state!(Moves {
    values: under_way, waiting, held, launches, far, far_until;
    made: counted, most, own, closes;
});

impl Moves {
    pub(super) fn new(spec: &Spec) -> Moves {
        let most = spec.host.migrations.unwrap_or(u32::MAX) as usize;
        let closes = spec.flush.far == Far::Closed;
        let flush = &spec.flush;
        let counted = spec.host.migrations.is_some()
            || spec.host.migration_ns > 0
            || closes
            || flush.until == Until::Moved
            || flush.counter == Told::All;
        Moves {
            counted,
            most,
            own: Span::from_nanos(spec.host.migration_ns),
            closes,
            under_way: BTreeMap::new(),
            waiting: VecDeque::new(),
            held: BTreeMap::new(),
            launches: Vec::new(),
            far: Vec::new(),
            far_until: Time::ZERO,
        }
    }

    /// Whether accesses to other memories have to wait.
    pub(super) fn are_closed(&self) -> bool {
        self.closes && !self.under_way.is_empty()
    }

    /// An access to another memory is under way until `end`.
    pub(super) fn far_until(&mut self, end: Time) {
        self.far_until = self.far_until.max(end);
    }

    /// Whether every GPU has to be told of the migration of a command, which is then done.
    pub(super) fn tell(&mut self, command: CommandId, epoch: Epoch) -> bool {
        let key = ChainKey::of(command).map(|chain| (chain, epoch));
        let move_ = key.and_then(|key| self.under_way.get_mut(&key));
        move_.is_some_and(|it| !std::mem::replace(&mut it.told, true))
    }

    /// Gives a command back that can be carried out now, or keeps it until its migration's turn.
    fn admit(&mut self, command: Command) -> Option<Command> {
        if self.holds_up(&command) {
            self.launches.push(command);
            return None;
        }
        let header = command.header();
        let Some(chain) = ChainKey::of(header.id) else {
            return Some(command);
        };
        let key = (chain, header.epoch);
        if let Some(move_) = self.under_way.get_mut(&key) {
            move_.open += 1;
            if move_.begun {
                return Some(command);
            }
        }
        if let Some(commands) = self.held.get_mut(&key) {
            commands.push(command);
            return None;
        }
        if !moves(&command) {
            return Some(command);
        }
        self.waiting.push_back(key);
        self.held.insert(key, vec![command]);
        None
    }

    /// Whether a launch is behind something that is held and was posted to its card.
    fn holds_up(&self, command: &Command) -> bool {
        let Command::Ring(card, Step { op: RingOp::Launch { .. }, .. }) = command else {
            return false;
        };
        let posted = |held: &Command| match held {
            Command::Ring(on, step) => on == card && step.header.wait == Wait::Posted,
            Command::Host(_) | Command::Transfer(..) => false,
        };
        self.held.values().flatten().any(posted)
    }

    /// The launches that nothing holds up any more.
    fn launches(&mut self) -> Vec<Command> {
        let launches = std::mem::take(&mut self.launches);
        let (held_up, ready) = launches.into_iter().partition(|launch| self.holds_up(launch));
        self.launches = held_up;
        ready
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

    /// The next migration, if it is its turn, which is under way from now on.
    fn next(&mut self) -> Option<Key> {
        if self.under_way.len() >= self.most {
            return None;
        }
        let key = self.waiting.pop_front()?;
        let open = self.held.get(&key).map_or(0, Vec::len) as u32;
        self.under_way.insert(key, Move { open, ..Move::default() });
        Some(key)
    }

    /// The commands of a migration that begins.
    fn begin(&mut self, key: Key) -> Vec<Command> {
        if let Some(move_) = self.under_way.get_mut(&key) {
            move_.begun = true;
        }
        self.held.remove(&key).unwrap_or_default()
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
            None => self.next_moves(),
        }
    }

    /// Has the next migrations begin, as many as may: each when the driver's own time for it has passed and
    /// accesses to other memories, if they have to wait, are over.
    fn next_moves(&mut self) -> Result<(), SimError> {
        while let Some(key) = self.moves.next() {
            let now = self.queue.now();
            let drained = if self.moves.closes { self.moves.far_until } else { now };
            let begins = drained.max(now + self.moves.own);
            if begins > now {
                let (chain, epoch) = key;
                self.queue.push(begins, SimEvent::MoveBegins { chain, epoch });
            } else {
                self.move_begins(key)?;
            }
        }
        Ok(())
    }

    pub(super) fn move_begins(&mut self, key: (ChainKey, Epoch)) -> Result<(), SimError> {
        let mut commands = self.moves.begin(key);
        commands.extend(self.moves.launches());
        commands.into_iter().try_for_each(|command| self.carry_on(command))
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
        if !self.moves.are_closed() {
            std::mem::take(&mut self.moves.far).into_iter().for_each(|access| self.go_far(access));
        }
        self.next_moves()
    }

    /// Has an access to another memory wait until no migration goes on; `pending` says whether its
    /// wavefront knows that it waits.
    pub(super) fn wait_for_moves(&mut self, access: Access, page: u32, pending: bool) {
        if !pending {
            self.pend(access);
        }
        self.wave_mut(access).waits(WaitsFor::Remote, page);
        self.moves.far.push(access);
    }

    /// No migration goes on: an access that waited takes the translation that there is now.
    fn go_far(&mut self, access: Access) {
        let page = self.page_of(access.line);
        match self.usable(access, page) {
            Some(memory) => self.proceed(access, page, memory, self.queue.now(), true),
            None => self.raise(access, page),
        }
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
