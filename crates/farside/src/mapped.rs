//! Files as shared memory.

use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};

use bytemuck::Pod;
use farside_live::{FileError, Filed, LiveError};
use farside_types::VirtAddr;

use crate::{Error, Space};

/// The host's memory that a file takes at a time unless told otherwise: 256 MiB.
pub const FILE_MEMORY: u64 = 256 << 20;

/// A file whose bytes are shared memory while this lives: see [`Space::map_file`].
///
/// It is used like a slice. When it is dropped, what was changed is written; what goes wrong then is only logged, so
/// [`MappedFile::close`] is better.
pub struct MappedFile<T> {
    space: Space,
    filed: Filed,
    path: PathBuf,
    /// It may be read and written by whoever has this.
    values: std::marker::PhantomData<T>,
}

impl<T: Pod> MappedFile<T> {
    /// Writes what was changed, by the program or by kernels that have ended, and waits until it is on the disk. After a crash
    /// the file has at least what it had when this returned.
    ///
    /// # Errors
    /// [`FileError`] names path and byte: what is not written is in memory still, and this can be tried again; but for
    /// [`FileError::Lost`], what was changed by a card that has gone away. Others where a card has some of it that does not come
    /// home. All else is written.
    pub fn sync(&self) -> Result<(), Error> {
        Ok(self.space.runtime().sync_file(&self.filed)?)
    }

    /// Writes what was changed, as [`MappedFile::sync`] does, and gives the memory back. Kernels that still use it fail.
    ///
    /// # Errors
    /// As [`MappedFile::sync`]: it is mapped still, and in the error, to be tried again ([`NotClosed::into_guard`]); but for
    /// [`FileError::Lost`], where all that there is was written.
    pub fn close(self) -> Result<(), NotClosed<T>> {
        match self.space.runtime().unmap_file(&self.filed) {
            Ok(()) => {
                self.forget();
                Ok(())
            }
            Err(error @ LiveError::File(FileError::Lost { .. })) => {
                self.forget();
                Err(NotClosed { error: error.into(), guard: None })
            }
            Err(error) => Err(NotClosed { error: error.into(), guard: Some(Box::new(self)) }),
        }
    }

    /// It was given back.
    fn forget(self) {
        let mut this = ManuallyDrop::new(self);
        // SAFETY: `this` is not used again, so what it owns is dropped here once.
        unsafe {
            std::ptr::drop_in_place(&mut this.space);
            std::ptr::drop_in_place(&mut this.filed);
            std::ptr::drop_in_place(&mut this.path);
        }
    }
}

impl<T> MappedFile<T> {
    /// Address of the first value.
    pub fn addr(&self) -> VirtAddr {
        self.filed.addr()
    }

    /// The space that it is shared in.
    pub fn space(&self) -> &Space {
        &self.space
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Has reads and writes of the file fail, for tests: `count` of them, from the `first` on, counted from 1 from now on. Gives how
    /// many there were since this was called last.
    #[cfg(feature = "mutations")]
    pub fn fail(&self, first: u64, count: u64) -> u64 {
        self.space.runtime().fail_file(&self.filed, first, count)
    }

    /// Bytes of the file when it was mapped.
    pub fn byte_len(&self) -> u64 {
        self.filed.bytes()
    }

    fn len(&self) -> usize {
        self.byte_len() as usize / size_of::<T>()
    }
}

impl<T: Pod> Deref for MappedFile<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: the memory at the address is this file's until it is given back, which takes `self`; every bit pattern is a
        // value, and pages are aligned for all of them.
        unsafe { std::slice::from_raw_parts(self.addr().0 as *const T, self.len()) }
    }
}

impl<T: Pod> DerefMut for MappedFile<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as in `deref`; nobody else has a reference while `self` is borrowed for writing.
        unsafe { std::slice::from_raw_parts_mut(self.addr().0 as *mut T, self.len()) }
    }
}

impl<T> Drop for MappedFile<T> {
    fn drop(&mut self) {
        let runtime = self.space.runtime();
        if runtime.check_process().is_err() {
            // A child made by fork has nothing of it.
            return;
        }
        if let Err(error) = runtime.unmap_file(&self.filed) {
            tracing::error!(%error, "a file was not written whole");
        }
    }
}

impl<T> fmt::Debug for MappedFile<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (addr, bytes) = (self.addr(), self.filed.bytes());
        f.debug_struct("MappedFile")
            .field("path", &self.path)
            .field("addr", &addr)
            .field("bytes", &bytes)
            .finish()
    }
}

/// A file was not written, or not whole: see [`MappedFile::close`].
pub struct NotClosed<T> {
    error: Error,
    guard: Option<Box<MappedFile<T>>>,
}

impl<T> NotClosed<T> {
    /// Why.
    pub fn error(&self) -> &Error {
        &self.error
    }

    /// The file, if it is mapped still: it can be used, and closed again.
    pub fn into_guard(self) -> Option<MappedFile<T>> {
        self.into_parts().1
    }

    /// Why, and the file.
    pub fn into_parts(self) -> (Error, Option<MappedFile<T>>) {
        (self.error, self.guard.map(|guard| *guard))
    }
}

impl<T> fmt::Debug for NotClosed<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("NotClosed").field(&self.error).finish()
    }
}

impl<T> fmt::Display for NotClosed<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl<T> std::error::Error for NotClosed<T> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.error.source()
    }
}

impl<T> From<NotClosed<T>> for Error {
    /// If it is mapped still, it is tried once more.
    fn from(not_closed: NotClosed<T>) -> Error {
        not_closed.error
    }
}

impl Space {
    /// Makes a file shared memory: the program and kernels use its values at one address, and what they change is written when
    /// [`MappedFile::sync`] is called, when it is closed, or when its memory is needed for others of its pages. Neither the host's memory nor
    /// the cards' have to hold all of it: 256 MiB of the host's at a time ([`FILE_MEMORY`]), or what
    /// [`Space::map_file_in`] is told.
    ///
    /// ```
    /// # use farside::{Space, Write};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let path = std::env::temp_dir().join(format!("farside-doc-{}", std::process::id()));
    /// std::fs::write(&path, 41u64.to_ne_bytes())?;
    /// let space = Space::builder().build()?;
    /// let mut numbers = space.map_file::<u64>(&path)?;
    /// space.kernel("farside.increment").call(Write(&mut numbers))?;
    /// numbers.close()?;
    /// assert_eq!(std::fs::read(&path)?, 42u64.to_ne_bytes());
    /// # std::fs::remove_file(&path)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// The file is locked (`flock`) while it is mapped. Who does not mind that and writes it is not seen, and may be overwritten.
    /// `docs/programming.md` says what holds for errors, crashes and forks.
    ///
    /// # Errors
    /// [`FileError`] says what is wrong with the file; [`AdoptError`](crate::AdoptError) what the kernel (Linux 6.8) or a card lacks.
    pub fn map_file<T: Pod>(&self, path: impl AsRef<Path>) -> Result<MappedFile<T>, Error> {
        self.map_file_in(path, FILE_MEMORY)
    }

    /// As [`Space::map_file`], with another bound for the host's memory that it takes, of 4 MiB at least. While what was changed
    /// cannot be written (a full disk), more of it stays in memory.
    ///
    /// # Errors
    /// As [`Space::map_file`].
    pub fn map_file_in<T: Pod>(
        &self,
        path: impl AsRef<Path>,
        memory: u64,
    ) -> Result<MappedFile<T>, Error> {
        let path = path.as_ref();
        let filed = self.runtime().map_file(path, size_of::<T>(), memory)?;
        let (path, values) = (path.to_owned(), std::marker::PhantomData);
        Ok(MappedFile { space: self.clone(), filed, path, values })
    }
}
