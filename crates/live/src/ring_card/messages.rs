//! The way to a card over vfio-user when nothing but messages goes between: slow, and right.
//!
//! For a stream that carries no memory: the card's DMA comes as messages, which are answered from this
//! side's memory, BAR2 is read and written by messages, and so is the doorbell. Interrupts are the one
//! thing for which the protocol has no message; they stay event descriptors.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use farside_card::interface::{pci, register};
use farside_types::CardId;
use farside_vfio_user::client::MapRequest;
use farside_vfio_user::device::irq;
use farside_vfio_user::unix::{CallError, Connection, DmaMemory, UnixClient};
use farside_vfio_user::{DmaUnmap, Errno as WireErrno, IrqAction, Limits};
use rustix::event::{PollFd, PollFlags};

use super::hangs_up;
use super::link::{Identity, identify};
use super::transport::{DmaPiece, Transport, TransportError, Watch};
use super::vfio_user::{CALL_LIMIT, failure};
use crate::error::LiveError;
use farside_linux::lock::lock;
use farside_linux::shared::SharedMemory;

/// Memory that the card reaches, by bus address.
type Pieces = Arc<Mutex<BTreeMap<u64, SharedMemory>>>;

/// A connection to a function of a card's process that shares no memory.
pub struct ByMessages {
    client: Arc<Mutex<UnixClient>>,
    pieces: Pieces,
    /// The socket once more, to be watched without the lock.
    socket: OwnedFd,
    answering: Option<JoinHandle<()>>,
    closing: Arc<AtomicBool>,
}

impl std::fmt::Debug for ByMessages {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ByMessages")
    }
}

impl ByMessages {
    /// Connects to the socket of a function.
    ///
    /// # Errors
    /// [`TransportError`], also if the function is in use.
    pub fn connect(path: &Path) -> Result<ByMessages, TransportError> {
        let what = "connecting";
        let fail = |error: CallError| failure(what, &error);
        let pieces = Pieces::default();
        let memory = Box::new(Answers(Arc::clone(&pieces)));
        let connection = Connection::connect(path).map_err(|error| fail(error.into()))?;
        let client = UnixClient::new(connection, Limits::default(), CALL_LIMIT, memory);
        let client = client.map_err(fail)?;
        let socket = client.as_fd().try_clone_to_owned().map_err(|error| fail(error.into()))?;
        let client = Arc::new(Mutex::new(client));
        let closing = Arc::new(AtomicBool::new(false));
        let answering = answer_while_open(&client, &socket, &closing)
            .map_err(|error| fail(CallError::Io(error)))?;
        let answering = Some(answering);
        Ok(ByMessages { client, pieces, socket, answering, closing })
    }

    /// Reads the card's memory, BAR2.
    ///
    /// # Errors
    /// [`TransportError`].
    pub fn read_frames(&self, offset: u64, into: &mut [u8]) -> Result<(), TransportError> {
        let most = self.most();
        for (at, part) in (offset..).step_by(most).zip(into.chunks_mut(most)) {
            self.call("reading the card's memory", |client| {
                client.region_read(pci::BAR_MEMORY as u32, at, part)
            })?;
        }
        Ok(())
    }

    /// Writes the card's memory, BAR2.
    ///
    /// # Errors
    /// [`TransportError`].
    pub fn write_frames(&self, offset: u64, from: &[u8]) -> Result<(), TransportError> {
        let most = self.most();
        for (at, part) in (offset..).step_by(most).zip(from.chunks(most)) {
            self.call("writing the card's memory", |client| {
                client.region_write(pci::BAR_MEMORY as u32, at, part)
            })?;
        }
        Ok(())
    }

    /// Bytes of one message.
    fn most(&self) -> usize {
        let negotiated = lock(&self.client).negotiated().copied();
        negotiated.map_or(1, |negotiated| negotiated.max_data_xfer_size as usize).max(1)
    }

    fn call<T>(
        &self,
        what: &'static str,
        call: impl FnOnce(&mut UnixClient) -> Result<T, CallError>,
    ) -> Result<T, TransportError> {
        call(&mut lock(&self.client)).map_err(|error| failure(what, &error))
    }
}

/// Connects to the socket of a function by messages, and sees what it is. While the function is not
/// served yet, or is in use, this tries again until `patience` is over.
///
/// # Errors
/// [`LiveError::Card`].
pub fn connect_by_messages(
    card: CardId,
    socket: &Path,
    patience: Duration,
) -> Result<(Arc<ByMessages>, Identity), LiveError> {
    let fail = |error| LiveError::Card { card, error };
    let end = Instant::now() + patience;
    let transport = loop {
        match ByMessages::connect(socket) {
            Ok(transport) => break Arc::new(transport),
            Err(error) if !may_pass(&error) || Instant::now() >= end => return Err(fail(error)),
            Err(_) => std::thread::sleep(Duration::from_millis(10)),
        }
    };
    let identity = identify(transport.as_ref()).map_err(fail)?;
    Ok((transport, identity))
}

/// Whether a function that cannot be had now may be had soon.
fn may_pass(error: &TransportError) -> bool {
    let busy = matches!(error, TransportError::Refused { errno: rustix::io::Errno::BUSY, .. });
    busy || matches!(error, TransportError::Gone { .. })
}

/// This side's memory, as the card asks for it. It may change at the same time, so it is touched by
/// atomics only, words of 32 bits whole.
struct Answers(Pieces);

impl Answers {
    fn with<T>(
        &self,
        address: u64,
        body: impl FnOnce(&SharedMemory, u64) -> Option<T>,
    ) -> Result<T, WireErrno> {
        let pieces = lock(&self.0);
        let found = pieces.range(..=address).next_back();
        let done = found.and_then(|(&start, memory)| body(memory, address - start));
        done.ok_or(WireErrno::FAULT)
    }
}

impl DmaMemory for Answers {
    fn read(&mut self, address: u64, data: &mut [u8]) -> Result<(), WireErrno> {
        self.with(address, |memory, offset| {
            if data.len() == 4 && offset % 4 == 0 {
                data.copy_from_slice(&memory.load(offset)?.to_le_bytes());
                return Some(());
            }
            memory.read(offset, data)
        })
    }

    fn write(&mut self, address: u64, data: &[u8]) -> Result<(), WireErrno> {
        self.with(address, |memory, offset| match data.try_into() {
            Ok(word) if offset % 4 == 0 => memory.store(offset, u32::from_le_bytes(word)),
            _ => memory.write(offset, data),
        })
    }
}

/// A thread that answers the card while no call does.
fn answer_while_open(
    client: &Arc<Mutex<UnixClient>>,
    socket: &OwnedFd,
    closing: &Arc<AtomicBool>,
) -> std::io::Result<JoinHandle<()>> {
    let (client, closing) = (Arc::clone(client), Arc::clone(closing));
    let socket = socket.try_clone()?;
    let body = move || {
        farside_linux::signals::block_for_whole_thread();
        while !closing.load(Ordering::SeqCst) {
            // Ends when something comes, or the connection does. What comes may be a reply, which the
            // call that waits for it takes: then nothing is left when that is over.
            let mut polled = [PollFd::new(&socket, PollFlags::IN)];
            let _ = rustix::event::poll(&mut polled, None);
            if lock(&client).serve_dma(Duration::ZERO).is_err() {
                return;
            }
        }
    };
    std::thread::Builder::new().name("farside-answer".into()).spawn(body)
}

impl Transport for ByMessages {
    fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), TransportError> {
        self.call("reading a register", |client| {
            client.region_read(pci::BAR_REGISTERS as u32, offset, into)
        })
    }

    fn write(&self, offset: u64, from: &[u8]) -> Result<(), TransportError> {
        self.call("writing a register", |client| {
            client.region_write(pci::BAR_REGISTERS as u32, offset, from)
        })
    }

    fn ring_doorbell(&self) -> bool {
        // A card that is gone is seen by who waits for its answer.
        let rung = self.write(register::DOORBELL, &1u32.to_le_bytes());
        !matches!(rung, Err(TransportError::TimedOut { .. }))
    }

    fn map(&self, piece: &DmaPiece<'_>) -> Result<(), TransportError> {
        let what = "sharing memory with the card";
        let unfit = |error: String| TransportError::Unfit { what: format!("{what}: {error}") };
        let file = piece.file.try_clone_to_owned().map_err(|error| unfit(error.to_string()))?;
        let memory = SharedMemory::of_file(file, piece.offset, piece.bytes)
            .map_err(|error| unfit(error.to_string()))?;
        // There before the card may ask for it.
        lock(&self.pieces).insert(piece.bus, memory);
        let request = MapRequest {
            address: piece.bus,
            size: piece.bytes,
            readable: true,
            writable: true,
            offset: 0,
        };
        let mapped = self.call(what, |client| client.dma_map(&request, None));
        if mapped.is_err() {
            lock(&self.pieces).remove(&piece.bus);
        }
        mapped
    }

    fn unmap(&self, bus: u64, bytes: u64) -> Result<(), TransportError> {
        let range = DmaUnmap::Range { address: bus, size: bytes };
        self.call("taking memory back from the card", |client| client.dma_unmap(range))?;
        lock(&self.pieces).retain(|&start, _| start < bus || start - bus >= bytes);
        Ok(())
    }

    fn memory(&self, _bytes: u64) -> Result<(OwnedFd, u64), TransportError> {
        let what = "the card's memory is reached by messages only and cannot be mapped".to_owned();
        Err(TransportError::Unfit { what })
    }

    fn interrupt_by(&self, events: &[BorrowedFd<'_>]) -> Result<(), TransportError> {
        let what = "setting up interrupts";
        let events: Result<Vec<_>, std::io::Error> =
            events.iter().map(|event| event.try_clone_to_owned().map(Arc::new)).collect();
        let events = events.map_err(|error| failure(what, &CallError::Io(error)))?;
        self.call(what, |client| client.irqs_assign(irq::MSIX, 0, &events, IrqAction::Trigger))
    }

    fn watch(&self) -> Option<Watch<'_>> {
        Some(Watch::Connection(self.socket.as_fd()))
    }

    fn is_gone(&self) -> bool {
        hangs_up(&self.socket)
    }

    // The function is stopped by its server when the connection ends.
    fn stop(&self) {}
}

impl Drop for ByMessages {
    fn drop(&mut self) {
        self.closing.store(true, Ordering::SeqCst);
        // Wakes the thread that answers; the connection may have ended already.
        let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Both);
        if let Some(thread) = self.answering.take() {
            let _ = thread.join();
        }
    }
}
