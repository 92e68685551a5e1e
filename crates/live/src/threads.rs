//! The runtime's own thread, the fault reader, and the beginning and the end of all threads.

use std::cell::Cell;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;

use farside_svm::Event;
use farside_types::Span;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags};

use crate::error::LiveError;
use crate::ring_card::Watched;
use crate::runtime::Runtime;
use crate::runtime::rings::RingsSleep;
use crate::watchdog::Watchdog;
use farside_linux::signals::{BlockedSignals, block_for_whole_thread};
use farside_linux::uffd::Fault;
use farside_softcard::Embedder;

/// Faults read at once.
const FAULTS: usize = 64;

/// How often in a row the fault reader looks at the cards' rings only, because they say something all
/// the time. Then it looks for page faults and everything else, which costs a system call.
const RING_TURNS_MAX: u32 = 3;

/// A running runtime; stops and joins its threads when dropped.
#[derive(Debug)]
pub struct Machine {
    runtime: Arc<Runtime>,
    reader: Option<JoinHandle<()>>,
    watchdog: Option<Watchdog>,
}

impl Machine {
    /// Starts the fault reader and `pes` processing elements per card.
    ///
    /// # Errors
    /// [`LiveError::Thread`].
    pub fn start(runtime: Runtime, pes: u16) -> Result<Machine, LiveError> {
        let runtime = runtime.share();
        let sources = Sources::new(&runtime)?;
        let mut machine = Machine { runtime: Arc::clone(&runtime), reader: None, watchdog: None };
        // New threads inherit the mask: no signal of the program ever runs on them.
        let _signals = BlockedSignals::block();
        let reader = Arc::clone(&runtime);
        let builder = std::thread::Builder::new().name("farside-faults".to_owned());
        let body = move || read_faults(&reader, sources);
        machine.reader = Some(builder.spawn(body).map_err(LiveError::Thread)?);
        machine.watchdog = Some(Watchdog::start(&runtime)?);
        let embedder: Arc<dyn Embedder> = Arc::clone(&runtime) as _;
        for card in runtime.cards_in_program() {
            card.start(&embedder, pes).map_err(LiveError::Thread)?;
        }
        runtime.make_direct_links();
        Ok(machine)
    }

    /// The runtime.
    pub fn runtime(&self) -> &Arc<Runtime> {
        &self.runtime
    }
}

impl Drop for Machine {
    /// Cancels what still runs and ends all threads. The fault reader goes last: kernels that end
    /// may need it.
    fn drop(&mut self) {
        let runtime = &self.runtime;
        let (reader, watchdog) = (self.reader.take(), self.watchdog.take());
        if runtime.check_process().is_err() {
            // In a child made by fork there are no such threads.
            watchdog.into_iter().for_each(Watchdog::forget);
            runtime.forget_keepers();
            runtime.forget_file_thread();
            return std::mem::forget(reader);
        }
        for job in runtime.open_jobs() {
            runtime.cancel(&job);
        }
        let Some(reader) = reader else { return };
        // While there are still cards to bring it from.
        runtime.disown_all();
        for card in runtime.cards_in_program() {
            card.close();
            card.join();
        }
        runtime.end_direct_links();
        runtime.dismiss_porter();
        runtime.dismiss_file_thread();
        runtime.dismiss_keepers();
        runtime.await_rings();
        runtime.closed.store(true, Ordering::SeqCst);
        runtime.ring_bell();
        let _ = reader.join();
        drop(watchdog);
        // A child made by fork may still have the descriptors: the cards are free nevertheless.
        runtime.rings().for_each(|ring| ring.drop_connection());
    }
}

thread_local! {
    static READS_FAULTS: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread is a fault reader.
pub(crate) fn is_fault_reader() -> bool {
    READS_FAULTS.get()
}

/// Reads page faults, hears the cards behind rings, and minds the clock.
fn read_faults(runtime: &Runtime, mut sources: Sources) {
    block_for_whole_thread();
    READS_FAULTS.set(true);
    runtime.pulse.is_reader();
    let mut faults = [Fault::EMPTY; FAULTS];
    let mut events = Vec::with_capacity(8);
    // Without cards behind rings a fault is to cost what it costs, and nothing for them.
    let has_rings = runtime.rings().next().is_some();
    let mut turns = 0;
    runtime.pulse.begin();
    while !runtime.closed.load(Ordering::SeqCst) {
        let mut left = runtime.look_at_clock();
        if has_rings {
            runtime.look_after_suspects();
            runtime.look_after_recalls();
            match runtime.rings_sleep() {
                RingsSleep::No if turns < RING_TURNS_MAX => {
                    turns += 1;
                    runtime.pulse.rest();
                    runtime.pulse.begin();
                    runtime.receive_all();
                    continue;
                }
                RingsSleep::No => left = Some(Span::ZERO),
                sleep => sources.look_again(sleep == RingsSleep::Look),
            }
        }
        turns = 0;
        runtime.pulse.rest();
        let has_faults = sources.wait(runtime, left, &mut events);
        if has_faults {
            read_all(runtime, &mut faults);
        }
        runtime.receive_all();
    }
}

/// Tells the driver of all page faults that are there.
fn read_all(runtime: &Runtime, faults: &mut [Fault; FAULTS]) {
    loop {
        let count = match runtime.memories.arena.uffd().read_events(faults) {
            Ok(count) => count,
            Err(error) => {
                // Without faults every thread that touches a page would hang.
                eprintln!("farside: cannot read page faults: {error}; aborting");
                std::process::abort();
            }
        };
        let Some(first) = faults[..count].first() else { return };
        runtime.pulse.serves(first);
        runtime.handle_all(
            faults[..count]
                .iter()
                .map(|fault| Event::HostFault { page: fault.addr.page(), access: fault.access }),
        );
    }
}

/// What the fault reader waits for: page faults, the bell, and of each card behind rings its
/// interrupts and, while there is one, its connection.
struct Sources {
    epoll: OwnedFd,
    /// Ends a sleep when quiet completions are to be looked for. It is set once for many faults:
    /// a limit for every sleep would cost a timer each.
    look: OwnedFd,
    look_is_set: bool,
    /// The connections that are waited for.
    watched: Vec<Option<Arc<Watched>>>,
}

/// What an event is about: two numbers for each card, its interrupts and its end, follow these.
const FAULTS_TOKEN: u64 = 0;
const BELL_TOKEN: u64 = 1;
const LOOK_TOKEN: u64 = 2;
const FIRST_CARD_TOKEN: u64 = 3;

/// How soon quiet completions are looked for. Usually the next fault or the end of the kernel brings
/// them.
const LOOK_AFTER: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };

impl Sources {
    fn new(runtime: &Runtime) -> Result<Sources, LiveError> {
        let fail = |call| move |errno| LiveError::Sources { call, errno };
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(fail("epoll_create1"))?;
        let add = |fd: BorrowedFd<'_>, token, flags| {
            epoll::add(&epoll, fd, epoll::EventData::new_u64(token), flags)
                .map_err(fail("epoll_ctl"))
        };
        let uffd = runtime.memories.arena.uffd();
        add(uffd.as_fd(), FAULTS_TOKEN, epoll::EventFlags::IN)?;
        add(runtime.bell.as_fd(), BELL_TOKEN, epoll::EventFlags::IN)?;
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let look = rustix::time::timerfd_create(TimerfdClockId::Monotonic, flags)
            .map_err(fail("timerfd_create"))?;
        add(look.as_fd(), LOOK_TOKEN, epoll::EventFlags::IN)?;
        let watched = runtime.rings().map(|_| None).collect();
        let mut sources = Sources { epoll, look, look_is_set: false, watched };
        sources.watch_connections(runtime).map_err(fail("epoll_ctl"))?;
        Ok(sources)
    }

    /// Ends a sleep soon, if quiet completions are to be looked for.
    fn look_again(&mut self, wanted: bool) {
        if !wanted || self.look_is_set {
            return;
        }
        let never = Timespec { tv_sec: 0, tv_nsec: 0 };
        let once = Itimerspec { it_interval: never, it_value: LOOK_AFTER };
        match rustix::time::timerfd_settime(&self.look, TimerfdTimerFlags::empty(), &once) {
            Ok(_) => self.look_is_set = true,
            Err(error) => tracing::error!(%error, "quiet completions wait for the next event"),
        }
    }

    /// Waits for connections that are new. Those that are gone have left by themselves.
    fn watch_connections(&mut self, runtime: &Runtime) -> Result<(), Errno> {
        let tokens = (FIRST_CARD_TOKEN + 1..).step_by(2);
        for ((ring, watched), token) in runtime.rings().zip(&mut self.watched).zip(tokens) {
            let now = ring.watched();
            let same = match (&now, &*watched) {
                (Some(now), Some(watched)) => Arc::ptr_eq(now, watched),
                (None, None) => true,
                _ => false,
            };
            if same {
                continue;
            }
            if let Some(old) = watched.take() {
                let _ = epoll::delete(&self.epoll, &old.event);
                // It may have been closed and left already.
                let _ = old.fd.as_ref().map(|fd| epoll::delete(&self.epoll, fd));
            }
            if let Some(now) = &now {
                // Each interrupt is an edge, so the count need not be read.
                let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
                let data = epoll::EventData::new_u64(token - 1);
                epoll::add(&self.epoll, &now.event, data, flags)?;
                if let Some(fd) = &now.fd {
                    let data = epoll::EventData::new_u64(token);
                    epoll::add(&self.epoll, fd, data, now.flags())?;
                }
            }
            *watched = now;
        }
        Ok(())
    }

    /// Sleeps until something happens or `left` has passed. Gives whether there are page faults.
    fn wait(
        &mut self,
        runtime: &Runtime,
        left: Option<Span>,
        events: &mut Vec<epoll::Event>,
    ) -> bool {
        let timeout = left.map(|span| Timespec {
            tv_sec: (span.as_nanos() / 1_000_000_000) as i64,
            tv_nsec: (span.as_nanos() % 1_000_000_000) as i64,
        });
        events.clear();
        // Every outcome means: look.
        let room = rustix::buffer::spare_capacity(events);
        let _ = epoll::wait(&self.epoll, room, timeout.as_ref());
        runtime.pulse.begin();
        let (mut faults, mut connections) = (false, false);
        for event in events.iter() {
            match event.data.u64() {
                FAULTS_TOKEN => faults = true,
                LOOK_TOKEN => {
                    clear(&self.look);
                    self.look_is_set = false;
                }
                BELL_TOKEN => {
                    clear(&runtime.bell);
                    connections = true;
                }
                token => {
                    let index = (token - FIRST_CARD_TOKEN) as usize;
                    let Some(ring) = runtime.rings().nth(index / 2) else { continue };
                    if index % 2 == 1 && ring.is_gone() {
                        runtime.lose(ring);
                        connections = true;
                    }
                    let watched = self.watched[index / 2].as_ref().filter(|_| index % 2 == 0);
                    if watched.is_some_and(|watched| !watched.interrupted()) {
                        runtime.suspect(ring, "it raises interrupts without end");
                        connections = true;
                    }
                }
            }
        }
        if connections {
            if let Err(error) = self.watch_connections(runtime) {
                tracing::error!(%error, "a card's connection is not watched");
            }
        }
        faults
    }
}

/// Sets an event descriptor back.
fn clear(event: &OwnedFd) {
    let mut count = [0; 8];
    let _ = rustix::io::read(event, &mut count);
}
