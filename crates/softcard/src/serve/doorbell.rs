//! The doorbell of a function, and who listens to it.
//!
//! Usually the function's own thread does. A processing element that stands in a fault listens as
//! well: the commands that serve its fault come by the doorbell, and so it wakes at once instead of
//! being woken by another thread.
//!
//! One ring wakes one of them. Both wait in an epoll of their own, each for the doorbell
//! exclusively, and the element's was first: the kernel offers a ring to it, and where nobody waits
//! in it (`ep_poll_callback` of Linux tells) goes on to the thread's. Each ring is an edge, and the
//! count is never read: set back by one of them, it would make the other's edge look like none.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;

/// See the module.
#[derive(Debug)]
pub(super) struct Doorbell {
    /// The client adds to it.
    event: OwnedFd,
    /// Where a processing element listens.
    own: OwnedFd,
    /// An element listens.
    taken: AtomicBool,
}

/// A processing element listens, until this is dropped.
pub(super) struct Listening<'a>(&'a Doorbell);

impl Doorbell {
    pub(super) fn new(event: OwnedFd) -> Result<Doorbell, Errno> {
        let own = epoll::create(CreateFlags::CLOEXEC)?;
        let flags = EventFlags::IN | EventFlags::ET | EventFlags::EXCLUSIVE;
        epoll::add(&own, &event, EventData::new_u64(0), flags)?;
        Ok(Doorbell { event, own, taken: AtomicBool::new(false) })
    }

    /// Has it wake the function's thread, as the event `token` of `epoll`, while no element listens.
    pub(super) fn wake_thread(&self, epoll: BorrowedFd<'_>, token: u64) -> Result<(), Errno> {
        let flags = EventFlags::IN | EventFlags::ET | EventFlags::EXCLUSIVE;
        epoll::add(epoll, &self.event, EventData::new_u64(token), flags)
    }

    /// Lets a processing element listen; `None` if another does.
    pub(super) fn listen(&self) -> Option<Listening<'_>> {
        // Made only where it is given: dropping one lets the next element listen.
        (!self.taken.swap(true, Ordering::SeqCst)).then(|| Listening(self))
    }

    /// Sleeps until it rings. For the element that listens.
    pub(super) fn wait(&self) {
        let mut event = [MaybeUninit::uninit()];
        // Every outcome means: look.
        let _ = epoll::wait(&self.own, &mut event, None);
    }

    /// Wakes the element that listens, if one does.
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
        self.0.taken.store(false, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use rustix::event::{EventfdFlags, Timespec};

    use super::*;

    fn doorbell() -> (Arc<Doorbell>, OwnedFd) {
        let event = rustix::event::eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        let thread = epoll::create(CreateFlags::CLOEXEC).unwrap();
        let bell = Doorbell::new(event).unwrap();
        bell.wake_thread(thread.as_fd(), 7).unwrap();
        (Arc::new(bell), thread)
    }

    /// Whether the function's thread is woken within `limit`.
    fn wakes_thread(thread: &OwnedFd, limit: Duration) -> bool {
        let mut events = Vec::with_capacity(1);
        let limit = Timespec::try_from(limit).unwrap();
        let room = rustix::buffer::spare_capacity(&mut events);
        epoll::wait(thread, room, Some(&limit)).unwrap() > 0
    }

    /// Whether an element that listens is woken.
    fn wakes_element(bell: &Arc<Doorbell>) -> bool {
        let (done, is_done) = std::sync::mpsc::channel();
        let bell = Arc::clone(bell);
        std::thread::spawn(move || {
            bell.wait();
            let _ = done.send(());
        });
        is_done.recv_timeout(Duration::from_secs(5)).is_ok()
    }

    const SOON: Duration = Duration::from_secs(5);

    #[test]
    fn a_ring_that_woke_the_thread_also_wakes_an_element_that_was_about_to_sleep() {
        let (bell, thread) = doorbell();
        let _listening = bell.listen().unwrap();
        bell.nudge();
        assert!(wakes_thread(&thread, SOON));
        assert!(wakes_element(&bell), "the ring was lost");
    }

    #[test]
    fn one_ring_wakes_the_element_that_listens_and_not_the_thread() {
        let (bell, thread) = doorbell();
        let _listening = bell.listen().unwrap();
        let element = std::thread::spawn({
            let bell = Arc::clone(&bell);
            move || wakes_element(&bell)
        });
        // The element is given time to fall asleep; a ring before that wakes both, which is no harm,
        // so only the element is required.
        std::thread::sleep(Duration::from_millis(50));
        bell.nudge();
        assert!(element.join().unwrap());
        let _ = wakes_thread(&thread, Duration::ZERO);
        bell.nudge();
        assert!(wakes_thread(&thread, SOON), "with nobody listening the thread is woken");
    }

    #[test]
    fn one_element_listens_at_a_time_and_only_it_is_nudged() {
        let (bell, thread) = doorbell();
        bell.nudge();
        assert!(!wakes_thread(&thread, Duration::ZERO), "nobody listens, so nobody is nudged");
        let first = bell.listen();
        assert!(first.is_some());
        // Asking in vain changes nothing.
        assert!((0..3).all(|_| bell.listen().is_none()));
        drop(first);
        assert!(bell.listen().is_some());
    }
}
