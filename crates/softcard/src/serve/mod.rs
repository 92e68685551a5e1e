//! A card as a process: software cards served to other programs over vfio-user.
//!
//! A card has several **functions**, one for each client: a socket of its own, rings, quota of
//! frames and memory. Functions share no process that touches what comes from a client:
//!
//! ```text
//! owner        the program that serves the card: holds a CardServer
//!   supervisor   listens, tells the status, makes a process for each lease; never waits for one
//!     lease        accepts the client, sees it hang up, ends the worker, gives its memory back
//!       worker       serves the client, in a sandbox
//! ```
//!
//! A worker ends with its lease, whatever it was at, and so does everything that its client could
//! bring about in it. `leased_function` is what it serves: one life of a function; `windows` the
//! client's memory as the function reaches it, `copier` its page DMA, `device` its registers and BARs
//! as vfio-user sees them.

mod bus;
mod channel;
mod copier;
mod device;
mod doorbell;
#[cfg(test)]
mod hand_over_tests;
mod job_end;
mod lease;
mod leased_function;
mod log;
mod mutation;
mod own;
#[cfg(test)]
mod own_tests;
mod process;
mod staging;
mod status;
mod stray;
mod supervisor;
#[cfg(test)]
mod tests;
mod windows;
#[cfg(test)]
mod words_tests;
mod worker;

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use farside_card::{Geometry, GeometryError};
use farside_linux::card_memory::CardMemoryError;
use farside_linux::mapping::MemoryError;
use thiserror::Error;

use crate::kernels::Kernels;
use crate::window_plan::{WindowMemory, WindowPlan, WindowPlanError, window_frames};

pub use status::{CardStatus, FunctionStatus, HolderId, UserStatus};
pub use worker::LeaseLimits;

/// Functions of a card, at most.
pub const FUNCTIONS_MAX: u16 = 64;

/// Frames of a function and its window together: drivers believe no more (512 GiB).
pub const FRAMES_WITH_WINDOW_MAX: u32 = 1 << 27;

/// Name of the socket of a function in its card's folder.
pub fn socket_name(function: u32) -> String {
    format!("fn{function}.sock")
}

/// Name of the socket in a card's folder that tells the card's status.
pub const STATUS_SOCKET: &str = "status.sock";

/// Name of the socket in a card's folder by which its owner hands functions on, and takes them back.
pub const CONTROL_SOCKET: &str = "control.sock";

/// What a card is served with.
#[derive(Clone, Debug)]
pub struct CardConfig {
    /// The folder of its sockets.
    pub folder: PathBuf,
    /// Its number, for people.
    pub card: u32,
    /// Functions: clients at a time.
    pub functions: u16,
    /// Frames of each function. What [`Geometry::table_pages`] gives its tables comes on top.
    pub frames: u32,
    /// Memories of each function that its kernels and its driver allocate in, behind the others; none: it has no window.
    pub window: Vec<WindowMemory>,
    /// Processing elements of each function.
    pub pes: u16,
    /// Address-space ids of each function.
    pub asids: u16,
    /// Jobs that may wait for a processing element, per function.
    pub jobs_max: u32,
    /// Sizes of TLBs, queues and counters.
    pub geometry: Geometry,
    /// How long a kernel that was told to stop may go on before it counts as hung.
    pub grace: Duration,
    /// What each lease may have of the machine.
    pub limits: LeaseLimits,
    /// What it can run.
    pub kernels: Arc<Kernels>,
}

impl CardConfig {
    /// A card in a folder, with the kernels that are built in.
    pub fn new(folder: impl Into<PathBuf>) -> CardConfig {
        CardConfig {
            folder: folder.into(),
            card: 0,
            functions: 8,
            frames: 64 << 8,
            window: Vec::new(),
            pes: 2,
            asids: 16,
            jobs_max: 256,
            geometry: Geometry::software(),
            grace: Duration::from_millis(200),
            limits: LeaseLimits::default(),
            kernels: Arc::new(Kernels::builtin()),
        }
    }

    fn check(&self) -> Result<(), ServeError> {
        let bounds = [
            ("functions", u64::from(self.functions), u64::from(FUNCTIONS_MAX)),
            ("frames of a function", self.frames.into(), 1 << 31),
            ("processing elements", self.pes.into(), 1024),
            ("address-space ids", self.asids.into(), u16::MAX.into()),
        ];
        for (what, value, most) in bounds {
            if !(1..=most).contains(&value) {
                return Err(ServeError::Setting { what, value, most });
            }
        }
        self.plan()?;
        let all = u64::from(self.frames) + window_frames(&self.window);
        if !self.window.is_empty() && all > FRAMES_WITH_WINDOW_MAX.into() {
            let what = "frames of a function and its window";
            return Err(ServeError::Setting {
                what,
                value: all,
                most: FRAMES_WITH_WINDOW_MAX.into(),
            });
        }
        Ok(())
    }

    /// Frames of a function's memory, the window's included.
    fn all_frames(&self) -> u32 {
        self.frames.saturating_add(self.window.iter().map(|memory| memory.frames).sum())
    }

    /// The window of each function, if it has one.
    fn plan(&self) -> Result<Option<WindowPlan>, WindowPlanError> {
        let has_one = !self.window.is_empty();
        has_one.then(|| WindowPlan::new(&self.window)).transpose()
    }
}

/// Why a card cannot be served.
#[derive(Debug, Error)]
pub enum ServeError {
    /// A setting makes no card.
    #[error("a card has 1 to {most} {what}, not {value}")]
    Setting {
        /// Which.
        what: &'static str,
        /// What was given.
        value: u64,
        /// The most there may be.
        most: u64,
    },
    /// Memories that make no window.
    #[error("a card's own memory cannot be had: {0}")]
    Window(#[from] WindowPlanError),
    /// The folder or a socket cannot be had.
    #[error("{path} cannot be used: {error}; choose another folder, or end the card that uses it", path = .path.display())]
    Path {
        /// The path.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// Sizes that make no card.
    #[error("a card cannot be made: {0}")]
    Geometry(#[from] GeometryError),
    /// No memory for the card.
    #[error("cannot make a card's memory: {0}")]
    CardMemory(#[from] CardMemoryError),
    /// No address space for what clients share.
    #[error("cannot make room for clients' memory: {0}")]
    Memory(#[from] MemoryError),
    /// No thread.
    #[error("cannot start a thread of the card: {0}; raise the limit of processes")]
    Thread(std::io::Error),
    /// No event descriptor.
    #[error("cannot make an event descriptor: {0}; raise the limit of open files")]
    Event(#[from] rustix::io::Errno),
    /// The card's process cannot be made.
    #[error("the card's process cannot be made: {0}; raise the limits of processes and files")]
    Process(std::io::Error),
    /// The process of a client cannot begin.
    #[error("the process of a client cannot be prepared: {0}")]
    Worker(std::io::Error),
}

/// Asks the card in a folder.
///
/// # Errors
/// Nobody serves it, or what it says makes no sense.
pub fn read_status(folder: &Path) -> std::io::Result<CardStatus> {
    supervisor::read_status(folder)
}

/// Has the card in a folder serve whoever is at the other end of the connection that this gives: on a
/// function that is free, for a holder, whose functions [`take_back`] ends. The card hears its owner alone:
/// the user who serves it, or root.
///
/// # Errors
/// `ResourceBusy`: all functions are in use. Nobody serves the card, or it does not hear this user.
pub fn hand_on(folder: &Path, holder: HolderId) -> std::io::Result<OwnedFd> {
    supervisor::give(folder, holder)
}

/// Has the card in a folder end every connection that was handed to a holder, whoever has it by now and
/// whatever they do: jobs stop, the connection ends, and what comes next on its function has new memory.
/// Says how many there were. They have ended when [`read_status`] does not name the holder any more.
///
/// # Errors
/// Nobody serves the card, or it does not hear this user.
pub fn take_back(folder: &Path, holder: HolderId) -> std::io::Result<u32> {
    supervisor::take_back(folder, holder)
}

/// A card that is being served; ends when dropped.
#[derive(Debug)]
pub struct CardServer {
    owner: supervisor::Owner,
    config: Arc<CardConfig>,
}

impl CardServer {
    /// Makes the sockets, and a process that serves them; without clients it takes no time. It is a
    /// copy of this one (`fork`), so the card's kernels may be closures, and what they find in memory
    /// is what is there now: each client's kernels have a copy of their own, which ends with the
    /// client.
    ///
    /// Start a card while the program has one thread, where you can. A thread that holds a lock at
    /// this moment does not exist in the card's process, so the lock is never given back there: a
    /// kernel, or a subscriber of `tracing`, must need none that another thread uses.
    ///
    /// # Errors
    /// [`ServeError`].
    pub fn start(config: CardConfig) -> Result<CardServer, ServeError> {
        config.check()?;
        let folder = &config.folder;
        std::fs::create_dir_all(folder)
            .map_err(|error| ServeError::Path { path: folder.clone(), error })?;
        let config = Arc::new(config);
        Ok(CardServer { owner: supervisor::start(&config)?, config })
    }

    /// What it is served with.
    pub fn config(&self) -> &CardConfig {
        &self.config
    }

    /// What it does now.
    ///
    /// # Errors
    /// Its process has ended.
    pub fn status(&self) -> std::io::Result<CardStatus> {
        read_status(&self.config.folder)
    }

    /// Whether its process still runs. It ends before this is dropped only where somebody kills it,
    /// or by a bug.
    pub fn is_served(&self) -> bool {
        self.owner.is_served()
    }
}

#[cfg(test)]
mod config_tests {
    use super::*;

    #[test]
    fn what_no_driver_believes_is_not_served() {
        let config = |frames, window_frames| {
            let window = WindowMemory::only(window_frames);
            CardConfig { frames, window, ..CardConfig::new("/nonexistent") }.check()
        };
        let most = FRAMES_WITH_WINDOW_MAX;
        assert!(config(4096, most - 4096).is_ok() && config(most, 0).is_ok());
        for (frames, window) in [(4096, most - 4095), (1, most), (most, 1), (1, u32::MAX)] {
            let refused = config(frames, window);
            let is_setting =
                matches!(refused, Err(ServeError::Setting { .. } | ServeError::Window(_)));
            assert!(is_setting, "{refused:?}");
        }
        let frames = most - 4096;
        let window = vec![WindowMemory::plain(2048); 3];
        let split = CardConfig { frames, window, ..CardConfig::new("/nonexistent") }.check();
        assert!(matches!(split, Err(ServeError::Setting { .. })), "{split:?}");
    }
}
