//! A file that one log is written into at a time.

use std::fs::File;
use std::io;
use std::path::Path;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

/// Why a file is not opened.
const TAKEN: &str = "another log is being written there, by this program or another one; give each a file of its own";

/// Keeps others from opening a file this way.
pub(super) struct Alone(File);

impl Alone {
    /// Opens a file, which is empty then, and keeps others off until the second is dropped. Pipes and devices are not locked.
    ///
    /// # Errors
    /// Those of the file, and that a log is being written there.
    pub(super) fn open(path: &Path) -> io::Result<(File, Alone)> {
        let file = File::options().write(true).create(true).truncate(false).open(path)?;
        if file.metadata()?.is_file() {
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Err(Errno::WOULDBLOCK) => return Err(io::Error::other(TAKEN)),
                // There are file systems without locks.
                Ok(()) | Err(_) => file.set_len(0)?,
            }
        }
        let alone = Alone(file.try_clone()?);
        Ok((file, alone))
    }
}

impl Drop for Alone {
    /// Here and not where the file is closed: a child made by fork has it open for longer.
    fn drop(&mut self) {
        let _ = flock(&self.0, FlockOperation::Unlock);
    }
}

/// Whether a log is being written into a file.
pub(super) fn is_locked(path: &Path) -> bool {
    // To open a pipe would wait for who writes into it.
    let file = path.is_file().then(|| File::open(path).ok()).flatten();
    file.is_some_and(|file| {
        flock(&file, FlockOperation::NonBlockingLockShared) == Err(Errno::WOULDBLOCK)
    })
}
