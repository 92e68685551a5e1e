//! Who uses the card: answered on a socket of its own, as JSON.
//!
//! Workers are asked for their numbers, and have [`ANSWER_LIMIT`]; of one that does not answer the
//! last that it has said is told.

use std::collections::BTreeMap;
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use farside_card::MemorySizes;
use farside_card::interface::register::COUNTER_NAMES;
use farside_vfio_user::unix::{Connection, Listener};
use rustix::net::{SendFlags, send};

use super::{Served, Slot, bind};
use crate::own_memory::OwnMemory;
use crate::serve::channel::Message;
use crate::serve::{CardConfig, CardStatus, STATUS_SOCKET, ServeError, UserStatus};
use crate::window_plan::WindowMemory;

/// How long workers have to say what they do.
const ANSWER_LIMIT: Duration = Duration::from_millis(100);

/// How long a reader may take.
const READER_LIMIT: Duration = Duration::from_secs(1);

/// Readers at a time.
const READERS_MAX: usize = 16;

/// Bytes of a status, at most.
const BYTES_MAX: u64 = 4 << 20;

/// Asks the card in a folder.
///
/// # Errors
/// Nobody serves it, or what it says makes no sense.
pub(in crate::serve) fn read_status(folder: &Path) -> std::io::Result<CardStatus> {
    let stream = UnixStream::connect(folder.join(STATUS_SOCKET))?;
    stream.set_read_timeout(Some(READER_LIMIT))?;
    let mut text = String::new();
    stream.take(BYTES_MAX).read_to_string(&mut text)?;
    serde_json::from_str(&text).map_err(std::io::Error::other)
}

/// Who wants to know.
#[derive(Debug)]
struct Reader {
    connection: Connection,
    /// What is still to be sent, once that is known.
    text: Option<Vec<u8>>,
    sent: usize,
    until: Instant,
}

/// See the module.
#[derive(Debug)]
pub(super) struct StatusDesk {
    listener: Listener,
    readers: Vec<Reader>,
    /// Until when workers are waited for, if they were asked.
    asked_until: Option<Instant>,
}

impl StatusDesk {
    pub(super) fn open(config: &CardConfig) -> Result<StatusDesk, ServeError> {
        let listener = bind(&config.folder.join(STATUS_SOCKET))?;
        Ok(StatusDesk { listener, readers: Vec::new(), asked_until: None })
    }

    /// Where readers come, if one more can be dealt with.
    pub(super) fn listener(&self) -> Option<BorrowedFd<'_>> {
        (self.readers.len() < READERS_MAX).then(|| self.listener.as_fd())
    }

    /// Readers that have not taken everything yet.
    pub(super) fn readers(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let sending = self.readers.iter().filter(|reader| reader.text.is_some());
        sending.map(|reader| reader.connection.as_fd())
    }

    /// Whether workers have been asked.
    pub(super) fn is_waiting(&self) -> bool {
        self.asked_until.is_some()
    }

    /// When something is late.
    pub(super) fn next_end(&self) -> Option<Instant> {
        self.readers.iter().map(|reader| reader.until).chain(self.asked_until).min()
    }

    /// Lets the next reader in, and asks the workers for it.
    pub(super) fn accept(&mut self, slots: &mut [Slot]) {
        let Ok(connection) = self.listener.accept() else { return };
        let until = Instant::now() + READER_LIMIT;
        self.readers.push(Reader { connection, text: None, sent: 0, until });
        // Asked for each reader: what one is told is not older than its question.
        for served in slots.iter_mut().filter_map(|slot| slot.served.as_mut()) {
            // Answers to earlier questions.
            for _ in 0..4 {
                if !served.channel.receive().is_some_and(|message| served.take_in(message)) {
                    break;
                }
            }
            served.has_answered = false;
            served.channel.send(&Message::Ask);
        }
        self.asked_until = Some(Instant::now() + ANSWER_LIMIT);
    }

    /// Answers as far as that can be done now.
    pub(super) fn serve(&mut self, slots: &[Slot], config: &CardConfig, owner: u32) {
        let now = Instant::now();
        let mut served = slots.iter().filter_map(|slot| slot.served.as_ref());
        let all_have_answered = served.all(|served| served.user.is_none() || served.has_answered);
        if self.asked_until.is_some_and(|until| all_have_answered || until <= now) {
            self.asked_until = None;
            let text = serde_json::to_vec(&status_of(config, owner, slots)).unwrap_or_default();
            for reader in self.readers.iter_mut().filter(|reader| reader.text.is_none()) {
                reader.text = Some(text.clone());
            }
        }
        self.readers.retain_mut(|reader| reader.goes_on() && reader.until > now);
    }
}

impl Reader {
    /// Sends what finds room. `false`: that was all, or it is gone.
    fn goes_on(&mut self) -> bool {
        let Some(text) = &self.text else { return true };
        while self.sent < text.len() {
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            match send(&self.connection, &text[self.sent..], flags) {
                Ok(count) if count > 0 => self.sent += count,
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) => return true,
                _ => return false,
            }
        }
        false
    }
}

fn status_of(config: &CardConfig, owner: u32, slots: &[Slot]) -> CardStatus {
    let bytes = |pages: u32| u64::from(pages) * farside_types::PAGE_SIZE as u64;
    CardStatus {
        card: config.card,
        pid: owner,
        memory_bytes: bytes(config.all_frames()),
        table_bytes: bytes(config.geometry.table_pages_for(config.all_frames())),
        own_memories: own_memories(config, None),
        processing_elements: config.pes,
        kernels: config.kernels.names().map(str::to_owned).collect(),
        functions: slots.iter().map(|slot| slot.status(config)).collect(),
    }
}

/// The memories of a function's window: so many frames of each are free, or all.
fn own_memories(config: &CardConfig, free: Option<&[u64]>) -> Vec<OwnMemory> {
    let sizes = config.window.iter().enumerate().map(|(index, memory)| {
        let WindowMemory { kind, frames } = *memory;
        let told = free.and_then(|free| free.get(index)).copied().unwrap_or(frames.into());
        MemorySizes { kind, frames, frames_free: told.min(frames.into()) as u32 }
    });
    OwnMemory::all(sizes)
}

/// Who uses a function; nobody as long as nobody was let in.
pub(super) fn user_of(served: &Served, config: &CardConfig) -> Option<UserStatus> {
    let pid = served.user?;
    let names = COUNTER_NAMES.iter().map(|name| (*name).to_owned());
    let counters: BTreeMap<String, u64> = names.zip(served.report.counters).collect();
    Some(UserStatus {
        pid,
        program: pid.and_then(program_of),
        generation: served.generation,
        holder: served.holder,
        worker: served.process.pid(),
        answers: served.has_answered,
        jobs: served.report.jobs as usize,
        own_memories: own_memories(config, Some(&served.report.frames_free)),
        counters,
    })
}

fn program_of(pid: u32) -> Option<String> {
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    Some(name.trim_end().to_owned())
}
