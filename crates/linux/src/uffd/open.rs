//! Opening a userfaultfd, and finding out what the kernel has.

use core::fmt;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mm::UserfaultfdFlags;
use serde::Serialize;

use super::abi::{self, UFFD_API, USER_MODE_ONLY};
use super::{FeatureSet, UffdError};

/// How the descriptor came to be, which decides what it can do.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum OpenedBy {
    /// The system call, with every right: the process is privileged or the system allows it.
    Syscall,
    /// `/dev/userfaultfd`, with every right.
    Device,
    /// The system call, for accesses in user mode only: system calls such as read(2) that touch
    /// an absent page fail with EFAULT.
    UserModeOnly,
}

impl OpenedBy {
    const IN_ORDER: [OpenedBy; 3] = [OpenedBy::Syscall, OpenedBy::Device, OpenedBy::UserModeOnly];

    /// Whether accesses of system calls are served as well.
    pub const fn serves_system_calls(self) -> bool {
        !matches!(self, OpenedBy::UserModeOnly)
    }
}

impl fmt::Display for OpenedBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            OpenedBy::Syscall => "system call",
            OpenedBy::Device => "/dev/userfaultfd",
            OpenedBy::UserModeOnly => "system call, user mode only",
        })
    }
}

/// What a descriptor of this process can do.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Support {
    /// How it is opened.
    pub opened_by: OpenedBy,
    /// The features the kernel has.
    pub features: FeatureSet,
}

impl Support {
    /// Finds the best way to open a descriptor and asks one for its features.
    ///
    /// # Errors
    /// [`UffdError::Open`] if no way works; [`UffdError::Handshake`].
    pub fn probe() -> Result<Support, UffdError> {
        let mut last = Errno::NOSYS;
        for opened_by in OpenedBy::IN_ORDER {
            match descriptor(opened_by) {
                Ok(fd) => {
                    // The handshake can be done once per descriptor, so this one only asks.
                    let features = handshake(fd.as_fd(), FeatureSet::EMPTY)?;
                    return Ok(Support { opened_by, features });
                }
                // The absence of the device file says nothing about the system call.
                Err(Errno::NOENT) if opened_by == OpenedBy::Device => {}
                Err(errno) => last = errno,
            }
        }
        Err(UffdError::Open { errno: last })
    }
}

/// A descriptor opened in the way that a probe found.
pub(super) fn descriptor_by(opened_by: OpenedBy) -> Result<OwnedFd, UffdError> {
    descriptor(opened_by).map_err(|errno| UffdError::Open { errno })
}

/// Enables `features` on a new descriptor; gives all that the kernel has.
pub(super) fn handshake(fd: BorrowedFd<'_>, features: FeatureSet) -> Result<FeatureSet, UffdError> {
    let mut arg = abi::Api { api: UFFD_API, features: features.0, ioctls: 0 };
    ioctl(fd, abi::request::API, &mut arg).map_err(|errno| UffdError::Handshake { errno })?;
    Ok(FeatureSet(arg.features))
}

/// One request with its argument.
pub(super) fn ioctl<T>(fd: BorrowedFd<'_>, request: libc::Ioctl, arg: &mut T) -> Result<(), Errno> {
    // SAFETY: every caller pairs a request of `abi::request` with the structure it was built
    // from, so the kernel reads and writes within `arg`. What the request does to memory is the
    // business of `Userfaultfd::register`, which is unsafe for that reason.
    let rc = unsafe { libc::ioctl(fd.as_raw_fd(), request, core::ptr::from_mut(arg)) };
    if rc < 0 { Err(last_errno()) } else { Ok(()) }
}

fn descriptor(opened_by: OpenedBy) -> Result<OwnedFd, Errno> {
    match opened_by {
        OpenedBy::Syscall => by_syscall(0),
        OpenedBy::UserModeOnly => by_syscall(USER_MODE_ONLY),
        OpenedBy::Device => by_device(),
    }
}

fn by_syscall(extra: u32) -> Result<OwnedFd, Errno> {
    let flags = UserfaultfdFlags::CLOEXEC.bits() | UserfaultfdFlags::NONBLOCK.bits() | extra;
    // SAFETY: a new descriptor by itself changes nothing; registering memory is unsafe.
    unsafe { rustix::mm::userfaultfd(UserfaultfdFlags::from_bits_retain(flags)) }
}

fn by_device() -> Result<OwnedFd, Errno> {
    let device =
        rustix::fs::open("/dev/userfaultfd", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    let flags = libc::O_CLOEXEC | libc::O_NONBLOCK;
    // SAFETY: this request takes flags by value and returns a new descriptor.
    let fd = unsafe { libc::ioctl(device.as_raw_fd(), abi::request::NEW, flags) };
    if fd < 0 {
        return Err(last_errno());
    }
    // SAFETY: the kernel has just made this descriptor for us; nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn last_errno() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}
