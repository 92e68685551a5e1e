//! The process that serves one client: a function's one life.
//!
//! It begins with the client's connection and ends with it. Everything that comes from the client,
//! bytes, descriptors, memory, kernels' arguments, is touched here and in no process that outlives
//! the lease. Before the first byte is read it can do no more than that: see [`sandbox`].
//!
//! The first thread serves messages and, while no processing element does, the doorbell. Nothing of
//! a client makes it wait: its socket does not block, its commands are taken piece by piece.

mod limits;
mod talk;

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use farside_vfio_user::Server;
use farside_vfio_user::unix::{
    Connection, Interrupts, Ready as Wakeful, Session, SessionError, Wanted,
};
use rustix::buffer::spare_capacity;
use rustix::event::{EventfdFlags, Timespec, epoll};

use super::channel::{Channel, Message};
use super::device::{FunctionDevice, config_space, describe};
use super::leased_function::LeasedFunction;
use super::{CardConfig, ServeError, process, stray};
use farside_linux::card_memory::CardMemory;

use talk::Talk;

pub use limits::LeaseLimits;
pub(crate) use limits::SPARE_THREADS_MAX;
pub(super) use limits::WINDOWS_MAX;

/// How long a client has for its first message, VERSION. Afterwards it may be silent as long as it
/// likes: an idle program keeps its card.
const VERSION_LIMIT: Duration = Duration::from_secs(2);

/// How long a client may leave answers unread.
const SEND_LIMIT: Duration = Duration::from_secs(1);

/// What a worker begins with.
pub(super) struct Begun<'a> {
    pub(super) config: &'a CardConfig,
    pub(super) function: u32,
    pub(super) generation: u64,
    /// The process of the lease, which has made this one.
    pub(super) own: u32,
}

/// Serves the client until it goes. Gives the process's exit code.
pub(super) fn run(
    begun: &Begun<'_>,
    connection: &Connection,
    channel: &Channel,
    memory: &OwnedFd,
    log: &OwnedFd,
) -> i32 {
    if !process::die_with(begun.own) || rustix::stdio::dup2_stderr(log).is_err() {
        return 1;
    }
    process::keep_only(&[connection.as_fd(), channel.as_fd(), memory.as_fd()]);
    process::set_name(&format!("farside-fn{}", begun.function));
    match Worker::new(begun, connection, channel, memory) {
        Ok(mut worker) => {
            worker.serve();
            worker.end();
            0
        }
        Err(error) => {
            tracing::error!(%error, "a client cannot be served");
            1
        }
    }
}

/// What an event is about.
const WAKE: u64 = 1;
const MESSAGE: u64 = 2;
const DOORBELL: u64 = 3;
const ASKED: u64 = 4;

struct Worker<'a> {
    function: u32,
    leased: Arc<LeasedFunction>,
    device: FunctionDevice,
    talk: Talk,
    /// The connection once more, to be waited for.
    socket: OwnedFd,
    channel: &'a Channel,
    epoll: OwnedFd,
    /// What is asked of the connection now.
    interest: epoll::EventFlags,
    /// When a client that has not said its version is given up.
    version_until: Option<Instant>,
}

impl<'a> Worker<'a> {
    /// Prepares everything, then gives up every right that serving does not need.
    fn new(
        begun: &Begun<'_>,
        connection: &Connection,
        channel: &'a Channel,
        memory: &OwnedFd,
    ) -> Result<Worker<'a>, ServeError> {
        let Begun { config, function, generation, .. } = *begun;
        let os = ServeError::Worker;
        limits::prefer_to_kill();
        let connection = connection.try_clone().map_err(os)?;
        connection.set_nonblocking(true).map_err(os)?;
        connection.set_time_limit(Some(SEND_LIMIT)).map_err(os)?;
        let space = config_space(config.all_frames());
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let wake = rustix::event::eventfd(0, flags)?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let add = |fd: std::os::fd::BorrowedFd<'_>, token| {
            epoll::add(&epoll, fd, epoll::EventData::new_u64(token), epoll::EventFlags::IN)
        };
        add(wake.as_fd(), WAKE)?;
        let socket = connection.as_fd().try_clone_to_owned().map_err(os)?;
        add(socket.as_fd(), MESSAGE)?;
        add(channel.as_fd(), ASKED)?;
        let memory = memory.try_clone().map_err(os)?;
        let memory = CardMemory::over(memory, 0, config.all_frames())?;
        let interrupts = Interrupts::new(&space.describe());
        let leased = LeasedFunction::new(config, function, generation, memory, wake, interrupts)?;
        let info = describe(&space, &leased).map_err(os)?;
        let server = Server::new(info, limits::of_engine())
            .map_err(|error| os(std::io::Error::other(error)))?
            .with_capabilities(talk::agree(Arc::downgrade(&leased)));
        leased.doorbell().wake_thread(epoll.as_fd(), DOORBELL)?;
        let device = FunctionDevice::new(Arc::clone(&leased), space);
        // Counted here, because the files that tell cannot be opened later.
        farside_linux::affinity::cpu_count();
        stray::watch(leased.windows.bus()).map_err(os)?;
        limits::set(config).map_err(os)?;
        farside_linux::sandbox::enter(&[]).map_err(|error| os(std::io::Error::other(error)))?;
        Ok(Worker {
            function,
            leased,
            device,
            talk: Talk::new(Session::new(connection, server)),
            socket,
            channel,
            epoll,
            interest: epoll::EventFlags::IN,
            version_until: Some(Instant::now() + VERSION_LIMIT),
        })
    }

    fn serve(&mut self) {
        loop {
            let late = [self.leased.give_up_late_jobs(), self.leased.look_at_quota()];
            let ready = self.wait(late.into_iter().flatten().min());
            if ready.asked {
                self.report();
            }
            if ready.doorbell || self.leased.take_more() {
                self.leased.serve_doorbell();
            }
            if ready.message && !self.serve_messages() {
                return;
            }
            if let Some(why) = self.given_up() {
                tracing::warn!(function = self.function, "a lease ends: {why}");
                return;
            }
        }
    }

    /// Why the lease ends without the client's wish, if it does.
    fn given_up(&self) -> Option<&'static str> {
        if self.version_until.is_some_and(|until| until <= Instant::now()) {
            return Some("its client does not say its version");
        }
        self.leased.over_quota()
    }

    /// Sleeps until there is something to do, or `late` has come, or the client has had its time.
    fn wait(&mut self, late: Option<Instant>) -> Ready {
        let wanted = self.wanted();
        let now = wanted.at_once.then(Instant::now);
        let next = [late, self.version_until, wanted.deadline, now].into_iter().flatten().min();
        let left = next.map(|at| at.saturating_duration_since(Instant::now()));
        let timeout = left.and_then(|left| Timespec::try_from(left).ok());
        let mut events: Vec<epoll::Event> = Vec::with_capacity(4);
        // Every outcome means: look.
        let _ = epoll::wait(&self.epoll, spare_capacity(&mut events), timeout.as_ref());
        let expired = wanted.deadline.is_some_and(|at| at <= Instant::now());
        let mut ready = Ready { message: wanted.at_once || expired, ..Ready::default() };
        for event in &events {
            match event.data.u64() {
                MESSAGE => ready.message = true,
                DOORBELL => ready.doorbell = true,
                ASKED => ready.asked = true,
                _ => self.leased.was_woken(),
            }
        }
        ready
    }

    /// What the engine can go on with; `epoll` is told. A client that does not read is not listened
    /// to either.
    fn wanted(&mut self) -> Wanted {
        // Where the stream fails, serving it tells why.
        let broken = Wanted { at_once: true, ready: Wakeful::default(), deadline: None };
        let wanted = self.talk.wanted().unwrap_or(broken);
        let mut interest = epoll::EventFlags::empty();
        interest.set(epoll::EventFlags::IN, wanted.ready.readable);
        interest.set(epoll::EventFlags::OUT, wanted.ready.writable);
        let data = epoll::EventData::new_u64(MESSAGE);
        if interest != self.interest
            && epoll::modify(&self.epoll, &self.socket, data, interest).is_ok()
        {
            self.interest = interest;
        }
        wanted
    }

    /// Serves what has come; `false` when the client is gone, or has broken the protocol.
    fn serve_messages(&mut self) -> bool {
        let goes_on = match self.talk.step(&mut self.device) {
            Ok(goes_on) => goes_on,
            // Nothing had come after all.
            Err(SessionError::Io(error)) if is_idle(&error) && !self.is_late() => true,
            Err(error) => {
                tracing::warn!(function = self.function, %error, "a connection ends");
                false
            }
        };
        if self.leased.needs_messages() {
            self.talk.share(&self.leased);
        }
        if self.talk.is_negotiated() {
            self.version_until = None;
        }
        goes_on
    }

    /// Whether the client has had its time to read its answers.
    fn is_late(&self) -> bool {
        let wanted = self.talk.wanted();
        wanted.is_ok_and(|wanted| wanted.deadline.is_some_and(|at| at <= Instant::now()))
    }

    /// Tells the supervisor what goes on here.
    fn report(&self) {
        while let Some(message) = self.channel.receive() {
            if message == Message::Ask {
                self.channel.send(&Message::Report(Box::new(self.leased.report())));
            }
        }
    }

    /// The client is gone, or given up. When it sees the end of the connection, nothing reaches its
    /// memory any more. Kernels have some time to see that they are not wanted.
    fn end(self) {
        self.leased.fence();
        self.talk.shutdown();
        let hung = self.leased.end();
        if hung > 0 {
            tracing::error!(
                function = self.function,
                hung,
                "kernels of a client that is gone do not stop; they end with their process"
            );
        }
    }
}

fn is_idle(error: &std::io::Error) -> bool {
    error.kind() == std::io::ErrorKind::WouldBlock
}

/// What there is to do.
#[derive(Default)]
struct Ready {
    message: bool,
    doorbell: bool,
    asked: bool,
}
