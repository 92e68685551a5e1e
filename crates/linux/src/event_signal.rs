//! Adding one to an eventfd without ever waiting, whatever others do to it who have it too.
//!
//! `write` waits while the count is full and the descriptor does not say otherwise; both can be changed by
//! whoever has the descriptor, between any look at them and the write. The kernel's own signals never wait. So
//! this has the kernel signal: a read of no bytes, submitted as asynchronous I/O, is done at once, and what is
//! done is told to an eventfd (`IOCB_FLAG_RESFD`, io_submit(2)).

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use crate::mapping::memory_file;

/// Reads under way at a time: each is done when it is submitted.
const READS: libc::c_long = 64;
/// What is done and was not taken, at most, is taken so many at a time.
const TAKEN: usize = 64;
const IOCB_CMD_PREAD: u16 = 0;
const IOCB_FLAG_RESFD: u32 = 1;

/// `struct iocb` of `linux/aio_abi.h`.
#[repr(C)]
#[derive(Default)]
struct Iocb {
    data: u64,
    #[cfg(target_endian = "little")]
    key: u32,
    rw_flags: u32,
    #[cfg(target_endian = "big")]
    key: u32,
    opcode: u16,
    priority: i16,
    file: u32,
    buffer: u64,
    bytes: u64,
    offset: i64,
    reserved: u64,
    flags: u32,
    event: u32,
}

/// `struct io_event`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct IoEvent([u64; 4]);

/// See the module. It belongs to the process that made it, and not to its children.
#[derive(Debug)]
pub struct EventSignal {
    context: libc::c_ulong,
    /// What is read from.
    nothing: OwnedFd,
}

impl EventSignal {
    /// # Errors
    /// The kernel has no asynchronous I/O, or no more of it (`fs.aio-max-nr`), or this process may not ask.
    pub fn new() -> io::Result<EventSignal> {
        let nothing = memory_file("farside-nothing", 4096).map_err(io::Error::other)?;
        let mut context: libc::c_ulong = 0;
        // SAFETY: the kernel writes a context to where this points, which is zero as it has to be.
        check(unsafe { libc::syscall(libc::SYS_io_setup, READS, &raw mut context) })?;
        Ok(EventSignal { context, nothing })
    }

    /// Adds one to an eventfd. One that is full stays so.
    ///
    /// # Errors
    /// It is no eventfd.
    pub fn signal(&self, event: BorrowedFd<'_>) -> io::Result<()> {
        match self.submit(event) {
            Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => {
                self.take_done();
                self.submit(event)
            }
            submitted => submitted,
        }
    }

    fn submit(&self, event: BorrowedFd<'_>) -> io::Result<()> {
        let read = Iocb {
            opcode: IOCB_CMD_PREAD,
            file: self.nothing.as_fd().as_raw_fd().unsigned_abs(),
            flags: IOCB_FLAG_RESFD,
            event: event.as_raw_fd().unsigned_abs(),
            ..Iocb::default()
        };
        let reads = [&raw const read];
        // SAFETY: the context is this one's, the array has one pointer to a request, and both live until the
        // call is over. The request reads no bytes, so that nothing is written.
        check(unsafe { libc::syscall(libc::SYS_io_submit, self.context, 1_i64, reads.as_ptr()) })
    }

    /// Makes room for others.
    fn take_done(&self) {
        let mut done = [IoEvent::default(); TAKEN];
        let now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        loop {
            // SAFETY: the kernel writes at most as many events as there is room for, and reads the time.
            let taken = unsafe {
                libc::syscall(
                    libc::SYS_io_getevents,
                    self.context,
                    0_i64,
                    TAKEN as libc::c_long,
                    done.as_mut_ptr(),
                    &raw const now,
                )
            };
            if taken < TAKEN as libc::c_long {
                return;
            }
        }
    }
}

impl Drop for EventSignal {
    fn drop(&mut self) {
        // In a child made by fork there is no such context, and the call fails.
        // SAFETY: nobody uses the context any more.
        unsafe { libc::syscall(libc::SYS_io_destroy, self.context) };
    }
}

fn check(returned: libc::c_long) -> io::Result<()> {
    if returned < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use rustix::event::{EventfdFlags, eventfd};

    use super::*;

    fn count(event: &OwnedFd) -> u64 {
        let mut bytes = [0; 8];
        rustix::io::read(event, &mut bytes).unwrap();
        u64::from_ne_bytes(bytes)
    }

    #[test]
    fn each_signal_adds_one_however_many_there_are() {
        let signal = EventSignal::new().unwrap();
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap();
        for _ in 0..10_000 {
            signal.signal(event.as_fd()).unwrap();
        }
        assert_eq!(count(&event), 10_000);
        assert_eq!(rustix::io::read(&event, &mut [0; 8]), Err(rustix::io::Errno::AGAIN));
    }

    #[test]
    fn one_that_is_full_and_makes_its_writers_wait_does_not() {
        let signal = EventSignal::new().unwrap();
        let event = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        rustix::io::write(&event, &(u64::MAX - 1).to_ne_bytes()).unwrap();
        for _ in 0..3 {
            signal.signal(event.as_fd()).unwrap();
        }
        assert_eq!(count(&event), u64::MAX, "it says that it overflowed");
    }

    #[test]
    fn what_is_no_eventfd_is_refused() {
        let signal = EventSignal::new().unwrap();
        let (read, _write) = rustix::pipe::pipe().unwrap();
        assert_eq!(signal.signal(read.as_fd()).unwrap_err().raw_os_error(), Some(libc::EINVAL));
    }
}
