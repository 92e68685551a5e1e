//! Cards that are served: by threads of the test, or by a process that a test can kill.
//!
//! Beside them: [`Program`], a program in a process of its own; [`Census`], what a process has
//! open; [`test_kernels`], kernels that do what a card has to survive; [`Exercise`], work that comes
//! through every step there is.

mod census;
mod exercise;
mod far_host;
mod fragile;
mod kernels;
mod lying_link;
mod neighbours;
mod program;
mod raw;
mod relay;

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use farside::CardPlace;
use farside_card::Geometry;
use farside_softcard::serve::{CardConfig, CardServer, CardStatus, read_status};

pub use census::{Census, switches_of};
pub use exercise::{Exercise, STEPS, expect_loss};
pub use far_host::{FarHost, FarPair, builder_at};
pub use kernels::test_kernels;
pub use lying_link::{LinkLie, LyingLink};
pub use neighbours::Neighbourhood;
pub use program::Program;
pub use raw::{BUS, RawClient};
pub use relay::TcpRelay;

/// A folder of a test's own; removed when dropped.
#[derive(Debug)]
pub struct TempDir {
    path: PathBuf,
    is_own: bool,
}

impl TempDir {
    /// A fresh folder. Its path is short, because it will hold sockets.
    #[allow(clippy::new_without_default)]
    pub fn new() -> TempDir {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        loop {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let path = std::env::temp_dir().join(format!("fs{}-{number}", std::process::id()));
            match std::fs::create_dir(&path) {
                Ok(()) => return TempDir { path, is_own: true },
                // Left behind by a process with this number that was killed.
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(error) => panic!("a folder for a test: {error}"),
            }
        }
    }

    /// The folder of another process, which removes it: for a child that is going to be killed.
    pub fn of_parent(path: impl Into<PathBuf>) -> TempDir {
        TempDir { path: path.into(), is_own: false }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A path in it.
    pub fn join(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        if self.is_own {
            let _ = std::fs::remove_dir_all(&self.path);
        }
    }
}

/// A card in a folder, as tests want it: two functions, 16 MiB each, and [`test_kernels`].
pub fn config(folder: &TempDir, card: u32) -> CardConfig {
    CardConfig { card, ..config_in(folder.join(&format!("card{card}"))) }
}

fn config_in(folder: PathBuf) -> CardConfig {
    let kernels = Arc::new(test_kernels());
    CardConfig { functions: 2, frames: 4096, kernels, ..CardConfig::new(folder) }
}

/// The card with so many pages for translation tables; 0: one of before there were tables.
pub fn with_table_pages(config: CardConfig, table_pages: u32) -> CardConfig {
    let geometry = Geometry { table_pages, ..config.geometry };
    CardConfig { geometry, ..config }
}

/// A card served by threads of this process.
pub fn serve(config: CardConfig) -> CardServer {
    CardServer::start(config).expect("the card is served")
}

/// Where a served card is.
pub fn place(server: &CardServer) -> CardPlace {
    CardPlace::Socket(server.config().folder.clone())
}

/// The same, of which no memory and no descriptor is shared.
pub fn place_by_messages(server: &CardServer) -> CardPlace {
    CardPlace::Messages(server.config().folder.clone())
}

/// The role of a child that serves a card until it is killed: the folder follows.
const SERVE: &str = "serve ";

/// A card in a process of its own.
#[derive(Debug)]
pub struct CardProcess {
    child: std::process::Child,
    folder: PathBuf,
    test: String,
}

impl CardProcess {
    /// Serves a card from a child of the test `test`, which has to call [`serve_if_asked`] first. It
    /// ends with the thread that calls this, or [`CardProcess::restart`].
    pub fn start(test: &str, config: &CardConfig) -> CardProcess {
        let folder = config.folder.clone();
        let child = spawn(test, &folder);
        let process = CardProcess { child, folder, test: test.to_owned() };
        process.await_status(|_| true);
        process
    }

    /// Its process id: that of the process that the card ends with.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Where its card is.
    pub fn place(&self) -> CardPlace {
        CardPlace::Socket(self.folder.clone())
    }

    /// The folder of its sockets.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The same, of which no memory and no descriptor is shared.
    pub fn place_by_messages(&self) -> CardPlace {
        CardPlace::Messages(self.folder.clone())
    }

    /// Kills it, as a crash would, and serves the card again by another process.
    pub fn crash_and_restart(&mut self) {
        self.crash();
        self.restart();
    }

    /// Kills it.
    pub fn crash(&mut self) {
        let _ = self.child.kill();
        let status = self.child.wait().expect("the child is this process's own");
        assert_eq!(status.signal(), Some(9), "the card's process ended by itself: {status}");
    }

    /// Kills it, and waits until those that it has made have ended as well: each ends with the one that made it, and may
    /// do something until then.
    ///
    /// # Panics
    /// If they do not end within 20 seconds.
    pub fn crash_to_the_last(&mut self) {
        let family = family_of(self.child.id());
        self.crash();
        let end = Instant::now() + Duration::from_secs(20);
        while !family.iter().all(|&pid| all_stopped(pid)) {
            assert!(Instant::now() < end, "the card's processes do not end");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Serves the card again.
    pub fn restart(&mut self) {
        self.child = spawn(&self.test, &self.folder);
        self.await_status(|_| true);
    }

    /// Stops it and all that it has made without ending them, as a machine that hangs would. None of
    /// their threads does anything any more when this returns.
    ///
    /// # Panics
    /// If they do not stop within 20 seconds.
    pub fn freeze(&self) {
        let end = Instant::now() + Duration::from_secs(20);
        // One that runs may make another.
        while !family_of(self.child.id()).into_iter().all(all_stopped) {
            self.signal(rustix::process::Signal::STOP);
            assert!(Instant::now() < end, "the card's processes do not stop");
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    /// Lets it go on.
    pub fn thaw(&self) {
        self.signal(rustix::process::Signal::CONT);
    }

    fn signal(&self, signal: rustix::process::Signal) {
        for pid in family_of(self.child.id()) {
            let pid = rustix::process::Pid::from_raw(pid as i32).expect("a process id");
            // It may just have ended.
            let _ = rustix::process::kill_process(pid, signal);
        }
    }

    /// Waits until the card says of itself what `wanted` wants.
    ///
    /// # Panics
    /// If it does not within 20 seconds.
    #[track_caller]
    pub fn await_status(&self, wanted: impl Fn(&CardStatus) -> bool) -> CardStatus {
        await_status(&self.folder, wanted)
    }
}

/// Waits until the card in a folder says of itself what `wanted` wants.
///
/// # Panics
/// If it does not within 20 seconds.
#[track_caller]
pub fn await_status(folder: &Path, wanted: impl Fn(&CardStatus) -> bool) -> CardStatus {
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        let status = read_status(folder);
        match status {
            Ok(status) if wanted(&status) => return status,
            other if Instant::now() > end => panic!("the card does not come to that: {other:?}"),
            _ => std::thread::sleep(Duration::from_millis(2)),
        }
    }
}

/// A process, those that it has made, those that these have made, and so on.
pub fn family_of(pid: u32) -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let all: Vec<(u32, u32)> = entries
        .filter_map(|entry| {
            let pid = entry.file_name().to_str()?.parse().ok()?;
            let stat = std::fs::read_to_string(entry.path().join("stat")).ok()?;
            // State and parent follow the name, which is in brackets and may hold anything.
            let parent = stat.rsplit(')').next()?.split_whitespace().nth(1)?.parse().ok()?;
            Some((pid, parent))
        })
        .collect();
    let mut family = vec![pid];
    let mut next = 0;
    while let Some(&parent) = family.get(next) {
        family.extend(all.iter().filter(|(_, of)| *of == parent).map(|(pid, _)| *pid));
        next += 1;
    }
    family
}

/// Whether every thread of a process is stopped, or has ended: what a process that is stopped itself
/// has made and not waited for is there until it goes on.
fn all_stopped(pid: u32) -> bool {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    tasks.map(|task| std::fs::read_to_string(task.path().join("stat"))).all(|stat| {
        // The state follows the name, which is in brackets and may hold anything.
        let state = stat.ok().and_then(|stat| stat.rsplit(')').next()?.trim_start().chars().next());
        matches!(state, None | Some('T' | 'Z' | 'X'))
    })
}

fn spawn(test: &str, folder: &Path) -> std::process::Child {
    let program = std::env::current_exe().expect("the test binary has a path");
    let role = format!("{SERVE}{}", folder.display());
    Command::new(program)
        .args([test, "--exact", "--nocapture", "--test-threads=1"])
        .env(super::child::ROLE, role)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .expect("the test binary starts")
}

impl Drop for CardProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// In a child that is to serve a card: does so until it is killed, and never returns. `change` is
/// what the test changes about its cards.
pub fn serve_if_asked(change: impl FnOnce(CardConfig) -> CardConfig) {
    let Some(folder) = super::role().and_then(|role| role.strip_prefix(SERVE).map(PathBuf::from))
    else {
        return;
    };
    // A card outlives its test only until this.
    let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
    let _server = serve(change(config_in(folder)));
    loop {
        std::thread::park();
    }
}
