//! The doorbell of a function, and who listens to it.
//!
//! Usually the function's own thread does. A processing element that stands in a fault takes over:
//! the commands that serve its fault come by the doorbell, and so it wakes at once instead of being
//! woken by another thread. One listens at a time.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;

use crate::lock::lock;

/// See the module.
#[derive(Debug)]
pub(super) struct Doorbell {
    /// The client adds to it.
    event: OwnedFd,
    /// Where a processing element listens. Each ring is an edge, so the count need not be read.
    own: OwnedFd,
    /// Where the function's thread listens, and the token it wants.
    thread: Mutex<Option<(OwnedFd, u64)>>,
    taken: AtomicBool,
}

/// A processing element listens, until this is dropped.
pub(super) struct Listening<'a>(&'a Doorbell);

impl Doorbell {
    pub(super) fn new(event: OwnedFd) -> Result<Doorbell, Errno> {
        let own = epoll::create(CreateFlags::CLOEXEC)?;
        epoll::add(&own, &event, EventData::new_u64(0), EventFlags::IN | EventFlags::ET)?;
        Ok(Doorbell { event, own, thread: Mutex::new(None), taken: AtomicBool::new(false) })
    }

    /// Has it wake the function's thread, as the event `token` of `epoll`.
    pub(super) fn wake_thread(&self, epoll: BorrowedFd<'_>, token: u64) -> std::io::Result<()> {
        let mut thread = lock(&self.thread);
        epoll::add(epoll, &self.event, EventData::new_u64(token), EventFlags::IN)?;
        *thread = Some((epoll.try_clone_to_owned()?, token));
        Ok(())
    }

    /// Has it wake the function's thread no more.
    pub(super) fn leave_thread(&self) {
        if let Some((epoll, _)) = lock(&self.thread).take() {
            let _ = epoll::delete(&epoll, &self.event);
        }
    }

    /// Takes the doorbell over from the function's thread; `None` if another has.
    pub(super) fn take_over(&self) -> Option<Listening<'_>> {
        if self.taken.swap(true, Ordering::SeqCst) {
            return None;
        }
        self.listen_on_thread(false);
        Some(Listening(self))
    }

    fn listen_on_thread(&self, on: bool) {
        let flags = if on { EventFlags::IN } else { EventFlags::empty() };
        if let Some((epoll, token)) = &*lock(&self.thread) {
            // Where the doorbell has rung meanwhile this reports it, so no ring is lost.
            let _ = epoll::modify(epoll, &self.event, EventData::new_u64(*token), flags);
        }
    }

    /// Sleeps until it rings. For the one who has taken it over.
    pub(super) fn wait(&self) {
        let mut events = Vec::with_capacity(1);
        // Every outcome means: look.
        let _ = epoll::wait(&self.own, rustix::buffer::spare_capacity(&mut events), None);
    }

    /// Sets it back; the rings before are going to be served.
    pub(super) fn clear(&self) {
        let _ = rustix::io::read(&self.event, &mut [0; 8]);
    }

    /// Wakes the one who has taken it over, if somebody has.
    pub(super) fn nudge(&self) {
        if self.taken.load(Ordering::SeqCst) {
            let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
        }
    }
}

impl AsFd for Doorbell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

impl Drop for Listening<'_> {
    fn drop(&mut self) {
        // A ring that nobody has served is still in the count, and wakes the thread.
        self.0.listen_on_thread(true);
        self.0.taken.store(false, Ordering::SeqCst);
    }
}
