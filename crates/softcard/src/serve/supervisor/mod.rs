//! The supervisor of a card: a process with one thread that never waits for a client.
//!
//! It listens, makes a process for each lease ([`super::lease`]), answers for the card's status and
//! ends it. It reads nothing that comes from a client and takes no descriptor of one: a message may
//! carry a descriptor whose closing takes as long as its sender likes. A client that comes while its
//! function is in use is told so by a process of its own ([`refusal`]).
//!
//! Every process that it makes is ended by the kernel when it ends itself.

mod owner;
mod refusal;
mod status;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use farside_vfio_user::unix::Listener;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::channel::{Channel, Message, Report};
use super::lease::{self, Lease};
use super::log::Allowance;
use super::process::{self, Child};
use super::{CardConfig, FunctionStatus, ServeError, socket_name};
use refusal::Refusals;
use status::StatusDesk;

pub(super) use owner::{Owner, start};
pub(super) use status::read_status;

/// How long the processes of leases have to go when the card ends.
const END_LIMIT: Duration = Duration::from_millis(800);

/// How long the supervisor leaves a listener alone whose client it could not take.
const PAUSE: Duration = Duration::from_millis(100);

/// A client and the processes that serve it.
#[derive(Debug)]
struct Served {
    process: Child,
    channel: Channel,
    generation: u64,
    /// The program, once it was let in; `Some(None)` where the system does not say.
    user: Option<Option<u32>>,
    /// What its worker has said last.
    report: Report,
    /// It has said that since it was last asked.
    has_answered: bool,
}

impl Served {
    /// Notes what a process of the lease says. `false` for what it has no reason to say.
    fn take_in(&mut self, message: Message) -> bool {
        match message {
            Message::Begun(user) => self.user = Some(user),
            Message::Report(report) => (self.report, self.has_answered) = (*report, true),
            Message::Ask => return false,
        }
        true
    }
}

/// One function.
#[derive(Debug)]
struct Slot {
    number: u32,
    socket: PathBuf,
    listener: Listener,
    /// Of the next lease.
    generation: u64,
    served: Option<Served>,
    allowance: Allowance,
    /// No process could be made: not to be tried again before.
    paused: Option<Instant>,
}

/// See the module.
struct Supervisor {
    config: Arc<CardConfig>,
    /// The process whose card this is.
    owner: u32,
    /// Hangs up when the card is to end.
    control: OwnedFd,
    /// Readable when the owner has ended.
    owner_ends: OwnedFd,
    slots: Vec<Slot>,
    refusals: Refusals,
    desk: StatusDesk,
}

impl Slot {
    fn bind(config: &CardConfig, number: u32) -> Result<Slot, ServeError> {
        let socket = config.folder.join(socket_name(number));
        Ok(Slot {
            number,
            listener: bind(&socket)?,
            socket,
            generation: first_generation(),
            served: None,
            allowance: Allowance::full(),
            paused: None,
        })
    }

    /// Whether somebody who comes can be dealt with now: the last one must have been let in before
    /// the next is, who would otherwise be taken for it.
    fn listens(&self, refusals: &Refusals) -> bool {
        let may_begin = match &self.served {
            None => !refusals.waits(self.number),
            Some(served) => served.user.is_some() && refusals.may_begin(self.number),
        };
        self.paused.is_none() && may_begin
    }

    fn begin_lease(&mut self, config: &CardConfig) -> std::io::Result<()> {
        let (ours, theirs) = Channel::pair()?;
        let generation = self.generation;
        let lease = Lease {
            config,
            function: self.number,
            generation,
            listener: &self.listener,
            channel: &theirs,
            supervisor: std::process::id(),
            allowance: self.allowance.share(),
        };
        // SAFETY: this process has one thread.
        let process = unsafe { process::fork(|| lease::run(lease)) }?;
        self.generation += 1;
        let (user, report) = (None, Report::default());
        let channel = ours;
        let served = Served { process, channel, generation, user, report, has_answered: false };
        self.served = Some(served);
        Ok(())
    }

    /// Takes in what the processes of the lease have said, and sees whether they have ended.
    fn look(&mut self) {
        let Some(served) = &mut self.served else { return };
        // More than there is room for is said by nobody who is asked once at a time.
        for _ in 0..4 {
            if !served.channel.receive().is_some_and(|message| served.take_in(message)) {
                break;
            }
        }
        if served.process.reap().is_some() {
            self.served = None;
        }
    }

    fn status(&self) -> FunctionStatus {
        let served = self.served.as_ref();
        FunctionStatus {
            function: self.number,
            socket: self.socket.display().to_string(),
            user: served.and_then(status::user_of),
            hung_threads: served.map_or(0, |served| served.report.hung as usize),
        }
    }
}

/// Listens at `path`. Right after the end of a server that has served there its sockets may still be
/// held, by processes that are about to end.
fn bind(path: &std::path::Path) -> Result<Listener, ServeError> {
    let until = Instant::now() + Duration::from_millis(500);
    let error = |error| ServeError::Path { path: path.to_owned(), error };
    let listener = loop {
        match Listener::bind(path) {
            Err(error)
                if error.kind() == std::io::ErrorKind::AddrInUse && Instant::now() < until =>
            {
                std::thread::sleep(Duration::from_millis(5));
            }
            other => break other.map_err(error)?,
        }
    };
    listener.set_nonblocking(true).map_err(error)?;
    Ok(listener)
}

/// Generations are never used twice, also not by the process that serves the card next: they begin
/// with the time of day.
fn first_generation() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    now.as_micros() as u64
}

/// What something that was waited for is about.
#[derive(Clone, Copy)]
enum About {
    /// The card is to end.
    Owner,
    /// A function's client, or its process.
    Newcomer(usize),
    Lease(usize),
    Refusal,
    StatusCaller,
    /// An answer of a worker, or room for one's status.
    Status,
}

impl Supervisor {
    fn new(
        config: Arc<CardConfig>,
        owner: u32,
        control: OwnedFd,
        owner_ends: OwnedFd,
    ) -> Result<Supervisor, ServeError> {
        let slots = (0..u32::from(config.functions))
            .map(|number| Slot::bind(&config, number))
            .collect::<Result<Vec<_>, _>>()?;
        let desk = StatusDesk::open(&config)?;
        let refusals = Refusals::default();
        Ok(Supervisor { config, owner, control, owner_ends, slots, refusals, desk })
    }

    /// Serves until the card is to end.
    fn run(mut self) {
        // The processes of leases come to this one when their own parents are killed.
        let own = rustix::process::getpid();
        let _ = rustix::process::set_child_subreaper(Some(own));
        while self.turn() {}
        self.end();
    }

    /// Waits, and does what there is to do. `false`: the card is to end.
    fn turn(&mut self) -> bool {
        let happened = self.wait();
        for slot in &mut self.slots {
            if slot.paused.is_some_and(|until| until <= Instant::now()) {
                slot.paused = None;
            }
        }
        for about in happened {
            match about {
                About::Owner => return false,
                About::Newcomer(index) => self.newcomer(index),
                About::Lease(index) => self.slots[index].look(),
                About::Refusal | About::Status => {}
                About::StatusCaller => self.desk.accept(&mut self.slots),
            }
        }
        self.refusals.look();
        let Supervisor { config, owner, slots, desk, .. } = self;
        desk.serve(slots, config, *owner);
        true
    }

    /// Sleeps until something happens; says what.
    fn wait(&self) -> Vec<About> {
        let mut wanted: Vec<(BorrowedFd<'_>, PollFlags, About)> = vec![
            // Nothing is ever sent; it hangs up.
            (self.control.as_fd(), PollFlags::IN, About::Owner),
            (self.owner_ends.as_fd(), PollFlags::IN, About::Owner),
        ];
        let asks = self.desk.is_waiting();
        for (index, slot) in self.slots.iter().enumerate() {
            if slot.listens(&self.refusals) {
                wanted.push((slot.listener.as_fd(), PollFlags::IN, About::Newcomer(index)));
            }
            if let Some(served) = &slot.served {
                wanted.push((served.process.as_fd(), PollFlags::IN, About::Lease(index)));
                // A worker is heard when it was asked: one that talks all the time finds no ear.
                if served.user.is_none() || (asks && !served.has_answered) {
                    wanted.push((served.channel.as_fd(), PollFlags::IN, About::Lease(index)));
                }
            }
        }
        wanted.extend(self.refusals.handles().map(|fd| (fd, PollFlags::IN, About::Refusal)));
        wanted.extend(self.desk.listener().map(|fd| (fd, PollFlags::IN, About::StatusCaller)));
        wanted.extend(self.desk.readers().map(|fd| (fd, PollFlags::OUT, About::Status)));
        let mut polled: Vec<PollFd<'_>> =
            wanted.iter().map(|(fd, flags, _)| PollFd::from_borrowed_fd(*fd, *flags)).collect();
        let paused = self.slots.iter().filter_map(|slot| slot.paused).min();
        let until = [paused, self.refusals.next_end(), self.desk.next_end()].into_iter().flatten();
        let left = until.min().map(|at| at.saturating_duration_since(Instant::now()));
        let left = left.and_then(|left| Timespec::try_from(left).ok());
        if poll(&mut polled, left.as_ref()).is_err() {
            return Vec::new();
        }
        let happened = polled.iter().zip(&wanted).filter(|(fd, _)| !fd.revents().is_empty());
        happened.map(|(_, (_, _, about))| *about).collect()
    }

    fn newcomer(&mut self, index: usize) {
        let slot = &mut self.slots[index];
        let begun = match slot.served {
            None => slot.begin_lease(&self.config),
            Some(_) => self.refusals.begin(slot.number, &slot.listener),
        };
        if let Err(error) = begun {
            slot.paused = Some(Instant::now() + PAUSE);
            if slot.allowance.take_line() {
                tracing::error!(function = slot.number, %error, "no process for a client");
            }
        }
    }

    /// Ends every lease, and gives the sockets up.
    fn end(self) {
        for served in self.slots.iter().filter_map(|slot| slot.served.as_ref()) {
            // Its worker ends with it.
            served.process.kill();
        }
        self.refusals.kill_all();
        // Nobody connects to a card that is going.
        drop(self.slots);
        drop(self.desk);
        process::reap_all(Instant::now() + END_LIMIT);
    }
}
