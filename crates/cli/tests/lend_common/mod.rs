//! What the tests of lending have in common: those on the loopback interface (`lend`), and those in namespaces
//! (`lend_faults`).

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use farside_vfio_user::unix::{Connection, Listener, Session};
use farside_vfio_user::{DeviceInfo, Server};
use rustix::process::Pid;

/// The variable that says where a host has its files.
pub(crate) const HOME: &str = "FARSIDE_LEND_HOME";

/// The processes of the host with these files whose command line has this word; all, if it is empty.
pub(crate) fn processes(home: &str, word: &str) -> Vec<Pid> {
    let variable = format!("{HOME}={home}");
    let has = |pid: &i32, file: &str, word: &str| {
        let words = std::fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
        words.split(|&byte| byte == 0).any(|found| found == word.as_bytes())
    };
    let entries = std::fs::read_dir("/proc").expect("the system's processes").flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let ours = |pid: &i32| {
        has(pid, "environ", &variable) && (word.is_empty() || has(pid, "cmdline", word))
    };
    pids.filter(ours).filter_map(Pid::from_raw).collect()
}

/// A command that has borrowed, and where; killed when dropped.
pub(crate) struct Held {
    pub(crate) child: Child,
    /// The place of a card, the socket of another device.
    pub(crate) place: String,
}

impl Held {
    /// Starts `farside borrow` without a program, and waits until it has what it wants.
    ///
    /// # Errors
    /// It has not; it says why itself.
    pub(crate) fn by(mut borrow: Command) -> Result<Held, String> {
        let child = borrow.stdout(Stdio::piped()).spawn();
        let mut held =
            Held { child: child.map_err(|error| error.to_string())?, place: String::new() };
        let stdout = held.child.stdout.take().ok_or("it is piped")?;
        BufReader::new(stdout).read_line(&mut held.place).map_err(|error| error.to_string())?;
        held.place.truncate(held.place.trim_end().len());
        if !held.place.starts_with("lease:") && !held.place.ends_with("/device.sock") {
            return Err(format!("nothing is borrowed: {:?}", held.place));
        }
        Ok(held)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Serves a device at a socket, one client after the other, until the test ends.
pub(crate) fn serve_device(
    socket: &Path,
    info: fn() -> DeviceInfo,
    mut serve: impl FnMut(Session<Connection>) + Send + 'static,
) {
    let listener = Listener::bind(socket).expect("a socket");
    std::thread::spawn(move || {
        while let Ok(connection) = listener.accept() {
            let server = Server::new(info(), Default::default()).expect("a server");
            serve(Session::new(connection, server));
        }
    });
}

/// Waits until something is so, and says what is not if it is not so in time.
#[track_caller]
pub(crate) fn await_that(limit: Duration, what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + limit;
    while !is_so() {
        assert!(Instant::now() < end, "after {limit:?}: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
