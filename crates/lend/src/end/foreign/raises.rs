//! The eventfds by which a device raises its interrupts.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex};

use farside_linux::lock::lock;
use farside_vfio_user::{Errno, SharedFd};
use rustix::buffer::spare_capacity;
use rustix::event::{EventfdFlags, Timespec, epoll, eventfd};

use crate::ends::lender::Eventfds;

/// Eventfds of a device, at most: as many as the vectors of MSI-X, and a few more.
const EVENTFDS_MAX: usize = 2048 + 64;
/// Those that are looked at in one go.
const AT_ONCE: usize = 64;

/// See the module. Readable when one has been raised.
#[derive(Debug)]
pub(super) struct Raises {
    epoll: OwnedFd,
    made: Mutex<HashMap<(u32, u32), SharedFd>>,
}

impl Raises {
    pub(super) fn new() -> std::io::Result<Arc<Raises>> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        Ok(Arc::new(Raises { epoll, made: Mutex::default() }))
    }

    /// Those that have been raised since this was asked before: index and vector of each.
    pub(super) fn take(&self) -> Vec<(u32, u32)> {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let mut events: Vec<epoll::Event> = Vec::with_capacity(AT_ONCE);
        // Every outcome means: look.
        let _ = epoll::wait(&self.epoll, spare_capacity(&mut events), Some(&now));
        let made = lock(&self.made);
        let raised = events.iter().filter_map(|event| {
            let key = event.data.u64();
            let key = ((key >> 32) as u32, key as u32);
            let mut count = [0; 8];
            // The device has it too, and may have made it what it likes.
            rustix::io::read(made.get(&key)?, &mut count).ok().map(|_| key)
        });
        raised.collect()
    }
}

impl AsFd for Raises {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

impl Eventfds for Arc<Raises> {
    fn eventfd(&mut self, index: u32, vector: u32) -> Result<SharedFd, Errno> {
        let mut made = lock(&self.made);
        if let Some(known) = made.get(&(index, vector)) {
            return Ok(Arc::clone(known));
        }
        if made.len() >= EVENTFDS_MAX {
            return Err(Errno::NOSPC);
        }
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let fd = Arc::new(eventfd(0, flags).map_err(|_| Errno::NOMEM)?);
        let key = epoll::EventData::new_u64(u64::from(index) << 32 | u64::from(vector));
        epoll::add(&self.epoll, &fd, key, epoll::EventFlags::IN).map_err(|_| Errno::NOMEM)?;
        made.insert((index, vector), Arc::clone(&fd));
        Ok(fd)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_raised_is_told_once_and_eventfds_are_bounded() {
        let raises = Raises::new().unwrap();
        let mut maker = Arc::clone(&raises);
        let fds: Vec<SharedFd> = (0..3).map(|at| maker.eventfd(2, at).unwrap()).collect();
        assert!(Arc::ptr_eq(&fds[1], &maker.eventfd(2, 1).unwrap()));
        assert_eq!(raises.take(), []);
        for _ in 0..2 {
            rustix::io::write(&fds[1], &1u64.to_ne_bytes()).unwrap();
        }
        assert_eq!(raises.take(), [(2, 1)]);
        assert_eq!(raises.take(), []);
        let made = (3..10_000).take_while(|&at| maker.eventfd(2, at).is_ok()).count();
        assert_eq!(made + 3, EVENTFDS_MAX);
    }
}
