//! The conformance suite of the card interface on a card that is served or plugged in: whatever a
//! [`CardPlace`] names, so a process over vfio-user as well as a device of the kernel's VFIO.
//!
//! Registers are read and written by the bus, BAR2 through its mapping; bus memory is one shared
//! file, interrupts are event descriptors, one per vector. Every other doorbell is rung the fast way
//! (an event descriptor, or a mapped page), the others by a write of the register.
//!
//! Or all of it by messages, where the place says so: the card asks for bus memory by DMA_READ and
//! DMA_WRITE, BAR2 and the doorbell are read and written as regions, and the card tells of interrupts.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::fence;
use std::time::{Duration, Instant};

use crate::{Check, Target, Verdict, checks};
use farside_card::interface::{pci, register};
use farside_types::{CardId, PAGE_SIZE};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec};

use farside_linux::shared::SharedMemory;
use farside_live::LiveError;
use farside_live::ring_card::{CardPlace, DmaPiece, Transport, TransportError, connect};

/// Bus address of the memory that checks use.
const BUS: u64 = 1 << 32;
/// Its size. An emulated IOMMU maps it page by page.
const BUS_BYTES: u64 = 16 << 20;
/// How long a function that is in use is waited for.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long the card is left alone when a check pauses.
const PAUSE: Duration = Duration::from_micros(200);

/// Pauses before something that must come counts as missing: ten seconds and more. With two, a card that was reached by messages on
/// a busy machine was too slow for a kernel's faults.
const PAUSES_MAX: u32 = 50_000;

/// How a check ended: an error says what was wrong.
pub type Finding = Result<Verdict, String>;

/// A function of a card that nobody else uses, and memory for the checks.
pub struct CardUnderTest {
    transport: Arc<dyn Transport>,
    memory: SharedMemory,
    /// Bytes of it that were given out since the last release.
    used: u64,
    /// The card's memory, where it can be mapped.
    frames: Option<SharedMemory>,
    events: Vec<OwnedFd>,
    doorbells: u64,
    /// The first error of the bus; from then on everything reads as ones.
    broken: Option<TransportError>,
}

impl std::fmt::Debug for CardUnderTest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CardUnderTest").field("transport", &self.transport).finish_non_exhaustive()
    }
}

impl CardUnderTest {
    /// Takes a free function of the card at `place`.
    ///
    /// # Errors
    /// [`LiveError`] if there is none, or if it is no card of this interface.
    pub fn open(place: &CardPlace) -> Result<CardUnderTest, LiveError> {
        let card = CardId(0);
        let (transport, identity) = connect(card, place, PATIENCE)?;
        let fail = |error| LiveError::Card { card, error };
        let bytes = u64::from(identity.frames) * PAGE_SIZE as u64;
        let frames = if transport.is_by_messages() {
            None
        } else {
            let (file, offset) = transport.memory(bytes).map_err(fail)?;
            Some(SharedMemory::of_file(file, offset, bytes)?)
        };
        let memory = SharedMemory::new(BUS_BYTES)?;
        let piece = DmaPiece {
            bus: BUS,
            bytes: memory.bytes(),
            address: memory.base(),
            file: memory.file(),
            offset: 0,
        };
        transport.map(&piece).map_err(fail)?;
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let events: Result<Vec<OwnedFd>, _> =
            (0..pci::VECTORS).map(|_| rustix::event::eventfd(0, flags)).collect();
        let events = events.map_err(LiveError::Bell)?;
        let each: Vec<_> = events.iter().map(AsFd::as_fd).collect();
        transport.interrupt_by(&each).map_err(fail)?;
        let broken = None;
        Ok(CardUnderTest { transport, memory, used: 0, frames, events, doorbells: 0, broken })
    }

    /// Runs every check, and tells what came of each as it ends. Stops early if the card is gone.
    ///
    /// # Errors
    /// [`TransportError`] of the bus: the card is gone, or does not answer.
    pub fn run(&mut self, mut tell: impl FnMut(&Check, &Finding)) -> Result<(), TransportError> {
        for check in checks() {
            let found = (check.run)(self);
            if let Some(error) = self.broken.take() {
                tell(check, &Err(error.to_string()));
                return Err(error);
            }
            tell(check, &found);
        }
        Ok(())
    }

    fn keep<T>(&mut self, result: Result<T, TransportError>) {
        if let Err(error) = result {
            self.broken.get_or_insert(error);
        }
    }

    fn read_register<const N: usize>(&mut self, offset: u64) -> [u8; N] {
        let mut bytes = [0xff; N];
        if self.broken.is_none() {
            let result = self.transport.read(offset, &mut bytes);
            self.keep(result);
        }
        bytes
    }

    fn write_register(&mut self, offset: u64, bytes: &[u8]) {
        if self.broken.is_none() {
            let result = self.transport.write(offset, bytes);
            self.keep(result);
        }
    }

    /// Where a bus address is in the memory; a check never leaves it.
    fn offset(address: u64) -> u64 {
        address.wrapping_sub(BUS)
    }
}

/// A check has left the memory that it was given.
const OUTSIDE: &str = "checks stay within what they allocate";

impl Target for CardUnderTest {
    fn read32(&mut self, offset: u64) -> u32 {
        u32::from_le_bytes(self.read_register(offset))
    }

    fn read64(&mut self, offset: u64) -> u64 {
        u64::from_le_bytes(self.read_register(offset))
    }

    fn write32(&mut self, offset: u64, value: u32) {
        if offset == register::DOORBELL {
            self.doorbells += 1;
            if self.doorbells % 2 == 0 {
                self.transport.ring_doorbell();
                return;
            }
        }
        self.write_register(offset, &value.to_le_bytes());
    }

    fn write64(&mut self, offset: u64, value: u64) {
        self.write_register(offset, &value.to_le_bytes());
    }

    fn allocate(&mut self, bytes: usize) -> u64 {
        let at = self.used;
        self.used += (bytes as u64).next_multiple_of(PAGE_SIZE as u64);
        assert!(self.used <= self.memory.bytes(), "a check takes a few MiB at most");
        BUS + at
    }

    fn release(&mut self) {
        let zeros = vec![0; 1 << 16];
        for at in (0..self.used).step_by(zeros.len()) {
            let bytes = (self.used - at).min(zeros.len() as u64) as usize;
            self.memory.write(at, &zeros[..bytes]).expect(OUTSIDE);
        }
        self.used = 0;
    }

    fn unreachable(&mut self) -> u64 {
        BUS + 2 * BUS_BYTES
    }

    fn read(&mut self, address: u64, into: &mut [u8]) {
        self.memory.read(CardUnderTest::offset(address), into).expect(OUTSIDE);
    }

    fn write(&mut self, address: u64, from: &[u8]) {
        self.memory.write(CardUnderTest::offset(address), from).expect(OUTSIDE);
    }

    fn load(&mut self, address: u64) -> u32 {
        self.memory.load(CardUnderTest::offset(address)).expect(OUTSIDE)
    }

    fn store(&mut self, address: u64, value: u32) {
        self.memory.store(CardUnderTest::offset(address), value).expect(OUTSIDE);
    }

    fn fence(&mut self) {
        fence(std::sync::atomic::Ordering::SeqCst);
    }

    fn read_frames(&mut self, offset: u64, into: &mut [u8]) {
        let done = match &self.frames {
            Some(frames) => {
                return frames.read(offset, into).expect("checks stay within the frames");
            }
            None => self.transport.read_memory(offset, into),
        };
        self.keep(done);
    }

    fn write_frames(&mut self, offset: u64, from: &[u8]) {
        let done = match &self.frames {
            Some(frames) => {
                return frames.write(offset, from).expect("checks stay within the frames");
            }
            None => self.transport.write_memory(offset, from),
        };
        self.keep(done);
    }

    fn wait(&mut self, vector: u16, limit: Duration) -> bool {
        let Some(event) = self.events.get(usize::from(vector)) else { return false };
        let end = Instant::now() + limit;
        loop {
            if rustix::io::read(event, &mut [0; 8]).is_ok() {
                return true;
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            let mut polled = [PollFd::new(event, PollFlags::IN)];
            // Every outcome means: look.
            let _ = rustix::event::poll(&mut polled, Timespec::try_from(left).ok().as_ref());
        }
    }

    fn pause(&mut self) {
        // A card that is gone lets nobody wait.
        if self.broken.is_none() {
            std::thread::sleep(PAUSE);
        }
    }

    fn patience(&self) -> u32 {
        PAUSES_MAX
    }
}
