//! A file as shared memory that a program in another language holds.

use std::ops::Range;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::{Error, MappedFile, NotClosed, Space};

/// A file that is shared memory until this is dropped, or was closed.
#[derive(Debug)]
pub struct FileBytes {
    bytes: Range<u64>,
    /// None once it was closed. Whoever syncs or closes it is alone with it.
    mapped: Mutex<Option<MappedFile<u8>>>,
}

impl FileBytes {
    pub(super) fn new(space: &Space, path: &Path, memory: u64) -> Result<FileBytes, Error> {
        let mapped = space.map_file_in::<u8>(path, memory)?;
        let bytes = mapped.addr().0..mapped.addr().0 + mapped.byte_len();
        Ok(FileBytes { bytes, mapped: Mutex::new(Some(mapped)) })
    }

    /// The addresses of its bytes.
    pub(super) fn bytes(&self) -> Range<u64> {
        self.bytes.clone()
    }

    /// Writes what was changed.
    ///
    /// # Errors
    /// As [`MappedFile::sync`].
    pub fn sync(&self) -> Result<(), Error> {
        self.mapped().as_ref().map_or(Ok(()), MappedFile::sync)
    }

    /// Writes what was changed, and gives the addresses back: nobody may use them any more.
    ///
    /// # Errors
    /// As [`MappedFile::close`]. It is mapped still unless [`FileBytes::is_closed`].
    pub fn close(&self) -> Result<(), Error> {
        let mut mapped = self.mapped();
        let Some(file) = mapped.take() else { return Ok(()) };
        file.close().map_err(|not_closed| {
            let (error, guard) = NotClosed::into_parts(not_closed);
            *mapped = guard;
            error
        })
    }

    /// Whether it was closed.
    pub fn is_closed(&self) -> bool {
        self.mapped().is_none()
    }

    fn mapped(&self) -> MutexGuard<'_, Option<MappedFile<u8>>> {
        self.mapped.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
