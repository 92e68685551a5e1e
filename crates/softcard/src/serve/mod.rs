//! A card as a process: software cards served to other programs over vfio-user.
//!
//! A card has several **functions**, one for each client: a socket of its own, rings, quota of
//! frames and memory. `function` is the thread of one, `plane` one life of it (from a client's
//! coming to its going), `windows` the client's memory as the function reaches it, `copier` its
//! page DMA, `device` its registers and BARs as vfio-user sees them. `status` tells who is there.

mod bus;
mod copier;
mod device;
mod doorbell;
mod function;
mod job_end;
mod plane;
mod status;
mod windows;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use farside_card::{Geometry, GeometryError};
use farside_linux::card_memory::CardMemoryError;
use farside_linux::mapping::MemoryError;
use thiserror::Error;

use crate::kernels::Kernels;
use function::FunctionThread;

pub use status::{CardStatus, FunctionStatus, UserStatus, read_status};

/// Functions of a card, at most.
pub const FUNCTIONS_MAX: u16 = 64;

/// Name of the socket of a function in its card's folder.
pub fn socket_name(function: u32) -> String {
    format!("fn{function}.sock")
}

/// Name of the socket in a card's folder that tells the card's status.
pub const STATUS_SOCKET: &str = "status.sock";

/// What a card is served with.
#[derive(Clone, Debug)]
pub struct CardConfig {
    /// The folder of its sockets.
    pub folder: PathBuf,
    /// Its number, for people.
    pub card: u32,
    /// Functions: clients at a time.
    pub functions: u16,
    /// Frames of each function.
    pub frames: u32,
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
            pes: 2,
            asids: 16,
            jobs_max: 256,
            geometry: Geometry::default(),
            grace: Duration::from_millis(200),
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
        Ok(())
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
}

/// A card that is being served; ends when dropped.
#[derive(Debug)]
pub struct CardServer {
    functions: Vec<FunctionThread>,
    _status: status::StatusThread,
    config: Arc<CardConfig>,
}

impl CardServer {
    /// Makes the sockets and starts a thread for each. Without clients none of them takes any time.
    ///
    /// # Errors
    /// [`ServeError`].
    pub fn start(config: CardConfig) -> Result<CardServer, ServeError> {
        config.check()?;
        let path = |path: &Path| {
            let path = path.to_owned();
            move |error| ServeError::Path { path, error }
        };
        std::fs::create_dir_all(&config.folder).map_err(path(&config.folder))?;
        let config = Arc::new(config);
        let functions = (0..u32::from(config.functions))
            .map(|number| FunctionThread::start(&config, number))
            .collect::<Result<Vec<_>, _>>()?;
        let lives = functions.iter().map(FunctionThread::life).collect();
        let status = status::StatusThread::start(&config, lives)?;
        Ok(CardServer { functions, _status: status, config })
    }

    /// What it is served with.
    pub fn config(&self) -> &CardConfig {
        &self.config
    }

    /// What it does now.
    pub fn status(&self) -> CardStatus {
        let lives: Vec<_> = self.functions.iter().map(FunctionThread::life).collect();
        status::status_of(&self.config, &lives)
    }
}
