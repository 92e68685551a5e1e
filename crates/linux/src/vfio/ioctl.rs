//! System calls on VFIO descriptors.

use std::os::fd::{AsRawFd, BorrowedFd};

use bytemuck::{AnyBitPattern, NoUninit};
use rustix::io::Errno;

use super::reply::{REPLY_BYTES_MAX, Reply};

/// A request with a pointer.
///
/// # Safety
/// `arg` points to what the request reads and writes, and nobody else uses it meanwhile.
pub(super) unsafe fn ioctl<T>(
    fd: BorrowedFd<'_>,
    request: libc::Ioctl,
    arg: *mut T,
) -> Result<i32, Errno> {
    // SAFETY: the caller's promise.
    answer(unsafe { libc::ioctl(fd.as_raw_fd(), request, arg) })
}

/// A request with a number, or with nothing (0).
pub(super) fn number_ioctl(
    fd: BorrowedFd<'_>,
    request: libc::Ioctl,
    arg: u32,
) -> Result<i32, Errno> {
    // SAFETY: the requests this is used with take a number and touch no memory of ours.
    answer(unsafe { libc::ioctl(fd.as_raw_fd(), request, libc::c_ulong::from(arg)) })
}

fn answer(returned: i32) -> Result<i32, Errno> {
    if returned >= 0 {
        return Ok(returned);
    }
    let error = std::io::Error::last_os_error();
    Err(Errno::from_io_error(&error).unwrap_or(Errno::IO))
}

/// A request that answers with a `T` and then capabilities, as many bytes as its first word says.
///
/// # Safety
/// `request` takes a `T` whose first word is the length of the buffer it may fill in.
pub(super) unsafe fn query<T: NoUninit + AnyBitPattern>(
    fd: BorrowedFd<'_>,
    request: libc::Ioctl,
    question: T,
) -> Result<Option<Reply<T>>, Errno> {
    let mut bytes = size_of::<T>();
    loop {
        let mut buffer = bytemuck::bytes_of(&question).to_vec();
        buffer.resize(bytes, 0);
        buffer[..4].copy_from_slice(&(bytes as u32).to_ne_bytes());
        // SAFETY: the buffer is as long as its first word says; the request is the caller's promise.
        unsafe { ioctl(fd, request, buffer.as_mut_ptr()) }?;
        let mut wanted = [0; 4];
        wanted.copy_from_slice(&buffer[..4]);
        let wanted = u32::from_ne_bytes(wanted) as usize;
        if wanted <= bytes {
            return Ok(Reply::new(buffer));
        }
        if wanted > REPLY_BYTES_MAX {
            return Ok(None);
        }
        bytes = wanted;
    }
}
