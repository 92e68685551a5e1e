//! The thread of one function: waits for a client, serves it, cleans up behind it.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use farside_vfio_user::unix::{Connection, Interrupts, Listener, Peer, Session, Wanted};
use farside_vfio_user::{Errno, Limits, Server};
use rustix::buffer::spare_capacity;
use rustix::event::{EventfdFlags, Timespec, epoll};

use super::device::{FunctionDevice, config_space, describe};
use super::plane::Plane;
use super::{CardConfig, ServeError, socket_name};
use farside_linux::lock::lock;
use farside_linux::signals::block_for_whole_thread;

/// How long a client may take to read what it is sent.
const SEND_LIMIT: Duration = Duration::from_secs(1);

/// Clients that are told at the same time that the function is in use.
const REFUSED_MAX: usize = 8;

/// What others may see of a function.
#[derive(Debug)]
pub(super) struct Life {
    pub(super) number: u32,
    pub(super) socket: PathBuf,
    /// Present while there is a client.
    pub(super) now: Mutex<Option<(Arc<Plane>, Option<Peer>)>>,
    /// Lives so far; also the generation of the next.
    pub(super) generation: AtomicU64,
    /// Threads of former lives whose kernels hang.
    pub(super) hung: AtomicUsize,
    closing: AtomicBool,
    wake: OwnedFd,
}

/// A function that is being served; ends when dropped.
#[derive(Debug)]
pub(super) struct FunctionThread {
    life: Arc<Life>,
    thread: Option<JoinHandle<()>>,
}

impl FunctionThread {
    pub(super) fn start(config: &Arc<CardConfig>, number: u32) -> Result<Self, ServeError> {
        let socket = config.folder.join(socket_name(number));
        let path = |error| ServeError::Path { path: socket.clone(), error };
        let listener = Listener::bind(&socket).map_err(path)?;
        listener.set_nonblocking(true).map_err(path)?;
        let wake = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let life = Arc::new(Life {
            number,
            socket: socket.clone(),
            now: Mutex::new(None),
            generation: AtomicU64::new(first_generation()),
            hung: AtomicUsize::new(0),
            closing: AtomicBool::new(false),
            wake,
        });
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let add = |fd: BorrowedFd<'_>, token| {
            epoll::add(&epoll, fd, epoll::EventData::new_u64(token), epoll::EventFlags::IN)
        };
        add(listener.as_fd(), NEWCOMER)?;
        add(life.wake.as_fd(), WAKE)?;
        let host = Host { config: Arc::clone(config), life: Arc::clone(&life), listener, epoll };
        let name = format!("farside-fn{number}");
        let thread = std::thread::Builder::new()
            .name(name)
            .spawn(move || {
                block_for_whole_thread();
                host.run();
            })
            .map_err(ServeError::Thread)?;
        Ok(FunctionThread { life, thread: Some(thread) })
    }

    pub(super) fn life(&self) -> Arc<Life> {
        Arc::clone(&self.life)
    }
}

impl Drop for FunctionThread {
    fn drop(&mut self) {
        self.life.closing.store(true, Ordering::SeqCst);
        let _ = rustix::io::write(&self.life.wake, &1u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Generations are never used twice, also not by the process that serves the card next: they begin
/// with the time of day.
fn first_generation() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    now.as_micros() as u64
}

struct Host {
    config: Arc<CardConfig>,
    life: Arc<Life>,
    listener: Listener,
    epoll: OwnedFd,
}

/// One client.
struct Client {
    session: Session,
    device: FunctionDevice,
    plane: Arc<Plane>,
    /// What of the connection is waited for.
    interest: epoll::EventFlags,
}

impl Host {
    fn run(&self) {
        let mut client: Option<Client> = None;
        let refused = Arc::new(AtomicUsize::new(0));
        while !self.life.closing.load(Ordering::SeqCst) {
            let late = client.as_ref().and_then(|client| client.plane.give_up_late_jobs());
            let wanted = client.as_mut().map(|client| client.wanted(self.epoll.as_fd()));
            let ready = self.wait(late, wanted);
            if let Some(client) = client.as_ref().filter(|_| ready.doorbell) {
                client.plane.serve_doorbell();
            }
            if ready.message && !client.as_mut().is_some_and(Client::serve) {
                // The former client is cleaned up after before anybody else is let in.
                self.end(client.take());
            }
            if ready.newcomer {
                match client {
                    None => client = self.accept(),
                    Some(_) => self.refuse(&refused),
                }
            }
        }
        self.end(client.take());
    }

    /// Waits until there is something to do: at the latest until `late`, or until the client has had
    /// its time to read.
    fn wait(&self, late: Option<Instant>, wanted: Option<Wanted>) -> Ready {
        let deadline = wanted.and_then(|wanted| wanted.deadline);
        let at_once = wanted.is_some_and(|wanted| wanted.at_once);
        let now = at_once.then(Instant::now);
        let next = [late, deadline, now].into_iter().flatten().min();
        let left = next.map(|at| at.saturating_duration_since(Instant::now()));
        let timeout = left.and_then(|left| Timespec::try_from(left).ok());
        let mut events: Vec<epoll::Event> = Vec::with_capacity(4);
        // Every outcome means: look.
        let _ = epoll::wait(&self.epoll, spare_capacity(&mut events), timeout.as_ref());
        let expired = deadline.is_some_and(|at| at <= Instant::now());
        let mut ready = Ready { message: at_once || expired, ..Ready::default() };
        for event in &events {
            match event.data.u64() {
                NEWCOMER => ready.newcomer = true,
                MESSAGE => ready.message = true,
                DOORBELL => ready.doorbell = true,
                _ => {
                    let _ = rustix::io::read(&self.life.wake, &mut [0; 8]);
                }
            }
        }
        ready
    }

    fn accept(&self) -> Option<Client> {
        let connection = self.listener.accept().ok()?;
        match self.begin(connection) {
            Ok(client) => Some(client),
            Err(error) => {
                tracing::error!(function = self.life.number, %error, "a client cannot be served");
                None
            }
        }
    }

    fn begin(&self, connection: Connection) -> Result<Client, ServeError> {
        let path = |error| ServeError::Path { path: self.life.socket.clone(), error };
        connection.set_time_limit(Some(SEND_LIMIT)).map_err(path)?;
        let config = config_space(self.config.frames);
        let generation = self.life.generation.fetch_add(1, Ordering::SeqCst);
        let wake = self.life.wake.try_clone().map_err(path)?;
        let interrupts = Interrupts::new(&config.describe());
        let plane = Plane::new(&self.config, self.life.number, generation, wake, interrupts)?;
        let info = describe(&config, &plane).map_err(path)?;
        let server = Server::new(info, Limits::default())
            .map_err(|error| path(std::io::Error::other(error)))?;
        let (message, data) = (epoll::EventFlags::IN, epoll::EventData::new_u64(MESSAGE));
        epoll::add(&self.epoll, &connection, data, message)?;
        plane.doorbell().wake_thread(self.epoll.as_fd(), DOORBELL)?;
        let peer = connection.peer().ok();
        tracing::info!(function = self.life.number, generation, ?peer, "a client has come");
        *lock(&self.life.now) = Some((Arc::clone(&plane), peer));
        let device = FunctionDevice::new(Arc::clone(&plane), config);
        let session = Session::new(connection, server);
        Ok(Client { session, device, plane, interest: message })
    }

    /// Tells a client that the function is in use, on a thread of its own: it may be slow to listen.
    fn refuse(&self, refused: &Arc<AtomicUsize>) {
        let Ok(connection) = self.listener.accept() else { return };
        if refused.fetch_add(1, Ordering::SeqCst) >= REFUSED_MAX {
            refused.fetch_sub(1, Ordering::SeqCst);
            return;
        }
        let count = Arc::clone(refused);
        let body = move || {
            block_for_whole_thread();
            if connection.set_time_limit(Some(SEND_LIMIT)).is_ok() {
                let server = Server::refusing(Errno::BUSY, Limits::default());
                let mut session = Session::new(connection, server);
                // It ends with the refusal, which the client is told.
                let _ = session.run(&mut Nothing);
            }
            count.fetch_sub(1, Ordering::SeqCst);
        };
        if std::thread::Builder::new().name("farside-refuse".into()).spawn(body).is_err() {
            refused.fetch_sub(1, Ordering::SeqCst);
        }
    }

    fn end(&self, client: Option<Client>) {
        let Some(Client { session, device, plane, .. }) = client else { return };
        plane.doorbell().leave_thread(self.epoll.as_fd());
        let _ = epoll::delete(&self.epoll, &session);
        // First of all: when the client sees the end of the connection, it uses its memory for
        // something else.
        plane.fence();
        drop(session);
        lock(&self.life.now).take();
        let hung = plane.end();
        if hung > 0 {
            tracing::error!(
                function = self.life.number,
                hung,
                "kernels of a client that is gone do not stop; they keep their threads and what \
                 they hold, which nobody else has"
            );
            self.life.hung.fetch_add(hung, Ordering::SeqCst);
        }
        drop(device);
        tracing::info!(function = self.life.number, "a client has gone");
    }
}

/// What an event is about.
const NEWCOMER: u64 = 0;
const WAKE: u64 = 1;
const MESSAGE: u64 = 2;
const DOORBELL: u64 = 3;

/// What there is to do.
#[derive(Default)]
struct Ready {
    newcomer: bool,
    message: bool,
    doorbell: bool,
}

impl Client {
    /// What to wait for; `epoll` is told. A client that does not read is not listened to either.
    fn wanted(&mut self, epoll: BorrowedFd<'_>) -> Wanted {
        // Where the stream fails, serving it tells why.
        let broken = Wanted {
            at_once: true,
            ready: farside_vfio_user::unix::Ready::default(),
            deadline: None,
        };
        let wanted = self.session.wanted().unwrap_or(broken);
        let mut interest = epoll::EventFlags::empty();
        interest.set(epoll::EventFlags::IN, wanted.ready.readable);
        interest.set(epoll::EventFlags::OUT, wanted.ready.writable);
        let data = epoll::EventData::new_u64(MESSAGE);
        if interest != self.interest && epoll::modify(epoll, &self.session, data, interest).is_ok()
        {
            self.interest = interest;
        }
        wanted
    }

    /// Serves what has come; `false` when the client is gone, or has broken the protocol.
    fn serve(&mut self) -> bool {
        match self.session.step(&mut self.device) {
            Ok(goes_on) => goes_on,
            Err(error) => {
                tracing::warn!(%error, "a connection ends");
                false
            }
        }
    }
}

/// The device of a client that is refused: it never gets as far as to use one.
struct Nothing;

impl farside_vfio_user::server::Device for Nothing {
    fn region_read(&mut self, _: u32, _: u64, _: &mut [u8]) -> Result<(), Errno> {
        Err(Errno::NODEV)
    }

    fn region_write(
        &mut self,
        _: &mut farside_vfio_user::server::Bus<'_>,
        _: u32,
        _: u64,
        _: &[u8],
    ) -> Result<(), Errno> {
        Err(Errno::NODEV)
    }
}

impl AsFd for Client {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.session.as_fd()
    }
}
