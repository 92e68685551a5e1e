//! What the descriptors that a card's process gives have to be before this program uses them.
//!
//! A card may lie. What it gives must not be able to end this program, nor to make it wait: memory
//! that is cut off under a mapping raises SIGBUS, so does a huge page that cannot be had, and a
//! write to something that is full waits for whoever empties it. Nothing here asks the file itself
//! (which may belong to a file system that the card serves) before it is known to be one of the
//! kernel's own.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use farside_types::PAGE_SIZE;
use rustix::fs::SealFlags;
use rustix::io::Errno;

use super::transport::TransportError;

/// The number of hugetlbfs (`linux/magic.h`).
const HUGETLBFS: u64 = 0x9584_58f6;

fn unfit(what: String) -> TransportError {
    TransportError::Unfit { what }
}

/// Whether `bytes` bytes from `offset` on may be mapped and used: a memory file of small pages, of
/// which nobody can take a byte away.
///
/// # Errors
/// [`TransportError::Unfit`] says what it is instead.
pub(super) fn check_memory(file: &OwnedFd, offset: u64, bytes: u64) -> Result<(), TransportError> {
    // The kernel answers this by itself, also for a file of somebody else's file system.
    let seals = rustix::fs::fcntl_get_seals(file).map_err(|errno| {
        unfit(format!("the card's memory is no memory file ({errno}): it has to come from memfd"))
    })?;
    if !seals.contains(SealFlags::SHRINK) {
        return Err(unfit(
            "the card's memory can be cut off while this program uses it, which would end the \
             program: the card has to seal its size (F_SEAL_SHRINK)"
                .to_owned(),
        ));
    }
    if seals.intersects(SealFlags::WRITE | SealFlags::FUTURE_WRITE) {
        return Err(unfit("the card's memory is sealed against being written".to_owned()));
    }
    let refuse = |call: &str, errno: Errno| {
        unfit(format!("the card's memory cannot be looked at: {call} failed: {errno}"))
    };
    let system = rustix::fs::fstatfs(file).map_err(|errno| refuse("fstatfs", errno))?;
    if system.f_type as u64 == HUGETLBFS {
        return Err(unfit(
            "the card's memory is of huge pages, of which there may be none left when one is \
             touched; serve it with small pages"
                .to_owned(),
        ));
    }
    let size = rustix::fs::fstat(file).map_err(|errno| refuse("fstat", errno))?.st_size as u64;
    let fits = offset.checked_add(bytes).is_some_and(|end| end <= size);
    if !fits || offset % PAGE_SIZE as u64 != 0 {
        return Err(unfit(format!(
            "the card's memory is said to be {bytes} bytes at {offset:#x} of a file of {size} bytes"
        )));
    }
    Ok(())
}

/// A doorbell that never makes the one who rings it wait: an event descriptor, non-blocking.
///
/// # Errors
/// [`TransportError::Unfit`] says what it is instead.
pub(super) fn doorbell(fd: OwnedFd) -> Result<OwnedFd, TransportError> {
    let name = format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd());
    let kind = rustix::fs::readlink(&name, Vec::new()).map_err(|errno| {
        unfit(format!("the card's doorbell cannot be looked at: reading {name} failed: {errno}"))
    })?;
    if kind.as_bytes() != b"anon_inode:[eventfd]" {
        let kind = kind.to_string_lossy().into_owned();
        return Err(unfit(format!("the card's doorbell is no event descriptor but {kind}")));
    }
    rustix::io::ioctl_fionbio(&fd, true)
        .map_err(|errno| unfit(format!("the card's doorbell cannot be used: {errno}")))?;
    Ok(fd)
}

#[cfg(test)]
mod tests {
    use rustix::event::{EventfdFlags, eventfd};
    use rustix::fs::MemfdFlags;

    use super::*;

    #[test]
    fn memory_is_refused_unless_nobody_can_take_it_away() {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = rustix::fs::memfd_create("test", flags).unwrap();
        rustix::fs::ftruncate(&file, 8192).unwrap();
        let says = |offset, bytes| check_memory(&file, offset, bytes).unwrap_err().to_string();
        assert!(says(0, 8192).contains("cut off"));
        rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK).unwrap();
        check_memory(&file, 0, 8192).unwrap();
        check_memory(&file, 4096, 4096).unwrap();
        for (offset, bytes) in [(4096, 8192), (100, 4096), (u64::MAX - 4095, 8192), (1 << 40, 1)] {
            assert!(says(offset, bytes).contains("8192 bytes"), "{offset} {bytes}");
        }
        rustix::fs::fcntl_add_seals(&file, SealFlags::FUTURE_WRITE).unwrap();
        assert!(says(0, 4096).contains("written"));
        let other: OwnedFd = std::fs::File::open("/dev/zero").unwrap().into();
        let text = check_memory(&other, 0, 4096).unwrap_err().to_string();
        assert!(text.contains("no memory file"), "{text}");
    }

    #[test]
    fn a_doorbell_is_an_event_descriptor_and_does_not_block() {
        let event = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        let event = doorbell(event).unwrap();
        rustix::io::write(&event, &(u64::MAX - 1).to_ne_bytes()).unwrap();
        assert_eq!(rustix::io::write(&event, &1u64.to_ne_bytes()), Err(Errno::AGAIN));
        let file: OwnedFd = std::fs::File::open("/dev/null").unwrap().into();
        assert!(doorbell(file).unwrap_err().to_string().contains("/dev/null"));
    }
}
