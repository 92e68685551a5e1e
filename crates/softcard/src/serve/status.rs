//! Who uses a card: told on a socket of its own, as JSON.

use std::io::Read;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use farside_card::interface::register::{self, COUNTER_NAMES, counter};
use farside_vfio_user::unix::{Connection, Listener};
use serde::{Deserialize, Serialize};

use super::function::Life;
use super::{CardConfig, STATUS_SOCKET, ServeError};
use farside_linux::lock::lock;
use farside_linux::signals::block_for_whole_thread;

/// How long a reader may take.
const LIMIT: Duration = Duration::from_secs(1);

/// Bytes of a status, at most.
const BYTES_MAX: u64 = 4 << 20;

/// What a card does now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CardStatus {
    /// Its number.
    pub card: u32,
    /// The process that serves it.
    pub pid: u32,
    /// Bytes of memory of each function.
    pub memory_bytes: u64,
    /// Processing elements of each function.
    pub processing_elements: u16,
    /// Names of its kernels.
    pub kernels: Vec<String>,
    /// Its functions.
    pub functions: Vec<FunctionStatus>,
}

/// What a function does now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FunctionStatus {
    /// Its number.
    pub function: u32,
    /// Its socket.
    pub socket: String,
    /// Who uses it.
    pub user: Option<UserStatus>,
    /// Threads of former users whose kernels hang.
    pub hung_threads: usize,
}

/// Who uses a function, and what for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserStatus {
    /// The program's process, if the system says.
    pub pid: Option<u32>,
    /// Its name, if it can be seen.
    pub program: Option<String>,
    /// The function's life.
    pub generation: u64,
    /// Jobs that run.
    pub jobs: usize,
    /// The function's counters by name.
    pub counters: std::collections::BTreeMap<String, u64>,
}

/// Asks the card in a folder.
///
/// # Errors
/// Nobody serves it, or what it says makes no sense.
pub fn read_status(folder: &Path) -> std::io::Result<CardStatus> {
    let stream = UnixStream::connect(folder.join(STATUS_SOCKET))?;
    stream.set_read_timeout(Some(LIMIT))?;
    let mut text = String::new();
    stream.take(BYTES_MAX).read_to_string(&mut text)?;
    serde_json::from_str(&text).map_err(std::io::Error::other)
}

pub(super) fn status_of(config: &CardConfig, lives: &[Arc<Life>]) -> CardStatus {
    CardStatus {
        card: config.card,
        pid: std::process::id(),
        memory_bytes: u64::from(config.frames) * farside_types::PAGE_SIZE as u64,
        processing_elements: config.pes,
        kernels: config.kernels.names().map(str::to_owned).collect(),
        functions: lives.iter().map(|life| function_status(life)).collect(),
    }
}

fn function_status(life: &Life) -> FunctionStatus {
    let now = lock(&life.now).clone();
    FunctionStatus {
        function: life.number,
        socket: life.socket.display().to_string(),
        user: now.map(|(plane, peer)| {
            let pid = peer.map(|peer| peer.pid);
            let read = |offset| {
                let mut bytes = [0; 8];
                plane.with(|function, card, _| function.read_register(card, offset, &mut bytes));
                u64::from_le_bytes(bytes)
            };
            let counters = COUNTER_NAMES.iter().enumerate();
            UserStatus {
                pid,
                program: pid.and_then(program_of),
                generation: read(register::GENERATION),
                jobs: plane.jobs(),
                counters: counters
                    .map(|(index, name)| ((*name).to_owned(), read(counter(index))))
                    .collect(),
            }
        }),
        hung_threads: life.hung.load(Ordering::SeqCst),
    }
}

fn program_of(pid: u32) -> Option<String> {
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    Some(name.trim_end().to_owned())
}

/// Answers on the status socket; ends when dropped.
#[derive(Debug)]
pub(super) struct StatusThread {
    path: std::path::PathBuf,
    closing: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl StatusThread {
    pub(super) fn start(
        config: &Arc<CardConfig>,
        lives: Vec<Arc<Life>>,
    ) -> Result<StatusThread, ServeError> {
        let path = config.folder.join(STATUS_SOCKET);
        let listener = Listener::bind(&path)
            .map_err(|error| ServeError::Path { path: path.clone(), error })?;
        let closing = Arc::new(AtomicBool::new(false));
        let (config, ends) = (Arc::clone(config), Arc::clone(&closing));
        let thread = std::thread::Builder::new()
            .name("farside-status".to_owned())
            .spawn(move || {
                block_for_whole_thread();
                answer(&listener, &ends, &config, &lives);
            })
            .map_err(ServeError::Thread)?;
        Ok(StatusThread { path, closing, thread: Some(thread) })
    }
}

impl Drop for StatusThread {
    fn drop(&mut self) {
        self.closing.store(true, Ordering::SeqCst);
        // The thread sleeps until somebody comes.
        let _ = UnixStream::connect(&self.path);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn answer(listener: &Listener, closing: &AtomicBool, config: &CardConfig, lives: &[Arc<Life>]) {
    loop {
        let accepted = listener.accept();
        if closing.load(Ordering::SeqCst) {
            return;
        }
        let Ok(connection) = accepted else {
            // Descriptors have run out: not a reason to spin.
            std::thread::sleep(Duration::from_millis(100));
            continue;
        };
        let text = serde_json::to_string(&status_of(config, lives)).unwrap_or_default();
        if connection.set_time_limit(Some(LIMIT)).is_ok() {
            write_all(&connection, text.as_bytes());
        }
    }
}

/// Writes until all is written, or the reader is gone, or too slow: it has its reasons.
fn write_all(connection: &Connection, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        match rustix::io::write(connection, bytes) {
            Ok(count) if count > 0 => bytes = &bytes[count..],
            Err(rustix::io::Errno::INTR) => {}
            _ => return,
        }
    }
}
