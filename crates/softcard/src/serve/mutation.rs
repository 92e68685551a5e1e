//! The new generation of a function's memory, which a test takes away to see that it notices.

use std::io;
use std::os::fd::OwnedFd;

use farside_linux::card_memory::CardMemory;

#[cfg(test)]
thread_local! {
    /// The memory that every client gets. The card's processes are made by this thread.
    static KEPT: std::cell::RefCell<Option<std::path::PathBuf>> =
        const { std::cell::RefCell::new(None) };
}

/// Cards that this thread starts from here on give the same memory to every client, unscrubbed.
#[cfg(test)]
pub(super) fn keep_generation(file: &OwnedFd) {
    use std::os::fd::AsRawFd;
    let path = format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
    KEPT.set(Some(path.into()));
}

/// Memory for a client.
#[cfg(test)]
pub(super) fn memory_of(frames: u32) -> io::Result<OwnedFd> {
    if let Some(kept) = KEPT.with_borrow(Clone::clone) {
        return Ok(std::fs::File::options().read(true).write(true).open(kept)?.into());
    }
    CardMemory::file_of(frames).map_err(io::Error::other)
}

/// Memory for a client: always new.
#[cfg(not(test))]
pub(super) fn memory_of(frames: u32) -> io::Result<OwnedFd> {
    CardMemory::file_of(frames).map_err(io::Error::other)
}

/// Whether the memory of a client that has gone is neither scrubbed nor given back.
#[cfg(test)]
pub(super) fn keeps_generation() -> bool {
    KEPT.with_borrow(Option::is_some)
}

/// Whether the memory of a client that has gone is neither scrubbed nor given back: never outside of tests.
#[cfg(not(test))]
pub(super) const fn keeps_generation() -> bool {
    false
}
