//! The supervisor of a card: a process with one thread that never waits for a client.
//!
//! It listens, makes a process for each lease ([`super::lease`]), answers for the card's status and
//! ends it. It reads nothing that comes from a client and takes no descriptor of one: a message may
//! carry a descriptor whose closing takes as long as its sender likes. A client that comes while its
//! function is in use is told so by a process of its own ([`refusal`]). The card's owner may hand
//! functions on, and take them back ([`control`]).
//!
//! Every process that it makes is ended by the kernel when it ends itself.

mod control;
mod owner;
mod refusal;
mod status;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use farside_vfio_user::unix::{Connection, Listener, Peer};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::channel::{Channel, Message, Report};
use super::lease::{self, Client, Lease};
use super::log::Allowance;
use super::process::{self, Child};
use super::{CardConfig, FunctionStatus, HolderId, ServeError, socket_name};
use control::{Answer, ControlDesk, Request};
use refusal::Refusals;
use status::StatusDesk;

pub(super) use control::{give, take_back};
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
    /// Whom it was handed to, if it was.
    holder: Option<HolderId>,
    /// Readable once it is taken back: the process of the lease sees that.
    cut: OwnedFd,
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

    /// Ends it, whatever its client does.
    fn take_back(&self) {
        // It is full of that already, if anything.
        let _ = rustix::io::write(&self.cut, &1u64.to_ne_bytes());
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
    alive: OwnedFd,
    /// Readable when the owner has ended.
    owner_ends: OwnedFd,
    slots: Vec<Slot>,
    refusals: Refusals,
    desk: StatusDesk,
    control: ControlDesk,
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

    /// Serves the next client that has come.
    fn begin_lease(&mut self, config: &CardConfig) -> std::io::Result<()> {
        self.begin(config, None)
    }

    /// Serves whoever gets the other end of a connection: for a holder, on whose behalf a process asks.
    fn hand_on(
        &mut self,
        config: &CardConfig,
        holder: HolderId,
        asks: Peer,
    ) -> std::io::Result<OwnedFd> {
        let (ours, theirs) = Connection::pair()?;
        self.begin(config, Some((ours, holder, asks)))?;
        theirs.as_fd().try_clone_to_owned()
    }

    fn begin(
        &mut self,
        config: &CardConfig,
        given: Option<(Connection, HolderId, Peer)>,
    ) -> std::io::Result<()> {
        let (channel, theirs) = Channel::pair()?;
        let cut = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let generation = self.generation;
        let (holder, user) = given
            .as_ref()
            .map_or((None, None), |(_, holder, asks)| (Some(*holder), Some(Some(asks.pid))));
        let client = given.map_or(Client::Next(&self.listener), |(it, ..)| Client::Given(it));
        let lease = Lease {
            config,
            function: self.number,
            generation,
            client,
            channel: &theirs,
            cut: cut.as_fd(),
            supervisor: std::process::id(),
            allowance: self.allowance.share(),
        };
        // SAFETY: this process has one thread.
        let process = unsafe { process::fork(|| lease::run(lease)) }?;
        self.generation += 1;
        let (report, has_answered) = (Report::default(), false);
        self.served =
            Some(Served { process, channel, generation, holder, cut, user, report, has_answered });
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

    fn status(&self, config: &CardConfig) -> FunctionStatus {
        let served = self.served.as_ref();
        FunctionStatus {
            function: self.number,
            socket: self.socket.display().to_string(),
            user: served.and_then(|served| status::user_of(served, config)),
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
    /// The owner of the card wants something done.
    ControlCaller,
    Control,
}

impl Supervisor {
    fn new(
        config: Arc<CardConfig>,
        owner: u32,
        alive: OwnedFd,
        owner_ends: OwnedFd,
    ) -> Result<Supervisor, ServeError> {
        let slots = (0..u32::from(config.functions))
            .map(|number| Slot::bind(&config, number))
            .collect::<Result<Vec<_>, _>>()?;
        let desk = StatusDesk::open(&config)?;
        let control = ControlDesk::open(&config)?;
        let refusals = Refusals::default();
        Ok(Supervisor { config, owner, alive, owner_ends, slots, refusals, desk, control })
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
                About::Refusal | About::Status | About::Control => {}
                About::StatusCaller => self.desk.accept(&mut self.slots),
                About::ControlCaller => self.control.accept(),
            }
        }
        self.obey();
        self.refusals.look();
        let Supervisor { config, owner, slots, desk, .. } = self;
        desk.serve(slots, config, *owner);
        true
    }

    /// Sleeps until something happens; says what.
    fn wait(&self) -> Vec<About> {
        let mut wanted: Vec<(BorrowedFd<'_>, PollFlags, About)> = vec![
            // Nothing is ever sent; it hangs up.
            (self.alive.as_fd(), PollFlags::IN, About::Owner),
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
        let control = self.control.listener();
        wanted.extend(control.map(|fd| (fd, PollFlags::IN, About::ControlCaller)));
        wanted.extend(self.control.callers().map(|fd| (fd, PollFlags::IN, About::Control)));
        let mut polled: Vec<PollFd<'_>> =
            wanted.iter().map(|(fd, flags, _)| PollFd::from_borrowed_fd(*fd, *flags)).collect();
        let paused = self.slots.iter().filter_map(|slot| slot.paused).min();
        let ends = [self.refusals.next_end(), self.desk.next_end(), self.control.next_end()];
        let until = ends.into_iter().chain([paused]).flatten();
        let left = until.min().map(|at| at.saturating_duration_since(Instant::now()));
        let left = left.and_then(|left| Timespec::try_from(left).ok());
        if poll(&mut polled, left.as_ref()).is_err() {
            return Vec::new();
        }
        let happened = polled.iter().zip(&wanted).filter(|(fd, _)| !fd.revents().is_empty());
        happened.map(|(_, (_, _, about))| *about).collect()
    }

    /// Does what the owner of the card wants.
    fn obey(&mut self) {
        for (caller, request) in self.control.requests() {
            let answer = match request {
                Request::Give(holder) => self.hand_on(holder, caller.peer),
                Request::TakeBack(holder) => {
                    let served = self.slots.iter().filter_map(|slot| slot.served.as_ref());
                    let of_it = served.filter(|served| served.holder == Some(holder));
                    Answer::TakenBack(of_it.map(Served::take_back).count() as u32)
                }
            };
            caller.answer(answer);
        }
    }

    /// Hands the first function on that is free.
    fn hand_on(&mut self, holder: HolderId, asks: Peer) -> Answer {
        let Supervisor { slots, refusals, config, .. } = self;
        let mut free = slots.iter_mut().filter(|slot| slot.served.is_none());
        let Some(slot) = free.find(|slot| slot.listens(refusals)) else {
            return Answer::Refused(Errno::BUSY);
        };
        match slot.hand_on(config, holder, asks) {
            Ok(connection) => Answer::Given(connection),
            Err(error) => Answer::Refused(Errno::from_io_error(&error).unwrap_or(Errno::IO)),
        }
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
        drop(self.control);
        process::reap_all(Instant::now() + END_LIMIT);
    }
}
