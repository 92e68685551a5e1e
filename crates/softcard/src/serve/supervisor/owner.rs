//! The program whose card it is: starts the supervisor, and ends it.

use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, pidfd_open};
use serde::{Deserialize, Serialize};

use super::Supervisor;
use crate::serve::process::{self, Child};
use crate::serve::{CardConfig, ServeError};

/// How long the supervisor may take to say that it serves.
const BEGIN_LIMIT: Duration = Duration::from_secs(10);

/// How long it may take to end.
const END_LIMIT: Duration = Duration::from_secs(2);

/// What the supervisor says of its beginning.
#[derive(Serialize, Deserialize)]
enum Begun {
    Serves,
    /// This path cannot be used, because...
    Path(PathBuf, String),
    /// Something else is wrong.
    Fails(String),
}

/// The owner's end: the card ends when this is dropped, or with the owner's process.
#[derive(Debug)]
pub(in crate::serve) struct Owner {
    control: UnixStream,
    supervisor: Child,
}

/// Starts the supervisor of a card; gives it back when clients can come.
pub(in crate::serve) fn start(config: &Arc<CardConfig>) -> Result<Owner, ServeError> {
    let (control, theirs) = UnixStream::pair().map_err(ServeError::Process)?;
    let owner = std::process::id();
    let config = Arc::clone(config);
    // SAFETY: where the program has other threads, what the supervisor uses of the library takes no
    // lock that they hold, other than the allocator's: it logs, and says so in the documentation of
    // `CardServer::start`.
    let supervisor = unsafe { process::fork(|| supervise(config, owner, theirs.into())) };
    let mut owner = Owner { control, supervisor: supervisor.map_err(ServeError::Process)? };
    owner.await_begin()?;
    Ok(owner)
}

impl Owner {
    fn await_begin(&mut self) -> Result<(), ServeError> {
        self.control.set_read_timeout(Some(BEGIN_LIMIT)).map_err(ServeError::Process)?;
        let mut length = [0; 4];
        self.control.read_exact(&mut length).map_err(ServeError::Process)?;
        let mut text = vec![0; u32::from_ne_bytes(length) as usize];
        self.control.read_exact(&mut text).map_err(ServeError::Process)?;
        match serde_json::from_slice(&text) {
            Ok(Begun::Serves) => Ok(()),
            Ok(Begun::Path(path, why)) => {
                Err(ServeError::Path { path, error: std::io::Error::other(why) })
            }
            Ok(Begun::Fails(why)) => Err(ServeError::Process(std::io::Error::other(why))),
            Err(error) => Err(ServeError::Process(error.into())),
        }
    }

    /// Whether the supervisor still runs.
    pub(in crate::serve) fn is_served(&self) -> bool {
        self.supervisor.is_running()
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        // Also where a child of this program's has a copy of it.
        let _ = self.control.shutdown(std::net::Shutdown::Both);
        if self.supervisor.await_end(Instant::now() + END_LIMIT).is_none() {
            tracing::error!("the supervisor of a card does not end; it is killed");
            self.supervisor.kill();
            let _ = self.supervisor.await_end(Instant::now() + END_LIMIT);
        }
    }
}

/// What the supervisor's process does, from its first moment on.
fn supervise(config: Arc<CardConfig>, owner: u32, control: OwnedFd) -> i32 {
    process::reset_signals();
    process::keep_only(&[control.as_fd()]);
    process::set_name(&format!("farside-card{}", config.card));
    let mut told = std::fs::File::from(match control.try_clone() {
        Ok(told) => told,
        Err(_) => return 1,
    });
    match prepare(config, owner, control) {
        Ok(supervisor) => {
            send_begun(&mut told, &Begun::Serves);
            drop(told);
            supervisor.run();
            0
        }
        Err(ServeError::Path { path, error }) => {
            send_begun(&mut told, &Begun::Path(path, error.to_string()));
            1
        }
        Err(error) => {
            send_begun(&mut told, &Begun::Fails(error.to_string()));
            1
        }
    }
}

fn prepare(
    config: Arc<CardConfig>,
    owner: u32,
    control: OwnedFd,
) -> Result<Supervisor, ServeError> {
    process::let_go_of_stdio().map_err(ServeError::Process)?;
    let pid = Pid::from_raw(owner as i32).expect("a process has a number");
    let owner_ends = pidfd_open(pid, PidfdFlags::empty())?;
    Supervisor::new(config, owner, control, owner_ends)
}

fn send_begun(to: &mut std::fs::File, begun: &Begun) {
    let text = serde_json::to_vec(begun).unwrap_or_default();
    let length = (text.len() as u32).to_ne_bytes();
    // Whoever does not listen has ended, and so does this.
    let _ = to.write_all(&length).and_then(|()| to.write_all(&text));
}
