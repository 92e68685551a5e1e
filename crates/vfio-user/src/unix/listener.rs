//! A listening socket that cleans up after itself and after a server that died.

use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use super::Connection;

/// A listening AF_UNIX socket, close-on-exec. Its path is removed when it is dropped.
#[derive(Debug)]
pub struct Listener {
    listener: UnixListener,
    path: PathBuf,
    /// Device and inode of the path, so that nobody else's socket is removed.
    identity: (u64, u64),
}

impl Listener {
    /// Listens at `path`. A socket there that nobody listens to any more is removed.
    ///
    /// # Errors
    ///
    /// `AddrInUse` if a server listens there, or if something there is not a socket. Those of `bind`.
    pub fn bind(path: impl AsRef<Path>) -> io::Result<Listener> {
        let path = path.as_ref();
        remove_stale(path)?;
        let listener = UnixListener::bind(path)?;
        let metadata = match fs::symlink_metadata(path) {
            // Another one that began at the same time has taken this socket for a stale one.
            Err(error) if is_gone(&error) => return in_use(path, "is taken by another process"),
            metadata => metadata?,
        };
        let identity = (metadata.dev(), metadata.ino());
        Ok(Listener { listener, path: path.to_owned(), identity })
    }

    /// Where it listens.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Waits for a client.
    ///
    /// # Errors
    ///
    /// Those of `accept`; `WouldBlock` on a non-blocking socket.
    pub fn accept(&self) -> io::Result<Connection> {
        self.listener.accept().map(|(stream, _)| Connection::new(stream))
    }

    /// Whether `accept` returns at once.
    ///
    /// # Errors
    ///
    /// Those of `ioctl`.
    pub fn set_nonblocking(&self, on: bool) -> io::Result<()> {
        self.listener.set_nonblocking(on)
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let Ok(metadata) = fs::symlink_metadata(&self.path) else { return };
        if (metadata.dev(), metadata.ino()) == self.identity {
            // If it cannot be removed, the next server finds it stale.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Removes a socket that nobody listens to any more. A server that ends may do so itself at any moment.
fn remove_stale(path: &Path) -> io::Result<()> {
    let metadata = match fs::symlink_metadata(path) {
        Ok(metadata) => metadata,
        Err(error) => return unless_gone(Err(error)),
    };
    if !metadata.file_type().is_socket() {
        return in_use(path, "exists and is not a socket; choose another path");
    }
    match UnixStream::connect(path) {
        Ok(_) => in_use(path, "is served by another process; stop it or choose another path"),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            unless_gone(fs::remove_file(path))
        }
        Err(error) => unless_gone(Err(error)),
    }
}

fn in_use<T>(path: &Path, what: &str) -> io::Result<T> {
    Err(io::Error::new(io::ErrorKind::AddrInUse, format!("{} {what}", path.display())))
}

fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
}

/// What is not there need not be removed.
fn unless_gone(result: io::Result<()>) -> io::Result<()> {
    result.or_else(|error| if is_gone(&error) { Ok(()) } else { Err(error) })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One that ends removes its socket while the next one looks whether it is stale.
    #[test]
    fn who_comes_while_another_one_ends_listens_or_is_told_that_it_is_in_use() {
        let path = std::env::temp_dir().join(format!("farside-listener-{}", std::process::id()));
        let come_and_go = || {
            let errors = (0..4000).filter_map(|_| Listener::bind(&path).err());
            let other = |error: &io::Error| error.kind() != io::ErrorKind::AddrInUse;
            errors.filter(other).map(|error| error.to_string()).collect::<Vec<_>>()
        };
        let told = std::thread::scope(|scope| {
            let other = scope.spawn(come_and_go);
            [come_and_go(), other.join().unwrap()].concat()
        });
        let _ = fs::remove_file(&path);
        assert!(told.is_empty(), "{told:?}");
    }
}
